/* Stores and loads one key. Only this file and the attention kernels depend on the transposed layout. */
#include "kernels/kv_layout.h"

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"

static void store_floats(const unsigned char *from, size_t size, unsigned char *head, size_t token, size_t head_dim)
{
    for (size_t d = 0; d < head_dim; d++)
        memcpy(head + (d * SPRY_PAGE_TOKENS + token) * size, from + d * size, size);
}

static void store_q8_0(const spry_block_q8_0 *from, unsigned char *head, size_t token, size_t head_dim)
{
    unsigned char *scales = head + head_dim * SPRY_PAGE_TOKENS;
    for (size_t d = 0; d < head_dim; d++)
        head[d * SPRY_PAGE_TOKENS + token] = (unsigned char)from[d / SPRY_BLOCK_SMALL].quants[d % SPRY_BLOCK_SMALL];
    for (size_t b = 0; b < head_dim / SPRY_BLOCK_SMALL; b++)
        memcpy(scales + (b * SPRY_PAGE_TOKENS + token) * sizeof(spry_half), &from[b].scale, sizeof(spry_half));
}

void spry_kv_store_key(const spry_ops *ops, spry_dtype type, unsigned char *head, size_t token, const float *key,
                       size_t head_dim)
{
    union {
        unsigned char floats[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
        spry_block_q8_0 q8_0[SPRY_ATTEND_HEAD_DIM_MAX / SPRY_BLOCK_SMALL];
    } encoded;
    ops->encode[type](&encoded, key, head_dim);
    if (type == SPRY_Q8_0)
        store_q8_0(encoded.q8_0, head, token, head_dim);
    else
        store_floats(encoded.floats, spry_dtype_bytes(type), head, token, head_dim);
}

static void load_q8_0(float *key, const unsigned char *head, size_t token, size_t head_dim)
{
    const unsigned char *scales = head + head_dim * SPRY_PAGE_TOKENS;
    for (size_t d = 0; d < head_dim; d++) {
        spry_half scale;
        memcpy(&scale, scales + (d / SPRY_BLOCK_SMALL * SPRY_PAGE_TOKENS + token) * sizeof scale, sizeof scale);
        key[d] = spry_f16_decode(scale) * (float)(int8_t)head[d * SPRY_PAGE_TOKENS + token];
    }
}

void spry_kv_load_key(spry_dtype type, float *key, const unsigned char *head, size_t token, size_t head_dim)
{
    unsigned char floats[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
    size_t size = spry_dtype_bytes(type);
    if (type == SPRY_Q8_0) {
        load_q8_0(key, head, token, head_dim);
        return;
    }
    for (size_t d = 0; d < head_dim; d++)
        memcpy(floats + d * size, head + (d * SPRY_PAGE_TOKENS + token) * size, size);
    spry_ops_ref.decode[type](key, floats, head_dim);
}
