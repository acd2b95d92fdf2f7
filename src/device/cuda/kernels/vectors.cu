/* Kernels over rows of floats: embedding, activation quantisation, norms, residual sums, RoPE angles, softcap,
 * Whisper's positions, and drawn tokens for the next step. Grid: one block per row unless noted, 256 threads. All
 * architectures. */
#include "device/cuda/kernels/activations.cuh"
#include "device/cuda/kernels/weight_tiles.cuh"

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

template <class T> SPRY_DEVICE void embed_row(const spry_embed_args &a)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    const spry_step_row &row = a.rows[blockIdx.x];
    uint32_t number = a.by == SPRY_EMBED_TOKEN      ? (uint32_t)row.token
                      : a.by == SPRY_EMBED_POSITION ? row.position
                                                    : row.type;
    number += a.offset;
    number = number < a.weight.n_out ? number : 0; /* Gemma 3n's per-layer table has fewer tokens */
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float value = tile_value(a.weight, number, i, (const T *)0) * a.scale;
        x[i] = a.add ? x[i] + value : value;
    }
}

#define EMBED(name, ...)                                                                                               \
    SPRY_KERNEL(spry_embed_##name, spry_embed_args)                                                                    \
    {                                                                                                                  \
        embed_row<type_##name>(a);                                                                                     \
    }
SPRY_FLOAT_TYPES(EMBED)
SPRY_QUANT_FORMS(EMBED)

/* ---- activations ------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 4 }; /* units, or blocks of 32 values, that a warp loads together */

/* A block computes 1 / rms of the row, which the product applies to its sums. In the wgmma layout it stores sums of
 * squares instead. */
SPRY_DEVICE float row_scale(const float *in, const spry_quantise_args &a)
{
    SPRY_SMEM float splits[ACT_SPLITS];
    uint32_t lane = threadIdx.x % WARP, n_units = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT;
    syncthreads(); /* other threads may still read the previous values */
    for (uint32_t split = threadIdx.x / WARP; split < ACT_SPLITS; split += blockDim.x / WARP) {
        uint32_t end = split_begin(n_units, split + 1);
        float sum = 0;
        for (uint32_t first = split_begin(n_units, split); first < end; first += AT_ONCE) {
            float low[AT_ONCE], high[AT_ONCE];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                uint32_t at = (first + i) * SPRY_TILE_UNIT + lane * 2;
                low[i] = first + i < end && at < a.n ? in[at] : 0;
                high[i] = first + i < end && at + 1 < a.n ? in[at + 1] : 0;
            }
            SPRY_UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                if (first + i >= end)
                    break;
                float squares = unit_sum(low[i] * low[i] + high[i] * high[i]);
                sum += squares;
                if (lane == 0)
                    store_squares(a.to, blockIdx.x, first + i, squares);
            }
        }
        if (lane == 0)
            splits[split] = sum;
    }
    syncthreads();
    return norm_of_splits(splits, 1, a.n, a.eps);
}

SPRY_KERNEL(spry_quantise, spry_quantise_args)
{
    int64_t row = a.source ? a.source[blockIdx.x] : (int64_t)blockIdx.x;
    if (row < 0)
        return;
    row_norm norm = {0, 1};
    float scale = 1;
    if (normalises_first(a))
        norm = norm_of(a.in + row * a.in_stride, a.n, a.eps, a.centre);
    else if (a.weight)
        scale = row_scale(a.in + row * a.in_stride, a);
    uint32_t blocks = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT * 2;
    int lane = (int)(threadIdx.x % WARP);
    if (threadIdx.x == 0)
        store_norms(a.to, blockIdx.x, scale);
    uint32_t warps = blockDim.x / WARP;
    for (uint32_t first = threadIdx.x / WARP; first < blocks; first += AT_ONCE * warps) {
        float values[AT_ONCE];
        SPRY_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++)
            values[k] = first + k * warps < blocks
                            ? activation_at(a, (uint64_t)row, (first + k * warps) * ACT_BLOCK + (uint32_t)lane, norm)
                            : 0;
        SPRY_UNROLL
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            uint32_t block = first + k * warps, i = block * ACT_BLOCK + (uint32_t)lane;
            if (block >= blocks)
                break;
            store_activations(a.to, blockIdx.x, block, lane, values[k]);
            if (a.plain && i < a.n)
                a.plain[(uint64_t)blockIdx.x * a.n + i] = values[k] * scale;
        }
    }
}

/* Quantises activations into the wgmma layout and stores nothing else; rows are not normalised first and have a
 * multiple of 8 values. Grid: (rows / 8, units / 4); a warp quantises 8 rows by one unit (64 inputs). */
SPRY_KERNEL(spry_quantise_wgmma, spry_quantise_args)
{
    uint32_t unit = blockIdx.y * SPRY_QUANTISE_WGMMA_UNITS + threadIdx.x / WARP;
    int lane = (int)(threadIdx.x % WARP);
    uint32_t row = blockIdx.x * SPRY_ACT_ROWS + (uint32_t)lane % SPRY_ACT_ROWS;
    wgmma_fragment pieces, weight;
    if (unit * SPRY_TILE_UNIT >= a.n)
        return;
    pieces.load(a.in + (uint64_t)row * a.in_stride, a.n, unit * SPRY_TILE_UNIT, lane, row < a.n_rows);
    if (a.up || a.ungated) {
        pieces.gate(a, row, unit, lane);
    } else if (a.weight) {
        weight.load(a.weight, a.n, unit * SPRY_TILE_UNIT, lane, true);
        pieces.scale_by_weight(weight, a.to, blockIdx.x, unit, lane);
    }
    pieces.of[0].write(a.to, blockIdx.x, unit, 0, lane);
    pieces.of[1].write(a.to, blockIdx.x, unit, 1, lane);
}

SPRY_KERNEL(spry_residual, spry_residual_args)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    const float *y = a.y + (uint64_t)blockIdx.x * a.n;
    row_norm norm = {0, 1};
    bool first = a.weight && !a.of_sum, last = a.weight && a.of_sum;
    if (first)
        norm = norm_of(y, a.n, a.eps, a.centre);
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS) {
        float value = first ? normalised(y[i], norm, a.weight, a.bias, i) : y[i];
        value *= a.factors ? a.factors[i] : 1;
        x[i] += a.scale == 1 ? value : value * a.scale;
    }
    if (last) /* a thread reads only what it has written itself */
        norm = norm_of(x, a.n, a.eps, a.centre);
    for (uint32_t i = threadIdx.x; last && i < a.n; i += SPRY_ROW_THREADS)
        x[i] = normalised(x[i], norm, a.weight, a.bias, i);
    for (uint32_t i = threadIdx.x; a.sum_scale != 0 && i < a.n; i += SPRY_ROW_THREADS)
        x[i] *= a.sum_scale;
}

SPRY_KERNEL(spry_scale_rows, spry_scale_args)
{
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        a.x[blockIdx.x * a.stride + i] *= a.scale;
}

SPRY_KERNEL(spry_limit_rows, spry_limit_args)
{
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        a.out[blockIdx.x * a.stride + i] = fminf(fmaxf(a.in[blockIdx.x * a.in_stride + i], a.least), a.most);
}

SPRY_KERNEL(spry_gate_rows, spry_gate_args)
{
    uint64_t row = (uint64_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += SPRY_ROW_THREADS)
        a.x[row + i] = gated(a.gate[row + i], a.x[row + i], a.kind);
}

SPRY_KERNEL(spry_norm, spry_norm_args)
{
    float *x = a.x + ((uint64_t)blockIdx.x * a.n_groups + blockIdx.y) * a.n;
    row_norm norm = norm_of(x, a.n, a.eps, a.centre);
    const float *weight = a.weight ? a.weight + (uint64_t)blockIdx.y * a.step : (const float *)0;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = normalised(x[i], norm, weight, a.bias, i);
}

SPRY_KERNEL(spry_softcap, spry_softcap_args)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (uint64_t)gridDim.x * blockDim.x)
        a.x[i] = a.cap != 0 ? a.cap * tanhf(a.x[i] * a.scale / a.cap) : a.x[i] * a.scale;
}

/* ---- RoPE angles ------------------------------------------------------------------------------------------------- */

/* Grid: rows, then rotations of pages; rotation 0 is none and has no angles. */
SPRY_KERNEL(spry_rope_angles, spry_rope_angles_args)
{
    bool is_row = blockIdx.x < a.n_rows;
    uint32_t rotation = is_row ? 0 : blockIdx.x - a.n_rows + 1;
    int32_t delta = is_row ? 0 : a.deltas[rotation];
    uint32_t distance = is_row ? a.rows[blockIdx.x].time : (uint32_t)(delta < 0 ? -(int64_t)delta : delta);
    float *cosine =
        is_row ? a.cosine + (uint64_t)blockIdx.x * a.n_pairs : a.rotation_cosine + (uint64_t)rotation * a.n_pairs;
    float *sine = is_row ? a.sine + (uint64_t)blockIdx.x * a.n_pairs : a.rotation_sine + (uint64_t)rotation * a.n_pairs;
    float magnitude = is_row ? a.magnitude : 1;
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += blockDim.x) {
        uint32_t axis = is_row && a.axes ? a.axes[i] : 0;
        uint32_t at = axis ? axis == 1 ? a.rows[blockIdx.x].line : a.rows[blockIdx.x].column : distance;
        float angle = (float)at * a.frequencies[i];
        cosine[i] = cosf(angle) * magnitude;
        sine[i] = sinf(angle) * (delta > 0 ? -magnitude : magnitude);
    }
}

/* ---- tokens and positions ---------------------------------------------------------------------------------------- */

SPRY_KERNEL(spry_feed_tokens, spry_feed_args)
{
    uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n_rows)
        return;
    const spry_draw_result *result = a.results + a.drawn[row];
    uint32_t token = (uint32_t)result->token;
    a.rows[row].token = result->fault == SPRY_DRAW_OK && token < a.n_vocab ? (int32_t)token : 0;
}

SPRY_KERNEL(spry_positions, spry_positions_args)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    uint32_t position = a.rows ? a.rows[blockIdx.x].position : blockIdx.x;
    const float *add = a.positions + (uint64_t)position * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = (a.activated ? gated(x[i], 1, a.gate) : x[i]) + add[i];
}
