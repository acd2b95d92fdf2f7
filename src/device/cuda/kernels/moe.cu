/* Mixture of experts: routing, grouping rows by expert, and combining. A row's contributions are added in ascending
 * order of expert, independent of other rows. Grids: spry_moe_route one warp per row; spry_moe_group one block per
 * expert; spry_moe_scale one block per row and expert; spry_moe_combine one block per row and 256
 * values. */
#include "device/cuda/kernels/primitives.cuh"

#include "device/cuda/kernel_args.h"

enum { EXPERTS_MAX = 1024 };

/* Bits of a float that are ordered as the floats are; -0 counts as 0. */
SPRY_DEVICE uint32_t ordered_bits(float value)
{
    uint32_t bits = bits_of_float(value + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

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
    uint32_t own = ordered_bits(best);
    return ~warp_max_u32(own == warp_max_u32(own) ? ~number : 0);
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

SPRY_KERNEL(spry_moe_route, spry_moe_route_args)
{
    SPRY_SMEM float choice[EXPERTS_MAX];
    SPRY_SMEM uint32_t picked[EXPERTS_MAX];
    int lane = (int)threadIdx.x;
    float *score = a.router + (uint64_t)blockIdx.x * a.n_experts, sum = 0;
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
        syncwarp();
        if (lane == 0) {
            picked[i] = best;
            choice[best] = -INFINITY; /* selected */
        }
        syncwarp();
    }
    for (uint32_t i = 0; i < a.n_used; i++)
        sum += score[picked[i]];
    for (uint32_t i = (uint32_t)lane; i < a.n_used; i += WARP) { /* in ascending order; an expert may be there twice */
        uint32_t expert = picked[i], at = 0;
        for (uint32_t j = 0; j < a.n_used; j++)
            at += picked[j] < expert || (picked[j] == expert && j < i);
        float weight = a.normalise ? score[expert] / (sum + a.eps) : score[expert];
        weight = a.scale != 1 ? weight * a.scale : weight;
        weight = a.expert_scale ? weight * a.expert_scale[expert] : weight;
        a.chosen[(uint64_t)blockIdx.x * a.n_used + at] = expert;
        a.weight[(uint64_t)blockIdx.x * a.n_used + at] = weight;
    }
}

/* The pairs of (row, expert) of a thread: consecutive ones. */
struct pair_range {
    uint32_t begin, end;

    SPRY_METHOD pair_range(uint32_t n_pairs)
    {
        uint32_t each = (n_pairs + blockDim.x - 1) / blockDim.x, first = threadIdx.x * each;
        begin = first < n_pairs ? first : n_pairs;
        end = n_pairs - begin < each ? n_pairs : begin + each;
    }
};

/* Sum of `value` over the threads of the block before this one. */
SPRY_DEVICE uint32_t sum_before(uint32_t value)
{
    SPRY_SMEM uint32_t warps[SPRY_ROW_THREADS / WARP];
    uint32_t lane = threadIdx.x % WARP, upto = value, before = 0;
    SPRY_UNROLL
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t other = warp_shfl(upto, (int)(lane < step ? lane : lane - step));
        upto += lane < step ? 0 : other;
    }
    if (lane == WARP - 1)
        warps[threadIdx.x / WARP] = upto;
    syncthreads();
    for (uint32_t i = 0; i < threadIdx.x / WARP; i++)
        before += warps[i];
    return before + upto - value;
}

/* A block fills the slots of one expert, which are in order of rows. Each block counts all pairs, because its slots
 * begin after those of the experts before it. */
SPRY_KERNEL(spry_moe_group, spry_moe_group_args)
{
    SPRY_SMEM uint32_t count[EXPERTS_MAX], sums[WARPS_MAX];
    uint32_t n_pairs = a.n_rows * a.n_used, own = blockIdx.x, before = 0;
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += blockDim.x)
        count[e] = 0;
    syncthreads();
    for (uint32_t i = threadIdx.x; i < n_pairs; i += blockDim.x)
        atomic_add(&count[a.chosen[i]], 1);
    syncthreads();
    for (uint32_t e = threadIdx.x; e < own; e += blockDim.x)
        before += (count[e] + a.align - 1) / a.align * a.align;
    uint32_t begin = block_sum(before, sums), filled = begin + count[own];
    uint32_t end = begin + (count[own] + a.align - 1) / a.align * a.align, mine = 0;
    end = own + 1 == a.n_experts ? a.n_slots : end; /* the rest is unused */
    const pair_range pairs(n_pairs);
    for (uint32_t i = pairs.begin; i < pairs.end; i++)
        mine += a.chosen[i] == own;
    uint32_t slot = begin + sum_before(mine);
    for (uint32_t i = pairs.begin; mine && i < pairs.end; i++)
        if (a.chosen[i] == own) {
            a.source[slot] = (int32_t)(i / a.n_used);
            a.slot[i] = slot++;
        }
    for (uint32_t i = filled + threadIdx.x; i < end; i += blockDim.x)
        a.source[i] = -1;
    for (uint32_t i = begin / a.align + threadIdx.x; i < end / a.align; i += blockDim.x)
        a.experts[i] = i * a.align < filled ? (int32_t)own : -1;
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
    uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
    float sum = 0;
    if (i >= a.n)
        return;
    SPRY_UNROLL_BY(8) /* loads of several experts at a time */
    for (uint32_t e = 0; e < a.n_used; e++)
        sum += (a.weight ? weight[e] : 1) * a.out[(uint64_t)slot[e] * a.n + i];
    if (a.shared)
        sum += (a.shared_gate ? 1 / (1 + expf(-a.shared_gate[row])) : 1) * a.shared[row * a.n + i];
    a.y[row * a.n + i] = (a.add ? a.y[row * a.n + i] : 0) + sum * a.scale;
}
