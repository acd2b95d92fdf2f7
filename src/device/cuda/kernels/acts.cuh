/* Activations as products want them: groups of 8 rows, and of their inputs what a lane of a warp needs lies together.
 * Lane = 4 g + t works on row g of its group.
 *   bytes: [group, block of 32, lane, 8]: inputs 4t .. 4t + 3 of the lower half of the block, then of the upper; scale =
 *          largest magnitude / 127, as kernels/act.h says. Beside them {scale, sum of the bytes} as floats.
 *          For multiply_cores [unit, group, 16 bytes of inputs, row, 16] and [unit, group, block, row].
 *   sums:  [group, step of 16, term, lane, 4 bf16]: inputs 2t, 2t + 1, 2t + 8, 2t + 9. One term keeps 8 bits of an
 *          activation, two keep 16, three all of them. For multiply_cores [unit, group, term, 8 inputs, row, 8 bf16]. */
#pragma once

#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/machine.cuh"

enum { ACT_BLOCK = 32, ACT_STEP = 16 };
#define ACT_SMALLEST 0x1p-100f

SPRY_DEVICE const uint2 *act_bytes(const spry_acts &to, uint32_t group, uint32_t block)
{
    return (const uint2 *)to.values + ((uint64_t)group * to.n_units * 2 + block) * WARP;
}

/* Of the 8 rows of a group. */
SPRY_DEVICE float2 *act_scales(const spry_acts &to, uint32_t group, uint32_t block)
{
    return (float2 *)to.scales + ((uint64_t)group * to.n_units * 2 + block) * SPRY_ACT_ROWS;
}

template <int TERMS> SPRY_DEVICE const uint2 *act_terms(const spry_acts &to, uint32_t group, uint32_t step)
{
    return (const uint2 *)to.values + ((uint64_t)group * to.n_units * 4 + step) * TERMS * WARP;
}

/* A warp writes one block of a row, each lane one value. */
SPRY_DEVICE void write_bytes(const spry_acts &to, uint32_t row, uint32_t block, int lane, float value)
{
    float largest = warp_max(fabsf(value));
    bool finite = warp_sum(value * 0) == 0; /* NaN when any is not finite */
    largest = largest < ACT_SMALLEST ? 0 : largest;
    float inverse = largest > 0 ? 127 / largest : 0;
    int quant = finite ? (int)rintf(value * inverse) : 0;
    int sum = warp_sum(quant);
    int8_t *bytes = (int8_t *)act_bytes(to, row / SPRY_ACT_ROWS, block);
    uint64_t unit = (uint64_t)(block / 2) * to.cores + row / SPRY_ACT_ROWS; /* of the order of multiply_cores */
    if (to.cores)
        to.values[(unit * 4 + block % 2 * 2 + (uint32_t)lane / 16) * 128 + row % SPRY_ACT_ROWS * 16 + (uint32_t)lane % 16] =
            (unsigned char)quant;
    else
        bytes[((row % SPRY_ACT_ROWS) * 4 + lane % 16 / 4) * 8 + lane / 16 * 4 + lane % 4] = (int8_t)quant;
    if (lane == 0) {
        float2 scale = {finite ? largest / 127 : NAN, (float)sum};
        float2 *all = to.cores ? (float2 *)to.scales + (unit * 2 + block % 2) * SPRY_ACT_ROWS
                               : act_scales(to, row / SPRY_ACT_ROWS, block);
        all[row % SPRY_ACT_ROWS] = scale;
    }
}

/* Eight values of a block of 32, of which the four lanes of a row have one part each: as bytes, with the block's scale and
 * sum. The numbers are those of write_bytes. */
SPRY_DEVICE uint2 encode_eight(float2 *scale, const float v[8])
{
    float largest = 0, infinite = 0;
    int sum = 0;
    uint32_t words[2] = {0, 0};
    SPRY_UNROLL
    for (int i = 0; i < 8; i++) {
        largest = fmaxf(largest, fabsf(v[i]));
        infinite += v[i] * 0; /* NaN when any is not finite */
    }
    largest = fmaxf(largest, warp_across(largest, 1));
    largest = fmaxf(largest, warp_across(largest, 2));
    infinite += warp_across(infinite, 1);
    bool finite = infinite + warp_across(infinite, 2) == 0;
    largest = largest < ACT_SMALLEST ? 0 : largest;
    float inverse = largest > 0 ? 127 / largest : 0;
    SPRY_UNROLL
    for (int i = 0; i < 8; i++) {
        int quant = finite ? (int)rintf(v[i] * inverse) : 0;
        sum += quant;
        words[i / 4] |= ((uint32_t)quant & 255) << i % 4 * 8;
    }
    sum += warp_across(sum, 1);
    sum += warp_across(sum, 2);
    scale->x = finite ? largest / 127 : NAN;
    scale->y = (float)sum;
    uint2 both = {words[0], words[1]};
    return both;
}

template <int TERMS>
SPRY_DEVICE void write_terms(const spry_acts &to, uint32_t row, uint32_t block, int lane, float value)
{
    int in_step = lane % ACT_STEP;
    uint16_t *halves = (uint16_t *)act_terms<TERMS>(to, row / SPRY_ACT_ROWS, block * 2 + lane / ACT_STEP);
    halves += ((row % SPRY_ACT_ROWS) * 4 + in_step % 8 / 2) * 4 + in_step / 8 * 2 + in_step % 2;
    uint64_t next = WARP * 4;
    if (to.cores) {
        uint64_t unit = (uint64_t)(block / 2) * to.cores + row / SPRY_ACT_ROWS;
        uint32_t in_unit = block % 2 * 32 + (uint32_t)lane;
        next = 8 * 64;
        halves = (uint16_t *)to.values + unit * TERMS * next + in_unit / 8 * 64 + row % SPRY_ACT_ROWS * 8 + in_unit % 8;
    }
    SPRY_UNROLL
    for (int term = 0; term < TERMS; term++) {
        uint32_t bits = bf16_bits(value);
        halves[term * next] = (uint16_t)bits;
        value -= float_of_bf16(bits);
    }
}

/* In every form that has a place. */
SPRY_DEVICE void write_forms(const spry_acts to[SPRY_ACT_FORMS], uint32_t row, uint32_t block, int lane, float value)
{
    if (to[SPRY_ACT_BYTES].values)
        write_bytes(to[SPRY_ACT_BYTES], row, block, lane, value);
    if (to[SPRY_ACT_ONE].values)
        write_terms<1>(to[SPRY_ACT_ONE], row, block, lane, value);
    if (to[SPRY_ACT_TWO].values)
        write_terms<2>(to[SPRY_ACT_TWO], row, block, lane, value);
    if (to[SPRY_ACT_THREE].values)
        write_terms<3>(to[SPRY_ACT_THREE], row, block, lane, value);
}

/* ---- what rows are made of --------------------------------------------------------------------------------------- */

enum { ROW_THREADS = 256 };

/* The sum of what the first ROW_THREADS threads of a block give; every thread gets it. */
SPRY_DEVICE float block_sum(float sum)
{
    SPRY_SHARED float room[ROW_THREADS / WARP];
    sum = warp_sum(sum);
    block_wait();
    if (threadIdx.x < ROW_THREADS && threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = sum;
    block_wait();
    sum = room[0];
    SPRY_UNROLL
    for (int i = 1; i < ROW_THREADS / WARP; i++)
        sum += room[i];
    return sum;
}

struct row_norm {
    float mean, scale;
};

/* What a row's values are less, and 1 / rms of the rest: the same bits in every block of at least ROW_THREADS. Without
 * `centre` the mean counts as 0. */
SPRY_DEVICE row_norm norm_of(const float *in, uint32_t n, float eps, uint32_t centre)
{
    row_norm norm = {0, 0};
    float sum = 0;
    for (uint32_t i = threadIdx.x; centre && threadIdx.x < ROW_THREADS && i < n; i += ROW_THREADS)
        sum += in[i];
    if (centre)
        norm.mean = block_sum(sum) / (float)n;
    sum = 0;
    for (uint32_t i = threadIdx.x; threadIdx.x < ROW_THREADS && i < n; i += ROW_THREADS)
        sum = fmaf(in[i] - norm.mean, in[i] - norm.mean, sum);
    norm.scale = 1.0f / sqrtf(block_sum(sum) / (float)n + eps);
    return norm;
}

SPRY_DEVICE float normalised(float value, row_norm norm, const float *weight, const float *bias, uint32_t i)
{
    value = (value - norm.mean) * norm.scale * (weight ? weight[i] : 1);
    return bias ? value + bias[i] : value;
}

/* As kernels/ref/gate_ref.c; the kinds are those of spry_gate. */
SPRY_DEVICE float gated(float gate, float up, uint32_t kind)
{
    enum { SILU = 0, CLAMPED = 2, GELU = 3 };
    if (kind == SILU)
        return gate / (1.0f + expf(-gate)) * up;
    if (kind == CLAMPED) {
        float x = gate > 7 ? 7 : gate;
        return (fminf(fmaxf(up, -7.0f), 7.0f) + 1) * (x / (1.0f + expf(-1.702f * x)));
    }
    if (kind == GELU)
        return 0.5f * gate * (1.0f + erff(gate * 0.70710678118654752440f)) * up;
    float inner = 0.79788456080286535588f * (gate + 0.044715f * (gate * gate * gate));
    return 0.5f * gate * (1.0f + tanhf(inner)) * up;
}

/* Value i of a row as it is encoded; `up` where there is one. */
SPRY_DEVICE float encoded_of(const spry_encode_args &a, float value, float up, uint32_t i, row_norm norm)
{
    if (a.up || a.ungated)
        return gated(value, up, a.gate);
    return a.weight ? normalised(value, norm, a.weight, a.bias, i) : value;
}

SPRY_DEVICE float encoded_value(const spry_encode_args &a, uint64_t row, uint32_t i, row_norm norm)
{
    uint64_t at = row * a.in_stride + i;
    return i < a.n ? encoded_of(a, a.in[at], a.up ? a.up[at] : 1, i, norm) : 0;
}
