/* Mixture of experts: rows are assigned to slots that are grouped by expert, so that a group of rows in a GEMM has one
 * expert. */
#include "device/cuda/cuda_state.h"
#include "model/arch.h"

/* Assigns slots from the router's logits; returns their number. */
static size_t route(spry_cuda_device *d, const spry_cuda_layer *l, size_t align)
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
                                        .bias = l->choice_bias,
                                        .expert_scale = l->expert_scale,
                                        .n_experts = c->n_experts,
                                        .n_used = c->n_experts_used,
                                        .normalise = c->normalise_experts,
                                        .sigmoid = c->routing == SPRY_ROUTING_SIGMOID,
                                        .n_groups = c->n_groups,
                                        .n_groups_used = c->n_groups_used,
                                        .by_two = c->routing == SPRY_ROUTING_SIGMOID || c->arch->groups_by_two,
                                        .eps = c->weight_eps,
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
    spry_cuda_launch(&d->context, spry_moe_group_id, c->n_experts, 1, 1, &group);
    return slots;
}

/* out = down(activation(gate) * up), or without a gate down(activation(up)), for the rows of `input`; with `groups` for
 * the slots' rows, of experts. All activations are in the mma layout, because groups of slots belong to different
 * experts. */
static void gated(spry_cuda_device *d, spry_cuda_memory out, const spry_cuda_matrix *gate, const spry_cuda_matrix *up,
                  const spry_cuda_matrix *down, spry_quantise_args input, size_t n_rows, spry_cuda_expert_groups groups)
{
    const spry_cuda_scratch *s = &d->scratch;
    bool has_gate = gate->type != SPRY_DTYPE_COUNT;
    size_t n = up->tiles.n_out, n_both = has_gate ? 2 : 1;
    const spry_cuda_memory source = groups.experts ? s->source : 0;
    const spry_cuda_gemm both[] = {{s->gate, n, has_gate ? gate : up}, {s->up, n, up}};
    const spry_cuda_gemm last = {out, down->tiles.n_out, down};
    spry_cuda_rows rows = spry_cuda_quantise(d, input, both, n_both, n_rows, true);
    rows.source = source; /* adapters belong to the rows of the slots */
    spry_cuda_charge(d, SPRY_OP_NORM, SPRY_F32, 0, 0);
    spry_cuda_gemms(d, &rows, both, n_both, n_rows, false, groups);
    spry_cuda_charge_gemms(d, SPRY_OP_GATE_UP, both, n_both, n_rows);
    const spry_quantise_args activated = {.in = s->gate,
                                          .up = has_gate ? s->up : 0,
                                          .ungated = !has_gate,
                                          .n = (uint32_t)n,
                                          .gate = d->config->arch->gate};
    rows = spry_cuda_quantise(d, activated, &last, 1, n_rows, true);
    rows.source = source;
    spry_cuda_charge(d, SPRY_OP_GATE, SPRY_F32, 0, 0);
    spry_cuda_gemms(d, &rows, &last, 1, n_rows, false, groups);
    spry_cuda_charge_gemms(d, SPRY_OP_DOWN, &last, 1, n_rows);
}

/* The router's logits, and the gate of the shared experts; returns the number of slots. */
static size_t choose(spry_cuda_device *d, const spry_cuda_layer *l, spry_quantise_args input, size_t align)
{
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_gemm routers[] = {{s->router, d->config->n_experts, &l->router},
                                      {s->shared_gate, 1, &l->shared_router}};
    size_t n_routers = l->shared_router.type != SPRY_DTYPE_COUNT ? 2 : 1;
    const spry_cuda_rows rows = spry_cuda_quantise(d, input, routers, n_routers, d->n_rows, true);
    spry_cuda_gemms(d, &rows, routers, n_routers, d->n_rows, false, (spry_cuda_expert_groups){0});
    size_t slots = route(d, l, align);
    spry_cuda_charge(d, SPRY_OP_ROUTE, l->router.type, l->router.read_bytes, 0);
    return slots;
}

/* The inputs of the slots: rows of `input`; projected to fewer values, if there is a matrix for that; or multiplied by
 * the experts' weights, in expert_out, which is free until the experts' results. */
static spry_quantise_args slot_inputs(spry_cuda_device *d, const spry_cuda_layer *l, spry_quantise_args input)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    const spry_cuda_gemm latent = {s->latent, c->n_latent, &l->latent_in};
    const spry_moe_scale_args scale = {s->expert_out, s->h, s->slot, s->weight, c->n_embd, c->n_experts_used};
    if (c->arch->scales_inputs) {
        input.plain = s->h;
        spry_cuda_quantise(d, input, NULL, 0, d->n_rows, true);
        spry_cuda_launch(&d->context, spry_moe_scale_id, d->n_rows, c->n_experts_used, 1, &scale);
        return (spry_quantise_args){.in = s->expert_out, .n = c->n_embd};
    }
    if (c->n_latent) {
        spry_cuda_quantise_gemms(d, input, &latent, 1, d->n_rows, false);
        input = (spry_quantise_args){.in = s->latent, .n = c->n_latent};
    }
    input.source = s->source;
    return input;
}

static void combine_experts(spry_cuda_device *d, const spry_moe_combine_args *args)
{
    size_t pieces = (args->n + SPRY_ROW_THREADS - 1) / SPRY_ROW_THREADS;
    spry_cuda_launch(&d->context, spry_moe_combine_id, d->n_rows, pieces, 1, args);
}

void spry_cuda_experts(spry_cuda_device *d, const spry_cuda_layer *l, spry_quantise_args router,
                       spry_quantise_args input, spry_cuda_memory out, bool add)
{
    const spry_config *c = d->config;
    const spry_cuda_scratch *s = &d->scratch;
    bool shared = l->shared_up.type != SPRY_DTYPE_COUNT, weighed = l->shared_router.type != SPRY_DTYPE_COUNT;
    size_t pairs = d->n_rows * c->n_experts_used;
    size_t align =
        pairs / c->n_experts >= SPRY_CUDA_EXPERT_ALIGN_MANY ? SPRY_CUDA_EXPERT_ALIGN_MANY : SPRY_CUDA_EXPERT_ALIGN;
    size_t slots = choose(d, l, router, align);
    gated(d, s->expert_out, &l->gate, &l->up, &l->down, slot_inputs(d, l, input), slots,
          (spry_cuda_expert_groups){s->experts, align});
    if (shared)
        gated(d, s->shared_out, &l->shared_gate, &l->shared_up, &l->shared_down, input, d->n_rows,
              (spry_cuda_expert_groups){0});
    spry_moe_combine_args combine = {.y = out,
                                     .out = s->expert_out,
                                     .slot = s->slot,
                                     .weight = c->arch->scales_inputs ? 0 : s->weight,
                                     .shared = shared ? s->shared_out : 0,
                                     .shared_gate = weighed ? s->shared_gate : 0,
                                     .n = c->n_embd,
                                     .n_used = c->n_experts_used,
                                     .add = add,
                                     .scale = c->average_shared ? 0.5f : 1};
    if (c->n_latent) { /* projected back before the shared experts are added */
        const spry_moe_combine_args inner = {.y = s->latent,
                                             .out = s->expert_out,
                                             .slot = s->slot,
                                             .weight = s->weight,
                                             .n = c->n_latent,
                                             .n_used = c->n_experts_used,
                                             .scale = 1};
        const spry_cuda_gemm back = {out, c->n_embd, &l->latent_out};
        combine_experts(d, &inner);
        spry_cuda_quantise_gemms(d, (spry_quantise_args){.in = s->latent, .n = c->n_latent}, &back, 1, d->n_rows, add);
        combine.n_used = 0;
        combine.add = true;
    }
    combine_experts(d, &combine);
    spry_cuda_charge(d, SPRY_OP_ROUTE, SPRY_F32, 0, 0);
}
