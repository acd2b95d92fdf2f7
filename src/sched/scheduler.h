/* Many answers on one engine. One thread owns the engine and runs its steps; others hand over jobs and hear back
 * through callbacks. A step takes rows of many jobs: first those that decode, then as much of waiting prompts as the
 * step's budget allows, so that a long prompt never holds running answers up for longer than a set time.
 *
 * Jobs wait in turns of their clients: somebody with many jobs waits for nobody but himself. What a job answers does
 * not depend on what runs beside it. */
#ifndef SPRY_SCHED_SCHEDULER_H
#define SPRY_SCHED_SCHEDULER_H

#include "spry.h"

typedef struct spry_scheduler spry_scheduler;

typedef enum spry_policy {
    SPRY_POLICY_INTERACTIVE, /* nobody who is alone waits for company */
    SPRY_POLICY_OFFLINE,     /* as many together as measuring says pays */
    SPRY_POLICY_AUTO         /* interactive while few wait, offline when many do */
} spry_policy;

typedef struct spry_scheduler_options {
    uint32_t max_running; /* jobs at once, at most the engine's free sessions, and the rows of a step */
    uint32_t max_waiting; /* more than those that can run at once are refused */
    double max_stall_ms;  /* that a prompt may add between two tokens of a running answer */
    bool gentle;          /* and never more than those tokens take by themselves */
    spry_policy policy;
} spry_scheduler_options;

/* One request. The caller's, untouched between submit and on_done. */
typedef struct spry_job {
    spry_request request; /* its callbacks, and on_done, are called on the scheduler's thread and must not block */
    const void *salt;     /* of the session: who shares what was computed */
    size_t salt_size;
    uint64_t client; /* jobs of one client take turns as one */
    bool slide;
    size_t keep;
    void (*on_done)(struct spry_job *job); /* exactly once; then the job is the caller's again */
    void *owner;                           /* the caller's own */

    /* set when on_done is called */
    spry_status status; /* SPRY_OK also when it was cancelled: that is a way to finish */
    spry_error error;
    spry_result result;
    double queue_ms; /* until it began, its grammar compiled; result.parts_ms has it apart */

    /* the scheduler's */
    struct spry_job_state *state;
} spry_job;

void spry_scheduler_options_default(spry_scheduler_options *options);

/* Borrows the engine, which nobody else may use until it is destroyed. */
spry_status spry_scheduler_create(spry_scheduler **out, spry_engine *engine, const spry_scheduler_options *options,
                                  spry_error *error);
/* Cancels what runs or waits, calls every on_done, then returns. */
void spry_scheduler_destroy(spry_scheduler *scheduler);

/* From any thread, callbacks too. What can be found wrong with a request is said here, and its grammar is compiled on
 * the caller's time. SPRY_ERR_BUSY: too many wait. on_done is not called for a job that was refused. */
spry_status spry_scheduler_submit(spry_scheduler *scheduler, spry_job *job, spry_error *error);

/* From any thread: the job ends before its next step, waiting ones, too. Nothing happens when it is over. */
void spry_scheduler_cancel(spry_scheduler *scheduler, spry_job *job);

/* Runs a function on the scheduler's thread between two steps and waits for it: whatever else touches the engine. For a
 * session of its own the engine must have one more than can run. From a callback it is called directly. */
void spry_scheduler_call(spry_scheduler *scheduler, void (*fn)(void *context, spry_engine *engine), void *context);

typedef struct spry_scheduler_figures {
    uint32_t running, waiting; /* now */
    uint64_t finished, cancelled, failed, refused, preempted;
    uint64_t steps, rows, decode_rows; /* since the beginning */
    uint32_t batch_limit;              /* decoding jobs that are taken together now, */
    char evidence[160];                /* and why: one sentence with its figures */
} spry_scheduler_figures;

void spry_scheduler_describe(spry_scheduler *scheduler, spry_scheduler_figures *figures);

#endif
