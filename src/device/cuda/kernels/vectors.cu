/* Rows of floats: embeddings, norms, gates, residual sums, angles, softcap. A block works on a row. */
#include "device/cuda/kernels/acts.cuh"
#include "device/cuda/kernels/tiles.cuh"

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

template <class T> SPRY_DEVICE void embed_row(const spry_embed_args &a)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    uint32_t token = (uint32_t)a.rows[blockIdx.x].token;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = tile_value(a.weight, token, i, (const T *)0) * a.scale;
}

#define EMBED(name)                                                                                                    \
    SPRY_KERNEL(spry_embed_##name, spry_embed_args, ROW_THREADS)                                                       \
    {                                                                                                                  \
        embed_row<type_##name>(a);                                                                                     \
    }
EMBED(q4_0)
EMBED(q4_1)
EMBED(q5_0)
EMBED(q5_1)
EMBED(q8_0)
EMBED(q4_k)
EMBED(q5_k)
EMBED(q6_k)
EMBED(mxfp4)
EMBED(f16)
EMBED(bf16)
EMBED(f32)

/* ---- activations ------------------------------------------------------------------------------------------------- */

SPRY_KERNEL(spry_encode, spry_encode_args, ROW_THREADS)
{
    int64_t row = a.source ? a.source[blockIdx.x] : (int64_t)blockIdx.x;
    if (row < 0)
        return;
    row_norm norm = {0, 1};
    if (a.weight)
        norm = norm_of(a.in + row * a.in_stride, a.n, a.eps, a.centre);
    uint32_t blocks = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT * 2;
    int lane = (int)(threadIdx.x % WARP);
    for (uint32_t block = threadIdx.x / WARP; block < blocks; block += blockDim.x / WARP) {
        uint32_t i = block * ACT_BLOCK + (uint32_t)lane;
        float value = encoded_value(a, (uint64_t)row, i, norm);
        write_forms(a.to, blockIdx.x, block, lane, value);
        if (a.plain && i < a.n)
            a.plain[(uint64_t)blockIdx.x * a.n + i] = value;
    }
}

SPRY_KERNEL(spry_residual, spry_residual_args, ROW_THREADS)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    const float *y = a.y + (uint64_t)blockIdx.x * a.n;
    row_norm norm = {0, 1};
    if (a.weight)
        norm = norm_of(y, a.n, a.eps, a.centre);
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float value = a.weight ? normalised(y[i], norm, a.weight, a.bias, i) : y[i];
        x[i] += a.scale == 1 ? value : value * a.scale;
    }
}

SPRY_KERNEL(spry_norm, spry_norm_args, ROW_THREADS)
{
    float *x = a.x + ((uint64_t)blockIdx.x * a.n_groups + blockIdx.y) * a.n;
    row_norm norm = norm_of(x, a.n, a.eps, a.centre);
    const float *weight = a.weight ? a.weight + (uint64_t)blockIdx.y * a.step : (const float *)0;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = normalised(x[i], norm, weight, (const float *)0, i);
}

SPRY_KERNEL(spry_softcap, spry_softcap_args, ROW_THREADS)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (uint64_t)gridDim.x * blockDim.x)
        a.x[i] = a.cap != 0 ? a.cap * tanhf(a.x[i] * a.scale / a.cap) : a.x[i] * a.scale;
}

/* ---- angles ------------------------------------------------------------------------------------------------------ */

/* Rows first, then turns: number 0 is no turn and has no angles. */
SPRY_KERNEL(spry_angles, spry_angles_args, ROW_THREADS)
{
    bool is_row = blockIdx.x < a.n_rows;
    uint32_t turn = is_row ? 0 : blockIdx.x - a.n_rows + 1;
    int32_t delta = is_row ? 0 : a.deltas[turn];
    uint32_t distance = is_row ? a.rows[blockIdx.x].position : (uint32_t)(delta < 0 ? -(int64_t)delta : delta);
    float *cosine = is_row ? a.cosine + (uint64_t)blockIdx.x * a.n_pairs : a.turn_cosine + (uint64_t)turn * a.n_pairs;
    float *sine = is_row ? a.sine + (uint64_t)blockIdx.x * a.n_pairs : a.turn_sine + (uint64_t)turn * a.n_pairs;
    float magnitude = is_row ? a.magnitude : 1;
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += blockDim.x) {
        float angle = (float)distance * a.frequencies[i];
        cosine[i] = cosf(angle) * magnitude;
        sine[i] = sinf(angle) * (delta > 0 ? -magnitude : magnitude);
    }
}
