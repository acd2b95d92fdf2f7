/* One answer: prefill, then token after token, each drawn, decoded and handed out. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/engine_state.h"
#include "engine/stop_match.h"
#include "platform/clock.h"

enum { MAX_HELD_BYTES = 1 << 20, MAX_STOP_STRINGS = 64 };

typedef struct answer {
    spry_session *session;
    const spry_request *request;
    spry_result *result;
    spry_error *error;
    spry_decoder decoder;
    spry_buffer held; /* decoded, not given out yet */
    bool ended;
    bool unheard; /* on_text said no: it hears nothing more */
} answer;

void spry_request_default(spry_request *request)
{
    *request = (spry_request){0};
    spry_sampling_default(&request->sampling);
}

const char *spry_finish_name(spry_finish finish)
{
    static const char *const names[] = {[SPRY_FINISH_END] = "end",
                                        [SPRY_FINISH_STOP] = "stop",
                                        [SPRY_FINISH_LENGTH] = "length",
                                        [SPRY_FINISH_CONTEXT] = "context",
                                        [SPRY_FINISH_CANCELLED] = "cancelled"};
    return (size_t)finish < SPRY_COUNT(names) ? names[finish] : "unknown";
}

static double ms_since(uint64_t start)
{
    return (double)(spry_clock_ns() - start) / 1e6;
}

static spry_status check_request(const spry_session *s, const spry_request *r, spry_error *error)
{
    if (!s->engine->model->tokenizer)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the model comes without a tokenizer",
                         s->engine->model->name);
    if (r->n_stop > MAX_STOP_STRINGS)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu stop strings are more than %d", r->n_stop, MAX_STOP_STRINGS);
    for (size_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i][0] || !spry_utf8_valid(spry_view_of(r->stop[i])))
            return spry_fail(error, SPRY_ERR_INPUT, "stop string %zu is empty or not valid UTF-8", i + 1);
    if (r->logprobs > SPRY_TOP_LOGPROBS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "logprobs is %u, more than %d", r->logprobs, SPRY_TOP_LOGPROBS_MAX);
    return SPRY_OK;
}

static void finish(answer *a, spry_finish why)
{
    if (!a->ended)
        a->result->finish = why;
    a->ended = true;
}

/* Gives out what no stop string can claim any more. At the end of the text nothing is held back. */
static void give_out(answer *a, bool end_of_text)
{
    const spry_request *r = a->request;
    bool found;
    size_t ready = spry_stop_match(&found, spry_buffer_view(&a->held), r->stop, r->n_stop, end_of_text);
    if (ready && r->on_text && !a->unheard && !r->on_text(r->user, a->held.data, ready)) {
        finish(a, SPRY_FINISH_CANCELLED);
        a->unheard = true;
    }
    if (found) {
        if (a->result->finish != SPRY_FINISH_CANCELLED) /* also when the text ended while this was not decided yet */
            a->result->finish = SPRY_FINISH_STOP;
        a->ended = true;
        spry_buffer_clear(&a->held);
    } else {
        spry_buffer_consume(&a->held, ready);
    }
}

/* The most likely tokens, sorted; the lower id first where equal. */
static size_t top_logprobs(spry_logprob_entry *top, size_t most, const float *logits, size_t n_vocab, double log_sum)
{
    size_t count = 0;
    for (size_t id = 0; id < n_vocab; id++) {
        double logprob = (double)logits[id] - log_sum;
        if (count == most && (!most || logprob <= top[count - 1].logprob))
            continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && top[at - 1].logprob < logprob; at--)
            top[at] = top[at - 1];
        top[at] = (spry_logprob_entry){(int32_t)id, logprob};
    }
    return count;
}

static void report_token(answer *a, int32_t id, const float *logits)
{
    const spry_request *r = a->request;
    size_t n_vocab = a->session->engine->model->config.n_vocab;
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX], token = {id, spry_logprob(logits, n_vocab, id)};
    double log_sum = (double)logits[id] - token.logprob;
    size_t n_top = r->logprobs ? top_logprobs(top, r->logprobs, logits, n_vocab, log_sum) : 0;
    if (!r->on_token(r->user, token, top, n_top))
        finish(a, SPRY_FINISH_CANCELLED);
}

/* Draws from the logits of the last step, and decodes. */
static spry_status next_token(answer *a, int32_t *id)
{
    spry_session *s = a->session;
    const spry_request *r = a->request;
    const float *logits = spry_pass_logits(s->engine->pass, 0);
    spry_status status = spry_sampler_draw(s->sampler, id, logits, s->tokens, s->n_tokens, NULL, a->error);
    if (status)
        return status;
    if (!r->ignore_end && spry_model_is_end(s->engine->model, *id)) {
        finish(a, SPRY_FINISH_END);
        return SPRY_OK;
    }
    a->result->generated_tokens++;
    if (r->on_token)
        report_token(a, *id, logits);
    if (a->ended)
        return SPRY_OK;
    /* Rows that only pad the embedding say nothing. */
    if ((size_t)*id < spry_tokenizer_size(s->engine->model->tokenizer))
        status = spry_decoder_push(&a->decoder, &a->held, *id, a->error);
    if (!status && a->held.failed)
        status = spry_fail(a->error, SPRY_ERR_MEMORY, "not enough memory for the answer's text");
    if (!status)
        give_out(a, false);
    return status;
}

static spry_status decode_loop(answer *a)
{
    spry_session *s = a->session;
    spry_result *result = a->result;
    int32_t id;
    uint64_t start = spry_clock_ns();
    spry_status status = next_token(a, &id);
    result->first_step_ms = ms_since(start);
    start = spry_clock_ns();
    while (!status && !a->ended) {
        if (a->request->max_tokens && result->generated_tokens >= a->request->max_tokens)
            finish(a, SPRY_FINISH_LENGTH);
        else if (s->n_tokens == s->engine->context)
            finish(a, SPRY_FINISH_CONTEXT);
        else if (atomic_load(&s->cancelled))
            finish(a, SPRY_FINISH_CANCELLED);
        if (a->ended)
            break;
        status = spry_session_step(s, id, a->error);
        if (!status)
            status = next_token(a, &id);
    }
    result->decode_ms = ms_since(start);
    if (!status && result->finish != SPRY_FINISH_STOP) {
        spry_decoder_finish(&a->decoder, &a->held);
        give_out(a, true);
    }
    return status;
}

spry_status spry_session_generate(spry_session *s, spry_result *result, const spry_request *r, spry_error *error)
{
    *result = (spry_result){.prompt_tokens = r->n_prompt};
    atomic_store(&s->cancelled, false);
    spry_status status = check_request(s, r, error);
    if (!status)
        status = spry_sampler_set(s->sampler, &r->sampling, error);
    if (status)
        return status;
    uint64_t start = spry_clock_ns();
    spry_progress progress = {r->on_prefill, r->user};
    status = spry_session_advance(s, &result->reused_tokens, r->prompt, r->n_prompt, r->on_prefill ? &progress : NULL,
                                  error);
    result->prefill_ms = ms_since(start);
    if (status == SPRY_ERR_CANCELLED) {
        result->finish = SPRY_FINISH_CANCELLED;
        status = SPRY_OK;
    } else if (!status) {
        answer a = {.session = s, .request = r, .result = result, .error = error};
        spry_decoder_init(&a.decoder, s->engine->model->tokenizer, r->special);
        spry_decoder_continue(&a.decoder);
        spry_buffer_init(&a.held, MAX_HELD_BYTES);
        status = decode_loop(&a);
        spry_buffer_deinit(&a.held);
    }
    result->total_ms = ms_since(start);
    return status;
}
