/* Integer matrix products by AMX tiles, for many rows. Include after matmul_avx512.h and simd_integers.h, whose groups,
 * loads and small tiles these use: 16 rows of activations times 16 outputs times one block of 32 (or twice 16, for
 * types that scale every 16) is one instruction, exact in integers, then the same conversion and fused additions in the
 * same order as in matmul_avx512.h. So results are the same bits, and rows that do not fill a tile take that path.
 *
 * Blocks of a group are expanded to signed bytes, a chunk at a time, in a panel that stays in the first-level cache for
 * all rows. Between chunks the sums of a row wait in its output. */
#include "kernels/simd/simd_kinds.h"
#include "kernels/x86/tiles.h"

enum { PANEL_BLOCKS = 16, PANEL_GROUPS = 2, TILE = 16, TILED_ROW_BLOCK = 256 };

/* Rows of 64 bytes in a panel for one block: its 8 quads; or, for types with a scale for every 16 values, the 4 quads
 * of each half with four quads of zeros between the halves. Then the first 8 rows are the first half and zeros, the
 * last 8 rows zeros and the second half: each can be multiplied by all 32 activations of a block. */
enum { PANEL_ROWS = 12 };

/* Up to PANEL_BLOCKS blocks of one group. Only types with a scale for every 16 values use the factors of the second 16
 * values. */
typedef struct panel {
    __m512i quad[PANEL_BLOCKS * PANEL_ROWS];
    __m512 scale[PANEL_BLOCKS][2], min[PANEL_BLOCKS][2];
} panel;

/* A tile of rows of activations. Each address in it is one of `quarter` plus a small multiple of the stride, as x86
 * addressing allows. */
typedef struct tile_rows {
    const unsigned char *quarter[4]; /* rows 0, 4, 8 and 12 */
    size_t stride, three;            /* bytes from one row to the next, and three times that */
} tile_rows;

/* Sums of half blocks as floats, with 16 rows adjacent; Q2_K needs them. */
typedef struct row_halves {
    float sum[PANEL_BLOCKS][2][TILE];
} row_halves;

SPRY_INLINE size_t panel_row(spry_dtype type, size_t block)
{
    return block * (has_sixteens(type) ? PANEL_ROWS : 8);
}

/* Expands block s of the eight in a block of 256; s is a constant. */
SPRY_INLINE void expand_large(panel *out, size_t at, spry_dtype type, const unsigned char *p, int s)
{
    __m512i *quad = out->quad + panel_row(type, at), zero = _mm512_set1_epi8((char)zero_point(type));
    if (has_sixteens(type)) {
        wsixteens w;
        load_sixteens(&w, type, p, s);
        for (int k = 0; k < 2; k++) {
            out->scale[at][k] = w.scale[k];
            if (type == SPRY_Q2_K)
                out->min[at][k] = w.min[k];
        }
        for (int q = 0; q < 4; q++) {
            quad[q] = _mm512_sub_epi8(w.quad[q], zero);
            quad[q + 4] = _mm512_setzero_si512();
            quad[q + 8] = _mm512_sub_epi8(w.quad[q + 4], zero);
        }
        return;
    }
    wblock w;
    if (has_min(type))
        load_k45(&w, type, p, s);
    else
        load_levels(&w, type, p, s);
    out->scale[at][0] = w.scale;
    if (has_min(type))
        out->min[at][0] = w.min;
    for (int q = 0; q < 8; q++)
        quad[q] = _mm512_sub_epi8(w.quad[q], zero);
}

/* Expands blocks [first, first + n) of a group; in types with blocks of 256, both are multiples of 8. */
SPRY_INLINE void expand(panel *out, spry_dtype type, const unsigned char *p, size_t first, size_t n)
{
    size_t bytes = spry_packed_row_bytes(type) * GROUP;
    if (is_large(type)) {
        p += first / 8 * bytes;
        for (size_t b = 0; b < n; b += 8, p += bytes) {
            SPRY_UNROLL(8)
            for (int s = 0; s < 8; s++)
                expand_large(out, b + (size_t)s, type, p, s);
        }
        return;
    }
    p += first * bytes;
    for (size_t b = 0; b < n; b++, p += bytes) {
        wblock w;
        load_small(&w, type, p);
        out->scale[b][0] = w.scale;
        if (has_min(type))
            out->min[b][0] = w.min;
        for (int q = 0; q < 8; q++)
            out->quad[panel_row(type, b) + (size_t)q] =
                _mm512_sub_epi8(w.quad[q], _mm512_set1_epi8((char)zero_point(type)));
    }
}

static void gather_halves(row_halves *out, const unsigned char *act, size_t stride, size_t n)
{
    for (size_t r = 0; r < TILE; r++) {
        const spry_act_block *a = (const spry_act_block *)(const void *)(act + r * stride);
        for (size_t b = 0; b < n; b++)
            for (int k = 0; k < 2; k++)
                out->sum[b][k][r] = a[b].half_sum[k];
    }
}

/* Block b of row r; r is a constant. */
SPRY_INLINE const spry_act_block *row_block(const tile_rows *rows, int r, size_t b)
{
    const unsigned char *p = rows->quarter[r / 4] + b * sizeof(spry_act_block);
    p += r % 4 == 3 ? rows->three : (size_t)(r % 4) * rows->stride;
    return (const spry_act_block *)(const void *)p;
}

/* Integer products of 16 rows and 16 outputs: one block, or its two halves. */
typedef struct tile_dots {
    __m512i row[2][TILE];
} tile_dots;

/* Tile registers are part of the instructions, so these are macros: sums are in tiles 0 to 3, rows in 4 and 5, outputs
 * in 6 and 7. */
#define START_BLOCK(sums, rows, outputs)                                                                               \
    do {                                                                                                               \
        tile_zero(sums);                                                                                               \
        tile_load(rows, values, stride);                                                                               \
        tile_load(outputs, quad, sizeof *quad);                                                                        \
        tile_multiply(sums, rows, outputs);                                                                            \
    } while (0)
#define START_HALVES(left, right, rows)                                                                                \
    do {                                                                                                               \
        tile_zero(left);                                                                                               \
        tile_zero(right);                                                                                              \
        tile_load(rows, values, stride);                                                                               \
        tile_load(6, quad, sizeof *quad);                                                                              \
        tile_multiply(left, rows, 6);                                                                                  \
        tile_load(7, quad + 4, sizeof *quad);                                                                          \
        tile_multiply(right, rows, 7);                                                                                 \
    } while (0)

enum { SLOTS = 2 }; /* blocks computed at the same time; four are slower (measured) */

SPRY_INLINE void start_block(int slot, spry_dtype type, const int8_t *values, size_t stride, const __m512i *quad)
{
    switch (has_sixteens(type) ? SLOTS + slot : slot) {
    case 0: START_BLOCK(0, 4, 6); break;
    case 1: START_BLOCK(1, 5, 7); break;
    case 2: START_HALVES(0, 1, 4); break;
    default: START_HALVES(2, 3, 5); break;
    }
}

#define STORE_HALVES(left, right)                                                                                      \
    do {                                                                                                               \
        tile_store(left, out->row[0], sizeof(__m512i));                                                                \
        tile_store(right, out->row[1], sizeof(__m512i));                                                               \
    } while (0)

SPRY_INLINE void store_block(tile_dots *out, int slot, spry_dtype type)
{
    switch (has_sixteens(type) ? SLOTS + slot : slot) {
    case 0: tile_store(0, out->row[0], sizeof(__m512i)); break;
    case 1: tile_store(1, out->row[0], sizeof(__m512i)); break;
    case 2: STORE_HALVES(0, 1); break;
    default: STORE_HALVES(2, 3); break;
    }
}

/* Adds dots to sums with the same roundings as add_zero_point, add_with_min and add_sixteens. */
SPRY_INLINE void add_tile(__m512 sum[TILE], spry_dtype type, const tile_dots *dots, const panel *w,
                          const tile_rows *rows, const row_halves *halves, size_t b)
{
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++) {
        const spry_act_block *act = row_block(rows, r, b);
        __m512 one = _mm512_cvtepi32_ps(dots->row[0][r]), scale = _mm512_set1_ps(act->scale);
        if (has_sixteens(type)) {
            __m512 two = _mm512_cvtepi32_ps(dots->row[1][r]);
            __m512 both = _mm512_fmadd_ps(two, w->scale[b][1], _mm512_mul_ps(one, w->scale[b][0]));
            for (int k = 0; type == SPRY_Q2_K && k < 2; k++)
                both = _mm512_fmadd_ps(w->min[b][k], _mm512_set1_ps(halves->sum[b][k][r]), both);
            sum[r] = _mm512_fmadd_ps(both, scale, sum[r]);
            continue;
        }
        sum[r] = _mm512_fmadd_ps(one, _mm512_mul_ps(w->scale[b][0], scale), sum[r]);
        if (has_min(type))
            sum[r] = _mm512_fmadd_ps(w->min[b][0], _mm512_set1_ps(act->scaled_sum), sum[r]);
    }
}

/* Adds n blocks for 16 rows and one group. Pipelined: a block is started SLOTS blocks before its products are stored,
 * and the products are stored one block before they are converted. */
SPRY_INLINE void add_panel(float *out, size_t out_stride, spry_dtype type, const panel *w, const tile_rows *rows,
                           const row_halves *halves, size_t n, bool first)
{
    __m512 sum[TILE];
    tile_dots dots[SLOTS];
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++)
        sum[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(out + (size_t)r * out_stride);
    SPRY_BARRIER(); /* compilers do not know which memory a tile load reads */
    SPRY_UNROLL(2)
    for (int t = 0; t < SLOTS; t++)
        if ((size_t)t < n)
            start_block(t, type, row_block(rows, 0, (size_t)t)->values, rows->stride,
                        w->quad + panel_row(type, (size_t)t));
    for (size_t b = 0; b < n; b += SLOTS) {
        SPRY_UNROLL(2)
        for (int t = 0; t < SLOTS; t++) {
            size_t at = b + (size_t)t, next = at + SLOTS;
            if (at >= n)
                break;
            store_block(&dots[t], t, type);
            if (next < n)
                start_block(t, type, row_block(rows, 0, next)->values, rows->stride, w->quad + panel_row(type, next));
            if (at)
                add_tile(sum, type, &dots[(t + 1) % SLOTS], w, rows, halves, at - 1);
        }
    }
    add_tile(sum, type, &dots[(n + 1) % SLOTS], w, rows, halves, n - 1);
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++)
        _mm512_storeu_ps(out + (size_t)r * out_stride, sum[r]);
}

/* Shapes of the registers of sums, rows and outputs. A constant in memory, because compilers do not know that the
 * instruction reads all of it. */
static const tile_shapes block_shapes = {.palette = 1,
                                         .row_bytes = {64, 64, 64, 64, SPRY_ACT_BLOCK, SPRY_ACT_BLOCK, 64, 64},
                                         .rows = {TILE, TILE, TILE, TILE, TILE, TILE, 8, 8}};

/* Prefetches a share of the n blocks that are expanded after blocks [b, b + n) of a group: the next blocks of this
 * group or, at its end, the first of the group after the current ones. */
SPRY_INLINE void fetch_share(const spry_matmul *m, spry_dtype type, size_t group, size_t n_groups, size_t b, size_t n,
                             size_t share, size_t shares)
{
    size_t block_bytes = spry_packed_row_bytes(type) * GROUP, unit = is_large(type) ? 8 : 1, after = b + n;
    size_t lines = n / unit * block_bytes / 64 + 1, each = (lines + shares - 1) / shares;
    uintptr_t next = (uintptr_t)m->weight + group * m->weight_stride + after / unit * block_bytes;
    if (after == m->n_in / 32)
        next = (uintptr_t)m->weight + (group + n_groups) * m->weight_stride;
    for (size_t line = share * each; line < (share + 1) * each && line < lines; line++)
        _mm_prefetch((const char *)(next + 64 * line), _MM_HINT_T1);
}

/* The product for rows [row, end), a multiple of 16, and n_groups whole groups. */
SPRY_INLINE void tiled_rows(const spry_matmul *m, spry_dtype type, size_t group, size_t n_groups, size_t row,
                            size_t end)
{
    panel w[PANEL_GROUPS];
    row_halves halves;
    size_t stride = m->act_stride;
    for (size_t b = 0, n; b < m->n_in / 32; b += n) {
        n = m->n_in / 32 - b < PANEL_BLOCKS ? m->n_in / 32 - b : PANEL_BLOCKS;
        for (size_t g = 0; g < n_groups; g++)
            expand(&w[g], type, (const unsigned char *)m->weight + (group + g) * m->weight_stride, b, n);
        for (size_t r = row; r < end; r += TILE) {
            const unsigned char *act = (const unsigned char *)m->act + r * stride + b * sizeof(spry_act_block);
            tile_rows rows = {{act, act + 4 * stride, act + 8 * stride, act + 12 * stride}, stride, 3 * stride};
            if (type == SPRY_Q2_K)
                gather_halves(&halves, act, stride, n);
            for (size_t g = 0; g < n_groups; g++) {
                fetch_share(m, type, group + g, n_groups, b, n, (r - row) / TILE, (end - row) / TILE);
                add_panel(m->out + r * m->out_stride + (group + g) * GROUP, m->out_stride, type, &w[g], &rows, &halves,
                          n, b == 0);
            }
        }
    }
}

SPRY_INLINE void tiled_product(const spry_matmul *m, spry_dtype type, void (*rest)(const spry_matmul *, size_t, size_t),
                               size_t out_begin, size_t out_end)
{
    size_t n_rows = m->n_rows / TILE * TILE, whole = out_begin + (out_end - out_begin) / GROUP * GROUP;
    if (n_rows && whole > out_begin) {
        tile_configure(&block_shapes);
        for (size_t row = 0; row < n_rows; row += TILED_ROW_BLOCK) {
            size_t end = n_rows - row < TILED_ROW_BLOCK ? n_rows : row + TILED_ROW_BLOCK;
            for (size_t group = out_begin / GROUP, n; group < whole / GROUP; group += n) {
                n = whole / GROUP - group < PANEL_GROUPS ? whole / GROUP - group : PANEL_GROUPS;
                tiled_rows(m, type, group, n, row, end);
            }
        }
        tile_release();
    }
    int_rest(m, rest, n_rows, out_begin, whole, out_end);
}

#define TILED_DEFINE(NAME, ...)                                                                                        \
    static void amx_matmul_##NAME(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        tiled_product(m, SPRY_##NAME, OP(matmul_##NAME), out_begin, out_end);                                          \
    }
SPRY_DTYPES_BLOCK(TILED_DEFINE)

/* The table's entries for this file's products. */
#define TILED_ENTRY(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = amx_matmul_##NAME},
#define TILED_OPS              SPRY_DTYPES_BLOCK(TILED_ENTRY)
