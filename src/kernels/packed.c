/* Packs one group of rows at a time, and unpacks one row. `put_` functions write packed fields, and `take_` functions
 * read them back in the same order. A quad is four adjacent bytes of every row of the group. */
#include "kernels/packed.h"

#include <string.h>

#include "base/compiler.h"
#include "kernels/half.h"
#include "kernels/turn_quads.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Where to write the next field of `n` adjacent rows, one or four of them. A field of a block is stored for all `rows`
 * rows of the group before the next field begins. Functions that use this are inlined, so that n is a constant. */
typedef struct part {
    unsigned char *out;
    size_t rows, row, n;
} part;

/* Where a field begins in the first row of the file, and the distance from one row to the next. */
typedef struct source {
    const unsigned char *at;
    size_t stride;
} source;

SPRY_INLINE source skip(source s, size_t bytes)
{
    return (source){s.at + bytes, s.stride};
}

SPRY_INLINE void put(part *p, source s, size_t size)
{
    for (size_t i = 0; i < p->n; i++)
        memcpy(p->out + (p->row + i) * size, s.at + i * s.stride, size);
    p->out += p->rows * size;
}

SPRY_INLINE void put_quads(part *p, source s, size_t n_quads)
{
    if (p->n == 4) {
        for (size_t q = 0; q < n_quads; q += 4, p->out += 16 * p->rows)
            spry_turn_quads(p->out + 4 * p->row, 4 * p->rows, s.at + 4 * q, s.stride);
        return;
    }
    for (size_t q = 0; q < n_quads; q++)
        put(p, skip(s, 4 * q), 4);
}

/* Writes eight quads of each of n sources, alternating between the sources. */
SPRY_INLINE void put_turns(part *p, const source *s, size_t n)
{
    size_t quad = 4 * p->rows, step = n * quad;
    for (size_t k = 0; k < n; k++)
        for (size_t q = 0; q < 8; q += 4) {
            unsigned char *out = p->out + q * step + k * quad + 4 * p->row;
            if (p->n == 4)
                spry_turn_quads(out, step, s[k].at + 4 * q, s[k].stride);
            for (size_t i = 0; p->n < 4 && i < 4 * p->n; i++)
                memcpy(out + i % 4 * step + i / 4 * 4, s[k].at + i / 4 * s[k].stride + 4 * (q + i % 4), 4);
        }
    p->out += 8 * step;
}

/* Fifth bits: 8 masks of 4 bits for each row; two rows share a byte. */
SPRY_INLINE void put_masks(part *p, source s)
{
    for (size_t q = 0; q < 8; q++) {
        for (size_t i = 0; i < p->n; i++) {
            size_t row = p->row + i;
            unsigned bits = (unsigned)s.at[i * s.stride + q / 2] >> (q % 2 * 4) & 15u;
            p->out[row / 2] = (unsigned char)(p->out[row / 2] | bits << (row % 2 * 4));
        }
        p->out += p->rows / 2;
    }
}

SPRY_INLINE void put_small(part *p, spry_dtype type, source s)
{
    bool min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    size_t scale = type == SPRY_MXFP4 ? 1 : 2;
    put(p, s, scale);
    s = skip(s, scale);
    if (min) {
        put(p, s, 2);
        s = skip(s, 2);
    }
    if (fifth) {
        put_masks(p, s);
        s = skip(s, 4);
    }
    put_quads(p, s, 4);
}

SPRY_INLINE void put_q8_0(part *p, source s)
{
    uint8_t shifted[4][32];
    for (size_t row = 0; row < p->n; row++)
        for (size_t i = 0; i < 32; i++)
            shifted[row][i] = s.at[row * s.stride + 2 + i] ^ 0x80;
    put(p, s, 2);
    put_quads(p, (source){shifted[0], 32}, 8);
}

/* Unpacks the eight 6-bit scales and minima of Q4_K and Q5_K. The first four scales are the low 6 bits of bytes 0-3,
 * the first four minima those of bytes 4-7. Of the others, 4 bits are in bytes 8-11 and the upper 2 bits above the
 * first ones. */
static void unpack_scales(uint8_t scales[8], uint8_t minima[8], const uint8_t packed[12])
{
    for (size_t i = 0; i < 4; i++) {
        scales[i] = packed[i] & 63;
        minima[i] = packed[i + 4] & 63;
        scales[i + 4] = (uint8_t)((packed[i + 8] & 15) | packed[i] >> 6 << 4);
        minima[i + 4] = (uint8_t)(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
    }
}

/* Writes bytes that were computed from the file's bytes. */
SPRY_INLINE void put_made(part *p, const void *made, size_t stride, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        put(p, (source){(const unsigned char *)made + i, stride}, 1);
}

SPRY_INLINE void put_q45_k(part *p, spry_dtype type, source s)
{
    uint8_t scales[4][16]; /* of each row: 8 scales, then 8 minima */
    for (size_t row = 0; row < p->n; row++)
        unpack_scales(scales[row], scales[row] + 8, s.at + row * s.stride + 4);
    put(p, s, 2);
    put(p, skip(s, 2), 2);
    put_made(p, scales, 16, 16);
    source levels[5] = {skip(s, 16), skip(s, 48), skip(s, 80), skip(s, 112), skip(s, 144)};
    if (p->rows == SPRY_PACK_MAX_ROWS)
        put_turns(p, levels, type == SPRY_Q5_K ? 5 : 4);
    else
        put_quads(p, levels[0], 8 * (type == SPRY_Q5_K ? 5 : 4));
}

SPRY_INLINE void put_q6_k(part *p, source s)
{
    put(p, skip(s, 208), 2);
    put_made(p, s.at + 192, s.stride, 16);
    for (size_t half = 0; half < 2; half++)
        put_turns(p, (source[3]){skip(s, 128 + 32 * half), skip(s, 64 * half), skip(s, 64 * half + 32)}, 3);
}

/* Level i of block s of Q3_K in the file: two bits in `low`, and the third one in `high`. */
SPRY_INLINE unsigned level_q3(const uint8_t *block, size_t s, size_t i)
{
    unsigned high = block[i], low = block[32 + s / 4 * 32 + i];
    return (low >> s % 4 * 2 & 3u) | (high >> s & 1u) << 2;
}

/* Packs eight levels of three bits into three bytes. */
SPRY_INLINE void levels_to_bits(uint8_t out[3][32], const uint8_t *block)
{
    for (size_t i = 0; i < 32; i++) {
        unsigned six = level_q3(block, 6, i), seven = level_q3(block, 7, i);
        out[0][i] = (uint8_t)(level_q3(block, 0, i) | level_q3(block, 1, i) << 3 | six >> 1 << 6);
        out[1][i] = (uint8_t)(level_q3(block, 2, i) | level_q3(block, 3, i) << 3 | seven >> 1 << 6);
        out[2][i] = (uint8_t)(level_q3(block, 4, i) | level_q3(block, 5, i) << 3 | (six & 1u) << 6 | seven << 7);
    }
}

/* Scale k of Q3_K: a nibble in byte k % 8, the upper two bits in byte 8 + k % 4. */
SPRY_INLINE void put_q3_k(part *p, source s)
{
    int8_t made[4][16];
    uint8_t levels[4][3][32];
    for (size_t row = 0; row < p->n; row++) {
        const uint8_t *block = s.at + row * s.stride, *scales = block + 96;
        for (size_t k = 0; k < 16; k++)
            made[row][k] =
                (int8_t)(((scales[k % 8] >> k / 8 * 4 & 15) | (scales[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32);
        levels_to_bits(levels[row], block);
    }
    put(p, skip(s, 108), 2);
    put_made(p, made, 16, 16);
    source turns[3] = {{levels[0][0], 96}, {levels[0][1], 96}, {levels[0][2], 96}};
    put_turns(p, turns, 3);
}

/* Swaps the middle bytes of each quad, which holds the scales of two blocks: halves of a block become adjacent, or the
 * reverse. */
SPRY_INLINE void swap_middle(uint8_t out[16], const uint8_t in[16])
{
    static const uint8_t from[4] = {0, 2, 1, 3};
    for (size_t i = 0; i < 16; i++)
        out[i] = in[i / 4 * 4 + from[i % 4]];
}

SPRY_INLINE void put_q2_k(part *p, source s)
{
    uint8_t scales[4][16];
    for (size_t row = 0; row < p->n; row++)
        swap_middle(scales[row], s.at + row * s.stride);
    put(p, skip(s, 80), 2);
    put(p, skip(s, 82), 2);
    if (p->rows == SPRY_PACK_MAX_ROWS)
        put_quads(p, (source){scales[0], 16}, 4);
    else
        put_made(p, s.at, s.stride, 16);
    put_quads(p, skip(s, 16), 16);
}

SPRY_INLINE void put_iq4_xs(part *p, source s)
{
    int8_t made[4][8];
    for (size_t row = 0; row < p->n; row++) {
        const uint8_t *high = s.at + row * s.stride + 2, *scales = high + 2;
        for (size_t k = 0; k < 8; k++)
            made[row][k] = (int8_t)(((scales[k / 2] >> k % 2 * 4 & 15) | (high[k / 4] >> k % 4 * 2 & 3) << 4) - 32);
    }
    put(p, s, 2);
    put_made(p, made, 8, 8);
    put_quads(p, skip(s, 8), 32);
}

/* Where value i of TQ1_0 is stored: index of the byte, and the number of digits before it in that byte. */
static size_t ternary_place(size_t *digit, size_t i)
{
    size_t begin = i < 160 ? 0 : i < 240 ? 160 : 240, n = i < 160 ? 32 : i < 240 ? 16 : 4;
    *digit = (i - begin) / n;
    return begin / 5 + (i - begin) % n;
}

static const uint8_t powers_of_three[5] = {1, 3, 9, 27, 81};

/* Where value i of TQ2_0 is stored, two bits per value: index of the byte, and shift. */
static size_t two_bit_place(size_t *shift, size_t i)
{
    *shift = i % 128 / 32 * 2;
    return i / 128 * 32 + i % 32;
}

static void digits_to_bits(uint8_t low[64], const uint8_t *block)
{
    memset(low, 0, 64);
    for (size_t i = 0, digit, shift; i < 256; i++) {
        uint8_t fraction = (uint8_t)(block[ternary_place(&digit, i)] * powers_of_three[digit]);
        size_t at = two_bit_place(&shift, i);
        low[at] = (uint8_t)(low[at] | (fraction * 3 >> 8) << shift);
    }
}

SPRY_INLINE void put_tq1_0(part *p, source s)
{
    uint8_t low[4][64];
    for (size_t row = 0; row < p->n; row++)
        digits_to_bits(low[row], s.at + row * s.stride);
    put(p, skip(s, 52), 2);
    put_quads(p, (source){low[0], 64}, 16);
}

SPRY_INLINE void put_tq2_0(part *p, source s)
{
    put(p, skip(s, 64), 2);
    put_quads(p, s, 16);
}

/* codes: the file's bytes in another order; the same functions pack and unpack */

typedef struct moved {
    uint8_t *packed, *file;
    bool back; /* true: from packed to file */
} moved;

/* Moves n packed bytes, which are every step-th byte of the file from `at` on. */
SPRY_INLINE void move_bytes(moved *m, size_t at, size_t n, size_t step)
{
    for (size_t i = 0; i < n; i++)
        if (m->back)
            m->file[at + i * step] = m->packed[i];
        else
            m->packed[i] = m->file[at + i * step];
    m->packed += n;
}

/* Moves all bytes of a block after its scale. */
SPRY_INLINE void move_codes(moved m, spry_dtype type)
{
    if (type == SPRY_IQ2_XS || type == SPRY_IQ2_S)
        move_bytes(&m, type == SPRY_IQ2_XS ? 66 : 74, 8, 1);
    if (type == SPRY_IQ3_S)
        move_bytes(&m, 106, 4, 1);
    if (type == SPRY_IQ2_S || type == SPRY_IQ3_S)
        move_bytes(&m, 66, 8, 1);
    for (size_t eighth = 0; eighth < 8; eighth++) {
        size_t step = type == SPRY_IQ2_XXS || type == SPRY_IQ2_S ? 1 : 2, n = type == SPRY_IQ2_S ? 4 : 8;
        move_bytes(&m, 2 + n * eighth, 4, step);
        if (type != SPRY_IQ2_S)
            move_bytes(&m, 2 + n * eighth + (step == 1 ? 4 : 1), 4, step);
        if (type != SPRY_IQ2_XXS && type != SPRY_IQ2_XS)
            move_bytes(&m, (type == SPRY_IQ2_S ? 34 : type == SPRY_IQ3_XXS ? 66 : 74) + 4 * eighth, 4, 1);
    }
}

SPRY_INLINE void put_codes(part *p, spry_dtype type, source s)
{
    enum { MOST = 112 };
    uint8_t made[4][MOST], block[MOST];
    size_t bytes = spry_dtype_bytes(type), n_quads = (bytes - 2) / 4, turned = n_quads / 4 * 4;
    for (size_t row = 0; row < p->n; row++) {
        memcpy(block, s.at + row * s.stride, bytes);
        move_codes((moved){made[row], block, false}, type);
    }
    put(p, s, 2);
    put_quads(p, (source){made[0], MOST}, turned);
    for (size_t q = turned; q < n_quads; q++)
        put(p, (source){made[0] + 4 * q, MOST}, 4);
}

SPRY_INLINE void put_block(part *p, spry_dtype type, source s)
{
    switch (type) {
    case SPRY_Q8_0: put_q8_0(p, s); break;
    case SPRY_Q4_K: put_q45_k(p, SPRY_Q4_K, s); break;
    case SPRY_Q5_K: put_q45_k(p, SPRY_Q5_K, s); break;
    case SPRY_Q6_K: put_q6_k(p, s); break;
    case SPRY_Q3_K: put_q3_k(p, s); break;
    case SPRY_Q2_K: put_q2_k(p, s); break;
    case SPRY_IQ4_XS: put_iq4_xs(p, s); break;
    case SPRY_TQ1_0: put_tq1_0(p, s); break;
    case SPRY_TQ2_0: put_tq2_0(p, s); break;
    case SPRY_IQ2_XXS: put_codes(p, SPRY_IQ2_XXS, s); break;
    case SPRY_IQ2_XS: put_codes(p, SPRY_IQ2_XS, s); break;
    case SPRY_IQ2_S: put_codes(p, SPRY_IQ2_S, s); break;
    case SPRY_IQ3_XXS: put_codes(p, SPRY_IQ3_XXS, s); break;
    case SPRY_IQ3_S: put_codes(p, SPRY_IQ3_S, s); break;
    case SPRY_Q4_0: put_small(p, SPRY_Q4_0, s); break;
    default: put_small(p, type, s); break;
    }
}

/* Packs one block of all rows of a group. */
static void put_rows(unsigned char *out, spry_dtype type, source s, size_t n_rows, size_t rows)
{
    size_t row = 0;
    for (; row + 4 <= n_rows; row += 4) {
        part p = {out, rows, row, 4};
        put_block(&p, type, skip(s, row * s.stride));
    }
    for (; row < n_rows; row++) {
        part p = {out, rows, row, 1};
        put_block(&p, type, skip(s, row * s.stride));
    }
}

/* Copies chunks of 2 or 4 bytes. */
static void move_chunks(unsigned char *out, size_t out_step, const unsigned char *in, size_t in_step, size_t n_chunks,
                        size_t bytes)
{
    for (size_t c = 0; c < n_chunks; c++, out += out_step, in += in_step)
        if (bytes == 2)
            memcpy(out, in, 2);
        else
            memcpy(out, in, 4);
}

static size_t chunk_bytes(spry_dtype type)
{
    return type == SPRY_F16 ? 2 : 4;
}

/* Packs the values of one row from chunk `first` on. */
static void put_floats(unsigned char *out, const unsigned char *in, spry_dtype type, size_t row, size_t first,
                       size_t n_in, size_t rows)
{
    size_t chunk = chunk_bytes(type), bytes = n_in * spry_dtype_bytes(type), n = bytes / chunk, rest = bytes % chunk;
    move_chunks(out + (first * rows + row) * chunk, rows * chunk, in + first * chunk, chunk, n - first, chunk);
    memcpy(out + n * rows * chunk + row * rest, in + n * chunk, rest);
}

/* Packs all rows. Tiles of 4 rows by 16 bytes, or of 8 rows in chunks of 2 bytes, are transposed as a whole. */
static void put_float_rows(unsigned char *out, spry_dtype type, source s, size_t n_in, size_t n_rows, size_t rows)
{
    size_t chunk = chunk_bytes(type), each = 16 / chunk; /* rows of a tile, and chunks of a row in it */
    size_t n_tiles = n_in * spry_dtype_bytes(type) / 16, turned = n_rows / each * each;
    const unsigned char *next = s.at + rows * s.stride; /* rows that are usually packed next */
    for (size_t t = 0; t < n_tiles; t++) {
        for (size_t i = 0; i < rows * 16; i += 64)
            SPRY_PREFETCH_FAR(next + t * rows * 16 + i);
        for (size_t row = 0; row < turned; row += each) {
            unsigned char *to = out + (t * each * rows + row) * chunk;
            const unsigned char *from = s.at + row * s.stride + 16 * t;
            if (chunk == 2)
                spry_turn_pairs(to, rows * chunk, from, s.stride);
            else
                spry_turn_quads(to, rows * chunk, from, s.stride);
        }
    }
    for (size_t row = 0; row < n_rows; row++)
        put_floats(out, s.at + row * s.stride, type, row, row < turned ? n_tiles * each : 0, n_in, rows);
}

void spry_pack_group(spry_dtype type, void *out, const void *weight, size_t weight_stride, size_t n_in, size_t n_rows,
                     size_t rows)
{
    size_t n_blocks = n_in / spry_dtype_block(type), bytes = spry_dtype_bytes(type);
    size_t packed = spry_packed_row_bytes(type) * rows;
    if (n_rows < rows || type == SPRY_Q5_0 || type == SPRY_Q5_1)
        memset(out, 0, n_blocks * packed);
    if (spry_dtype_block(type) == 1) {
        put_float_rows(out, type, (source){weight, weight_stride}, n_in, n_rows, rows);
        return;
    }
    const unsigned char *at = weight, *next = at + rows * weight_stride; /* rows that are usually packed next */
    for (size_t b = 0; b < n_blocks; b++, at += bytes) {
        for (size_t i = 0; i < rows * bytes; i += 64)
            SPRY_PREFETCH_FAR(next + b * rows * bytes + i);
        put_rows((unsigned char *)out + b * packed, type, (source){at, weight_stride}, n_rows, rows);
    }
}

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

typedef struct packed_part {
    const unsigned char *in;
    size_t rows, row;
} packed_part;

static void take(packed_part *p, void *bytes, size_t size)
{
    memcpy(bytes, p->in + p->row * size, size);
    p->in += p->rows * size;
}

static void take_quads(packed_part *p, uint8_t *bytes, size_t n_quads)
{
    for (size_t q = 0; q < n_quads; q++)
        take(p, bytes + 4 * q, 4);
}

/* Reads eight quads of each of n parts of 32 bytes, alternating between the parts. */
static void take_turns(packed_part *p, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < 8 * n; i++)
        take(p, bytes + i % n * 32 + i / n * 4, 4);
}

static void take_masks(packed_part *p, uint8_t high[4])
{
    memset(high, 0, 4);
    for (size_t q = 0; q < 8; q++) {
        unsigned bits = (unsigned)p->in[p->row / 2] >> (p->row % 2 * 4) & 15u;
        high[q / 2] = (uint8_t)(high[q / 2] | bits << (q % 2 * 4));
        p->in += p->rows / 2;
    }
}

static void take_small(packed_part *p, spry_dtype type, unsigned char *block)
{
    bool min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    size_t scale = type == SPRY_MXFP4 ? 1 : 2;
    take(p, block, scale);
    block += scale;
    if (min) {
        take(p, block, 2);
        block += 2;
    }
    if (fifth) {
        take_masks(p, block);
        block += 4;
    }
    take_quads(p, block, 4);
}

static void take_q8_0(packed_part *p, unsigned char *block)
{
    take(p, block, 2);
    take_quads(p, block + 2, 8);
    for (size_t i = 0; i < 32; i++)
        block[2 + i] ^= 0x80;
}

static void pack_scales(uint8_t packed[12], const uint8_t scales[8], const uint8_t minima[8])
{
    for (size_t i = 0; i < 4; i++) {
        packed[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
        packed[i + 4] = (uint8_t)(minima[i] | minima[i + 4] >> 4 << 6);
        packed[i + 8] = (uint8_t)((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
    }
}

static void take_q45_k(packed_part *p, spry_dtype type, unsigned char *block)
{
    uint8_t scales[8], minima[8];
    take(p, block, 2);
    take(p, block + 2, 2);
    for (size_t i = 0; i < 8; i++)
        take(p, &scales[i], 1);
    for (size_t i = 0; i < 8; i++)
        take(p, &minima[i], 1);
    pack_scales(block + 4, scales, minima);
    if (p->rows == SPRY_PACK_MAX_ROWS)
        take_turns(p, block + 16, type == SPRY_Q5_K ? 5 : 4);
    else
        take_quads(p, block + 16, 8 * (type == SPRY_Q5_K ? 5 : 4));
}

static void take_q6_k(packed_part *p, unsigned char *block)
{
    unsigned char *low = block, *high = block + 128, *scales = block + 192;
    take(p, scales + 16, 2);
    for (size_t i = 0; i < 16; i++)
        take(p, scales + i, 1);
    for (size_t q = 0; q < 16; q++) {
        size_t half = q / 8, at = q % 8 * 4;
        take(p, high + 32 * half + at, 4);
        take(p, low + 64 * half + at, 4);
        take(p, low + 64 * half + 32 + at, 4);
    }
}

static void bits_to_levels(unsigned char *block, const uint8_t in[3][32])
{
    memset(block, 0, 96);
    for (size_t i = 0; i < 32; i++)
        for (size_t s = 0; s < 8; s++) {
            unsigned level = (unsigned)in[s / 2 % 3][i] >> s % 2 * 3 & 7u;
            if (s > 5)
                level = ((unsigned)in[s - 6][i] >> 5 & 6u) | ((unsigned)in[2][i] >> s & 1u);
            block[i] = (uint8_t)(block[i] | level >> 2 << s);
            block[32 + s / 4 * 32 + i] = (uint8_t)(block[32 + s / 4 * 32 + i] | (level & 3u) << s % 4 * 2);
        }
}

static void take_q3_k(packed_part *p, unsigned char *block)
{
    unsigned char *scales = block + 96;
    uint8_t levels[3][32];
    memset(scales, 0, 12);
    take(p, block + 108, 2);
    for (size_t k = 0; k < 16; k++) {
        int8_t scale;
        take(p, &scale, 1);
        int bits = scale + 32;
        scales[k % 8] = (uint8_t)(scales[k % 8] | (bits & 15) << k / 8 * 4);
        scales[8 + k % 4] = (uint8_t)(scales[8 + k % 4] | bits >> 4 << k / 4 * 2);
    }
    take_turns(p, levels[0], 3);
    bits_to_levels(block, levels);
}

static void take_q2_k(packed_part *p, unsigned char *block)
{
    uint8_t scales[16];
    take(p, block + 80, 2);
    take(p, block + 82, 2);
    if (p->rows == SPRY_PACK_MAX_ROWS) {
        take_quads(p, scales, 4);
        swap_middle(block, scales);
    } else {
        for (size_t k = 0; k < 16; k++)
            take(p, block + k, 1);
    }
    take_quads(p, block + 16, 16);
}

static void take_iq4_xs(packed_part *p, unsigned char *block)
{
    unsigned char *high = block + 2, *scales = block + 4;
    memset(high, 0, 6);
    take(p, block, 2);
    for (size_t k = 0; k < 8; k++) {
        int8_t scale;
        take(p, &scale, 1);
        int bits = scale + 32;
        scales[k / 2] = (uint8_t)(scales[k / 2] | (bits & 15) << k % 2 * 4);
        high[k / 4] = (uint8_t)(high[k / 4] | bits >> 4 << k % 4 * 2);
    }
    take_quads(p, block + 8, 32);
}

/* Each byte is the smallest fraction of 256 that has the given digits. */
static void take_tq1_0(packed_part *p, unsigned char *block)
{
    uint8_t low[64];
    unsigned sum[52] = {0};
    take(p, block + 52, 2);
    take_quads(p, low, 16);
    for (size_t i = 0, digit, shift; i < 256; i++) {
        size_t from = two_bit_place(&shift, i), to = ternary_place(&digit, i);
        sum[to] += ((unsigned)low[from] >> shift & 3u) * powers_of_three[4 - digit];
    }
    for (size_t i = 0; i < 52; i++)
        block[i] = (uint8_t)((sum[i] * 256 + 242) / 243);
}

static void take_tq2_0(packed_part *p, unsigned char *block)
{
    take(p, block + 64, 2);
    take_quads(p, block, 16);
}

static void take_codes(packed_part *p, spry_dtype type, unsigned char *block)
{
    uint8_t made[112];
    take(p, block, 2);
    take_quads(p, made, (spry_dtype_bytes(type) - 2) / 4);
    move_codes((moved){made, block, true}, type);
}

static void take_block(packed_part *p, spry_dtype type, unsigned char *block)
{
    switch (type) {
    case SPRY_Q8_0: take_q8_0(p, block); break;
    case SPRY_Q4_K:
    case SPRY_Q5_K: take_q45_k(p, type, block); break;
    case SPRY_Q6_K: take_q6_k(p, block); break;
    case SPRY_Q3_K: take_q3_k(p, block); break;
    case SPRY_Q2_K: take_q2_k(p, block); break;
    case SPRY_IQ4_XS: take_iq4_xs(p, block); break;
    case SPRY_TQ1_0: take_tq1_0(p, block); break;
    case SPRY_TQ2_0: take_tq2_0(p, block); break;
    case SPRY_IQ2_XXS:
    case SPRY_IQ2_XS:
    case SPRY_IQ2_S:
    case SPRY_IQ3_XXS:
    case SPRY_IQ3_S: take_codes(p, type, block); break;
    default: take_small(p, type, block); break;
    }
}

static void take_floats(unsigned char *out, const unsigned char *in, spry_dtype type, size_t row, size_t n_in,
                        size_t rows)
{
    size_t chunk = chunk_bytes(type), bytes = n_in * spry_dtype_bytes(type), n = bytes / chunk, rest = bytes % chunk;
    move_chunks(out, chunk, in + row * chunk, rows * chunk, n, chunk);
    memcpy(out + n * chunk, in + n * rows * chunk + row * rest, rest);
}

void spry_unpack_row(spry_dtype type, void *out, const void *group, size_t row, size_t n_in, size_t rows)
{
    size_t n_blocks = n_in / spry_dtype_block(type), bytes = spry_dtype_bytes(type);
    size_t packed = spry_packed_row_bytes(type) * rows;
    if (spry_dtype_block(type) == 1) {
        take_floats(out, group, type, row, n_in, rows);
        return;
    }
    for (size_t b = 0; b < n_blocks; b++) {
        packed_part p = {(const unsigned char *)group + b * packed, rows, row};
        take_block(&p, type, (unsigned char *)out + b * bytes);
    }
}

/* ---- values of F16 in BF16 --------------------------------------------------------------------------------------- */

enum { AT_A_TIME = 1024 };

/* The bits after the eighth significant one. The smaller a subnormal number is, the fewer such bits it has. */
static inline uint16_t spare_bits(uint16_t half)
{
    uint16_t top = half >> 8 & 3; /* the upper two bits of the mantissa */
    uint16_t subnormal = (uint16_t)(top | top >> 1), exponent = half & 0x7c00;
    return exponent ? 7 : subnormal;
}

bool spry_narrow_exact(const void *halves, size_t n)
{
    const unsigned char *in = halves;
    uint16_t lost = 0;
    for (size_t first = 0; first < n && !lost; first += AT_A_TIME) {
        size_t end = n - first < AT_A_TIME ? n : first + AT_A_TIME;
        for (size_t i = first; i < end; i++) {
            uint16_t half;
            memcpy(&half, in + 2 * i, sizeof half);
            lost = (uint16_t)(lost | (half & spare_bits(half)));
        }
    }
    return !lost;
}

void spry_narrow(void *halves, size_t n)
{
    unsigned char *values = halves;
    for (size_t i = 0; i < n; i++) {
        uint16_t value;
        memcpy(&value, values + 2 * i, sizeof value);
        value = (uint16_t)(spry_float_bits(spry_f16_decode(value)) >> 16);
        memcpy(values + 2 * i, &value, sizeof value);
    }
}
