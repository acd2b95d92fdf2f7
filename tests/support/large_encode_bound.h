/* The error an encoder of blocks of 256 may leave, from the ranges of the block's parts. */
#ifndef SPRY_TESTS_LARGE_ENCODE_BOUND_H
#define SPRY_TESTS_LARGE_ENCODE_BOUND_H

#include <math.h>
#include <stddef.h>

#include "base/dtype.h"

enum { LARGE_VALUES = 256, LARGE_PARTS_MAX = 16 };

/* How the types that can be written divide their block. */
typedef struct large_shape {
    size_t parts;
    double levels;    /* from the lowest to the highest; without a minimum, from zero to the lowest */
    double multiples; /* of the block's scale a part's may be */
    bool has_min;
} large_shape;

static inline large_shape large_shape_of(spry_dtype type)
{
    switch (type) {
    case SPRY_Q4_K: return (large_shape){8, 15, 63, true};
    case SPRY_Q5_K: return (large_shape){8, 31, 63, true};
    default: return (large_shape){16, 32, 128, false}; /* Q6_K */
    }
}

/* The plain scale and minimum (which is subtracted) of a part: all of its values, and zero, within the levels. */
static inline void large_plain_part(double *scale, double *min, large_shape shape, const float *values)
{
    double low = 0, high = (double)values[0];
    for (size_t i = 0; i < LARGE_VALUES / shape.parts; i++) {
        low = fmin(low, (double)values[i]);
        high = fmax(high, (double)values[i]);
    }
    *scale = (shape.has_min ? high - low : fmax(high, -low)) / shape.levels;
    *min = shape.has_min ? -low : 0;
}

/* The largest half-precision number that may stand for `value`: the next one, also among the subnormals. */
static inline double large_half_above(double value)
{
    return value * (1 + 0x1p-10) + 0x1p-24;
}

/* The largest sum of squared errors over a block. A part's own fit leaves at most half a level (a whole one without a
 * minimum, where a value as large as the extreme one but of the other sign is cut). Making its scale a multiple of the
 * block's then moves the highest level, by half the block's scale for each level (by the whole where the multiples of
 * one sign reach less far); likewise the minimum. A search may take twice the plain scale, and a minimum a level
 * further out. */
static inline double large_encode_bound(spry_dtype type, const float *values)
{
    large_shape shape = large_shape_of(type);
    size_t n = LARGE_VALUES / shape.parts;
    double scales[LARGE_PARTS_MAX], mins[LARGE_PARTS_MAX], scale = 0, min = 0, extreme = 0, bound = 0;
    for (size_t p = 0; p < shape.parts; p++) {
        large_plain_part(&scales[p], &mins[p], shape, values + p * n);
        scale = fmax(scale, scales[p]);
        min = fmax(min, mins[p]);
    }
    for (size_t i = 0; i < LARGE_VALUES; i++)
        extreme = fmax(extreme, fabs((double)values[i]));
    double block_scale = large_half_above(2 * scale / shape.multiples);
    double block_min = shape.has_min ? large_half_above((min + scale) / shape.multiples) : 0;
    for (size_t p = 0; p < shape.parts; p++) {
        double error = shape.has_min ? (scales[p] + shape.levels * block_scale + block_min) / 2
                                     : scales[p] + shape.levels * block_scale;
        error += extreme * 0x1p-20; /* the encoder's own arithmetic is in floats */
        bound += (double)n * error * error;
    }
    return bound;
}

#endif
