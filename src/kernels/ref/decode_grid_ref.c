/* Floats from the IQ2 and IQ3 types: codes of a table give magnitudes, signs are apart. As in decode_ref.c, the order
 * of the float operations is part of each format. */
#include "kernels/grids.h"
#include "kernels/ref/decode_blocks.h"

/* n values of `bits` bits each. `signs`: a set bit is a minus. */
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

/* The nibble of part p of 16 values. */
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
