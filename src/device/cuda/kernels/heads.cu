/* Operations of some models on the heads of queries, values and results, besides RoPE: copies between heads of
 * different sizes, gates, and a factor by position. A block owns a head of a row, or in spry_cool a row. */
#include "device/cuda/kernels/primitives.cuh"

#include "device/cuda/kernel_args.h"

SPRY_KERNEL(spry_copy_heads, spry_heads_args)
{
    uint64_t head = (uint64_t)blockIdx.x * gridDim.y + blockIdx.y;
    for (uint32_t i = threadIdx.x; i < a.out_dim; i += blockDim.x)
        a.out[head * a.out_dim + i] = i < a.n ? a.in[head * a.in_dim + a.first + i] * a.scale : 0;
}

SPRY_KERNEL(spry_gate_heads, spry_heads_args)
{
    uint64_t head = (uint64_t)blockIdx.x * gridDim.y + blockIdx.y;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        a.out[head * a.out_dim + i] /= 1 + expf(-a.in[head * a.in_dim + a.first + i]);
}

SPRY_KERNEL(spry_cool, spry_cool_args)
{
    uint64_t past = ((uint64_t)a.rows[blockIdx.x].position + a.offset) / a.length;
    float factor = 1 + a.scale * logf(1 + (float)past);
    for (uint32_t i = threadIdx.x; past && i < a.n; i += blockDim.x)
        a.q[(uint64_t)blockIdx.x * a.n + i] *= factor;
}
