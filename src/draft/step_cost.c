/* A point's own median has the weight n*n for n measurements, and the estimate from its neighbours the weight 1: a
 * first measurement counts half, a fourth nearly fully. Measurements decay with age until they are dropped, so that a
 * point without new measurements follows its neighbours, and a bad measurement does not last. */
#include "draft/step_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SINGLE_POINTS = 128, /* row counts that have a point of their own */
    POINTS_PER_DOUBLE = 8,
    MEMORY = 16,    /* largest weight */
    HALF_LIFE = 64, /* number of steps in which a point's weight halves */
};

static const double outlier = 2;      /* larger factors relative to the expected time are limited to this */
static const double forgotten = 0.25; /* minimum weight of a point that counts */
/* When only one row count was measured: the share of the cost that grows with the rows. Between memory-bound (0) and
 * compute-bound (1). */
static const double growing_share = 0.25;

/* ---- the latest times -------------------------------------------------------------------------------------------- */

void spry_recent_times_add(spry_recent_times *t, double ns)
{
    t->ns[t->n++ % SPRY_RECENT_TIMES] = (float)ns;
}

static int by_time(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double spry_recent_times_median(const spry_recent_times *t)
{
    const size_t n = t->n < SPRY_RECENT_TIMES ? t->n : SPRY_RECENT_TIMES;
    float sorted[SPRY_RECENT_TIMES] = {0};
    memcpy(sorted, t->ns, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_time);
    return (double)sorted[n / 2];
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void spry_step_cost_init(spry_step_cost *cost)
{
    *cost = (spry_step_cost){0};
}

static size_t point_of(size_t rows)
{
    if (rows <= SINGLE_POINTS)
        return rows - 1;
    size_t doublings = 0;
    while (rows >> doublings >= 2 * SINGLE_POINTS)
        doublings++;
    size_t within = ((rows >> doublings) - SINGLE_POINTS) * POINTS_PER_DOUBLE / SINGLE_POINTS;
    size_t point = SINGLE_POINTS + doublings * POINTS_PER_DOUBLE + within;
    return point < SPRY_STEP_COST_POINTS ? point : SPRY_STEP_COST_POINTS - 1;
}

/* The weight of a point now; 0 without measurements, or when they have decayed. */
static double weight_now(const spry_step_cost *cost, const spry_step_point *point)
{
    uint64_t halvings = (cost->n_measured - point->seen) / HALF_LIFE;
    double weight = halvings < 16 ? point->weight / (double)(1u << halvings) : 0;
    return weight < forgotten ? 0 : weight;
}

void spry_step_cost_measure(spry_step_cost *cost, size_t rows, uint64_t ns)
{
    if (!rows)
        return;
    spry_step_point *p = &cost->points[point_of(rows)];
    double weight = weight_now(cost, p), time = ns ? (double)ns : 1, expected = spry_step_cost_ns(cost, rows);
    if (expected > 0 && time > outlier * expected)
        time = outlier * expected;
    if (!(weight > 0))
        p->per_row.n = 0;
    weight = weight < MEMORY ? weight + 1 : MEMORY;
    p->rows += ((double)rows - p->rows) / weight;
    spry_recent_times_add(&p->per_row, time / (double)rows);
    p->ns = p->rows * spry_recent_times_median(&p->per_row);
    p->weight = weight;
    p->seen = ++cost->n_measured;
    if (rows > cost->most_rows)
        cost->most_rows = rows;
}

/* The nearest point that counts: the first one in [from, end), or NULL. The next function searches downward. */
static const spry_step_point *nearest_above(const spry_step_cost *cost, size_t from, size_t end)
{
    for (size_t at = from; at < end; at++)
        if (weight_now(cost, &cost->points[at]) > 0)
            return &cost->points[at];
    return NULL;
}

static const spry_step_point *nearest_below(const spry_step_cost *cost, size_t end)
{
    for (size_t at = end; at-- > 0;)
        if (weight_now(cost, &cost->points[at]) > 0)
            return &cost->points[at];
    return NULL;
}

static double line(const spry_step_point *a, const spry_step_point *b, double rows)
{
    return a->ns + (b->ns - a->ns) * (rows - a->rows) / (b->rows - a->rows);
}

/* Extrapolates from a single point. */
static double from_one(const spry_step_point *one, double rows)
{
    return one->ns * (1 + growing_share * (rows - one->rows) / one->rows);
}

/* The estimate for `rows` from the neighbouring points; 0 when there are none. Beyond the largest point the slope is
 * taken from the smallest one: the difference of two close points is mostly noise. */
static double from_neighbours(const spry_step_cost *cost, size_t at, double rows)
{
    size_t end = cost->most_rows ? point_of(cost->most_rows) + 1 : 0;
    const spry_step_point *below = nearest_below(cost, at < end ? at : end), *above = nearest_above(cost, at + 1, end);
    if (below && above)
        return line(below, above, rows);
    if (above)
        return from_one(above, rows);
    if (!below)
        return 0;
    const spry_step_point *smallest = nearest_above(cost, 0, end);
    return smallest == below ? from_one(below, rows) : fmax(below->ns, line(smallest, below, rows));
}

double spry_step_cost_ns(const spry_step_cost *cost, size_t rows)
{
    if (!rows)
        return 0;
    size_t at = point_of(rows);
    const spry_step_point *own = &cost->points[at];
    double beside = from_neighbours(cost, at, (double)rows), weight = weight_now(cost, own);
    if (!(weight > 0))
        return beside;
    if (!nearest_below(cost, at)) /* an extrapolation from larger row counts has less weight than any measurement */
        return from_one(own, (double)rows);
    double moved = own->ns + beside - from_neighbours(cost, at, own->rows); /* the point's time, moved along the slope
                                                                             * between its neighbours */
    return (weight * weight * moved + beside) / (weight * weight + 1);
}

bool spry_step_cost_knows(const spry_step_cost *cost, size_t rows)
{
    return rows && weight_now(cost, &cost->points[point_of(rows)]) > 0;
}

size_t spry_step_cost_reach(const spry_step_cost *cost)
{
    return 2 * cost->most_rows;
}

/* ---- steps by rows and depth ------------------------------------------------------------------------------------- */

void spry_step_time_init(spry_step_time *time)
{
    spry_step_cost_init(&time->products);
    spry_step_cost_init(&time->attention);
}

void spry_step_time_measure(spry_step_time *time, const spry_step_load *load, uint64_t attention_ns, uint64_t ns)
{
    attention_ns = attention_ns < ns ? attention_ns : ns;
    spry_step_cost_measure(&time->products, load->rows, ns - attention_ns);
    if (attention_ns && load->sight >= SPRY_STEP_SIGHT) /* a smaller part is mostly waiting for threads */
        spry_step_cost_measure(&time->attention, 1, (uint64_t)((double)attention_ns * SPRY_STEP_SIGHT / load->sight));
}

double spry_step_time_ns(const spry_step_time *time, const spry_step_load *load)
{
    return spry_step_cost_ns(&time->products, load->rows) +
           spry_step_cost_ns(&time->attention, 1) * load->sight / SPRY_STEP_SIGHT;
}
