/* One matrix product to be checked: weights as a kernel wants them, activations as it wants them, and what both are
 * worth in double precision. */
#ifndef SPRY_TESTS_MATMUL_CASE_H
#define SPRY_TESTS_MATMUL_CASE_H

#include "check/check.h"

/* What the numbers are like. */
typedef enum matmul_content {
    MATMUL_RANDOM,  /* ordinary ones */
    MATMUL_WHOLE,   /* whole numbers: while they fit in a float every sum is exact, in any order */
    MATMUL_EXTREME, /* all activations as large as can be, levels at an end of their range: sums that overflow show */
    MATMUL_SCALES,  /* zero, tiny and huge scales; blocks of zeros */
    MATMUL_CONTENT_COUNT
} matmul_content;

typedef struct matmul_case {
    spry_dtype type;
    matmul_content content;
    const spry_matmul_kernel *kernel;
    size_t n_rows, n_in, n_out, begin, end;
    guarded file;    /* weights as they lie in a file, [n_out, n_in] */
    guarded packed;  /* the same in groups, when the kernel wants that */
    guarded floats;  /* activations, [n_rows, n_in] */
    guarded act;     /* what the kernel gets of them */
    guarded decoded; /* what that is worth in floats, [n_rows, n_in] */
    guarded out;
    double *weight, *size; /* [n_out, n_in]: values, and sizes of the terms each is a sum of */
    double *worth;         /* [n_rows, n_in]: of activations */
    spry_matmul m;         /* the call to check */
    spry_matmul plain;     /* the same for ref, without `out` */
} matmul_case;

/* Fills the case: type, content, n_rows and the largest n_out are set. Everything the kernel only reads is frozen. */
void matmul_case_build(check *c, matmul_case *k, size_t most_outputs);
void matmul_case_destroy(check *c, matmul_case *k);

/* Activations as the kernel wants them; `out` has room for all rows, m.act_stride apart. */
void matmul_case_encode(const matmul_case *k, unsigned char *out, const float *floats);

/* Outputs that ranges may begin at are multiples of this. */
static inline size_t matmul_case_step(const matmul_case *k)
{
    return k->kernel->group ? k->kernel->group : 1;
}

/* A product, and the size of what was added up. */
double matmul_case_product(double *size, const matmul_case *k, size_t row, size_t output);

/* The largest error a kernel may leave in a product of terms of that size altogether. */
double matmul_case_tolerance(const matmul_case *k, bool integer, double size);

#endif
