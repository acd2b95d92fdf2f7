/* How many rows of prompts a step may take beside answers that go on. */
#ifndef SPRY_SCHED_PREFILL_BUDGET_H
#define SPRY_SCHED_PREFILL_BUDGET_H

#include "draft/step_cost.h"

/* The most rows, at most `most`, that make a step with `decode_rows` last at most `stall_ns` longer, as far as steps
 * were measured. At least one, so that prompts get done; all of them when no answer waits for the step. */
size_t spry_prefill_budget(const spry_step_cost *cost, size_t decode_rows, size_t most, double stall_ns);

#endif
