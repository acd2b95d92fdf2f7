/* Rows that are attended one by one: each chunk of pages leaves a maximum, a sum and a weighted sum of values, which are
 * folded here in order. */
#pragma once

#include "device/cuda/kernels/acts.cuh"

/* What both sides are multiplied by when `part` is folded into a state; false when `part` is empty. */
SPRY_DEVICE bool fold_factors(float *max, float *keep, float *take, float part_max)
{
    if (part_max == -INFINITY)
        return false;
    float larger = fmaxf(*max, part_max);
    *keep = expf(*max - larger);
    *take = expf(part_max - larger);
    *max = larger;
    return true;
}

/* What a head's sum of values is multiplied by, with the largest score and the sum of weights of all it has seen. */
SPRY_DEVICE float last_factor(const spry_attend_args &a, uint32_t head, float max, float sum)
{
    if (!a.sinks)
        return 1.0f / sum;
    float sink = a.sinks[head], larger = fmaxf(max, sink), keep = expf(max - larger);
    return keep / fmaf(sum, keep, expf(sink - larger));
}

/* What a chunk leaves of a head of row number `few`: maximum, sum, values. */
SPRY_DEVICE float *chunk_partial(const spry_attend_args &a, uint32_t few, uint32_t head, uint32_t chunk)
{
    return a.partial + (((uint64_t)few * a.n_heads + head) * a.n_chunks + chunk) * (a.kv.head_dim + SPRY_PARTIAL_HEAD);
}

/* What fold_factors gives for 32 chunks one behind the other, a lane each: `max` is that of all before and becomes that of
 * all; take < 0: the chunk is empty. */
SPRY_DEVICE void fold_lanes(float *max, float *keep, float *take, float part_max, int lane)
{
    float upto = fmaxf(*max, part_max);
    SPRY_UNROLL
    for (int distance = 1; distance < WARP; distance *= 2) {
        float lower = warp_from(upto, lane >= distance ? lane - distance : lane);
        upto = fmaxf(upto, lower);
    }
    float before = warp_from(upto, lane ? lane - 1 : 0);
    before = lane ? before : *max;
    *keep = expf(before - upto);
    *take = part_max == -INFINITY ? -1.0f : expf(part_max - upto);
    *max = warp_from(upto, WARP - 1);
}

/* Where chunks of a head leave what is folded: from `first` on, `stride` floats apart, and there maximum, sum and a value. */
struct chunk_list {
    const float *first;
    uint32_t stride, max, sum, value;
};

/* The value, all chunks folded; several are loaded before the first is used. The lanes of a warp have one head. */
SPRY_DEVICE float merged(const spry_attend_args &a, const chunk_list &list, uint32_t head, uint32_t chunks)
{
    enum { AHEAD = 16 };
    int lane = (int)(threadIdx.x % WARP);
    float max = -INFINITY, sum = 0, out = 0;
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < chunks; first += WARP) {
        uint32_t own = first + (uint32_t)lane < chunks ? first + (uint32_t)lane : first;
        const float *its = list.first + own * list.stride;
        float part_max = first + (uint32_t)lane < chunks ? its[list.max] : -INFINITY, part_sum = its[list.sum], keep, take;
        fold_lanes(&max, &keep, &take, part_max, lane);
        SPRY_UNROLL_BY(1)
        for (uint32_t next = first; next < first + WARP && next < chunks; next += AHEAD) {
            float outs[AHEAD];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                outs[i] = list.first[(next + i < chunks ? next + i : first) * list.stride + list.value];
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++) {
                int from = (int)(next - first + i);
                float k = warp_from(keep, from), t = warp_from(take, from), s = warp_from(part_sum, from);
                if (t < 0)
                    continue;
                sum = fmaf(sum, k, s * t);
                out = fmaf(out, k, outs[i] * t);
            }
        }
    }
    return out * last_factor(a, head, max, sum);
}

/* Writes a value as a number and in the forms that are wanted. All lanes of a warp have the same head; where forms are wanted,
 * 32 values of one block. */
SPRY_DEVICE void write_value(const spry_attend_args &a, uint32_t row, uint32_t head, uint32_t d, float value)
{
    uint32_t at = head * a.kv.head_dim + d;
    a.out[(uint64_t)row * a.n_heads * a.kv.head_dim + at] = value;
    write_forms(a.to, row, at / ACT_BLOCK, (int)(at % ACT_BLOCK), value);
}
