/* A job's way through the scheduler: it begins, may be put back, and is over. */
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "sched/scheduler_state.h"

enum { SHARED_LEAST = 2 * SPRY_PAGE_TOKENS }; /* tokens that are worth waiting for */

static bool same_salt(const spry_job *a, const spry_job *b)
{
    return a->salt_size == b->salt_size && (!a->salt_size || memcmp(a->salt, b->salt, a->salt_size) == 0);
}

/* Tokens in whole pages that a prompt has in common with one that is being computed. */
static size_t shared_tokens(const spry_request *r, const spry_request *other)
{
    size_t same = 0, most = r->n_prompt < other->n_prompt ? r->n_prompt : other->n_prompt;
    while (same < most && r->prompt[same] == other->prompt[same])
        same++;
    return same / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
}

bool spry_scheduler_may_begin(const void *scheduler, const spry_job_state *state)
{
    const spry_scheduler *s = scheduler;
    const spry_job *job = state->job;
    for (size_t i = 0; !state->session && i < s->n_running; i++) {
        const spry_generation *g = &s->running[i]->generation;
        const spry_job *other = s->running[i]->job;
        size_t left = spry_sequence_pending(g->sequence), whole = other->request.n_prompt;
        if (g->first_ns || !left || job->request.n_spans || other->request.n_spans || !same_salt(job, other))
            continue;
        size_t shared = shared_tokens(&job->request, &other->request);
        if (shared >= SHARED_LEAST && (left < whole ? whole - left : 0) < shared)
            return false;
    }
    return true;
}

/* Whether an idle session has slid, and the job goes on with what it holds: the cache knows nothing of that. */
static bool goes_on(const spry_session *session, const spry_job *job)
{
    const spry_sequence *q = &session->sequence;
    const spry_kv_key root = spry_kv_key_root(session->engine->fingerprint, job->salt, job->salt_size);
    return q->n_dropped && job->slide && q->keep == job->keep && spry_kv_key_equal(q->root, root) &&
           job->request.n_prompt > q->slid_at &&
           memcmp(job->request.prompt, q->tokens, q->slid_at * sizeof *q->tokens) == 0;
}

/* The place of the idle session that suits a job best: one it goes on with, then an empty one; otherwise n_idle. */
static size_t best_idle(const spry_scheduler *s, const spry_job *job)
{
    size_t best = s->n_idle;
    for (size_t i = 0; i < s->n_idle; i++) {
        if (goes_on(s->idle[i], job))
            return i;
        if (!s->idle[i]->sequence.n_dropped)
            best = i;
    }
    return best;
}

static spry_status take_session(spry_scheduler *s, spry_job_state *state)
{
    spry_job *job = state->job;
    size_t at = best_idle(s, job);
    if (at == s->n_idle && s->n_sessions < s->options.max_running) {
        spry_status status = spry_session_create(&state->session, s->engine, &job->error);
        if (status)
            return status;
        s->n_sessions++;
    } else {
        at = at < s->n_idle ? at : 0; /* another conversation's, then: the one that ended first */
        state->session = s->idle[at];
        s->n_idle--;
        memmove(s->idle + at, s->idle + at + 1, (s->n_idle - at) * sizeof(spry_session *));
    }
    if (goes_on(state->session, job))
        return SPRY_OK;
    spry_session_set_salt(state->session, job->salt, job->salt_size);
    spry_session_set_slide(state->session, job->slide, job->keep);
    return SPRY_OK;
}

/* Its pages stay known, and are anybody's. Those that slid are known to nobody, and wait for the conversation's next
 * turn until they are needed. */
static void leave_session(spry_scheduler *s, spry_job_state *state)
{
    if (!state->session)
        return;
    if (!state->session->sequence.n_dropped)
        spry_sequence_release(&state->session->sequence);
    s->idle[s->n_idle++] = state->session;
    state->session = NULL;
}

bool spry_scheduler_empty_idle(spry_scheduler *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_idle; i++) {
        any = any || s->idle[i]->sequence.n_dropped;
        spry_sequence_release(&s->idle[i]->sequence);
    }
    return any;
}

static spry_status begin(spry_scheduler *s, spry_job_state *state)
{
    spry_job *job = state->job;
    spry_result_init(&job->result, &job->request);
    state->generation = (spry_generation){.request = &job->request,
                                          .result = &job->result,
                                          .matcher = state->matcher,
                                          .cancelled = &state->cancelled,
                                          .laps = &state->laps};
    spry_status status = take_session(s, state);
    if (!status)
        status = spry_session_prepare(state->session, &state->generation, !s->n_running, &job->error);
    if (status)
        return status;
    state->drafter = state->generation.drafter;
    state->needs_quiet = state->drafter && state->drafter->self == s->engine->drafter;
    job->queue_ms = (double)(spry_clock_ns() - state->laps.began_ns) / 1e6;
    return spry_generation_begin(&state->generation, &job->error);
}

static void put_back(spry_scheduler *s, spry_job_state *state)
{
    pthread_mutex_lock(&s->lock);
    spry_job_queue_put_back(&s->queue, state);
    pthread_mutex_unlock(&s->lock);
}

void spry_scheduler_begin(spry_scheduler *s, spry_job_state *state)
{
    if (atomic_load(&state->cancelled)) {
        spry_scheduler_end_cancelled(s, state);
        return;
    }
    bool begun = state->session;
    spry_lap(&state->laps, SPRY_PART_QUEUE);
    spry_status status = begun ? spry_generation_resume(&state->generation, &state->job->error) : begin(s, state);
    if (!status) {
        s->running[s->n_running++] = state;
        return;
    }
    bool starved = state->session && spry_generation_starved(&state->generation);
    bool some_freed = starved && spry_scheduler_empty_idle(s);
    if (!starved || (!s->n_running && !some_freed)) {
        spry_scheduler_finish(s, state, status);
        return;
    }
    if (!begun) {
        spry_generation_end(&state->generation);
        leave_session(s, state);
    }
    s->crowded = !some_freed;
    put_back(s, state);
}

/* Whether it ran. */
static bool stop_running(spry_scheduler *s, const spry_job_state *state)
{
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i] == state) {
            s->n_running--;
            memmove(s->running + i, s->running + i + 1, (s->n_running - i) * sizeof *s->running);
            s->crowded = false; /* whoever waits for pages may find some */
            return true;
        }
    return false;
}

void spry_scheduler_finish(spry_scheduler *s, spry_job_state *state, spry_status status)
{
    spry_job *job = state->job;
    stop_running(s, state);
    if (state->session) {
        state->generation.drafter = state->drafter; /* the report is his */
        spry_generation_end(&state->generation);
    } else {
        spry_lap(&state->laps, SPRY_PART_QUEUE);
    }
    spry_engine_end_laps(&state->laps, &job->request, &job->result);
    leave_session(s, state);
    spry_matcher_destroy(state->matcher);
    job->status = status;
    if (!status)
        job->error = (spry_error){0};
    pthread_mutex_lock(&s->lock);
    job->state = NULL;
    s->figures.failed += status != SPRY_OK;
    s->figures.cancelled += !status && job->result.finish == SPRY_FINISH_CANCELLED;
    s->figures.finished += !status && job->result.finish != SPRY_FINISH_CANCELLED;
    s->figures.running = (uint32_t)s->n_running;
    pthread_mutex_unlock(&s->lock);
    free(state);
    job->on_done(job);
}

void spry_scheduler_end_cancelled(spry_scheduler *s, spry_job_state *state)
{
    size_t n;
    atomic_store(&state->cancelled, true);
    bool ran = stop_running(s, state); /* otherwise it was put back, or never began */
    if (!ran)
        spry_lap(&state->laps, SPRY_PART_QUEUE);
    if (state->session) /* sees that it is, and ends */
        spry_generation_next(&state->generation, NULL, &n, 0, 0, 0, 0, NULL);
    else {
        spry_result_init(&state->job->result, &state->job->request);
        state->job->result.finish = SPRY_FINISH_CANCELLED;
    }
    spry_scheduler_finish(s, state, SPRY_OK);
}

void spry_scheduler_preempt(spry_scheduler *s)
{
    spry_job_state *youngest = s->running[--s->n_running];
    spry_generation_suspend(&youngest->generation);
    s->crowded = true;
    put_back(s, youngest);
    pthread_mutex_lock(&s->lock);
    s->figures.preempted++;
    pthread_mutex_unlock(&s->lock);
}
