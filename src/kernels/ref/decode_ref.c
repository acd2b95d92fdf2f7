/* Floats from the plain types and from blocks of 32. The order of the float operations is part of each format: results
 * are the same bits everywhere. */
#include "kernels/ref/decode_blocks.h"

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
