/* The driver of steps of one engine: everything that computes is a job, and every step is built here.
 *
 * A step takes rows of many jobs: first rows of answers, then as many rows of prompts, evaluations and embeddings as
 * the budget allows, so that they never delay running answers for longer than a configured time. The queue serves
 * clients in turn: a client with many jobs delays only its own. The results of a job do not depend on what runs beside
 * it.
 *
 * One thread at a time *owns* the engine: its pages, its sessions, its running jobs. Owners take turns in the order in
 * which they came. An owner that drives runs rounds and lets others in between two of them. Jobs that were submitted
 * are driven by the engine's thread; a call on a session is driven by its caller unless another thread drives already.
 * Members that all threads use (the queue, figures, flags) are protected by the lock, which is never held while a
 * callback or a step runs. */
#ifndef SPRY_SCHED_DRIVER_H
#define SPRY_SCHED_DRIVER_H

#include <pthread.h>

#include "sched/batch_choice.h"
#include "sched/job.h"

/* The rows of a step. */
typedef struct spry_step {
    spry_segment *segments; /* memory for the step's segments, [capacity] */
    size_t n_segments, capacity;
    spry_draw **draws;                 /* at most one draw for each row with logits */
    size_t n_rows, n_logits, n_hidden; /* all rows; rows with logits; rows with hidden states */
    size_t decode_rows, n_decoding;    /* rows of answers; number of answers that have rows */
    bool ahead;                        /* the step was started before the results of the previous one were read */
    size_t n_others, n_batch;          /* other jobs that share the budget of rows; number of batch jobs among them */
} spry_step;

/* A row of a step that was started before the tokens of the step before it were known. */
typedef struct spry_ahead_row {
    const spry_kv_table *table;
    uint32_t position, page;
    spry_adapter_scales adapters;
    int32_t token; /* the token that the previous step drew, after it has been read */
    spry_draw draw;
} spry_ahead_row;

/* A step that was started ahead. */
typedef struct spry_ahead {
    spry_ahead_row *rows; /* [most] */
    spry_draw **draws;    /* a draw for each row */
    size_t n;             /* number of rows; 0: there is no such step */
    bool waited;          /* the device has finished it */
    spry_status status;   /* status of that step */
    uint64_t begun_ns;    /* time since which the device has had only this step to compute */
} spry_ahead;

typedef struct spry_driver {
    spry_engine *engine;
    uint32_t most; /* maximum of running jobs: sessions of the engine, or rows of a step if fewer */

    /* used by the owner only */
    /* Idle sessions of the driver; a session that has slid keeps its pages. At most twice `most`, because batch jobs
     * that were put back keep their sessions. */
    spry_session **idle;
    size_t n_idle, n_own;   /* number of idle sessions; number of all its own sessions */
    spry_job **running;     /* [most] in the order in which they began: the youngest is last */
    size_t n_running;       /* jobs */
    size_t n_running_own;   /* number of running jobs that use sessions of the driver */
    bool crowded;           /* pages were short: no job begins before another one ends */
    size_t first_prompt[2]; /* index of the running job whose prompt gets rows first; the same for batch jobs */
    spry_step step;         /* the step that is being computed */
    spry_ahead ahead[2];    /* the step started after it, and the one that was started ahead before it became the
                             * current step */
    size_t newest_ahead;    /* index into ahead */
    uint32_t *drawn;        /* [most]: indices of draws, for the step that is started ahead */
    uint64_t watched_ns;    /* when the machine's memory was last checked */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled on every change that a thread may wait for */
    uint64_t next_ticket, serving;
    pthread_t owner;
    unsigned depth; /* how often the owner has entered; 0: no thread owns the engine */
    bool driving;   /* a thread is running rounds */
    bool has_thread, stopping;
    pthread_t thread;
    spry_jobs_options options;
    bool configured;    /* sessions are reserved for jobs */
    uint32_t n_handles; /* number of handles that have not been freed */
    spry_job_queue queue;
    spry_batch_choice choice;
    spry_jobs_figures figures;
} spry_driver;

spry_status spry_driver_create(spry_driver **out, spry_engine *engine, spry_error *error);
/* Ends all jobs, running or waiting; no other thread may use the engine any more. */
void spry_driver_destroy(spry_driver *driver);

/* Makes this thread the owner of the engine; an owner may enter again. */
void spry_driver_enter(spry_driver *driver);
void spry_driver_leave(spry_driver *driver);
/* True if this thread owns the engine: it has entered, or it is in a callback. */
bool spry_driver_is_owner(spry_driver *driver);

/* Hands a job to the engine's thread, which the first job starts. SPRY_ERR_BUSY: too many jobs wait. */
spry_status spry_driver_submit(spry_driver *driver, spry_job *job, spry_error *error);

/* Runs a job and waits for its end; returns the job's status. SPRY_ERR_BUSY in a callback of the same engine. */
spry_status spry_driver_run(spry_driver *driver, spry_job *job, spry_error *error);

/* Runs one round: cancelled jobs end, others begin, one step is computed. The caller has entered and does not hold the
 * lock. */
void spry_driver_round(spry_driver *driver);

/* Ends the jobs that were cancelled. The caller has entered. */
void spry_driver_end_cancelled(spry_driver *driver);

/* ---- shared by the files of the driver --------------------------------------------------------------------------- */

/* Computes one step with rows of all running jobs; jobs that are done leave. */
void spry_driver_step(spry_driver *driver);

/* Waits for the step that was started ahead and keeps its results, so that another thread may use the device. */
void spry_driver_settle(spry_driver *driver);

spry_status spry_driver_ahead_init(spry_driver *driver, spry_error *error);
void spry_driver_ahead_deinit(spry_driver *driver);

/* Ends a job with this status: removes it from the running jobs, if it is there, and hands it back to its caller. */
void spry_driver_finish(spry_driver *driver, spry_job *job, spry_status status);

/* Empties the idle sessions that hold pages; false: no idle session held any. */
bool spry_driver_empty_idle(spry_driver *driver);

/* Destroys the driver's own sessions; none may be in use. */
void spry_driver_drop_idle(spry_driver *driver);

/* Puts the youngest running job back into the queue, so that its pages become free. */
void spry_driver_preempt(spry_driver *driver);

#endif
