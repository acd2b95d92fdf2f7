/* What the checks of spry-check share: the state of a run, random shapes and numbers, buffers that end at a forbidden
 * page, comparisons with a tolerance, and the stopwatch.
 *
 * A check of an op compares the table under test with a plain double-precision computation when the table is ref, and
 * with ref when it is not. Tolerances are computed from the data: a number of roundings times the sum of the sizes of
 * what was added. */
#ifndef SPRY_TESTS_CHECK_H
#define SPRY_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#define CHECK_ROUNDING 0x1p-24 /* largest relative error of one float operation */

typedef struct check {
    const spry_ops *ops; /* under test */
    const spry_ops *ref;
    const char *filter; /* NULL: everything */
    uint64_t random;
    char name[64];    /* of the op and type being checked */
    char detail[256]; /* the shape being checked */
    size_t n_checked, n_failed;
    size_t n_values;     /* compared */
    size_t n_complaints; /* of this op and type */
} check;

/* One op (or a table of similar ones) for all its types; each is one line in check_main.c. */
typedef struct check_op {
    void (*check)(check *c);
    void (*bench)(check *c);
} check_op;

/* Whether the filter wants this; if so it becomes the current name. End each with check_end. */
bool check_begin(check *c, const char *format, ...) SPRY_PRINTF(2, 3);
void check_end(check *c);
/* Describes the shape, for complaints. */
void check_detail(check *c, const char *format, ...) SPRY_PRINTF(2, 3);
void check_complain(check *c, const char *format, ...) SPRY_PRINTF(2, 3);

/* Complains unless |got - expected| <= tolerance; `index` names the place. Both may be NaN. */
void check_close(check *c, size_t index, double got, double expected, double tolerance);
/* Complains unless n bytes are the same; `what` is what should not have mattered. */
void check_same(check *c, const char *what, const void *a, const void *b, size_t n);

static inline bool check_is_ref(const check *c)
{
    return c->ops == c->ref;
}

/* ---- random ----------------------------------------------------------------------------------------------------- */

uint64_t check_random(check *c);
size_t check_between(check *c, size_t least, size_t most); /* both included */
float check_uniform(check *c);                             /* [-1, 1) */
void check_fill(check *c, float *out, size_t n, float size);

/* ---- guarded buffers -------------------------------------------------------------------------------------------- */

/* `size` bytes right before a page nobody may touch. They, and what lies before them, start as 0xff: floats that are
 * NaN. */
typedef struct guarded {
    unsigned char *data;
    size_t size;
    unsigned char *map;
    size_t map_size; /* without the guard page */
} guarded;

guarded guarded_create(size_t size);
guarded guarded_floats(size_t n);
/* From here on writing is forbidden too. */
void guarded_freeze(guarded *g);
/* Releases it; complains when something before its start was written. */
void guarded_destroy(check *c, guarded *g);

static inline float *guarded_f(const guarded *g)
{
    return (float *)(void *)g->data;
}

bool check_is_poison(const void *data, size_t n);

/* ---- types ------------------------------------------------------------------------------------------------------ */

/* Random weights of a type with scales of ordinary size; n is whole blocks. */
void check_fill_type(check *c, void *out, spry_dtype type, size_t n);

/* Value i of a row of a type, computed from the bytes alone; `magnitude` is the size of the terms it is a sum of, when
 * zero points and minima are summed by themselves. */
double naive_value(double *magnitude, spry_dtype type, const unsigned char *row, size_t i);

/* ---- benchmarks ------------------------------------------------------------------------------------------------- */

typedef struct bench_work {
    void (*call)(const spry_ops *ops, const void *context);
    const void *context;
    double bytes, products; /* of one call; 0 products: do not print */
} bench_work;

/* Times the work with the table and with ref and prints a line with the current name. */
void check_bench(check *c, const bench_work *work);

/* ---- the checks ------------------------------------------------------------------------------------------------- */

void check_decode(check *c);
void bench_decode(check *c);
void check_encode(check *c);
void bench_encode(check *c);
void check_matmul(check *c);
void bench_matmul(check *c);
void check_attend(check *c);
void bench_attend(check *c);
void check_rms_norm(check *c);
void bench_rms_norm(check *c);
void check_rope(check *c);
void bench_rope(check *c);
void check_softmax(check *c);
void bench_softmax(check *c);
void check_elementwise(check *c);
void bench_elementwise(check *c);

#endif
