/* How many answers to compute together. Sizes double from 1 up to the maximum number of running answers. The steps of
 * each size are measured, and one rule for each policy chooses by the measurements (p95: the 95th percentile of the
 * duration of a step):
 *
 *   interactive  from 1 upward, while the p95 stays below SPRY_BATCH_RULE times that of size 1
 *   offline      from 1 upward, while doubling gives SPRY_BATCH_RULE times the tokens per second, and the p95 stays
 *                below SPRY_BATCH_RULE times that of the size before
 *   throughput   the size with the most tokens per second, or the largest one with nearly as many
 *   auto         like throughput; the driver asks only while many jobs wait
 *
 * Interactive and offline try the next larger size when the size before it has been measured and chosen. Throughput
 * uses the maximum size unless a smaller size was measured to give more: after a while it compares it with size 1, and
 * with other sizes as far as they could be better (more answers never take less time, so `size` answers give at most
 * `size` times the tokens per second of one). Such a trial takes no answer out of the running ones: for some steps only
 * the first few answers get rows. Auto tries nothing: smaller sizes are measured when there are no more answers. After
 * many steps sizes are tried again.
 *
 * This code uses no clock: the same calls give the same results. */
#ifndef SPRY_SCHED_BATCH_CHOICE_H
#define SPRY_SCHED_BATCH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "draft/step_cost.h"
#include "spry.h"

enum {
    SPRY_BATCH_SIZES = 12,   /* 1, 2, 4, ... and the maximum */
    SPRY_BATCH_STEPS = 32,   /* steps of a size that make a measurement complete; the latest ones are used */
    SPRY_BATCH_WAIT = 256,   /* steps before the first trial, so that short runs have none */
    SPRY_BATCH_AGAIN = 4096, /* steps after which sizes are tried again */
};

#define SPRY_BATCH_GAIN 1.05 /* factor in tokens per second that throughput regards as a difference */
#define SPRY_BATCH_RULE 1.10 /* factor in tokens per second, or in the p95, that the other policies regard as one */

typedef struct spry_batch_steps {
    uint64_t ns[SPRY_BATCH_STEPS];
    uint32_t tokens[SPRY_BATCH_STEPS];
    uint64_t n;    /* number of steps measured since the size was last tried */
    double p95_ns; /* 95th percentile of a complete measurement */
} spry_batch_steps;

typedef struct spry_batch_choice {
    uint32_t sizes[SPRY_BATCH_SIZES];
    spry_batch_steps steps[SPRY_BATCH_SIZES];
    size_t n_sizes;
    spry_policy policy;
    uint64_t n_steps;     /* number of steps measured, of any size */
    uint64_t since_trial; /* number of steps since the last trial */
} spry_batch_choice;

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, spry_policy policy);

/* Records that a step with only `size` answers gave `tokens` tokens in `ns`. Sizes that are not in the list are
 * ignored. */
void spry_batch_choice_measure(spry_batch_choice *choice, size_t size, uint32_t tokens, uint64_t ns);

/* How many answers may run: the chosen size or the size being tried; with throughput during a trial the maximum. */
uint32_t spry_batch_choice_limit(const spry_batch_choice *choice);

/* How many of the running answers get rows in a step: all of them, but with throughput the chosen size or the size
 * being tried. */
uint32_t spry_batch_choice_width(const spry_batch_choice *choice);

/* The chosen size or the size being tried, and the measurements that are its reason, in one sentence. */
uint32_t spry_batch_choice_explain(const spry_batch_choice *choice, char *evidence, size_t capacity);

/* How many rows of prompts a step may have in addition to answers. */

/* Jobs that share the rows of a step evenly. */
typedef struct spry_prompts {
    size_t n;     /* at least 1 */
    size_t depth; /* sum of the positions before their next rows */
} spry_prompts;

/* The maximum number of rows, up to `most`, with which a step that contains these answers takes at most `stall_ns`
 * longer, as far as steps have been measured. At least one, so that prompts make progress; `most` when the step has no
 * answers. */
size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns);

#endif
