/* How many rows of prompts a step may take beside answers that go on. */
#ifndef SPRY_SCHED_PREFILL_BUDGET_H
#define SPRY_SCHED_PREFILL_BUDGET_H

#include "draft/step_time.h"

/* Jobs that share the rows evenly. */
typedef struct spry_prompts {
    size_t n;     /* at least 1 */
    size_t depth; /* positions that their next rows stand behind, of all together */
} spry_prompts;

/* The most rows, at most `most`, that make a step with these answers last at most `stall_ns` longer, as far as steps
 * were measured. At least one, so that prompts get done; all of them when no answer waits for the step. */
size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns);

#endif
