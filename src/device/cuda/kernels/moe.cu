/* Mixture of experts: routing, grouping rows by expert, and combining. A row's contributions are added in ascending
 * order of expert, independent of other rows. Grids: spry_moe_route one warp per row; spry_moe_group one block;
 * spry_moe_scale one block per row and expert; spry_moe_combine one block per row. */
#include "device/cuda/kernels/primitives.cuh"

#include "device/cuda/kernel_args.h"

enum { EXPERTS_MAX = 1024 };

/* Index of the largest score, the lower one on ties; taken experts have -INFINITY. Returns n if there is none. */
SPRY_DEVICE uint32_t best_expert(const float *score, uint32_t n, int lane)
{
    float best = -INFINITY;
    uint32_t number = n;
    for (uint32_t e = (uint32_t)lane; e < n; e += WARP)
        if (score[e] > best) {
            best = score[e];
            number = e;
        }
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        float other = warp_shfl_xor(best, mask);
        uint32_t other_number = warp_shfl_xor(number, mask);
        if (other > best || (other == best && other_number < number)) {
            best = other;
            number = other_number;
        }
    }
    return number;
}

/* Softmax of the scores in place. */
SPRY_DEVICE void softmax_row(float *score, uint32_t n, int lane)
{
    float max = -INFINITY, sum = 0;
    for (uint32_t e = (uint32_t)lane; e < n; e += WARP)
        max = fmaxf(max, score[e]);
    max = warp_max(max);
    for (uint32_t e = (uint32_t)lane; e < n; e += WARP)
        sum += score[e] = expf(score[e] - max);
    float scale = 1.0f / warp_sum(sum);
    for (uint32_t e = (uint32_t)lane; e < n; e += WARP)
        score[e] *= scale;
    syncwarp();
}

/* Keeps the best groups of experts: the others get 0, or with sigmoid scores, whose choices may be negative, -INFINITY.
 * A group is rated by its best expert, or with `by_two` by its best two. */
SPRY_DEVICE void choose_groups(const spry_moe_route_args &a, float *choice, int lane)
{
    SPRY_SMEM float good[EXPERTS_MAX];
    uint32_t size = a.n_experts / a.n_groups;
    for (uint32_t g = (uint32_t)lane; g < a.n_groups; g += WARP) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            second = choice[i] > first ? first : choice[i] > second ? choice[i] : second;
            first = choice[i] > first ? choice[i] : first;
        }
        good[g] = a.by_two ? first + second : first;
    }
    syncwarp();
    for (uint32_t used = 0; used < a.n_groups_used; used++) {
        uint32_t best = best_expert(good, a.n_groups, lane);
        syncwarp();
        if (lane == 0 && best < a.n_groups)
            good[best] = -INFINITY; /* selected */
        syncwarp();
    }
    for (uint32_t e = (uint32_t)lane; e < a.n_experts; e += WARP)
        if (good[e / size] != -INFINITY)
            choice[e] = a.sigmoid ? -INFINITY : 0;
    syncwarp();
}

/* Inserts an expert into an ascending list of `n`. */
SPRY_DEVICE void insert_expert(uint32_t *chosen, float *weight, uint32_t n, uint32_t expert, float score)
{
    uint32_t at = n;
    for (; at > 0 && chosen[at - 1] > expert; at--) {
        chosen[at] = chosen[at - 1];
        weight[at] = weight[at - 1];
    }
    chosen[at] = expert;
    weight[at] = score;
}

SPRY_KERNEL(spry_moe_route, spry_moe_route_args)
{
    SPRY_SMEM float choice[EXPERTS_MAX];
    int lane = (int)threadIdx.x;
    float *score = a.router + (uint64_t)blockIdx.x * a.n_experts, sum = 0;
    uint32_t *chosen = a.chosen + (uint64_t)blockIdx.x * a.n_used;
    float *weight = a.weight + (uint64_t)blockIdx.x * a.n_used;
    if (!a.sigmoid)
        softmax_row(score, a.n_experts, lane);
    for (uint32_t e = (uint32_t)lane; e < a.n_experts; e += WARP) {
        score[e] = a.sigmoid ? 1 / (1 + expf(-score[e])) : score[e];
        choice[e] = a.bias ? score[e] + a.bias[e] : score[e];
    }
    syncwarp();
    if (a.n_groups > 1)
        choose_groups(a, choice, lane);
    for (uint32_t i = 0; i < a.n_used; i++) {
        uint32_t best = best_expert(choice, a.n_experts, lane);
        best = best < a.n_experts ? best : i; /* NaN logits: any choice will do */
        sum += score[best];
        syncwarp();
        if (lane == 0) {
            insert_expert(chosen, weight, i, best, score[best]);
            choice[best] = -INFINITY; /* selected */
        }
        syncwarp();
    }
    for (uint32_t i = 0; lane == 0 && i < a.n_used; i++) {
        weight[i] = a.normalise ? weight[i] / (sum + a.eps) : weight[i];
        weight[i] = a.scale != 1 ? weight[i] * a.scale : weight[i];
        weight[i] = a.expert_scale ? weight[i] * a.expert_scale[chosen[i]] : weight[i];
    }
}

/* The slots of an expert are in order of rows; one thread per expert counts and fills. */
SPRY_KERNEL(spry_moe_group, spry_moe_group_args)
{
    SPRY_SMEM uint32_t begin[EXPERTS_MAX + 1];
    uint32_t n_pairs = a.n_rows * a.n_used;
    for (uint32_t i = threadIdx.x; i < a.n_slots; i += blockDim.x)
        a.source[i] = -1;
    for (uint32_t i = threadIdx.x; i < a.n_slots / a.align; i += blockDim.x)
        a.experts[i] = -1;
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += blockDim.x) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < n_pairs; i++)
            count += a.chosen[i] == e;
        begin[e + 1] = (count + a.align - 1) / a.align * a.align;
    }
    syncthreads();
    if (threadIdx.x == 0) {
        begin[0] = 0;
        for (uint32_t e = 0; e < a.n_experts; e++)
            begin[e + 1] += begin[e];
    }
    syncthreads();
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += blockDim.x) {
        uint32_t slot = begin[e];
        for (uint32_t i = 0; i < n_pairs; i++)
            if (a.chosen[i] == e) {
                a.source[slot] = (int32_t)(i / a.n_used);
                a.slot[i] = slot++;
            }
        for (uint32_t i = begin[e] / a.align; i < begin[e + 1] / a.align; i++)
            a.experts[i] = (int32_t)e;
    }
}

SPRY_KERNEL(spry_moe_scale, spry_moe_scale_args)
{
    uint64_t pair = (uint64_t)blockIdx.x * a.n_used + blockIdx.y;
    const float *in = a.in + (uint64_t)blockIdx.x * a.n;
    float *out = a.out + (uint64_t)a.slot[pair] * a.n, weight = a.weight[pair];
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        out[i] = in[i] * weight;
}

SPRY_KERNEL(spry_moe_combine, spry_moe_combine_args)
{
    uint64_t row = blockIdx.x;
    const uint32_t *slot = a.slot + row * a.n_used;
    const float *weight = a.weight + row * a.n_used;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float sum = 0;
        for (uint32_t e = 0; e < a.n_used; e++)
            sum += (a.weight ? weight[e] : 1) * a.out[(uint64_t)slot[e] * a.n + i];
        if (a.shared)
            sum += (a.shared_gate ? 1 / (1 + expf(-a.shared_gate[row])) : 1) * a.shared[row * a.n + i];
        a.y[row * a.n + i] = (a.add ? a.y[row * a.n + i] : 0) + sum * a.scale;
    }
}
