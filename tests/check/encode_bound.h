/* The error an encoder may leave, from the block's own range. */
#ifndef SPRY_TESTS_ENCODE_BOUND_H
#define SPRY_TESTS_ENCODE_BOUND_H

#include <math.h>
#include <stddef.h>

#include "base/dtype.h"

/* Largest error of one value when it is stored with `bits` of mantissa and no exponent below `least`. */
static inline double encode_rounding(double value, int bits, int least)
{
    int exponent;
    frexp(value, &exponent);
    exponent = exponent > least ? exponent : least;
    return ldexp(0.5, exponent - bits);
}

static inline double half_rounding(double value)
{
    return encode_rounding(value, 11, -13);
}

/* The largest sum of squared errors over one block of finite values (one value for the plain types) that the plain
 * choice of scale and minimum can leave; searching must not do worse.
 *
 * Symmetric types put the extreme value on their lowest level; one as large of the other sign is cut by a whole level.
 * Types with a minimum err by half a level. Rounding scale and minimum to halves moves the highest level. */
static inline double encode_bound(spry_dtype type, const float *values)
{
    if (type == SPRY_F32)
        return 0;
    if (type == SPRY_F16)
        return pow(half_rounding((double)values[0]), 2);
    if (type == SPRY_BF16)
        return pow(encode_rounding((double)values[0], 8, -125), 2);

    size_t n = spry_dtype_block(type);
    double min = (double)values[0], max = min;
    for (size_t i = 1; i < n; i++) {
        min = fmin(min, (double)values[i]);
        max = fmax(max, (double)values[i]);
    }
    double extreme = fmax(max, -min), error = 0, scale;
    switch (type) {
    case SPRY_Q4_0:
        scale = extreme / 8;
        error = scale + 8 * half_rounding(scale);
        break;
    case SPRY_Q5_0:
        scale = extreme / 16;
        error = scale + 16 * half_rounding(scale);
        break;
    case SPRY_Q4_1:
        scale = (max - min) / 15;
        error = scale / 2 + 15 * half_rounding(scale) + half_rounding(min);
        break;
    case SPRY_Q5_1:
        scale = (max - min) / 31;
        error = scale / 2 + 31 * half_rounding(scale) + half_rounding(min);
        break;
    case SPRY_MXFP4: /* the power of two of which six reach the extreme; the highest levels are two apart */
        scale = exp2(fmax(ceil(log2(extreme / 6)), -127));
        error = extreme > 0 ? scale : 0;
        break;
    default: /* Q8_0 */
        scale = extreme / 127;
        error = (scale + 2 * half_rounding(scale)) / 2;
        break;
    }
    /* The encoder's own arithmetic is in floats. */
    error += extreme * 0x1p-20;
    return (double)n * error * error;
}

#endif
