/* Stores and loads one key or value. Only this file and the attention kernels depend on the transposed layout. */
#include "kernels/kv_layout.h"

#include <math.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"

void spry_kv_rotate(float *x, size_t n)
{
    size_t block = n & (~n + 1);
    float scale = 1 / sqrtf((float)block);
    for (size_t half = 1; half < block; half *= 2)
        for (size_t at = 0; at < n; at += 2 * half)
            for (size_t i = at; i < at + half; i++) {
                float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

void spry_kv_encode_rotated(const spry_ops *ops, void *out, float *x, size_t n)
{
    spry_kv_rotate(x, n);
    ops->encode[SPRY_Q4_0](out, x, n);
    for (size_t at = 0; at < n; at += SPRY_BLOCK_SMALL) {
        unsigned char *bytes = (unsigned char *)out + at / SPRY_BLOCK_SMALL * sizeof(spry_block_q4_0);
        float rounded[SPRY_BLOCK_SMALL], length = 0, product = 0;
        spry_half scale;
        spry_ops_ref.decode[SPRY_Q4_0](rounded, bytes, SPRY_BLOCK_SMALL);
        for (size_t i = 0; i < SPRY_BLOCK_SMALL; i++) {
            length += x[at + i] * x[at + i];
            product += x[at + i] * rounded[i];
        }
        memcpy(&scale, bytes, sizeof scale);
        float wanted = spry_f16_decode(scale) * (length / product);
        if (product > 0 && fabsf(wanted) <= 65504) {
            scale = spry_f16_encode(wanted);
            memcpy(bytes, &scale, sizeof scale);
        }
    }
}

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

static void store_q4_0(const spry_block_q4_0 *from, unsigned char *head, size_t token, size_t head_dim)
{
    enum { HALF = SPRY_BLOCK_SMALL / 2 };
    unsigned char *scales = head + head_dim / 2 * SPRY_PAGE_TOKENS;
    for (size_t b = 0; b < head_dim / SPRY_BLOCK_SMALL; b++) {
        for (size_t i = 0; i < HALF; i++)
            head[(b * HALF + i) * SPRY_PAGE_TOKENS + token] = from[b].low[i];
        memcpy(scales + (b * SPRY_PAGE_TOKENS + token) * sizeof(spry_half), &from[b].scale, sizeof(spry_half));
    }
}

void spry_kv_store_key(const spry_ops *ops, spry_dtype type, unsigned char *head, size_t token, const float *key,
                       size_t head_dim)
{
    union {
        unsigned char floats[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
        spry_block_q8_0 q8_0[SPRY_ATTEND_HEAD_DIM_MAX / SPRY_BLOCK_SMALL];
        spry_block_q4_0 q4_0[SPRY_ATTEND_HEAD_DIM_MAX / SPRY_BLOCK_SMALL];
    } encoded;
    float rotated[SPRY_ATTEND_HEAD_DIM_MAX];
    if (type == SPRY_Q4_0) {
        memcpy(rotated, key, head_dim * sizeof *key);
        spry_kv_encode_rotated(ops, &encoded, rotated, head_dim);
        store_q4_0(encoded.q4_0, head, token, head_dim);
        return;
    }
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

static void load_q4_0(float *key, const unsigned char *head, size_t token, size_t head_dim)
{
    enum { HALF = SPRY_BLOCK_SMALL / 2 };
    const unsigned char *scales = head + head_dim / 2 * SPRY_PAGE_TOKENS;
    for (size_t b = 0; b < head_dim / SPRY_BLOCK_SMALL; b++) {
        spry_block_q4_0 block;
        memcpy(&block.scale, scales + (b * SPRY_PAGE_TOKENS + token) * sizeof block.scale, sizeof block.scale);
        for (size_t i = 0; i < HALF; i++)
            block.low[i] = head[(b * HALF + i) * SPRY_PAGE_TOKENS + token];
        spry_ops_ref.decode[SPRY_Q4_0](key + b * SPRY_BLOCK_SMALL, &block, SPRY_BLOCK_SMALL);
    }
    spry_kv_rotate(key, head_dim);
}

void spry_kv_load_key(spry_dtype type, float *key, const unsigned char *head, size_t token, size_t head_dim)
{
    unsigned char floats[SPRY_ATTEND_HEAD_DIM_MAX * sizeof(float)];
    size_t size = spry_dtype_bytes(type);
    if (type == SPRY_Q8_0) {
        load_q8_0(key, head, token, head_dim);
        return;
    }
    if (type == SPRY_Q4_0) {
        load_q4_0(key, head, token, head_dim);
        return;
    }
    for (size_t d = 0; d < head_dim; d++)
        memcpy(floats + d * size, head + (d * SPRY_PAGE_TOKENS + token) * size, size);
    spry_ops_ref.decode[type](key, floats, head_dim);
}

void spry_kv_store_value(const spry_ops *ops, spry_dtype type, unsigned char *out, const float *value, size_t head_dim)
{
    float rotated[SPRY_ATTEND_HEAD_DIM_MAX];
    if (type == SPRY_Q4_0) {
        memcpy(rotated, value, head_dim * sizeof *value);
        spry_kv_encode_rotated(ops, out, rotated, head_dim);
        return;
    }
    ops->encode[type](out, value, head_dim);
}

void spry_kv_load_value(spry_dtype type, float *value, const unsigned char *in, size_t head_dim)
{
    spry_ops_ref.decode[type](value, in, head_dim);
    if (type == SPRY_Q4_0)
        spry_kv_rotate(value, head_dim);
}
