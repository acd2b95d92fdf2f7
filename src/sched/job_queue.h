/* Jobs that wait. Clients take turns, one job each; a client's own jobs keep their order. Jobs whose turn it was, and
 * that wait again for a reason of their own, come before everybody. Belongs to a scheduler and is used under its lock.
 */
#ifndef SPRY_SCHED_JOB_QUEUE_H
#define SPRY_SCHED_JOB_QUEUE_H

#include "sched/scheduler.h"

struct spry_job_state;

/* Jobs in a row, linked through their `next`. */
typedef struct spry_job_list {
    struct spry_job_state *first, *last;
} spry_job_list;

/* One client's jobs. */
typedef struct spry_client_jobs {
    uint64_t client;
    spry_job_list jobs;
} spry_client_jobs;

typedef struct spry_job_queue {
    spry_job_list ahead; /* whose turn it was */
    size_t n_ahead;
    spry_client_jobs *turns; /* [n_turns], whose turn is next comes first; none is empty */
    size_t n_turns, capacity;
    size_t count; /* jobs, those ahead too */
} spry_job_queue;

/* For at most `capacity` jobs. */
spry_status spry_job_queue_init(spry_job_queue *queue, size_t capacity, spry_error *error);
void spry_job_queue_deinit(spry_job_queue *queue);

void spry_job_queue_add(spry_job_queue *queue, struct spry_job_state *job);
/* Takes out whose turn it is; NULL when nobody waits for one. */
struct spry_job_state *spry_job_queue_take(spry_job_queue *queue);

/* Back to those whose turn it was: before them, or behind them. */
void spry_job_queue_put_back(spry_job_queue *queue, struct spry_job_state *job);
void spry_job_queue_park(spry_job_queue *queue, struct spry_job_state *job);

/* Takes out the first of them that is ready; NULL when none is. */
struct spry_job_state *spry_job_queue_take_ready(spry_job_queue *queue,
                                                 bool (*ready)(const void *context, const struct spry_job_state *job),
                                                 const void *context);

/* Takes out a job that was cancelled; NULL when there is none. */
struct spry_job_state *spry_job_queue_take_cancelled(spry_job_queue *queue);

#endif
