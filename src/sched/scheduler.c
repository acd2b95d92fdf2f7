/* The scheduler's thread, and what others ask of it. */
#include "sched/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/background.h"
#include "platform/clock.h"
#include "sched/scheduler_state.h"

void spry_scheduler_options_default(spry_scheduler_options *options)
{
    *options = (spry_scheduler_options){
        .max_running = 8, .max_waiting = 256, .max_stall_ms = 50, .gentle = true, .policy = SPRY_POLICY_AUTO};
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

/* Whether only the whole counts now. */
static bool is_offline(const spry_scheduler *s)
{
    return s->options.policy == SPRY_POLICY_OFFLINE ||
           (s->options.policy == SPRY_POLICY_AUTO && s->queue.count > s->options.max_running);
}

static size_t limit(const spry_scheduler *s)
{
    return is_offline(s) ? spry_batch_choice_limit(&s->choice) : s->options.max_running;
}

/* The lock is held, and let go while it works. */
static void make_calls(spry_scheduler *s)
{
    while (s->calls) {
        spry_waiting_call *call = s->calls;
        s->calls = call->next;
        if (!s->calls)
            s->last_call = &s->calls;
        pthread_mutex_unlock(&s->lock);
        call->fn(call->context, s->engine);
        pthread_mutex_lock(&s->lock);
        call->done = true;
        pthread_cond_broadcast(&s->called);
    }
}

/* The same. */
static void end_all_cancelled(spry_scheduler *s)
{
    spry_job_state *state;
    s->any_cancelled = false;
    while ((state = spry_job_queue_take_cancelled(&s->queue))) {
        pthread_mutex_unlock(&s->lock);
        spry_scheduler_end_cancelled(s, state);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->n_running;)
        if (atomic_load(&s->running[i]->cancelled))
            spry_scheduler_end_cancelled(s, s->running[i]);
        else
            i++;
    pthread_mutex_lock(&s->lock);
}

/* Whoever has waited for something that is there now, or whose turn it is. Those that still wait have places, too. */
static spry_job_state *next_to_begin(spry_scheduler *s)
{
    spry_job_state *state = spry_job_queue_take_ready(&s->queue, spry_scheduler_may_begin, s);
    while (!state && s->n_running + s->queue.n_ahead < limit(s) && (state = spry_job_queue_take(&s->queue)))
        if (!spry_scheduler_may_begin(s, state)) {
            spry_job_queue_park(&s->queue, state);
            state = NULL;
        }
    return state;
}

/* The same. */
static void let_begin(spry_scheduler *s)
{
    spry_job_state *state;
    if (!s->n_running)
        s->crowded = false;
    while (s->n_running < limit(s) && !s->crowded && (state = next_to_begin(s))) {
        pthread_mutex_unlock(&s->lock);
        spry_scheduler_begin(s, state);
        pthread_mutex_lock(&s->lock);
    }
    s->figures.running = (uint32_t)s->n_running;
}

static bool anybody(const void *context, const spry_job_state *state)
{
    (void)context;
    (void)state;
    return true;
}

/* The same: at the end, everybody is cancelled. */
static void end_all(spry_scheduler *s)
{
    spry_job_state *state;
    while ((state = spry_job_queue_take_ready(&s->queue, anybody, NULL)) || (state = spry_job_queue_take(&s->queue)) ||
           s->n_running) {
        pthread_mutex_unlock(&s->lock);
        spry_scheduler_end_cancelled(s, state ? state : s->running[0]);
        pthread_mutex_lock(&s->lock);
    }
}

static void *thread_main(void *argument)
{
    spry_scheduler *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        if (!s->n_running && !s->queue.count && !s->calls) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        make_calls(s);
        if (s->any_cancelled)
            end_all_cancelled(s);
        let_begin(s);
        pthread_mutex_unlock(&s->lock);
        if (s->n_running)
            spry_scheduler_step(s);
        pthread_mutex_lock(&s->lock);
    }
    make_calls(s);
    end_all(s);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static spry_status check_options(const spry_engine *e, const spry_scheduler_options *o, spry_error *error)
{
    if (!o->max_running || o->max_running > e->sessions - e->n_sessions)
        return spry_fail(error, SPRY_ERR_INPUT, "max-running is %u, outside 1 to the engine's %u sessions",
                         o->max_running, e->sessions - e->n_sessions);
    if (o->max_running > e->chunk)
        return spry_fail(error, SPRY_ERR_INPUT, "max-running is %u, but a step has %u rows; make chunk larger",
                         o->max_running, e->chunk);
    if (!(o->max_stall_ms >= 0))
        return spry_fail(error, SPRY_ERR_INPUT, "max-stall is %g ms, below 0", o->max_stall_ms);
    return SPRY_OK;
}

static void free_all(spry_scheduler *s)
{
    while (s->n_idle)
        spry_session_destroy(s->idle[--s->n_idle]);
    pthread_cond_destroy(&s->called);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    spry_job_queue_deinit(&s->queue);
    free(s->step.segments);
    free(s->running);
    free(s->idle);
    free(s);
}

spry_status spry_scheduler_create(spry_scheduler **out, spry_engine *engine, const spry_scheduler_options *options,
                                  spry_error *error)
{
    *out = NULL;
    spry_status status = check_options(engine, options, error);
    if (status)
        return status;
    spry_scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a scheduler", sizeof *s);
    s->engine = engine;
    s->options = *options;
    s->last_call = &s->calls;
    spry_batch_choice_init(&s->choice, options->max_running);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->called, NULL);
    s->step.capacity = SPRY_STEP_SEGMENTS + (size_t)options->max_running * 2;
    s->step.segments = calloc(s->step.capacity, sizeof *s->step.segments);
    s->running = calloc(options->max_running, sizeof(spry_job_state *));
    s->idle = calloc(options->max_running, sizeof(spry_session *));
    if (!s->step.segments || !s->running || !s->idle)
        status = spry_fail_memory(error, "a scheduler", s->step.capacity * sizeof *s->step.segments);
    if (!status)
        status = spry_job_queue_init(&s->queue, (size_t)options->max_waiting + options->max_running, error);
    if (!status)
        status = spry_background_start(&s->thread, thread_main, s, "the scheduler", error);
    if (status)
        free_all(s);
    else
        *out = s;
    return status;
}

void spry_scheduler_destroy(spry_scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_all(s);
}

/* ---- from other threads ----------------------------------------------------------------------------------------- */

static void refuse(spry_job *job)
{
    spry_job_state *state = job->state;
    spry_result_init(&job->result, &job->request);
    spry_engine_end_laps(&state->laps, &job->request, &job->result);
    spry_matcher_destroy(state->matcher);
    free(state);
    job->state = NULL;
}

/* Everything that can be found wrong is found before the job waits; so is the grammar compiled, on the caller's time.
 */
static spry_status make_state(spry_scheduler *s, spry_job *job, spry_error *error)
{
    spry_status status = spry_engine_check_request(s->engine, &job->request, job->slide, error);
    if (status)
        return status;
    spry_job_state *state = calloc(1, sizeof *state);
    if (!state)
        return spry_fail_memory(error, "a job", sizeof *state);
    state->job = job;
    spry_engine_begin_laps(s->engine, &state->laps, &job->request);
    atomic_init(&state->cancelled, false);
    job->state = state;
    status = spry_engine_make_matcher(s->engine, &state->matcher, &job->request, error);
    spry_lap(&state->laps, SPRY_PART_GRAMMAR);
    if (status)
        refuse(job);
    return status;
}

spry_status spry_scheduler_submit(spry_scheduler *s, spry_job *job, spry_error *error)
{
    job->state = NULL;
    job->queue_ms = 0;
    spry_status status = make_state(s, job, error);
    if (status)
        return status;
    pthread_mutex_lock(&s->lock);
    size_t waiting = s->queue.count, can_begin = s->options.max_running - s->figures.running;
    if (waiting < s->options.max_waiting + can_begin) {
        spry_job_queue_add(&s->queue, job->state);
        pthread_cond_signal(&s->wake);
    } else {
        s->figures.refused++;
        status = spry_fail(error, SPRY_ERR_BUSY, "%zu requests wait already; try again later", waiting);
    }
    pthread_mutex_unlock(&s->lock);
    if (status)
        refuse(job);
    return status;
}

void spry_scheduler_cancel(spry_scheduler *s, spry_job *job)
{
    pthread_mutex_lock(&s->lock);
    if (job->state) {
        atomic_store(&job->state->cancelled, true);
        s->any_cancelled = true;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}

void spry_scheduler_call(spry_scheduler *s, void (*fn)(void *context, spry_engine *engine), void *context)
{
    if (pthread_equal(pthread_self(), s->thread)) {
        fn(context, s->engine);
        return;
    }
    spry_waiting_call call = {.fn = fn, .context = context};
    pthread_mutex_lock(&s->lock);
    *s->last_call = &call;
    s->last_call = &call.next;
    pthread_cond_signal(&s->wake);
    while (!call.done)
        pthread_cond_wait(&s->called, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void spry_scheduler_describe(spry_scheduler *s, spry_scheduler_figures *figures)
{
    pthread_mutex_lock(&s->lock);
    *figures = s->figures;
    figures->waiting = (uint32_t)s->queue.count;
    if (is_offline(s)) {
        figures->batch_limit = spry_batch_choice_explain(&s->choice, figures->evidence, sizeof figures->evidence);
    } else {
        figures->batch_limit = s->options.max_running;
        snprintf(figures->evidence, sizeof figures->evidence, "interactive: whoever comes begins at once, up to %u",
                 s->options.max_running);
    }
    pthread_mutex_unlock(&s->lock);
}
