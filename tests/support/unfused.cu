/* Reference attention in three kernels with results in global memory: scores of all queries and keys, softmax of each
 * row, probabilities times values. GEMMs with mma in tiles of 128 by 128 through shared memory; tiles that no query
 * sees are skipped. */
#include "support/unfused_args.h"

#include "device/cuda/kernels/primitives.cuh"

enum { A_STRIDE = UNFUSED_DEPTH + 8, V_STRIDE = UNFUSED_HEAD + 8 }; /* padding avoids bank conflicts */

/* Copies a tile of `rows` rows of `width` halves to shared memory, 16 bytes per thread at a time. */
template <int STRIDE>
SPRY_DEVICE void copy_tile(uint16_t *to, const uint16_t *from, uint64_t from_stride, uint32_t rows, uint32_t width)
{
    uint32_t pieces = width / 8;
    for (uint32_t i = threadIdx.x; i < rows * pieces; i += UNFUSED_THREADS)
        *(uint4 *)(to + i / pieces * STRIDE + i % pieces * 8) =
            *(const uint4 *)(from + i / pieces * from_stride + i % pieces * 8);
}

/* A lane's part of 16 rows and 16 columns as an a operand. */
SPRY_DEVICE uint4 take_rows(const uint16_t *tile, int step, int lane)
{
    const uint16_t *at = tile + lane / 4 * A_STRIDE + step * 16 + lane % 4 * 2;
    uint4 rows = {*(const uint32_t *)at, *(const uint32_t *)(at + 8 * A_STRIDE), *(const uint32_t *)(at + 8),
                  *(const uint32_t *)(at + 8 * A_STRIDE + 8)};
    return rows;
}

/* Grid: (tiles of keys, tiles of queries, heads); a warp has 16 queries. */
SPRY_KERNEL(unfused_scores, unfused_args)
{
    SPRY_SMEM uint4 queries_smem[UNFUSED_TILE * A_STRIDE / 8];
    SPRY_SMEM uint4 keys_smem[UNFUSED_TILE * A_STRIDE / 8];
    uint16_t *queries = (uint16_t *)queries_smem, *keys = (uint16_t *)keys_smem;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t first_key = blockIdx.x * UNFUSED_TILE, first_query = blockIdx.y * UNFUSED_TILE, head = blockIdx.z;
    uint32_t kv_head = head / (a.n_heads / a.n_kv_heads);
    const uint16_t *q = a.q + ((uint64_t)head * a.n + first_query) * UNFUSED_HEAD;
    const uint16_t *k = a.k + ((uint64_t)kv_head * a.n + first_key) * UNFUSED_HEAD;
    float sums[UNFUSED_TILE / 8][4];
    if (first_key > first_query)
        return;
    SPRY_UNROLL
    for (int i = 0; i < UNFUSED_TILE / 8; i++)
        sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    for (uint32_t d = 0; d < UNFUSED_HEAD; d += UNFUSED_DEPTH) {
        copy_tile<A_STRIDE>(queries, q + d, UNFUSED_HEAD, UNFUSED_TILE, UNFUSED_DEPTH);
        copy_tile<A_STRIDE>(keys, k + d, UNFUSED_HEAD, UNFUSED_TILE, UNFUSED_DEPTH);
        syncthreads();
        SPRY_UNROLL
        for (int step = 0; step < UNFUSED_DEPTH / 16; step++) {
            uint4 rows = take_rows(queries + warp * 16 * A_STRIDE, step, lane);
            SPRY_UNROLL
            for (int i = 0; i < UNFUSED_TILE / 8; i++) {
                const uint16_t *at = keys + (i * 8 + lane / 4) * A_STRIDE + step * 16 + lane % 4 * 2;
                mma_f16(sums[i], rows, *(const uint32_t *)at, *(const uint32_t *)(at + 8));
            }
        }
        syncthreads();
    }
    uint16_t *to = a.scores + ((uint64_t)head * a.n + first_query + (uint32_t)(warp * 16 + lane / 4)) * a.n + first_key;
    SPRY_UNROLL
    for (int i = 0; i < UNFUSED_TILE / 8; i++) {
        uint16_t *at = to + i * 8 + lane % 4 * 2;
        *(uint32_t *)at = pack_f16x2(sums[i][0] * a.scale, sums[i][1] * a.scale);
        *(uint32_t *)(at + 8 * (uint64_t)a.n) = pack_f16x2(sums[i][2] * a.scale, sums[i][3] * a.scale);
    }
}

SPRY_DEVICE float weight_of(float score)
{
    return ex2_approx(score * 1.44269504088896341f);
}

/* Grid: (queries, heads): scores become probabilities, and zeros up to the end of the query's tile. */
SPRY_KERNEL(unfused_softmax, unfused_args)
{
    SPRY_SMEM float smem[WARPS_MAX];
    uint32_t query = blockIdx.x, end = query / UNFUSED_TILE * UNFUSED_TILE + UNFUSED_TILE;
    uint16_t *row = a.scores + ((uint64_t)blockIdx.y * a.n + query) * a.n;
    float max = -INFINITY, sum = 0;
    for (uint32_t i = threadIdx.x * 2; i <= query; i += UNFUSED_THREADS * 2) {
        uint32_t pair = *(const uint32_t *)(row + i);
        max = fmaxf(max, float_of_half((uint16_t)pair));
        max = fmaxf(max, i < query ? float_of_half((uint16_t)(pair >> 16)) : -INFINITY);
    }
    max = block_max(max, smem);
    for (uint32_t i = threadIdx.x * 2; i <= query; i += UNFUSED_THREADS * 2) {
        uint32_t pair = *(const uint32_t *)(row + i);
        sum += weight_of(float_of_half((uint16_t)pair) - max);
        sum += i < query ? weight_of(float_of_half((uint16_t)(pair >> 16)) - max) : 0;
    }
    float factor = 1.0f / block_sum(sum, smem);
    for (uint32_t i = threadIdx.x * 2; i < end; i += UNFUSED_THREADS * 2) {
        uint32_t pair = *(const uint32_t *)(row + i);
        float low = i <= query ? weight_of(float_of_half((uint16_t)pair) - max) * factor : 0;
        float high = i < query ? weight_of(float_of_half((uint16_t)(pair >> 16)) - max) * factor : 0;
        *(uint32_t *)(row + i) = pack_f16x2(low, high);
    }
}

/* Grid: (tiles of queries, heads), the last tile first; a warp has 16 queries and all values of the head. */
SPRY_KERNEL(unfused_values, unfused_args)
{
    SPRY_SMEM uint4 weights_smem[UNFUSED_TILE * A_STRIDE / 8];
    SPRY_SMEM uint4 values_smem[UNFUSED_DEPTH * V_STRIDE / 8];
    uint16_t *weights = (uint16_t *)weights_smem, *values = (uint16_t *)values_smem;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    uint32_t first_query = (gridDim.x - 1 - blockIdx.x) * UNFUSED_TILE, head = blockIdx.y;
    const uint16_t *w = a.scores + ((uint64_t)head * a.n + first_query) * a.n;
    const uint16_t *v = a.v + (uint64_t)(head / (a.n_heads / a.n_kv_heads)) * a.n * UNFUSED_HEAD;
    float sums[UNFUSED_HEAD / 8][4];
    SPRY_UNROLL
    for (int i = 0; i < UNFUSED_HEAD / 8; i++)
        sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    for (uint32_t token = 0; token < first_query + UNFUSED_TILE; token += UNFUSED_DEPTH) {
        copy_tile<A_STRIDE>(weights, w + token, a.n, UNFUSED_TILE, UNFUSED_DEPTH);
        copy_tile<V_STRIDE>(values, v + (uint64_t)token * UNFUSED_HEAD, UNFUSED_HEAD, UNFUSED_DEPTH, UNFUSED_HEAD);
        syncthreads();
        SPRY_UNROLL
        for (int step = 0; step < UNFUSED_DEPTH / 16; step++) {
            uint4 rows = take_rows(weights + warp * 16 * A_STRIDE, step, lane);
            SPRY_UNROLL
            for (int pair = 0; pair < UNFUSED_HEAD / 16; pair++) {
                uint32_t transposed[4];
                ldmatrix_trans(transposed, values + (step * 16 + lane / 8 % 2 * 8 + lane % 8) * V_STRIDE +
                                               (pair * 2 + lane / 16) * 8);
                mma_f16(sums[pair * 2], rows, transposed[0], transposed[1]);
                mma_f16(sums[pair * 2 + 1], rows, transposed[2], transposed[3]);
            }
        }
        syncthreads();
    }
    uint64_t stride = (uint64_t)a.n_heads * UNFUSED_HEAD;
    float *to = a.out + (first_query + (uint32_t)(warp * 16 + lane / 4)) * stride + head * UNFUSED_HEAD + lane % 4 * 2;
    SPRY_UNROLL
    for (int i = 0; i < UNFUSED_HEAD / 8; i++) {
        const float2 upper = {sums[i][0], sums[i][1]}, lower = {sums[i][2], sums[i][3]};
        *(float2 *)(to + i * 8) = upper;
        *(float2 *)(to + 8 * stride + i * 8) = lower;
    }
}
