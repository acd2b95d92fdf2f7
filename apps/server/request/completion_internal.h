/* What the files behind completion.h share. */
#ifndef SPRY_SERVER_COMPLETION_INTERNAL_H
#define SPRY_SERVER_COMPLETION_INTERNAL_H

#include "server/request/completion.h"

/* Gives every answer a job and hands the jobs to the scheduler. On failure none is left there. */
spry_status spry_completion_submit(spry_completion *completion, spry_error *error);

/* Ends the answers that are still under way. */
void spry_completion_cancel(spry_completion *completion);

/* Cancels, and waits until the scheduler has let every job go. */
void spry_completion_settle(spry_completion *completion);

typedef enum spry_pumped { SPRY_PUMPED_MORE, SPRY_PUMPED_ALL, SPRY_PUMPED_GONE } spry_pumped;

/* Waits for news and takes it in. ALL: every answer is over. */
spry_pumped spry_completion_pump(spry_completion *completion);

/* The request's time counts up to when its jobs are handed over; up to when the last answer is over, also if none was
 * begun; up to the end, when nobody waits for it any more. Its share of the energy begins with the handing over, if not
 * before, and ends with the last job. */
void spry_completion_hand_over(spry_completion *completion);
void spry_completion_stop(spry_completion *completion);
void spry_completion_finish(spry_completion *completion);

/* The parts of an answer so far. */
void spry_choice_parts(const spry_choice *choice, double ms[SPRY_PART_COUNT]);

/* Adds to an answer's timings: ttft_ms, total_ms, what they are made of, and the energy. */
void spry_completion_parts(const spry_completion *completion, json_t *timings, size_t generated);

/* Puts the request's figures into the metrics. */
void spry_completion_account(spry_completion *completion);

#endif
