/* What a step with drafts costs relative to one without, on a machine that other programs slow down now and then.
 *
 * Times of steps that are far apart do not compare: the machine may be twice as fast by then. So steps with drafts are
 * held until the next plain step (one row for each sequence), and count only if the plain steps before and after them
 * took about the same time: they are measured in units of these two. Uses no clock: times come from the caller. */
#ifndef SPRY_DRAFT_DRAFT_STEPS_H
#define SPRY_DRAFT_DRAFT_STEPS_H

#include "draft/step_cost.h"

enum { SPRY_DRAFT_STEPS_HELD = 8 }; /* the most steps between two plain ones that count */

typedef struct spry_held_step {
    size_t rows;
    double ns;
} spry_held_step;

typedef struct spry_draft_steps {
    spry_step_cost cost; /* by rows, relative to the first step measured, times 1e9 */
    size_t plain_rows;   /* rows of the plain steps that others are compared with */
    double plain_pace;   /* nanoseconds for a unit of `cost` in the latest of them; 0: none yet */
    double pace;         /* the same of the latest step of any kind, as far as its cost is known */
    spry_held_step held[SPRY_DRAFT_STEPS_HELD];
    size_t n_held;       /* steps since the latest plain one, also those that are too many */
    uint32_t n_compared; /* times that held steps counted */
} spry_draft_steps;

void spry_draft_steps_init(spry_draft_steps *steps);

/* Records that a step of `rows` took `ns`. `plain`: it had one row for each sequence. Steps of 0 rows are ignored. */
void spry_draft_steps_measure(spry_draft_steps *steps, size_t rows, bool plain, uint64_t ns);

/* The expected cost of a step, in units that only compare with each other; 0 before the first measurement. */
double spry_draft_steps_cost(const spry_draft_steps *steps, size_t rows);

/* A time that was measured beside the latest step, in the units of the costs; 0 before the first measurement. */
double spry_draft_steps_units(const spry_draft_steps *steps, uint64_t ns);

#endif
