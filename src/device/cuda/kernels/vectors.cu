/* Rows of floats: embeddings, norms, gates, residual sums, angles, softcap. A block works on a row. */
#include "device/cuda/kernels/acts.cuh"
#include "device/cuda/kernels/tiles.cuh"

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

template <class T> SPRY_DEVICE void embed_row(const spry_embed_args &a)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    const spry_step_row &row = a.rows[blockIdx.x];
    uint32_t number = a.by == SPRY_EMBED_TOKEN ? (uint32_t)row.token : a.by == SPRY_EMBED_POSITION ? row.position : 0;
    number += a.offset;
    number = number < a.weight.n_out ? number : 0; /* Gemma 3n's table of layers knows fewer tokens */
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float value = tile_value(a.weight, number, i, (const T *)0) * a.scale;
        x[i] = a.add ? x[i] + value : value;
    }
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

/* Eight values of a row, as a thread has them: piece i of the row's, in the order of multiply_cores. */
struct row_piece {
    float v[8];

    SPRY_METHOD void load(const spry_encode_args &a, uint32_t i, row_norm norm)
    {
        SPRY_UNROLL
        for (int half = 0; half < 2; half++) {
            uint32_t at = i * 8 + (uint32_t)half * 4;
            uint64_t from = (uint64_t)blockIdx.x * a.in_stride + at;
            float4 in = {0, 0, 0, 0}, up = {1, 1, 1, 1};
            if (at < a.n)
                in = *(const float4 *)(a.in + from);
            if (at < a.n && a.up)
                up = *(const float4 *)(a.up + from);
            const float ins[4] = {in.x, in.y, in.z, in.w}, ups[4] = {up.x, up.y, up.z, up.w};
            SPRY_UNROLL
            for (int k = 0; k < 4; k++)
                v[half * 4 + k] = at < a.n ? encoded_of(a, ins[k], ups[k], at + (uint32_t)k, norm) : 0;
        }
    }

    template <int TERMS> SPRY_METHOD void write_terms(const spry_acts &to, uint32_t i) const
    {
        uint64_t unit = (uint64_t)(i / 8) * to.cores + blockIdx.x / SPRY_ACT_ROWS;
        uint4 *words = (uint4 *)to.values + unit * TERMS * 64 + i % 8 * 8 + blockIdx.x % SPRY_ACT_ROWS;
        float rest[8];
        SPRY_UNROLL
        for (int k = 0; k < 8; k++)
            rest[k] = v[k];
        SPRY_UNROLL
        for (int term = 0; term < TERMS; term++) {
            uint4 word = {take_bf16(&rest[0], &rest[1]), take_bf16(&rest[2], &rest[3]), take_bf16(&rest[4], &rest[5]),
                          take_bf16(&rest[6], &rest[7])};
            words[term * 64] = word;
        }
    }

    /* The four lanes of a block of 32 have one scale. */
    SPRY_METHOD void write_bytes(const spry_acts &to, uint32_t i, bool there) const
    {
        float2 scale;
        uint2 bytes = encode_eight(&scale, v);
        if (!there)
            return;
        uint64_t unit = (uint64_t)(i / 8) * to.cores + blockIdx.x / SPRY_ACT_ROWS;
        uint32_t row = blockIdx.x % SPRY_ACT_ROWS;
        *(uint2 *)(to.values + (unit * 4 + i % 8 / 2) * 128 + row * 16 + i % 2 * 8) = bytes;
        if (i % 4 == 0)
            ((float2 *)to.scales)[(unit * 2 + i % 8 / 4) * SPRY_ACT_ROWS + row] = scale;
    }
};

/* The same for many rows of whole pieces, all in the order of multiply_cores; nothing else is written. */
SPRY_KERNEL(spry_encode_cores, spry_encode_args, ROW_THREADS)
{
    row_norm norm = {0, 1};
    if (a.weight)
        norm = norm_of(a.in + (uint64_t)blockIdx.x * a.in_stride, a.n, a.eps, a.centre);
    uint32_t pieces = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT * 8, lane = threadIdx.x % WARP;
    for (uint32_t first = threadIdx.x - lane; first < pieces; first += ROW_THREADS) {
        row_piece piece;
        bool there = first + lane < pieces;
        piece.load(a, first + lane, norm);
        if (a.to[SPRY_ACT_ONE].values && there)
            piece.write_terms<1>(a.to[SPRY_ACT_ONE], first + lane);
        if (a.to[SPRY_ACT_TWO].values && there)
            piece.write_terms<2>(a.to[SPRY_ACT_TWO], first + lane);
        if (a.to[SPRY_ACT_BYTES].values)
            piece.write_bytes(a.to[SPRY_ACT_BYTES], first + lane, there);
    }
}

SPRY_KERNEL(spry_residual, spry_residual_args, ROW_THREADS)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    const float *y = a.y + (uint64_t)blockIdx.x * a.n;
    row_norm norm = {0, 1};
    bool first = a.weight && !a.of_sum, last = a.weight && a.of_sum;
    if (first)
        norm = norm_of(y, a.n, a.eps, a.centre);
    for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS) {
        float value = first ? normalised(y[i], norm, a.weight, a.bias, i) : y[i];
        x[i] += a.scale == 1 ? value : value * a.scale;
    }
    if (last) /* each thread reads what it wrote */
        norm = norm_of(x, a.n, a.eps, a.centre);
    for (uint32_t i = threadIdx.x; last && i < a.n; i += ROW_THREADS)
        x[i] = normalised(x[i], norm, a.weight, a.bias, i);
}

SPRY_KERNEL(spry_norm, spry_norm_args, ROW_THREADS)
{
    float *x = a.x + ((uint64_t)blockIdx.x * a.n_groups + blockIdx.y) * a.n;
    row_norm norm = norm_of(x, a.n, a.eps, a.centre);
    const float *weight = a.weight ? a.weight + (uint64_t)blockIdx.y * a.step : (const float *)0;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = normalised(x[i], norm, weight, a.bias, i);
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
