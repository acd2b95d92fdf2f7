/* How many answers to take together when many wait and only the whole counts. Sizes double from 1; each is measured by
 * running it, and a larger one is kept only where it gives at least a tenth more tokens a second and makes the slow
 * steps (95th percentile) less than a tenth longer. The walk up ends at the first size that does not.
 *
 * No clock in here: the same calls give the same answers. */
#ifndef SPRY_SCHED_BATCH_CHOICE_H
#define SPRY_SCHED_BATCH_CHOICE_H

#include <stddef.h>
#include <stdint.h>

enum {
    SPRY_BATCH_SIZES = 5,    /* 1, 2, 4, 8, 16 */
    SPRY_BATCH_STEPS = 32,   /* of a size that make a judgement; the latest ones */
    SPRY_BATCH_AGAIN = 2048, /* steps after which the next larger size is tried once more */
};

#define SPRY_BATCH_GAIN   1.1 /* times the tokens a second, at least */
#define SPRY_BATCH_SLOWER 1.1 /* times as long a slow step, less than that */

typedef struct spry_batch_steps {
    uint64_t ns[SPRY_BATCH_STEPS];
    uint32_t tokens[SPRY_BATCH_STEPS];
    uint64_t n; /* ever measured */
} spry_batch_steps;

typedef struct spry_batch_choice {
    spry_batch_steps sizes[SPRY_BATCH_SIZES];
    uint32_t most;        /* no size above it is tried */
    uint64_t since_trial; /* steps */
} spry_batch_choice;

void spry_batch_choice_init(spry_batch_choice *choice, uint32_t most);

/* A step in which `size` answers, and nothing else, went on gave so many tokens in `ns`. Sizes that are not on the list
 * are passed over. */
void spry_batch_choice_measure(spry_batch_choice *choice, size_t size, uint32_t tokens, uint64_t ns);

/* How many to take together now: the best, or the size that is being tried. */
uint32_t spry_batch_choice_limit(const spry_batch_choice *choice);

/* The same, and why, in one sentence. */
uint32_t spry_batch_choice_explain(const spry_batch_choice *choice, char *evidence, size_t capacity);

#endif
