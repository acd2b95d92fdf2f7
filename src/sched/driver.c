/* The driver of steps: which thread owns the engine and runs it, and when jobs begin, are put back into the queue, and
 * end. */
#include "sched/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/threads.h"

/* ---- how jobs begin ---------------------------------------------------------------------------------------------- */

enum { SHARED_LEAST = 2 * SPRY_PAGE_TOKENS }; /* minimum tokens in common that are worth waiting for */

/* The number of tokens, in whole pages, with which both prompts begin. */
static size_t shared_tokens(const spry_job *job, const spry_job *other)
{
    size_t same = 0, most = job->n_ids < other->n_ids ? job->n_ids : other->n_ids;
    while (same < most && job->ids[same] == other->ids[same])
        same++;
    return same / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
}

/* True if a job may begin. It may not while another job computes text with which its own prompt begins, because that
 * text is then found in the cache. */
static bool may_begin(const spry_driver *d, const spry_job *job)
{
    for (size_t i = 0; job->reuses && !job->begun && i < d->n_running; i++) {
        const spry_job *other = d->running[i];
        if (other->past_prompt || !other->session || job->n_spans || other->n_spans ||
            !spry_kv_key_equal(job->root, other->root))
            continue;
        size_t left = spry_sequence_pending(&other->session->sequence), whole = other->n_ids;
        size_t shared = left ? shared_tokens(job, other) : 0;
        if (shared >= SHARED_LEAST && (left < whole ? whole - left : 0) < shared)
            return false;
    }
    return true;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* True if an idle session has slid and the job continues its text; the cache does not have such pages. */
static bool goes_on(const spry_session *session, const spry_job *job)
{
    const spry_sequence *q = &session->sequence;
    return q->n_dropped && job->slide && q->keep == job->keep && spry_kv_key_equal(q->root, job->root) &&
           job->n_ids > q->slid_at && memcmp(job->ids, q->tokens, q->slid_at * sizeof *q->tokens) == 0;
}

/* The index of the idle session that is best for a job: one whose text it continues, otherwise an empty one; otherwise
 * n_idle. */
static size_t best_idle(const spry_driver *d, const spry_job *job)
{
    size_t best = d->n_idle;
    for (size_t i = 0; i < d->n_idle; i++) {
        if (goes_on(d->idle[i], job))
            return i;
        if (!d->idle[i]->sequence.n_dropped)
            best = i;
    }
    return best;
}

static spry_status take_session(spry_driver *d, spry_job *job)
{
    size_t at = best_idle(d, job);
    if (at == d->n_idle && (!d->n_idle || d->n_own < d->options.max_running)) {
        spry_status status = spry_session_make(&job->session, d->engine, &job->error);
        if (status)
            return status;
        d->n_own++;
    } else {
        at = at < d->n_idle ? at : 0; /* otherwise the session that has been idle longest */
        job->session = d->idle[at];
        d->n_idle--;
        memmove(d->idle + at, d->idle + at + 1, (d->n_idle - at) * sizeof(spry_session *));
    }
    spry_sequence *q = &job->session->sequence;
    if (!goes_on(job->session, job)) {
        spry_session_restart(job->session, &job->source);
        q->slides = job->slide;
        q->keep = job->keep;
    }
    return SPRY_OK;
}

/* Returns a job's session. Its computed pages stay cached, except pages of a text that has slid: these stay in the idle
 * session for the conversation's next request until they are needed. */
static void leave_session(spry_driver *d, spry_job *job)
{
    if (!job->session || job->is_callers)
        return;
    if (!job->session->sequence.n_dropped)
        spry_sequence_release(&job->session->sequence);
    d->idle[d->n_idle++] = job->session;
    job->session = NULL;
}

bool spry_driver_empty_idle(spry_driver *d)
{
    bool any = false;
    for (size_t i = 0; i < d->n_idle; i++) {
        any = any || d->idle[i]->sequence.n_dropped;
        spry_sequence_release(&d->idle[i]->sequence);
    }
    return any;
}

void spry_driver_drop_idle(spry_driver *d)
{
    for (; d->n_idle; d->n_own--)
        spry_session_unmake(d->idle[--d->n_idle]);
}

/* ---- beginning of jobs ------------------------------------------------------------------------------------------- */

static spry_status begin(spry_driver *d, spry_job *job)
{
    spry_status status = job->is_callers ? SPRY_OK : take_session(d, job);
    if (status)
        return status;
    job->begun = true;
    return job->kind->begin ? job->kind->begin(job, !d->n_running, &job->error) : SPRY_OK;
}

static spry_status resume(spry_job *job)
{
    return job->kind->resume ? job->kind->resume(job, &job->error) : SPRY_OK;
}

static void put_back(spry_driver *d, spry_job *job)
{
    pthread_mutex_lock(&d->lock);
    spry_job_queue_put_back(&d->queue, job);
    pthread_mutex_unlock(&d->lock);
}

/* Begins a job, or resumes a suspended one; puts it back into the queue if pages are short. */
static void driver_begin(spry_driver *d, spry_job *job)
{
    spry_driver_settle(d); /* restoring pages may use the device's threads */
    bool begun = job->begun;
    spry_lap(&job->laps, SPRY_PART_QUEUE);
    spry_status status = begun ? resume(job) : begin(d, job);
    if (!status) {
        d->running[d->n_running++] = job;
        d->n_running_own += !job->is_callers;
        return;
    }
    bool starved = job->begun && job->session && job->session->sequence.starved;
    bool some_freed = starved && spry_driver_empty_idle(d);
    if (!starved || (!d->n_running && !some_freed)) {
        spry_driver_finish(d, job, status);
        return;
    }
    if (!begun) {
        if (job->kind->end)
            job->kind->end(job);
        job->begun = false;
        leave_session(d, job);
    }
    d->crowded = !some_freed;
    put_back(d, job);
}

static void suspend(spry_driver *d, size_t at)
{
    spry_job *job = d->running[at];
    d->n_running--;
    d->n_running_own -= !job->is_callers;
    memmove(d->running + at, d->running + at + 1, (d->n_running - at) * sizeof *d->running);
    if (job->kind->suspend)
        job->kind->suspend(job);
    put_back(d, job);
    pthread_mutex_lock(&d->lock);
    d->figures.preempted++;
    pthread_mutex_unlock(&d->lock);
}

void spry_driver_preempt(spry_driver *d)
{
    suspend(d, d->n_running - 1);
    d->crowded = true;
}

/* Puts the youngest batch job back into the queue, so that its pages become free; false: no batch job runs. */
static bool driver_yield(spry_driver *d)
{
    for (size_t i = d->n_running; i-- > 0;)
        if (d->running[i]->batch && !d->running[i]->is_callers) {
            suspend(d, i);
            d->crowded = false;
            return true;
        }
    return false;
}

/* ---- end of jobs ------------------------------------------------------------------------------------------------- */

/* Removes a job from the running ones; true if it was running. */
static bool stop_running(spry_driver *d, const spry_job *job)
{
    for (size_t i = 0; i < d->n_running; i++)
        if (d->running[i] == job) {
            d->n_running--;
            d->n_running_own -= !job->is_callers;
            memmove(d->running + i, d->running + i + 1, (d->n_running - i) * sizeof *d->running);
            d->crowded = false; /* jobs that wait for pages may now get some */
            return true;
        }
    return false;
}

/* Counts the job and calls on_done. Once `over` is set, a job for which a call on a session waits may be freed. */
static void hand_back(spry_driver *d, spry_job *job)
{
    spry_session *session = job->is_handle && job->is_callers ? job->session : NULL;
    bool cancelled = job->status == SPRY_ERR_CANCELLED || (!job->status && job->result.finish == SPRY_FINISH_CANCELLED);
    pthread_mutex_lock(&d->lock);
    d->figures.failed += job->status && !cancelled;
    d->figures.cancelled += cancelled;
    d->figures.finished += !job->status && !cancelled;
    d->figures.running = (uint32_t)d->n_running;
    job->finished = true;
    pthread_mutex_unlock(&d->lock);
    if (job->on_done && !atomic_load(&job->freed))
        job->on_done(job->user, job);
    if (session) /* before the job is over: then its session is free, and the job may be freed */
        spry_session_leave(session);
    pthread_mutex_lock(&d->lock);
    bool freed = atomic_load(&job->freed);
    job->over = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (freed)
        spry_job_destroy(job);
}

void spry_driver_finish(spry_driver *d, spry_job *job, spry_status status)
{
    stop_running(d, job);
    if (!job->begun)
        spry_lap(&job->laps, SPRY_PART_QUEUE);
    else if (job->kind->end)
        job->kind->end(job);
    spry_job_end_laps(job);
    leave_session(d, job);
    job->status = status;
    if (!status)
        job->error = (spry_error){0};
    hand_back(d, job);
}

/* Ends a job, which is running or has been taken out of the queue, as cancelled. */
static void end_job(spry_driver *d, spry_job *job)
{
    atomic_store(job->cancelled, true);
    if (!stop_running(d, job)) /* the job waits in the queue, or was put back */
        spry_lap(&job->laps, SPRY_PART_QUEUE);
    spry_driver_finish(d, job, job->kind->cancel(job, &job->error));
}

/* ---- ownership and order ----------------------------------------------------------------------------------------- */

#define WATCH_NS 1000000000u /* interval of checks of the machine's memory */

/* ---- owning the engine ------------------------------------------------------------------------------------------- */

static bool owns(const spry_driver *d)
{
    return d->depth && pthread_equal(d->owner, pthread_self());
}

/* Waits until this thread may own the engine. The caller holds the lock. */
static void take_turn(spry_driver *d)
{
    uint64_t ticket = d->next_ticket++;
    while (d->serving != ticket)
        pthread_cond_wait(&d->changed, &d->lock);
    d->owner = pthread_self();
    d->depth = 1;
}

/* Gives up ownership of the engine. The caller holds the lock. */
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

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* True if measurements decide how many jobs run. */
static bool is_measured(const spry_driver *d)
{
    return d->options.policy != SPRY_POLICY_AUTO || d->queue.count > d->options.max_running;
}

/* Maximum of running jobs that use sessions of the driver. */
static size_t limit(const spry_driver *d)
{
    return is_measured(d) ? spry_batch_choice_limit(&d->choice) : d->options.max_running;
}

static bool has_place(const void *context, const spry_job *job)
{
    const spry_driver *d = context;
    bool yields = job->batch && spry_job_queue_is_urgent(&d->queue);
    return (job->is_callers || (!yields && d->n_running_own < limit(d))) && may_begin(d, job);
}

/* The next job to begin: one that was put back and can now continue, otherwise the next one in the queue. Jobs that
 * wait for another job's text count as running. The caller holds the lock. */
static spry_job *next_to_begin(spry_driver *d)
{
    spry_job *job = spry_job_queue_take_ready(&d->queue, has_place, d);
    while (!job && d->n_running_own + spry_job_queue_before(&d->queue) < limit(d) &&
           (job = spry_job_queue_take(&d->queue)))
        if (!may_begin(d, job)) {
            spry_job_queue_park(&d->queue, job);
            job = NULL;
        }
    return job;
}

/* If nothing else can make a job begin, puts the youngest batch job back in favour of a job that is not a batch job;
 * false: there is no such job, or another could begin anyway. The caller holds the lock, which is released
 * meanwhile. */
static bool make_place(spry_driver *d)
{
    bool full = d->crowded || d->n_running == d->most || d->n_running_own >= limit(d);
    if (!full || !spry_job_queue_is_urgent(&d->queue))
        return false;
    pthread_mutex_unlock(&d->lock);
    bool made = driver_yield(d);
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
            driver_begin(d, job);
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
        end_job(d, job);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < d->n_running;)
        if (atomic_load(d->running[i]->cancelled))
            end_job(d, d->running[i]);
        else
            i++;
}

/* Checks the machine's memory from time to time while there is work, because cached pages must not take memory that
 * other programs need. */
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

/* Runs rounds until `job` is over; NULL: until no job runs or waits. Other threads may own the engine between two
 * rounds. The caller holds the lock, which is released meanwhile. */
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

/* ---- returning memory -------------------------------------------------------------------------------------------- */

/* Returns memory after no job has run for some time. The caller holds the lock, which is released meanwhile. */
static void rest(spry_driver *d)
{
    take_turn(d);
    pthread_mutex_unlock(&d->lock);
    spry_driver_empty_idle(d);
    spry_engine_return_memory(d->engine);
    pthread_mutex_lock(&d->lock);
    end_turn(d);
}

/* Waits for work; returns memory when none has come for the configured time. Other threads may wake this one for other
 * reasons, so the time counts from the end of the last work. The caller holds the lock. */
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

/* ---- submitting -------------------------------------------------------------------------------------------------- */

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
    if ((unsigned)o->policy > SPRY_POLICY_THROUGHPUT)
        return spry_fail(error, SPRY_ERR_INPUT, "policy %d is not known", (int)o->policy);
    return SPRY_OK;
}

/* Reserves sessions for jobs. The caller holds the lock. */
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
    spry_batch_choice_init(&d->choice, o.max_running, o.policy);
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

/* Starts the engine's thread. The caller holds the lock. */
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

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

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
    spry_batch_choice_init(&d->choice, d->most, SPRY_POLICY_AUTO);
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
        end_job(d, job ? job : d->running[0]);
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
    if (is_measured(d)) {
        figures->batch_limit = spry_batch_choice_explain(&d->choice, figures->evidence, sizeof figures->evidence);
    } else {
        figures->batch_limit = d->options.max_running;
        snprintf(figures->evidence, sizeof figures->evidence, "auto: a job begins at once, up to %u together",
                 d->options.max_running);
    }
    pthread_mutex_unlock(&d->lock);
}
