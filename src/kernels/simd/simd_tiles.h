/* The loops around products with groups of outputs, written once: blocks of rows that stay in the cache, then groups,
 * then tiles of rows. First define GROUP, INT_TILE_ROWS, INT_ROW_BLOCK, int_sum, int_zero, int_store and int_blocks;
 * also int_tables, the lookup tables that int_blocks needs for a type, and int_fill, which fills them once per call. */
#include "kernels/ops.h"

/* Computes one group of outputs for n_rows rows; `n_out` of the group's outputs exist. */
SPRY_INLINE void int_tile(const spry_matmul *m, const int_tables *tables, spry_dtype type, size_t group, size_t row,
                          int n_rows, size_t n_out)
{
    const unsigned char *p = (const unsigned char *)m->weight + group * m->weight_stride;
    const spry_act_block *act[INT_TILE_ROWS];
    int_sum sum[INT_TILE_ROWS];
    for (int r = 0; r < n_rows; r++) {
        act[r] =
            (const spry_act_block *)(const void *)((const unsigned char *)m->act + (row + (size_t)r) * m->act_stride);
        sum[r] = int_zero();
    }
    int_blocks(sum, tables, type, p, act, m->n_in, n_rows);
    for (int r = 0; r < n_rows; r++)
        int_store(m->out + (row + (size_t)r) * m->out_stride + group * GROUP, sum[r], n_out);
}

SPRY_INLINE void int_product(const spry_matmul *m, spry_dtype type, size_t out_begin, size_t out_end)
{
    int_tables tables;
    int_fill(&tables, type);
    for (size_t block = 0; block < m->n_rows; block += INT_ROW_BLOCK) {
        size_t end = m->n_rows - block < INT_ROW_BLOCK ? m->n_rows : block + INT_ROW_BLOCK;
        for (size_t output = out_begin; output < out_end; output += GROUP) {
            size_t n_out = out_end - output < GROUP ? out_end - output : GROUP, row = block;
            for (; row + INT_TILE_ROWS <= end; row += INT_TILE_ROWS)
                int_tile(m, &tables, type, output / GROUP, row, INT_TILE_ROWS, n_out);
            for (; row + 2 <= end; row += 2)
                int_tile(m, &tables, type, output / GROUP, row, 2, n_out);
            for (; row < end; row++)
                int_tile(m, &tables, type, output / GROUP, row, 1, n_out);
        }
    }
}
