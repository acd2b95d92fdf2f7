/* Matrix products with 8-bit floats in blocks of 32 with a scale, in file layout, written once over simd_*.h. A vector
 * runs along the sum; the sums of a tile of outputs x rows stay in registers. Every output of every row is the same
 * chain of fused additions with the same final reduction, in any tile.
 *
 * With few rows, weights are decoded while they are multiplied. With more rows, the weights of a tile's outputs are
 * decoded once for F8_ROW_BLOCK rows, F8_PART values at a time, and the sums are kept in memory.
 *
 * Include a simd_*.h and define OP(name) first. */
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/ops.h"

enum { F8_ROW_BLOCK = 48, F8_PART = 512 };

/* The sums of a row, one vector per output. */
typedef struct f8_sums {
    vec of[TILE_OUTPUTS];
} f8_sums;

static inline const unsigned char *f8_weight(const spry_matmul *m, size_t output)
{
    return (const unsigned char *)m->weight + output * m->weight_stride;
}

static inline const float *f8_act(const spry_matmul *m, size_t row)
{
    return (const float *)(const void *)((const unsigned char *)m->act + row * m->act_stride);
}

/* The scale of a block times 2^8, because v_load_f8 gives values times 2^-8. */
static inline vec f8_scale(const unsigned char *block)
{
    float scale;
    memcpy(&scale, block + offsetof(spry_block_f8, scale), sizeof scale);
    return v_set(scale * 256);
}

/* Vector k of a block, times its scale. */
static inline vec f8_values(const unsigned char *block, vec scale, size_t k)
{
    return v_mul(v_load_f8(block + offsetof(spry_block_f8, values) + k * LANES), scale);
}

SPRY_INLINE void f8_store(const spry_matmul *m, const f8_sums *sum, size_t output, size_t row, int n_outputs,
                          int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        for (int o = 0; o < n_outputs; o++)
            m->out[(row + (size_t)r) * m->out_stride + output + (size_t)o] = v_sum(sum[r].of[o]);
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

SPRY_INLINE void f8_stream(const spry_matmul *m, size_t output, size_t row, int n_outputs, int n_rows)
{
    f8_sums sum[TILE_ROWS];
    const unsigned char *block[TILE_OUTPUTS];
    for (int o = 0; o < n_outputs; o++)
        block[o] = f8_weight(m, output + (size_t)o);
    for (int r = 0; r < n_rows; r++)
        for (int o = 0; o < n_outputs; o++)
            sum[r].of[o] = v_set(0);
    for (size_t i = 0; i < m->n_in; i += SPRY_BLOCK_SMALL)
        for (int o = 0; o < n_outputs; o++) {
            vec scale = f8_scale(block[o]);
            SPRY_PREFETCH((uintptr_t)block[o] + TILE_OUTPUTS * m->weight_stride); /* weights of the next tile */
            for (size_t k = 0; k < SPRY_BLOCK_SMALL / LANES; k++) {
                vec w = f8_values(block[o], scale, k);
                for (int r = 0; r < n_rows; r++)
                    sum[r].of[o] = v_fma(w, v_load(f8_act(m, row + (size_t)r) + i + k * LANES), sum[r].of[o]);
            }
            block[o] += sizeof(spry_block_f8);
        }
    f8_store(m, sum, output, row, n_outputs, n_rows);
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

typedef struct f8_panel {
    float of[TILE_OUTPUTS][F8_PART];
} f8_panel;

SPRY_INLINE void f8_decode(f8_panel *out, const spry_matmul *m, size_t output, int n_outputs, size_t first, size_t n)
{
    for (int o = 0; o < n_outputs; o++) {
        const unsigned char *block =
            f8_weight(m, output + (size_t)o) + first / SPRY_BLOCK_SMALL * sizeof(spry_block_f8);
        for (size_t i = 0; i < n; i += SPRY_BLOCK_SMALL, block += sizeof(spry_block_f8)) {
            vec scale = f8_scale(block);
            for (size_t k = 0; k < SPRY_BLOCK_SMALL / LANES; k++)
                v_store(&out->of[o][i + k * LANES], f8_values(block, scale, k));
        }
    }
}

/* Adds the products of n values from `first` on to the sums of some rows. */
SPRY_INLINE void f8_add(f8_sums *waiting, const spry_matmul *m, const f8_panel *w, size_t row, int n_outputs,
                        int n_rows, size_t first, size_t n)
{
    f8_sums sum[TILE_ROWS];
    const float *act[TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        act[r] = f8_act(m, row + (size_t)r) + first;
        for (int o = 0; o < n_outputs; o++)
            sum[r].of[o] = waiting[r].of[o];
    }
    for (size_t i = 0; i < n; i += LANES) {
        vec weight[TILE_OUTPUTS];
        for (int o = 0; o < n_outputs; o++)
            weight[o] = v_load(&w->of[o][i]);
        for (int r = 0; r < n_rows; r++) {
            vec a = v_load(act[r] + i);
            for (int o = 0; o < n_outputs; o++)
                sum[r].of[o] = v_fma(weight[o], a, sum[r].of[o]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int o = 0; o < n_outputs; o++)
            waiting[r].of[o] = sum[r].of[o];
}

/* The product for rows [begin, end), at most F8_ROW_BLOCK of them. */
SPRY_INLINE void f8_block(const spry_matmul *m, size_t output, int n_outputs, size_t begin, size_t end)
{
    f8_sums sum[F8_ROW_BLOCK];
    f8_panel w;
    for (size_t r = 0; r < end - begin; r++)
        for (int o = 0; o < n_outputs; o++)
            sum[r].of[o] = v_set(0);
    for (size_t first = 0, n; first < m->n_in; first += n) {
        size_t row = begin;
        n = m->n_in - first < F8_PART ? m->n_in - first : F8_PART;
        f8_decode(&w, m, output, n_outputs, first, n);
        for (; row + TILE_ROWS <= end; row += TILE_ROWS)
            f8_add(sum + (row - begin), m, &w, row, n_outputs, TILE_ROWS, first, n);
        for (; row + 2 <= end; row += 2)
            f8_add(sum + (row - begin), m, &w, row, n_outputs, 2, first, n);
        if (row < end)
            f8_add(sum + (row - begin), m, &w, row, n_outputs, 1, first, n);
    }
    f8_store(m, sum, output, begin, n_outputs, (int)(end - begin));
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

SPRY_INLINE void f8_rows(const spry_matmul *m, size_t output, int n_outputs, size_t begin, size_t end)
{
    if (end - begin >= 2 * TILE_ROWS) {
        f8_block(m, output, n_outputs, begin, end);
        return;
    }
    for (; begin + TILE_ROWS <= end; begin += TILE_ROWS)
        f8_stream(m, output, begin, n_outputs, TILE_ROWS);
    for (; begin + 2 <= end; begin += 2)
        f8_stream(m, output, begin, n_outputs, 2);
    if (begin < end)
        f8_stream(m, output, begin, n_outputs, 1);
}

static void OP(matmul_F8)(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    for (size_t row = 0; row < m->n_rows; row += F8_ROW_BLOCK) {
        size_t end = m->n_rows - row < F8_ROW_BLOCK ? m->n_rows : row + F8_ROW_BLOCK, output = out_begin;
        for (; output + TILE_OUTPUTS <= out_end; output += TILE_OUTPUTS)
            f8_rows(m, output, TILE_OUTPUTS, row, end);
        for (; output < out_end; output++)
            f8_rows(m, output, 1, row, end);
    }
}
