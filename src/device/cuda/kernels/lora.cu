/* LoRA adapters: out[row] += scale * B (A in[row]) for every adapter that the row uses; rows of a step may use
 * different ones. Two kernels: spry_lora_shrink computes A in, grid (ranks / 8, rows / 8, part), a warp has a rank;
 * spry_lora_expand adds B times that, grid (outputs / 256, rows / 8, part), a thread has an output. An adapter is
 * read only if a row of the block uses it, and a row without adapters is not changed. Order of the sums: shrink by
 * lanes and a butterfly, expand adapter after adapter, rank after rank. */
#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/primitives.cuh"

enum { LORA_WARPS = SPRY_LORA_THREADS / WARP };

/* The adapters of the block's matrix; NULL: none. */
SPRY_DEVICE const spry_lora_pair *pairs_of(const spry_lora_args &a)
{
    const spry_lora_pair *pairs = a.parts[blockIdx.z].pairs;
    int32_t expert = a.experts ? a.experts[blockIdx.y * SPRY_LORA_ROWS / a.expert_rows] : 0;
    return pairs && expert >= 0 ? pairs + (uint64_t)expert * a.n_adapters : (const spry_lora_pair *)0;
}

/* The scales of an adapter for the block's rows; returns a bit for each row whose scale is not 0. */
SPRY_DEVICE uint32_t take_scales(float scales[SPRY_LORA_ROWS], const spry_lora_args &a, uint32_t adapter)
{
    uint32_t used = 0;
    SPRY_UNROLL
    for (uint32_t i = 0; i < SPRY_LORA_ROWS; i++) {
        uint32_t row = blockIdx.y * SPRY_LORA_ROWS + i;
        int32_t from = row >= a.n_rows ? -1 : a.source ? a.source[row] : (int32_t)row;
        scales[i] = from < 0 ? 0 : a.scales[(uint64_t)from * a.n_adapters + adapter];
        used |= scales[i] != 0 ? 1u << i : 0;
    }
    return used;
}

/* Address of the ranks of a row. */
SPRY_DEVICE float *shrunk_row(const spry_lora_args &a, uint32_t row)
{
    return a.shrunk + ((uint64_t)blockIdx.z * a.n_rows + row) * a.n_ranks;
}

/* A warp has a rank of an adapter, for all rows of the block. */
SPRY_KERNEL(spry_lora_shrink, spry_lora_args)
{
    const spry_lora_pair *pairs = pairs_of(a);
    uint32_t column = blockIdx.x * LORA_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, rank = column,
             adapter = 0;
    while (pairs && adapter < a.n_adapters && rank >= pairs[adapter].rank)
        rank -= pairs[adapter++].rank;
    if (!pairs || adapter == a.n_adapters)
        return;
    float scales[SPRY_LORA_ROWS], sums[SPRY_LORA_ROWS] = {0};
    uint32_t first = blockIdx.y * SPRY_LORA_ROWS, used = take_scales(scales, a, adapter);
    const float *weight = pairs[adapter].a + (uint64_t)rank * a.n_in, *in = a.in + (uint64_t)first * a.n_in;
    for (uint32_t k = lane; used && k < a.n_in; k += WARP) {
        float value = weight[k];
        SPRY_UNROLL
        for (uint32_t i = 0; i < SPRY_LORA_ROWS; i++)
            if (used >> i & 1)
                sums[i] = fmaf(value, in[(uint64_t)i * a.n_in + k], sums[i]);
    }
    SPRY_UNROLL
    for (uint32_t i = 0; i < SPRY_LORA_ROWS; i++) {
        float sum = warp_sum(sums[i]);
        if (lane == 0 && used >> i & 1)
            shrunk_row(a, first + i)[column] = sum;
    }
}

/* A thread has an output, for all rows of the block. */
SPRY_KERNEL(spry_lora_expand, spry_lora_args)
{
    const spry_lora_pair *pairs = pairs_of(a);
    const spry_lora_part &part = a.parts[blockIdx.z];
    uint32_t output = blockIdx.x * SPRY_LORA_THREADS + threadIdx.x, first = blockIdx.y * SPRY_LORA_ROWS;
    float scales[SPRY_LORA_ROWS], sums[SPRY_LORA_ROWS] = {0};
    uint32_t touched = 0, column = 0;
    if (!pairs || output >= part.n_out)
        return;
    for (uint32_t adapter = 0; adapter < a.n_adapters; column += pairs[adapter++].rank) {
        const spry_lora_pair pair = pairs[adapter];
        uint32_t used = pair.rank ? take_scales(scales, a, adapter) : 0;
        touched |= used;
        for (uint32_t rank = 0; used && rank < pair.rank; rank++) {
            float value = pair.b[(uint64_t)rank * part.n_out + output];
            SPRY_UNROLL
            for (uint32_t i = 0; i < SPRY_LORA_ROWS; i++)
                if (used >> i & 1)
                    sums[i] = fmaf(shrunk_row(a, first + i)[column + rank] * (scales[i] * pair.scale), value, sums[i]);
        }
    }
    SPRY_UNROLL
    for (uint32_t i = 0; i < SPRY_LORA_ROWS; i++)
        if (touched >> i & 1)
            part.out[(uint64_t)(first + i) * part.stride + output] += sums[i];
}
