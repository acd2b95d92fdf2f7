/* Floats from blocks of 256, whose parts have their own scales. As in decode_ref.c, the order of the float operations
 * is part of each format. */
#include "kernels/ref/decode_blocks.h"

/* Two-bit layouts: the bytes and shift of part p of 16 values. */
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

/* The scales and minima of the eight parts in q4_k and q5_k, times those of the block. */
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

/* Digit k of n bytes, each a fraction of 256 in base three: multiplying by 3^k moves the digit to the front. */
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
