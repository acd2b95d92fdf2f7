/* Experts: a stacked tensor for each kind in GGUF; in Hugging Face files one tensor each, or one for all. */
#include <stdio.h>

#include "model/arch.h"
#include "model/weights_bind.h"

static spry_status make_list(const spry_binder *b, spry_weight **out)
{
    *out = spry_arena_alloc(b->arena, b->config->n_experts, sizeof **out);
    return *out ? SPRY_OK : spry_fail_memory(b->error, "experts", b->config->n_experts * sizeof **out);
}

static spry_status check_stacked(const spry_binder *b, const spry_tensor *t, size_t n_out, size_t n_in)
{
    bool fits = t->dims[0] == b->config->n_experts && t->dims[1] == n_out && t->dims[2] == n_in && t->dims[3] == 1;
    return fits ? SPRY_OK : spry_bind_wrong_shape(b, t, n_out, n_in);
}

/* Biases of all experts: [n_experts, outputs], of which each takes those from `first` on, `step` apart. */
static spry_status bind_biases(const spry_binder *b, spry_weight *experts, const spry_tensor *t, size_t first,
                               size_t step)
{
    size_t n = b->config->n_experts, n_out = experts[0].n_out, stride = n_out * step;
    const float *all = NULL;
    float *values = spry_arena_alloc(b->arena, n * n_out, sizeof *values);
    if (!values)
        return spry_fail_memory(b->error, "biases", n * n_out * sizeof *values);
    spry_status status = spry_bind_vector(b, &all, t, n * stride, 0);
    for (size_t e = 0; !status && e < n; e++) {
        for (size_t i = 0; i < n_out; i++)
            values[e * n_out + i] = all[e * stride + first + i * step];
        experts[e].bias = values + e * n_out;
    }
    return status;
}

/* One kind, a tensor for each expert or one for all. */
static spry_status bind_kind(const spry_binder *b, spry_weight **out, uint32_t layer, const char *ours, size_t n_out,
                             size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    bool stacked = b->gguf || b->config->arch->experts_in_rows;
    spry_status status = make_list(b, out);
    for (uint32_t e = 0; !status && e < b->config->n_experts; e++) {
        const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, e, "weight");
        if (!t)
            return spry_bind_missing(b, name);
        status = stacked ? check_stacked(b, t, n_out, n_in) : spry_bind_matrix(b, &(*out)[e], t, n_out, n_in);
        if (!status && stacked)
            status = spry_bind_slice(b, &(*out)[e], t, n_out, n_in, e);
        t = status || stacked ? NULL : spry_bind_find_in_layer(b, name, layer, ours, e, "bias");
        if (t)
            status = spry_bind_vector(b, &(*out)[e].bias, t, n_out, 0);
    }
    const spry_tensor *bias = !status && b->gguf ? spry_bind_find_in_layer(b, name, layer, ours, 0, "bias") : NULL;
    return bias ? bind_biases(b, *out, bias, 0, 1) : status;
}

/* Gate and up of each expert one after the other. */
static spry_status bind_in_rows(const spry_binder *b, spry_layer *l, uint32_t layer)
{
    size_t ff = b->config->n_expert_ff;
    spry_weight *both;
    spry_status status = bind_kind(b, &both, layer, "ffn_gate_up_exps", ff * 2, b->config->n_embd);
    if (status || (status = make_list(b, &l->expert_gate)) || (status = make_list(b, &l->expert_up)))
        return status;
    for (uint32_t e = 0; e < b->config->n_experts; e++) {
        l->expert_gate[e] = spry_weight_rows(&both[e], 0, ff);
        l->expert_up[e] = spry_weight_rows(&both[e], ff, ff);
    }
    return SPRY_OK;
}

/* "NAME_blocks" and the like, in the layer. */
static const spry_tensor *find_part(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], uint32_t layer,
                                    const char *ours, const char *part)
{
    spry_bind_find_in_layer(b, name, layer, ours, 0, "");
    size_t used = strlen(name);
    snprintf(name + used, SPRY_TENSOR_NAME_MAX - used, "%s", part);
    return spry_bind_find(b, name);
}

/* Experts of one kind, out of a tensor that holds other outputs too. */
static spry_status bind_mixed(const spry_binder *b, spry_weight **out, uint32_t layer, const char *ours,
                              spry_expert_part part)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *scales = find_part(b, name, layer, ours, "_scales");
    const spry_tensor *blocks = find_part(b, name, layer, ours, "_blocks");
    const spry_tensor *plain = find_part(b, name, layer, ours, "");
    if (!plain && (!blocks || !scales)) {
        find_part(b, name, layer, ours, scales ? "_blocks" : blocks ? "_scales" : "");
        return spry_bind_missing(b, name);
    }
    spry_status status = make_list(b, out);
    for (; !status && part.expert < b->config->n_experts; part.expert++)
        status = plain ? spry_bind_columns(b, &(*out)[part.expert], plain, &part)
                       : spry_bind_mxfp4(b, &(*out)[part.expert], blocks, scales, &part);
    const spry_tensor *bias = find_part(b, name, layer, ours, "_bias");
    if (!status && !bias)
        status = spry_bind_missing(b, name);
    return status ? status : bind_biases(b, *out, bias, part.first, part.step);
}

static spry_status bind_experts(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t ff = c->n_expert_ff;
    spry_status status;
    if (!b->gguf && c->arch->experts_mixed) {
        const spry_expert_part gate = {0, 0, 2, ff, c->n_embd}, up = {0, 1, 2, ff, c->n_embd};
        if ((status = bind_mixed(b, &l->expert_gate, i, "ffn_gate_up_exps", gate)) ||
            (status = bind_mixed(b, &l->expert_up, i, "ffn_gate_up_exps", up)))
            return status;
        return bind_mixed(b, &l->expert_down, i, "ffn_down_exps", (spry_expert_part){0, 0, 1, c->n_embd, ff});
    }
    if (!b->gguf && c->arch->experts_in_rows)
        status = bind_in_rows(b, l, i);
    else if (!(status = bind_kind(b, &l->expert_gate, i, "ffn_gate_exps", ff, c->n_embd)))
        status = bind_kind(b, &l->expert_up, i, "ffn_up_exps", ff, c->n_embd);
    return status ? status : bind_kind(b, &l->expert_down, i, "ffn_down_exps", c->n_embd, ff);
}

static spry_status bind_choice_bias(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "exp_probs_b", 0, "bias");
    if (!t)
        return b->config->arch->choice_bias && !b->gguf ? spry_bind_missing(b, name) : SPRY_OK;
    return spry_bind_vector(b, &l->choice_bias, t, b->config->n_experts, 0);
}

spry_status spry_bind_moe(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t shared = c->n_shared_ff;
    spry_status status;
    if ((status = bind_experts(b, l, i)) || (status = bind_choice_bias(b, l, i)))
        return status;
    if (!c->arch->shared_expert && !c->n_shared)
        return SPRY_OK;
    if ((c->arch->shared_expert &&
         (status = spry_bind_linear(b, &l->shared_router, i, "ffn_gate_inp_shexp", 1, c->n_embd, REQUIRED))) ||
        (status = spry_bind_linear(b, &l->shared_gate, i, "ffn_gate_shexp", shared, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->shared_up, i, "ffn_up_shexp", shared, c->n_embd, REQUIRED)))
        return status;
    return spry_bind_linear(b, &l->shared_down, i, "ffn_down_shexp", c->n_embd, shared, REQUIRED);
}
