/* What a step of the target model costs as its rows grow: measured by whoever runs steps, asked by whoever fills them.
 * One for a model on a machine, shared by all its sequences.
 *
 * Small counts of rows have a point each, larger ones share points that lie an eighth of a doubling apart. A point is a
 * decaying mean. Where nothing was measured the line between the neighbours answers. No clock in here: times come from
 * outside, so the same calls give the same answers. */
#ifndef SPRY_DRAFT_STEP_COST_H
#define SPRY_DRAFT_STEP_COST_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_STEP_COST_POINTS = 176 };

typedef struct spry_step_point {
    double rows, ns; /* means */
    double weight;   /* measurements behind them, as of `seen`; 0: none */
    uint64_t seen;   /* number of the last measurement */
} spry_step_point;

typedef struct spry_step_cost {
    spry_step_point points[SPRY_STEP_COST_POINTS];
    uint64_t n_measured;
    size_t most_rows; /* ever measured */
} spry_step_cost;

void spry_step_cost_init(spry_step_cost *cost);

/* A step of `rows` took `ns`. Leave out steps that only prefill: most of their rows give no logits and cost less. Steps
 * of 0 rows are not counted. A time far above what was expected counts as twice that: an interruption says nothing
 * about the rows, and a lasting change is still followed. */
void spry_step_cost_measure(spry_step_cost *cost, size_t rows, uint64_t ns);

/* The expected time of a step; 0 as long as nothing was measured. */
double spry_step_cost_ns(const spry_step_cost *cost, size_t rows);

/* The most rows whose time is more than a guess: twice as many as were ever measured. */
size_t spry_step_cost_reach(const spry_step_cost *cost);

#endif
