/* Exponentials of a softmax with the same bits on every platform: additions and multiplications in one fixed order, no
 * math library, no contraction. Each table, and the GPU's kernels, compile it with their own instructions.
 *
 * exp by the usual reduction: x = k ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial for exp(r), and k added to the
 * exponent bits. Twelve terms leave a relative error of 0.347^12 / 12! = 6e-15. */
#ifndef SPRY_KERNELS_WEIGH_H
#define SPRY_KERNELS_WEIGH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How the functions of this file are declared; CUDA kernels define it before they include it. */
#ifndef SPRY_WEIGH_INLINE
#define SPRY_WEIGH_INLINE static inline
#endif

/* Below this the result would be subnormal, where adding to the exponent bits is wrong. */
#define SPRY_EXP_LOWEST (-700.0)

SPRY_WEIGH_INLINE uint64_t spry_weigh_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

SPRY_WEIGH_INLINE double spry_weigh_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp of x <= 0. Selections are masks, not branches, so that the loop around it vectorises. */
SPRY_WEIGH_INLINE double spry_weigh_exp(double x)
{
    const double log2_e = 0x1.71547652b82fep+0;
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double round_shift = 0x1.8p52; /* adding it leaves the nearest integer in the low bits */
    uint64_t mask = (spry_weigh_bits(x - SPRY_EXP_LOWEST) >> 63) - 1; /* all ones unless x is lower */
    double inside = spry_weigh_from_bits(spry_weigh_bits(x) & mask);
    double shifted = inside * log2_e + round_shift;
    double k = shifted - round_shift;
    double r = inside - k * ln2_high - k * ln2_low;
    double square = r * r; /* even and odd terms separately: two short chains instead of a long one */
    double odd = 1.0 / 39916800, even = 1.0 / 3628800;
    odd = odd * square + 1.0 / 362880;
    even = even * square + 1.0 / 40320;
    odd = odd * square + 1.0 / 5040;
    even = even * square + 1.0 / 720;
    odd = odd * square + 1.0 / 120;
    even = even * square + 1.0 / 24;
    odd = odd * square + 1.0 / 6;
    even = even * square + 0.5;
    odd = odd * square + 1.0;
    even = even * square + 1.0;
    double sum = even + odd * r;
    return spry_weigh_from_bits((spry_weigh_bits(sum) + (spry_weigh_bits(shifted) << 52)) & mask);
}

/* weights[i] = exp(scores[i] - max), in (0, 1], or 0 where that is below 1e-304. No score is above `max`; `max` is
 * finite; -INFINITY gives 0. The error is below 1e-14 of each weight. */
SPRY_WEIGH_INLINE void spry_weigh(double *weights, const float *scores, size_t n, float max)
{
    for (size_t i = 0; i < n; i++)
        weights[i] = spry_weigh_exp((double)scores[i] - (double)max);
}

#endif
