/* The expected time of a step by its rows and by how deep these are: products cost by the row (step_cost.h), attention
 * by rows times the positions that they see. Both are measured where steps run. */
#ifndef SPRY_DRAFT_STEP_TIME_H
#define SPRY_DRAFT_STEP_TIME_H

#include "draft/step_cost.h"

typedef struct spry_step_time {
    spry_step_cost products;  /* by rows: all of a step but attention */
    spry_step_cost attention; /* one point: SPRY_STEP_SIGHT of sight */
} spry_step_time;

enum { SPRY_STEP_SIGHT = 1024 };

/* What decides the time of a step. */
typedef struct spry_step_load {
    size_t rows;
    double sight; /* of all segments */
} spry_step_load;

/* What attention costs for consecutive rows of one sequence behind `depth` positions, in row times position. Reading
 * keys and values once for all rows costs as much as two rows. */
static inline double spry_step_sight(size_t rows, size_t depth)
{
    return rows ? (double)(rows + 2) * (double)depth : 0;
}

void spry_step_time_init(spry_step_time *time);

/* Records a step of `ns`, of which attention took `attention_ns`; 0: not known. */
void spry_step_time_measure(spry_step_time *time, const spry_step_load *load, uint64_t attention_ns, uint64_t ns);

/* 0 before the first measurement. */
double spry_step_time_ns(const spry_step_time *time, const spry_step_load *load);

#endif
