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

/* Registers; their numbers become part of instructions. */
#define DOTS_TILE    0
#define SECOND_TILE  1
#define ROWS_TILE    2
#define OUTPUTS_TILE 3

/* Up to PANEL_BLOCKS blocks of one group. Factors of values 16.. of a block are used by types with sixteens only. */
typedef struct panel {
    __m512i quad[PANEL_BLOCKS][8];
    __m512 scale[PANEL_BLOCKS][2], min[PANEL_BLOCKS][2];
} panel;

/* What a tile of rows adds: per block, 16 values adjacent. */
typedef struct row_factors {
    float scale[PANEL_BLOCKS][TILE], scaled_sum[PANEL_BLOCKS][TILE], half_sum[PANEL_BLOCKS][2][TILE];
} row_factors;

/* Block s of the eight in a block of 256; s is a constant. */
SPRY_INLINE void expand_large(panel *out, size_t at, spry_dtype type, const unsigned char *p, int s)
{
    __m512i *quad = out->quad[at], zero = _mm512_set1_epi8((char)zero_point(type));
    if (has_sixteens(type)) {
        wsixteens w;
        load_sixteens(&w, type, p, s);
        for (int k = 0; k < 2; k++) {
            out->scale[at][k] = w.scale[k];
            if (type == SPRY_Q2_K)
                out->min[at][k] = w.min[k];
        }
        for (int q = 0; q < 8; q++)
            quad[q] = _mm512_sub_epi8(w.quad[q], zero);
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

/* Blocks [first, first + n) of a group; both are multiples of 8 for blocks of 256. */
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
            out->quad[b][q] = _mm512_sub_epi8(w.quad[q], _mm512_set1_epi8((char)zero_point(type)));
    }
}

static void gather_factors(row_factors *out, const unsigned char *act, size_t stride, size_t n)
{
    for (size_t r = 0; r < TILE; r++) {
        const spry_act_block *a = (const spry_act_block *)(const void *)(act + r * stride);
        for (size_t b = 0; b < n; b++) {
            out->scale[b][r] = a[b].scale;
            out->scaled_sum[b][r] = a[b].scaled_sum;
            out->half_sum[b][0][r] = a[b].half_sum[0];
            out->half_sum[b][1][r] = a[b].half_sum[1];
        }
    }
}

/* Integer products of 16 rows and 16 outputs: one block, or its two halves. */
typedef struct tile_dots {
    __m512i row[2][TILE];
} tile_dots;

SPRY_INLINE void multiply_tile(tile_dots *out, spry_dtype type, const spry_act_block *act, size_t stride,
                               const __m512i quad[8])
{
    tile_zero(DOTS_TILE);
    tile_load(ROWS_TILE, act->values, stride);
    tile_load(OUTPUTS_TILE, quad, sizeof *quad);
    tile_multiply(DOTS_TILE, ROWS_TILE, OUTPUTS_TILE);
    tile_store(DOTS_TILE, out->row[0], sizeof *quad);
    if (has_sixteens(type)) {
        tile_zero(SECOND_TILE);
        tile_load(ROWS_TILE, act->values + 16, stride);
        tile_load(OUTPUTS_TILE, quad + 4, sizeof *quad);
        tile_multiply(SECOND_TILE, ROWS_TILE, OUTPUTS_TILE);
        tile_store(SECOND_TILE, out->row[1], sizeof *quad);
    }
}

/* The roundings of add_zero_point, add_with_min and add_sixteens. */
SPRY_INLINE void add_tile(__m512 sum[TILE], spry_dtype type, const tile_dots *dots, const panel *w,
                          const row_factors *f, size_t b)
{
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++) {
        __m512 one = _mm512_cvtepi32_ps(dots->row[0][r]), scale = _mm512_set1_ps(f->scale[b][r]);
        if (has_sixteens(type)) {
            __m512 two = _mm512_cvtepi32_ps(dots->row[1][r]);
            __m512 both = _mm512_fmadd_ps(two, w->scale[b][1], _mm512_mul_ps(one, w->scale[b][0]));
            for (int k = 0; type == SPRY_Q2_K && k < 2; k++)
                both = _mm512_fmadd_ps(w->min[b][k], _mm512_set1_ps(f->half_sum[b][k][r]), both);
            sum[r] = _mm512_fmadd_ps(both, scale, sum[r]);
            continue;
        }
        sum[r] = _mm512_fmadd_ps(one, _mm512_mul_ps(w->scale[b][0], scale), sum[r]);
        if (has_min(type))
            sum[r] = _mm512_fmadd_ps(w->min[b][0], _mm512_set1_ps(f->scaled_sum[b][r]), sum[r]);
    }
}

/* Adds n blocks for 16 rows and one group. The product of a block is started before the sums of the one before. */
SPRY_INLINE void add_panel(float *out, size_t out_stride, spry_dtype type, const panel *w, const row_factors *f,
                           const spry_act_block *act, size_t act_stride, size_t n, bool first)
{
    __m512 sum[TILE];
    tile_dots dots[2];
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++)
        sum[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(out + (size_t)r * out_stride);
    SPRY_BARRIER(); /* compilers do not know what loads of tiles read */
    multiply_tile(&dots[0], type, act, act_stride, w->quad[0]);
    for (size_t b = 0; b < n; b++) {
        if (b + 1 < n)
            multiply_tile(&dots[(b + 1) % 2], type, act + b + 1, act_stride, w->quad[b + 1]);
        add_tile(sum, type, &dots[b % 2], w, f, b);
    }
    SPRY_UNROLL(16)
    for (int r = 0; r < TILE; r++)
        _mm512_storeu_ps(out + (size_t)r * out_stride, sum[r]);
}

static void configure_tiles(bool sixteens)
{
    tile_shapes shapes = {.palette = 1};
    for (int t = DOTS_TILE; t <= SECOND_TILE; t++) {
        shapes.rows[t] = TILE;
        shapes.row_bytes[t] = TILE * sizeof(int32_t);
    }
    shapes.rows[ROWS_TILE] = TILE;
    shapes.row_bytes[ROWS_TILE] = sixteens ? 16 : 32;
    shapes.rows[OUTPUTS_TILE] = sixteens ? 4 : 8;
    shapes.row_bytes[OUTPUTS_TILE] = sizeof(__m512i);
    tile_configure(&shapes);
}

/* Rows [row, end), a multiple of 16, and n_groups whole groups. */
SPRY_INLINE void tiled_rows(const spry_matmul *m, spry_dtype type, size_t group, size_t n_groups, size_t row,
                            size_t end)
{
    panel w[PANEL_GROUPS];
    row_factors factors;
    for (size_t b = 0, n; b < m->n_in / 32; b += n) {
        n = m->n_in / 32 - b < PANEL_BLOCKS ? m->n_in / 32 - b : PANEL_BLOCKS;
        for (size_t g = 0; g < n_groups; g++)
            expand(&w[g], type, (const unsigned char *)m->weight + (group + g) * m->weight_stride, b, n);
        for (size_t r = row; r < end; r += TILE) {
            const unsigned char *act = (const unsigned char *)m->act + r * m->act_stride + b * sizeof(spry_act_block);
            gather_factors(&factors, act, m->act_stride, n);
            for (size_t g = 0; g < n_groups; g++)
                add_panel(m->out + r * m->out_stride + (group + g) * GROUP, m->out_stride, type, &w[g], &factors,
                          (const spry_act_block *)(const void *)act, m->act_stride, n, b == 0);
        }
    }
}

SPRY_INLINE void tiled_product(const spry_matmul *m, spry_dtype type, size_t out_begin, size_t out_end)
{
    size_t n_rows = m->n_rows / TILE * TILE, whole = out_begin + (out_end - out_begin) / GROUP * GROUP;
    if (n_rows && whole > out_begin) {
        configure_tiles(has_sixteens(type));
        for (size_t row = 0; row < n_rows; row += TILED_ROW_BLOCK) {
            size_t end = n_rows - row < TILED_ROW_BLOCK ? n_rows : row + TILED_ROW_BLOCK;
            for (size_t group = out_begin / GROUP, n; group < whole / GROUP; group += n) {
                n = whole / GROUP - group < PANEL_GROUPS ? whole / GROUP - group : PANEL_GROUPS;
                tiled_rows(m, type, group, n, row, end);
            }
        }
        tile_release();
    }
    int_rest(m, type, n_rows, out_begin, whole, out_end);
}

#define TILED_DEFINE(NAME, ...)                                                                                        \
    static void amx_matmul_##NAME(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        tiled_product(m, SPRY_##NAME, out_begin, out_end);                                                             \
    }
SPRY_DTYPES_BLOCK(TILED_DEFINE)

/* Entries of a table. */
#define TILED_ENTRY(NAME, ...) .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = amx_matmul_##NAME},
#define TILED_OPS              SPRY_DTYPES_BLOCK(TILED_ENTRY)
