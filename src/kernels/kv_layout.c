/* Stores and loads one key. Only this file and the attention kernels depend on the transposed layout. */
#include "kernels/kv_layout.h"

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/half.h"

static void store_f16(const uint16_t *from, unsigned char *head, size_t token, size_t head_dim)
{
    for (size_t d = 0; d < head_dim; d++)
        memcpy(head + (d * SPRY_PAGE_TOKENS + token) * sizeof *from, &from[d], sizeof *from);
}

static void store_f32(const float *from, unsigned char *head, size_t token, size_t head_dim)
{
    for (size_t d = 0; d < head_dim; d++)
        memcpy(head + (d * SPRY_PAGE_TOKENS + token) * sizeof *from, &from[d], sizeof *from);
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
        uint16_t f16[SPRY_ATTEND_HEAD_DIM_MAX];
        spry_block_q8_0 q8_0[SPRY_ATTEND_HEAD_DIM_MAX / SPRY_BLOCK_SMALL];
    } encoded;
    if (type == SPRY_F32) {
        store_f32(key, head, token, head_dim);
        return;
    }
    ops->encode[type](&encoded, key, head_dim);
    if (type == SPRY_F16)
        store_f16(encoded.f16, head, token, head_dim);
    else
        store_q8_0(encoded.q8_0, head, token, head_dim);
}

void spry_kv_load_key(spry_dtype type, float *key, const unsigned char *head, size_t token, size_t head_dim)
{
    const unsigned char *scales = head + head_dim * SPRY_PAGE_TOKENS;
    for (size_t d = 0; d < head_dim; d++) {
        size_t at = d * SPRY_PAGE_TOKENS + token;
        uint16_t half;
        if (type == SPRY_F32) {
            memcpy(&key[d], head + at * sizeof(float), sizeof(float));
        } else if (type == SPRY_F16) {
            memcpy(&half, head + at * sizeof half, sizeof half);
            key[d] = spry_f16_decode(half);
        } else {
            memcpy(&half, scales + (d / SPRY_BLOCK_SMALL * SPRY_PAGE_TOKENS + token) * sizeof half, sizeof half);
            key[d] = spry_f16_decode(half) * (float)(int8_t)head[at];
        }
    }
}
