/* Rows whose pages are spread over blocks: each page, or chunk of pages, leaves a maximum, a sum and a weighted sum of values,
 * which are folded here in order. */
#pragma once

#include "device/cuda/kernels/acts.cuh"

enum { MERGE_THREADS = 128 };

#define POWER_OF_2 1.44269504088896341f /* that e is */

/* Parts are folded relative to a multiple of 16 that no score of theirs is above. It seldom changes, so what was folded before is seldom multiplied. */
SPRY_DEVICE float fold_level(float max)
{
    return ceilf(max * (1.0f / 16)) * 16;
}

/* e to the power of a score relative to a level. */
SPRY_DEVICE float fold_power(float score, float level)
{
    return quick_power((score - level) * POWER_OF_2);
}

/* A sum with a part folded into it: in every kernel this, so that sums have the same bits. Where keep is 1 it is one operation. */
SPRY_DEVICE float folded(float sum, float keep, float part, float take)
{
    return fmaf(part, take, sum * keep);
}

/* What both sides are multiplied by when `part` is folded into a state, whose `max` is such a level; false when `part` is empty. */
SPRY_DEVICE bool fold_factors(float *max, float *keep, float *take, float part_max)
{
    if (part_max == -INFINITY)
        return false;
    float larger = fmaxf(*max, fold_level(part_max));
    *keep = fold_power(*max, larger);
    *take = fold_power(part_max, larger);
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

/* What a chunk, or page, leaves of a head of row number `few`: maximum, sum, values. */
SPRY_DEVICE float *chunk_partial(const spry_attend_args &a, uint32_t few, uint32_t head, uint32_t chunk)
{
    return a.partial + (((uint64_t)few * a.n_heads + head) * a.n_chunks + chunk) * (a.kv.head_dim + SPRY_PARTIAL_HEAD);
}

/* What fold_factors gives for what 32 lanes hold, one behind the other: keep, take within chunks of EACH, then those of the
 * lane's whole chunk; take < 0: it is empty. */
struct lane_factors {
    float keep, take, chunk_keep, chunk_take;
};

/* The largest of the lane's and those before it, `first` and further lanes away but less than `end`. */
SPRY_DEVICE float largest_before(float value, int first, int end, int lane)
{
    SPRY_UNROLL
    for (int distance = first; distance < end; distance *= 2) {
        float lower = warp_from(value, lane % end >= distance ? lane - distance : lane);
        value = fmaxf(value, lower);
    }
    return value;
}

/* `max` is the level of all before and becomes that of all. A part that is folded alone is its own chunk. */
template <int EACH> SPRY_DEVICE lane_factors fold_lanes(float *max, float part_max, int lane)
{
    lane_factors f;
    float upto = largest_before(EACH > 1 ? fold_level(part_max) : part_max, 1, EACH, lane), before = warp_from(upto, lane ? lane - 1 : 0);
    f.keep = fold_power(lane % EACH ? before : -INFINITY, upto);
    f.take = part_max == -INFINITY ? -1.0f : fold_power(part_max, upto);
    float chunk_max = warp_from(upto, lane | (EACH - 1));
    upto = largest_before(fmaxf(*max, fold_level(chunk_max)), EACH, WARP, lane);
    before = warp_from(upto, lane >= EACH ? lane - EACH : 0);
    f.chunk_keep = fold_power(lane >= EACH ? before : *max, upto);
    f.chunk_take = chunk_max == -INFINITY ? -1.0f : fold_power(chunk_max, upto);
    *max = warp_from(upto, WARP - 1);
    return f;
}

/* Where pages or chunks of a head leave what is folded: from `first` on, `stride` floats apart, and there maximum, sum and a
 * value. */
struct chunk_list {
    const float *first;
    uint32_t stride, max, sum, value;
};

/* The values of partials from `first` on; beyond the last one, of that one. */
template <int AHEAD> SPRY_DEVICE void load_parts(float outs[AHEAD], const chunk_list &list, uint32_t first, uint32_t n)
{
    SPRY_UNROLL
    for (uint32_t i = 0; i < AHEAD; i++)
        outs[i] = list.first[(first + i < n ? first + i : n - 1) * list.stride + list.value];
}

/* The value, all n partials folded, EACH (1, 8, 16 or 32) into one before that is folded with the rest; the next ones are on their
 * way while some are used. The lanes of a warp have one head. */
template <int EACH> SPRY_DEVICE float merged(const spry_attend_args &a, const chunk_list &list, uint32_t head, uint32_t n)
{
    enum { AHEAD = 8 };
    int lane = (int)(threadIdx.x % WARP);
    float max = -INFINITY, sum = 0, out = 0, next[AHEAD];
    load_parts<AHEAD>(next, list, 0, n);
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < n; first += WARP) {
        uint32_t own = first + (uint32_t)lane < n ? first + (uint32_t)lane : first;
        const float *its = list.first + own * list.stride;
        float part_max = first + (uint32_t)lane < n ? its[list.max] : -INFINITY, part_sum = its[list.sum];
        const lane_factors f = fold_lanes<EACH>(&max, part_max, lane);
        float chunk_sum = 0, chunk_out = 0;
        SPRY_UNROLL_BY(1)
        for (uint32_t group = first; group < first + WARP && group < n; group += AHEAD) {
            float outs[AHEAD];
            int from = (int)(group - first);
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                outs[i] = next[i];
            if (group + AHEAD < n)
                load_parts<AHEAD>(next, list, group + AHEAD, n);
            SPRY_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                float k = EACH > 1 ? warp_from(f.keep, from + i) : 0, t = EACH > 1 ? warp_from(f.take, from + i) : 1;
                float s = warp_from(part_sum, from + i);
                if (EACH == 1 || t >= 0) {
                    chunk_sum = folded(chunk_sum, k, s, t);
                    chunk_out = folded(chunk_out, k, outs[i], t);
                }
                if ((EACH > 1 && i + 1 < AHEAD) || ((from + i + 1) % EACH && group + AHEAD < n))
                    continue;
                float chunk_k = warp_from(f.chunk_keep, from + i), chunk_t = warp_from(f.chunk_take, from + i);
                if (chunk_t >= 0) {
                    sum = folded(sum, chunk_k, chunk_sum, chunk_t);
                    out = folded(out, chunk_k, chunk_out, chunk_t);
                }
                chunk_sum = chunk_out = 0;
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

/* A head of a row, which left what is folded as number `few`; by the threads of a block. */
template <int EACH> SPRY_DEVICE void merge_head(const spry_attend_args &a, uint32_t row, uint32_t few, uint32_t head)
{
    const uint32_t n = a.kv.head_dim, parts = (a.rows[row].n_entries + a.chunk_pages - 1) / a.chunk_pages;
    for (uint32_t d = threadIdx.x; d < (n + blockDim.x - 1) / blockDim.x * blockDim.x; d += blockDim.x) {
        const chunk_list list = {chunk_partial(a, few, head, 0), n + SPRY_PARTIAL_HEAD, 0, 1,
                                   SPRY_PARTIAL_HEAD + (d < n ? d : n - 1)};
        float value = merged<EACH>(a, list, head, parts);
        if (d < n)
            write_value(a, row, head, d, value);
    }
}
