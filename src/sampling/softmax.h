/* Sums and maxima of a softmax, the same bits on every platform: additions in one written order. Plain loops that a
 * compiler turns into vector code. The exponentials are the kernels' (kernels/weigh.h).
 *
 * Long arrays are handled in blocks, so that a draw can skip through block sums instead of walking every weight. */
#ifndef SPRY_SAMPLING_SOFTMAX_H
#define SPRY_SAMPLING_SOFTMAX_H

#include <stddef.h>

enum { SPRY_SOFTMAX_BLOCK = 64 };

static inline size_t spry_softmax_blocks(size_t n)
{
    return n / SPRY_SOFTMAX_BLOCK + (n % SPRY_SOFTMAX_BLOCK != 0);
}

/* Sums of each block into block_sums[spry_softmax_blocks(n)]; returns the sum of all. */
double spry_softmax_sum(double *block_sums, const double *weights, size_t n);

/* Maxima of each block into block_max[spry_softmax_blocks(n)]; returns the largest of all, -INFINITY for n = 0. */
float spry_softmax_max(float *block_max, const float *scores, size_t n);

#endif
