/* Packed weights, read back by the layout that packed.h documents and by nothing else, are the very values the file's
 * rows decode to; unpacked they are the file's bytes again; rows a group lacks are zeros; nothing is written outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/grids.h"
#include "kernels/half.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

enum { MAX_BLOCKS = 3, MAX_BLOCK_BYTES = 256, MAX_VALUES = 256, GAP = 6 };

static const spry_dtype types[] = {SPRY_Q4_0,    SPRY_Q4_1,   SPRY_Q5_0,  SPRY_Q5_1,    SPRY_Q8_0,
                                   SPRY_Q4_K,    SPRY_Q5_K,   SPRY_Q6_K,  SPRY_Q2_K,    SPRY_Q3_K,
                                   SPRY_IQ4_NL,  SPRY_IQ4_XS, SPRY_TQ1_0, SPRY_TQ2_0,   SPRY_MXFP4,
                                   SPRY_IQ2_XXS, SPRY_IQ2_XS, SPRY_IQ2_S, SPRY_IQ3_XXS, SPRY_IQ3_S};
static const spry_dtype float_types[] = {SPRY_F32, SPRY_F16, SPRY_BF16};
static const size_t group_sizes[] = {8, 16};

static uint32_t random_state;

static unsigned random_byte(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 24;
}

static const spry_ops *ref_ops(void)
{
    const spry_ops *ops = NULL;
    assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
    return ops;
}

/* ---- a reader of the documented layout -------------------------------------------------------------------------- */

/* One row's view of one packed block: parts follow each other, each `rows` times what one row has. */
typedef struct reader {
    const unsigned char *at;
    size_t rows, row;
} reader;

/* This row's bytes of the next part, which has `size` of them a row. */
static const unsigned char *next(reader *r, size_t size)
{
    const unsigned char *bytes = r->at + r->row * size;
    r->at += r->rows * size;
    return bytes;
}

static float next_half(reader *r)
{
    const unsigned char *bytes = next(r, 2);
    return spry_f16_decode((uint16_t)(bytes[0] | bytes[1] << 8));
}

static void next_quads(reader *r, unsigned *out, size_t n_quads)
{
    for (size_t q = 0; q < n_quads; q++) {
        const unsigned char *bytes = next(r, 4);
        for (size_t i = 0; i < 4; i++)
            out[4 * q + i] = bytes[i];
    }
}

/* Four bits a row of each of eight masks. */
static void next_masks(reader *r, unsigned bits[32])
{
    for (size_t q = 0; q < 8; q++, r->at += r->rows / 2)
        for (size_t i = 0; i < 4; i++) {
            size_t bit = 4 * r->row + i;
            bits[4 * q + i] = (unsigned)r->at[bit / 8] >> bit % 8 & 1;
        }
}

static void read_small(reader *r, spry_dtype type, float *out)
{
    bool has_min = type == SPRY_Q4_1 || type == SPRY_Q5_1, fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    float scale = next_half(r), min = has_min ? next_half(r) : 0;
    unsigned bits[32] = {0}, low[16];
    if (fifth)
        next_masks(r, bits);
    next_quads(r, low, 4);
    for (size_t i = 0; i < 32; i++) {
        int level = (int)((i < 16 ? low[i] & 15 : low[i - 16] >> 4) + 16 * bits[i]);
        int zero = has_min ? 0 : fifth ? 16 : 8;
        out[i] = (float)(level - zero) * scale + min;
    }
}

static void read_q8_0(reader *r, float *out)
{
    float scale = next_half(r);
    unsigned shifted[32];
    next_quads(r, shifted, 8);
    for (size_t i = 0; i < 32; i++)
        out[i] = (float)((int)shifted[i] - 128) * scale;
}

static void read_k45(reader *r, spry_dtype type, float *out)
{
    float scale = next_half(r), min = next_half(r);
    unsigned scales[8], minima[8], low[128], high[32] = {0};
    for (size_t b = 0; b < 8; b++)
        scales[b] = *next(r, 1);
    for (size_t b = 0; b < 8; b++)
        minima[b] = *next(r, 1);
    size_t n = r->rows == SPRY_PACK_MAX_ROWS ? 1 : 8; /* quads that follow each other */
    for (size_t q = 0; q < 32; q += 4 * n) {
        if (type == SPRY_Q5_K)
            next_quads(r, high + q, n);
        for (size_t chunk = 0; chunk < 4; chunk++)
            next_quads(r, low + 32 * chunk + q, n);
    }
    for (size_t b = 0; b < 8; b++)
        for (size_t i = 0; i < 32; i++) {
            unsigned byte = low[b / 2 * 32 + i], level = (b % 2 ? byte >> 4 : byte & 15) + 16 * (high[i] >> b & 1);
            out[32 * b + i] = scale * (float)scales[b] * (float)level - min * (float)minima[b];
        }
}

/* Of 128 values, byte i of 64 in low holds i and i + 64, byte i of 32 in high pairs of bits of i, i + 32, ... */
static void read_q6_k(reader *r, float *out)
{
    float scale = next_half(r);
    int scales[16];
    for (size_t p = 0; p < 16; p++)
        scales[p] = (int8_t)*next(r, 1);
    for (size_t half = 0; half < 2; half++) {
        unsigned low[64], high[32];
        for (size_t q = 0; q < 32; q += 4) {
            next_quads(r, high + q, 1);
            next_quads(r, low + q, 1);
            next_quads(r, low + 32 + q, 1);
        }
        for (size_t i = 0; i < 128; i++) {
            unsigned nibble = i < 64 ? low[i] & 15 : low[i - 64] >> 4, upper = high[i % 32] >> i / 32 * 2 & 3;
            size_t at = 128 * half + i;
            out[at] = scale * (float)scales[at / 16] * (float)((int)(nibble + 16 * upper) - 32);
        }
    }
}

static const int levels_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const float levels_e2m1[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6, /* and with a sign */
                                      0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static unsigned nibble_of(const unsigned low[16], size_t i)
{
    return i < 16 ? low[i] & 15 : low[i - 16] >> 4;
}

static void read_iq4_nl(reader *r, float *out)
{
    float scale = next_half(r);
    unsigned low[16];
    next_quads(r, low, 4);
    for (size_t i = 0; i < 32; i++)
        out[i] = scale * (float)levels_iq4[nibble_of(low, i)];
}

static void read_mxfp4(reader *r, float *out)
{
    int exponent = *next(r, 1);
    unsigned low[16];
    next_quads(r, low, 4);
    for (size_t i = 0; i < 32; i++)
        out[i] = ldexpf(levels_e2m1[nibble_of(low, i)], exponent - 127);
}

static void read_iq4_xs(reader *r, float *out)
{
    float scale = next_half(r);
    int scales[8];
    for (size_t b = 0; b < 8; b++)
        scales[b] = (int8_t)*next(r, 1);
    for (size_t b = 0; b < 8; b++) {
        unsigned low[16];
        next_quads(r, low, 4);
        for (size_t i = 0; i < 32; i++)
            out[32 * b + i] = scale * (float)scales[b] * (float)levels_iq4[nibble_of(low, i)];
    }
}

/* Two bits: byte i of 32 holds values i, i + 32, i + 64 and i + 96 of 128. */
static unsigned pair_of(const unsigned low[64], size_t i)
{
    return low[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void read_q2_k(reader *r, float *out)
{
    float scale = next_half(r), min = next_half(r);
    unsigned scales[16], low[64];
    bool quads = r->rows == SPRY_PACK_MAX_ROWS;
    if (quads)
        next_quads(r, scales, 4);
    for (size_t p = 0; !quads && p < 16; p++)
        scales[p] = *next(r, 1);
    next_quads(r, low, 16);
    for (size_t i = 0; i < 256; i++) { /* two blocks share a quad: their first halves, then their second ones */
        unsigned factors = scales[quads ? i / 64 * 4 + i / 16 % 2 * 2 + i / 32 % 2 : i / 16];
        out[i] = scale * (float)(factors & 15) * (float)pair_of(low, i) - min * (float)(factors >> 4);
    }
}

/* Three bytes hold eight levels of three bits: 0 to 5 whole, in pairs; of 6 and 7 the two upper bits are above the
 * first and second pair, the lowest ones above the third. */
static unsigned three_bits_of(unsigned three[3][32], size_t block, size_t i)
{
    if (block < 6)
        return three[block / 2][i] >> block % 2 * 3 & 7;
    return (three[block - 6][i] >> 6 & 3) * 2 + (three[2][i] >> block & 1);
}

static void read_q3_k(reader *r, float *out)
{
    float scale = next_half(r);
    int scales[16];
    unsigned three[3][32];
    for (size_t p = 0; p < 16; p++)
        scales[p] = (int8_t)*next(r, 1);
    for (size_t q = 0; q < 32; q += 4)
        for (size_t k = 0; k < 3; k++)
            next_quads(r, three[k] + q, 1);
    for (size_t i = 0; i < 256; i++)
        out[i] = scale * (float)scales[i / 16] * (float)((int)three_bits_of(three, i / 32, i % 32) - 4);
}

static void read_ternary(reader *r, float *out)
{
    float scale = next_half(r);
    unsigned low[64];
    next_quads(r, low, 16);
    for (size_t i = 0; i < 256; i++)
        out[i] = (float)((int)pair_of(low, i) - 1) * scale;
}

/* What a part of 32 of an IQ type has beside its codes: a byte of signs for every 8, scales of its halves. */
typedef struct grid_extra {
    unsigned signs[4];
    float scale[2];
} grid_extra;

static void put_values(float out[32], const grid_extra *x, const unsigned *codes, const uint16_t *grid, bool fours,
                       const uint8_t *levels)
{
    unsigned bits = fours ? 3 : 2;
    for (size_t i = 0; i < 32; i++) {
        unsigned entry = grid[codes[fours ? i / 4 : i / 8]], level = entry >> bits * (i % (fours ? 4 : 8));
        float size = x->scale[i / 16] * (float)levels[level & ((1u << bits) - 1)];
        out[i] = x->signs[i / 8] >> i % 8 & 1 ? -size : size;
    }
}

/* Seven signs of eight, four times, and a nibble. */
static void read_word(reader *r, grid_extra *x, float scale)
{
    const unsigned char *bytes = next(r, 4);
    uint32_t word = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    for (size_t k = 0; k < 4; k++)
        x->signs[k] = spry_even_signs(word >> 7 * k & 127);
    x->scale[0] = x->scale[1] = scale * (0.5f + (float)(word >> 28));
}

static void read_iq2_xxs(reader *r, float *out)
{
    float scale = next_half(r) * 0.25f;
    for (size_t part = 0; part < 8; part++) {
        unsigned codes[4];
        grid_extra x;
        next_quads(r, codes, 1);
        read_word(r, &x, scale);
        put_values(out + 32 * part, &x, codes, spry_grid_iq2_xxs, false, spry_levels_iq2);
    }
}

static void read_iq2_xs_s(reader *r, bool s, float *out)
{
    float scale = next_half(r) * 0.25f;
    unsigned scales[8], high[8] = {0}, codes[4];
    grid_extra x;
    next_quads(r, scales, 2);
    if (s)
        next_quads(r, high, 2);
    for (size_t part = 0; part < 8; part++) {
        next_quads(r, codes, 1);
        next_quads(r, x.signs, 1);
        for (size_t k = 0; k < 4; k++) {
            codes[k] += 256 * (s ? high[part] >> 2 * k & 3 : x.signs[k] & 1);
            x.signs[k] = s ? x.signs[k] : spry_even_signs(x.signs[k] >> 1);
        }
        for (size_t k = 0; k < 2; k++)
            x.scale[k] = scale * (0.5f + (float)(scales[part] >> 4 * k & 15));
        put_values(out + 32 * part, &x, codes, s ? spry_grid_iq2_s : spry_grid_iq2_xs, false, spry_levels_iq2);
    }
}

/* Even codes first. */
static void next_turns(reader *r, unsigned codes[8])
{
    unsigned even[4], odd[4];
    next_quads(r, even, 1);
    next_quads(r, odd, 1);
    for (size_t k = 0; k < 8; k++)
        codes[k] = k % 2 ? odd[k / 2] : even[k / 2];
}

static void read_iq3_xxs(reader *r, float *out)
{
    float scale = next_half(r) * 0.5f;
    for (size_t part = 0; part < 8; part++) {
        unsigned codes[8];
        grid_extra x;
        next_turns(r, codes);
        read_word(r, &x, scale);
        put_values(out + 32 * part, &x, codes, spry_grid_iq3_xxs, true, spry_levels_iq3_xxs);
    }
}

static void read_iq3_s(reader *r, float *out)
{
    float scale = next_half(r);
    unsigned scales[4], high[8], codes[8];
    next_quads(r, scales, 1);
    next_quads(r, high, 2);
    for (size_t part = 0; part < 8; part++) {
        grid_extra x;
        next_turns(r, codes);
        for (size_t k = 0; k < 8; k++)
            codes[k] += 256 * (high[part] >> k & 1);
        next_quads(r, x.signs, 1);
        x.scale[0] = x.scale[1] = scale * (float)(1 + 2 * (scales[part / 2] >> part % 2 * 4 & 15));
        put_values(out + 32 * part, &x, codes, spry_grid_iq3_s, true, spry_levels_iq3_s);
    }
}

/* One block of one row; all of the block's bytes must have been passed. */
static void read_block(float *out, spry_dtype type, const unsigned char *block, size_t rows, size_t row)
{
    reader r = {block, rows, row};
    switch (type) {
    case SPRY_Q8_0: read_q8_0(&r, out); break;
    case SPRY_Q4_K:
    case SPRY_Q5_K: read_k45(&r, type, out); break;
    case SPRY_Q6_K: read_q6_k(&r, out); break;
    case SPRY_Q2_K: read_q2_k(&r, out); break;
    case SPRY_Q3_K: read_q3_k(&r, out); break;
    case SPRY_IQ4_NL: read_iq4_nl(&r, out); break;
    case SPRY_IQ4_XS: read_iq4_xs(&r, out); break;
    case SPRY_MXFP4: read_mxfp4(&r, out); break;
    case SPRY_TQ1_0:
    case SPRY_TQ2_0: read_ternary(&r, out); break;
    case SPRY_IQ2_XXS: read_iq2_xxs(&r, out); break;
    case SPRY_IQ2_XS: read_iq2_xs_s(&r, false, out); break;
    case SPRY_IQ2_S: read_iq2_xs_s(&r, true, out); break;
    case SPRY_IQ3_XXS: read_iq3_xxs(&r, out); break;
    case SPRY_IQ3_S: read_iq3_s(&r, out); break;
    default: read_small(&r, type, out); break;
    }
    assert_int_equal(r.at - block, rows * spry_packed_row_bytes(type));
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

typedef struct packing {
    spry_dtype type;
    size_t rows, n_rows, n_blocks, stride, packed_bytes;
    unsigned char file[SPRY_PACK_MAX_ROWS * (MAX_BLOCKS * MAX_BLOCK_BYTES + GAP)];
    unsigned char packed[SPRY_PACK_MAX_ROWS * MAX_BLOCKS * MAX_BLOCK_BYTES + 1];
} packing;

/* Any bytes but halves that are not finite: bit 14 of what may be one is cleared. TQ1_0: only bytes that encoders
 * write, the smallest fractions of 256 with their digits; the last four fractions have a fifth digit of 0. */
static void fill_file(packing *p)
{
    static const size_t first_half[SPRY_DTYPE_COUNT] = {
        [SPRY_Q2_K] = 80, [SPRY_Q3_K] = 108, [SPRY_Q6_K] = 208, [SPRY_TQ1_0] = 52, [SPRY_TQ2_0] = 64};
    static const bool second[SPRY_DTYPE_COUNT] = {
        [SPRY_Q4_1] = true, [SPRY_Q5_1] = true, [SPRY_Q2_K] = true, [SPRY_Q4_K] = true, [SPRY_Q5_K] = true};
    size_t bytes = spry_dtype_bytes(p->type);
    for (size_t i = 0; i < sizeof p->file; i++)
        p->file[i] = (unsigned char)random_byte();
    for (size_t i = 0; i < p->n_rows * p->n_blocks; i++) {
        unsigned char *block = p->file + i / p->n_blocks * p->stride + i % p->n_blocks * bytes;
        if (p->type != SPRY_MXFP4)
            block[first_half[p->type] + 1] &= 0xbf;
        if (second[p->type])
            block[first_half[p->type] + 3] &= 0xbf;
        for (size_t k = 0; p->type == SPRY_TQ1_0 && k < 52; k++)
            block[k] = (unsigned char)(((k < 48 ? block[k] % 243u : block[k] % 81u * 3) * 256 + 242) / 243);
    }
}

static void pack(packing *p, spry_dtype type, size_t rows, size_t n_rows, size_t n_blocks)
{
    *p = (packing){.type = type, .rows = rows, .n_rows = n_rows, .n_blocks = n_blocks};
    p->stride = n_blocks * spry_dtype_bytes(type) + GAP;
    p->packed_bytes = n_blocks * rows * spry_packed_row_bytes(type);
    assert_true(spry_packed_row_bytes(type) <= MAX_BLOCK_BYTES && p->packed_bytes < sizeof p->packed);
    fill_file(p);
    memset(p->packed, 0xee, sizeof p->packed);
    spry_pack_group(type, p->packed, p->file, p->stride, n_blocks * spry_dtype_block(type), n_rows, rows);
    assert_int_equal(p->packed[p->packed_bytes], 0xee);
}

static void compare_block(const packing *p, size_t row, size_t b)
{
    float expected[MAX_VALUES] = {0}, got[MAX_VALUES];
    size_t n = spry_dtype_block(p->type);
    if (row < p->n_rows)
        ref_ops()->decode[p->type](expected, p->file + row * p->stride + b * spry_dtype_bytes(p->type), n);
    read_block(got, p->type, p->packed + b * p->rows * spry_packed_row_bytes(p->type), p->rows, row);
    for (size_t i = 0; i < n; i++)
        if (expected[i] != got[i])
            fail_msg("%s: of %zu rows row %zu block %zu value %zu is %g, expected %g", spry_dtype_name(p->type),
                     p->rows, row, b, i, (double)got[i], (double)expected[i]);
}

static void packed_weights_are_what_the_file_holds(void **state)
{
    (void)state;
    packing *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t t = 0; t < SPRY_COUNT(types); t++)
        for (size_t g = 0; g < SPRY_COUNT(group_sizes); g++)
            for (size_t n_rows = 1; n_rows <= group_sizes[g]; n_rows++)
                for (size_t n_blocks = 1; n_blocks <= MAX_BLOCKS; n_blocks++) {
                    pack(p, types[t], group_sizes[g], n_rows, n_blocks);
                    for (size_t row = 0; row < p->rows; row++)
                        for (size_t b = 0; b < n_blocks; b++)
                            compare_block(p, row, b);
                }
    free(p);
}

/* All of them, and no more than a row has. */
static void unpacked_rows_are_the_files_bytes(void **state)
{
    (void)state;
    packing *p = malloc(sizeof *p);
    unsigned char row_bytes[MAX_BLOCKS * MAX_BLOCK_BYTES + 1];
    assert_non_null(p);
    for (size_t t = 0; t < SPRY_COUNT(types); t++)
        for (size_t g = 0; g < SPRY_COUNT(group_sizes); g++)
            for (size_t n_rows = 1; n_rows <= group_sizes[g]; n_rows++)
                for (size_t n_blocks = 1; n_blocks <= MAX_BLOCKS; n_blocks++) {
                    pack(p, types[t], group_sizes[g], n_rows, n_blocks);
                    size_t n_in = n_blocks * spry_dtype_block(types[t]), bytes = p->stride - GAP;
                    for (size_t row = 0; row < n_rows; row++) {
                        memset(row_bytes, 0xee, sizeof row_bytes);
                        spry_unpack_row(types[t], row_bytes, p->packed, row, n_in, p->rows);
                        assert_memory_equal(row_bytes, p->file + row * p->stride, bytes);
                        assert_int_equal(row_bytes[bytes], 0xee);
                    }
                }
    free(p);
}

/* With file rows of nothing but ones, no byte of a missing row may have a one. */
static void rows_a_group_lacks_are_zero_bytes(void **state)
{
    (void)state;
    packing *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t t = 0; t < SPRY_COUNT(types); t++)
        for (size_t g = 0; g < SPRY_COUNT(group_sizes); g++)
            for (size_t n_rows = 0; n_rows <= group_sizes[g]; n_rows++) {
                pack(p, types[t], group_sizes[g], n_rows, MAX_BLOCKS);
                size_t n_set = 0, row_bytes = MAX_BLOCKS * spry_packed_row_bytes(types[t]);
                memset(p->file, types[t] == SPRY_Q8_0 ? 0x7f : 0xff, sizeof p->file);
                spry_pack_group(types[t], p->packed, p->file, p->stride, MAX_BLOCKS * spry_dtype_block(types[t]),
                                n_rows, p->rows);
                for (size_t i = 0; i < p->packed_bytes; i++)
                    for (unsigned nibble = 0; nibble < 8; nibble += 4)
                        n_set += (p->packed[i] >> nibble & 15) != 0;
                assert_int_equal(n_set, n_rows * row_bytes * 2);
            }
    free(p);
}

/* A chunk is a value, of BF16 two; all chunks before that of value i are whole ones, of all rows. */
static void check_floats(spry_dtype type, size_t rows, size_t n_rows, size_t n_in)
{
    enum { MAX_IN = 70, MAX_ROWS = 16 };
    unsigned char file[MAX_ROWS * MAX_IN * 4], packed[MAX_ROWS * MAX_IN * 4 + 1], row_bytes[MAX_IN * 4 + 1],
        zeros[4] = {0};
    size_t bytes = spry_dtype_bytes(type), stride = n_in * bytes;
    assert_true(rows <= MAX_ROWS && n_in <= MAX_IN);
    for (size_t i = 0; i < sizeof file; i++)
        file[i] = (unsigned char)random_byte();
    memset(packed, 0xee, sizeof packed);
    spry_pack_group(type, packed, file, stride, n_in, n_rows, rows);
    assert_int_equal(packed[rows * stride], 0xee);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < n_in; i++) {
            size_t each = type == SPRY_BF16 ? 2 : 1, chunk = i / each * each;
            size_t width = n_in - chunk < each ? n_in - chunk : each;
            const unsigned char *expected = row < n_rows ? file + row * stride + i * bytes : zeros;
            assert_memory_equal(packed + (chunk * rows + row * width + i - chunk) * bytes, expected, bytes);
        }
    for (size_t row = 0; row < n_rows; row++) {
        memset(row_bytes, 0xee, sizeof row_bytes);
        spry_unpack_row(type, row_bytes, packed, row, n_in, rows);
        assert_memory_equal(row_bytes, file + row * stride, stride);
        assert_int_equal(row_bytes[stride], 0xee);
    }
}

static void floats_stand_in_chunks_row_after_row(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(float_types); t++)
        for (size_t rows = 1; rows <= 16; rows += rows < 5 ? 1 : 11)
            for (size_t n_rows = 0; n_rows <= rows; n_rows++)
                for (size_t n_in = 1; n_in <= 70; n_in++)
                    check_floats(float_types[t], rows, n_rows, n_in);
}

static void only_these_types_are_packed(void **state)
{
    (void)state;
    size_t n_packed = 0;
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++)
        n_packed += spry_packed_row_bytes((spry_dtype)id) != 0;
    assert_int_equal(n_packed, SPRY_COUNT(types) + SPRY_COUNT(float_types));
    for (size_t t = 0; t < SPRY_COUNT(types); t++)
        assert_true(spry_packed_row_bytes(types[t]) >= spry_dtype_bytes(types[t]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_are_what_the_file_holds),
        cmocka_unit_test(unpacked_rows_are_the_files_bytes),
        cmocka_unit_test(rows_a_group_lacks_are_zero_bytes),
        cmocka_unit_test(floats_stand_in_chunks_row_after_row),
        cmocka_unit_test(only_these_types_are_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
