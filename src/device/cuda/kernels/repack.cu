/* Repacks weights: rows of blocks as in a file become the tiles of weight_tiles.cuh. Grid: (units, tiles), one warp,
 * which writes one unit of one tile. Runs once for each matrix at load time. Blocks of a file are only 2-byte
 * aligned, so they are read in bytes and 16-bit words. */
#include "device/cuda/kernels/weight_tiles.cuh"
#include "kernels/blocks.h"

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

SPRY_DEVICE void file_scale(uint8_t *scale, uint8_t *super, const unsigned char *row, uint32_t input, type_q6_k)
{
    const spry_block_q6_k *block = block_at<spry_block_q6_k>(row, input, 256);
    scale[input % 64 / 16] = (uint8_t)block->scales[input % 256 / 16];
    const uint8_t *from = (const uint8_t *)&block->scale;
    super[0] = from[0];
    super[1] = from[1];
}

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
    to = (uint8_t *)tile_plane(a.to, a.to.super, tile_super(a.to, tile, unit) * SPRY_TILE_ROWS + output, 4);
    for (int i = 0; i < 4; i++)
        to[i] = super[i];
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
SPRY_QUANT_TYPES(REPACK_QUANTS)
REPACK(f16, repack_floats<uint16_t>)
REPACK(bf16, repack_floats<uint16_t>)
REPACK(f32, repack_floats<uint32_t>)
