/* Clients: threads that take the next request when their last one is answered, so that `together` requests are under
 * way at any time. The first failure ends all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/mix.h"
#include "cli/interrupt.h"
#include "platform/clock.h"
#include "platform/threads.h"

typedef struct crowd {
    spry_mix_run *run;
    const spry_mix_plan *plan;
    const spry_mix_target *target;
    spry_progress_line line;
    pthread_mutex_t lock; /* guards everything below */
    size_t next;
    bool stopped;
} crowd;

void spry_mix_answer_event(spry_mix_answer *a)
{
    uint64_t now = spry_clock_ns();
    if (!a->events++) {
        a->ttft_ms = (double)(now - a->began_ns) / 1e6;
    } else {
        if (a->n_gaps == a->gap_room) {
            size_t room = a->gap_room ? 2 * a->gap_room : 256;
            double *grown = realloc(a->gaps_ms, room * sizeof *grown);
            a->failed = a->failed || !grown;
            a->gaps_ms = grown ? grown : a->gaps_ms;
            a->gap_room = grown ? room : a->gap_room;
        }
        if (a->n_gaps < a->gap_room)
            a->gaps_ms[a->n_gaps++] = (double)(now - a->last_ns) / 1e6;
    }
    a->last_ns = now;
}

/* ---- an engine --------------------------------------------------------------------------------------------------- */

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    (void)token;
    (void)top;
    (void)n_top;
    spry_mix_answer_event(user);
    return !spry_interrupt_seen();
}

static bool on_prefill(void *user, size_t done, size_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return !spry_interrupt_seen();
}

static spry_status generate(spry_engine *engine, spry_mix_answer *answer, const spry_chat_prompt *prompt,
                            uint32_t max_tokens, spry_error *error)
{
    spry_session *session = NULL;
    spry_request request;
    spry_result result = {0};
    spry_request_default(&request);
    request.prompt = prompt->ids;
    request.n_prompt = prompt->count;
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.on_token = on_token;
    request.on_prefill = on_prefill;
    request.user = answer;
    spry_status status = spry_session_create(&session, engine, error);
    if (!status)
        status = spry_session_generate(session, &result, &request, error);
    if (!status && result.finish == SPRY_FINISH_CANCELLED)
        status = spry_fail(error, SPRY_ERR_CANCELLED, "interrupted");
    spry_session_destroy(session);
    answer->prompt_tokens = result.prompt_tokens;
    answer->answer_tokens = result.generated_tokens;
    answer->hit_tokens = result.reused_tokens;
    answer->hits_known = true;
    return status;
}

static spry_status ask_engine(void *self, spry_mix_answer *answer, const spry_mix_request *r, spry_error *error)
{
    spry_engine *engine = self;
    spry_chat_prompt prompt = {0};
    json_t *body = json_pack("{s:O}", "messages", r->messages);
    char *text = body ? json_dumps(body, 0) : NULL;
    spry_status status = text ? spry_engine_chat_prompt(engine, &prompt, text, strlen(text), error)
                              : spry_fail_memory(error, "a request", 1);
    if (!status)
        status = generate(engine, answer, &prompt, r->answer_tokens, error);
    spry_chat_prompt_deinit(&prompt);
    free(text);
    json_decref(body);
    return status;
}

spry_mix_target spry_mix_engine(spry_engine *engine)
{
    return (spry_mix_target){engine, ask_engine};
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static bool take(crowd *c, size_t *index)
{
    pthread_mutex_lock(&c->lock);
    bool found = !c->stopped && c->next < c->plan->count;
    *index = c->next;
    c->next += found;
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void record(crowd *c, size_t index, spry_status status, const spry_error *error)
{
    spry_mix_run *run = c->run;
    pthread_mutex_lock(&c->lock);
    if (status && !c->stopped)
        snprintf(run->why, sizeof run->why, "%s", error->message);
    c->stopped = c->stopped || status;
    run->done[index] = !status;
    run->n_done += !status;
    spry_progress_update(&c->line, run->n_done, run->count);
    pthread_mutex_unlock(&c->lock);
}

static void *client(void *context)
{
    crowd *c = context;
    size_t index;
    while (take(c, &index)) {
        spry_error error;
        spry_mix_answer *answer = &c->run->answers[index];
        answer->began_ns = spry_clock_ns();
        spry_status status = spry_interrupt_seen()
                                 ? spry_fail(&error, SPRY_ERR_CANCELLED, "interrupted")
                                 : c->target->ask(c->target->self, answer, &c->plan->list[index], &error);
        answer->total_ms = (double)(spry_clock_ns() - answer->began_ns) / 1e6;
        if (!status && answer->failed)
            status = spry_fail_memory(&error, "times between tokens", answer->n_gaps * sizeof *answer->gaps_ms);
        record(c, index, status, &error);
    }
    return NULL;
}

static spry_status run_clients(crowd *c, size_t together, spry_error *error)
{
    pthread_t threads[SPRY_MIX_TOGETHER_MAX];
    size_t count = 0;
    spry_status status = SPRY_OK;
    together = together < c->plan->count ? together : c->plan->count;
    for (size_t i = 0; !status && i < together; i++) {
        status = spry_background_start(&threads[i], client, c, "a client", error);
        count += !status;
    }
    pthread_mutex_lock(&c->lock);
    c->stopped = c->stopped || status;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return status;
}

spry_status spry_mix_run_all(spry_mix_run *run, const spry_mix_plan *plan, const spry_mix_target *target,
                             size_t together, spry_error *error)
{
    crowd c = {.run = run, .plan = plan, .target = target};
    run->answers = calloc(plan->count, sizeof *run->answers);
    run->done = calloc(plan->count, sizeof *run->done);
    if (!run->answers || !run->done)
        return spry_fail_memory(error, "answers", plan->count * sizeof *run->answers);
    run->count = plan->count;
    pthread_mutex_init(&c.lock, NULL);
    spry_progress_begin(&c.line, run->where);
    uint64_t began = spry_clock_ns();
    spry_status status = run_clients(&c, together, error);
    run->wall_ms = (double)(spry_clock_ns() - began) / 1e6;
    spry_progress_end(&c.line);
    pthread_mutex_destroy(&c.lock);
    return status;
}

void spry_mix_run_deinit(spry_mix_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        free(run->answers[i].gaps_ms);
    free(run->answers);
    free(run->done);
    *run = (spry_mix_run){.count = 0};
}
