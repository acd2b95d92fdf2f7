/* Matrix products with float weights for AVX-512: groups of 16 outputs (packed.h), a vector across the outputs of a
 * group, and for each value one fused addition of the weights times an activation in all lanes. Sums of FLOAT_BLOCK
 * values, each one chain of fused additions, are added in ascending order: the same for every output of every row, in
 * any tile.
 *
 * With few rows weights are converted as they are streamed. With more, the weights of four groups are converted once
 * for all rows, a block at a time, into a panel that stays in the first-level cache; between blocks the sums wait in
 * the output.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/ops.h"
#include "kernels/packed.h"

enum { FLOAT_TILE_GROUPS = 4, FLOAT_TILE_ROWS = 6, FLOAT_FEW_ROWS = 4, FLOAT_BLOCK = 64 };

typedef enum float_kind { KIND_F32, KIND_F16, KIND_BF16 } float_kind;

/* Bytes of one value for all outputs of a group. */
static inline size_t value_bytes(float_kind kind)
{
    return GROUP * (kind == KIND_F32 ? 4 : 2);
}

static inline const unsigned char *group_at(const spry_matmul *m, size_t group)
{
    return (const unsigned char *)m->weight + group * m->weight_stride;
}

static inline const float *floats_at(const spry_matmul *m, size_t row)
{
    return (const float *)(const void *)((const unsigned char *)m->act + row * m->act_stride);
}

/* Loads two adjacent values of 16 outputs. */
SPRY_INLINE void load_two(__m512 out[2], float_kind kind, const unsigned char *p)
{
    if (kind == KIND_BF16) {
        __m512i both = _mm512_loadu_si512(p);
        out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
        out[1] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
    } else if (kind == KIND_F16) {
        out[0] = v_load_f16((const uint16_t *)(const void *)p);
        out[1] = v_load_f16((const uint16_t *)(const void *)p + GROUP);
    } else {
        out[0] = _mm512_loadu_ps(p);
        out[1] = _mm512_loadu_ps(p + value_bytes(kind));
    }
}

/* Loads the last of an odd number of values. */
SPRY_INLINE __m512 load_last(float_kind kind, const unsigned char *p)
{
    return kind == KIND_F32   ? _mm512_loadu_ps(p)
           : kind == KIND_F16 ? v_load_f16((const uint16_t *)(const void *)p)
                              : v_load_bf16((const uint16_t *)(const void *)p);
}

/* The sums of a tile of groups and rows. */
typedef __m512 float_sums[FLOAT_TILE_ROWS][FLOAT_TILE_GROUPS];

SPRY_INLINE void clear_sums(float_sums sum, int n_groups, int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++)
            sum[r][g] = _mm512_setzero_ps();
}

/* Adds sums to the output, or stores them with `first`. `n_out` outputs exist; with several groups all of them. */
SPRY_INLINE void put_sums(const spry_matmul *m, float_sums sum, size_t group, size_t row, int n_groups, int n_rows,
                          bool first, size_t n_out)
{
    for (int r = 0; r < n_rows; r++)
        for (int g = 0; g < n_groups; g++) {
            float *out = m->out + (row + (size_t)r) * m->out_stride + (group + (size_t)g) * GROUP;
            __m512 before = first ? _mm512_setzero_ps() : n_out % GROUP == 0 ? v_load(out) : v_load_part(out, n_out);
            __m512 all = _mm512_add_ps(before, sum[r][g]); /* adding zeros turns -0 into 0, in any tile */
            if (n_out % GROUP == 0)
                v_store(out, all);
            else
                v_store_part(out, all, n_out);
        }
}

SPRY_INLINE void add_value(float_sums sum, const __m512 w[], const float *const act[], size_t i, int n_groups,
                           int n_rows)
{
    for (int r = 0; r < n_rows; r++) {
        __m512 a = _mm512_set1_ps(act[r][i]);
        for (int g = 0; g < n_groups; g++)
            sum[r][g] = _mm512_fmadd_ps(w[g], a, sum[r][g]);
    }
}

/* Multiplies one block of values; weights are read in place. */
SPRY_INLINE void stream_block(float_sums sum, float_kind kind, const unsigned char *const weight[],
                              const float *const act[], size_t begin, size_t end, int n_groups, int n_rows)
{
    size_t i = begin;
    for (; i + 2 <= end; i += 2) {
        __m512 two[2], first[FLOAT_TILE_GROUPS], second[FLOAT_TILE_GROUPS];
        for (int g = 0; g < n_groups; g++) {
            load_two(two, kind, weight[g] + i * value_bytes(kind));
            first[g] = two[0];
            second[g] = two[1];
        }
        add_value(sum, first, act, i, n_groups, n_rows);
        add_value(sum, second, act, i + 1, n_groups, n_rows);
    }
    if (i < end) {
        __m512 last[FLOAT_TILE_GROUPS];
        for (int g = 0; g < n_groups; g++)
            last[g] = load_last(kind, weight[g] + i * value_bytes(kind));
        add_value(sum, last, act, i, n_groups, n_rows);
    }
}

SPRY_INLINE void stream_tile(const spry_matmul *m, float_kind kind, size_t group, size_t row, int n_groups, int n_rows,
                             size_t n_out)
{
    float_sums sum, total;
    const float *act[FLOAT_TILE_ROWS];
    const unsigned char *weight[FLOAT_TILE_GROUPS];
    for (int r = 0; r < n_rows; r++)
        act[r] = floats_at(m, row + (size_t)r);
    for (int g = 0; g < n_groups; g++)
        weight[g] = group_at(m, group + (size_t)g);
    clear_sums(total, n_groups, n_rows);
    for (size_t i = 0; i < m->n_in; i += FLOAT_BLOCK) {
        clear_sums(sum, n_groups, n_rows);
        if (i + FLOAT_BLOCK <= m->n_in)
            stream_block(sum, kind, weight, act, i, i + FLOAT_BLOCK, n_groups, n_rows);
        else
            stream_block(sum, kind, weight, act, i, m->n_in, n_groups, n_rows);
        for (int r = 0; r < n_rows; r++)
            for (int g = 0; g < n_groups; g++)
                total[r][g] = _mm512_add_ps(total[r][g], sum[r][g]);
    }
    put_sums(m, total, group, row, n_groups, n_rows, true, n_out);
}

/* One block of values of four groups, converted to floats. */
typedef struct float_panel {
    __m512 value[FLOAT_BLOCK][FLOAT_TILE_GROUPS];
} float_panel;

SPRY_INLINE void fill_panel(float_panel *out, const spry_matmul *m, float_kind kind, size_t group, int n_groups,
                            size_t first, size_t n)
{
    for (int g = 0; g < n_groups; g++) {
        const unsigned char *p = group_at(m, group + (size_t)g) + first * value_bytes(kind);
        size_t i = 0;
        for (; i + 2 <= n; i += 2, p += 2 * value_bytes(kind)) {
            __m512 two[2];
            load_two(two, kind, p);
            out->value[i][g] = two[0];
            out->value[i + 1][g] = two[1];
        }
        if (i < n)
            out->value[i][g] = load_last(kind, p);
    }
}

SPRY_INLINE void panel_tile(const spry_matmul *m, const float_panel *w, size_t group, int n_groups, size_t row,
                            int n_rows, size_t first, size_t n, size_t n_out)
{
    float_sums sum;
    const float *act[FLOAT_TILE_ROWS];
    for (int r = 0; r < n_rows; r++)
        act[r] = floats_at(m, row + (size_t)r) + first;
    clear_sums(sum, n_groups, n_rows);
    for (int r = 0; r < n_rows; r++) /* prefetch the outputs that put_sums adds to */
        for (int g = 0; g < n_groups; g++)
            SPRY_PREFETCH(m->out + (row + (size_t)r) * m->out_stride + (group + (size_t)g) * GROUP);
    for (size_t i = 0; i < n; i++)
        add_value(sum, w->value[i], act, i, n_groups, n_rows);
    put_sums(m, sum, group, row, n_groups, n_rows, first == 0, n_out);
}

/* Prefetches part `part` of n_parts of the next `bytes` of n_groups groups. */
SPRY_INLINE void request_part(const unsigned char *weight, size_t stride, int n_groups, size_t bytes, size_t part,
                              size_t n_parts)
{
    size_t lines = bytes / 64, begin = lines * part / n_parts, end = lines * (part + 1) / n_parts;
    for (int g = 0; g < n_groups; g++)
        for (size_t i = begin; i < end; i++)
            SPRY_PREFETCH_FAR((uintptr_t)weight + (size_t)g * stride + 64 * i);
}

/* The product for many rows. While a block is multiplied, the next block is prefetched, or the first one of the next
 * groups. */
SPRY_INLINE void panel_groups(const spry_matmul *m, float_kind kind, size_t group, int n_groups, size_t n_out)
{
    float_panel w;
    size_t n_tiles = m->n_rows / FLOAT_TILE_ROWS, block_bytes = FLOAT_BLOCK * value_bytes(kind);
    for (size_t first = 0, n; first < m->n_in; first += n) {
        n = m->n_in - first < FLOAT_BLOCK ? m->n_in - first : FLOAT_BLOCK;
        const unsigned char *next = first + n < m->n_in ? group_at(m, group) + (first + n) * value_bytes(kind)
                                                        : group_at(m, group + (size_t)n_groups);
        fill_panel(&w, m, kind, group, n_groups, first, n);
        size_t row = 0;
        for (; row + FLOAT_TILE_ROWS <= m->n_rows; row += FLOAT_TILE_ROWS) {
            request_part(next, m->weight_stride, n_groups, block_bytes, row / FLOAT_TILE_ROWS, n_tiles);
            panel_tile(m, &w, group, n_groups, row, FLOAT_TILE_ROWS, first, n, n_out);
        }
        for (; row + 2 <= m->n_rows; row += 2)
            panel_tile(m, &w, group, n_groups, row, 2, first, n, n_out);
        for (; row < m->n_rows; row++)
            panel_tile(m, &w, group, n_groups, row, 1, first, n, n_out);
    }
}

SPRY_INLINE void stream_groups(const spry_matmul *m, float_kind kind, size_t group, int n_groups, size_t n_out)
{
    size_t row = 0;
    for (; row + 4 <= m->n_rows; row += 4)
        stream_tile(m, kind, group, row, n_groups, 4, n_out);
    for (; row + 2 <= m->n_rows; row += 2)
        stream_tile(m, kind, group, row, n_groups, 2, n_out);
    for (; row < m->n_rows; row++)
        stream_tile(m, kind, group, row, n_groups, 1, n_out);
}

SPRY_INLINE void float_groups(const spry_matmul *m, float_kind kind, size_t group, int n_groups, size_t n_out)
{
    if (m->n_rows > FLOAT_FEW_ROWS)
        panel_groups(m, kind, group, n_groups, n_out);
    else
        stream_groups(m, kind, group, n_groups, n_out);
}

SPRY_INLINE void float_product(const spry_matmul *m, float_kind kind, size_t out_begin, size_t out_end)
{
    size_t output = out_begin;
    for (; m->n_rows > FLOAT_FEW_ROWS && output + 4 * GROUP <= out_end; output += 4 * GROUP)
        panel_groups(m, kind, output / GROUP, 4, 4 * GROUP);
    for (; m->n_rows > 1 && output + 2 * GROUP <= out_end; output += 2 * GROUP)
        float_groups(m, kind, output / GROUP, 2, 2 * GROUP);
    for (; output < out_end; output += GROUP)
        float_groups(m, kind, output / GROUP, 1, out_end - output < GROUP ? out_end - output : GROUP);
}

#define FLOAT_GROUP GROUP
#define FLOAT_DEFINE(NAME, ...)                                                                                        \
    static void OP(matmul_##NAME)(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        float_product(m, KIND_##NAME, out_begin, out_end);                                                             \
    }
SPRY_DTYPES_FLOAT(FLOAT_DEFINE)
