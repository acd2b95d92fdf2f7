/* The types once more, value by value and in double precision, straight from the layouts written in
 * kernels/blocks.h: what the decoders of table ref are compared with. */
#include <math.h>
#include <string.h>

#include "check/check.h"
#include "kernels/blocks.h"
#include "kernels/grids.h"
#include "kernels/half.h"

static unsigned half_bits(const unsigned char *bytes)
{
    return bytes[0] | (unsigned)bytes[1] << 8;
}

static double half_at(const unsigned char *bytes)
{
    unsigned bits = half_bits(bytes), exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

static double float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double exact(double *magnitude, double value)
{
    *magnitude = fabs(value);
    return value;
}

static double symmetric(double *magnitude, double scale, unsigned q, unsigned zero)
{
    return exact(magnitude, scale * ((double)q - zero));
}

/* scale * q + min */
static double affine(double *magnitude, double scale, unsigned q, double min)
{
    *magnitude = fabs(scale) * q + fabs(min);
    return scale * q + min;
}

static double iq4_level(unsigned q)
{
    static const int levels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return levels[q];
}

static double e2m1(unsigned q)
{
    unsigned exponent = q >> 1 & 3, mantissa = q & 1;
    double size = exponent ? ldexp(1 + 0.5 * mantissa, (int)exponent - 1) : 0.5 * mantissa;
    return q & 8 ? -size : size;
}

/* Nibble i of 32 that lie in 16 bytes, and bit i of an array. */
static unsigned nibble(const unsigned char *bytes, size_t i)
{
    return bytes[i % 16] >> i / 16 * 4 & 15;
}

static unsigned bit(const unsigned char *bytes, size_t i)
{
    return bytes[i / 8] >> i % 8 & 1;
}

/* Two bits of value i of 256, in 64 bytes. */
static unsigned two_bits(const unsigned char *bytes, size_t i)
{
    return bytes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static uint32_t word_at(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static double e4m3(unsigned bits)
{
    unsigned exponent = bits >> 3 & 15, mantissa = bits & 7;
    double size = exponent ? ldexp(8 + mantissa, (int)exponent - 10) : ldexp(mantissa, -9);
    return (bits & 127) == 127 ? NAN : bits & 128 ? -size : size;
}

static double small_value(double *magnitude, spry_dtype type, const unsigned char *b, size_t i)
{
    switch (type) {
    case SPRY_Q4_0: return symmetric(magnitude, half_at(b), nibble(b + 2, i), 8);
    case SPRY_Q4_1: return affine(magnitude, half_at(b), nibble(b + 4, i), half_at(b + 2));
    case SPRY_Q5_0: return symmetric(magnitude, half_at(b), nibble(b + 6, i) | bit(b + 2, i) << 4, 16);
    case SPRY_Q5_1: return affine(magnitude, half_at(b), nibble(b + 8, i) | bit(b + 4, i) << 4, half_at(b + 2));
    case SPRY_Q8_0: return exact(magnitude, half_at(b) * (signed char)b[2 + i]);
    case SPRY_IQ4_NL: return exact(magnitude, half_at(b) * iq4_level(nibble(b + 2, i)));
    case SPRY_MXFP4: return exact(magnitude, ldexp(e2m1(nibble(b + 1, i)), b[0] - 127));
    case SPRY_F8: return exact(magnitude, float_of(word_at(b)) * e4m3(b[4 + i]));
    default: return NAN;
    }
}

/* q4_k and q5_k: `fifth` is the upper bit of the quant, `low` the nibbles. */
static double k_affine(double *magnitude, const unsigned char *b, unsigned fifth, const unsigned char *low, size_t i)
{
    const unsigned char *scales = b + 4;
    size_t part = i / 32, upper = part % 4;
    unsigned scale = scales[upper] & 63, min = scales[upper + 4] & 63;
    if (part >= 4) {
        scale = (scales[part + 4] & 15u) + (scales[upper] >> 6) * 16u;
        min = (scales[part + 4] >> 4) + (scales[upper + 4] >> 6) * 16u;
    }
    unsigned byte = low[i / 64 * 32 + i % 32], q = (byte >> i % 64 / 32 * 4 & 15) + fifth * 16;
    return affine(magnitude, half_at(b) * scale, q, -half_at(b + 2) * min);
}

static double q3_k(double *magnitude, const unsigned char *b, size_t i)
{
    const unsigned char *scales = b + 96;
    size_t part = i / 16;
    unsigned nibbles = scales[part % 8] >> part / 8 * 4 & 15, upper = scales[8 + part % 4] >> part / 4 * 2 & 3;
    double scale = half_at(b + 108) * ((double)(nibbles + upper * 16) - 32);
    return symmetric(magnitude, scale, two_bits(b + 32, i) + 4u * (b[i % 32] >> i / 32 & 1), 4);
}

static double q6_k(double *magnitude, const unsigned char *b, size_t i)
{
    size_t chunk = i / 128, within = i % 128;
    unsigned low = b[chunk * 64 + within % 64] >> within / 64 * 4 & 15;
    unsigned high = b[128 + chunk * 32 + within % 32] >> within / 32 * 2 & 3;
    return symmetric(magnitude, half_at(b + 208) * (signed char)b[192 + i / 16], low + high * 16, 32);
}

static double iq4_xs(double *magnitude, const unsigned char *b, size_t i)
{
    size_t part = i / 32;
    unsigned low = b[4 + part / 2] >> part % 2 * 4 & 15, high = half_bits(b + 2) >> 2 * part & 3;
    double scale = half_at(b) * ((double)(low + high * 16) - 32);
    return exact(magnitude, scale * iq4_level(nibble(b + 8 + 16 * part, i % 32)));
}

static double tq1_0(double *magnitude, const unsigned char *b, size_t i)
{
    unsigned byte, digit;
    if (i < 160) {
        byte = b[i % 32];
        digit = (unsigned)(i / 32);
    } else if (i < 240) {
        byte = b[32 + i % 16];
        digit = (unsigned)(i - 160) / 16;
    } else {
        byte = b[48 + i % 4];
        digit = (unsigned)(i - 240) / 4;
    }
    double fraction = byte / 256.0, whole = 0;
    for (unsigned k = 0; k <= digit; k++)
        fraction = modf(fraction * 3, &whole);
    return symmetric(magnitude, half_at(b + 52), (unsigned)whole, 1);
}

/* Value i of a code, without its sign; IQ2 codes hold 8 values, IQ3 codes 4. */
static double iq2_level(const uint16_t *grid, size_t code, size_t i)
{
    static const double levels[] = {8, 25, 43};
    return levels[grid[code] >> 2 * (i % 8) & 3];
}

static double iq3_level(const uint16_t *grid, size_t code, size_t i)
{
    return grid[code] >> 3 * (i % 4) & 7;
}

/* The eighth sign makes the number of minuses even. */
static double even_sign(uint32_t seven, size_t i)
{
    unsigned count = 0;
    for (size_t k = 0; k < 7; k++)
        count += seven >> k & 1;
    return (i % 8 < 7 ? seven >> i % 8 & 1 : count % 2) ? -1 : 1;
}

static double half_step(unsigned nibbles, double quarter)
{
    return (0.5 + nibbles) * quarter;
}

static double iq2_xxs(const unsigned char *b, size_t i)
{
    const unsigned char *part = b + 2 + i / 32 * 8;
    uint32_t word = word_at(part + 4);
    return half_step(word >> 28, 0.25) * iq2_level(spry_grid_iq2_xxs, part[i % 32 / 8], i) *
           even_sign(word >> 7 * (i % 32 / 8) & 127, i);
}

static double iq2_xs(const unsigned char *b, size_t i)
{
    unsigned pair = half_bits(b + 2 + i / 8 * 2);
    return half_step(b[66 + i / 32] >> i % 32 / 16 * 4 & 15, 0.25) * iq2_level(spry_grid_iq2_xs, pair % 512, i) *
           even_sign(pair / 512, i);
}

static double iq2_s(const unsigned char *b, size_t i)
{
    size_t eight = i / 8, code = b[2 + eight] + 256 * (size_t)(b[66 + eight / 4] >> eight % 4 * 2 & 3);
    return half_step(b[74 + i / 32] >> i % 32 / 16 * 4 & 15, 0.25) * iq2_level(spry_grid_iq2_s, code, i) *
           (bit(b + 34, i) ? -1 : 1);
}

static double iq3_xxs(const unsigned char *b, size_t i)
{
    static const double levels[] = {4, 12, 20, 28, 36, 44, 52, 62};
    uint32_t word = word_at(b + 66 + i / 32 * 4);
    return half_step(word >> 28, 0.5) * levels[(size_t)iq3_level(spry_grid_iq3_xxs, b[2 + i / 4], i)] *
           even_sign(word >> 7 * (i % 32 / 8) & 127, i);
}

static double iq3_s(const unsigned char *b, size_t i)
{
    size_t code = b[2 + i / 4] + 256 * (size_t)bit(b + 66, i / 4);
    unsigned scale = b[106 + i / 64] >> i % 64 / 32 * 4 & 15;
    return (1 + 2.0 * scale) * (2 * iq3_level(spry_grid_iq3_s, code, i) + 1) * (bit(b + 74, i) ? -1 : 1);
}

/* Value i of 256 of IQ1, without its scale: `code` has 8 values. */
static double iq1(unsigned code, size_t i, bool minus)
{
    return (double)(spry_grid_iq1[code] >> 2 * (i % 8) & 3) - 1 + (minus ? -0.125 : 0.125);
}

static double iq1_s(const unsigned char *b, size_t i)
{
    unsigned word = half_bits(b + 34 + i / 32 * 2);
    return half_at(b) * (2.0 * (word >> 12 & 7) + 1) *
           iq1(b[2 + i / 8] + (word >> i / 8 % 4 * 3 & 7) * 256, i, word >> 15);
}

static double iq1_m(const unsigned char *b, size_t i)
{
    const unsigned char *words = b + 48;
    unsigned char scale[2] = {(unsigned char)(words[1] >> 4 | (words[3] & 240)),
                              (unsigned char)(words[5] >> 4 | (words[7] & 240))};
    unsigned part = half_bits(words + i / 64 * 2) >> i % 64 / 16 * 3 & 7, upper = b[32 + i / 16] >> i % 16 / 8 * 4 & 15;
    return half_at(scale) * (2.0 * part + 1) * iq1(b[i / 8] + upper % 8 * 256, i, upper / 8);
}

static double nvfp4(const unsigned char *b, size_t i)
{
    unsigned scale = b[i / 16] & 127, both = b[4 + i / 16 * 8 + i % 8];
    return (scale == 127 ? 0 : e4m3(scale)) * e2m1(i % 16 < 8 ? both & 15 : both >> 4);
}

static double large_value(double *magnitude, spry_dtype type, const unsigned char *b, size_t i)
{
    switch (type) {
    case SPRY_Q2_K:
        return affine(magnitude, half_at(b + 80) * (b[i / 16] & 15), two_bits(b + 16, i),
                      -half_at(b + 82) * (b[i / 16] >> 4));
    case SPRY_Q3_K: return q3_k(magnitude, b, i);
    case SPRY_Q4_K: return k_affine(magnitude, b, 0, b + 16, i);
    case SPRY_Q5_K: return k_affine(magnitude, b, b[16 + i % 32] >> i / 32 & 1, b + 48, i);
    case SPRY_Q6_K: return q6_k(magnitude, b, i);
    case SPRY_IQ4_XS: return iq4_xs(magnitude, b, i);
    case SPRY_IQ2_XXS: return exact(magnitude, half_at(b) * iq2_xxs(b, i));
    case SPRY_IQ2_XS: return exact(magnitude, half_at(b) * iq2_xs(b, i));
    case SPRY_IQ2_S: return exact(magnitude, half_at(b) * iq2_s(b, i));
    case SPRY_IQ3_XXS: return exact(magnitude, half_at(b) * iq3_xxs(b, i));
    case SPRY_IQ3_S: return exact(magnitude, half_at(b) * iq3_s(b, i));
    case SPRY_TQ1_0: return tq1_0(magnitude, b, i);
    case SPRY_TQ2_0: return symmetric(magnitude, half_at(b + 64), two_bits(b, i), 1);
    case SPRY_IQ1_S: return exact(magnitude, iq1_s(b, i));
    case SPRY_IQ1_M: return exact(magnitude, iq1_m(b, i));
    case SPRY_NVFP4: return exact(magnitude, nvfp4(b, i));
    case SPRY_Q1_0: return exact(magnitude, half_at(b) * (bit(b + 2, i) ? 1 : -1));
    case SPRY_Q2_0: return symmetric(magnitude, half_at(b), b[2 + i / 4] >> i % 4 * 2 & 3, 1);
    default: return NAN;
    }
}

double naive_value(double *magnitude, spry_dtype type, const unsigned char *row, size_t i)
{
    size_t block = spry_dtype_block(type);
    const unsigned char *b = row + i / block * spry_dtype_bytes(type);
    switch (type) {
    case SPRY_F32: return exact(magnitude, float_of(half_bits(b) | (uint32_t)half_bits(b + 2) << 16));
    case SPRY_F16: return exact(magnitude, half_at(b));
    case SPRY_BF16: return exact(magnitude, float_of((uint32_t)half_bits(b) << 16));
    default: break;
    }
    return block == SPRY_BLOCK_SMALL ? small_value(magnitude, type, b, i % block)
                                     : large_value(magnitude, type, b, i % block);
}

/* ---- random weights --------------------------------------------------------------------------------------------- */

void check_half_offsets(int offsets[2], spry_dtype type)
{
    static const struct {
        spry_dtype type;
        int offsets[2];
    } places[] = {
        {SPRY_Q4_0, {0, -1}},   {SPRY_Q4_1, {0, 2}},    {SPRY_Q5_0, {0, -1}},    {SPRY_Q5_1, {0, 2}},
        {SPRY_Q8_0, {0, -1}},   {SPRY_IQ4_NL, {0, -1}}, {SPRY_Q2_K, {80, 82}},   {SPRY_Q3_K, {108, -1}},
        {SPRY_Q4_K, {0, 2}},    {SPRY_Q5_K, {0, 2}},    {SPRY_Q6_K, {208, -1}},  {SPRY_IQ4_XS, {0, -1}},
        {SPRY_TQ1_0, {52, -1}}, {SPRY_TQ2_0, {64, -1}}, {SPRY_MXFP4, {-1, -1}},  {SPRY_IQ2_XXS, {0, -1}},
        {SPRY_IQ2_XS, {0, -1}}, {SPRY_IQ2_S, {0, -1}},  {SPRY_IQ3_XXS, {0, -1}}, {SPRY_IQ3_S, {0, -1}},
        {SPRY_IQ1_S, {0, -1}},  {SPRY_Q1_0, {0, -1}},   {SPRY_Q2_0, {0, -1}},
    };
    offsets[0] = offsets[1] = -1;
    for (size_t i = 0; i < SPRY_COUNT(places); i++)
        if (places[i].type == type)
            memcpy(offsets, places[i].offsets, sizeof places[i].offsets);
}

static void fill_plain(check *c, unsigned char *out, spry_dtype type, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = check_uniform(c);
        c->ref->encode[type](out + i * spry_dtype_bytes(type), &value, 1);
    }
}

void check_fill_type(check *c, void *out, spry_dtype type, size_t n)
{
    size_t block = spry_dtype_block(type), bytes = spry_dtype_bytes(type);
    if (block == 1) {
        fill_plain(c, out, type, n);
        return;
    }
    int offsets[2];
    check_half_offsets(offsets, type);
    for (unsigned char *b = out, *end = b + n / block * bytes; b < end; b += bytes) {
        for (size_t i = 0; i < bytes; i++)
            b[i] = (unsigned char)check_random(c);
        for (int k = 0; k < 2 && offsets[k] >= 0; k++) {
            uint16_t half = spry_f16_encode(check_uniform(c) * 0.1f);
            memcpy(b + offsets[k], &half, sizeof half);
        }
        for (size_t i = 4; type == SPRY_F8 && i < bytes; i++)
            b[i] = (b[i] & 127) == 127 ? 0 : b[i]; /* no NaN */
        if (type == SPRY_F8)
            memcpy(b, &(float){check_uniform(c) * 0.1f}, sizeof(float));
        uint16_t quarter = spry_f16_encode(check_uniform(c) * 0.1f);
        for (size_t i = 0; type == SPRY_IQ1_M && i < 4; i++) /* a scale in four nibbles */
            b[49 + 2 * i] = (unsigned char)((b[49 + 2 * i] & 15) | (quarter >> 4 * i & 15) << 4);
        if (type == SPRY_MXFP4)
            b[0] = (unsigned char)check_between(c, 120, 130);
    }
}
