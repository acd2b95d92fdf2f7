/* What the files of the scheduler share.
 *
 * One thread, the scheduler's, owns the engine, the sessions and what runs. What others touch too (the queue, calls,
 * figures, the stop) is used under the lock, which is never held while a callback or a step runs. */
#ifndef SPRY_SCHED_SCHEDULER_STATE_H
#define SPRY_SCHED_SCHEDULER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine_state.h"
#include "sched/batch_choice.h"
#include "sched/job_queue.h"

/* A job from submit to on_done. */
typedef struct spry_job_state {
    spry_job *job;
    spry_generation generation;
    spry_matcher *matcher; /* of its constraint; NULL: none */
    spry_session *session; /* from when it begins, also while it is put back; NULL: it waits for its beginning */
    const spry_drafter *drafter;
    bool needs_quiet; /* its drafter is a model, which works only while nobody else waits for a step */
    atomic_bool cancelled;
    spry_laps laps;              /* since it was submitted */
    struct spry_job_state *next; /* in the queue */

    /* of the step under way */
    bool decodes; /* its rows are of its answer, not of its prompt */
    size_t first_segment, n_segments, n_rows;
    size_t first_logits; /* number of its first row with logits */
    spry_status status;  /* what came of it; the sentence is the job's */
    bool starved;        /* pages were short, that is all */
} spry_job_state;

/* Somebody who waits for a function to be called. */
typedef struct spry_waiting_call {
    void (*fn)(void *context, spry_engine *engine);
    void *context;
    bool done;
    struct spry_waiting_call *next;
} spry_waiting_call;

/* The rows of a step. */
typedef struct spry_step {
    spry_segment *segments; /* [capacity] */
    size_t n_segments, capacity;
    size_t n_rows, n_logits;        /* rows; of them, with logits */
    size_t decode_rows, n_decoding; /* of answers; how many answers */
} spry_step;

struct spry_scheduler {
    spry_engine *engine;
    spry_scheduler_options options;

    /* the thread's own */
    spry_session **idle;       /* sessions nobody uses; one that has slid still holds what it computed */
    size_t n_idle, n_sessions; /* idle; all there are */
    spry_job_state **running;  /* in the order they began: the youngest last */
    size_t n_running;
    bool crowded; /* pages were short: nobody begins before somebody ends */
    spry_step step;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the thread */
    pthread_cond_t called;
    spry_job_queue queue;
    spry_waiting_call *calls, **last_call;
    spry_batch_choice choice;
    spry_scheduler_figures figures;
    bool any_cancelled, stopping;
};

/* One step of everything that runs; jobs that are done leave. */
void spry_scheduler_step(spry_scheduler *scheduler);

/* Whether a job may begin: not while another computes the text that its own prompt begins with. */
bool spry_scheduler_may_begin(const void *scheduler, const spry_job_state *state);

/* Begins a job, or goes on with one that was put back; puts it back when pages are short. */
void spry_scheduler_begin(spry_scheduler *scheduler, spry_job_state *state);

/* The job is over, with this status: out of what runs, if it is there, and back to its caller. */
void spry_scheduler_finish(spry_scheduler *scheduler, spry_job_state *state, spry_status status);

/* Ends a job as cancelled, wherever it is. */
void spry_scheduler_end_cancelled(spry_scheduler *scheduler, spry_job_state *state);

/* Empties the idle sessions that hold pages; false: none did. */
bool spry_scheduler_empty_idle(spry_scheduler *scheduler);

/* Puts the youngest of what runs back into the queue, and gives its pages to others. */
void spry_scheduler_preempt(spry_scheduler *scheduler);

#endif
