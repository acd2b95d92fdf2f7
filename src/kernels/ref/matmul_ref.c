/* Matrix product: a tile of a weight row is decoded into a small buffer and used for a group of rows. Each output is
 * one sum in the order of lanes.h, for any group, tile and range. */
#include <stdalign.h>

#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

/* A tile of values holds whole blocks of every type, and a multiple of the number of lanes. */
enum { TILE = 256, GROUP = 8 };

static const float *activation(const spry_matmul *m, size_t row)
{
    return (const float *)(const void *)((const unsigned char *)m->act + row * m->act_stride);
}

static const unsigned char *weight_row(const spry_matmul *m, size_t output)
{
    return (const unsigned char *)m->weight + output * m->weight_stride;
}

/* One output for rows [begin, end), at most GROUP of them. `tile_bytes` is the size of TILE weights. */
static void multiply_group(const spry_matmul *m, spry_decode_fn decode, size_t tile_bytes, size_t output, size_t begin,
                           size_t end)
{
    const unsigned char *weight = weight_row(m, output);
    float lanes[GROUP][SPRY_LANES] = {{0}};
    float tile[TILE];
    for (size_t i = 0; i < m->n_in; i += TILE, weight += tile_bytes) {
        size_t n = m->n_in - i < TILE ? m->n_in - i : TILE;
        decode(tile, weight, n);
        for (size_t row = begin; row < end; row++)
            spry_lanes_dot(lanes[row - begin], tile, activation(m, row) + i, n);
    }
    for (size_t row = begin; row < end; row++)
        m->out[row * m->out_stride + output] = spry_lanes_fold(lanes[row - begin]);
}

static void multiply_floats(const spry_matmul *m, size_t out_begin, size_t out_end)
{
    for (size_t output = out_begin; output < out_end; output++) {
        const float *weight = (const float *)(const void *)weight_row(m, output);
        for (size_t row = 0; row < m->n_rows; row++)
            m->out[row * m->out_stride + output] = spry_dot(weight, activation(m, row), m->n_in);
    }
}

static void multiply(const spry_matmul *m, spry_dtype type, spry_decode_fn decode, size_t out_begin, size_t out_end)
{
    /* Floats are used in place if they are aligned. */
    if (type == SPRY_F32 && ((uintptr_t)m->weight | m->weight_stride) % alignof(float) == 0) {
        multiply_floats(m, out_begin, out_end);
        return;
    }
    size_t tile_bytes = TILE / spry_dtype_block(type) * spry_dtype_bytes(type);
    for (size_t output = out_begin; output < out_end; output++)
        for (size_t row = 0; row < m->n_rows; row += GROUP) {
            size_t end = m->n_rows - row < GROUP ? m->n_rows : row + GROUP;
            multiply_group(m, decode, tile_bytes, output, row, end);
        }
}

#define MATMUL(NAME, name, ...)                                                                                        \
    void spry_ref_matmul_##name(const spry_matmul *m, size_t out_begin, size_t out_end)                                \
    {                                                                                                                  \
        multiply(m, SPRY_##NAME, spry_ref_decode_##name, out_begin, out_end);                                          \
    }
SPRY_DTYPES_KNOWN(MATMUL)
