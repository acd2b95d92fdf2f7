/* What the checks of spry-check share: the state of a run, random shapes and numbers, buffers that end at a forbidden
 * page, comparisons with a tolerance, and the stopwatch.
 *
 * Every table, ref too, is compared with a plain computation in double precision; where results are to be the same bits
 * everywhere, the others are compared with ref's. Tolerances are computed from the data: a number of roundings times
 * the sum of the sizes of what was added. */
#ifndef SPRY_TESTS_CHECK_H
#define SPRY_TESTS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#define CHECK_ROUNDING 0x1p-24 /* largest relative error of one float operation */

/* No kernel adds floats in fewer lanes than this, which bounds the roundings a term of a sum goes through. */
enum { CHECK_LEAST_LANES = 4, CHECK_OTHER_ROUNDINGS = 16 };

/* Roundings of a sum of n products. */
static inline double check_roundings(size_t n)
{
    return (double)(n / CHECK_LEAST_LANES + CHECK_OTHER_ROUNDINGS) * CHECK_ROUNDING;
}

typedef struct check {
    const spry_ops *ops; /* under test */
    const spry_ops *ref;
    const char *filter; /* NULL: everything */
    uint64_t random;
    char name[64];              /* of the op and type being checked */
    char detail[256];           /* the shape being checked */
    size_t n_checked, n_failed; /* ops and types */
    size_t n_values;            /* compared */
    size_t n_complaints;        /* of this op and type */
} check;

/* One op (or a table of similar ones) for all its types; each is one line in check_main.c. */
/* The AMX table over tile registers in plain C, for machines with AVX-512 and without AMX; see emulated_tiles.c. */
extern const spry_ops check_amx_emulated, check_avxvnni_512;

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

/* `size` bytes right before an inaccessible page. They, and the bytes before them, start as 0xff: floats that are
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

/* Bytes of n values, whole blocks. */
static inline size_t check_bytes(spry_dtype type, size_t n)
{
    return n / spry_dtype_block(type) * spry_dtype_bytes(type);
}

/* Random weights of a type with scales of ordinary size; n is whole blocks. */
void check_fill_type(check *c, void *out, spry_dtype type, size_t n);

/* Where a block's one or two halves stand, in bytes; -1: it has no such. */
void check_half_offsets(int offsets[2], spry_dtype type);

/* Value i of a row of a type, computed from the bytes alone; `magnitude` is the size of the terms it is a sum of, when
 * minima are summed by themselves. */
double naive_value(double *magnitude, spry_dtype type, const unsigned char *row, size_t i);

/* ---- benchmarks ------------------------------------------------------------------------------------------------- */

typedef struct bench_work {
    void (*call)(const spry_ops *ops, const void *context);
    const void *context;
    double bytes, products; /* of one call; 0 products: do not print */
} bench_work;

/* Times the work and prints a line with the current name. Ref's time is remembered by that name. */
void check_bench(check *c, const bench_work *work);

/* Decode's products on the numbers of threads in a list as "1,2,4", beside a plain loop: a table. False: the list is
 * wrong, or there is not enough memory. */
bool bench_threads(check *c, const char *counts);

/* ---- the checks ------------------------------------------------------------------------------------------------- */

void check_decode(check *c);
void bench_decode(check *c);
void check_encode(check *c);
void bench_encode(check *c);
void check_encode_act(check *c);
void bench_encode_act(check *c);
void check_matmul(check *c);
void bench_matmul(check *c);
void check_attend(check *c);
void bench_attend(check *c);
void check_rms_norm(check *c);
void bench_rms_norm(check *c);
void check_layer_norm(check *c);
void bench_layer_norm(check *c);
void check_rope(check *c);
void bench_rope(check *c);
void check_softmax(check *c);
void bench_softmax(check *c);
void check_weigh(check *c);
void bench_weigh(check *c);
void check_elementwise(check *c);
void bench_elementwise(check *c);
void check_recur(check *c);
void bench_recur(check *c);

#endif
