/* Binds the tensors of model parts that only some models have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "model/arch.h"
#include "model/weights_bind.h"

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Experts: GGUF files have a stacked tensor for each matrix; Hugging Face files have one tensor per expert, or one for
 * all. */

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

/* Reads the biases of all experts, [n_experts, outputs]; each expert uses those from `first` on, `step` apart. */
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

/* Binds one matrix of all experts: a tensor for each expert, or one for all. */
static spry_status bind_kind(const spry_binder *b, spry_weight **out, uint32_t layer, const char *ours, size_t n_out,
                             size_t n_in, bool stacked)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    spry_status status = make_list(b, out);
    for (uint32_t e = 0; !status && e < b->config->n_experts; e++) {
        const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, e, "weight");
        bool packed = false;
        if (!t && b->config->int4 && !stacked)
            status = spry_bind_int4(b, &packed, &(*out)[e], layer, ours, e, n_out, n_in);
        if (packed || status)
            continue;
        if (!t)
            return spry_bind_missing(b, name);
        status = stacked ? check_stacked(b, t, n_out, n_in) : spry_bind_matrix(b, &(*out)[e], t, n_out, n_in);
        if (!status && stacked)
            status = spry_bind_slice(b, &(*out)[e], t, n_out, n_in, e);
        if (!status)
            status = spry_bind_factor(b, &(*out)[e], layer, ours, e);
        t = status || stacked ? NULL : spry_bind_find_in_layer(b, name, layer, ours, e, "bias");
        if (t)
            status = spry_bind_vector(b, &(*out)[e].bias, t, n_out, 0);
    }
    const spry_tensor *bias = !status && b->gguf ? spry_bind_find_in_layer(b, name, layer, ours, 0, "bias") : NULL;
    return bias ? bind_biases(b, *out, bias, 0, 1) : status;
}

/* Binds gate and up of each expert, which are one matrix, one after the other. */
static spry_status bind_in_rows(const spry_binder *b, spry_layer *l, uint32_t layer)
{
    size_t ff = b->config->n_expert_ff;
    spry_weight *both;
    spry_status status = bind_kind(b, &both, layer, "ffn_gate_up_exps", ff * 2, b->config->n_embd, true);
    if (status || (status = make_list(b, &l->expert_gate)) || (status = make_list(b, &l->expert_up)))
        return status;
    for (uint32_t e = 0; e < b->config->n_experts; e++) {
        l->expert_gate[e] = spry_weight_rows(&both[e], 0, ff);
        l->expert_up[e] = spry_weight_rows(&both[e], ff, ff);
    }
    return SPRY_OK;
}

/* The layer's tensor "NAME_blocks", "NAME_scales" and so on. */
static const spry_tensor *find_part(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], uint32_t layer,
                                    const char *ours, const char *part)
{
    spry_bind_find_in_layer(b, name, layer, ours, 0, "");
    size_t used = strlen(name);
    snprintf(name + used, SPRY_TENSOR_NAME_MAX - used, "%s", part);
    return spry_bind_find(b, name);
}

/* Binds one matrix of all experts from a tensor that contains other outputs, too. */
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
    if (!status && !bias && b->config->arch->router_bias)
        status = spry_bind_missing(b, name);
    return status || !bias ? status : bind_biases(b, *out, bias, part.first, part.step);
}

static spry_status bind_experts(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t ff = c->n_expert_ff, width = c->n_latent ? c->n_latent : c->n_embd;
    spry_status status;
    if (c->n_latent &&
        ((status = spry_bind_linear(b, &l->latent_in, i, "ffn_latent_down", width, c->n_embd, REQUIRED)) ||
         (status = spry_bind_linear(b, &l->latent_out, i, "ffn_latent_up", c->n_embd, width, REQUIRED))))
        return status;
    if (!b->gguf && (c->arch->experts_mixed || c->arch->experts_across)) {
        size_t step = c->arch->experts_mixed ? 2 : 1;
        const spry_expert_part gate = {0, 0, step, ff, c->n_embd, 2 * ff};
        const spry_expert_part up = {0, c->arch->experts_mixed ? 1 : ff, step, ff, c->n_embd, 2 * ff};
        if ((status = bind_mixed(b, &l->expert_gate, i, "ffn_gate_up_exps", gate)) ||
            (status = bind_mixed(b, &l->expert_up, i, "ffn_gate_up_exps", up)))
            return status;
        return bind_mixed(b, &l->expert_down, i, "ffn_down_exps",
                          (spry_expert_part){0, 0, 1, c->n_embd, ff, c->n_embd});
    }
    bool in_rows = spry_bind_find_in_layer(b, name, i, "ffn_gate_up_exps", 0, "weight"), stacked = b->gguf || in_rows;
    if (in_rows)
        status = bind_in_rows(b, l, i);
    else if (!(status = c->arch->ungated ? make_list(b, &l->expert_gate)
                                         : bind_kind(b, &l->expert_gate, i, "ffn_gate_exps", ff, width, stacked)))
        status = bind_kind(b, &l->expert_up, i, "ffn_up_exps", ff, width, stacked);
    const char *down = in_rows && !b->gguf ? "ffn_down_exps_all" : "ffn_down_exps";
    return status ? status : bind_kind(b, &l->expert_down, i, down, width, ff, stacked);
}

static spry_status bind_choice_bias(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "exp_probs_b", 0, "bias");
    if (!t)
        return b->config->choice_bias && !b->gguf && i >= b->config->n_hashed ? spry_bind_missing(b, name) : SPRY_OK;
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
    if (c->arch->shared_expert &&
        (status = spry_bind_linear(b, &l->shared_router, i, "ffn_gate_inp_shexp", 1, c->n_embd, REQUIRED)))
        return status;
    status = spry_bind_gate_up(b, &l->shared_gate, &l->shared_up, i,
                               (const char *const[]){"ffn_gate_shexp", "ffn_up_shexp", "ffn_gate_up_shexp"}, shared);
    return status ? status : spry_bind_linear(b, &l->shared_down, i, "ffn_down_shexp", c->n_embd, shared, REQUIRED);
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

/* Latent attention. Hugging Face files, and GGUF files made before 2025, have the heads' two matrices one after the
 * other in one tensor; newer GGUF files have two tensors, the first one transposed, as it is used here. */

static spry_status bind_norm(const spry_binder *b, const float **out, uint32_t layer, const char *ours, size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
    return t ? spry_bind_vector(b, out, t, n, 0) : spry_bind_missing(b, name);
}

/* Allocates memory for n_out * n_in floats and makes it a matrix. */
static float *make_floats(const spry_binder *b, spry_weight *out, size_t n_out, size_t n_in)
{
    float *room = spry_arena_alloc(b->arena, n_out * n_in, sizeof *room);
    *out = (spry_weight){.data = (const unsigned char *)room,
                         .type = SPRY_F32,
                         .n_out = n_out,
                         .n_in = n_in,
                         .row_bytes = n_in * sizeof *room};
    b->out->copied_bytes += n_out * n_in * sizeof *room;
    if (!room)
        spry_fail_memory(b->error, "a head's matrix", n_out * n_in * sizeof *room);
    return room;
}

/* Converts blocks to floats, because the kernels for heads need floats. */
static spry_status unblock(const spry_binder *b, spry_weight *w)
{
    spry_weight from = *w;
    if (spry_dtype_block(from.type) == 1)
        return SPRY_OK;
    float *room = make_floats(b, w, from.n_out, from.n_in);
    for (size_t row = 0; room && row < from.n_out; row++)
        b->ops->decode[from.type](room + row * from.n_in, from.data + row * from.row_bytes, from.n_in);
    return room ? SPRY_OK : SPRY_ERR_MEMORY;
}

/* Binds one of GGUF's two tensors: [n_heads, n_out, n_in]. */
static spry_status bind_split(const spry_binder *b, spry_weight *heads, uint32_t layer, const char *ours, size_t n_out,
                              size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t n = b->config->n_heads;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
    if (!t)
        return spry_bind_missing(b, name);
    if (t->dims[0] != n || t->dims[1] != n_out || t->dims[2] != n_in)
        return spry_bind_wrong_shape(b, t, n_out, n_in);
    spry_status status = SPRY_OK;
    for (size_t h = 0; !status && h < n; h++) {
        status = spry_bind_slice(b, &heads[h], t, n_out, n_in, h);
        if (!status)
            status = unblock(b, &heads[h]);
    }
    return status;
}

/* Transposes rows of `from`. */
static spry_status transpose(const spry_binder *b, spry_weight *out, const spry_weight *from)
{
    float *room = make_floats(b, out, from->n_in, from->n_out);
    float *row = spry_arena_alloc(b->arena, from->n_in, sizeof *row);
    if (!room || !row)
        return spry_fail_memory(b->error, "a head's matrix", from->n_in * sizeof *row);
    for (size_t o = 0; o < from->n_out; o++) {
        b->ops->decode[from->type](row, from->data + o * from->row_bytes, from->n_in);
        for (size_t i = 0; i < from->n_in; i++)
            room[i * from->n_out + o] = row[i];
    }
    return SPRY_OK;
}

static spry_status bind_heads(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t rank = c->n_kv_rank, each = (size_t)c->nope_dim + c->value_dim;
    spry_weight both = {0};
    l->k_b = spry_arena_alloc(b->arena, c->n_heads, sizeof *l->k_b);
    l->v_b = spry_arena_alloc(b->arena, c->n_heads, sizeof *l->v_b);
    if (!l->k_b || !l->v_b)
        return spry_fail_memory(b->error, "heads", c->n_heads * 2 * sizeof *l->k_b);
    char name[SPRY_TENSOR_NAME_MAX] = "";
    if (b->gguf && !spry_bind_find_in_layer(b, name, i, "attn_kv_b", 0, "weight")) {
        spry_status status = bind_split(b, l->k_b, i, "attn_k_b", rank, c->nope_dim);
        return status ? status : bind_split(b, l->v_b, i, "attn_v_b", c->value_dim, rank);
    }
    spry_status status = spry_bind_linear(b, &both, i, "attn_kv_b", c->n_heads * each, rank, REQUIRED);
    for (size_t h = 0; !status && h < c->n_heads; h++) {
        const spry_weight keys = spry_weight_rows(&both, h * each, c->nope_dim);
        l->v_b[h] = spry_weight_rows(&both, h * each + c->nope_dim, c->value_dim);
        status = transpose(b, &l->k_b[h], &keys);
        if (!status)
            status = unblock(b, &l->v_b[h]);
    }
    return status;
}

static spry_status bind_indexer(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t n_q = (size_t)c->n_index_heads * c->index_dim;
    spry_status status;
    if ((status = spry_bind_linear(b, &l->index_q, i, "indexer.attn_q_b", n_q, c->n_q_rank, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->index_k, i, "indexer.attn_k", c->index_dim, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->index_weights, i, "indexer.proj", c->n_index_heads, c->n_embd, REQUIRED)) ||
        (status = bind_norm(b, &l->index_k_norm, i, "indexer.k_norm", c->index_dim)))
        return status;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "indexer.k_norm", 0, "bias");
    return t ? spry_bind_vector(b, &l->index_k_norm_bias, t, c->index_dim, 0) : spry_bind_missing(b, name);
}

spry_status spry_bind_latent(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_q = (size_t)c->n_heads * (c->nope_dim + c->rope_dim);
    spry_status status;
    if (c->n_q_rank) {
        if ((status = spry_bind_linear(b, &l->q_a, i, "attn_q_a", c->n_q_rank, c->n_embd, REQUIRED)) ||
            (status = bind_norm(b, &l->q_a_norm, i, "attn_q_a_norm", c->n_q_rank)) ||
            (status = spry_bind_linear(b, &l->q, i, "attn_q_b", n_q, c->n_q_rank, REQUIRED)))
            return status;
    } else if ((status = spry_bind_linear(b, &l->q, i, "attn_q", n_q, c->n_embd, REQUIRED))) {
        return status;
    }
    if ((status = spry_bind_linear(b, &l->k, i, "attn_kv_a_mqa", c->head_dim, c->n_embd, REQUIRED)) ||
        (status = bind_norm(b, &l->kv_a_norm, i, "attn_kv_a_norm", c->n_kv_rank)) || (status = bind_heads(b, l, i)) ||
        (c->index_top && c->indexes[i] && (status = bind_indexer(b, l, i))))
        return status;
    return spry_bind_linear(b, &l->o, i, "attn_output", c->n_embd, (size_t)c->n_heads * c->value_dim, REQUIRED);
}

/* ---- gated delta nets -------------------------------------------------------------------------------------------- */

/* A gated delta net's tensors. Hugging Face files have the rows of queries, keys, values and gates key head by key
 * head. Here, as in GGUF files, all queries come first, then all keys, then all values, and gates are a matrix of their
 * own; so rows are copied. */

/* Appends copies of rows [first, first + n) of a matrix. */
static void take_rows(unsigned char **to, const spry_weight *from, size_t first, size_t n)
{
    memcpy(*to, from->data + first * from->row_bytes, n * from->row_bytes);
    *to += n * from->row_bytes;
}

static spry_status split_rows(const spry_binder *b, spry_layer *l, const spry_weight *all)
{
    const spry_config *c = b->config;
    size_t key = c->delta_key_dim, each = c->n_delta_heads / c->n_delta_keys * (size_t)c->delta_value_dim;
    size_t step = 2 * (key + each), bytes;
    if (!spry_checked_mul(&bytes, all->n_out, all->row_bytes))
        return spry_fail(b->error, SPRY_ERR_MEMORY, "%s: a matrix is larger than any memory", b->name);
    unsigned char *copy = spry_arena_alloc(b->arena, bytes, 1), *at = copy;
    if (!copy)
        return spry_fail_memory(b->error, "rows in another order", bytes);
    const struct {
        size_t offset, n;
    } parts[] = {{0, key}, {key, key}, {2 * key, each}, {2 * key + each, each}};
    for (size_t part = 0; part < SPRY_COUNT(parts); part++)
        for (size_t head = 0; head < c->n_delta_keys; head++)
            take_rows(&at, all, head * step + parts[part].offset, parts[part].n);
    spry_weight whole = *all;
    whole.data = copy;
    b->out->copied_bytes += bytes;
    size_t n_values = (size_t)c->n_delta_heads * c->delta_value_dim;
    l->delta_qkv[0] = spry_weight_rows(&whole, 0, all->n_out - n_values);
    l->delta_gate = spry_weight_rows(&whole, all->n_out - n_values, n_values);
    return SPRY_OK;
}

/* Splits beta and decay, which are stored for each key head with its heads one after the other: [n_delta_keys, 2, heads
 * of each]. */
static spry_status split_ba(const spry_binder *b, spry_layer *l, const spry_weight *all)
{
    const spry_config *c = b->config;
    size_t heads = c->n_delta_heads, each = heads / c->n_delta_keys;
    unsigned char *copy = spry_arena_alloc(b->arena, all->n_out, all->row_bytes), *at = copy;
    if (!copy)
        return spry_fail_memory(b->error, "rows in another order", all->n_out * all->row_bytes);
    for (size_t part = 0; part < 2; part++)
        for (size_t key = 0; key < c->n_delta_keys; key++)
            take_rows(&at, all, (2 * key + part) * each, each);
    spry_weight whole = *all;
    whole.data = copy;
    b->out->copied_bytes += all->n_out * all->row_bytes;
    l->delta_b = spry_weight_rows(&whole, 0, heads);
    l->delta_a = spry_weight_rows(&whole, heads, heads);
    return SPRY_OK;
}

static spry_status bind_ba(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    spry_weight all = {0};
    spry_status status;
    if (spry_tensor_hf_name(name, c->arch, b->prefix, i, "ssm_ba", 0, "weight")) { /* GGUF files have it in this form,
                                                                                    * too */
        status = spry_bind_linear(b, &all, i, "ssm_ba", 2 * (size_t)c->n_delta_heads, c->n_embd, REQUIRED);
        return status ? status : split_ba(b, l, &all);
    }
    status = spry_bind_linear(b, &l->delta_b, i, "ssm_beta", c->n_delta_heads, c->n_embd, REQUIRED);
    return status ? status : spry_bind_linear(b, &l->delta_a, i, "ssm_alpha", c->n_delta_heads, c->n_embd, REQUIRED);
}

/* Binds queries, keys and values, a matrix each. */
static spry_status bind_apart(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t keys = (size_t)c->n_delta_keys * c->delta_key_dim, values = (size_t)c->n_delta_heads * c->delta_value_dim;
    spry_status status = spry_bind_linear(b, &l->delta_qkv[0], i, "delta_q", keys, c->n_embd, REQUIRED);
    if (!status)
        status = spry_bind_linear(b, &l->delta_qkv[1], i, "delta_k", keys, c->n_embd, REQUIRED);
    if (!status)
        status = spry_bind_linear(b, &l->delta_qkv[2], i, "delta_v", values, c->n_embd, REQUIRED);
    return status ? status : spry_bind_linear(b, &l->delta_gate, i, "attn_gate", values, c->n_embd, REQUIRED);
}

static spry_status bind_inputs(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    if (c->arch->delta_parts)
        return bind_apart(b, l, i);
    size_t n_values = (size_t)c->n_delta_heads * c->delta_value_dim, n_mixed = spry_config_delta_mixed(c);
    char name[SPRY_TENSOR_NAME_MAX] = "";
    bool together = b->gguf ? spry_bind_find_in_layer(b, name, i, "delta_qkvz", 0, "weight") != NULL
                            : spry_tensor_hf_name(name, c->arch, b->prefix, i, "delta_qkvz", 0, "weight");
    if (!together) {
        spry_status status = spry_bind_linear(b, &l->delta_qkv[0], i, "attn_qkv", n_mixed, c->n_embd, REQUIRED);
        return status ? status : spry_bind_linear(b, &l->delta_gate, i, "attn_gate", n_values, c->n_embd, REQUIRED);
    }
    spry_weight all = {0};
    spry_status status = spry_bind_linear(b, &all, i, "delta_qkvz", n_mixed + n_values, c->n_embd, REQUIRED);
    return status ? status : split_rows(b, l, &all);
}

static spry_status vector(const spry_binder *b, const float **out, uint32_t i, const char *ours, const char *suffix,
                          size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, ours, 0, suffix);
    return t ? spry_bind_vector(b, out, t, n, 0) : spry_bind_missing(b, name);
}

/* Reads the decay of states, of which Hugging Face files have the logarithm. */
static spry_status bind_fading(const spry_binder *b, spry_layer *l, uint32_t i)
{
    size_t n = b->config->n_delta_heads;
    const float *given = NULL;
    spry_status status = vector(b, &given, i, "ssm_a", "weight", n);
    float *fading = status ? NULL : spry_arena_alloc(b->arena, n, sizeof *fading);
    if (!status && !fading)
        status = spry_fail_memory(b->error, "a vector", n * sizeof *fading);
    for (size_t h = 0; !status && h < n; h++)
        fading[h] = b->gguf ? given[h] : -expf(given[h]);
    l->delta_fading = fading;
    return status;
}

/* Reads the convolution: of queries, keys and values together, or of each. */
static spry_status bind_delta_conv(const spry_binder *b, spry_layer *l, uint32_t i)
{
    static const char *const names[] = {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"};
    const spry_config *c = b->config;
    size_t keys = (size_t)c->n_delta_keys * c->delta_key_dim, mixed = spry_config_delta_mixed(c), reach = c->n_conv;
    const size_t sizes[] = {keys, keys, mixed - 2 * keys};
    if (!c->arch->delta_parts)
        return vector(b, &l->delta_conv, i, "ssm_conv1d", "weight", mixed * reach);
    float *all = spry_arena_alloc(b->arena, mixed * reach, sizeof *all);
    if (!all)
        return spry_fail_memory(b->error, "a convolution", mixed * reach * sizeof *all);
    l->delta_conv = all;
    for (size_t part = 0; part < SPRY_COUNT(names); all += sizes[part++] * reach) {
        const float *values = NULL;
        spry_status status = vector(b, &values, i, names[part], "weight", sizes[part] * reach);
        if (status)
            return status;
        memcpy(all, values, sizes[part] * reach * sizeof *all);
    }
    return SPRY_OK;
}

spry_status spry_bind_delta(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_values = (size_t)c->n_delta_heads * c->delta_value_dim;
    spry_status status = bind_inputs(b, l, i);
    if (!status)
        status = bind_ba(b, l, i);
    if (!status)
        status = spry_bind_linear(b, &l->delta_out, i, "ssm_out", c->n_embd, n_values, REQUIRED);
    if (!status)
        status = bind_delta_conv(b, l, i);
    if (!status)
        status = vector(b, &l->delta_dt, i, "ssm_dt", "bias", c->n_delta_heads);
    if (!status)
        status = vector(b, &l->delta_norm, i, "ssm_norm", "weight", c->delta_value_dim);
    return status ? status : bind_fading(b, l, i);
}

/* ---- Mamba-2 ----------------------------------------------------------------------------------------------------- */

/* A copy of `n` floats times `scale`; the floats themselves if the scale is 1. */
static const float *scaled(const spry_binder *b, const float *values, size_t n, float scale)
{
    float *copy = values && scale != 1 ? spry_arena_alloc(b->arena, n, sizeof *copy) : NULL;
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = values[i] * scale;
    return values && scale != 1 ? copy : values;
}

spry_status spry_bind_scale(const spry_binder *b, spry_weight *w, float in, float out)
{
    const float *bias = scaled(b, w->bias, w->n_out, out);
    if (w->bias && !bias)
        return spry_fail_memory(b->error, "a bias", w->n_out * sizeof *bias);
    w->bias = bias;
    float scale = in * out * (w->scale != 0 ? w->scale : 1);
    w->scale = scale != 1 ? scale : 0;
    return SPRY_OK;
}

/* Splits the rows of the input matrix: z, x, B, C and dt, each with its factor. */
static spry_status split_in(const spry_binder *b, spry_layer *l, const spry_weight *all)
{
    const spry_config *c = b->config;
    size_t inner = (size_t)c->n_delta_heads * c->delta_value_dim, group = (size_t)c->n_delta_keys * c->delta_key_dim;
    spry_weight *const apart[] = {&l->delta_gate, &l->delta_qkv[0], &l->delta_qkv[1], &l->delta_qkv[2], &l->delta_a};
    size_t sizes[] = {inner, inner, group, group, c->n_delta_heads}, at = 0;
    bool alike = c->state_scales[1] == c->state_scales[2] && c->state_scales[2] == c->state_scales[3];
    spry_status status = SPRY_OK;
    if (alike) { /* x, B and C have the same factor and stay one matrix */
        sizes[1] += 2 * group;
        sizes[2] = sizes[3] = 0;
    }
    for (size_t i = 0; !status && i < SPRY_COUNT(apart); at += sizes[i++])
        if (sizes[i]) {
            *apart[i] = spry_weight_rows(all, at, sizes[i]);
            status = spry_bind_scale(b, apart[i], c->state_in_scale, c->state_scales[i]);
        }
    return status;
}

static spry_status bind_mamba_vectors(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t mixed = spry_config_delta_mixed(c), inner = (size_t)c->n_delta_heads * c->delta_value_dim;
    spry_status status = vector(b, &l->delta_conv, i, "ssm_conv1d", "weight", mixed * c->n_conv);
    const spry_tensor *t = status ? NULL : spry_bind_find_in_layer(b, name, i, "ssm_conv1d", 0, "bias");
    if (t)
        status = spry_bind_vector(b, &l->delta_conv_bias, t, mixed, 0);
    if (!status)
        status = vector(b, &l->delta_dt, i, "ssm_dt", "bias", c->n_delta_heads);
    if (!status)
        status = vector(b, &l->delta_skip, i, "ssm_d", "weight", c->n_delta_heads);
    bool normed =
        !status && (c->delta_norm_size || b->gguf) && spry_bind_find_in_layer(b, name, i, "ssm_norm", 0, "weight");
    if (normed)
        return vector(b, &l->delta_norm, i, "ssm_norm", "weight", inner);
    if (!status && c->delta_norm_size && !(b->gguf && c->arch->both_mixers))
        return spry_bind_missing(b, name);
    b->config->delta_norm_size = 0;
    return status;
}

spry_status spry_bind_mamba(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t inner = (size_t)c->n_delta_heads * c->delta_value_dim;
    spry_weight all = {0};
    spry_status status = spry_bind_linear(b, &all, i, "ssm_in", inner + spry_config_delta_mixed(c) + c->n_delta_heads,
                                          c->n_embd, REQUIRED);
    if (!status)
        status = split_in(b, l, &all);
    if (!status)
        status = spry_bind_linear(b, &l->delta_out, i, "ssm_out", c->n_embd, inner, REQUIRED);
    if (!status)
        status = spry_bind_scale(b, &l->delta_out, 1, c->state_out_scale);
    if (!status)
        status = bind_mamba_vectors(b, l, i);
    return status ? status : bind_fading(b, l, i);
}

/* ---- blocks that layers share ------------------------------------------------------------------------------------ */

/* Zamba2. The tensors of a block are stored under the first layer that uses it, with the additions of all uses, which
 * are numbered through all blocks. */

static spry_status bind_low(const spry_binder *b, spry_weight *const *whole, size_t n_whole, uint32_t from,
                            uint32_t use, const char *low, const char *high)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t rank = b->config->block_rank, n_out = 0;
    spry_weight first = {0}, second = {0};
    for (size_t i = 0; i < n_whole; i++)
        n_out += whole[i]->n_out;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, from, low, use, "weight");
    if (!t)
        return spry_bind_missing(b, name);
    spry_status status = spry_bind_matrix(b, &first, t, rank, whole[0]->n_in);
    if (status)
        return status;
    t = spry_bind_find_in_layer(b, name, from, high, use, "weight");
    if (!t)
        return spry_bind_missing(b, name);
    status = spry_bind_matrix(b, &second, t, n_out, rank);
    for (size_t i = 0, at = 0; !status && i < n_whole; at += whole[i++]->n_out) {
        spry_weight *pair = spry_arena_alloc(b->arena, 2, sizeof *pair);
        if (!pair)
            return spry_fail_memory(b->error, "a layer", 2 * sizeof *pair);
        pair[0] = first;
        pair[1] = spry_weight_rows(&second, at, whole[i]->n_out);
        whole[i]->low = pair;
    }
    return status;
}

spry_status spry_bind_block(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    uint32_t from = c->block_layer[i], use = 0;
    size_t n = c->n_embd, n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    spry_status status;
    for (uint32_t j = 0; j < i; j++)
        use += c->blocks[j];
    if ((status = bind_norm(b, &l->block_norm, from, "block_norm", 2 * n)) ||
        (status = bind_norm(b, &l->ffn_norm, from, "ffn_norm", n)) ||
        (status = spry_bind_linear(b, &l->q, from, "attn_q", n_q, 2 * n, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->k, from, "attn_k", n_kv, 2 * n, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->v, from, "attn_v", n_kv, 2 * n, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->o, from, "attn_output", n, n_q, REQUIRED)) ||
        (status = spry_bind_gate_up(b, &l->gate, &l->up, from,
                                    (const char *const[]){"ffn_gate", "ffn_up", "ffn_gate_up"}, c->n_ff)) ||
        (status = spry_bind_linear(b, &l->down, from, "ffn_down", n, c->n_ff, REQUIRED)) ||
        (status = spry_bind_linear(b, &l->block_out, i, "block_output", n, n, REQUIRED)) ||
        (status = bind_low(b, (spry_weight *const[]){&l->gate, &l->up}, 2, from, use, "ffn_gate_up_low",
                           "ffn_gate_up_high")))
        return status;
    if (!c->block_attention)
        return SPRY_OK;
    if ((status = bind_low(b, (spry_weight *const[]){&l->q}, 1, from, use, "attn_q_low", "attn_q_high")) ||
        (status = bind_low(b, (spry_weight *const[]){&l->k}, 1, from, use, "attn_k_low", "attn_k_high")))
        return status;
    return bind_low(b, (spry_weight *const[]){&l->v}, 1, from, use, "attn_v_low", "attn_v_high");
}

/* ---- residual streams -------------------------------------------------------------------------------------------- */

/* Gemma 3n: residual streams, inputs for each layer, and the paths beside attention and feed-forward. */

static const spry_tensor *find_whole(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], const char *gguf,
                                     const char *hf)
{
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s%s.weight", b->gguf ? "" : b->prefix, b->gguf ? gguf : hf);
    return spry_bind_find(b, name);
}

/* Binds one matrix for each stream but the first: stacked in GGUF files, one tensor each otherwise. */
static spry_status bind_projections(const spry_binder *b, spry_weight **out, const char *gguf, const char *hf)
{
    char name[SPRY_TENSOR_NAME_MAX], numbered[64];
    size_t n = b->config->n_streams - 1, width = b->config->n_embd;
    *out = spry_arena_alloc(b->arena, n, sizeof **out);
    if (!*out)
        return spry_fail_memory(b->error, "streams", n * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        snprintf(numbered, sizeof numbered, "%s.%zu", hf, i);
        const spry_tensor *t = find_whole(b, name, gguf, numbered);
        if (!t)
            return spry_bind_missing(b, name);
        if (b->gguf && (t->dims[0] != n || t->dims[1] != width || t->dims[2] != width))
            return spry_bind_wrong_shape(b, t, width, width);
        spry_status status = b->gguf ? spry_bind_slice(b, &(*out)[i], t, width, width, i)
                                     : spry_bind_matrix(b, &(*out)[i], t, width, width);
        if (status)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_bind_streams(const spry_binder *b)
{
    spry_status status = bind_projections(b, &b->out->stream_in, "altup_proj", "altup_projections");
    return status ? status : bind_projections(b, &b->out->stream_out, "altup_unembd_proj", "altup_unembed_projections");
}

spry_status spry_bind_layer_inputs(const spry_binder *b)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_config *c = b->config;
    size_t all = (size_t)c->n_layers * c->n_layer_embd;
    spry_status status;
    const spry_tensor *t = find_whole(b, name, "per_layer_token_embd", "embed_tokens_per_layer");
    if (!t)
        return spry_bind_missing(b, name);
    if ((status = spry_bind_matrix(b, &b->out->layer_embedding, t, t->dims[0], all)))
        return status;
    if (!(t = find_whole(b, name, "per_layer_model_proj", "per_layer_model_projection")))
        return spry_bind_missing(b, name);
    if ((status = spry_bind_matrix(b, &b->out->layer_projection, t, all, c->n_embd)))
        return status;
    if (!(t = find_whole(b, name, "per_layer_proj_norm", "per_layer_projection_norm")))
        return spry_bind_missing(b, name);
    return spry_bind_vector(b, &b->out->layer_norm, t, c->n_layer_embd, 0);
}

static spry_status bind_vectors(const spry_binder *b, spry_side *s, uint32_t i)
{
    size_t n = b->config->n_embd, streams = b->config->n_streams;
    const struct {
        const float **to;
        const char *ours;
        size_t n;
    } vectors[] = {{&s->laurel_norm, "laurel_post_norm", n},
                   {&s->router_norm, "altup_router_norm", n},
                   {&s->correct_scale, "altup_correct_scale", n},
                   {&s->predict, "altup_predict_coef", streams * streams * streams},
                   {&s->correct, "altup_correct_coef", streams * streams}};
    spry_status status = SPRY_OK;
    for (size_t k = 0; !status && k < SPRY_COUNT(vectors); k++) {
        char name[SPRY_TENSOR_NAME_MAX] = "";
        const spry_tensor *t = spry_bind_find_in_layer(b, name, i, vectors[k].ours, 0, "weight");
        status = t ? spry_bind_vector(b, vectors[k].to, t, vectors[k].n, 0) : spry_bind_missing(b, name);
    }
    float *ones = !status && b->config->unscaled_stream ? spry_arena_alloc(b->arena, n, sizeof *ones) : NULL;
    for (size_t k = 0; ones && k < n; k++)
        ones[k] = 1;
    if (!status && b->config->unscaled_stream && !ones)
        return spry_fail_memory(b->error, "a vector", n * sizeof *ones);
    s->correct_scale = ones ? ones : s->correct_scale;
    return status;
}

static spry_status bind_layer_input(const spry_binder *b, spry_side *s, uint32_t i)
{
    const spry_config *c = b->config;
    spry_status status = spry_bind_linear(b, &s->gate, i, "inp_gate", c->n_layer_embd, c->n_embd, REQUIRED);
    if (!status)
        status = spry_bind_linear(b, &s->proj, i, "proj", c->n_embd, c->n_layer_embd, REQUIRED);
    return status ? status : bind_norm(b, &s->post_norm, i, "post_norm", c->n_embd);
}

spry_status spry_bind_side(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_config *c = b->config;
    spry_side *s = l->side = spry_arena_alloc(b->arena, 1, sizeof *s);
    if (!s)
        return spry_fail_memory(b->error, "a layer", sizeof *s);
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "laurel_l", 0, "weight");
    if (!t)
        return spry_bind_missing(b, name);
    size_t rank = t->dims[0];
    if (rank > c->n_embd)
        return spry_bind_wrong_shape(b, t, c->n_embd, c->n_embd);
    spry_status status;
    if ((status = spry_bind_linear(b, &s->laurel_l, i, "laurel_l", rank, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &s->laurel_r, i, "laurel_r", c->n_embd, rank, REQUIRED)) ||
        (status = spry_bind_linear(b, &s->router, i, "altup_router", c->n_streams, c->n_embd, REQUIRED)) ||
        (status = bind_layer_input(b, s, i)))
        return status;
    return bind_vectors(b, s, i);
}

/* ---- Gemma 4 ----------------------------------------------------------------------------------------------------- */

/* Reads the router's scale: its input is normalised without weights, and multiplied by this vector and by the square
 * root of its size. */
static spry_status bind_router_norm(const spry_binder *b, spry_layer *l, uint32_t i)
{
    size_t n = b->config->n_embd;
    const float *given = NULL;
    spry_status status = bind_norm(b, &given, i, "router_scale", n);
    float *norm = status ? NULL : spry_arena_alloc(b->arena, n, sizeof *norm);
    if (!status && !norm)
        return spry_fail_memory(b->error, "a vector", n * sizeof *norm);
    for (size_t k = 0; !status && k < n; k++)
        norm[k] = given[k] / sqrtf((float)n);
    l->router_norm = norm;
    return status;
}

spry_status spry_bind_beside(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_config *c = b->config;
    spry_status status = SPRY_OK;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "layer_output_scale", 0, "weight");
    if (!t && !b->gguf)
        return spry_bind_missing(b, name);
    if (t)
        status = spry_bind_vector(b, &l->output_scale, t, 1, 0);
    if (!status && c->n_layer_embd) {
        l->side = spry_arena_alloc(b->arena, 1, sizeof *l->side);
        status = l->side ? bind_layer_input(b, l->side, i) : spry_fail_memory(b->error, "a layer", sizeof *l->side);
    }
    if (status || !l->router.data)
        return status;
    if ((status = bind_router_norm(b, l, i)) ||
        (status = bind_norm(b, &l->expert_norm, i, "pre_ffw_norm_2", c->n_embd)) ||
        (status = bind_norm(b, &l->expert_post_norm, i, "post_ffw_norm_2", c->n_embd)) ||
        (status = bind_norm(b, &l->dense_post_norm, i, "post_ffw_norm_1", c->n_embd)))
        return status;
    t = spry_bind_find_in_layer(b, name, i, "expert_scale", 0, "scale");
    if (t)
        return spry_bind_vector(b, &l->expert_scale, t, c->n_experts, 0);
    return b->gguf ? SPRY_OK : spry_bind_missing(b, name);
}
