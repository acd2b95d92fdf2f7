/* A job's way through the driver: it begins, may be put back, and is over. */
#include <stdlib.h>
#include <string.h>

#include "sched/driver.h"

enum { SHARED_LEAST = 2 * SPRY_PAGE_TOKENS }; /* tokens that are worth waiting for */

/* Tokens in whole pages that a prompt has in common with one that is being computed. */
static size_t shared_tokens(const spry_job *job, const spry_job *other)
{
    size_t same = 0, most = job->n_ids < other->n_ids ? job->n_ids : other->n_ids;
    while (same < most && job->ids[same] == other->ids[same])
        same++;
    return same / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
}

bool spry_driver_may_begin(const spry_driver *d, const spry_job *job)
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

/* ---- sessions -----------------------------------------------------------------------------------------------------
 */

/* Whether an idle session has slid, and the job continues what it holds: the cache knows nothing of that. */
static bool goes_on(const spry_session *session, const spry_job *job)
{
    const spry_sequence *q = &session->sequence;
    return q->n_dropped && job->slide && q->keep == job->keep && spry_kv_key_equal(q->root, job->root) &&
           job->n_ids > q->slid_at && memcmp(job->ids, q->tokens, q->slid_at * sizeof *q->tokens) == 0;
}

/* The index of the idle session that suits a job best: one it continues, then an empty one; otherwise n_idle. */
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
        at = at < d->n_idle ? at : 0; /* another conversation's, then: the one that ended first */
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

/* Its computed pages stay cached. Pages of a conversation that slid are not cached: they wait in the idle session for
 * its next turn until they are needed. */
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

/* ---- beginning ----------------------------------------------------------------------------------------------------
 */

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

void spry_driver_begin(spry_driver *d, spry_job *job)
{
    spry_driver_settle(d); /* pages may be restored by threads that the device computes with */
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

bool spry_driver_yield(spry_driver *d)
{
    for (size_t i = d->n_running; i-- > 0;)
        if (d->running[i]->batch && !d->running[i]->is_callers) {
            suspend(d, i);
            d->crowded = false;
            return true;
        }
    return false;
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

/* Whether it ran. */
static bool stop_running(spry_driver *d, const spry_job *job)
{
    for (size_t i = 0; i < d->n_running; i++)
        if (d->running[i] == job) {
            d->n_running--;
            d->n_running_own -= !job->is_callers;
            memmove(d->running + i, d->running + i + 1, (d->n_running - i) * sizeof *d->running);
            d->crowded = false; /* jobs that wait for pages may find some */
            return true;
        }
    return false;
}

/* Counts it and calls on_done. A job that a call on a session waits for is gone when `over` is set. */
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
    if (session) /* before the job is over: its session is free then, and the job may be gone */
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

void spry_driver_end_job(spry_driver *d, spry_job *job)
{
    atomic_store(job->cancelled, true);
    if (!stop_running(d, job)) /* it waits, or was put back */
        spry_lap(&job->laps, SPRY_PART_QUEUE);
    spry_driver_finish(d, job, job->kind->cancel(job, &job->error));
}
