/* How many answers to compute together. Sizes double from 1 up to the most that can run. Each is measured by the steps
 * it runs anyway, and one rule for each policy chooses by the measurements:
 *
 *   interactive  from 1 upward, while the p95 of a step stays below SPRY_BATCH_RULE times that of 1
 *   offline      from 1 upward, while a doubling gives SPRY_BATCH_RULE times the tokens a second and its p95 stays
 * below SPRY_BATCH_RULE times that before throughput   the most tokens a second, or hardly less auto         as
 * throughput; the driver asks only while many wait
 *
 * The first two try the next larger size when the one before it was measured and chosen. Throughput takes the most that
 * can run unless a smaller size was measured to give more: it compares with 1 once it has run for a while, and with
 * other sizes as far as they could win: more answers never take less time, so `size` answers give at most `size` times
 * the tokens a second of one. Such a trial takes no answer away from those that run: for some steps only the first few
 * of them get rows. Auto tries nothing: smaller sizes are measured when no more answers are there. After many steps
 * sizes are tried again.
 *
 * No clock in here: the same calls give the same answers. */
#ifndef SPRY_SCHED_BATCH_CHOICE_H
#define SPRY_SCHED_BATCH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "draft/step_cost.h"
#include "spry.h"

enum {
    SPRY_BATCH_SIZES = 12,   /* 1, 2, 4, ... and the most */
    SPRY_BATCH_STEPS = 32,   /* of a size that make a measurement complete; the latest ones */
    SPRY_BATCH_WAIT = 256,   /* steps before the first trial: short runs make none */
    SPRY_BATCH_AGAIN = 4096, /* steps after which sizes are tried once more */
};

#define SPRY_BATCH_GAIN 1.05 /* times the tokens a second that make a difference to throughput */
#define SPRY_BATCH_RULE 1.10 /* times the tokens a second, or the p95, that make one to the other policies */

typedef struct spry_batch_steps {
    uint64_t ns[SPRY_BATCH_STEPS];
    uint32_t tokens[SPRY_BATCH_STEPS];
    uint64_t n;    /* measured since the size was last tried */
    double p95_ns; /* of a complete measurement */
} spry_batch_steps;

typedef struct spry_batch_choice {
    uint32_t sizes[SPRY_BATCH_SIZES];
    spry_batch_steps steps[SPRY_BATCH_SIZES];
    size_t n_sizes;
    spry_policy policy;
    uint64_t n_steps;     /* measured, of any size */
    uint64_t since_trial; /* steps */
} spry_batch_choice;

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, spry_policy policy);

/* A step of `size` answers, and nothing else, gave `tokens` tokens in `ns`. Sizes that are not listed are ignored. */
void spry_batch_choice_measure(spry_batch_choice *choice, size_t size, uint32_t tokens, uint64_t ns);

/* How many may run: the chosen size or the one that is being tried; with throughput during a trial the most. */
uint32_t spry_batch_choice_limit(const spry_batch_choice *choice);

/* How many of those that run get rows in a step: all, but with throughput the chosen size or the one being tried. */
uint32_t spry_batch_choice_width(const spry_batch_choice *choice);

/* The chosen size, or the one that is being tried, and in one sentence the measurements it rests on. */
uint32_t spry_batch_choice_explain(const spry_batch_choice *choice, char *evidence, size_t capacity);

/* How many rows of prompts a step may take beside answers that go on. */

/* Jobs that share the rows evenly. */
typedef struct spry_prompts {
    size_t n;     /* at least 1 */
    size_t depth; /* positions before their next rows, summed */
} spry_prompts;

/* The most rows, at most `most`, that make a step with these answers last at most `stall_ns` longer, as far as steps
 * were measured. At least one, so that prompts get done; all of them when no answer waits for the step. */
size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns);

#endif
