/* How many answers to compute together while many wait and only the tokens a second count. Sizes double from 1 up to
 * the most that can run. Each is measured by the steps it runs anyway; a choice rests on complete measurements.
 *
 * From the top (policy auto): the largest size until a smaller one was measured to give more tokens a second. From the
 * bottom (policy offline): all sizes are tried, upwards from 1, and the one with the most tokens a second is taken; of
 * sizes that make no difference, the smallest. Either way a trial only adds answers to those that run: the limit falls
 * below what runs only where measurements say that fewer give more. After many steps at one size the sizes above it are
 * tried again. How long an answer takes plays no part: that is what the policy interactive is for.
 *
 * No clock in here: the same calls give the same answers. */
#ifndef SPRY_SCHED_BATCH_CHOICE_H
#define SPRY_SCHED_BATCH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPRY_BATCH_SIZES = 12,   /* 1, 2, 4, ... and the most */
    SPRY_BATCH_STEPS = 32,   /* of a size that make a measurement complete; the latest ones */
    SPRY_BATCH_AGAIN = 2048, /* steps after which larger sizes are tried once more */
};

#define SPRY_BATCH_GAIN 1.05 /* times the tokens a second that make a difference */

typedef struct spry_batch_steps {
    uint64_t ns[SPRY_BATCH_STEPS];
    uint32_t tokens[SPRY_BATCH_STEPS];
    uint64_t n; /* measured since the size was last tried */
} spry_batch_steps;

typedef struct spry_batch_choice {
    uint32_t sizes[SPRY_BATCH_SIZES];
    spry_batch_steps steps[SPRY_BATCH_SIZES];
    size_t n_sizes;
    bool from_top;
    uint64_t since_trial; /* steps */
} spry_batch_choice;

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most, bool from_top);

/* A step of `size` answers, and nothing else, gave so many tokens in `ns`. Sizes that are not listed are ignored. */
void spry_batch_choice_measure(spry_batch_choice *choice, size_t size, uint32_t tokens, uint64_t ns);

/* How many to compute together now: the best, or the size that is being tried. */
uint32_t spry_batch_choice_limit(const spry_batch_choice *choice);

/* The limit, and in one sentence the measurements it rests on. */
uint32_t spry_batch_choice_explain(const spry_batch_choice *choice, char *evidence, size_t capacity);

#endif
