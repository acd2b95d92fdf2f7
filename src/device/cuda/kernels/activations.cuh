/* Activations as mma operand B of the GEMMs, split into 1, 2 or 3 bf16 terms. Rows are stored in groups of 8, in one of
 * two layouts.
 *
 * mma layout, lane = 4 g + t holds row g of its group: [group, step of 16, term, lane, 4]: inputs 2t, 2t + 1, 2t + 8,
 * 2t + 9. One term keeps 8 bits of an activation, two keep 16, three keep all.
 * wgmma layout: core matrices, [unit, group, term, 8 inputs, row, 8].
 *
 * RMS norms are fused: rows are multiplied by the norm's weights here, and 1 / rms is applied to the sums of the
 * product. All kernels add the squares of a row in one order: in a unit of 64 first pairs, then values 8, 16 and 32
 * apart, then 2 and 4 apart; then the units of a split in order; then the splits in order. */
#pragma once

#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/primitives.cuh"

enum { ACT_BLOCK = 32, ACT_STEP = 16, ACT_SPLITS = SPRY_SPLIT_K };

/* Index of a unit and group in the wgmma layout. */
SPRY_DEVICE uint64_t wgmma_unit(const spry_activations &to, uint32_t group, uint32_t unit)
{
    return (uint64_t)unit * to.wgmma_groups + group;
}

template <int TERMS> SPRY_DEVICE const uint2 *mma_terms(const spry_activations &to, uint32_t group, uint32_t step)
{
    return (const uint2 *)to.values + ((uint64_t)group * to.n_units * 4 + step) * TERMS * WARP;
}

/* Adds the value of the lane whose number differs in the bits of `mask`. */
SPRY_DEVICE float add_across(float value, int mask)
{
    return value + warp_shfl_xor(value, mask);
}

/* Sum of the squares of a unit (64 inputs), from the sum of the lane's pair. */
SPRY_DEVICE float unit_sum(float pair)
{
    return add_across(add_across(add_across(add_across(add_across(pair, 4), 8), 16), 1), 2);
}

/* ---- bf16 terms -------------------------------------------------------------------------------------------------- */

template <int TERMS>
SPRY_DEVICE void store_terms(const spry_activations &to, uint32_t row, uint32_t block, int lane, float value,
                             bool wgmma)
{
    int in_step = lane % ACT_STEP;
    uint32_t group = row / SPRY_ACT_ROWS;
    uint16_t *halves = (uint16_t *)mma_terms<TERMS>(to, group, block * 2 + lane / ACT_STEP);
    halves += ((row % SPRY_ACT_ROWS) * 4 + in_step % 8 / 2) * 4 + in_step / 8 * 2 + in_step % 2;
    uint64_t next = WARP * 4;
    if (wgmma) {
        uint32_t in_unit = block % 2 * 32 + (uint32_t)lane;
        next = 8 * 64;
        halves = (uint16_t *)to.values + wgmma_unit(to, group, block / 2) * TERMS * next + in_unit / 8 * 64 +
                 row % SPRY_ACT_ROWS * 8 + in_unit % 8;
    }
    SPRY_UNROLL
    for (int term = 0; term < TERMS; term++) {
        uint32_t bits = bf16_bits(value);
        halves[term * next] = (uint16_t)bits;
        value -= float_of_bf16(bits);
    }
}

/* Stores a value in every format that has an address. */
SPRY_DEVICE void store_activations(const spry_activations to[SPRY_ACT_FORMATS], uint32_t row, uint32_t block, int lane,
                                   float value)
{
    if (to[SPRY_ACT_BF16].values)
        store_terms<1>(to[SPRY_ACT_BF16], row, block, lane, value, to[SPRY_ACT_BF16].wgmma_groups);
    if (to[SPRY_ACT_BF16X2].values)
        store_terms<2>(to[SPRY_ACT_BF16X2], row, block, lane, value, to[SPRY_ACT_BF16X2].wgmma_groups);
    if (to[SPRY_ACT_BF16X3].values)
        store_terms<3>(to[SPRY_ACT_BF16X3], row, block, lane, value, to[SPRY_ACT_BF16X3].wgmma_groups);
}

SPRY_DEVICE void store_norms(const spry_activations to[SPRY_ACT_FORMATS], uint32_t row, float norm)
{
    SPRY_UNROLL
    for (int format = 0; format < SPRY_ACT_FORMATS; format++)
        if (to[format].norms && !to[format].wgmma_groups)
            to[format].norms[row] = norm;
}

/* Stores the sum of squares of a unit, in the wgmma layout. */
SPRY_DEVICE void store_squares(const spry_activations to[SPRY_ACT_FORMATS], uint32_t row, uint32_t unit, float squares)
{
    SPRY_UNROLL
    for (int format = 0; format < SPRY_ACT_FORMATS; format++)
        if (to[format].norms && to[format].wgmma_groups)
            to[format].norms[(uint64_t)unit * to[format].wgmma_groups * SPRY_ACT_ROWS + row] = squares;
}

/* ---- eight values per lane --------------------------------------------------------------------------------------- */

/* Eight values of a row in registers. */
struct vec8 {
    float v[8];

    /* Loads the values from input `at` on; past the end there are zeros. */
    SPRY_METHOD void load(const float *row, uint32_t n, uint32_t at, bool valid)
    {
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            float4 four = {0, 0, 0, 0};
            if (valid && at + half * 4 < n)
                four = *(const float4 *)(row + at + half * 4);
            v[half * 4] = four.x, v[half * 4 + 1] = four.y, v[half * 4 + 2] = four.z, v[half * 4 + 3] = four.w;
        }
    }

    SPRY_METHOD void store(float *to) const
    {
        const float4 first = {v[0], v[1], v[2], v[3]}, second = {v[4], v[5], v[6], v[7]};
        ((float4 *)to)[0] = first;
        ((float4 *)to)[1] = second;
    }

    /* Sum of the squares of pair i. */
    SPRY_METHOD float squares(int i) const
    {
        return v[2 * i] * v[2 * i] + v[2 * i + 1] * v[2 * i + 1];
    }
};

/* Half a unit of 8 rows in the wgmma layout: lane = 8 c + r holds inputs 8 c .. 8 c + 7 of row r. */
struct wgmma_vec8 : vec8 {
    template <int TERMS>
    SPRY_METHOD void store_terms(const spry_activations &to, uint32_t group, uint32_t unit, uint32_t half,
                                 int lane) const
    {
        uint4 *at = (uint4 *)to.values + wgmma_unit(to, group, unit) * TERMS * 64 + half * 32 + (uint32_t)lane;
        float rest[8];
        SPRY_UNROLL
        for (int k = 0; k < 8; k++)
            rest[k] = v[k];
        SPRY_UNROLL
        for (int term = 0; term < TERMS; term++) {
            uint4 word = {split_bf16x2(&rest[0], &rest[1]), split_bf16x2(&rest[2], &rest[3]),
                          split_bf16x2(&rest[4], &rest[5]), split_bf16x2(&rest[6], &rest[7])};
            at[term * 64] = word;
        }
    }

    /* Stores in FORMAT if that has an address, which is the usual case; otherwise in every format that has one. */
    template <int FORMAT>
    SPRY_METHOD void store_expecting(const spry_activations to[SPRY_ACT_FORMATS], uint32_t group, uint32_t unit,
                                     uint32_t half, int lane) const
    {
        if (SPRY_UNLIKELY(!to[FORMAT].values))
            write(to, group, unit, half, lane);
        else
            store_terms<FORMAT == SPRY_ACT_BF16X2 ? 2 : 1>(to[FORMAT], group, unit, half, lane);
    }

    /* Stores in every format that has an address, except BF16X3. */
    SPRY_METHOD void write(const spry_activations to[SPRY_ACT_FORMATS], uint32_t group, uint32_t unit, uint32_t half,
                           int lane) const
    {
        if (to[SPRY_ACT_BF16].values)
            store_terms<1>(to[SPRY_ACT_BF16], group, unit, half, lane);
        if (to[SPRY_ACT_BF16X2].values)
            store_terms<2>(to[SPRY_ACT_BF16X2], group, unit, half, lane);
    }
};

/* ---- norms and gates --------------------------------------------------------------------------------------------- */

/* Sum over the first SPRY_ROW_THREADS threads of a block; every thread gets it. */
SPRY_DEVICE float block_sum(float sum)
{
    SPRY_SMEM float smem[SPRY_ROW_THREADS / WARP];
    sum = warp_sum(sum);
    syncthreads();
    if (threadIdx.x < SPRY_ROW_THREADS && threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = sum;
    syncthreads();
    sum = smem[0];
    SPRY_UNROLL
    for (int i = 1; i < SPRY_ROW_THREADS / WARP; i++)
        sum += smem[i];
    return sum;
}

struct row_norm {
    float mean, scale;
};

/* Mean and 1 / rms of a row after subtracting the mean; same bits in every block of at least SPRY_ROW_THREADS. Without
 * `centre` the mean is 0. */
SPRY_DEVICE row_norm norm_of(const float *in, uint32_t n, float eps, uint32_t centre)
{
    row_norm norm = {0, 0};
    float sum = 0;
    for (uint32_t i = threadIdx.x; centre && threadIdx.x < SPRY_ROW_THREADS && i < n; i += SPRY_ROW_THREADS)
        sum += in[i];
    if (centre)
        norm.mean = block_sum(sum) / (float)n;
    sum = 0;
    for (uint32_t i = threadIdx.x; threadIdx.x < SPRY_ROW_THREADS && i < n; i += SPRY_ROW_THREADS)
        sum = fmaf(in[i] - norm.mean, in[i] - norm.mean, sum);
    norm.scale = 1.0f / sqrtf(block_sum(sum) / (float)n + eps);
    return norm;
}

SPRY_DEVICE float normalised(float value, row_norm norm, const float *weight, const float *bias, uint32_t i)
{
    value = (value - norm.mean) * norm.scale * (weight ? weight[i] : 1);
    return bias ? value + bias[i] : value;
}

/* 1 / rms of a row from the sums of squares of its splits, which are `stride` apart. */
SPRY_DEVICE float norm_of_splits(const float *splits, uint32_t stride, uint32_t n, float eps)
{
    float sum = splits[0];
    SPRY_UNROLL
    for (uint32_t i = 1; i < ACT_SPLITS; i++)
        sum += splits[i * stride];
    return inverse_rms(sum, n, eps);
}

/* The first unit of a split-K part. */
SPRY_DEVICE uint32_t split_begin(uint32_t n_units, uint32_t split)
{
    return n_units * split / ACT_SPLITS;
}

/* x * sigmoid(x * slope) */
SPRY_DEVICE float silu(float x, float slope)
{
    return x * rcp_approx(1.0f + ex2_approx(x * (-1.44269504088896341f * slope)));
}

/* See kernels/ref/vector_ref.c; the numbers are values of spry_gate. */
enum { GATE_SILU = 0, GATE_CLAMPED = 2, GATE_GELU = 3, GATE_RELU_SQUARED = 4 };

SPRY_DEVICE float gated(float gate, float up, uint32_t kind)
{
    if (!SPRY_UNLIKELY(kind != GATE_SILU))
        return silu(gate, 1) * up;
    if (kind == GATE_CLAMPED)
        return (fminf(fmaxf(up, -7.0f), 7.0f) + 1) * silu(gate > 7 ? 7 : gate, 1.702f);
    if (kind == GATE_RELU_SQUARED)
        return fmaxf(gate, 0) * fmaxf(gate, 0) * up;
    if (kind == GATE_GELU)
        return 0.5f * gate * (1.0f + erff(gate * 0.70710678118654752440f)) * up;
    float inner = 0.79788456080286535588f * (gate + 0.044715f * (gate * gate * gate));
    return 0.5f * gate * (1.0f + tanhf(inner)) * up;
}

/* True when rows must be normalised before the product, because a mean is subtracted or a bias added; 1 / rms cannot be
 * applied to the sums then. */
SPRY_DEVICE bool normalises_first(const spry_quantise_args &a)
{
    return a.weight && (a.centre || a.bias);
}

/* Value i of a row before it is quantised: normalised or gated. */
SPRY_DEVICE float activation_of(const spry_quantise_args &a, float value, float up, uint32_t i, row_norm norm)
{
    if (a.up || a.ungated)
        return gated(value, up, a.gate);
    if (normalises_first(a))
        return normalised(value, norm, a.weight, a.bias, i);
    return a.weight ? value * a.weight[i] : value;
}

SPRY_DEVICE float activation_at(const spry_quantise_args &a, uint64_t row, uint32_t i, row_norm norm)
{
    uint64_t at = row * a.in_stride + i;
    return i < a.n ? activation_of(a, a.in[at], a.up ? a.up[at] : 1, i, norm) : 0;
}

/* ---- a unit of 8 rows -------------------------------------------------------------------------------------------- */

/* 8 rows by one unit (64 inputs) in the registers of a warp, in the wgmma layout. */
struct wgmma_fragment {
    wgmma_vec8 of[2];

    /* Offset of the values of a half of the unit that the lane holds. */
    static SPRY_METHOD uint32_t begin(uint32_t half, int lane)
    {
        return half * ACT_BLOCK + (uint32_t)lane / 8 * 8;
    }

    /* Loads the unit that begins with value `first` of the lane's row. */
    SPRY_METHOD void load(const float *row, uint32_t n, uint32_t first, int lane, bool valid)
    {
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++)
            of[half].load(row, n, first + begin(half, lane), valid);
    }

    SPRY_METHOD void add(const float *values, uint32_t first, int lane)
    {
        SPRY_UNROLL
        for (uint32_t k = 0; k < 16; k++)
            of[k / 8].v[k % 8] += values[first + begin(k / 8, lane) + k % 8];
    }

    /* Sum of squares of the lane's row. */
    SPRY_METHOD float squares() const
    {
        float pairs[4];
        SPRY_UNROLL
        for (int i = 0; i < 4; i++)
            pairs[i] =
                add_across(add_across(of[0].squares(i), 8), 16) + add_across(add_across(of[1].squares(i), 8), 16);
        return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
    }

    SPRY_METHOD void gate(const spry_quantise_args &a, uint32_t row, uint32_t unit, int lane)
    {
        SPRY_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            vec8 up = {{1, 1, 1, 1, 1, 1, 1, 1}};
            if (a.up)
                up.load(a.up + (uint64_t)row * a.in_stride, a.n, unit * SPRY_TILE_UNIT + begin(half, lane),
                        row < a.n_rows);
            SPRY_UNROLL
            for (int k = 0; k < 8; k++)
                of[half].v[k] = gated(of[half].v[k], up.v[k], a.gate);
        }
    }

    /* Stores the sums of squares and multiplies the values by the norm's weights. */
    SPRY_METHOD void scale_by_weight(const wgmma_fragment &weight, const spry_activations to[SPRY_ACT_FORMATS],
                                     uint32_t group, uint32_t unit, int lane)
    {
        float sum = squares();
        if (lane < SPRY_ACT_ROWS)
            store_squares(to, group * SPRY_ACT_ROWS + (uint32_t)lane, unit, sum);
        SPRY_UNROLL
        for (int k = 0; k < 16; k++)
            of[k / 8].v[k % 8] *= weight.of[k / 8].v[k % 8];
    }
};
