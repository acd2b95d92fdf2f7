/* Mixture of experts: rows are assigned to slots that are grouped by expert, so that a group of rows in a GEMM has one
 * expert. */
#include "device/cuda/cuda_state.h"
#include "model/arch.h"

/* Assigns slots from the router's logits; returns their number. */
static size_t route(spry_cuda_device *d, spry_cuda_memory choice_bias, size_t align)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t slots = d->n_rows * c->n_experts_used + (size_t)c->n_experts * (align - 1);
    slots = (slots + align - 1) / align * align;
    size_t most = d->n_rows * c->n_experts_used * align; /* if each (row, expert) pair were in a group of its own */
    slots = slots < most ? slots : most;
    const spry_moe_route_args choose = {.router = s->router,
                                        .chosen = s->chosen,
                                        .weight = s->weight,
                                        .bias = choice_bias,
                                        .n_experts = c->n_experts,
                                        .n_used = c->n_experts_used,
                                        .normalise = c->normalise_experts,
                                        .sigmoid = c->routing == SPRY_ROUTING_SIGMOID,
                                        .n_groups = c->n_groups,
                                        .n_groups_used = c->n_groups_used,
                                        .scale = c->routed_scale};
    const spry_moe_group_args group = {.chosen = s->chosen,
                                       .source = s->source,
                                       .experts = s->experts,
                                       .slot = s->slot,
                                       .n_rows = (uint32_t)d->n_rows,
                                       .n_experts = c->n_experts,
                                       .n_used = c->n_experts_used,
                                       .n_slots = (uint32_t)slots,
                                       .align = (uint32_t)align};
    spry_cuda_launch(&d->context, spry_moe_route_id, d->n_rows, 1, 1, &choose);
    spry_cuda_launch(&d->context, spry_moe_group_id, 1, 1, 1, &group);
    return slots;
}

/* out = down(activation(gate) * up), for the rows of `input`, or with `groups` for the slots' rows. All activations are
 * in the mma layout, because groups of slots belong to different experts. */
static void gated(spry_cuda_device *d, spry_cuda_memory out, const spry_cuda_matrix *gate, const spry_cuda_matrix *up,
                  const spry_cuda_matrix *down, spry_quantise_args input, size_t n_rows, spry_cuda_expert_groups groups)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    size_t n = gate->tiles.n_out;
    input.source = groups.experts ? s->source : 0;
    const spry_cuda_gemm both[] = {{s->gate, n, gate}, {s->up, n, up}};
    const spry_cuda_gemm last = {out, c->n_embd, down};
    spry_cuda_rows rows = spry_cuda_quantise(d, input, both, SPRY_COUNT(both), n_rows, true);
    spry_cuda_charge(d, SPRY_OP_NORM, SPRY_F32, 0, 0);
    spry_cuda_gemms(d, &rows, both, SPRY_COUNT(both), n_rows, false, groups);
    spry_cuda_charge_gemms(d, SPRY_OP_GATE_UP, both, SPRY_COUNT(both), n_rows);
    const spry_quantise_args activated = {.in = s->gate, .up = s->up, .n = (uint32_t)n, .gate = c->arch->gate};
    rows = spry_cuda_quantise(d, activated, &last, 1, n_rows, true);
    spry_cuda_charge(d, SPRY_OP_GATE, SPRY_F32, 0, 0);
    rows.source = input.source; /* adapters belong to the rows of the slots */
    spry_cuda_gemms(d, &rows, &last, 1, n_rows, false, groups);
    spry_cuda_charge_gemms(d, SPRY_OP_DOWN, &last, 1, n_rows);
}

void spry_cuda_experts(spry_cuda_device *d, const spry_cuda_layer *l)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_expert_groups none = {0};
    const spry_quantise_args input = spry_cuda_input(d, l->ffn_norm, l->ffn_norm_bias, NULL);
    bool shared = l->shared_up.type != SPRY_DTYPE_COUNT, weighed = l->shared_router.type != SPRY_DTYPE_COUNT;
    const spry_cuda_gemm routers[] = {{s->router, c->n_experts, &l->router}, {s->shared_gate, 1, &l->shared_router}};
    size_t n_routers = weighed ? 2 : 1, pairs = d->n_rows * c->n_experts_used;
    size_t align =
        pairs / c->n_experts >= SPRY_CUDA_EXPERT_ALIGN_MANY ? SPRY_CUDA_EXPERT_ALIGN_MANY : SPRY_CUDA_EXPERT_ALIGN;
    const spry_cuda_rows rows = spry_cuda_quantise(d, input, routers, n_routers, d->n_rows, true);
    spry_cuda_gemms(d, &rows, routers, n_routers, d->n_rows, false, none);
    size_t slots = route(d, l->choice_bias, align);
    spry_cuda_charge(d, SPRY_OP_ROUTE, l->router.type, l->router.read_bytes, 0);
    gated(d, s->expert_out, &l->gate, &l->up, &l->down, input, slots, (spry_cuda_expert_groups){s->experts, align});
    if (shared)
        gated(d, s->shared_out, &l->shared_gate, &l->shared_up, &l->shared_down, input, d->n_rows, none);
    const spry_moe_combine_args combine = {.y = s->y,
                                           .out = s->expert_out,
                                           .slot = s->slot,
                                           .weight = s->weight,
                                           .shared = shared ? s->shared_out : 0,
                                           .shared_gate = weighed ? s->shared_gate : 0,
                                           .n = c->n_embd,
                                           .n_used = c->n_experts_used};
    spry_cuda_launch(&d->context, spry_moe_combine_id, d->n_rows, 1, 1, &combine);
    spry_cuda_charge(d, SPRY_OP_ROUTE, SPRY_F32, 0, 0);
}
