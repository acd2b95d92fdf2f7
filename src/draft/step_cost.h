/* The cost of a step of the target model by its number of rows: measured where steps run, read where steps are filled.
 * One per model and machine, shared by all its sequences.
 *
 * Each small row count has a point (its expected time); larger ones share points, eight for each doubling. A point is
 * the median of its latest measurements, so single steps that other programs delay do not change it. Other values are
 * interpolated. Uses no clock: times come from the caller, so the same calls give the same results. */
#ifndef SPRY_DRAFT_STEP_COST_H
#define SPRY_DRAFT_STEP_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPRY_STEP_COST_POINTS = 176 };

/* The latest measurements of a time, in a ring buffer. */
enum { SPRY_RECENT_TIMES = 15 };
typedef struct spry_recent_times {
    float ns[SPRY_RECENT_TIMES];
    uint32_t n; /* measured so far */
} spry_recent_times;

void spry_recent_times_add(spry_recent_times *times, double ns);
/* The median of the measurements; 0: there are none. */
double spry_recent_times_median(const spry_recent_times *times);

typedef struct spry_step_point {
    spry_recent_times per_row;
    double rows, ns; /* mean of the measurements at this point; ns is for that number of rows */
    double weight;   /* number of measurements, decayed up to `seen`; 0: none */
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

/* True if steps of so many rows, or of nearly as many where they share a point, were measured lately. */
bool spry_step_cost_knows(const spry_step_cost *cost, size_t rows);

/* The largest row count with a reliable estimate: twice the largest that was measured. */
size_t spry_step_cost_reach(const spry_step_cost *cost);

/* The expected time of a step by its rows and their depth (number of positions before them). Matrix products cost by
 * the row, attention by rows times the positions that they see. Both are measured when steps run. */

typedef struct spry_step_time {
    spry_step_cost products;  /* all parts of a step except attention, by rows */
    spry_step_cost attention; /* one point: the time for SPRY_STEP_SIGHT of sight */
} spry_step_time;

enum { SPRY_STEP_SIGHT = 1024 };

/* What the time of a step depends on. */
typedef struct spry_step_load {
    size_t rows;
    double sight; /* the sum of spry_step_sight over all segments */
} spry_step_load;

/* The cost of attention for consecutive rows of one sequence after `depth` positions, in rows times positions. Reading
 * keys and values once for all rows costs as much as two rows. */
static inline double spry_step_sight(size_t rows, size_t depth)
{
    return rows ? (double)(rows + 2) * (double)depth : 0;
}

void spry_step_time_init(spry_step_time *time);

/* Records that a step took `ns`, of which attention took `attention_ns`; 0: not known. */
void spry_step_time_measure(spry_step_time *time, const spry_step_load *load, uint64_t attention_ns, uint64_t ns);

/* The expected time of a step; 0 before the first measurement. */
double spry_step_time_ns(const spry_step_time *time, const spry_step_load *load);

#endif
