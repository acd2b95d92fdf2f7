/* Jobs that wait. Clients take turns, one job each; a client's own jobs keep their order. Jobs whose turn it was, and
 * that wait again for another reason, come before all others. Batch jobs come after all that are not. Belongs to a
 * driver and is used under its lock. */
#ifndef SPRY_SCHED_JOB_QUEUE_H
#define SPRY_SCHED_JOB_QUEUE_H

#include "base/error.h"

/* Jobs in a row, linked through their `next`. */
typedef struct spry_job_list {
    spry_job *first, *last;
} spry_job_list;

/* One client's jobs, of one kind. */
typedef struct spry_client_jobs {
    uint64_t client;
    bool batch;
    spry_job_list jobs;
} spry_client_jobs;

typedef struct spry_job_queue {
    spry_job_list ahead; /* whose turn it was */
    size_t n_ahead;
    spry_client_jobs *turns; /* [n_turns], whose turn is next comes first; none is empty */
    size_t n_turns, capacity;
    size_t count; /* jobs, those ahead too */
} spry_job_queue;

/* An empty queue is all zero. Makes room for `capacity` jobs that wait for a turn; none may wait for one. */
spry_status spry_job_queue_resize(spry_job_queue *queue, size_t capacity, spry_error *error);
void spry_job_queue_deinit(spry_job_queue *queue);

void spry_job_queue_add(spry_job_queue *queue, spry_job *job);
/* Takes out the job whose turn it is; NULL when none waits for one. */
spry_job *spry_job_queue_take(spry_job_queue *queue);

/* Whether the next turn is that of a job that is not a batch job. */
bool spry_job_queue_is_urgent(const spry_job_queue *queue);

/* How many of those whose turn it was come before the next turn. */
size_t spry_job_queue_before(const spry_job_queue *queue);

/* Back to those whose turn it was: before them, or behind them. */
void spry_job_queue_put_back(spry_job_queue *queue, spry_job *job);
void spry_job_queue_park(spry_job_queue *queue, spry_job *job);

/* Takes out the first of them that is ready; NULL when none is. */
spry_job *spry_job_queue_take_ready(spry_job_queue *queue, bool (*ready)(const void *context, const spry_job *job),
                                    const void *context);

/* Takes out a job that was cancelled; NULL when there is none. */
spry_job *spry_job_queue_take_cancelled(spry_job_queue *queue);

#endif
