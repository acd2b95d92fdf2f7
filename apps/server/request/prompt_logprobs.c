/* The scheduler's spare session walks through the prompt. It is given back after every part, for others who need it;
 * what was computed is found again. */
#include "server/request/prompt_logprobs.h"

#include <math.h>

#include "engine/engine_state.h"
#include "engine/top_logprobs.h"
#include "server/http/http_server.h"

enum { PART_TOKENS = 32 };

typedef struct scoring {
    const spry_completion *completion;
    const spry_tokens *prompt;
    spry_answer_token *tokens;
    spry_request request; /* tells `keep` of a token */
    size_t index;         /* of the token being told */
    size_t done;
    spry_status status;
    spry_error *error;
} scoring;

static bool keep(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    scoring *s = user;
    spry_answer_token *kept = &s->tokens[s->index];
    *kept = (spry_answer_token){.token = token, .n_top = n_top};
    if (n_top)
        memcpy(kept->top, top, n_top * sizeof *top);
    return true;
}

static bool on_row(void *user, size_t index, const float *logits)
{
    scoring *s = user;
    s->index = index + 1;
    if (s->index < s->prompt->count)
        spry_report_token(&s->request, s->prompt->ids[s->index], logits,
                          s->completion->model->engine->model->config.n_vocab);
    return true;
}

static void score_part(void *context, spry_engine *engine)
{
    scoring *s = context;
    const spry_completion *c = s->completion;
    spry_session *session;
    s->status = spry_session_create(&session, engine, s->error);
    if (s->status != SPRY_OK)
        return;
    spry_session_set_salt(session, c->exchange->key.data, c->exchange->key.size);
    size_t left = s->prompt->count - s->done, part = left < PART_TOKENS ? left : PART_TOKENS;
    s->status = spry_session_eval_from(session, s->prompt->ids, s->done + part, s->done, on_row, s, s->error);
    s->done += part;
    spry_session_destroy(session);
}

spry_status spry_prompt_logprobs(spry_answer_token *tokens, spry_completion *c, const spry_tokens *prompt,
                                 spry_error *error)
{
    scoring s = {.completion = c, .prompt = prompt, .tokens = tokens, .error = error};
    spry_request_default(&s.request);
    s.request.logprobs = c->options.request.logprobs;
    s.request.on_token = keep;
    s.request.user = &s;
    tokens[0] = (spry_answer_token){.token = {prompt->ids[0], NAN}};
    spry_costs_begin_share(&c->costs);
    while (s.done < prompt->count && s.status == SPRY_OK) {
        s.status = spry_http_check_reader(c->exchange, error);
        if (s.status == SPRY_OK)
            spry_scheduler_call(c->model->scheduler, score_part, &s);
    }
    return s.status;
}
