/* Shared parts of the encoders of blocked types. */
#ifndef SPRY_KERNELS_ENCODE_BLOCKS_H
#define SPRY_KERNELS_ENCODE_BLOCKS_H

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"

/* Loads a block's input and replaces values that no block can represent: a NaN becomes 0, and magnitudes are limited to
 * 2^23, beyond the range of the blocks of 32 (127 * 65504) and of any meaningful weight. */
static inline void spry_encode_load(float *values, const float *in, size_t n)
{
    const float limit = 0x1p23f;
    for (size_t i = 0; i < n; i++) {
        float value = in[i] == in[i] ? in[i] : 0;
        value = value < limit ? value : limit;
        values[i] = value > -limit ? value : -limit;
    }
}

static const float spry_largest_half = 65504;

/* The nearest finite half. */
static inline spry_half spry_finite_half(float value)
{
    value = value < spry_largest_half ? value : spry_largest_half;
    return spry_f16_encode(value > -spry_largest_half ? value : -spry_largest_half);
}

/* The half nearest to extreme / highest (both not negative), or the next larger one if rounding a subnormal down would
 * clip the extreme value by more than half a level. Limited to the largest half. */
static inline spry_half spry_reaching_half(float extreme, float highest)
{
    spry_half scale = spry_finite_half(extreme / highest);
    bool cut = extreme > (highest + 0.5f) * spry_f16_decode(scale);
    return cut && scale < spry_finite_half(spry_largest_half) ? (spry_half)(scale + 1) : scale;
}

static inline float spry_inverse_or_zero(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* Rounds to the nearest integer, ties to even, for magnitudes up to 2^22: once `shift` is added, the float has no
 * fraction bits left. */
static inline float spry_round_even(float value)
{
    const float shift = 0x1.8p23f;
    return value + shift - shift;
}

/* The range of a type's levels. */
typedef struct spry_level_range {
    float lowest, highest;
} spry_level_range;

/* Defines spry_ref_encode_TYPE from block_TYPE(block, in), a function for one block of `count` values. */
#define SPRY_ENCODE_BLOCKS(type, count)                                                                                \
    void spry_ref_encode_##type(void *out, const float *in, size_t n)                                                  \
    {                                                                                                                  \
        unsigned char *bytes = out;                                                                                    \
        for (size_t i = 0; i < n / (count); i++) {                                                                     \
            float values[count];                                                                                       \
            spry_encode_load(values, in + i * (count), count);                                                         \
            spry_block_##type block;                                                                                   \
            block_##type(&block, values);                                                                              \
            memcpy(bytes + i * sizeof block, &block, sizeof block);                                                    \
        }                                                                                                              \
    }

#endif
