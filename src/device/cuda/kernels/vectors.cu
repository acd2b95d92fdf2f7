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

/* What the sums of a product of the row are multiplied by; a block. */
SPRY_DEVICE float row_scale(const float *in, const spry_encode_args &a)
{
    SPRY_SHARED float splits[ACT_SPLITS];
    uint32_t lane = threadIdx.x % WARP, n_units = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT;
    block_wait(); /* for threads that read what was there */
    for (uint32_t split = threadIdx.x / WARP; split < ACT_SPLITS; split += blockDim.x / WARP) {
        float sum = 0;
        for (uint32_t unit = split_begin(n_units, split); unit < split_begin(n_units, split + 1); unit++) {
            uint32_t at = unit * SPRY_TILE_UNIT + lane * 2;
            float low = at < a.n ? in[at] : 0, high = at + 1 < a.n ? in[at + 1] : 0;
            sum += unit_sum(low * low + high * high);
        }
        if (lane == 0)
            splits[split] = sum;
    }
    block_wait();
    return norm_of_splits(splits, 1, a.n, a.eps);
}

SPRY_KERNEL(spry_encode, spry_encode_args, SPRY_ENCODE_THREADS)
{
    int64_t row = a.source ? a.source[blockIdx.x] : (int64_t)blockIdx.x;
    if (row < 0)
        return;
    row_norm norm = {0, 1};
    float scale = 1;
    if (encodes_whole(a))
        norm = norm_of(a.in + row * a.in_stride, a.n, a.eps, a.centre);
    else if (a.weight)
        scale = row_scale(a.in + row * a.in_stride, a);
    uint32_t blocks = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT * 2;
    int lane = (int)(threadIdx.x % WARP);
    if (threadIdx.x == 0)
        write_norms(a.to, blockIdx.x, scale);
    for (uint32_t block = threadIdx.x / WARP; block < blocks; block += blockDim.x / WARP) {
        uint32_t i = block * ACT_BLOCK + (uint32_t)lane;
        float value = encoded_value(a, (uint64_t)row, i, norm);
        write_forms(a.to, blockIdx.x, block, lane, value);
        if (a.plain && i < a.n)
            a.plain[(uint64_t)blockIdx.x * a.n + i] = value * scale;
    }
}

/* The same for 8 rows of whole pieces that are not normalised whole, in the order of multiply_cores; nothing else is written. A
 * warp for a split. */
struct unit_pieces {
    core_piece of[2];

    SPRY_METHOD void load(const spry_encode_args &a, uint32_t row, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++)
            of[half].load(a.in + (uint64_t)row * a.in_stride, a.n, unit * SPRY_TILE_UNIT + half * 32 + (uint32_t)lane / 8 * 8, row < a.n_rows);
    }

    /* The sum of squares of the lane's row. */
    SPRY_METHOD float squares() const
    {
        float pairs[4];
        SPRY_UNROLL
        for (int i = 0; i < 4; i++)
            pairs[i] = add_across(add_across(of[0].squares(i), 8), 16) + add_across(add_across(of[1].squares(i), 8), 16);
        return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
    }

    SPRY_METHOD void encode(const spry_encode_args &a, uint32_t row, uint32_t unit, int lane)
    {
        const float *others = a.up ? a.up + (uint64_t)row * a.in_stride : a.weight;
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            row_piece other = {{1, 1, 1, 1, 1, 1, 1, 1}};
            if (others)
                other.load(others, a.n, unit * SPRY_TILE_UNIT + half * 32 + (uint32_t)lane / 8 * 8, row < a.n_rows);
            SPRY_UNROLL
            for (int k = 0; k < 8; k++) {
                float *value = &of[half].v[k];
                *value = a.up || a.ungated ? gated(*value, other.v[k], a.gate) : *value * other.v[k];
            }
        }
    }
};

SPRY_KERNEL(spry_encode_cores, spry_encode_args, SPRY_ENCODE_CORES_THREADS)
{
    SPRY_SHARED float splits[ACT_SPLITS][SPRY_ACT_ROWS];
    uint32_t n_units = (a.n + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT, warp = threadIdx.x / WARP;
    int lane = (int)(threadIdx.x % WARP);
    uint32_t row = blockIdx.x * SPRY_ACT_ROWS + (uint32_t)lane % SPRY_ACT_ROWS;
    float squares = 0;
    SPRY_UNROLL_BY(2)
    for (uint32_t unit = split_begin(n_units, warp); unit < split_begin(n_units, warp + 1); unit++) {
        unit_pieces pieces;
        pieces.load(a, row, unit, lane);
        if (a.weight)
            squares += pieces.squares();
        pieces.encode(a, row, unit, lane);
        pieces.of[0].write(a.to, blockIdx.x, unit, 0, lane);
        pieces.of[1].write(a.to, blockIdx.x, unit, 1, lane);
    }
    if (lane < SPRY_ACT_ROWS)
        splits[warp][lane] = squares;
    block_wait();
    if (threadIdx.x < SPRY_ACT_ROWS && row < a.n_rows)
        write_norms(a.to, row, a.weight ? norm_of_splits(splits[0] + lane, SPRY_ACT_ROWS, a.n, a.eps) : 1);
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
