/* What the teams of gemm_wgmma.cuh write: sums of an item in shared memory become rows of the result. */
#pragma once

#include "device/cuda/kernels/gemm_wgmma_tiles.cuh"

/* Four outputs of a row, or fewer at the end of a matrix: where they are whole they are loaded and stored at once. */
struct output_quad {
    uint32_t first, n;
    bool whole;

    SPRY_METHOD output_quad(const spry_gemm_part &part, uint32_t output)
        : first(output), n(output < part.weight.n_out ? part.weight.n_out - output : 0),
          whole(n >= 4 && part.stride % 4 == 0)
    {
    }

    SPRY_METHOD float4 load(const float *row) const
    {
        return *(const float4 *)(row + first);
    }

    SPRY_METHOD void store(float *row, float4 four) const
    {
        *(float4 *)(row + first) = four;
    }

    /* Those that are there, with a bias where there is one, and onto what is there with `add`. */
    SPRY_METHOD void store_some(float *row, float4 four, const float *bias, bool add) const
    {
        const float v[4] = {four.x, four.y, four.z, four.w};
        SPRY_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            if (i >= n)
                continue;
            float value = bias ? v[i] + bias[first + i] : v[i];
            row[first + i] = add ? row[first + i] + value : value;
        }
    }
};

SPRY_DEVICE float4 add_four(float4 a, float4 b)
{
    float4 sum = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    return sum;
}

/* Sums of an item in shared memory become rows of the result. Code for what is seldom, a bias or a gate of another kind
 * than SiLU, stands apart: blocks run through the rest once or a few times, and wait for its fetching. */
template <class S> struct gemm_epilogue {
    enum { WARPS = S::WARPGROUPS * WARPGROUP_WARPS, EACH = 2 / S::WARPGROUPS, STEP = WARPS * EACH, AHEAD = 4 };
    const spry_gemm_args &a;
    float *sums;
    const float *norms;  /* NULL, or what the sums of the item's rows are multiplied by */
    uint32_t row;        /* the item's first */
    uint32_t begin, end; /* rows of the item that are written, whole groups */
    int lane, warp;

    SPRY_METHOD float norm_of(uint32_t in_item) const
    {
        return norms ? norms[in_item] : 1;
    }

    SPRY_METHOD float4 normalised(uint32_t in_item, uint32_t column) const
    {
        float4 v = *(const float4 *)(sums + in_item * S::WIDTH + column);
        float norm = norm_of(in_item);
        v.x *= norm, v.y *= norm, v.z *= norm, v.w *= norm;
        return v;
    }

    /* A warp writes a row of two teams, or two rows of one, at a time; what rows are added to is loaded for several of
     * them at once. To add -0 changes nothing. */
    SPRY_METHOD void write_rows(const work_tile &item) const
    {
        const tile_source t = S::find(a, item.column, S::WARPGROUPS == 1 ? 0 : (uint32_t)lane / 16, 0);
        const spry_gemm_part &part = a.parts[t.part];
        const output_quad outputs(part, t.tile * SPRY_TILE_ROWS + (uint32_t)lane % 16 * 4);
        const float4 nothing = {-0.0f, -0.0f, -0.0f, -0.0f};
        uint32_t own = begin + (uint32_t)(warp * EACH) +
                       (S::WARPGROUPS == 1 ? (uint32_t)lane / 16 : 0); /* the first of its rows */
        uint32_t last = row + end < a.n_rows ? end : a.n_rows - row, column = (uint32_t)lane % (S::WARPGROUPS * 16) * 4;
        float *to = part.out + (uint64_t)row * part.stride;
        float4 bias = nothing;
        if (SPRY_UNLIKELY(!warp_all(t.valid && outputs.whole))) {
            SPRY_UNROLL_BY(1)
            for (uint32_t r = own; t.valid && r < last; r += STEP)
                outputs.store_some(to + (uint64_t)r * part.stride, normalised(r, column), part.bias, a.add);
            return;
        }
        if (SPRY_UNLIKELY(part.bias))
            bias = outputs.load(part.bias);
        SPRY_UNROLL_BY(1)
        for (uint32_t first = own; first < last; first += STEP * AHEAD) {
            float4 base[AHEAD];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                base[i] = a.add && first + i * STEP < last
                              ? outputs.load(to + (uint64_t)(first + i * STEP) * part.stride)
                              : nothing;
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                if (first + i * STEP < last)
                    outputs.store(to + (uint64_t)(first + i * STEP) * part.stride,
                                  add_four(base[i], add_four(normalised(first + i * STEP, column), bias)));
        }
    }

    /* A warp writes a unit of 8 rows at a time, and encodes it; of rows behind the last zeros. All outputs are those of
     * one matrix, and whole units. */
    SPRY_METHOD void write_encoded(const work_tile &item) const
    {
        const spry_gemm_part &part = a.parts[0];
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * S::WARPGROUPS + (uint32_t)warp;
             i < end / SPRY_ACT_ROWS * S::WARPGROUPS; i += WARPS) {
            uint32_t in_item = i / S::WARPGROUPS * SPRY_ACT_ROWS + (uint32_t)lane % 8,
                     unit = item.column * S::WARPGROUPS + i % S::WARPGROUPS;
            uint32_t output = unit * SPRY_TILE_UNIT, group = item.first_group + i / S::WARPGROUPS;
            bool valid = row + in_item < a.n_rows;
            float *to = part.out + (uint64_t)(row + in_item) * part.stride + output;
            wgmma_fragment sum, base, weight;
            if (group * SPRY_ACT_ROWS >= a.n_rows || output >= part.weight.n_out)
                continue;
            base.load(to, SPRY_TILE_UNIT, 0, lane, valid && a.add);
            weight.load(a.from.weight, a.from.n, output, lane, true);
            sum.load(sums + in_item * S::WIDTH, S::WIDTH, i % S::WARPGROUPS * SPRY_TILE_UNIT, lane, valid);
            if (SPRY_UNLIKELY(part.bias && valid))
                sum.add(part.bias, output, lane);
            SPRY_UNROLL
            for (int k = 0; k < 16; k++)
                sum.of[k / 8].v[k % 8] =
                    a.add ? base.of[k / 8].v[k % 8] + sum.of[k / 8].v[k % 8] : sum.of[k / 8].v[k % 8];
            SPRY_UNROLL
            for (uint32_t half = 0; half < 2 && valid; half++)
                sum.of[half].store(to + wgmma_fragment::begin(half, lane));
            sum.scale_by_weight(weight, a.from.to, group, unit, lane);
            sum.of[0].template store_expecting<S::FORMAT>(a.from.to, group, unit, 0, lane);
            sum.of[1].template store_expecting<S::FORMAT>(a.from.to, group, unit, 1, lane);
        }
    }

    /* Eight outputs of a row that are gated, in place of the gates. */
    SPRY_METHOD void gate_slow_path(float *gate, const float *up, uint32_t output, float norm) const
    {
        SPRY_UNROLL_BY(1)
        for (uint32_t k = 0; k < 8; k++) {
            float x = gate[k] * norm, y = up[k] * norm;
            x = a.parts[0].bias ? x + a.parts[0].bias[output + k] : x;
            y = a.parts[1].bias ? y + a.parts[1].bias[output + k] : y;
            gate[k] = gated(x, y, a.from.gate);
        }
    }

    /* A warp writes 32 gated outputs of 8 rows at a time; zeros for rows behind the last. */
    SPRY_METHOD void write_gated(const work_tile &item) const
    {
        enum { HALVES = S::WARPGROUPS, UP = S::WARPGROUPS * WARPGROUP_OUTPUTS / 2 };
        bool plain = a.from.gate == GATE_SILU && !a.parts[0].bias && !a.parts[1].bias;
        SPRY_UNROLL_BY(1)
        for (uint32_t i = begin / SPRY_ACT_ROWS * HALVES + (uint32_t)warp; i < end / SPRY_ACT_ROWS * HALVES;
             i += WARPS) {
            uint32_t in_item = i / HALVES * SPRY_ACT_ROWS + (uint32_t)lane % 8,
                     column = i % HALVES * 32 + (uint32_t)lane / 8 * 8;
            uint32_t block = item.column * HALVES + i % HALVES, group = item.first_group + i / HALVES;
            float norm = norm_of(in_item), *gates = sums + in_item * S::WIDTH + column;
            wgmma_vec8 gate;
            vec8 up;
            if (group * SPRY_ACT_ROWS >= a.n_rows)
                continue;
            if (SPRY_UNLIKELY(!plain))
                gate_slow_path(gates, gates + UP, block * 32 + (uint32_t)lane / 8 * 8, norm);
            gate.load(gates, 8, 0, true);
            up.load(gates + UP, 8, 0, true);
            SPRY_UNROLL
            for (uint32_t k = 0; k < 8; k++) {
                float x = plain ? gated(gate.v[k] * norm, up.v[k] * norm, GATE_SILU) : gate.v[k];
                gate.v[k] = row + in_item < a.n_rows ? x : 0;
            }
            gate.template store_expecting<S::FORMAT>(a.from.to, group, block / 2, block % 2, lane);
        }
    }
};
