/* The two 16-bit floats: IEEE binary16 (f16) and the upper half of a float (bf16). Every function is exact or rounds to
 * nearest, ties to even, in plain integer and float arithmetic, so that results are the same on all machines.
 *
 * Subnormals, infinities and both zeros are preserved; overflow becomes infinity; a NaN stays NaN (encoding makes it
 * quiet). */
#ifndef SPRY_KERNELS_HALF_H
#define SPRY_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t spry_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float spry_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float spry_f16_decode(uint16_t half)
{
    const uint32_t infinity_moved = 0x7c00u << 13;
    uint32_t moved = (uint32_t)(half & 0x7fff) << 13;
    /* The biases of the exponents differ by 112; the multiplication also normalises subnormal numbers. */
    uint32_t bits = spry_float_bits(spry_float_of_bits(moved) * 0x1p112f);
    bits |= moved >= infinity_moved ? 0x7f800000u : 0;
    return spry_float_of_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t spry_f16_encode(float value)
{
    const uint32_t infinity = 0x7f800000u, overflow = 0x477ff000u /* 65520 */, normal = 0x38800000u /* 2^-14 */;
    uint32_t bits = spry_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff, half;
    if (size > infinity)
        half = 0x7e00 | (size >> 13 & 0x3ff);
    else if (size >= overflow)
        half = 0x7c00;
    else if (size >= normal)
        half = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
    else /* the last bit of a float near 0.5 weighs 2^-24, like the last bit of a subnormal half: the addition rounds to
          * it */
        half = spry_float_bits(spry_float_of_bits(size) + 0.5f) - spry_float_bits(0.5f);
    return (uint16_t)(sign | half);
}

/* Four bits of exponent, three of mantissa, no infinities; all bits set is a NaN. As a half its value is 2^-8 times as
 * large. */
static inline float spry_e4m3_decode(uint8_t bits)
{
    if ((bits & 0x7f) == 0x7f)
        return spry_float_of_bits(0x7fc00000u);
    return spry_f16_decode((uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256;
}

static inline float spry_bf16_decode(uint16_t bits)
{
    return spry_float_of_bits((uint32_t)bits << 16);
}

static inline uint16_t spry_bf16_encode(float value)
{
    uint32_t bits = spry_float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
