/* The driver of steps of one engine: everything that computes is a job, and every step is built here.
 *
 * A step takes rows of many jobs: first rows of answers, then as many rows of prompts, evaluations and embeddings as
 * the budget allows, so that they never hold running answers up for longer than a set time. Jobs wait in turns of their
 * clients: a client with many jobs delays only its own. The results of a job do not depend on what runs beside it.
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
    spry_segment *segments; /* [capacity] */
    size_t n_segments, capacity;
    spry_draw **draws;                 /* at most one for each row with logits */
    size_t n_rows, n_logits, n_hidden; /* all rows; rows with logits; rows with hidden states */
    size_t decode_rows, n_decoding;    /* rows of answers; how many answers have some */
    bool ahead;                        /* it was started before the results of the previous step were read */
    size_t n_others, n_batch;          /* other jobs that share the budget; the batch jobs among them */
} spry_step;

/* A row of a step that was started before the tokens of the step before it were read. */
typedef struct spry_ahead_row {
    const spry_kv_table *table;
    uint32_t position, page;
    spry_adapter_scales adapters;
    int32_t token; /* the token drawn by the previous step, once it was read */
    spry_draw draw;
} spry_ahead_row;

/* Such a step. */
typedef struct spry_ahead {
    spry_ahead_row *rows; /* [most] */
    spry_draw **draws;    /* of the rows */
    size_t n;             /* rows; 0: there is no such step */
    bool waited;          /* it is not under way any more */
    spry_status status;   /* then: the device's */
    uint64_t begun_ns;    /* since when the device has had nothing else to do */
} spry_ahead;

typedef struct spry_driver {
    spry_engine *engine;
    uint32_t most; /* jobs at once: as many as the engine has sessions, and a step rows */

    /* the owner's */
    /* Of the driver's own sessions; one that has slid still holds what it computed. At most twice `most`: batch jobs
     * that gave way keep theirs. */
    spry_session **idle;
    size_t n_idle, n_own;   /* idle; all its own sessions */
    spry_job **running;     /* [most] in the order they began: the youngest last */
    size_t n_running;       /* jobs */
    size_t n_running_own;   /* running jobs on sessions of the driver */
    bool crowded;           /* pages were short: no job begins before another ends */
    size_t first_prompt[2]; /* the running job whose prompt is served first; of batch jobs */
    spry_step step;         /* under way */
    spry_ahead ahead[2];    /* the step after it, and the step that was ahead before it became this one */
    size_t newest_ahead;    /* index into ahead */
    uint32_t *drawn;        /* [most]: numbers of draws, for the step that is started ahead */
    uint64_t watched_ns;    /* when the machine's memory was last looked at */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* something that a thread may wait for */
    uint64_t next_ticket, serving;
    pthread_t owner;
    unsigned depth; /* times the owner has entered; 0: no thread owns the engine */
    bool driving;   /* a thread runs rounds */
    bool has_thread, stopping;
    pthread_t thread;
    spry_jobs_options options;
    bool configured;    /* sessions are reserved for jobs */
    uint32_t n_handles; /* handles that were not freed */
    spry_job_queue queue;
    spry_batch_choice choice;
    spry_jobs_figures figures;
} spry_driver;

spry_status spry_driver_create(spry_driver **out, spry_engine *engine, spry_error *error);
/* Ends what runs or waits; no thread may use the engine any more. */
void spry_driver_destroy(spry_driver *driver);

/* Owns the engine from here on; an owner may enter again. */
void spry_driver_enter(spry_driver *driver);
void spry_driver_leave(spry_driver *driver);
/* Whether this thread owns the engine: then it is in a callback, or has entered. */
bool spry_driver_is_owner(spry_driver *driver);

/* Hands a job over to the engine's thread, which is started by the first one. SPRY_ERR_BUSY: too many wait. */
spry_status spry_driver_submit(spry_driver *driver, spry_job *job, spry_error *error);

/* Runs a job and waits for its end; the status is the job's. SPRY_ERR_BUSY in a callback of the same engine. */
spry_status spry_driver_run(spry_driver *driver, spry_job *job, spry_error *error);

/* One round: cancelled jobs end, others begin, one step is computed. The caller has entered and does not hold the
 * lock. */
void spry_driver_round(spry_driver *driver);

/* Ends the jobs that were cancelled. The caller has entered. */
void spry_driver_end_cancelled(spry_driver *driver);

/* ---- between the files of the driver ----------------------------------------------------------------------------- */

/* One step of everything that runs; jobs that are done leave. */
void spry_driver_step(spry_driver *driver);

/* Waits for the step that was started ahead, and keeps its results: another thread may use the device then. */
void spry_driver_settle(spry_driver *driver);

spry_status spry_driver_ahead_init(spry_driver *driver, spry_error *error);
void spry_driver_ahead_deinit(spry_driver *driver);

/* The job is over, with this status: out of what runs, if it is there, and back to its caller. */
void spry_driver_finish(spry_driver *driver, spry_job *job, spry_status status);

/* Empties the idle sessions that hold pages; false: none did. */
bool spry_driver_empty_idle(spry_driver *driver);

/* Destroys the driver's own sessions; none may be in use. */
void spry_driver_drop_idle(spry_driver *driver);

/* Puts the youngest of what runs back into the queue, and gives its pages to others. */
void spry_driver_preempt(spry_driver *driver);

#endif
