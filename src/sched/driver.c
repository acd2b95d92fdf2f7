/* Who owns the engine, who drives, and when jobs begin. */
#include "sched/driver.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/sized.h"
#include "platform/background.h"
#include "platform/clock.h"
#include "platform/memory.h"

#define WATCH_NS 1000000000u /* between two looks at the machine's memory */

/* ---- owning the engine --------------------------------------------------------------------------------------------
 */

static bool owns(const spry_driver *d)
{
    return d->depth && pthread_equal(d->owner, pthread_self());
}

/* The lock is held. */
static void take_turn(spry_driver *d)
{
    uint64_t ticket = d->next_ticket++;
    while (d->serving != ticket)
        pthread_cond_wait(&d->changed, &d->lock);
    d->owner = pthread_self();
    d->depth = 1;
}

/* The lock is held. */
static void end_turn(spry_driver *d)
{
    d->depth = 0;
    d->serving++;
    pthread_cond_broadcast(&d->changed);
}

void spry_driver_enter(spry_driver *d)
{
    pthread_mutex_lock(&d->lock);
    if (owns(d))
        d->depth++;
    else
        take_turn(d);
    pthread_mutex_unlock(&d->lock);
}

void spry_driver_leave(spry_driver *d)
{
    if (d->depth == 1)
        spry_driver_settle(d);
    pthread_mutex_lock(&d->lock);
    if (d->depth > 1)
        d->depth--;
    else
        end_turn(d);
    pthread_mutex_unlock(&d->lock);
}

bool spry_driver_is_owner(spry_driver *d)
{
    pthread_mutex_lock(&d->lock);
    bool is = owns(d);
    pthread_mutex_unlock(&d->lock);
    return is;
}

/* ---- rounds -------------------------------------------------------------------------------------------------------
 */

/* Whether only the sum of all answers counts now. */
static bool is_offline(const spry_driver *d)
{
    return d->options.policy == SPRY_POLICY_OFFLINE ||
           (d->options.policy == SPRY_POLICY_AUTO && d->queue.count > d->options.max_running);
}

/* Jobs on sessions of the driver that may run at once. */
static size_t limit(const spry_driver *d)
{
    return is_offline(d) ? spry_batch_choice_limit(&d->choice) : d->options.max_running;
}

static bool has_place(const void *context, const spry_job *job)
{
    const spry_driver *d = context;
    bool yields = job->batch && spry_job_queue_is_urgent(&d->queue);
    return (job->is_callers || (!yields && d->n_running_own < limit(d))) && spry_driver_may_begin(d, job);
}

/* A job whose turn it was before and that can go on now, or the one whose turn it is. Jobs that wait for another's text
 * have a place, too. The lock is held. */
static spry_job *next_to_begin(spry_driver *d)
{
    spry_job *job = spry_job_queue_take_ready(&d->queue, has_place, d);
    while (!job && d->n_running_own + spry_job_queue_before(&d->queue) < limit(d) &&
           (job = spry_job_queue_take(&d->queue)))
        if (!spry_driver_may_begin(d, job)) {
            spry_job_queue_park(&d->queue, job);
            job = NULL;
        }
    return job;
}

/* Takes the place of the youngest batch job for a job that is none, if there is no other place; false: there is no
 * such job, or a place is free. The lock is held, and released meanwhile. */
static bool make_place(spry_driver *d)
{
    bool full = d->crowded || d->n_running == d->most || d->n_running_own >= limit(d);
    if (!full || !spry_job_queue_is_urgent(&d->queue))
        return false;
    pthread_mutex_unlock(&d->lock);
    bool made = spry_driver_yield(d);
    pthread_mutex_lock(&d->lock);
    return made;
}

static void let_begin(spry_driver *d)
{
    spry_job *job;
    if (!d->n_running)
        d->crowded = false;
    pthread_mutex_lock(&d->lock);
    do {
        while (d->n_running < d->most && !d->crowded && (job = next_to_begin(d))) {
            pthread_mutex_unlock(&d->lock);
            spry_driver_begin(d, job);
            pthread_mutex_lock(&d->lock);
        }
    } while (make_place(d));
    d->figures.running = (uint32_t)d->n_running;
    pthread_mutex_unlock(&d->lock);
}

void spry_driver_end_cancelled(spry_driver *d)
{
    spry_job *job;
    pthread_mutex_lock(&d->lock);
    while ((job = spry_job_queue_take_cancelled(&d->queue))) {
        pthread_mutex_unlock(&d->lock);
        spry_driver_end_job(d, job);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < d->n_running;)
        if (atomic_load(d->running[i]->cancelled))
            spry_driver_end_job(d, d->running[i]);
        else
            i++;
}

/* Looked at now and then while there is work: cached pages must not drive other programs out of memory. */
static void watch_memory(spry_driver *d)
{
    uint64_t now = spry_clock_ns();
    if (!d->engine->kv_idle || now - d->watched_ns < WATCH_NS)
        return;
    d->watched_ns = now;
    if (spry_memory_is_short(""))
        spry_engine_return_memory(d->engine);
}

void spry_driver_round(spry_driver *d)
{
    spry_driver_end_cancelled(d);
    let_begin(d);
    if (d->n_running)
        spry_driver_step(d);
    watch_memory(d);
}

/* Rounds until `job` is over; NULL: until nothing runs or waits. Others may own the engine between two rounds. The lock
 * is held, and released meanwhile. */
static void drive(spry_driver *d, const spry_job *job)
{
    d->driving = true;
    take_turn(d);
    while (job ? !job->over : !d->stopping && (d->figures.running || d->queue.count)) {
        pthread_mutex_unlock(&d->lock);
        spry_driver_round(d);
        pthread_mutex_lock(&d->lock);
        if (d->next_ticket != d->serving + 1) {
            pthread_mutex_unlock(&d->lock);
            spry_driver_settle(d);
            pthread_mutex_lock(&d->lock);
            end_turn(d);
            take_turn(d);
        }
    }
    pthread_mutex_unlock(&d->lock);
    spry_driver_settle(d);
    pthread_mutex_lock(&d->lock);
    d->driving = false;
    end_turn(d);
}

/* ---- returning memory ---------------------------------------------------------------------------------------------
 */

/* Nothing has run for a while. The lock is held, and released meanwhile. */
static void rest(spry_driver *d)
{
    take_turn(d);
    pthread_mutex_unlock(&d->lock);
    spry_driver_empty_idle(d);
    spry_engine_return_memory(d->engine);
    pthread_mutex_lock(&d->lock);
    end_turn(d);
}

/* Waits for work; returns memory when none has come for the set time. Other threads wake this one for their own
 * reasons, so the time counts from the end of the last work. The lock is held. */
static void wait_for_work(spry_driver *d, uint64_t worked_ns, bool *rested)
{
    const uint64_t idle_ns = d->engine->kv_idle * (uint64_t)1000000000, passed = spry_clock_ns() - worked_ns;
    if (*rested || !idle_ns || d->driving) {
        pthread_cond_wait(&d->changed, &d->lock);
    } else if (passed < idle_ns) {
        spry_background_wait(&d->changed, &d->lock, idle_ns - passed);
    } else {
        rest(d);
        *rested = true;
    }
}

static void *thread_main(void *argument)
{
    spry_driver *d = argument;
    uint64_t worked_ns = 0;
    bool rested = true;
    pthread_mutex_lock(&d->lock);
    while (!d->stopping)
        if (!d->driving && (d->figures.running || d->queue.count)) {
            drive(d, NULL);
            worked_ns = spry_clock_ns();
            rested = false;
        } else {
            wait_for_work(d, worked_ns, &rested);
        }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

spry_status spry_driver_run(spry_driver *d, spry_job *job, spry_error *error)
{
    pthread_mutex_lock(&d->lock);
    if (owns(d)) {
        pthread_mutex_unlock(&d->lock);
        return spry_fail(error, SPRY_ERR_BUSY, "a callback of an engine cannot wait for the same engine");
    }
    job->submitted = true;
    spry_job_queue_park(&d->queue, job);
    pthread_cond_broadcast(&d->changed);
    while (!job->over)
        if (d->driving || d->has_thread)
            pthread_cond_wait(&d->changed, &d->lock);
        else
            drive(d, job);
    pthread_mutex_unlock(&d->lock);
    if (job->status && error)
        *error = job->error;
    return job->status;
}

/* ---- submitting ---------------------------------------------------------------------------------------------------
 */

void spry_jobs_options_default_sized(spry_jobs_options *options, size_t size)
{
    const spry_jobs_options own = {.max_waiting = 256, .max_stall_ms = 50, .gentle = true, .policy = SPRY_POLICY_AUTO};
    spry_sized_default(options, size, &own, sizeof own);
}

static spry_status check_options(const spry_engine *e, spry_jobs_options *o, spry_error *error)
{
    uint32_t left = e->sessions - e->n_sessions;
    if (!left)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine was opened for %u sessions, all of them are in use",
                         e->sessions);
    if (!o->max_running)
        o->max_running = left < e->chunk ? left : e->chunk;
    if (o->max_running > left)
        return spry_fail(error, SPRY_ERR_INPUT, "max-running is %u, outside 1 to the engine's %u sessions",
                         o->max_running, left);
    if (o->max_running > e->chunk)
        return spry_fail(error, SPRY_ERR_INPUT, "max-running is %u, but a step has %u rows; make chunk larger",
                         o->max_running, e->chunk);
    if (!(o->max_stall_ms >= 0))
        return spry_fail(error, SPRY_ERR_INPUT, "max-stall is %g ms, below 0", o->max_stall_ms);
    if ((unsigned)o->policy > SPRY_POLICY_AUTO)
        return spry_fail(error, SPRY_ERR_INPUT, "policy %d is not known", (int)o->policy);
    return SPRY_OK;
}

/* Reserves sessions for jobs. The lock is held. */
static spry_status configure(spry_driver *d, const spry_jobs_options *options, spry_error *error)
{
    spry_engine *e = d->engine;
    spry_jobs_options o = *options;
    uint32_t reserved = d->configured ? d->options.max_running : 0;
    e->n_sessions -= reserved;
    spry_status status = check_options(e, &o, error);
    if (!status)
        status = spry_job_queue_resize(&d->queue, (size_t)o.max_waiting + o.max_running, error);
    e->n_sessions += status ? reserved : o.max_running;
    if (status)
        return status;
    d->options = o;
    d->configured = true;
    spry_batch_choice_init(&d->choice, o.max_running, o.policy == SPRY_POLICY_OFFLINE);
    return SPRY_OK;
}

spry_status spry_engine_set_jobs(spry_engine *e, const spry_jobs_options *options, spry_error *error)
{
    spry_driver *d = e->driver;
    spry_jobs_options own;
    spry_jobs_options_default(&own);
    spry_status status = spry_sized_read(&own, sizeof own, options, "spry_jobs_options", error);
    if (status)
        return status;
    spry_driver_enter(d);
    spry_driver_drop_idle(d);
    pthread_mutex_lock(&d->lock);
    if (d->n_handles || d->queue.count || d->n_running)
        status = spry_fail(error, SPRY_ERR_BUSY, "the engine has jobs; set their limits before the first one");
    else
        status = configure(d, &own, error);
    pthread_mutex_unlock(&d->lock);
    spry_driver_leave(d);
    return status;
}

/* The lock is held. */
static spry_status start(spry_driver *d, spry_error *error)
{
    spry_status status = SPRY_OK;
    spry_jobs_options options;
    spry_jobs_options_default(&options);
    if (!d->configured)
        status = configure(d, &options, error);
    if (!status && !d->has_thread)
        status = spry_background_start(&d->thread, thread_main, d, "the engine", error);
    d->has_thread = d->has_thread || !status;
    return status;
}

spry_status spry_driver_submit(spry_driver *d, spry_job *job, spry_error *error)
{
    pthread_mutex_lock(&d->lock);
    spry_status status = start(d, error);
    size_t waiting = d->queue.count, running = d->figures.running, most = d->options.max_running;
    size_t can_begin = running < most ? most - running : 0;
    if (!status && waiting >= d->options.max_waiting + can_begin) {
        d->figures.refused++;
        status = spry_fail(error, SPRY_ERR_BUSY, "%zu requests wait already; try again later", waiting);
    }
    if (!status) {
        job->submitted = true;
        spry_job_queue_add(&d->queue, job);
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* ---- beginning and end --------------------------------------------------------------------------------------------
 */

static void free_all(spry_driver *d)
{
    spry_driver_drop_idle(d);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    spry_job_queue_deinit(&d->queue);
    spry_driver_ahead_deinit(d);
    free(d->step.segments);
    free(d->step.draws);
    free(d->running);
    free(d->idle);
    free(d);
}

spry_status spry_driver_create(spry_driver **out, spry_engine *engine, spry_error *error)
{
    *out = NULL;
    spry_driver *d = calloc(1, sizeof *d);
    if (!d)
        return spry_fail_memory(error, "a driver", sizeof *d);
    d->engine = engine;
    d->most = engine->sessions < engine->chunk ? engine->sessions : engine->chunk;
    spry_jobs_options_default(&d->options);
    d->options.max_running = d->most;
    pthread_mutex_init(&d->lock, NULL);
    spry_background_condition(&d->changed);
    d->step.capacity = SPRY_STEP_SEGMENTS + (size_t)d->most * 2;
    d->step.segments = calloc(d->step.capacity, sizeof *d->step.segments);
    d->step.draws = calloc(engine->logit_rows, sizeof *d->step.draws);
    d->running = calloc(d->most, sizeof(spry_job *));
    d->idle = calloc(2 * (size_t)d->most, sizeof(spry_session *));
    spry_batch_choice_init(&d->choice, d->most, false);
    spry_status status = spry_driver_ahead_init(d, error);
    if (!d->step.segments || !d->step.draws || !d->running || !d->idle)
        status = spry_fail_memory(error, "a driver", d->step.capacity * sizeof *d->step.segments);
    if (status)
        free_all(d);
    else
        *out = d;
    return status;
}

static bool any_job(const void *context, const spry_job *job)
{
    (void)context;
    (void)job;
    return true;
}

void spry_driver_destroy(spry_driver *d)
{
    spry_job *job;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (d->has_thread)
        pthread_join(d->thread, NULL);
    spry_driver_enter(d);
    while ((job = spry_job_queue_take_ready(&d->queue, any_job, NULL)) || (job = spry_job_queue_take(&d->queue)) ||
           d->n_running)
        spry_driver_end_job(d, job ? job : d->running[0]);
    spry_driver_leave(d);
    if (d->figures.ahead)
        spry_log_write(&d->engine->log, SPRY_LOG_DEBUG,
                       "%s: %llu of %llu steps began before the tokens of the step before were read",
                       d->engine->model->name, (unsigned long long)d->figures.ahead,
                       (unsigned long long)d->figures.steps);
    free_all(d);
}

void spry_engine_jobs_figures(spry_engine *e, spry_jobs_figures *figures)
{
    spry_driver *d = e->driver;
    pthread_mutex_lock(&d->lock);
    *figures = d->figures;
    figures->size = sizeof *figures - sizeof figures->reserved;
    figures->waiting = (uint32_t)d->queue.count;
    figures->max_running = d->options.max_running;
    if (is_offline(d)) {
        figures->batch_limit = spry_batch_choice_explain(&d->choice, figures->evidence, sizeof figures->evidence);
    } else {
        figures->batch_limit = d->options.max_running;
        snprintf(figures->evidence, sizeof figures->evidence, "interactive: a job begins at once, up to %u together",
                 d->options.max_running);
    }
    pthread_mutex_unlock(&d->lock);
}
