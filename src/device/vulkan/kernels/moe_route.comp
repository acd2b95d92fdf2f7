/* Selects the experts of a row from the router's logits, as cuda/kernels/moe.cu does; scores are stored in place. Grid:
 * rows. Shared memory: scores, and what the selection may still take. */
#version 450
#include "common.glsl"
layout(local_size_x = 32) in;
ARGUMENTS(spry_moe_route_args);

const uint LANES = 32, EXPERTS_MAX = 1024;
shared float score[EXPERTS_MAX], choice[EXPERTS_MAX], good[EXPERTS_MAX];
shared float lane_best[LANES];
shared uint lane_number[LANES];

/* Index of the largest value, the lowest among equals; n: all are -INFINITY or NaN. `list`: 0 choice, 1 good. */
uint best_of(uint list, uint n)
{
    uint lane = gl_LocalInvocationID.x, number = n;
    float best = -INFINITY;
    barrier();
    for (uint e = lane; e < n; e += LANES) {
        float value = list == 0 ? choice[e] : good[e];
        if (value > best) {
            best = value;
            number = e;
        }
    }
    lane_best[lane] = best;
    lane_number[lane] = number;
    barrier();
    best = -INFINITY;
    number = n;
    for (uint i = 0; i < LANES; i++)
        if (lane_best[i] > best || (lane_best[i] == best && lane_number[i] < number)) {
            best = lane_best[i];
            number = lane_number[i];
        }
    barrier();
    return number;
}

float lanes_sum(float value)
{
    lane_best[gl_LocalInvocationID.x] = value;
    barrier();
    precise float sum = 0;
    for (uint i = 0; i < LANES; i++)
        sum += lane_best[i];
    barrier();
    return sum;
}

float lanes_max(float value)
{
    lane_best[gl_LocalInvocationID.x] = value;
    barrier();
    float most = -INFINITY;
    for (uint i = 0; i < LANES; i++)
        most = max(most, lane_best[i]);
    barrier();
    return most;
}

void softmax()
{
    uint lane = gl_LocalInvocationID.x, n = args.a.n_experts;
    float most = -INFINITY;
    precise float sum = 0;
    for (uint e = lane; e < n; e += LANES)
        most = max(most, score[e]);
    most = lanes_max(most);
    for (uint e = lane; e < n; e += LANES) {
        score[e] = exp(score[e] - most);
        sum += score[e];
    }
    float scale = 1 / lanes_sum(sum);
    for (uint e = lane; e < n; e += LANES)
        score[e] *= scale;
}

/* Keeps the best groups of experts, rated by their best one, or with `by_two` by their best two. */
void choose_groups()
{
    uint lane = gl_LocalInvocationID.x, size = args.a.n_experts / args.a.n_groups;
    for (uint g = lane; g < args.a.n_groups; g += LANES) {
        float first = -INFINITY, second = -INFINITY;
        for (uint i = g * size; i < (g + 1) * size; i++) {
            second = choice[i] > first ? first : max(choice[i], second);
            first = max(choice[i], first);
        }
        good[g] = args.a.by_two != 0 ? first + second : first;
    }
    for (uint used = 0; used < args.a.n_groups_used; used++) {
        uint best = best_of(1, args.a.n_groups);
        if (lane == 0 && best < args.a.n_groups)
            good[best] = -INFINITY; /* selected */
        barrier();
    }
    for (uint e = lane; e < args.a.n_experts; e += LANES)
        if (good[e / size] != -INFINITY)
            choice[e] = args.a.sigmoid != 0 ? -INFINITY : 0;
    barrier();
}

void main()
{
    uint lane = gl_LocalInvocationID.x, n = args.a.n_experts, n_used = args.a.n_used;
    uint64_t from = row_at(args.a.router, gl_WorkGroupID.x, n);
    Words chosen = Words(row_at(args.a.chosen, gl_WorkGroupID.x, n_used));
    Floats weight = Floats(row_at(args.a.weight, gl_WorkGroupID.x, n_used));
    for (uint e = lane; e < n; e += LANES)
        score[e] = float_at(from, e);
    barrier();
    if (args.a.sigmoid == 0)
        softmax();
    for (uint e = lane; e < n; e += LANES) {
        score[e] = args.a.sigmoid != 0 ? 1 / (1 + exp(-score[e])) : score[e];
        choice[e] = args.a.bias != 0 ? score[e] + float_at(args.a.bias, e) : score[e];
    }
    barrier();
    if (args.a.n_groups > 1)
        choose_groups();
    precise float sum = 0;
    for (uint i = 0; i < n_used; i++) {
        uint best = best_of(0, n);
        best = best < n ? best : i; /* NaN logits: any choice will do */
        sum += score[best];
        barrier();
        if (lane == 0) {
            uint at = i; /* ascending */
            for (; at > 0 && chosen.v[at - 1] > best; at--) {
                chosen.v[at] = chosen.v[at - 1];
                weight.v[at] = weight.v[at - 1];
            }
            chosen.v[at] = best;
            weight.v[at] = score[best];
            choice[best] = -INFINITY;
        }
        barrier();
    }
    for (uint i = 0; lane == 0 && i < n_used; i++) {
        float value = args.a.normalise != 0 ? weight.v[i] / (sum + args.a.eps) : weight.v[i];
        value = args.a.scale != 1 ? value * args.a.scale : value;
        weight.v[i] = args.a.expert_scale != 0 ? value * float_at(args.a.expert_scale, chosen.v[i]) : value;
    }
}
