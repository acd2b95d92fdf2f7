/* Decodes all types to floats. The order of the float operations is part of each format: results have the same bits
 * everywhere. */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/grids.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"

/* Defines spry_ref_decode_TYPE from block_TYPE(out, block), a function for one block of `values`. */
#define SPRY_DECODE_BLOCKS(type, values)                                                                               \
    void spry_ref_decode_##type(float *out, const void *in, size_t n)                                                  \
    {                                                                                                                  \
        const unsigned char *bytes = in;                                                                               \
        for (size_t i = 0; i < n / (values); i++) {                                                                    \
            spry_block_##type block;                                                                                   \
            memcpy(&block, bytes + i * sizeof block, sizeof block);                                                    \
            block_##type(out + i * (values), &block);                                                                  \
        }                                                                                                              \
    }

/* ---- blocks of 32 ------------------------------------------------------------------------------------------------ */

enum { HALF = SPRY_BLOCK_SMALL / 2 };

void spry_ref_decode_f32(float *out, const void *in, size_t n)
{
    if (n)
        memcpy(out, in, n * sizeof *out);
}

void spry_ref_decode_f16(float *out, const void *in, size_t n)
{
    const unsigned char *bytes = in;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        out[i] = spry_f16_decode(half);
    }
}

void spry_ref_decode_bf16(float *out, const void *in, size_t n)
{
    const unsigned char *bytes = in;
    for (size_t i = 0; i < n; i++) {
        uint16_t upper;
        memcpy(&upper, bytes + i * sizeof upper, sizeof upper);
        out[i] = spry_bf16_decode(upper);
    }
}

static void block_q4_0(float *out, const spry_block_q4_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)((block->low[i] & 15) - 8) * scale;
        out[i + HALF] = (float)((block->low[i] >> 4) - 8) * scale;
    }
}
SPRY_DECODE_BLOCKS(q4_0, SPRY_BLOCK_SMALL)

static void block_q4_1(float *out, const spry_block_q4_1 *block)
{
    float scale = spry_f16_decode(block->scale), min = spry_f16_decode(block->min);
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)(block->low[i] & 15) * scale + min;
        out[i + HALF] = (float)(block->low[i] >> 4) * scale + min;
    }
}
SPRY_DECODE_BLOCKS(q4_1, SPRY_BLOCK_SMALL)

/* The 32 unsigned values of five bits. */
static void five_bits(int out[SPRY_BLOCK_SMALL], const uint8_t high[4], const uint8_t low[HALF])
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (low[i] & 15) | (high[i / 8] >> i % 8 & 1) << 4;
        out[i + HALF] = low[i] >> 4 | (high[i / 8 + 2] >> i % 8 & 1) << 4;
    }
}

static void block_q5_0(float *out, const spry_block_q5_0 *block)
{
    int quants[SPRY_BLOCK_SMALL];
    five_bits(quants, block->high, block->low);
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++)
        out[i] = (float)(quants[i] - 16) * scale;
}
SPRY_DECODE_BLOCKS(q5_0, SPRY_BLOCK_SMALL)

static void block_q5_1(float *out, const spry_block_q5_1 *block)
{
    int quants[SPRY_BLOCK_SMALL];
    five_bits(quants, block->high, block->low);
    float scale = spry_f16_decode(block->scale), min = spry_f16_decode(block->min);
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++)
        out[i] = (float)quants[i] * scale + min;
}
SPRY_DECODE_BLOCKS(q5_1, SPRY_BLOCK_SMALL)

static void block_q8_0(float *out, const spry_block_q8_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++)
        out[i] = (float)block->quants[i] * scale;
}
SPRY_DECODE_BLOCKS(q8_0, SPRY_BLOCK_SMALL)

static void block_iq4_nl(float *out, const spry_block_iq4_nl *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < HALF; i++) {
        out[i] = scale * (float)spry_levels_iq4[block->low[i] & 15];
        out[i + HALF] = scale * (float)spry_levels_iq4[block->low[i] >> 4];
    }
}
SPRY_DECODE_BLOCKS(iq4_nl, SPRY_BLOCK_SMALL)

static void block_mxfp4(float *out, const spry_block_mxfp4 *block)
{
    float scale = spry_float_of_bits(spry_half_e8m0_bits(block->exponent));
    for (int i = 0; i < HALF; i++) {
        out[i] = scale * (float)spry_levels_e2m1[block->low[i] & 15];
        out[i + HALF] = scale * (float)spry_levels_e2m1[block->low[i] >> 4];
    }
}
SPRY_DECODE_BLOCKS(mxfp4, SPRY_BLOCK_SMALL)

static void block_f8(float *out, const spry_block_f8 *block)
{
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++)
        out[i] = spry_e4m3_decode(block->values[i]) * block->scale;
}
SPRY_DECODE_BLOCKS(f8, SPRY_BLOCK_SMALL)

/* ---- blocks of 256, whose parts have their own scales ------------------------------------------------------------ */

/* Types with two bits per value: the bytes and the shift of part p of 16 values. */
static const uint8_t *two_bit_part(int *shift, const uint8_t low[64], int part)
{
    *shift = 2 * (part / 2 % 4);
    return low + 32 * (part / 8) + 16 * (part % 2);
}

static void block_q2_k(float *out, const spry_block_q2_k *block)
{
    float scale = spry_f16_decode(block->scale), min = spry_f16_decode(block->min);
    for (int part = 0; part < 16; part++, out += 16) {
        int shift;
        const uint8_t *low = two_bit_part(&shift, block->low, part);
        float part_scale = scale * (float)(block->scales[part] & 15),
              part_min = min * (float)(block->scales[part] >> 4);
        for (int i = 0; i < 16; i++)
            out[i] = part_scale * (float)(low[i] >> shift & 3) - part_min;
    }
}
SPRY_DECODE_BLOCKS(q2_k, SPRY_BLOCK_LARGE)

static void block_q3_k(float *out, const spry_block_q3_k *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int part = 0; part < 16; part++, out += 16) {
        int nibble = block->scales[part % 8] >> 4 * (part / 8) & 15;
        int upper = block->scales[8 + part % 4] >> 2 * (part / 4) & 3;
        float part_scale = scale * (float)((nibble | upper << 4) - 32);
        int shift;
        const uint8_t *low = two_bit_part(&shift, block->low, part), *high = block->high + 16 * (part % 2);
        for (int i = 0; i < 16; i++)
            out[i] = part_scale * (float)((low[i] >> shift & 3) + 4 * (high[i] >> part / 2 & 1) - 4);
    }
}
SPRY_DECODE_BLOCKS(q3_k, SPRY_BLOCK_LARGE)

/* The scales and minima of the eight parts in q4_k and q5_k, times the scale and minimum of the block. */
static void part_scales(float scales[8], float mins[8], const uint8_t packed[12], float scale, float min)
{
    for (int part = 0; part < 4; part++) {
        const int scale_byte = packed[part], min_byte = packed[part + 4], nibbles = packed[part + 8];
        scales[part] = scale * (float)(scale_byte & 63);
        mins[part] = min * (float)(min_byte & 63);
        scales[part + 4] = scale * (float)((nibbles & 15) | scale_byte >> 6 << 4);
        mins[part + 4] = min * (float)(nibbles >> 4 | min_byte >> 6 << 4);
    }
}

static void block_q4_k(float *out, const spry_block_q4_k *block)
{
    float scales[8], mins[8];
    part_scales(scales, mins, block->scales, spry_f16_decode(block->scale), spry_f16_decode(block->min));
    const uint8_t *low = block->low;
    for (int part = 0; part < 8; part += 2, low += 32, out += 64)
        for (int i = 0; i < 32; i++) {
            out[i] = scales[part] * (float)(low[i] & 15) - mins[part];
            out[i + 32] = scales[part + 1] * (float)(low[i] >> 4) - mins[part + 1];
        }
}
SPRY_DECODE_BLOCKS(q4_k, SPRY_BLOCK_LARGE)

static void block_q5_k(float *out, const spry_block_q5_k *block)
{
    float scales[8], mins[8];
    part_scales(scales, mins, block->scales, spry_f16_decode(block->scale), spry_f16_decode(block->min));
    const uint8_t *low = block->low, *high = block->high;
    for (int part = 0; part < 8; part += 2, low += 32, out += 64)
        for (int i = 0; i < 32; i++) {
            int first = (low[i] & 15) | (high[i] >> part & 1) << 4;
            int second = low[i] >> 4 | (high[i] >> (part + 1) & 1) << 4;
            out[i] = scales[part] * (float)first - mins[part];
            out[i + 32] = scales[part + 1] * (float)second - mins[part + 1];
        }
}
SPRY_DECODE_BLOCKS(q5_k, SPRY_BLOCK_LARGE)

static void block_q6_k(float *out, const spry_block_q6_k *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int part = 0; part < 16; part++, out += 16) {
        int chunk = part / 8, in_chunk = part % 8;
        const uint8_t *low = block->low + 64 * chunk + 16 * (in_chunk % 4);
        const uint8_t *high = block->high + 32 * chunk + 16 * (in_chunk % 2);
        int low_shift = 4 * (in_chunk / 4), high_shift = 2 * (in_chunk / 2);
        float part_scale = scale * (float)block->scales[part];
        for (int i = 0; i < 16; i++)
            out[i] = part_scale * (float)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
    }
}
SPRY_DECODE_BLOCKS(q6_k, SPRY_BLOCK_LARGE)

static void block_iq4_xs(float *out, const spry_block_iq4_xs *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int part = 0; part < 8; part++, out += 32) {
        int nibble = block->scales_low[part / 2] >> 4 * (part % 2) & 15;
        int upper = block->scales_high[part / 4] >> 2 * (part % 4) & 3;
        float part_scale = scale * (float)((nibble | upper << 4) - 32);
        const uint8_t *low = block->low + 16 * part;
        for (int i = 0; i < 16; i++) {
            out[i] = part_scale * (float)spry_levels_iq4[low[i] & 15];
            out[i + 16] = part_scale * (float)spry_levels_iq4[low[i] >> 4];
        }
    }
}
SPRY_DECODE_BLOCKS(iq4_xs, SPRY_BLOCK_LARGE)

/* Digit k of n bytes. Each byte is a fraction of 256 in base three: multiplying it by 3^k moves digit k to the
 * front. */
static void ternary_digits(float *out, const uint8_t *bytes, int n, int digit, float scale)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < n; i++) {
        uint8_t fraction = (uint8_t)(bytes[i] * powers[digit]);
        out[i] = (float)((fraction * 3 >> 8) - 1) * scale;
    }
}

static void block_tq1_0(float *out, const spry_block_tq1_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int digit = 0; digit < 5; digit++, out += 32)
        ternary_digits(out, block->five, 32, digit, scale);
    for (int digit = 0; digit < 5; digit++, out += 16)
        ternary_digits(out, block->five + 32, 16, digit, scale);
    for (int digit = 0; digit < 4; digit++, out += 4)
        ternary_digits(out, block->last, 4, digit, scale);
}
SPRY_DECODE_BLOCKS(tq1_0, SPRY_BLOCK_LARGE)

static void block_tq2_0(float *out, const spry_block_tq2_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int part = 0; part < 16; part++, out += 16) {
        int shift;
        const uint8_t *low = two_bit_part(&shift, block->low, part);
        for (int i = 0; i < 16; i++)
            out[i] = (float)((low[i] >> shift & 3) - 1) * scale;
    }
}
SPRY_DECODE_BLOCKS(tq2_0, SPRY_BLOCK_LARGE)

/* ---- types whose codes select magnitudes from a table; signs are stored separately ------------------------------- */

/* Stores n values, whose magnitudes have `bits` bits each. `signs`: a set bit is a minus. */
static void spread(float *out, float scale, unsigned code, unsigned bits, const uint8_t *levels, unsigned signs, int n)
{
    for (int i = 0; i < n; i++) {
        float size = scale * (float)levels[code >> bits * (unsigned)i & ((1u << bits) - 1)];
        out[i] = signs >> i & 1 ? -size : size;
    }
}

static void eight_iq2(float *out, float scale, unsigned code, unsigned signs)
{
    spread(out, scale, code, 2, spry_levels_iq2, signs, 8);
}

static unsigned word_at(const uint8_t bytes[4])
{
    return bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16 | (unsigned)bytes[3] << 24;
}

/* The scale of part p of 16 values, from its nibble. */
static float nibble_scale(float scale, const uint8_t scales[8], int part)
{
    return scale * (0.5f + (float)(scales[part / 2] >> 4 * (part % 2) & 15)) * 0.25f;
}

static void block_iq2_xxs(float *out, const spry_block_iq2_xxs *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int part = 0; part < 8; part++) {
        const uint8_t *codes = block->parts[part];
        unsigned word = word_at(codes + 4);
        float part_scale = scale * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++, out += 8)
            eight_iq2(out, part_scale, spry_grid_iq2_xxs[codes[k]], spry_even_signs(word >> 7 * k & 127));
    }
}
SPRY_DECODE_BLOCKS(iq2_xxs, SPRY_BLOCK_LARGE)

static void block_iq2_xs(float *out, const spry_block_iq2_xs *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int k = 0; k < 32; k++, out += 8) {
        unsigned pair = block->codes[k][0] | (unsigned)block->codes[k][1] << 8;
        eight_iq2(out, nibble_scale(scale, block->scales, k / 2), spry_grid_iq2_xs[pair & 511],
                  spry_even_signs(pair >> 9));
    }
}
SPRY_DECODE_BLOCKS(iq2_xs, SPRY_BLOCK_LARGE)

static void block_iq2_s(float *out, const spry_block_iq2_s *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int k = 0; k < 32; k++, out += 8) {
        unsigned high = block->high[k / 4] >> 2 * (k % 4) & 3;
        eight_iq2(out, nibble_scale(scale, block->scales, k / 2), spry_grid_iq2_s[block->low[k] | high << 8],
                  block->signs[k]);
    }
}
SPRY_DECODE_BLOCKS(iq2_s, SPRY_BLOCK_LARGE)

static void block_iq3_xxs(float *out, const spry_block_iq3_xxs *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int k = 0; k < 64; k++, out += 4) {
        unsigned word = word_at(block->words[k / 8]), signs = spry_even_signs(word >> 7 * (k % 8 / 2) & 127);
        float part_scale = scale * (0.5f + (float)(word >> 28)) * 0.5f;
        spread(out, part_scale, spry_grid_iq3_xxs[block->codes[k]], 3, spry_levels_iq3_xxs, signs >> 4 * (k % 2), 4);
    }
}
SPRY_DECODE_BLOCKS(iq3_xxs, SPRY_BLOCK_LARGE)

static void block_iq3_s(float *out, const spry_block_iq3_s *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int k = 0; k < 64; k++, out += 4) {
        unsigned high = block->high[k / 8] >> k % 8 & 1, signs = (unsigned)block->signs[k / 2] >> 4 * (k % 2);
        float part_scale = scale * (float)(1 + 2 * (block->scales[k / 16] >> 4 * (k / 8 % 2) & 15));
        spread(out, part_scale, spry_grid_iq3_s[block->low[k] | high << 8], 3, spry_levels_iq3_s, signs, 4);
    }
}
SPRY_DECODE_BLOCKS(iq3_s, SPRY_BLOCK_LARGE)

/* ---- codes of one bit and a half --------------------------------------------------------------------------------- */

/* Eight values of a code. */
static void eight_iq1(float *out, float scale, unsigned code, bool minus)
{
    unsigned quants = spry_grid_iq1[code];
    float shift = minus ? -0.125f : 0.125f;
    for (unsigned i = 0; i < 8; i++)
        out[i] = scale * ((float)(int)(quants >> 2 * i & 3) - 1 + shift);
}

static void block_iq1_s(float *out, const spry_block_iq1_s *block)
{
    float scale = spry_f16_decode(block->scale);
    for (unsigned k = 0; k < 32; k++, out += 8) {
        unsigned word = block->words[k / 4][0] | (unsigned)block->words[k / 4][1] << 8;
        float part_scale = scale * (float)(2 * (word >> 12 & 7) + 1);
        eight_iq1(out, part_scale, block->low[k] | (word >> 3 * (k % 4) & 7) << 8, word >> 15);
    }
}
SPRY_DECODE_BLOCKS(iq1_s, SPRY_BLOCK_LARGE)

static void block_iq1_m(float *out, const spry_block_iq1_m *block)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < 4; i++)
        bits |= (unsigned)(block->scales[i][1] >> 4) << 4 * i;
    float scale = spry_f16_decode((uint16_t)bits);
    for (unsigned k = 0; k < 32; k++, out += 8) {
        unsigned word = block->scales[k / 8][0] | (unsigned)block->scales[k / 8][1] << 8;
        unsigned upper = block->high[k / 2] >> 4 * (k % 2);
        float part_scale = scale * (float)(2 * (word >> 3 * (k % 8 / 2) & 7) + 1);
        eight_iq1(out, part_scale, block->low[k] | (upper & 7) << 8, upper & 8);
    }
}
SPRY_DECODE_BLOCKS(iq1_m, SPRY_BLOCK_LARGE)

/* ---- blocks of other sizes --------------------------------------------------------------------------------------- */

static void block_nvfp4(float *out, const spry_block_nvfp4 *block)
{
    for (int part = 0; part < 4; part++, out += 16) {
        unsigned bits = block->scales[part] & 127;                           /* a scale has no sign */
        float scale = bits == 127 ? 0 : spry_e4m3_decode((uint8_t)bits) / 2; /* the levels are doubled */
        for (int i = 0; i < 8; i++) {
            unsigned both = block->low[8 * part + i];
            out[i] = scale * (float)spry_levels_e2m1[both & 15];
            out[i + 8] = scale * (float)spry_levels_e2m1[both >> 4];
        }
    }
}
SPRY_DECODE_BLOCKS(nvfp4, 64)

static void block_q1_0(float *out, const spry_block_q1_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < 128; i++)
        out[i] = block->bits[i / 8] >> i % 8 & 1 ? scale : -scale;
}
SPRY_DECODE_BLOCKS(q1_0, 128)

static void block_q2_0(float *out, const spry_block_q2_0 *block)
{
    float scale = spry_f16_decode(block->scale);
    for (int i = 0; i < 64; i++)
        out[i] = (float)((block->low[i / 4] >> 2 * (i % 4) & 3) - 1) * scale;
}
SPRY_DECODE_BLOCKS(q2_0, 64)
