/* Integer matrix products by i8mm, for many rows. Include after matmul_neon.h and simd_integers.h, whose groups and
 * loads these use: one smmla multiplies eight values of two rows by values of two outputs, exact in integers. Dots and
 * sums stay in this order, rows times outputs of two by two, from the first block to the last, and are scaled and added
 * with the roundings of matmul_neon.h. So results are the same bits, and rows that do not fill a tile take that path.
 *
 * Rows are taken in blocks, values in chunks. A chunk of all rows is put in order once, and its weights of a group are
 * expanded to signed bytes once, in a panel that stays in the first-level cache for all rows. Between chunks the sums
 * of a row wait in its output. */
#include "kernels/simd/simd_kinds.h"

enum { PANEL_BLOCKS = 8, TILE_PAIRS = 4, TILE_HALF = 2, TILED_ROW_BLOCK = 64 };

/* Up to PANEL_BLOCKS blocks of one group: eight values each of two outputs. Only types with a scale for every 16 values
 * use the factors of the second 16 values. */
typedef struct panel {
    int8x16_t eight[PANEL_BLOCKS][4][GROUP / 2];
    float scale[PANEL_BLOCKS][2][GROUP], min[PANEL_BLOCKS][2][GROUP];
} panel;

/* The same blocks of two rows of activations: the factors of the first row twice, then the factors of the second row
 * twice. */
typedef struct row_pair {
    int8x16_t eight[PANEL_BLOCKS][4];
    float32x4_t scale[PANEL_BLOCKS], scaled_sum[PANEL_BLOCKS], half_sum[PANEL_BLOCKS][2];
} row_pair;

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static inline void put_eight(float *out, eight x)
{
    v_store(out, x.half[0]);
    v_store(out + LANES, x.half[1]);
}

/* Stores 16 values. The loads of matmul_neon.h give levels whose zero point is 128 as signed values already. */
SPRY_INLINE void put_quads(int8x16_t out[2][GROUP / 2], spry_dtype type, const quads w)
{
    int8x16_t zero = vdupq_n_s8((int8_t)(zero_point(type) == 128 ? 0 : zero_point(type)));
    for (int k = 0; k < 2; k++)
        for (int h = 0; h < 2; h++) {
            int32x4_t first = vreinterpretq_s32_s8(vsubq_s8(w[2 * k][h], zero));
            int32x4_t second = vreinterpretq_s32_s8(vsubq_s8(w[2 * k + 1][h], zero));
            out[k][2 * h] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
            out[k][2 * h + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
        }
}

SPRY_INLINE void expand_small(panel *out, size_t b, spry_dtype type, const unsigned char *p)
{
    bool fifth = type == SPRY_Q5_0 || type == SPRY_Q5_1;
    size_t masks = has_min(type) ? 4 * GROUP : type == SPRY_MXFP4 ? GROUP : 2 * GROUP;
    size_t levels = fifth ? masks + 4 * GROUP : masks;
    for (int second = 0; second < 2; second++) {
        quads w;
        load_small(w, type, p + masks, p + levels, second);
        put_quads(out->eight[b] + 2 * second, type, w);
    }
    put_eight(out->scale[b][0], type == SPRY_MXFP4 ? exponents(p) : halves(p));
    if (has_min(type))
        put_eight(out->min[b][0], halves(p + 2 * GROUP));
}

/* Expands block s of the eight blocks of 32 in a block of 256. */
SPRY_INLINE void expand_sixteens(panel *out, size_t b, spry_dtype type, const unsigned char *p, size_t s)
{
    const unsigned char *scales = p + (type == SPRY_Q2_K ? 4 : 2) * GROUP, *levels = scales + 16 * GROUP;
    for (int second = 0; second < 2; second++) {
        const unsigned char *bytes = scales + (2 * s + (size_t)second) * GROUP;
        quads w;
        load_sixteen(w, type, levels, s, second);
        put_quads(out->eight[b] + 2 * second, type, w);
        put_eight(out->scale[b][second], sixteen_scale(type, halves(p), bytes));
        if (type == SPRY_Q2_K)
            put_eight(out->min[b][second], sixteen_min(mul_one(halves(p + 2 * GROUP), -1), bytes));
    }
}

SPRY_INLINE void expand_large(panel *out, size_t b, spry_dtype type, const unsigned char *p, size_t s)
{
    const unsigned char *scales = p + (has_min(type) ? 4 : 2) * GROUP, *minima = scales + 8 * GROUP;
    for (int second = 0; second < 2; second++) {
        quads w;
        if (has_min(type))
            load_k45(w, type, minima + 8 * GROUP, s, second);
        else if (type == SPRY_IQ4_XS)
            load_small(w, type, NULL, scales + 8 * GROUP + s * (4 * QUAD_BYTES), second);
        else
            load_pairs(w, scales, s, second);
        put_quads(out->eight[b] + 2 * second, type, w);
    }
    eight scale = halves(p);
    if (has_min(type)) {
        put_eight(out->scale[b][0], mul(scale, bytes_u8(scales + s * GROUP)));
        put_eight(out->min[b][0], mul(mul_one(halves(p + 2 * GROUP), -1), bytes_u8(minima + s * GROUP)));
    } else {
        put_eight(out->scale[b][0], type == SPRY_IQ4_XS ? mul(scale, bytes_i8(scales + s * GROUP)) : scale);
    }
}

/* Expands blocks [first, first + n) of a group; in types with blocks of 256, both are multiples of 8. */
SPRY_INLINE void expand(panel *out, spry_dtype type, const unsigned char *p, size_t first, size_t n)
{
    p += first / (is_large(type) ? 8 : 1) * spry_packed_row_bytes(type) * GROUP;
    for (size_t b = 0; b < n; b++)
        if (has_sixteens(type))
            expand_sixteens(out, b, type, p, b);
        else if (is_large(type))
            expand_large(out, b, type, p, b);
        else
            expand_small(out, b, type, p + b * spry_packed_row_bytes(type) * GROUP);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static inline float32x4_t two_twice(float first, float second)
{
    return vcombine_f32(vdup_n_f32(first), vdup_n_f32(second));
}

static void gather_pair(row_pair *out, const spry_act_block *one, const spry_act_block *two, size_t n)
{
    for (size_t b = 0; b < n; b++, one++, two++) {
        for (int k = 0; k < 4; k++)
            out->eight[b][k] = vcombine_s8(vld1_s8(one->values + 8 * k), vld1_s8(two->values + 8 * k));
        out->scale[b] = two_twice(one->scale, two->scale);
        out->scaled_sum[b] = two_twice(one->scaled_sum, two->scaled_sum);
        for (int k = 0; k < 2; k++)
            out->half_sum[b][k] = two_twice(one->half_sum[k], two->half_sum[k]);
    }
}

static inline const spry_act_block *act_at(const spry_matmul *m, size_t row, size_t block)
{
    const unsigned char *act = (const unsigned char *)m->act + row * m->act_stride;
    return (const spry_act_block *)(const void *)act + block;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Sums of TILE_PAIRS pairs of rows times four outputs. */
typedef float32x4_t tile_sums[TILE_PAIRS][TILE_HALF];

/* Multiplies groups of eight values [begin, end) of a block. */
SPRY_INLINE void dot_tile(tile_sums out, const panel *w, const row_pair *rows, size_t b, int half, int begin, int end)
{
    int32x4_t dot[TILE_PAIRS][TILE_HALF];
    for (int i = 0; i < TILE_PAIRS; i++)
        for (int j = 0; j < TILE_HALF; j++)
            dot[i][j] = vdupq_n_s32(0);
    for (int k = begin; k < end; k++)
        for (int i = 0; i < TILE_PAIRS; i++)
            for (int j = 0; j < TILE_HALF; j++)
                dot[i][j] = vmmlaq_s32(dot[i][j], rows[i].eight[b][k], w->eight[b][k][TILE_HALF * half + j]);
    for (int i = 0; i < TILE_PAIRS; i++)
        for (int j = 0; j < TILE_HALF; j++)
            out[i][j] = vcvtq_f32_s32(dot[i][j]);
}

/* The factors of outputs 2p and 2p + 1, twice. */
static inline float32x4_t factors_at(const float *factors, int p)
{
    float32x2_t two = vld1_f32(factors + 2 * p);
    return vcombine_f32(two, two);
}

SPRY_INLINE void add_block(tile_sums sum, spry_dtype type, const panel *w, const row_pair *rows, size_t b, int half)
{
    tile_sums dot;
    dot_tile(dot, w, rows, b, half, 0, 4);
    for (int j = 0; j < TILE_HALF; j++) {
        float32x4_t scale = factors_at(w->scale[b][0], TILE_HALF * half + j);
        for (int i = 0; i < TILE_PAIRS; i++)
            sum[i][j] = vfmaq_f32(sum[i][j], dot[i][j], vmulq_f32(scale, rows[i].scale[b]));
    }
    for (int j = 0; has_min(type) && j < TILE_HALF; j++) {
        float32x4_t min = factors_at(w->min[b][0], TILE_HALF * half + j);
        for (int i = 0; i < TILE_PAIRS; i++)
            sum[i][j] = vfmaq_f32(sum[i][j], min, rows[i].scaled_sum[b]);
    }
}

SPRY_INLINE void add_sixteens(tile_sums sum, spry_dtype type, const panel *w, const row_pair *rows, size_t b, int half)
{
    tile_sums one, two;
    dot_tile(one, w, rows, b, half, 0, 2);
    dot_tile(two, w, rows, b, half, 2, 4);
    for (int j = 0; j < TILE_HALF; j++) {
        const int p = TILE_HALF * half + j;
        float32x4_t first = factors_at(w->scale[b][0], p), second = factors_at(w->scale[b][1], p);
        for (int i = 0; i < TILE_PAIRS; i++)
            two[i][j] = vfmaq_f32(vmulq_f32(one[i][j], first), two[i][j], second);
        for (int k = 0; type == SPRY_Q2_K && k < 2; k++)
            for (int i = 0; i < TILE_PAIRS; i++)
                two[i][j] = vfmaq_f32(two[i][j], factors_at(w->min[b][k], p), rows[i].half_sum[b][k]);
        for (int i = 0; i < TILE_PAIRS; i++)
            sum[i][j] = vfmaq_f32(sum[i][j], two[i][j], rows[i].scale[b]);
    }
}

/* The lower halves of two vectors as one vector; then the same for the upper halves. */
static inline float32x4_t lower_two(float32x4_t a, float32x4_t b)
{
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}

static inline float32x4_t upper_two(float32x4_t a, float32x4_t b)
{
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}

/* Adds the products of n blocks to four outputs of eight rows. */
SPRY_INLINE void add_tile(float *out, size_t stride, spry_dtype type, const panel *w, const row_pair *rows, size_t n,
                          int half, bool first)
{
    tile_sums sum;
    for (size_t i = 0; i < TILE_PAIRS; i++) {
        float32x4_t above = first ? v_set(0) : v_load(out + 2 * i * stride);
        float32x4_t below = first ? v_set(0) : v_load(out + (2 * i + 1) * stride);
        sum[i][0] = lower_two(above, below);
        sum[i][1] = upper_two(above, below);
    }
    for (size_t b = 0; b < n; b++)
        if (has_sixteens(type))
            add_sixteens(sum, type, w, rows, b, half);
        else
            add_block(sum, type, w, rows, b, half);
    for (size_t i = 0; i < TILE_PAIRS; i++) {
        v_store(out + 2 * i * stride, lower_two(sum[i][0], sum[i][1]));
        v_store(out + (2 * i + 1) * stride, upper_two(sum[i][0], sum[i][1]));
    }
}

/* The product of rows [row, end), which fill whole tiles, and outputs [out_begin, out_end), which fill whole groups. */
SPRY_INLINE void tiled_rows(const spry_matmul *m, spry_dtype type, size_t row, size_t end, size_t out_begin,
                            size_t out_end)
{
    row_pair rows[TILED_ROW_BLOCK / 2];
    panel w;
    for (size_t b = 0, n; b < m->n_in / 32; b += n) {
        n = m->n_in / 32 - b < PANEL_BLOCKS ? m->n_in / 32 - b : PANEL_BLOCKS;
        for (size_t r = row; r < end; r += 2)
            gather_pair(&rows[(r - row) / 2], act_at(m, r, b), act_at(m, r + 1, b), n);
        for (size_t output = out_begin; output < out_end; output += GROUP) {
            expand(&w, type, (const unsigned char *)m->weight + output / GROUP * m->weight_stride, b, n);
            for (size_t r = row; r < end; r += 2 * TILE_PAIRS)
                for (int half = 0; half < 2; half++)
                    add_tile(m->out + r * m->out_stride + output + (size_t)half * LANES, m->out_stride, type, &w,
                             &rows[(r - row) / 2], n, half, b == 0);
        }
    }
}

SPRY_INLINE void tiled_product(const spry_matmul *m, spry_dtype type, void (*rest)(const spry_matmul *, size_t, size_t),
                               size_t out_begin, size_t out_end)
{
    size_t tile = 2 * TILE_PAIRS, n_rows = m->n_rows / tile * tile;
    size_t whole = out_begin + (out_end - out_begin) / GROUP * GROUP;
    for (size_t row = 0; row < n_rows; row += TILED_ROW_BLOCK)
        tiled_rows(m, type, row, n_rows - row < TILED_ROW_BLOCK ? n_rows : row + TILED_ROW_BLOCK, out_begin, whole);
    int_rest(m, rest, n_rows, out_begin, whole, out_end);
}

#define TILED_DEFINE(NAME, ...)                                                                                        \
    static void i8mm_tiled_##NAME(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        tiled_product(m, SPRY_##NAME, OP(matmul_##NAME), out_begin, out_end);                                          \
    }
SPRY_DTYPES_BLOCK(TILED_DEFINE)

/* The table's entries for this file's products. */
#define TILED_ENTRY(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = i8mm_tiled_##NAME},
#define TILED_OPS              SPRY_DTYPES_BLOCK(TILED_ENTRY)
