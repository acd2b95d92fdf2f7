/* The phases of a completion, for the files that implement them. */
#ifndef SPRY_SERVER_COMPLETION_INTERNAL_H
#define SPRY_SERVER_COMPLETION_INTERNAL_H

#include "server/request/completion.h"

/* ---- submit: completion_submit.c --------------------------------------------------------------------------------- */

/* Gives every answer a job and submits the jobs. After a failure some may have been submitted. */
spry_status spry_completion_submit(spry_completion *completion, spry_error *error);

/* Cancels the jobs that have not ended. */
void spry_completion_cancel(spry_completion *completion);

/* Cancels, and waits until every job has ended. */
void spry_completion_cancel_and_wait(spry_completion *completion);

/* The posted records. A token record is followed by its n_top alternatives. */
enum { SPRY_RECORD_TEXT, SPRY_RECORD_TOKEN, SPRY_RECORD_PROGRESS, SPRY_RECORD_PLACE };

/* Before a text in which a call may end: when it came, and with how many tokens. */
typedef struct spry_place_record {
    uint64_t ns;
    size_t tokens;
} spry_place_record;

typedef struct spry_progress_record {
    size_t done, total; /* tokens of the prompt */
} spry_progress_record;

typedef struct spry_token_record {
    spry_logprob_entry token;
    size_t n_top;
} spry_token_record;

/* ---- collect: completion_collect.c ------------------------------------------------------------------------------- */

typedef enum spry_collected {
    SPRY_COLLECTED_SOME,
    SPRY_COLLECTED_ALL,          /* every answer has ended */
    SPRY_COLLECTED_DISCONNECTED, /* the client has left */
} spry_collected;

/* Waits for records and adds them to their choices. */
spry_collected spry_completion_collect(spry_completion *completion);

/* A parser for tool calls and reasoning, where the options ask for one. */
spry_status spry_choice_make_parser(spry_choice *choice, spry_error *error);

/* ---- stream, or reply at once: completion_reply.c ---------------------------------------------------------------- */

/* Replies, and destroys the completion when the reply is complete. */
void spry_completion_reply(spry_completion *completion);

/* Ends the kept stream, if there is one. */
void spry_completion_release_stream(spry_completion *completion);

/* Replies with the completion's error, and destroys it. */
void spry_completion_reply_failure(spry_completion *completion);

/* ---- report: completion_report.c --------------------------------------------------------------------------------- */

/* The request's laps pause when its jobs are submitted, and its share of the energy begins. */
void spry_completion_jobs_begin(spry_completion *completion);

/* They continue when the last job has ended. Only the first call has an effect. */
void spry_completion_jobs_end(spry_completion *completion);

/* The parts of an answer's time so far. */
void spry_choice_parts(const spry_choice *choice, double ms[SPRY_PART_COUNT]);

/* Adds the request to the counters of its model, and to the log. */
void spry_completion_record(const spry_completion *completion);

/* Ends the laps and writes the trace. */
void spry_completion_costs_end(spry_completion *completion);

/* ---- done: completion_serve.c ------------------------------------------------------------------------------------ */

void spry_completion_destroy(spry_completion *completion);

#endif
