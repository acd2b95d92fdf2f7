/* Activations for integer kernels: 32 values in 8 bits with one scale, and the sums needed for zero points and minima
 * of weights, computed once per row instead of once per output. */
#ifndef SPRY_KERNELS_ACT_H
#define SPRY_KERNELS_ACT_H

#include <stddef.h>
#include <stdint.h>

enum { SPRY_ACT_BLOCK = 32 };
#define SPRY_ACT_SMALLEST 0x1p-100f

typedef struct spry_act_block {
    float scale;
    float scaled_sum;    /* scale * sum of the values */
    int32_t minus_8_sum; /* -8 * sum of the values */
    int16_t half_sum[2]; /* sums of the first 16 and of the last 16 values */
    int8_t values[SPRY_ACT_BLOCK];
} spry_act_block;

/* Encodes n floats (whole blocks). scale = largest magnitude / 127; values round to nearest, ties to even. A block
 * whose values are all below SPRY_ACT_SMALLEST becomes zeros, because the inverse of its scale might overflow. A block
 * with a NaN or an infinity gets a NaN scale, so that the result is NaN. */
void spry_act_encode(spry_act_block *out, const float *in, size_t n);

#endif
