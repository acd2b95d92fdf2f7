/* Integer products of all types, written once. First include a simd_*.h and an instruction set's GROUP, INT_TILE_ROWS,
 * INT_ROW_BLOCK, int_sum, int_zero, int_store, small_blocks, k45_blocks, level_blocks and sixteen_blocks, and define
 * OP(name). */
#include <math.h>

#include "kernels/packed.h"

typedef char int_tables; /* this instruction set needs no tables */

static inline void int_fill(int_tables *tables, spry_dtype type)
{
    (void)type;
    *tables = 0;
}

SPRY_INLINE void int_blocks(int_sum sum[INT_TILE_ROWS], const int_tables *tables, spry_dtype type,
                            const unsigned char *p, const spry_act_block *const act[], size_t n_in, int n_rows)
{
    (void)tables;
    if (type == SPRY_Q6_K || type == SPRY_Q3_K || type == SPRY_Q2_K)
        sixteen_blocks(sum, type, p, act, n_in, n_rows);
    else if (type == SPRY_IQ4_XS || type == SPRY_TQ1_0 || type == SPRY_TQ2_0)
        level_blocks(sum, type, p, act, n_in, n_rows);
    else if (type == SPRY_Q4_K || type == SPRY_Q5_K)
        k45_blocks(sum, type, p, act, n_in, n_rows);
    else
        small_blocks(sum, type, p, act, n_in, n_rows);
}

#include "kernels/simd/simd_tiles.h"

/* Computes the outputs that a kernel with tiles has left out; it has computed the first `n_rows` rows of outputs
 * [out_begin, whole). `product` is the type's OP(matmul_NAME), which is called and not inlined, because it is 3 to 25
 * KB long. */
static inline void int_rest(const spry_matmul *m, void (*product)(const spry_matmul *, size_t, size_t), size_t n_rows,
                            size_t out_begin, size_t whole, size_t out_end)
{
    spry_matmul rest = *m;
    if (whole < out_end && n_rows) {
        rest.n_rows = n_rows;
        product(&rest, whole, out_end);
    }
    if (n_rows < m->n_rows) {
        rest.n_rows = m->n_rows - n_rows;
        rest.act = (const unsigned char *)m->act + n_rows * m->act_stride;
        rest.out = m->out + n_rows * m->out_stride;
        product(&rest, out_begin, out_end);
    }
}

#define INTEGER_DEFINE(NAME, ...)                                                                                      \
    static void OP(matmul_##NAME)(const spry_matmul *m, size_t out_begin, size_t out_end)                              \
    {                                                                                                                  \
        int_product(m, SPRY_##NAME, out_begin, out_end);                                                               \
    }
SPRY_DTYPES_BLOCK(INTEGER_DEFINE)

/* Encodes like spry_act_encode (act.c), with the same bits. */
static void OP(encode_act)(spry_act_block *out, const float *in, size_t n)
{
    enum { VECTORS = SPRY_ACT_BLOCK / LANES };
    for (size_t b = 0; b < n / SPRY_ACT_BLOCK; b++, in += SPRY_ACT_BLOCK) {
        spry_act_block *block = &out[b];
        vec largest = v_set(0), check = v_set(0);
        float rounded[SPRY_ACT_BLOCK];
        vec halves[2] = {v_set(0), v_set(0)};
        for (int v = 0; v < VECTORS; v++) {
            vec x = v_load(in + v * LANES);
            largest = v_max(largest, v_max(x, v_sub(v_set(0), x)));
            check = v_fma(x, v_set(0), check);
        }
        float top = v_largest(largest);
        bool finite = v_sum(check) == 0;
        top = top < SPRY_ACT_SMALLEST ? 0 : top;
        vec inverse = v_set(finite && top > 0 ? 127 / top : 0);
        for (int v = 0; v < VECTORS; v++) {
            vec whole = v_round(v_mul(v_load(in + v * LANES), inverse));
            v_store(rounded + v * LANES, whole);
            halves[v / (VECTORS / 2)] = v_add(halves[v / (VECTORS / 2)], whole);
        }
        for (int i = 0; i < SPRY_ACT_BLOCK; i++)
            block->values[i] = (int8_t)(finite ? (int)rounded[i] : 0);
        int sums[2]; /* integers small enough to be exact in floats */
        for (int k = 0; k < 2; k++)
            sums[k] = finite ? (int)v_sum(halves[k]) : 0;
        block->scale = finite ? top / 127 : NAN;
        block->scaled_sum = block->scale * (float)(sums[0] + sums[1]);
        block->minus_8_sum = -8 * (sums[0] + sums[1]);
        block->half_sum[0] = (int16_t)sums[0];
        block->half_sum[1] = (int16_t)sums[1];
    }
}
