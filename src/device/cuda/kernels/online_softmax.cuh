/* Online softmax and the combination of split-KV partial results. Each page, or chunk of pages, gives a running max,
 * a running sum and an accumulator of values; partial results are combined in order:
 *   max = max(max_a, max_b); sum = sum_a * e^(max_a - max) + sum_b * e^(max_b - max); out likewise.
 * Partial results in global memory: [row, head, chunk, {max, sum, -, -, head_dim values}]. */
#pragma once

#include "device/cuda/kernels/activations.cuh"

#define LOG2E 1.44269504088896341f /* log2(e) */

/* The reference of the exponentials: the max rounded up to a multiple of 16. It rarely changes, so accumulators are
 * rarely rescaled. */
SPRY_DEVICE float rounded_max(float max)
{
    return ceilf(max * (1.0f / 16)) * 16;
}

/* e^(score - max) */
SPRY_DEVICE float softmax_exp(float score, float level)
{
    return ex2_approx((score - level) * LOG2E);
}

/* Adds a partial result to a sum. All kernels use this function, so the sums have the same bits. With scale_old = 1 it
 * is one fma. */
SPRY_DEVICE float rescaled_add(float sum, float scale_old, float part, float scale_new)
{
    return fmaf(part, scale_new, sum * scale_old);
}

/* The scales of both sides when a partial result with maximum part_max is added to a state with the running max *max,
 * which is rounded; false if the partial result is empty. */
SPRY_DEVICE bool online_softmax_scales(float *max, float *scale_old, float *scale_new, float part_max)
{
    if (part_max == -INFINITY)
        return false;
    float larger = fmaxf(*max, rounded_max(part_max));
    *scale_old = softmax_exp(*max, larger);
    *scale_new = softmax_exp(part_max, larger);
    *max = larger;
    return true;
}

/* The scale of a head's accumulator at the end: 1 / sum, with the attention sink if the head has one. */
SPRY_DEVICE float final_scale(const spry_attend_args &a, uint32_t head, float max, float sum)
{
    if (!a.sinks)
        return 1.0f / sum;
    float sink = a.sinks[head], larger = fmaxf(max, sink), scale_old = expf(max - larger);
    return scale_old / fmaf(sum, scale_old, expf(sink - larger));
}

/* Address of the partial result of a chunk for a head of decode row `partial_row`. */
SPRY_DEVICE float *partial_at(const spry_attend_args &a, uint32_t partial_row, uint32_t head, uint32_t chunk)
{
    return a.partial +
           (((uint64_t)partial_row * a.n_heads + head) * a.n_chunks + chunk) * (a.kv.head_dim + SPRY_PARTIAL_HEADER);
}

/* online_softmax_scales for the partial results of 32 lanes in order: the scales within chunks of EACH, then the scales
 * of the lane's chunk; a negative scale_new means an empty part. */
struct lane_scales {
    float scale_old, scale_new, chunk_scale_old, chunk_scale_new;
};

/* Prefix maximum within each group of `end` lanes: over this lane and the lanes before it at multiples of `first`. */
SPRY_DEVICE float prefix_max(float value, int first, int end, int lane)
{
    SPRY_UNROLL
    for (int distance = first; distance < end; distance *= 2) {
        float lower = warp_shfl(value, lane % end >= distance ? lane - distance : lane);
        value = fmaxf(value, lower);
    }
    return value;
}

/* *max is the running max before these lanes and becomes that after them. With EACH = 1 every part is its own chunk. */
template <int EACH> SPRY_DEVICE lane_scales lane_softmax_scales(float *max, float part_max, int lane)
{
    lane_scales f;
    float upto = prefix_max(EACH > 1 ? rounded_max(part_max) : part_max, 1, EACH, lane),
          before = warp_shfl(upto, lane ? lane - 1 : 0);
    f.scale_old = softmax_exp(lane % EACH ? before : -INFINITY, upto);
    f.scale_new = part_max == -INFINITY ? -1.0f : softmax_exp(part_max, upto);
    float chunk_max = warp_shfl(upto, lane | (EACH - 1));
    upto = prefix_max(fmaxf(*max, rounded_max(chunk_max)), EACH, WARP, lane);
    before = warp_shfl(upto, lane >= EACH ? lane - EACH : 0);
    f.chunk_scale_old = softmax_exp(lane >= EACH ? before : *max, upto);
    f.chunk_scale_new = chunk_max == -INFINITY ? -1.0f : softmax_exp(chunk_max, upto);
    *max = warp_shfl(upto, WARP - 1);
    return f;
}

/* A list of partial results: address of the first, stride, and offsets of max, sum and one value. */
struct partial_list {
    const float *first;
    uint32_t stride, max, sum, value;
};

/* The values of AHEAD partial results from `first` on; past the end, the last one again. */
template <int AHEAD>
SPRY_DEVICE void load_partials(float outs[AHEAD], const partial_list &list, uint32_t first, uint32_t n)
{
    SPRY_UNROLL
    for (uint32_t i = 0; i < AHEAD; i++)
        outs[i] = list.first[(first + i < n ? first + i : n - 1) * list.stride + list.value];
}

/* Combines n partial results, EACH (1, 8, 16 or 32) of them into a chunk first; loads are ahead of use. All lanes of a
 * warp have the same head. */
template <int EACH>
SPRY_DEVICE float combined(const spry_attend_args &a, const partial_list &list, uint32_t head, uint32_t n)
{
    enum { AHEAD = 8 };
    int lane = (int)(threadIdx.x % WARP);
    float max = -INFINITY, sum = 0, out = 0, next[AHEAD];
    load_partials<AHEAD>(next, list, 0, n);
    SPRY_UNROLL_BY(1)
    for (uint32_t first = 0; first < n; first += WARP) {
        uint32_t own = first + (uint32_t)lane < n ? first + (uint32_t)lane : first;
        const float *its = list.first + own * list.stride;
        float part_max = first + (uint32_t)lane < n ? its[list.max] : -INFINITY, part_sum = its[list.sum];
        const lane_scales f = lane_softmax_scales<EACH>(&max, part_max, lane);
        float chunk_sum = 0, chunk_out = 0;
        SPRY_UNROLL_BY(1)
        for (uint32_t group = first; group < first + WARP && group < n; group += AHEAD) {
            float outs[AHEAD];
            int from = (int)(group - first);
            SPRY_UNROLL
            for (uint32_t i = 0; i < AHEAD; i++)
                outs[i] = next[i];
            if (group + AHEAD < n)
                load_partials<AHEAD>(next, list, group + AHEAD, n);
            SPRY_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                float k = EACH > 1 ? warp_shfl(f.scale_old, from + i) : 0,
                      t = EACH > 1 ? warp_shfl(f.scale_new, from + i) : 1;
                float s = warp_shfl(part_sum, from + i);
                if (EACH == 1 || t >= 0) {
                    chunk_sum = rescaled_add(chunk_sum, k, s, t);
                    chunk_out = rescaled_add(chunk_out, k, outs[i], t);
                }
                if ((EACH > 1 && i + 1 < AHEAD) || ((from + i + 1) % EACH && group + AHEAD < n))
                    continue;
                float chunk_k = warp_shfl(f.chunk_scale_old, from + i),
                      chunk_t = warp_shfl(f.chunk_scale_new, from + i);
                if (chunk_t >= 0) {
                    sum = rescaled_add(sum, chunk_k, chunk_sum, chunk_t);
                    out = rescaled_add(out, chunk_k, chunk_out, chunk_t);
                }
                chunk_sum = chunk_out = 0;
            }
        }
    }
    return out * final_scale(a, head, max, sum);
}

/* Stores an output as a float and in the wanted activation formats. All lanes of a warp have the same head; with
 * formats they have 32 values of one block. */
SPRY_DEVICE void store_output(const spry_attend_args &a, uint32_t row, uint32_t head, uint32_t d, float value)
{
    uint32_t at = head * a.kv.head_dim + d;
    a.out[(uint64_t)row * a.n_heads * a.kv.head_dim + at] = value;
    store_activations(a.to, row, at / ACT_BLOCK, (int)(at % ACT_BLOCK), value);
}

/* A block combines the partial results of a head. */
template <int EACH>
SPRY_DEVICE void combine_head(const spry_attend_args &a, uint32_t row, uint32_t partial_row, uint32_t head)
{
    const uint32_t n = a.kv.head_dim, parts = (a.rows[row].n_entries + a.chunk_pages - 1) / a.chunk_pages;
    for (uint32_t d = threadIdx.x; d < (n + blockDim.x - 1) / blockDim.x * blockDim.x; d += blockDim.x) {
        const partial_list list = {partial_at(a, partial_row, head, 0), n + SPRY_PARTIAL_HEADER, 0, 1,
                                   SPRY_PARTIAL_HEADER + (d < n ? d : n - 1)};
        float value = combined<EACH>(a, list, head, parts);
        if (d < n)
            store_output(a, row, head, d, value);
    }
}
