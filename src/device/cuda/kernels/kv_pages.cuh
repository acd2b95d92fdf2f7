/* Keys and values in pages of 32 tokens, as kernels/kv_layout.h lays them out: keys transposed, [coordinate, token],
 * values [token, coordinate]; each type of SPRY_KV_TYPES has a struct kv_NAME and overloads of the functions below.
 * Also RoPE and head norms of the rows that go into pages. */
#pragma once

#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/primitives.cuh"
#include "kernels/blocks.h"

enum { PAGE_TOKENS = 32, HEAD_DIM_MAX = 512, Q8_BLOCK = sizeof(spry_block_q8_0) };

struct kv_f16 {
};
struct kv_f32 {
};
struct kv_q8_0 {
};

/* Keys and values of a head in a page. */
struct page_head {
    unsigned char *keys, *values;
};

SPRY_DEVICE page_head head_of_page(const spry_kv_pages &kv, uint32_t page, uint32_t head)
{
    unsigned char *at = kv.pages + page * kv.page_bytes + (uint64_t)head * kv.head_bytes;
    page_head p = {at + kv.key_offset, at + kv.value_offset};
    return p;
}

SPRY_DEVICE float load_key(const unsigned char *keys, uint32_t d, uint32_t token, uint32_t, kv_f16)
{
    return float_of_half(((const uint16_t *)keys)[d * PAGE_TOKENS + token]);
}

SPRY_DEVICE float load_key(const unsigned char *keys, uint32_t d, uint32_t token, uint32_t, kv_f32)
{
    return ((const float *)keys)[d * PAGE_TOKENS + token];
}

SPRY_DEVICE float load_key(const unsigned char *keys, uint32_t d, uint32_t token, uint32_t head_dim, kv_q8_0)
{
    const uint16_t *scales = (const uint16_t *)(keys + head_dim * PAGE_TOKENS);
    return float_of_half(scales[d / 32 * PAGE_TOKENS + token]) * (float)(int8_t)keys[d * PAGE_TOKENS + token];
}

/* `token`: the address of the token's values. */
SPRY_DEVICE float load_value(const unsigned char *token, uint32_t d, kv_f16)
{
    return float_of_half(((const uint16_t *)token)[d]);
}

SPRY_DEVICE float load_value(const unsigned char *token, uint32_t d, kv_f32)
{
    return ((const float *)token)[d];
}

SPRY_DEVICE float load_value(const unsigned char *token, uint32_t d, kv_q8_0)
{
    const unsigned char *block = token + d / 32 * Q8_BLOCK;
    return float_of_half(*(const uint16_t *)block) * (float)(int8_t)block[2 + d % 32];
}

/* Stores one coordinate of a key. Neighbouring threads store neighbouring tokens, which are contiguous. Q8_0 needs a
 * scale for 32 coordinates: see store_key_blocks. */
SPRY_DEVICE void store_coordinate(unsigned char *keys, uint32_t token, uint32_t d, float value, kv_f16)
{
    ((uint16_t *)keys)[d * PAGE_TOKENS + token] = half_of_float(value);
}

SPRY_DEVICE void store_coordinate(unsigned char *keys, uint32_t token, uint32_t d, float value, kv_f32)
{
    ((float *)keys)[d * PAGE_TOKENS + token] = value;
}

SPRY_DEVICE void store_coordinate(unsigned char *, uint32_t, uint32_t, float, kv_q8_0)
{
}

/* Quantises 32 values, one per lane; returns the lane's quant and the common scale, as ref/encode_ref.c does. */
SPRY_DEVICE int8_t quant_q8_0(float value, uint16_t *scale)
{
    value = value == value ? fminf(fmaxf(value, -0x1p23f), 0x1p23f) : 0;
    float extreme = warp_max(fabsf(value));
    *scale = half_of_float(fminf(extreme / 127, 65504.0f));
    if (extreme > 127.5f * float_of_half(*scale) && *scale < 0x7bff)
        ++*scale;
    float step = float_of_half(*scale), inverse = step != 0 ? 1 / step : 0;
    return (int8_t)rintf(fmaxf(fminf(value * inverse, 127.0f), -127.0f));
}

/* A warp stores a head of one token; a lane has head[lane], head[lane + 32], ... */
template <class KV> SPRY_DEVICE void store_key_blocks(unsigned char *, uint32_t, const float *, uint32_t, int, KV)
{
}

SPRY_DEVICE void store_key_blocks(unsigned char *keys, uint32_t token, const float *head, uint32_t head_dim, int lane,
                                  kv_q8_0)
{
    uint16_t *scales = (uint16_t *)(keys + head_dim * PAGE_TOKENS), scale;
    for (uint32_t d = (uint32_t)lane; d < head_dim; d += WARP) {
        keys[d * PAGE_TOKENS + token] = (unsigned char)quant_q8_0(head[d], &scale);
        if (lane == 0)
            scales[d / 32 * PAGE_TOKENS + token] = scale;
    }
}

/* A block stores the keys of at most SPRY_ROPE_KV_ROWS rows, which are head_dim + 1 floats apart. */
template <class KV>
SPRY_DEVICE void store_keys(const spry_kv_pages &kv, uint32_t kv_head, const spry_step_row *rows, uint32_t n_rows,
                            const float *heads, KV)
{
    uint32_t own = threadIdx.x % SPRY_ROPE_KV_ROWS, n = kv.head_dim;
    if (own >= n_rows)
        return;
    unsigned char *keys = head_of_page(kv, rows[own].page, kv_head).keys;
    for (uint32_t d = threadIdx.x / SPRY_ROPE_KV_ROWS; d < n; d += SPRY_ROPE_KV_THREADS / SPRY_ROPE_KV_ROWS)
        store_coordinate(keys, rows[own].slot, d, heads[own * (n + 1) + d], KV());
}

SPRY_DEVICE void store_value(unsigned char *token, const float *head, uint32_t head_dim, int lane, kv_f16)
{
    for (uint32_t d = (uint32_t)lane; d < head_dim; d += WARP)
        ((uint16_t *)token)[d] = half_of_float(head[d]);
}

SPRY_DEVICE void store_value(unsigned char *token, const float *head, uint32_t head_dim, int lane, kv_f32)
{
    for (uint32_t d = (uint32_t)lane; d < head_dim; d += WARP)
        ((float *)token)[d] = head[d];
}

SPRY_DEVICE void store_value(unsigned char *token, const float *head, uint32_t head_dim, int lane, kv_q8_0)
{
    uint16_t scale;
    for (uint32_t d = (uint32_t)lane; d < head_dim; d += WARP) {
        token[d / 32 * Q8_BLOCK + 2 + (uint32_t)lane] = (unsigned char)quant_q8_0(head[d], &scale);
        if (lane == 0)
            *(uint16_t *)(token + d / 32 * Q8_BLOCK) = scale;
    }
}

/* Applies RoPE to a head in place; a warp, one pair per lane at a time. */
SPRY_DEVICE void rotate_head(float *head, const float *cosine, const float *sine, uint32_t n_pairs,
                             uint32_t interleaved, int lane)
{
    for (uint32_t i = (uint32_t)lane; i < n_pairs; i += WARP) {
        uint32_t first = interleaved ? 2 * i : i, second = interleaved ? first + 1 : i + n_pairs;
        float x = head[first], y = head[second];
        head[first] = x * cosine[i] - y * sine[i];
        head[second] = x * sine[i] + y * cosine[i];
    }
}

/* The first position that a row sees. */
SPRY_DEVICE uint32_t first_seen(const spry_attend_args &a, uint32_t position)
{
    if (a.block)
        return position / a.block * a.block;
    return a.window && position >= a.window ? position + 1 - a.window : 0;
}

SPRY_DEVICE void normalise_head(float *head, const float *weight, uint32_t n, float eps, int lane)
{
    float sum = 0;
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        sum = fmaf(head[d], head[d], sum);
    float scale = inverse_rms(warp_sum(sum), n, eps);
    for (uint32_t d = (uint32_t)lane; d < n; d += WARP)
        head[d] = head[d] * scale * weight[d];
}

/* Loads a head of a row into shared memory, normalised if there is a norm, and with RoPE if `rotates`. A warp. */
SPRY_DEVICE void load_rotated_head(float *head, const float *from, const float *norm, bool rotates,
                                   const spry_rope_kv_args &a, uint32_t row, int lane)
{
    for (uint32_t d = (uint32_t)lane; d < a.kv.head_dim; d += WARP)
        head[d] = from[d];
    if (norm)
        normalise_head(head, norm, a.kv.head_dim, a.eps, lane);
    syncwarp();
    if (rotates)
        rotate_head(head, a.cosine + (uint64_t)row * a.n_pairs, a.sine + (uint64_t)row * a.n_pairs, a.n_pairs,
                    a.interleaved, lane);
    syncwarp();
}

/* load_rotated_head in registers, with all loads at once, for a head of BLOCKS * 32 coordinates that RoPE rotates
 * fully; a lane has coordinates lane + 32 k. NEIGHBOURS: RoPE pairs neighbours, not the two halves of a head. */
template <int BLOCKS, bool NORM, bool NEIGHBOURS>
SPRY_DEVICE void load_rotated_full(float v[BLOCKS], const float *from, const float *norm, bool rotates,
                                   const spry_rope_kv_args &a, uint32_t row, int lane)
{
    enum { HALF = BLOCKS / 2, PAIRS = NEIGHBOURS ? BLOCKS : BLOCKS / 2 };
    float weight[BLOCKS], cosine[PAIRS], sine[PAIRS], sum = 0;
    const float *cosines = a.cosine + (uint64_t)row * a.n_pairs, *sines = a.sine + (uint64_t)row * a.n_pairs;
    SPRY_UNROLL
    for (int k = 0; k < BLOCKS; k++) {
        v[k] = from[lane + k * WARP];
        weight[k] = NORM && rotates ? norm[lane + k * WARP] : 1;
    }
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        int i = (lane + k * WARP) / (NEIGHBOURS ? 2 : 1);
        cosine[k] = rotates ? cosines[i] : 1;
        sine[k] = rotates ? sines[i] : 0;
    }
    if (!rotates)
        return;
    if (NORM) {
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            sum = fmaf(v[k], v[k], sum);
        float scale = inverse_rms(warp_sum(sum), BLOCKS * WARP, a.eps);
        SPRY_UNROLL
        for (int k = 0; k < BLOCKS; k++)
            v[k] = v[k] * scale * weight[k];
    }
    SPRY_UNROLL
    for (int k = 0; k < PAIRS; k++) {
        float other = NEIGHBOURS ? warp_shfl_xor(v[k], 1) : v[(k + HALF) % BLOCKS];
        float x = NEIGHBOURS && lane % 2 ? other : v[k], y = NEIGHBOURS && lane % 2 ? v[k] : other;
        float first = x * cosine[k] - y * sine[k], second = x * sine[k] + y * cosine[k];
        v[k] = NEIGHBOURS && lane % 2 ? second : first;
        if (!NEIGHBOURS)
            v[(k + HALF) % BLOCKS] = second;
    }
}
