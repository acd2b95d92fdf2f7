/* Matrix products with float weights (F32, F16, BF16) in file layout, written once over simd_*.h. A vector
 * runs along the sum; the sums of a tile of outputs x rows stay in registers. Every output of every row is the same
 * chain of fused additions with the same final reduction, in any tile.
 *
 * Include a simd_*.h and define OP(name) first. */
#include "kernels/ops.h"

/* Rows are processed in blocks that stay in the second-level cache while the weights are streamed. */
enum { FLOAT_ROW_BLOCK = 48 };

typedef enum float_kind { KIND_F32, KIND_F16, KIND_BF16 } float_kind;

static inline size_t kind_bytes(float_kind kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

/* The vector that begins with value i of an output's row. */
static inline const unsigned char *weight_at(const spry_matmul *m, float_kind kind, size_t output, size_t i)
{
    return (const unsigned char *)m->weight + output * m->weight_stride + i * kind_bytes(kind);
}

static inline vec load_weights(float_kind kind, const void *p)
{
    return kind == KIND_F32 ? v_load(p) : kind == KIND_F16 ? v_load_f16(p) : v_load_bf16(p);
}

static inline vec load_weights_part(float_kind kind, const void *p, size_t n)
{
    return kind == KIND_F32 ? v_load_part(p, n) : kind == KIND_F16 ? v_load_f16_part(p, n) : v_load_bf16_part(p, n);
}

SPRY_INLINE void float_tile(const spry_matmul *m, float_kind kind, size_t output, size_t row, int n_outputs, int n_rows)
{
    vec sum[TILE_OUTPUTS][TILE_ROWS], w[TILE_OUTPUTS];
    const unsigned char *weight[TILE_OUTPUTS];
    const float *act[TILE_ROWS];
    for (int o = 0; o < n_outputs; o++) {
        weight[o] = weight_at(m, kind, output + (size_t)o, 0);
        for (int r = 0; r < n_rows; r++)
            sum[o][r] = v_set(0);
    }
    for (int r = 0; r < n_rows; r++)
        act[r] = (const float *)(const void *)((const unsigned char *)m->act + (row + (size_t)r) * m->act_stride);
    size_t i = 0;
    for (; i + LANES <= m->n_in; i += LANES) {
        size_t at = i * kind_bytes(kind);
        for (int o = 0; o < n_outputs; o++) {
            w[o] = load_weights(kind, weight[o] + at);
            if (n_rows == 1) /* prefetch the streams of the next tile, because there are several */
                SPRY_PREFETCH((uintptr_t)weight[o] + TILE_OUTPUTS * m->weight_stride + at);
        }
        for (int r = 0; r < n_rows; r++) {
            vec a = v_load(act[r] + i);
            for (int o = 0; o < n_outputs; o++)
                sum[o][r] = v_fma(w[o], a, sum[o][r]);
        }
    }
    size_t rest = m->n_in - i;
    if (rest) {
        for (int o = 0; o < n_outputs; o++)
            w[o] = load_weights_part(kind, weight_at(m, kind, output + (size_t)o, i), rest);
        for (int r = 0; r < n_rows; r++) {
            vec a = v_load_part(act[r] + i, rest);
            for (int o = 0; o < n_outputs; o++)
                sum[o][r] = v_fma(w[o], a, sum[o][r]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int o = 0; o < n_outputs; o++)
            m->out[(row + (size_t)r) * m->out_stride + output + (size_t)o] = v_sum(sum[o][r]);
}

SPRY_INLINE void float_rows(const spry_matmul *m, float_kind kind, size_t output, int n_outputs, size_t begin,
                            size_t end)
{
    size_t row = begin;
    for (; row + TILE_ROWS <= end; row += TILE_ROWS)
        float_tile(m, kind, output, row, n_outputs, TILE_ROWS);
    for (; row < end; row++)
        float_tile(m, kind, output, row, n_outputs, 1);
}

SPRY_INLINE void float_product(const spry_matmul *m, float_kind kind, size_t out_begin, size_t out_end)
{
    for (size_t row = 0; row < m->n_rows; row += FLOAT_ROW_BLOCK) {
        size_t end = m->n_rows - row < FLOAT_ROW_BLOCK ? m->n_rows : row + FLOAT_ROW_BLOCK, output = out_begin;
        for (; output + TILE_OUTPUTS <= out_end; output += TILE_OUTPUTS)
            float_rows(m, kind, output, TILE_OUTPUTS, row, end);
        for (; output < out_end; output++)
            float_rows(m, kind, output, 1, row, end);
    }
}

#define FLOAT_GROUP 0 /* weights are not packed */
#define FLOAT_DEFINE(NAME, ...)                                                                                        \
    static void OP(matmul_##NAME)(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        float_product(m, KIND_##NAME, out_begin, out_end);                                                             \
    }
SPRY_DTYPES_FLOAT(FLOAT_DEFINE)
