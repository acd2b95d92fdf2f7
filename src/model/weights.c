/* Binds tensors: each is found by name, and its type, shape and alignment are checked before it is used. */
#include "model/weights.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"
#include "base/number.h"
#include "kernels/ops.h"
#include "model/arch.h"
#include "model/weights_bind.h"

/* ---- embeddings of encoders -------------------------------------------------------------------------------------- */

/* The vectors that encoders add to token embeddings, and the norm after that. */

/* NULL: the tensor does not exist. Its full name is left in `name`. */
static const spry_tensor *find(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], const char *gguf, const char *hf,
                               const char *suffix)
{
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s%s.%s", b->gguf ? "" : b->prefix, b->gguf ? gguf : hf, suffix);
    return spry_bind_find(b, name);
}

static spry_status bind_norm(const spry_binder *b, const float **out, const char *suffix, const char *older,
                             bool required)
{
    char name[SPRY_TENSOR_NAME_MAX], other[SPRY_TENSOR_NAME_MAX];
    const char *hf = b->config->arch->hf_embedding_norm;
    const spry_tensor *t = find(b, name, "token_embd_norm", hf, suffix);
    if (!t && !b->gguf)
        t = find(b, other, "token_embd_norm", hf, older);
    if (!t)
        return required ? spry_bind_missing(b, name) : SPRY_OK;
    return spry_bind_vector(b, out, t, b->config->n_embd, 0);
}

/* The table of positions limits the length of a text. */
static spry_status bind_positions(const spry_binder *b)
{
    char name[SPRY_TENSOR_NAME_MAX];
    spry_config *c = b->config;
    const spry_tensor *t = find(b, name, "position_embd", "embeddings.position_embeddings", "weight");
    if (!t)
        return spry_bind_missing(b, name);
    if (t->dims[0] <= c->position_offset)
        return spry_bind_wrong_shape(b, t, (size_t)c->position_offset + c->n_context, c->n_embd);
    if (t->dims[0] - c->position_offset < c->n_context)
        c->n_context = (uint32_t)t->dims[0] - c->position_offset;
    return spry_bind_matrix(b, &b->out->positions, t, t->dims[0], c->n_embd);
}

/* All tokens of a text have the first type, unless the model is a cross-encoder. */
static spry_status bind_token_types(const spry_binder *b)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_tensor *t = find(b, name, "token_types", "embeddings.token_type_embeddings", "weight");
    return t ? spry_bind_matrix(b, &b->out->token_types, t, t->n_dims > 1 ? t->dims[0] : 1, b->config->n_embd)
             : SPRY_OK;
}

static spry_status bind_encoder(const spry_binder *b)
{
    spry_status status = bind_norm(b, &b->out->embedding_norm, "weight", "gamma", REQUIRED);
    if (!status)
        status = bind_norm(b, &b->out->embedding_norm_bias, "bias", "beta", b->config->norm_bias);
    if (!status && b->config->arch->positions)
        status = bind_positions(b);
    return status ? status : bind_token_types(b);
}

/* ---- all models -------------------------------------------------------------------------------------------------- */

const spry_tensor *spry_bind_find(const spry_binder *b, const char *name)
{
    return b->gguf ? spry_gguf_find_tensor(b->gguf, spry_view_of(name))
                   : spry_safetensors_find(b->files, spry_view_of(name));
}

/* A layer's tensor by our own name; `expert` is used only if Hugging Face files store experts separately. Its full name
 * is left in `name`. */
const spry_tensor *spry_bind_find_in_layer(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], uint32_t layer,
                                           const char *ours, uint32_t expert, const char *suffix)
{
    layer += b->first_layer;
    if (b->gguf)
        spry_tensor_gguf_name(name, b->config->arch, layer, ours, suffix);
    else if (!spry_tensor_hf_name(name, b->config->arch, b->prefix, layer, ours, expert, suffix))
        return NULL;
    const spry_tensor *found = spry_bind_find(b, name);
    if (found || b->gguf || !b->config->arch->hf_inner)
        return found;
    char inner[SPRY_TENSOR_NAME_MAX];
    int head = snprintf(inner, sizeof inner, "%slayers.%u.", b->prefix, layer);
    snprintf(inner + head, sizeof inner - (size_t)head, "%s%s", b->config->arch->hf_inner, name + head);
    found = spry_bind_find(b, inner);
    if (found)
        memcpy(name, inner, sizeof inner);
    return found;
}

spry_status spry_bind_missing(const spry_binder *b, const char *name)
{
    return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' is missing", b->name, name);
}

spry_status spry_bind_wrong_shape(const spry_binder *b, const spry_tensor *t, size_t n_out, size_t n_in)
{
    return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' has shape [%zu, %zu, %zu, %zu], expected [%zu, %zu]",
                     b->name, SPRY_VIEW_ARG(t->name), t->dims[0], t->dims[1], t->dims[2], t->dims[3], n_out, n_in);
}

/* Records how a tensor is used. Both kinds of files keep their tensors in one list. A stacked tensor counts as copied
 * when one of its slices is. */
void spry_bind_use(const spry_binder *b, const spry_tensor *t, spry_tensor_use use)
{
    const spry_tensor *first = b->gguf ? spry_gguf_tensor(b->gguf, 0) : spry_safetensors_tensor(b->files, 0);
    unsigned char *place = &b->out->uses[t - first];
    if (*place < use)
        *place = (unsigned char)use;
}

static spry_status not_a_weight(const spry_binder *b, const spry_tensor *t)
{
    return spry_fail(b->error, SPRY_ERR_UNSUPPORTED, "%s: tensor '%.*s' is %s, which is not a type of weights here",
                     b->name, SPRY_VIEW_ARG(t->name), spry_dtype_name(t->type));
}

spry_status spry_bind_vector(const spry_binder *b, const float **out, const spry_tensor *t, size_t n, float add)
{
    size_t count = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    if (count != n)
        return spry_bind_wrong_shape(b, t, n, 1);
    if (!spry_dtype_known(t->type))
        return not_a_weight(b, t);
    float *values = spry_arena_alloc(b->arena, n, sizeof *values);
    void *aligned = spry_arena_alloc(b->arena, t->bytes, 1);
    if (!values || !aligned)
        return spry_fail_memory(b->error, "a vector", n * sizeof *values);
    spry_bind_use(b, t, SPRY_USE_FLOATS);
    memcpy(aligned, t->data, t->bytes);
    b->ops->decode[t->type](values, aligned, n);
    for (size_t i = 0; i < n; i++)
        values[i] += add;
    b->out->parameters += n;
    b->out->bytes += t->bytes;
    *out = values;
    return SPRY_OK;
}

static size_t alignment_of(spry_dtype type)
{
    return type == SPRY_F32 ? 4 : type == SPRY_MXFP4 || type == SPRY_NVFP4 ? 1 : 2;
}

/* Binds a matrix, or slice number `part` of a stacked tensor. */
spry_status spry_bind_slice(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in,
                            size_t part)
{
    size_t row_bytes, bytes;
    if (!spry_dtype_known(t->type))
        return not_a_weight(b, t);
    if (!spry_dtype_size(&row_bytes, t->type, n_in))
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' has rows of %zu, not whole blocks of %s",
                         b->name, SPRY_VIEW_ARG(t->name), n_in, spry_dtype_name(t->type));
    if (!spry_checked_mul(&bytes, row_bytes, n_out) || bytes > t->bytes || part * bytes > t->bytes - bytes)
        return spry_bind_wrong_shape(b, t, n_out, n_in);
    const unsigned char *data = t->data + part * bytes;
    spry_bind_use(b, t, SPRY_USE_MATRIX);
    if ((uintptr_t)data % alignment_of(t->type)) {
        void *copy = spry_arena_alloc(b->arena, bytes, 1);
        if (!copy)
            return spry_fail_memory(b->error, "an unaligned tensor", bytes);
        data = memcpy(copy, data, bytes);
        b->out->copied_bytes += bytes;
        spry_bind_use(b, t, SPRY_USE_COPIED);
    }
    b->out->parameters += n_out * n_in;
    b->out->bytes += bytes;
    *out = (spry_weight){.data = data, .type = t->type, .n_out = n_out, .n_in = n_in, .row_bytes = row_bytes};
    return SPRY_OK;
}

spry_status spry_bind_matrix(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    if (t->type == SPRY_U8)
        return spry_bind_nvfp4(b, out, t, n_out, n_in);
    /* a vector [n] is accepted as a matrix [1, n], as GGUF files store Qwen2-MoE's shared gate */
    bool row = n_out == 1 && t->n_dims == 1 && t->dims[0] == n_in;
    if (!row && (t->dims[0] != n_out || t->dims[1] != n_in || t->dims[2] != 1 || t->dims[3] != 1))
        return spry_bind_wrong_shape(b, t, n_out, n_in);
    if (t->type == SPRY_F8_E4M3)
        return spry_bind_f8(b, out, t, n_out, n_in);
    if (t->type == SPRY_I8)
        return spry_bind_int8(b, out, t, n_out, n_in);
    return spry_bind_slice(b, out, t, n_out, n_in, 0);
}

static spry_status layer_norm(const spry_binder *b, const float **out, uint32_t layer, const char *gguf_name, size_t n,
                              bool required)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, gguf_name, 0, "weight");
    if (!t && !b->gguf && b->config->arch->encoder) /* older files have other names */
        t = spry_bind_find_in_layer(b, (char[SPRY_TENSOR_NAME_MAX]){0}, layer, gguf_name, 0, "gamma");
    if (!t)
        return required ? spry_bind_missing(b, name) : SPRY_OK;
    return spry_bind_vector(b, out, t, n, !b->gguf && b->config->arch->norm_plus_one ? 1 : 0);
}

/* Binds a layer norm, which may have a bias. */
static spry_status layer_norm_with_bias(const spry_binder *b, const float **out, const float **bias, uint32_t layer,
                                        const char *ours)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    spry_status status = layer_norm(b, out, layer, ours, b->config->n_embd, REQUIRED);
    const spry_tensor *t =
        !status && b->config->layer_norm ? spry_bind_find_in_layer(b, name, layer, ours, 0, "bias") : NULL;
    if (!status && !t && !b->gguf && b->config->arch->encoder)
        t = spry_bind_find_in_layer(b, (char[SPRY_TENSOR_NAME_MAX]){0}, layer, ours, 0, "beta");
    if (!status && !t && b->config->norm_bias && b->config->layer_norm)
        return spry_bind_missing(b, name);
    return t ? spry_bind_vector(b, bias, t, b->config->n_embd, 0) : status;
}

/* True if a Hugging Face file must have this bias. The biases of q, k and v are handled separately. */
static bool needs_bias(const spry_binder *b, const char *ours)
{
    const spry_config *c = b->config;
    if (b->gguf)
        return false;
    if (!strcmp(ours, "ffn_gate_inp"))
        return c->arch->router_bias;
    if (!strcmp(ours, "attn_output"))
        return c->every_bias || (c->arch->out_bias && c->qkv_bias);
    return c->every_bias && (!strcmp(ours, "ffn_gate") || !strcmp(ours, "ffn_up") || !strcmp(ours, "ffn_down"));
}

/* Binds the limits of a matrix, if there are any; those that a file leaves out are infinite. */
static spry_status bind_limits(const spry_binder *b, spry_weight *out, uint32_t layer, const char *ours)
{
    static const char *const suffixes[] = {"input_min", "input_max", "output_min", "output_max"};
    spry_limits found = {-INFINITY, INFINITY, -INFINITY, INFINITY};
    float *const to[] = {&found.in_min, &found.in_max, &found.out_min, &found.out_max};
    bool any = false;
    for (size_t i = 0; i < SPRY_COUNT(suffixes); i++) {
        char name[SPRY_TENSOR_NAME_MAX] = "";
        const float *value = NULL;
        const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, suffixes[i]);
        spry_status status = t ? spry_bind_vector(b, &value, t, 1, 0) : SPRY_OK;
        if (status)
            return status;
        any = any || value;
        *to[i] = value ? *value : *to[i];
    }
    spry_limits *kept = any ? spry_arena_alloc(b->arena, 1, sizeof *kept) : NULL;
    if (any && !kept)
        return spry_fail_memory(b->error, "a matrix", sizeof *kept);
    if (kept)
        *kept = found;
    out->limits = kept;
    return SPRY_OK;
}

/* NVFP4 tensors of GGUF files may have a factor beside them; those of experts one for each. */
spry_status spry_bind_factor(const spry_binder *b, spry_weight *out, uint32_t layer, const char *ours, uint32_t expert)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const float *factors = NULL;
    const spry_tensor *t =
        b->gguf && out->type == SPRY_NVFP4 ? spry_bind_find_in_layer(b, name, layer, ours, 0, "scale") : NULL;
    if (!t)
        return SPRY_OK;
    bool one = t->dims[0] == 1 || !strstr(ours, "_exps");
    spry_status status = spry_bind_vector(b, &factors, t, one ? 1 : b->config->n_experts, 0);
    float factor = status ? 1 : factors[one ? 0 : expert];
    if (!status && !(fabsf(factor) > 0 && isfinite(factor)))
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' holds %g", b->name, name, (double)factor);
    out->scale = factor != 1 ? factor : 0;
    return status;
}

spry_status spry_bind_linear(const spry_binder *b, spry_weight *out, uint32_t layer, const char *gguf_name,
                             size_t n_out, size_t n_in, bool required)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t =
        b->config->arch->limited ? spry_bind_find_in_layer(b, name, layer, gguf_name, 0, "linear.weight") : NULL;
    t = t ? t : spry_bind_find_in_layer(b, name, layer, gguf_name, 0, "weight");
    bool packed = false;
    spry_status status = SPRY_OK;
    if (!t && b->config->int4)
        status = spry_bind_int4(b, &packed, out, layer, gguf_name, 0, n_out, n_in);
    if (!t && !packed && !status)
        return required ? spry_bind_missing(b, name) : SPRY_OK;
    if (t)
        status = spry_bind_matrix(b, out, t, n_out, n_in);
    if (!status)
        status = spry_bind_factor(b, out, layer, gguf_name, 0);
    if (!status && b->config->arch->limited)
        status = bind_limits(b, out, layer, gguf_name);
    t = status ? NULL : spry_bind_find_in_layer(b, name, layer, gguf_name, 0, "bias");
    if (!status && !t && needs_bias(b, gguf_name))
        return spry_bind_missing(b, name);
    return t ? spry_bind_vector(b, &out->bias, t, n_out, 0) : status;
}

/* Binds q, k or v, with a bias if the architecture has one. */
static spry_status layer_projection(const spry_binder *b, spry_weight *out, uint32_t layer, const char *gguf_name,
                                    size_t n_out)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    spry_status status = spry_bind_linear(b, out, layer, gguf_name, n_out, b->config->n_embd, REQUIRED);
    if (status || out->bias || !b->config->qkv_bias)
        return status;
    spry_bind_find_in_layer(b, name, layer, gguf_name, 0, "bias");
    return spry_bind_missing(b, name);
}

/* Rows [begin, begin + count) of a matrix. */
spry_weight spry_weight_rows(const spry_weight *whole, size_t begin, size_t count)
{
    spry_weight part = *whole;
    part.data += begin * whole->row_bytes;
    part.n_out = count;
    if (part.bias)
        part.bias += begin;
    return part;
}

static spry_status bind_sinks(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "attn_sinks", 0, "weight");
    if (!t && b->config->arch->kinds) /* one kind of layers has none */
        return SPRY_OK;
    return t ? spry_bind_vector(b, &l->sinks, t, b->config->n_heads, 0) : spry_bind_missing(b, name);
}

/* True if a layer has values of its own; otherwise its keys are its values. In GGUF files the tensor is missing
 * then. */
static bool has_values(const spry_binder *b, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    return b->gguf ? spry_bind_find_in_layer(b, name, i, "attn_v", 0, "weight") != NULL
                   : b->config->sliding[i] || !b->config->keys_as_values;
}

static spry_status bind_attention(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    spry_heads h = spry_config_heads(c, i);
    size_t value_dim = c->value_dim ? c->value_dim : h.head_dim, n_values = h.n_kv_heads * value_dim;
    size_t n_q = (size_t)c->n_heads * h.head_dim, n_kv = (size_t)h.n_kv_heads * h.head_dim;
    bool own = c->kv_layer[i] == i; /* the layer has its own keys and values */
    bool values = own && !(c->arch->keys_as_values && !has_values(b, i));
    spry_status status;
    char name[SPRY_TENSOR_NAME_MAX] = "";
    bool apart = b->gguf && c->arch->tower && spry_bind_find_in_layer(b, name, i, "attn_q", 0, "weight");
    if (c->arch->fused_qkv && !apart) {
        spry_weight all = {0};
        if ((status = spry_bind_linear(b, &all, i, "attn_qkv", n_q + 2 * n_kv, c->n_embd, REQUIRED)))
            return status;
        l->q = spry_weight_rows(&all, 0, n_q);
        l->k = spry_weight_rows(&all, n_q, n_kv);
        l->v = spry_weight_rows(&all, n_q + n_kv, n_kv);
    } else if ((status = layer_projection(b, &l->q, i, "attn_q", c->arch->gated_attention ? 2 * n_q : n_q)) ||
               (own && (status = layer_projection(b, &l->k, i, "attn_k", n_kv))) ||
               (values && (status = layer_projection(b, &l->v, i, "attn_v", n_values)))) {
        return status;
    }
    if (c->arch->attention_gate &&
        (status = spry_bind_linear(b, &l->attn_gate, i, "attn_gate", n_q, c->n_embd, REQUIRED)))
        return status;
    bool wide = c->arch->qk_norm == SPRY_QK_NORM_ROW || c->arch->qk_norm == SPRY_QK_NORM_EACH;
    bool normed = c->qk_norm && c->arch->qk_norm != SPRY_QK_NORM_BARE;
    if ((status = layer_norm(b, &l->q_norm, i, "attn_q_norm", wide ? n_q : h.head_dim, normed)) ||
        (own && (status = layer_norm(b, &l->k_norm, i, "attn_k_norm", wide ? n_kv : h.head_dim, normed))))
        return status;
    if (c->arch->sinks && (status = bind_sinks(b, l, i)))
        return status;
    if ((status = spry_bind_linear(b, &l->o, i, "attn_output", c->n_embd, c->n_heads * value_dim, REQUIRED)) ||
        (status = spry_bind_scale(b, &l->q, c->attention_in_scale, 1)) ||
        (status = spry_bind_scale(b, &l->k, c->attention_in_scale, c->key_scale)) ||
        (status = spry_bind_scale(b, &l->v, c->attention_in_scale, 1)))
        return status;
    return spry_bind_scale(b, &l->o, 1, c->attention_out_scale);
}

static spry_status bind_convolution(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t n = b->config->n_embd;
    spry_status status = spry_bind_linear(b, &l->conv_in, i, "shortconv.in_proj", 3 * n, n, REQUIRED);
    if (!status)
        status = spry_bind_linear(b, &l->conv_out, i, "shortconv.out_proj", n, n, REQUIRED);
    const spry_tensor *t = status ? NULL : spry_bind_find_in_layer(b, name, i, "shortconv.conv", 0, "weight");
    if (status || !t)
        return status ? status : spry_bind_missing(b, name);
    if (t->dims[0] != n)
        return spry_bind_wrong_shape(b, t, n, b->config->n_conv);
    status = spry_bind_vector(b, &l->conv, t, n * b->config->n_conv, 0);
    t = status ? NULL : spry_bind_find_in_layer(b, name, i, "shortconv.conv", 0, "bias");
    return t ? spry_bind_vector(b, &l->conv_bias, t, n, 0) : status;
}

spry_status spry_bind_gate_up(const spry_binder *b, spry_weight *gate, spry_weight *up, uint32_t i,
                              const char *const names[3], size_t n_ff)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_config *c = b->config;
    spry_weight both = {0};
    if (c->arch->fused_gate_up || spry_bind_find_in_layer(b, name, i, names[2], 0, "weight")) {
        spry_status status = spry_bind_linear(b, &both, i, names[2], 2 * n_ff, c->n_embd, REQUIRED);
        if (status)
            return status;
        *gate = spry_weight_rows(&both, 0, n_ff);
        *up = spry_weight_rows(&both, n_ff, n_ff);
        return SPRY_OK;
    }
    spry_status status = c->arch->ungated ? SPRY_OK : spry_bind_linear(b, gate, i, names[0], n_ff, c->n_embd, REQUIRED);
    return status ? status : spry_bind_linear(b, up, i, names[1], n_ff, c->n_embd, REQUIRED);
}

static spry_status bind_feed_forward(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t ff = c->n_ff_shared && c->kv_layer[i] != i ? c->n_ff_shared : c->n_ff;
    spry_status status = SPRY_OK;
    if (c->n_experts &&
        (status = spry_bind_linear(b, &l->router, i, "ffn_gate_inp", c->n_experts, c->n_embd, OPTIONAL)))
        return status;
    if (c->arch->compressed) /* the name of a bias is that of what is added to scores */
        l->router.bias = NULL;
    if (l->router.data) /* a layer without a router is dense */
        status = spry_bind_moe(b, l, i);
    if (status || (l->router.data && !c->arch->beside))
        return status;
    const char *both = c->arch->fused_gate_up ? "ffn_up" : "ffn_gate_up";
    status = spry_bind_gate_up(b, &l->gate, &l->up, i, (const char *const[]){"ffn_gate", "ffn_up", both}, ff);
    if (!status && l->gate.data)
        status = spry_bind_scale(b, &l->gate, 1, c->gate_scale);
    if (!status)
        status = spry_bind_linear(b, &l->down, i, "ffn_down", c->n_embd, ff, REQUIRED);
    return status ? status : spry_bind_scale(b, &l->down, 1, c->down_scale);
}

/* Binds attention, or what a layer has in its place or in addition. */
static spry_status bind_mixer(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    spry_status status = SPRY_OK;
    if (c->arch->latent)
        return spry_bind_latent(b, l, i);
    if (c->arch->compressed)
        return spry_bind_compressed(b, l, i);
    if (spry_config_recurs(c, i))
        status = c->arch->mamba ? spry_bind_mamba(b, l, i) : spry_bind_delta(b, l, i);
    else if (c->convolves[i])
        status = bind_convolution(b, l, i);
    if (!status && spry_config_has_block(c, i))
        return spry_bind_block(b, l, i);
    return status || !spry_config_attends(c, i) ? status : bind_attention(b, l, i);
}

/* Binds the factors of the results of a layer's parts, if there are any. */
static spry_status bind_result_scales(const spry_binder *b, spry_layer *l, uint32_t i)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t n = b->config->n_embd;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, i, "ls1", 0, "weight");
    spry_status status = t ? spry_bind_vector(b, &l->attn_scales, t, n, 0) : SPRY_OK;
    t = status ? NULL : spry_bind_find_in_layer(b, name, i, "ls2", 0, "weight");
    return t ? spry_bind_vector(b, &l->ffn_scales, t, n, 0) : status;
}

static spry_status bind_layer(const spry_binder *b, spry_layer *l, uint32_t i)
{
    size_t n = b->config->n_embd;
    spry_norm_places norms = b->config->arch->norms;
    if (b->config->arch->delta_norms_before && b->config->convolves[i])
        norms = SPRY_NORMS_BEFORE;
    bool after = norms == SPRY_NORMS_AROUND || norms == SPRY_NORMS_AFTER, sums = norms == SPRY_NORMS_SUM;
    spry_status status = SPRY_OK;
    bool mixes = b->config->kinds[i] != SPRY_LAYER_FEEDS, feeds = spry_config_feeds(b->config, i);
    bool bare = b->config->arch->inner_norms && i == 0; /* the embeddings are normalised */
    if (mixes && norms != SPRY_NORMS_AFTER && !sums && !bare)
        status = layer_norm_with_bias(b, &l->attn_norm, &l->attn_norm_bias, i, "attn_norm");
    if (!status && feeds && norms != SPRY_NORMS_AFTER && norms != SPRY_NORMS_PARALLEL && !sums)
        status = layer_norm_with_bias(b, &l->ffn_norm, &l->ffn_norm_bias, i, "ffn_norm");
    if (!status && sums)
        status = layer_norm_with_bias(b, &l->attn_post_norm, &l->attn_post_norm_bias, i, "post_attention_norm");
    if (!status && sums)
        status = layer_norm_with_bias(b, &l->ffn_post_norm, &l->ffn_post_norm_bias, i, "post_ffw_norm");
    if (!status && after)
        status = layer_norm(b, &l->attn_post_norm, i, "post_attention_norm", n, REQUIRED);
    if (!status && after)
        status = layer_norm(b, &l->ffn_post_norm, i, "post_ffw_norm", n, REQUIRED);
    if (!status && mixes)
        status = bind_mixer(b, l, i);
    if (!status && b->config->arch->streams)
        status = spry_bind_side(b, l, i);
    if (!status && feeds)
        status = bind_feed_forward(b, l, i);
    if (!status && b->config->n_hyper)
        status = spry_bind_hyper(b, &l->attn_hyper, i, true);
    if (!status && b->config->n_hyper)
        status = spry_bind_hyper(b, &l->ffn_hyper, i, false);
    if (!status && i < b->config->n_hashed)
        status = spry_bind_token_experts(b, l, i);
    if (!status && b->config->arch->tower)
        status = bind_result_scales(b, l, i);
    return !status && b->config->arch->beside ? spry_bind_beside(b, l, i) : status;
}

/* Reads llama3's scaled frequencies and the lists of long RoPE, which GGUF stores as tensors. */
static spry_status bind_rope_factors(const spry_binder *b)
{
    static const struct {
        const char *name;
        size_t offset;
    } tensors[] = {{"rope_freqs.weight", offsetof(spry_rope, factors)},
                   {"rope_factors_short.weight", offsetof(spry_rope, factors)},
                   {"rope_factors_long.weight", offsetof(spry_rope, long_factors)}};
    size_t n_pairs = b->config->rope_dim / 2;
    for (size_t i = 0; b->gguf && i < SPRY_COUNT(tensors); i++) {
        const spry_tensor *t = spry_bind_find(b, tensors[i].name);
        const float *factors = NULL;
        if (!t)
            continue;
        spry_status status = spry_bind_vector(b, &factors, t, n_pairs, 0);
        if (status)
            return status;
        for (size_t j = 0; j < n_pairs; j++)
            if (!(factors[j] > 0))
                return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' holds %g", b->name, tensors[i].name,
                                 (double)factors[j]);
        *(const float **)(void *)((char *)&b->config->rope + tensors[i].offset) = factors;
        if (!b->config->arch->two_ropes)
            *(const float **)(void *)((char *)&b->config->rope_sliding + tensors[i].offset) = factors;
    }
    return SPRY_OK;
}

/* Binds the output matrix. It is the embedding if a GGUF file has none, or if Hugging Face's flag says so. */
static spry_status bind_output(const spry_binder *b)
{
    spry_config *c = b->config;
    static const char *const names[] = {"lm_head.weight", "language_model.lm_head.weight", "head.weight"};
    const spry_tensor *t = b->gguf ? spry_bind_find(b, "output.weight") : NULL;
    c->tied = c->tied || c->arch->encoder;
    for (size_t i = 0; !b->gguf && !c->tied && !t && i < SPRY_COUNT(names); i++)
        t = spry_bind_find(b, names[i]);
    if (!t && !b->gguf && !c->tied)
        return spry_bind_missing(b, names[0]);
    c->tied = !t;
    b->out->output = b->out->embedding;
    spry_status status = t ? spry_bind_matrix(b, &b->out->output, t, c->n_vocab, c->n_embd) : SPRY_OK;
    t = c->arch->encoder ? NULL : spry_bind_find(b, b->gguf ? "output.bias" : "lm_head.bias");
    return !status && t ? spry_bind_vector(b, &b->out->output.bias, t, c->n_vocab, 0) : status;
}

static spry_status bind_output_norm(const spry_binder *b)
{
    const spry_config *c = b->config;
    const char *norm = b->gguf ? c->arch->gguf_output_norm : c->arch->hf_output_norm;
    char name[SPRY_TENSOR_NAME_MAX];
    norm = norm ? norm : b->gguf ? "output_norm" : "norm";
    snprintf(name, sizeof name, "%s%s.weight", b->gguf ? "" : b->prefix, norm);
    const spry_tensor *t = spry_bind_find(b, name);
    if (!t)
        return spry_bind_missing(b, name);
    spry_status status =
        spry_bind_vector(b, &b->out->output_norm, t, c->n_embd, !b->gguf && c->arch->norm_plus_one ? 1 : 0);
    snprintf(name, sizeof name, "%s%s.bias", b->gguf ? "" : b->prefix, norm);
    t = !status && c->layer_norm ? spry_bind_find(b, name) : NULL;
    if (!status && !t && c->norm_bias)
        return spry_bind_missing(b, name);
    return t ? spry_bind_vector(b, &b->out->output_norm_bias, t, c->n_embd, 0) : status;
}

static const char *const prefixes[] = {
    "model.",    "language_model.model.", "model.language_model.", "", "bert.", "roberta.", "xlm_roberta.",
    "backbone.", "model.text_model."};

static spry_status bind_ends(spry_binder *b)
{
    spry_config *c = b->config;
    const char *embedding = c->arch->hf_embedding ? c->arch->hf_embedding : "embed_tokens";
    char name[SPRY_TENSOR_NAME_MAX] = "token_embd.weight";
    const spry_tensor *t = b->gguf ? spry_bind_find(b, name) : NULL;
    for (size_t i = 0; !b->gguf && !t && i < SPRY_COUNT(prefixes); i++) {
        b->prefix = prefixes[i];
        snprintf(name, sizeof name, "%s%s.weight", b->prefix, embedding);
        t = spry_bind_find(b, name);
        if (!t && !strcmp(embedding, "embeddings")) { /* the name in transformers */
            snprintf(name, sizeof name, "%sembedding.weight", b->prefix);
            t = spry_bind_find(b, name);
        }
    }
    if (!t && !b->gguf)
        snprintf(name, sizeof name, "%s%s.weight", c->arch->encoder ? "" : prefixes[0], embedding);
    if (!t)
        return spry_bind_missing(b, name);
    if (t->dims[0] > INT32_MAX)
        return spry_bind_wrong_shape(b, t, INT32_MAX, c->n_embd);
    c->n_vocab = (uint32_t)t->dims[0];
    spry_status status = spry_bind_matrix(b, &b->out->embedding, t, c->n_vocab, c->n_embd);
    if (status)
        return status;
    status = c->arch->encoder ? bind_encoder(b) : SPRY_OK;
    if (!status && (!c->arch->encoder || c->arch->inner_norms))
        status = bind_output_norm(b);
    return status ? status : bind_output(b);
}

/* Binds the output norm of a tower, if there is one; there is no output matrix. */
static spry_status bind_tower(spry_binder *b)
{
    static const char *const towers[] = {"model.visual.",
                                         "visual.",
                                         "vision_tower.vision_model.",
                                         "vision_tower.",
                                         "model.vision_model.",
                                         "model.vision_tower.",
                                         "model.vision_tower.vision_model."};
    char name[SPRY_TENSOR_NAME_MAX];
    for (size_t i = 0; i < SPRY_COUNT(towers); i++) {
        b->prefix = b->gguf ? "" : towers[i];
        if (spry_bind_find_in_layer(b, name, 0, "attn_norm", 0, "weight"))
            break;
    }
    b->config->prefix = b->prefix;
    b->config->n_vocab = 1;
    return b->config->arch->hf_output_norm ? bind_output_norm(b) : SPRY_OK;
}

spry_status spry_weights_bind(spry_weights *weights, spry_config *config, const spry_gguf *gguf,
                              const spry_safetensors *files, const char *name, spry_arena *arena, spry_error *error)
{
    *weights = (spry_weights){0};
    spry_binder b = {weights, config, gguf, files, name, "", 0, NULL, arena, error};
    size_t n_tensors = gguf ? spry_gguf_tensor_count(gguf) : spry_safetensors_count(files);
    weights->several_files = gguf ? spry_gguf_is_split(gguf) : spry_safetensors_files(files) > 1;
    weights->uses = spry_arena_alloc(arena, n_tensors, sizeof *weights->uses);
    if (!weights->uses)
        return spry_fail_memory(error, "what tensors are for", n_tensors);
    spry_status status = spry_ops_get(&b.ops, "ref", error);
    if (!status)
        status = config->arch->tower ? bind_tower(&b) : bind_ends(&b);
    if (!status)
        status = bind_rope_factors(&b);
    if (!status && config->arch->streams)
        status = spry_bind_streams(&b);
    if (!status && config->n_layer_embd)
        status = spry_bind_layer_inputs(&b);
    if (!status && config->n_hyper)
        status = spry_bind_hyper(&b, &weights->hyper, SPRY_HYPER_END, false);
    if (status)
        return status;
    weights->layers = spry_arena_alloc(arena, config->n_layers, sizeof *weights->layers);
    if (!weights->layers)
        return spry_fail_memory(error, "the layers", config->n_layers * sizeof *weights->layers);
    for (uint32_t i = 0; !status && i < config->n_layers; i++)
        status = bind_layer(&b, &weights->layers[i], i);
    return status;
}

/* ---- heads that draft -------------------------------------------------------------------------------------------- */

/* A head is one more layer, with norms and a matrix before it. Qwen's files have it under names of its own; others, and
 * GGUF files, as the layer after the last one. */

static const char *const head_names[][2] = {
    {"nextn.eh_proj", "mtp.fc.weight"},
    {"nextn.enorm", "mtp.pre_fc_norm_embedding.weight"},
    {"nextn.hnorm", "mtp.pre_fc_norm_hidden.weight"},
    {"nextn.shared_head_norm", "mtp.norm.weight"},
};

enum { HEAD_IN, HEAD_EMBEDDING_NORM, HEAD_HIDDEN_NORM, HEAD_NORM };

/* A tensor of the head beside its layer; its full name is left in `name`. */
static const spry_tensor *find_head(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], int part)
{
    if (b->first_layer)
        return spry_bind_find_in_layer(b, name, 0, head_names[part][0], 0, "weight");
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s", head_names[part][1]);
    return spry_bind_find(b, name);
}

/* True if the files have any of the head's tensors; sets how they are named. */
static bool has_head(spry_binder *b, uint32_t first_layer)
{
    char name[SPRY_TENSOR_NAME_MAX];
    bool found = false;
    b->prefix = "mtp.";
    for (int part = HEAD_IN; !b->gguf && part <= HEAD_NORM; part++)
        found = found || find_head(b, name, part);
    found = found || (!b->gguf && spry_bind_find_in_layer(b, name, 0, "attn_norm", 0, "weight"));
    if (found)
        return true;
    b->first_layer = first_layer;
    for (size_t i = 0; !found && i < (b->gguf ? 1 : SPRY_COUNT(prefixes)); i++) {
        b->prefix = prefixes[i];
        for (int part = HEAD_IN; !found && part <= HEAD_NORM; part++)
            found = find_head(b, name, part);
    }
    return found;
}

static spry_status bind_head_norm(const spry_binder *b, const float **out, int part)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_tensor *t = find_head(b, name, part);
    float add = !b->gguf && b->config->arch->norm_plus_one ? 1 : 0;
    return t ? spry_bind_vector(b, out, t, b->config->n_embd, add) : spry_bind_missing(b, name);
}

spry_status spry_weights_bind_head(bool *found, spry_weights *head, spry_config *config, const spry_weights *model,
                                   uint32_t first_layer, const spry_gguf *gguf, const spry_safetensors *files,
                                   const char *name, spry_arena *arena, spry_error *error)
{
    char tensor[SPRY_TENSOR_NAME_MAX];
    *head = (spry_weights){.several_files = model->several_files};
    spry_binder b = {head, config, gguf, files, name, "", 0, NULL, arena, error};
    head->uses = spry_arena_alloc(arena, gguf ? spry_gguf_tensor_count(gguf) : spry_safetensors_count(files), 1);
    head->layers = spry_arena_alloc(arena, config->n_layers, sizeof *head->layers);
    if (!head->uses || !head->layers)
        return spry_fail_memory(error, "a head that drafts", sizeof *head->layers);
    spry_status status = spry_ops_get(&b.ops, "ref", error);
    *found = !status && has_head(&b, first_layer);
    if (!*found)
        return status;
    const spry_tensor *t = find_head(&b, tensor, HEAD_IN);
    status = t ? spry_bind_matrix(&b, &head->draft_in, t, config->n_embd, 2 * (size_t)config->n_embd)
               : spry_bind_missing(&b, tensor);
    if (!status)
        status = bind_head_norm(&b, &head->draft_embedding_norm, HEAD_EMBEDDING_NORM);
    if (!status)
        status = bind_head_norm(&b, &head->draft_hidden_norm, HEAD_HIDDEN_NORM);
    if (!status)
        status = bind_head_norm(&b, &head->output_norm, HEAD_NORM);
    if (!status && spry_bind_find_in_layer(&b, tensor, 1, "attn_norm", 0, "weight"))
        status =
            spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: its head for drafts has several layers ('%s')", name, tensor);
    if (!status)
        status = bind_layer(&b, head->layers, 0);
    head->embedding = model->embedding;
    head->output = model->output;
    return status;
}
