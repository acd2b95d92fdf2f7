/* Repacks weights: rows of blocks as in a file become the tiles of weight_tiles.cuh. Grid: (units, tiles), one warp,
 * which writes one unit of one tile. Runs once for each matrix at load time. Blocks of a file are only 2-byte
 * aligned, so they are read in bytes and 16-bit words. */
#include "device/cuda/kernels/weight_tiles.cuh"
#include "kernels/blocks.h"

#include "kernels/grids.c"

/* ---- quants and scales of a file's blocks ------------------------------------------------------------------------ */

SPRY_DEVICE uint32_t nibble_of_32(const uint8_t low[16], uint32_t i)
{
    return low[i % 16] >> i / 16 * 4 & 15;
}

SPRY_DEVICE uint32_t bit_of_32(const uint8_t high[4], uint32_t i)
{
    return (uint32_t)high[i / 8] >> i % 8 & 1;
}

template <class B> SPRY_DEVICE const B *block_at(const unsigned char *row, uint32_t input, uint32_t values)
{
    return (const B *)(row + (uint64_t)(input / values) * sizeof(B));
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q4_0)
{
    return nibble_of_32(block_at<spry_block_q4_0>(row, i, 32)->low, i % 32);
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q4_1)
{
    return nibble_of_32(block_at<spry_block_q4_1>(row, i, 32)->low, i % 32);
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q5_0)
{
    const spry_block_q5_0 *block = block_at<spry_block_q5_0>(row, i, 32);
    return nibble_of_32(block->low, i % 32) | bit_of_32(block->high, i % 32) << 4;
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q5_1)
{
    const spry_block_q5_1 *block = block_at<spry_block_q5_1>(row, i, 32);
    return nibble_of_32(block->low, i % 32) | bit_of_32(block->high, i % 32) << 4;
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q8_0)
{
    return (uint8_t)block_at<spry_block_q8_0>(row, i, 32)->quants[i % 32];
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_mxfp4)
{
    return nibble_of_32(block_at<spry_block_mxfp4>(row, i, 32)->low, i % 32);
}

/* Chunks of 64: byte i of 32 holds the values i and i + 32. */
SPRY_DEVICE uint32_t nibble_of_64(const uint8_t low[128], uint32_t i)
{
    return low[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q4_k)
{
    return nibble_of_64(block_at<spry_block_q4_k>(row, i, 256)->low, i % 256);
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q5_k)
{
    const spry_block_q5_k *block = block_at<spry_block_q5_k>(row, i, 256);
    return nibble_of_64(block->low, i % 256) | ((uint32_t)block->high[i % 32] >> i % 256 / 32 & 1) << 4;
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q6_k)
{
    const spry_block_q6_k *block = block_at<spry_block_q6_k>(row, i, 256);
    uint32_t chunk = i % 256 / 128, at = i % 128;
    uint32_t low = block->low[chunk * 64 + at % 64] >> at / 64 * 4 & 15;
    return low | ((uint32_t)block->high[chunk * 32 + at % 32] >> at / 32 * 2 & 3) << 4;
}

/* Two bits each: byte i of each 32 holds the values i, i + 32, i + 64, i + 96 of a chunk of 128. */
SPRY_DEVICE uint32_t pair_of_128(const uint8_t low[64], uint32_t i)
{
    return low[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, type_q2_k)
{
    return pair_of_128(block_at<spry_block_q2_k>(row, i, 256)->low, i % 256);
}

/* The scale plane's bytes of one group and, if there is a super plane, its bytes. */
template <class B> SPRY_DEVICE void file_scale_only(uint8_t *scale, const unsigned char *row, uint32_t input)
{
    const uint8_t *from = (const uint8_t *)&block_at<B>(row, input, 32)->scale;
    scale[input % 64 / 32 * 2] = from[0];
    scale[input % 64 / 32 * 2 + 1] = from[1];
}

template <class B> SPRY_DEVICE void file_scale_min(uint8_t *scale, const unsigned char *row, uint32_t input)
{
    const uint8_t *from = (const uint8_t *)&block_at<B>(row, input, 32)->scale;
    for (int i = 0; i < 4; i++)
        scale[input % 64 / 32 * 4 + i] = from[i];
}

/* Six-bit scales and minima of eight parts; see spry_block_q4_k. */
template <class B>
SPRY_DEVICE void file_scale_k(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t input)
{
    const B *block = block_at<B>(row, input, 256);
    const uint8_t *packed = block->scales;
    uint32_t part = input % 256 / 32, at = input % 64 / 32 * 2, low = part % 4;
    scale[at] = part < 4 ? packed[low] & 63 : (packed[low + 8] & 15) | packed[low] >> 6 << 4;
    scale[at + 1] = part < 4 ? packed[low + 4] & 63 : packed[low + 8] >> 4 | packed[low + 4] >> 6 << 4;
    const uint8_t *from = (const uint8_t *)&block->scale;
    for (int i = 0; i < 4; i++)
        super[i] = from[i];
}

#define FILE_SCALE(type, call)                                                                                         \
    SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t input, type)        \
    {                                                                                                                  \
        (void)super;                                                                                                   \
        call;                                                                                                          \
    }
FILE_SCALE(type_q4_0, file_scale_only<spry_block_q4_0>(scale, row, input))
FILE_SCALE(type_q4_1, file_scale_min<spry_block_q4_1>(scale, row, input))
FILE_SCALE(type_q5_0, file_scale_only<spry_block_q5_0>(scale, row, input))
FILE_SCALE(type_q5_1, file_scale_min<spry_block_q5_1>(scale, row, input))
FILE_SCALE(type_q8_0, file_scale_only<spry_block_q8_0>(scale, row, input))
FILE_SCALE(type_q4_k, file_scale_k<spry_block_q4_k>(scale, super, row, input))
FILE_SCALE(type_q5_k, file_scale_k<spry_block_q5_k>(scale, super, row, input))
FILE_SCALE(type_mxfp4, scale[input % 64 / 32] = block_at<spry_block_mxfp4>(row, input, 32)->exponent)

SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t input, type_q2_k)
{
    const spry_block_q2_k *block = block_at<spry_block_q2_k>(row, input, 256);
    uint8_t both = block->scales[input % 256 / 16];
    scale[input % 64 / 16 * 2] = both & 15;
    scale[input % 64 / 16 * 2 + 1] = both >> 4;
    const uint8_t *from = (const uint8_t *)&block->scale;
    for (int i = 0; i < 4; i++)
        super[i] = from[i];
}

SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t input, type_q6_k)
{
    const spry_block_q6_k *block = block_at<spry_block_q6_k>(row, input, 256);
    scale[input % 64 / 16] = (uint8_t)block->scales[input % 256 / 16];
    const uint8_t *from = (const uint8_t *)&block->scale;
    super[0] = from[0];
    super[1] = from[1];
}

/* ---- codes, levels and scales of a file's blocks ----------------------------------------------------------------- */

/* A type of SPRY_LEVEL_TYPES has three functions: file_quant gives the code of a value, file_level the level of a code,
 * file_scale the scales as for quants. FACTOR is what multiplies halves of level_k, as a half. */
enum { HALF_1 = 0x3c00, HALF_QUARTER = 0x3400, HALF_EIGHTH = 0x3000 };
template <class T> struct factor_of {
    enum { FACTOR = HALF_1 };
};
#define LEVEL_TYPE(name, dtype, form)                                                                                  \
    struct file_##name : type_##form {                                                                                 \
    };
SPRY_LEVEL_TYPES(LEVEL_TYPE)

#define LEVELS(T, of_code)                                                                                             \
    SPRY_DEVICE int file_level(uint32_t code, T)                                                                       \
    {                                                                                                                  \
        return of_code;                                                                                                \
    }
#define SIGNED_LEVELS(T, size) LEVELS(T, code < 8 ? (int)(size) : -(int)(size))
LEVELS(file_q3_k, (int)code - 4)
LEVELS(file_iq4_xs, spry_levels_iq4[code])
LEVELS(file_iq4_nl, spry_levels_iq4[code])
LEVELS(file_nvfp4, spry_levels_e2m1[code])
LEVELS(file_tq1_0, (int)code - 1)
LEVELS(file_tq2_0, (int)code - 1)
LEVELS(file_q2_0, (int)code - 1)
LEVELS(file_q1_0, (int)code * 2 - 1)
SIGNED_LEVELS(file_iq3_s, spry_levels_iq3_s[code % 8])
SIGNED_LEVELS(file_iq3_xxs, spry_levels_iq3_xxs[code % 8])
SIGNED_LEVELS(file_iq2_s, spry_levels_iq2[code % 4])
SIGNED_LEVELS(file_iq2_xs, spry_levels_iq2[code % 4])
SIGNED_LEVELS(file_iq2_xxs, spry_levels_iq2[code % 4])
LEVELS(file_iq1_s, (int)(code % 4) * 8 - (code < 4 ? 7 : 9)) /* eighths */
LEVELS(file_iq1_m, (int)(code % 4) * 8 - (code < 4 ? 7 : 9))

/* The half of 256 values. */
SPRY_DEVICE void file_super(uint8_t *super, uint32_t half)
{
    super[0] = (uint8_t)half;
    super[1] = (uint8_t)(half >> 8);
}

SPRY_DEVICE uint32_t word_of(const uint8_t bytes[4])
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

SPRY_DEVICE uint32_t nibble_at(const uint8_t *bytes, uint32_t i)
{
    return bytes[i / 2] >> i % 2 * 4 & 15;
}

/* A code of value i in its group of 8, of which `seven` bits are signs. */
SPRY_DEVICE uint32_t with_sign(uint32_t size, uint32_t signs, uint32_t i)
{
    return size | (signs >> i % 8 & 1) << 3;
}

/* FILE_BLOCK begins a function that reads the block of a value; `i` becomes the number of the value in it. */
#define FILE_CODE(T, values)                                                                                           \
    SPRY_DEVICE uint32_t code_in(const spry_block_##T *block, uint32_t i);                                             \
    SPRY_DEVICE uint32_t file_quant(const unsigned char *row, uint32_t i, file_##T)                                    \
    {                                                                                                                  \
        return code_in(block_at<spry_block_##T>(row, i, values), i % values);                                          \
    }                                                                                                                  \
    SPRY_DEVICE uint32_t code_in(const spry_block_##T *block, uint32_t i)

FILE_CODE(q3_k, 256)
{
    return pair_of_128(block->low, i) | (uint32_t)(block->high[i % 32] >> i / 32 & 1) << 2;
}

FILE_CODE(iq4_xs, 256)
{
    return nibble_of_32(block->low + i / 32 * 16, i % 32);
}

FILE_CODE(iq3_s, 256)
{
    uint32_t k = i / 4, high = block->high[k / 8] >> k % 8 & 1;
    return with_sign(spry_grid_iq3_s[block->low[k] | high << 8] >> i % 4 * 3 & 7, block->signs[i / 8], i);
}

FILE_CODE(iq3_xxs, 256)
{
    uint32_t signs = spry_even_signs(word_of(block->words[i / 32]) >> i % 32 / 8 * 7 & 127);
    return with_sign(spry_grid_iq3_xxs[block->codes[i / 4]] >> i % 4 * 3 & 7, signs, i);
}

FILE_CODE(iq2_s, 256)
{
    uint32_t k = i / 8, high = block->high[k / 4] >> k % 4 * 2 & 3;
    return with_sign(spry_grid_iq2_s[block->low[k] | high << 8] >> i % 8 * 2 & 3, block->signs[k], i);
}

FILE_CODE(iq2_xs, 256)
{
    const uint8_t *both = block->codes[i / 8];
    uint32_t code = both[0] | (uint32_t)both[1] << 8;
    return with_sign(spry_grid_iq2_xs[code & 511] >> i % 8 * 2 & 3, spry_even_signs(code >> 9), i);
}

FILE_CODE(iq2_xxs, 256)
{
    const uint8_t *part = block->parts[i / 32];
    uint32_t k = i % 32 / 8;
    return with_sign(spry_grid_iq2_xxs[part[k]] >> i % 8 * 2 & 3, spry_even_signs(word_of(part + 4) >> k * 7 & 127), i);
}

/* Codes of 1.5 bits: -1, 0, 1 plus 1, and 4 where 1/8 is subtracted. */
FILE_CODE(iq1_m, 256)
{
    uint32_t upper = nibble_at(block->high, i / 8);
    uint32_t eight = spry_grid_iq1[block->low[i / 8] | (upper & 7) << 8];
    return (eight >> i % 8 * 2 & 3) | (upper & 8) >> 1;
}

FILE_CODE(iq1_s, 256)
{
    uint32_t k = i / 8, word = block->words[i / 32][0] | (uint32_t)block->words[i / 32][1] << 8;
    uint32_t eight = spry_grid_iq1[block->low[k] | (word >> k % 4 * 3 & 7) << 8];
    return (eight >> i % 8 * 2 & 3) | word >> 15 << 2;
}

FILE_CODE(tq2_0, 256)
{
    return pair_of_128(block->low, i);
}

FILE_CODE(tq1_0, 256)
{
    uint32_t byte = i < 160 ? block->five[i % 32] : i < 240 ? block->five[32 + i % 16] : block->last[i % 4];
    uint32_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    for (; digit; digit--)
        byte = byte * 3 & 255;
    return byte * 3 >> 8;
}

FILE_CODE(iq4_nl, 32)
{
    return nibble_of_32(block->low, i);
}

FILE_CODE(nvfp4, 64)
{
    return block->low[i / 16 * 8 + i % 8] >> i % 16 / 8 * 4 & 15;
}

FILE_CODE(q2_0, 64)
{
    return block->low[i / 4] >> i % 4 * 2 & 3;
}

FILE_CODE(q1_0, 128)
{
    return block->bits[i / 8] >> i % 8 & 1;
}

/* Scales of level_k: the integer of each 16 values, and the half of the block. */
#define FILE_SCALE_K(T)                                                                                                \
    SPRY_DEVICE int scale_in(const spry_block_##T *block, uint32_t part);                                              \
    SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t i, file_##T)        \
    {                                                                                                                  \
        const spry_block_##T *block = block_at<spry_block_##T>(row, i, 256);                                           \
        scale[i % 64 / 16] = (uint8_t)scale_in(block, i % 256 / 16);                                                   \
        file_super(super, half_of(block));                                                                             \
    }                                                                                                                  \
    SPRY_DEVICE int scale_in(const spry_block_##T *block, uint32_t part)

template <class B> SPRY_DEVICE uint32_t half_of(const B *block)
{
    return block->scale;
}

SPRY_DEVICE uint32_t half_of(const spry_block_iq1_m *block)
{
    uint32_t half = 0;
    for (int i = 0; i < 4; i++)
        half |= (uint32_t)(block->scales[i][1] >> 4) << 4 * i;
    return half;
}

FILE_SCALE_K(q3_k)
{
    int low = block->scales[part % 8] >> part / 8 * 4 & 15, high = block->scales[8 + part % 4] >> part / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

FILE_SCALE_K(iq4_xs)
{
    int low = (int)nibble_at(block->scales_low, part / 2), high = block->scales_high[part / 8] >> part / 2 % 4 * 2 & 3;
    return (low | high << 4) - 32;
}

FILE_SCALE_K(iq3_s)
{
    return 1 + 2 * (int)nibble_at(block->scales, part / 2);
}

FILE_SCALE_K(iq3_xxs)
{
    return 1 + 2 * (int)(word_of(block->words[part / 2]) >> 28);
}

FILE_SCALE_K(iq2_s)
{
    return 1 + 2 * (int)nibble_at(block->scales, part);
}

FILE_SCALE_K(iq2_xs)
{
    return 1 + 2 * (int)nibble_at(block->scales, part);
}

FILE_SCALE_K(iq2_xxs)
{
    return 1 + 2 * (int)(word_of(block->parts[part / 2] + 4) >> 28);
}

FILE_SCALE_K(iq1_m)
{
    uint32_t word = block->scales[part / 4][0] | (uint32_t)block->scales[part / 4][1] << 8;
    return 1 + 2 * (int)(word >> part % 4 * 3 & 7);
}

FILE_SCALE_K(iq1_s)
{
    return 1 + 2 * (block->words[part / 2][1] >> 4 & 7);
}

FILE_SCALE_K(tq2_0)
{
    (void)block;
    (void)part;
    return 1;
}

FILE_SCALE_K(tq1_0)
{
    (void)block;
    (void)part;
    return 1;
}

#define FACTOR(T, half)                                                                                                \
    template <> struct factor_of<file_##T> {                                                                           \
        enum { FACTOR = half };                                                                                        \
    };
FACTOR(iq3_xxs, HALF_QUARTER)
FACTOR(iq2_s, HALF_EIGHTH)
FACTOR(iq2_xs, HALF_EIGHTH)
FACTOR(iq2_xxs, HALF_EIGHTH)
FACTOR(iq1_m, HALF_EIGHTH)
FACTOR(iq1_s, HALF_EIGHTH)

/* Scales of level_h: a half for each 16 values. */
#define FILE_SCALE_H(T, values)                                                                                        \
    SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t i, file_##T)        \
    {                                                                                                                  \
        (void)super;                                                                                                   \
        file_super(scale + i % 64 / 16 * 2, half_of(block_at<spry_block_##T>(row, i, values), i % values / 16));       \
    }

template <class B> SPRY_DEVICE uint32_t half_of(const B *block, uint32_t)
{
    return block->scale;
}

/* Half of an 8-bit float without a sign, because the levels are doubled; 127 is 0. */
SPRY_DEVICE uint32_t half_of(const spry_block_nvfp4 *block, uint32_t part)
{
    uint32_t bits = block->scales[part] & 127;
    if (bits == 127)
        return 0;
    return bits < 8 ? half_of_float((float)bits / 1024) : bits * 128 + (7 << 10);
}

FILE_SCALE_H(iq4_nl, 32)
FILE_SCALE_H(nvfp4, 64)
FILE_SCALE_H(q2_0, 64)
FILE_SCALE_H(q1_0, 128)

/* ---- one unit ---------------------------------------------------------------------------------------------------- */

/* The row of an output; NULL past the last. */
SPRY_DEVICE const unsigned char *file_row(const spry_repack_args &a, uint32_t tile, uint32_t output)
{
    if (tile * SPRY_TILE_ROWS + output >= a.to.n_out)
        return (const unsigned char *)0;
    return a.rows + (uint64_t)((tile - a.first_tile) * SPRY_TILE_ROWS + output) * a.row_bytes;
}

template <class Q>
SPRY_DEVICE uint32_t quant_or_zero(const spry_repack_args &a, const unsigned char *row, uint32_t input)
{
    return row && input < a.to.n_in ? file_quant(row, input, Q()) : (uint32_t)0;
}

/* Packs a quant of a lane, with all its bits: half `upper` of a pair. */
template <class Q> SPRY_DEVICE void repack_quant(unit_words<Q> &u, uint32_t quant, int step, int pair, int upper)
{
    if (Q::BITS == 8) {
        u.words[step * 2 + pair % 2] |= quant << (pair / 2 * 16 + upper * 8);
        return;
    }
    u.words[step] |= (quant & 15) << (upper * 16 + pair * 4);
    if (Q::BITS == 5)
        u.high[0] |= quant >> 4 << (upper * 16 + step * 4 + pair);
    if (Q::BITS == 6)
        u.high[Q::HIGH > 1 ? step / 2 : 0] |= quant >> 4 << (upper * 16 + step % 2 * 8 + pair * 2);
}

template <class Q>
SPRY_DEVICE void repack_scales(const spry_repack_args &a, uint32_t tile, uint32_t unit, uint32_t output)
{
    uint8_t scale[8] = {0}, super[4] = {0};
    const unsigned char *row = file_row(a, tile, output);
    for (uint32_t input = unit * 64; row && input < unit * 64 + 64 && input < a.to.n_in; input += Q::GROUP)
        file_scale(scale, super, row, input, Q());
    uint8_t *to =
        (uint8_t *)tile_plane(a.to, a.to.scale, tile_unit(a.to, tile, unit) * SPRY_TILE_ROWS + output, Q::SCALE);
    for (int i = 0; i < Q::SCALE; i++)
        to[i] = scale[i];
    if (!Q::SUPER || unit % 4)
        return;
    to = (uint8_t *)super_plane<Q>(a.to, tile, unit);
    for (int i = 0; i < (Q::LEVELS ? 2 : 4); i++)
        to[output * (Q::LEVELS ? 2 : 4) + (uint32_t)i] = super[i];
    if constexpr (Q::LEVELS) { /* each of the 16 lanes writes one of the levels */
        to[LEVELS_AT + output] = (uint8_t)file_level(output, Q());
        *(uint32_t *)(to + FACTOR_AT) = factor_of<Q>::FACTOR;
    }
}

template <class Q> SPRY_DEVICE void repack_quants(const spry_repack_args &a)
{
    uint32_t unit = blockIdx.x, tile = a.first_tile + blockIdx.y, lane = threadIdx.x;
    unit_words<Q> u = {};
    for (int i = 0; i < 32; i++) {
        int step = i / 8, pair = i / 2 % 4, upper = i % 2;
        uint32_t output = lane / 4 + (uint32_t)(pair % 2 * 8);
        uint32_t input = unit * 64 + (uint32_t)(step * 16 + pair / 2 * 8 + upper) + lane % 4 * 2;
        repack_quant(u, quant_or_zero<Q>(a, file_row(a, tile, output), input), step, pair, upper);
    }
    uint64_t number = tile_unit(a.to, tile, unit);
    uint32_t *to = (uint32_t *)tile_plane(a.to, 0, number, Q::LANE * WARP) + lane * (Q::LANE / 4);
    for (int i = 0; i < Q::LANE / 4; i++)
        to[i] = u.words[i];
    to = (uint32_t *)tile_plane(a.to, a.to.high, number, Q::HIGH * 4 * WARP) + lane * Q::HIGH;
    for (int i = 0; i < Q::HIGH; i++)
        to[i] = u.high[i];
    if (lane < SPRY_TILE_ROWS)
        repack_scales<Q>(a, tile, unit, lane);
}

/* Floats are moved unchanged; T has their size. */
template <class T> SPRY_DEVICE void repack_floats(const spry_repack_args &a)
{
    uint32_t unit = blockIdx.x, tile = a.first_tile + blockIdx.y;
    T *to = (T *)tile_plane(a.to, 0, tile_unit(a.to, tile, unit), sizeof(T) * SPRY_TILE_ROWS * SPRY_TILE_UNIT);
    for (uint32_t i = threadIdx.x; i < SPRY_TILE_ROWS * SPRY_TILE_UNIT; i += WARP) {
        uint32_t output = i / 64, input = unit * 64 + i % 64;
        const unsigned char *row = file_row(a, tile, output);
        weight_coord p = weight_coord_of(output, input);
        int at = sizeof(T) == 2 ? p.lane * 8 + p.pair * 2 + p.upper
                                : p.pair / 2 * WARP * 4 + p.lane * 4 + p.pair % 2 * 2 + p.upper;
        to[p.step * 256 + at] = row && input < a.to.n_in ? ((const T *)row)[input] : (T)0;
    }
}

#define REPACK(name, call)                                                                                             \
    SPRY_KERNEL(spry_repack_##name, spry_repack_args)                                                                  \
    {                                                                                                                  \
        call(a);                                                                                                       \
    }
#define REPACK_QUANTS(name, ...) REPACK(name, repack_quants<type_##name>)
#define REPACK_LEVELS(name, ...) REPACK(name, repack_quants<file_##name>)
SPRY_QUANT_BLOCKS(REPACK_QUANTS)
SPRY_LEVEL_TYPES(REPACK_LEVELS)
REPACK(f16, repack_floats<uint16_t>)
REPACK(bf16, repack_floats<uint16_t>)
REPACK(f32, repack_floats<uint32_t>)
