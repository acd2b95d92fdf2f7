/* Binds what only DeepSeek V4 has: compressed attention, hyper-connections, experts that follow from the token. */
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/weights_bind.h"

static spry_status bind_floats(const spry_binder *b, const float **out, uint32_t layer, const char *ours, size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
    return t ? spry_bind_vector(b, out, t, n, 0) : spry_bind_missing(b, name);
}

/* What makes entries: `overlaps`: values and gates are two of `n` each. */
static spry_status bind_joins(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t rate = c->rates[i], width = (size_t)c->head_dim * (c->overlaps[i] ? 2 : 1);
    spry_status status;
    if ((status = spry_bind_linear(b, &l->join_values, i, "attn_compressor_kv", width, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->join_gates, i, "attn_compressor_gate", width, c->n_embd, REQUIRED)) ||
        (status = bind_floats(b, &l->join_added, i, "attn_compressor_ape", rate * width)) ||
        (status = bind_floats(b, &l->join_norm, i, "attn_compressor_norm", c->head_dim)) || !c->overlaps[i])
        return status;
    size_t n_q = (size_t)c->n_index_heads * c->index_dim, both = 2 * (size_t)c->index_dim;
    if ((status = spry_bind_linear(b, &l->index_q, i, "indexer.attn_q_b", n_q, c->n_q_rank, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->index_weights, i, "indexer.proj", c->n_index_heads, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->index_join_values, i, "indexer_compressor_kv", both, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->index_join_gates, i, "indexer_compressor_gate", both, c->n_embd, REQUIRED)) ||
        (status = bind_floats(b, &l->index_join_added, i, "indexer_compressor_ape", rate * both)))
        return status;
    return bind_floats(b, &l->index_k_norm, i, "indexer_compressor_norm", c->index_dim);
}

spry_status spry_bind_compressed(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_q = (size_t)c->n_heads * c->head_dim, groups = c->n_out_groups, n_out = groups * c->out_rank;
    spry_weight all = {0};
    spry_status status;
    if ((status = spry_bind_linear(b, &l->q_a, i, "attn_q_a", c->n_q_rank, c->n_embd, REQUIRED)) ||
        (status = bind_floats(b, &l->q_a_norm, i, "attn_q_a_norm", c->n_q_rank)) ||
        (status = spry_bind_linear(b, &l->q, i, "attn_q_b", n_q, c->n_q_rank, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->k, i, "attn_kv", c->head_dim, c->n_embd, REQUIRED)) ||
        (status = bind_floats(b, &l->kv_a_norm, i, "attn_kv_a_norm", c->head_dim)) ||
        (status = spry_bind_linear(b, &all, i, "attn_output_a", n_out, n_q / groups, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->o, i, "attn_output_b", c->n_embd, n_out, REQUIRED)) ||
        (status = bind_floats(b, &l->sinks, i, "attn_sinks", c->n_heads)))
        return status;
    l->out_groups = spry_arena_alloc(b->arena, groups, sizeof *l->out_groups);
    if (!l->out_groups)
        return spry_fail_memory(b->error, "a layer", groups * sizeof *l->out_groups);
    for (size_t g = 0; g < groups; g++)
        l->out_groups[g] = spry_weight_rows(&all, g * c->out_rank, c->out_rank);
    return c->rates[i] ? bind_joins(b, l, i) : SPRY_OK;
}

spry_status spry_bind_hyper(const spry_binder *b, spry_hyper *out, uint32_t layer, bool attention)
{
    static const char *const parts[] = {"fn", "base", "scale"};
    const spry_config *c = b->config;
    bool ends = layer == SPRY_HYPER_END;
    size_t n = ends ? c->n_hyper : (size_t)c->n_hyper * (2 + c->n_hyper), wide = (size_t)c->n_hyper * c->n_embd;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        char name[SPRY_TENSOR_NAME_MAX] = "", ours[32];
        const spry_tensor *t;
        snprintf(ours, sizeof ours, "hc_%s_%s", attention ? "attn" : "ffn", parts[i]);
        if (ends)
            snprintf(name, sizeof name, b->gguf ? "output_hc_%s.weight" : "hc_head_%s", parts[i]);
        t = ends ? spry_bind_find(b, name) : spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
        if (!t)
            return spry_bind_missing(b, name);
        spry_status status = i == 0   ? spry_bind_matrix(b, &out->mix, t, n, wide)
                             : i == 1 ? spry_bind_vector(b, &out->base, t, n, 0)
                                      : spry_bind_vector(b, &out->scale, t, ends ? 1 : 3, 0);
        if (status)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_bind_token_experts(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "ffn_gate_tid2eid", 0, "weight");
    size_t n = (size_t)c->n_vocab * c->n_experts_used;
    if (!t)
        return spry_bind_missing(b, name);
    if (t->dims[0] != c->n_vocab || t->dims[1] != c->n_experts_used || (t->type != SPRY_I64 && t->type != SPRY_I32))
        return spry_bind_wrong_shape(b, t, c->n_vocab, c->n_experts_used);
    int32_t *experts = spry_arena_alloc(b->arena, n, sizeof *experts);
    if (!experts)
        return spry_fail_memory(b->error, "the experts of tokens", n * sizeof *experts);
    for (size_t k = 0; k < n; k++) {
        int64_t whole = 0;
        int32_t word = 0;
        if (t->type == SPRY_I64)
            memcpy(&whole, t->data + k * sizeof whole, sizeof whole);
        else
            memcpy(&word, t->data + k * sizeof word, sizeof word);
        whole = t->type == SPRY_I64 ? whole : word;
        if (whole < 0 || whole >= c->n_experts)
            return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' names expert %lld of %u", b->name, name,
                             (long long)whole, c->n_experts);
        experts[k] = (int32_t)whole;
    }
    spry_bind_use(b, t, SPRY_USE_FLOATS);
    l->token_experts = experts;
    return SPRY_OK;
}
