/* The cost of a step of the target model by its number of rows: measured where steps run, read where steps are filled.
 * One per model and machine, shared by all its sequences.
 *
 * Small row counts have a point each; larger ones share points an eighth of a doubling apart. A point is a decaying
 * mean. Other values are interpolated. Uses no clock: times come from the caller, so the same calls give the same
 * results. */
#ifndef SPRY_DRAFT_STEP_COST_H
#define SPRY_DRAFT_STEP_COST_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_STEP_COST_POINTS = 176 };

typedef struct spry_step_point {
    double rows, ns; /* means */
    double weight;   /* number of measurements, as of `seen`; 0: none */
    uint64_t seen;   /* number of the last measurement */
} spry_step_point;

typedef struct spry_step_cost {
    spry_step_point points[SPRY_STEP_COST_POINTS];
    uint64_t n_measured;
    size_t most_rows; /* largest row count measured */
} spry_step_cost;

void spry_step_cost_init(spry_step_cost *cost);

/* Records that a step of `rows` took `ns`. Do not record steps that only prefill: most of their rows compute no logits
 * and cost less. Steps of 0 rows are ignored. A time far above the expected one counts as twice that: an interruption
 * has little effect, and a lasting change is still followed. */
void spry_step_cost_measure(spry_step_cost *cost, size_t rows, uint64_t ns);

/* The expected time of a step; 0 before the first measurement. */
double spry_step_cost_ns(const spry_step_cost *cost, size_t rows);

/* The largest row count with a reliable estimate: twice the largest that was measured. */
size_t spry_step_cost_reach(const spry_step_cost *cost);

#endif
