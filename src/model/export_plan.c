/* The list of tensors for an export: from a GGUF file unchanged, from a Hugging Face checkpoint with GGUF's names and
 * layout. */
#include "model/gguf_export.h"

#include <math.h>
#include <stdlib.h>

#include "model/arch.h"
#include "model/config.h"
#include "model/draft_head.h"
#include "model/tensor_names.h"
#include "model/weights_bind.h"

/* Adds a tensor that consists of `pieces`; copies the name. */
static spry_export_item *add(spry_export_plan *plan, const char *name, const spry_weight *pieces, size_t n_pieces,
                             uint32_t n_dims, const size_t dims[SPRY_TENSOR_DIMS])
{
    if (plan->status)
        return NULL;
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? plan->capacity * 2 : 256;
        spry_export_item *items = realloc(plan->items, capacity * sizeof *items);
        if (!items) {
            plan->status = spry_fail_memory(plan->error, "the list of tensors", capacity * sizeof *items);
            return NULL;
        }
        plan->items = items;
        plan->capacity = capacity;
    }
    char *copy = spry_arena_copy(&plan->arena, spry_view_of(name));
    if (!copy) {
        plan->status = spry_fail_memory(plan->error, "a tensor's name", strlen(name) + 1);
        return NULL;
    }
    spry_export_item *item = &plan->items[plan->count++];
    *item = (spry_export_item){.pieces = pieces, .n_pieces = n_pieces};
    item->as = (spry_tensor){.name = spry_view_of(copy), .n_dims = n_dims};
    for (size_t i = 0; i < SPRY_TENSOR_DIMS; i++)
        item->as.dims[i] = i < n_dims ? dims[i] : 1;
    item->as.type =
        spry_recipe_type(plan->options->recipe, item->as.name, plan->model->config.n_layers, n_dims, dims[n_dims - 1]);
    return item;
}

/* Copies a weight to memory that lives as long as the plan. */
static spry_weight *keep(spry_export_plan *plan, spry_weight weight)
{
    spry_weight *kept = spry_arena_alloc(&plan->arena, 1, sizeof *kept);
    if (kept)
        *kept = weight;
    else if (!plan->status)
        plan->status = spry_fail_memory(plan->error, "a tensor", sizeof *kept);
    return kept;
}

static void add_vector(spry_export_plan *plan, const char *name, const float *values, size_t n)
{
    if (!values)
        return;
    spry_weight *w = keep(plan, (spry_weight){.data = (const unsigned char *)values,
                                              .type = SPRY_F32,
                                              .n_out = 1,
                                              .n_in = n,
                                              .row_bytes = n * sizeof *values});
    if (w)
        add(plan, name, w, 1, 1, (size_t[SPRY_TENSOR_DIMS]){n});
}

static const char *layer_name(char name[SPRY_TENSOR_NAME_MAX], const spry_export_plan *plan, uint32_t layer,
                              const char *what, const char *suffix)
{
    spry_tensor_gguf_name(name, plan->config->arch, plan->first_layer + layer, what, suffix);
    return name;
}

static void add_norm(spry_export_plan *plan, uint32_t layer, const char *what, const float *values, size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX];
    add_vector(plan, layer_name(name, plan, layer, what, "weight"), values, n);
}

static void add_norm_bias(spry_export_plan *plan, uint32_t layer, const char *what, const float *values)
{
    char name[SPRY_TENSOR_NAME_MAX];
    add_vector(plan, layer_name(name, plan, layer, what, "bias"), values, plan->model->config.n_embd);
}

/* Adds the bias of a matrix; it is permuted like the matrix's rows. */
static void add_bias(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *w, size_t head)
{
    char name[SPRY_TENSOR_NAME_MAX];
    if (!w->bias)
        return;
    float *values = spry_arena_alloc(&plan->arena, w->n_out, sizeof *values);
    if (!values) {
        plan->status = spry_fail_memory(plan->error, "a bias", w->n_out * sizeof *values);
        return;
    }
    for (size_t row = 0; row < w->n_out; row++)
        values[row] = w->bias[spry_export_source_row(head, plan->config->rope_dim, row)];
    add_vector(plan, layer_name(name, plan, layer, what, "bias"), values, w->n_out);
}

static void add_linear(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *w, size_t head)
{
    char name[SPRY_TENSOR_NAME_MAX];
    if (!w->data)
        return;
    spry_export_item *item = add(plan, layer_name(name, plan, layer, what, "weight"), w, 1, 2,
                                 (size_t[SPRY_TENSOR_DIMS]){w->n_out, w->n_in});
    if (item) {
        item->permute_head = head;
        item->permute_rotated = plan->config->rope_dim;
    }
    add_bias(plan, layer, what, w, head);
}

/* Adds one tensor for a matrix of which the model has slices. */
static void add_fused(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *first, size_t n_out)
{
    spry_weight *whole = keep(plan, *first);
    if (!whole)
        return;
    whole->n_out = n_out;
    add_linear(plan, layer, what, whole, 0);
}

/* Adds the biases of all experts as one tensor. */
static void add_expert_biases(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *experts,
                              size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX];
    size_t n_out = experts[0].n_out;
    float *values = spry_arena_alloc(&plan->arena, n * n_out, sizeof *values);
    spry_weight *w = keep(plan, (spry_weight){.data = (const unsigned char *)values,
                                              .type = SPRY_F32,
                                              .n_out = n,
                                              .n_in = n_out,
                                              .row_bytes = n_out * sizeof *values});
    if (!values || !w) {
        plan->status = spry_fail_memory(plan->error, "biases", n * n_out * sizeof *values);
        return;
    }
    for (size_t e = 0; e < n; e++)
        memcpy(values + e * n_out, experts[e].bias, n_out * sizeof *values);
    spry_export_item *item =
        add(plan, layer_name(name, plan, layer, what, "bias"), w, 1, 2, (size_t[SPRY_TENSOR_DIMS]){n, n_out});
    if (item)
        item->as.type = SPRY_F32;
}

static void add_experts(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *experts, size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX];
    if (experts && experts[0].bias)
        add_expert_biases(plan, layer, what, experts, n);
    if (experts && experts[0].data)
        add(plan, layer_name(name, plan, layer, what, "weight"), experts, n, 3,
            (size_t[SPRY_TENSOR_DIMS]){n, experts[0].n_out, experts[0].n_in});
}

/* The matrices of heads are stacked like those of experts. */
static void add_latent(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    add_linear(plan, i, "attn_q_a", &l->q_a, 0);
    add_norm(plan, i, "attn_q_a_norm", l->q_a_norm, c->n_q_rank);
    add_linear(plan, i, c->n_q_rank ? "attn_q_b" : "attn_q", &l->q, 0);
    add_linear(plan, i, "attn_kv_a_mqa", &l->k, 0);
    add_norm(plan, i, "attn_kv_a_norm", l->kv_a_norm, c->n_kv_rank);
    add_experts(plan, i, "attn_k_b", l->k_b, c->n_heads);
    add_experts(plan, i, "attn_v_b", l->v_b, c->n_heads);
    add_linear(plan, i, "indexer.attn_q_b", &l->index_q, 0);
    add_linear(plan, i, "indexer.attn_k", &l->index_k, 0);
    add_linear(plan, i, "indexer.proj", &l->index_weights, 0);
    add_norm(plan, i, "indexer.k_norm", l->index_k_norm, c->index_dim);
    if (l->index_k_norm_bias) {
        char name[SPRY_TENSOR_NAME_MAX];
        add_vector(plan, layer_name(name, plan, i, "indexer.k_norm", "bias"), l->index_k_norm_bias, c->index_dim);
    }
}

static void add_layer_input(spry_export_plan *plan, const spry_side *s, uint32_t i)
{
    add_linear(plan, i, "inp_gate", &s->gate, 0);
    add_linear(plan, i, "proj", &s->proj, 0);
    add_norm(plan, i, "post_norm", s->post_norm, plan->model->config.n_embd);
}

/* Gemma 4: GGUF stores the router's scale without the factor of the square root. */
static void add_beside(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    char name[SPRY_TENSOR_NAME_MAX];
    size_t n = c->n_embd;
    add_norm(plan, i, "layer_output_scale", l->output_scale, 1);
    add_norm(plan, i, "pre_ffw_norm_2", l->expert_norm, n);
    add_norm(plan, i, "post_ffw_norm_2", l->expert_post_norm, n);
    add_norm(plan, i, "post_ffw_norm_1", l->dense_post_norm, n);
    add_vector(plan, layer_name(name, plan, i, "expert_scale", ""), l->expert_scale, c->n_experts);
    float *scale = l->router_norm ? spry_arena_alloc(&plan->arena, n, sizeof *scale) : NULL;
    for (size_t k = 0; scale && k < n; k++)
        scale[k] = l->router_norm[k] * sqrtf((float)n);
    if (l->router_norm && !scale)
        plan->status = spry_fail_memory(plan->error, "a vector", n * sizeof *scale);
    add_vector(plan, layer_name(name, plan, i, "router_scale", ""), scale, n);
}

static void add_side(spry_export_plan *plan, const spry_side *s, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    size_t n = c->n_streams;
    const struct {
        const char *what;
        const float *values;
        size_t n_out, n_in;
    } small[] = {{"altup_predict_coef", s->predict, n * n, n}, {"altup_correct_coef", s->correct, n, n}};
    add_linear(plan, i, "laurel_l", &s->laurel_l, 0);
    add_linear(plan, i, "laurel_r", &s->laurel_r, 0);
    add_linear(plan, i, "altup_router", &s->router, 0);
    add_norm(plan, i, "laurel_post_norm", s->laurel_norm, c->n_embd);
    add_norm(plan, i, "altup_router_norm", s->router_norm, c->n_embd);
    add_norm(plan, i, "altup_correct_scale", s->correct_scale, c->n_embd);
    for (size_t k = 0; k < SPRY_COUNT(small); k++) {
        spry_weight *w = keep(plan, (spry_weight){.data = (const unsigned char *)small[k].values,
                                                  .type = SPRY_F32,
                                                  .n_out = small[k].n_out,
                                                  .n_in = small[k].n_in,
                                                  .row_bytes = small[k].n_in * sizeof(float)});
        if (w)
            add_linear(plan, i, small[k].what, w, 0);
    }
}

static void add_layer_inputs(spry_export_plan *plan)
{
    const spry_weights *w = &plan->model->weights;
    const spry_weight *tables[] = {&w->layer_embedding, &w->layer_projection};
    const char *const names[] = {"per_layer_token_embd.weight", "per_layer_model_proj.weight"};
    const spry_config *c = &plan->model->config;
    for (size_t i = 0; i < 2; i++)
        add(plan, names[i], tables[i], 1, 2, (size_t[SPRY_TENSOR_DIMS]){tables[i]->n_out, tables[i]->n_in});
    add_vector(plan, "per_layer_proj_norm.weight", w->layer_norm, c->n_layer_embd);
}

static void add_streams(spry_export_plan *plan)
{
    const spry_weights *w = &plan->model->weights;
    const spry_config *c = &plan->model->config;
    size_t n = c->n_streams - 1;
    add(plan, "altup_proj.weight", w->stream_in, n, 3, (size_t[SPRY_TENSOR_DIMS]){n, c->n_embd, c->n_embd});
    add(plan, "altup_unembd_proj.weight", w->stream_out, n, 3, (size_t[SPRY_TENSOR_DIMS]){n, c->n_embd, c->n_embd});
}

static void add_convolution(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    spry_weight *conv = keep(plan, (spry_weight){.data = (const unsigned char *)l->conv,
                                                 .type = SPRY_F32,
                                                 .n_out = c->n_embd,
                                                 .n_in = c->n_conv,
                                                 .row_bytes = c->n_conv * sizeof *l->conv,
                                                 .bias = l->conv_bias});
    add_linear(plan, i, "shortconv.in_proj", &l->conv_in, 0);
    add_linear(plan, i, "shortconv.out_proj", &l->conv_out, 0);
    if (conv)
        add_linear(plan, i, "shortconv.conv", conv, 0);
}

/* The source row of each row when GGUF files order a delta net's heads (of `size` rows each, after the first `before`
 * rows) so that every n-th head has the same key head. NULL: the order stays. */
static const uint32_t *tiled_rows(spry_export_plan *plan, size_t before, size_t size)
{
    const spry_config *c = &plan->model->config;
    size_t heads = c->n_delta_heads, each = heads / c->n_delta_keys, n = before + heads * size;
    if (!c->arch->delta_tiled || c->delta_tiled)
        return NULL;
    uint32_t *rows = spry_arena_alloc(&plan->arena, n, sizeof *rows);
    if (!rows && !plan->status)
        plan->status = spry_fail_memory(plan->error, "rows in another order", n * sizeof *rows);
    for (size_t i = 0; rows && i < n; i++) {
        size_t head = i < before ? 0 : (i - before) / size;
        size_t from = head % c->n_delta_keys * each + head / c->n_delta_keys;
        rows[i] = (uint32_t)(i < before ? i : before + from * size + (i - before) % size);
    }
    return rows;
}

/* The source rows of beta and decay: for each key head, those of its heads one after the other, as in Qwen3-Next's
 * files. */
static const uint32_t *grouped_rows(spry_export_plan *plan)
{
    const spry_config *c = &plan->model->config;
    size_t heads = c->n_delta_heads, each = heads / c->n_delta_keys;
    uint32_t *rows = spry_arena_alloc(&plan->arena, 2 * heads, sizeof *rows);
    if (!rows && !plan->status)
        plan->status = spry_fail_memory(plan->error, "rows in another order", 2 * heads * sizeof *rows);
    for (size_t i = 0; rows && i < 2 * heads; i++)
        rows[i] = (uint32_t)(i / each % 2 * heads + i / (2 * each) * each + i % each);
    return rows;
}

static void add_ordered(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *w,
                        const uint32_t *rows, const uint32_t *columns)
{
    size_t count = plan->count;
    add_linear(plan, layer, what, w, 0);
    if (plan->count > count) {
        plan->items[count].rows = rows;
        plan->items[count].columns = columns;
    }
}

/* Adds a vector with one value per head. */
static void add_head_values(spry_export_plan *plan, uint32_t layer, const char *what, const char *suffix,
                            const float *values)
{
    char name[SPRY_TENSOR_NAME_MAX];
    size_t n = plan->model->config.n_delta_heads;
    const uint32_t *rows = tiled_rows(plan, 0, 1);
    float *ordered = rows ? spry_arena_alloc(&plan->arena, n, sizeof *ordered) : NULL;
    for (size_t i = 0; ordered && i < n; i++)
        ordered[i] = values[rows[i]];
    if (rows && !ordered && !plan->status)
        plan->status = spry_fail_memory(plan->error, "a vector", n * sizeof *ordered);
    add_vector(plan, layer_name(name, plan, layer, what, suffix), ordered ? ordered : values, n);
}

/* Adds a table of floats. */
static void add_table(spry_export_plan *plan, uint32_t layer, const char *what, const char *suffix, const float *values,
                      size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX];
    spry_weight *w = values ? keep(plan, (spry_weight){.data = (const unsigned char *)values,
                                                       .type = SPRY_F32,
                                                       .n_out = n_out,
                                                       .n_in = n_in,
                                                       .row_bytes = n_in * sizeof *values})
                            : NULL;
    spry_export_item *item =
        w ? add(plan, layer_name(name, plan, layer, what, suffix), w, 1, 2, (size_t[SPRY_TENSOR_DIMS]){n_out, n_in})
          : NULL;
    if (item)
        item->as.type = SPRY_F32;
}

static void add_delta(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    size_t n = spry_config_delta_mixed(c), size = c->delta_value_dim;
    size_t keys = 2 * (size_t)c->n_delta_keys * c->delta_key_dim, count;
    spry_weight *conv = keep(plan, (spry_weight){.data = (const unsigned char *)l->delta_conv,
                                                 .type = SPRY_F32,
                                                 .n_out = n,
                                                 .n_in = c->n_conv,
                                                 .row_bytes = c->n_conv * sizeof *l->delta_conv});
    if (c->arch->delta_parts) {
        add_linear(plan, i, "delta_q", &l->delta_qkv[0], 0);
        add_linear(plan, i, "delta_k", &l->delta_qkv[1], 0);
        add_linear(plan, i, "delta_v", &l->delta_qkv[2], 0);
    } else {
        add_ordered(plan, i, "attn_qkv", &l->delta_qkv[0], tiled_rows(plan, keys, size), NULL);
    }
    add_ordered(plan, i, "attn_gate", &l->delta_gate, tiled_rows(plan, 0, size), NULL);
    if (c->arch == &spry_arch_qwen3_next) {
        spry_weight *both = keep(plan, l->delta_b);
        if (both)
            both->n_out *= 2; /* decay follows beta */
        add_ordered(plan, i, "ssm_ba", both ? both : &l->delta_b, grouped_rows(plan), NULL);
    } else {
        add_ordered(plan, i, "ssm_beta", &l->delta_b, tiled_rows(plan, 0, 1), NULL);
        add_ordered(plan, i, "ssm_alpha", &l->delta_a, tiled_rows(plan, 0, 1), NULL);
    }
    add_ordered(plan, i, "ssm_out", &l->delta_out, NULL, tiled_rows(plan, 0, size));
    add_head_values(plan, i, "ssm_a", "", l->delta_fading);
    add_head_values(plan, i, "ssm_dt", "bias", l->delta_dt);
    add_norm(plan, i, "ssm_norm", l->delta_norm, c->delta_value_dim);
    const float *rows = l->delta_conv;
    if (c->arch->delta_parts) {
        add_table(plan, i, "ssm_conv1d_q", "weight", rows, keys / 2, c->n_conv);
        add_table(plan, i, "ssm_conv1d_k", "weight", rows + keys / 2 * c->n_conv, keys / 2, c->n_conv);
        add_table(plan, i, "ssm_conv1d_v", "weight", rows + keys * c->n_conv, n - keys, c->n_conv);
        return;
    }
    count = plan->count;
    if (conv)
        add_ordered(plan, i, "ssm_conv1d", conv, tiled_rows(plan, keys, size), NULL);
    if (plan->count > count)
        plan->items[count].as.type = SPRY_F32;
}

/* Adds the existing parts of a matrix, one after the other, as one tensor. */
static void add_parts(spry_export_plan *plan, uint32_t layer, const char *what, const spry_weight *const *parts,
                      size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX];
    spry_weight *pieces = spry_arena_alloc(&plan->arena, n, sizeof *pieces);
    size_t n_out = 0, count = 0;
    for (size_t i = 0; pieces && i < n; i++)
        if (parts[i]->data) {
            pieces[count++] = *parts[i];
            n_out += parts[i]->n_out;
        }
    float *bias = pieces && pieces[0].bias ? spry_arena_alloc(&plan->arena, n_out, sizeof *bias) : NULL;
    if (!pieces || (pieces[0].bias && !bias)) {
        plan->status = spry_fail_memory(plan->error, "a tensor", n * sizeof *pieces);
        return;
    }
    for (size_t i = 0, at = 0; bias && i < count; at += pieces[i++].n_out)
        memcpy(bias + at, pieces[i].bias, pieces[i].n_out * sizeof *bias);
    add(plan, layer_name(name, plan, layer, what, "weight"), pieces, count, 2,
        (size_t[SPRY_TENSOR_DIMS]){n_out, pieces[0].n_in});
    add_vector(plan, layer_name(name, plan, layer, what, "bias"), bias, n_out);
}

static void add_mamba(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = &plan->model->config;
    char name[SPRY_TENSOR_NAME_MAX];
    size_t heads = c->n_delta_heads, groups = c->n_delta_keys, inner = heads * c->delta_value_dim;
    const spry_weight *const parts[] = {&l->delta_gate, &l->delta_qkv[0], &l->delta_qkv[1], &l->delta_qkv[2],
                                        &l->delta_a};
    add_parts(plan, i, "ssm_in", parts, SPRY_COUNT(parts));
    add_linear(plan, i, "ssm_out", &l->delta_out, 0);
    add_table(plan, i, "ssm_conv1d", "weight", l->delta_conv, spry_config_delta_mixed(c), c->n_conv);
    add_vector(plan, layer_name(name, plan, i, "ssm_conv1d", "bias"), l->delta_conv_bias, spry_config_delta_mixed(c));
    add_table(plan, i, "ssm_a", "", l->delta_fading, heads, 1);
    add_table(plan, i, "ssm_d", "", l->delta_skip, heads, 1);
    add_vector(plan, layer_name(name, plan, i, "ssm_dt", "bias"), l->delta_dt, heads);
    add_table(plan, i, "ssm_norm", "weight", l->delta_norm, groups, inner / groups);
}

/* Adds a matrix as floats, whatever the recipe says. */
static void add_plain(spry_export_plan *plan, const char *name, const spry_weight *w)
{
    spry_weight *kept = w->data ? keep(plan, *w) : NULL;
    spry_export_item *item = kept ? add(plan, name, kept, 1, 2, (size_t[SPRY_TENSOR_DIMS]){w->n_out, w->n_in}) : NULL;
    if (item)
        item->as.type = w->type == SPRY_I32 ? SPRY_I32 : SPRY_F32;
}

static void add_hyper(spry_export_plan *plan, const spry_hyper *h, uint32_t layer, const char *which)
{
    static const char *const parts[] = {"fn", "base", "scale"};
    bool ends = layer == SPRY_HYPER_END;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        char name[SPRY_TENSOR_NAME_MAX], ours[32];
        snprintf(ours, sizeof ours, "hc_%s_%s", which, parts[i]);
        if (ends)
            snprintf(name, sizeof name, "output_hc_%s.weight", parts[i]);
        else
            layer_name(name, plan, layer, ours, "weight");
        if (i == 0)
            add_plain(plan, name, &h->mix);
        else
            add_vector(plan, name, i == 1 ? h->base : h->scale, i == 1 ? h->mix.n_out : ends ? 1 : 3);
    }
}

/* DeepSeek V4 */
static void add_compressed(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = plan->config;
    char name[SPRY_TENSOR_NAME_MAX];
    add_linear(plan, i, "attn_q_a", &l->q_a, 0);
    add_norm(plan, i, "attn_q_a_norm", l->q_a_norm, c->n_q_rank);
    add_linear(plan, i, "attn_q_b", &l->q, 0);
    add_linear(plan, i, "attn_kv", &l->k, 0);
    add_norm(plan, i, "attn_kv_a_norm", l->kv_a_norm, c->head_dim);
    add_fused(plan, i, "attn_output_a", &l->out_groups[0], (size_t)c->n_out_groups * c->out_rank);
    add_linear(plan, i, "attn_output_b", &l->o, 0);
    add_linear(plan, i, "attn_compressor_kv", &l->join_values, 0);
    add_linear(plan, i, "attn_compressor_gate", &l->join_gates, 0);
    add_table(plan, i, "attn_compressor_ape", "weight", l->join_added, c->rates[i], l->join_values.n_out);
    add_norm(plan, i, "attn_compressor_norm", l->join_norm, c->head_dim);
    add_linear(plan, i, "indexer.attn_q_b", &l->index_q, 0);
    add_linear(plan, i, "indexer.proj", &l->index_weights, 0);
    add_linear(plan, i, "indexer_compressor_kv", &l->index_join_values, 0);
    add_linear(plan, i, "indexer_compressor_gate", &l->index_join_gates, 0);
    add_table(plan, i, "indexer_compressor_ape", "weight", l->index_join_added, c->rates[i], 2 * (size_t)c->index_dim);
    add_norm(plan, i, "indexer_compressor_norm", l->index_k_norm, c->index_dim);
    add_hyper(plan, &l->attn_hyper, i, "attn");
    add_hyper(plan, &l->ffn_hyper, i, "ffn");
    const spry_weight experts = {.data = (const unsigned char *)l->token_experts,
                                 .type = SPRY_I32,
                                 .n_out = c->n_vocab,
                                 .n_in = c->n_experts_used,
                                 .row_bytes = c->n_experts_used * sizeof *l->token_experts};
    add_plain(plan, layer_name(name, plan, i, "ffn_gate_tid2eid", "weight"), &experts);
}

static void add_layer(spry_export_plan *plan, const spry_layer *l, uint32_t i)
{
    const spry_config *c = plan->config;
    size_t head = c->arch->permuted_in_gguf ? c->head_dim : 0;
    bool wide = c->arch->qk_norm == SPRY_QK_NORM_ROW || c->arch->qk_norm == SPRY_QK_NORM_EACH;
    add_norm(plan, i, "attn_norm", l->attn_norm, c->n_embd);
    add_norm_bias(plan, i, "attn_norm", l->attn_norm_bias);
    if (spry_config_recurs(c, i))
        c->arch->mamba ? add_mamba(plan, l, i) : add_delta(plan, l, i);
    if (c->convolves[i] && !c->arch->delta) {
        add_convolution(plan, l, i);
    } else if (c->arch->latent) {
        add_latent(plan, l, i);
    } else if (c->arch->compressed) {
        add_compressed(plan, l, i);
    } else if (c->arch->fused_qkv) {
        add_fused(plan, i, "attn_qkv", &l->q, l->q.n_out + l->k.n_out + l->v.n_out);
    } else {
        add_linear(plan, i, "attn_q", &l->q, head);
        add_linear(plan, i, "attn_k", &l->k, head);
        add_linear(plan, i, "attn_v", &l->v, 0);
        add_linear(plan, i, "attn_gate", &l->attn_gate, 0);
    }
    add_norm(plan, i, "attn_q_norm", l->q_norm, wide ? l->q.n_out : spry_config_heads(c, i).head_dim);
    add_norm(plan, i, "attn_k_norm", l->k_norm, wide ? l->k.n_out : spry_config_heads(c, i).head_dim);
    if (!c->arch->compressed)
        add_linear(plan, i, "attn_output", &l->o, 0);
    add_norm(plan, i, "attn_sinks", l->sinks, c->n_heads);
    add_norm(plan, i, "post_attention_norm", l->attn_post_norm, c->n_embd);
    add_norm_bias(plan, i, "post_attention_norm", l->attn_post_norm_bias);
    add_norm(plan, i, "ffn_norm", l->ffn_norm, c->n_embd);
    add_norm_bias(plan, i, "ffn_norm", l->ffn_norm_bias);
    if (c->arch->fused_gate_up && l->gate.data) {
        add_fused(plan, i, "ffn_up", &l->gate, l->gate.n_out + l->up.n_out);
    } else {
        add_linear(plan, i, "ffn_gate", &l->gate, 0);
        add_linear(plan, i, "ffn_up", &l->up, 0);
    }
    add_linear(plan, i, "ffn_down", &l->down, 0);
    add_linear(plan, i, "ffn_gate_inp", &l->router, 0);
    if (l->choice_bias) {
        char name[SPRY_TENSOR_NAME_MAX];
        add_vector(plan, layer_name(name, plan, i, "exp_probs_b", "bias"), l->choice_bias, c->n_experts);
    }
    add_linear(plan, i, "ffn_latent_down", &l->latent_in, 0);
    add_linear(plan, i, "ffn_latent_up", &l->latent_out, 0);
    add_experts(plan, i, "ffn_gate_exps", l->expert_gate, c->n_experts);
    add_experts(plan, i, "ffn_up_exps", l->expert_up, c->n_experts);
    add_experts(plan, i, "ffn_down_exps", l->expert_down, c->n_experts);
    add_linear(plan, i, "ffn_gate_inp_shexp", &l->shared_router, 0);
    add_linear(plan, i, "ffn_gate_shexp", &l->shared_gate, 0);
    add_linear(plan, i, "ffn_up_shexp", &l->shared_up, 0);
    add_linear(plan, i, "ffn_down_shexp", &l->shared_down, 0);
    add_norm(plan, i, "post_ffw_norm", l->ffn_post_norm, c->n_embd);
    add_norm_bias(plan, i, "post_ffw_norm", l->ffn_post_norm_bias);
    if (l->side)
        add_layer_input(plan, l->side, i);
    if (c->arch->streams)
        add_side(plan, l->side, i);
    if (c->arch->beside)
        add_beside(plan, l, i);
}

/* Adds the head that drafts as the layer after the last one. */
static void add_head(spry_export_plan *plan)
{
    const spry_draft_head *head = plan->head;
    const size_t n = plan->config->n_embd;
    if (!head)
        return;
    plan->first_layer = plan->model->config.n_layers;
    plan->config = &head->config;
    add_linear(plan, 0, "nextn.eh_proj", &head->weights.draft_in, 0);
    add_norm(plan, 0, "nextn.enorm", head->weights.draft_embedding_norm, n);
    add_norm(plan, 0, "nextn.hnorm", head->weights.draft_hidden_norm, n);
    add_norm(plan, 0, "nextn.shared_head_norm", head->weights.output_norm, n);
    add_layer(plan, head->weights.layers, 0);
}

const float *spry_export_rope_factors(const spry_config *c, spry_arena *arena)
{
    size_t n_pairs = c->rope_dim / 2;
    spry_rope plain = {.kind = SPRY_ROPE_DEFAULT, .theta = c->rope.theta, .factor = 1};
    float *factors = spry_arena_alloc(arena, n_pairs, 2 * sizeof *factors);
    if (!factors)
        return NULL;
    float *bent = factors + n_pairs;
    spry_rope_frequencies(factors, &plain, c->rope_dim, c->n_context);
    spry_rope_frequencies(bent, &c->rope, c->rope_dim, c->n_context);
    for (size_t i = 0; i < n_pairs; i++)
        factors[i] = bent[i] > 0 ? factors[i] / bent[i] : 1e30f; /* pairs that are not rotated */
    return factors;
}

static void add_rope(spry_export_plan *plan)
{
    const spry_config *c = &plan->model->config;
    size_t n_pairs = c->rope_dim / 2;
    if (c->rope.long_factors) {
        add_vector(plan, "rope_factors_long.weight", c->rope.long_factors, n_pairs);
        add_vector(plan, "rope_factors_short.weight", c->rope.factors, n_pairs);
    } else if (c->rope.kind == SPRY_ROPE_LLAMA3 || c->rope.kind == SPRY_ROPE_PROPORTIONAL) {
        const float *factors = spry_export_rope_factors(c, &plan->arena);
        if (!factors) {
            plan->status = spry_fail_memory(plan->error, "rope factors", n_pairs * sizeof *factors);
            return;
        }
        add_vector(plan, "rope_freqs.weight", factors, n_pairs);
    }
}

/* Leaves out rows of the position table that no token can have. */
static void add_encoder(spry_export_plan *plan)
{
    const spry_weights *w = &plan->model->weights;
    const spry_config *c = &plan->model->config;
    spry_weight *positions = w->positions.data ? keep(plan, w->positions) : NULL;
    if (positions) {
        *positions = spry_weight_rows(&w->positions, c->position_offset, c->n_context);
        add(plan, "position_embd.weight", positions, 1, 2, (size_t[SPRY_TENSOR_DIMS]){positions->n_out, c->n_embd});
    }
    if (w->token_types.data)
        add(plan, "token_types.weight", &w->token_types, 1, 2,
            (size_t[SPRY_TENSOR_DIMS]){w->token_types.n_out, c->n_embd});
    add_vector(plan, "token_embd_norm.weight", w->embedding_norm, c->n_embd);
    add_vector(plan, "token_embd_norm.bias", w->embedding_norm_bias, c->n_embd);
}

/* Adds the matrices that embeddings pass through after the model. */
static void add_dense(spry_export_plan *plan)
{
    const spry_pooling *p = &plan->model->pooling;
    for (size_t i = 0; i < p->n_dense; i++) {
        const spry_dense *d = &p->dense[i];
        char name[32];
        if (d->act != SPRY_DENSE_PLAIN && !p->ranks && !plan->status)
            plan->status =
                spry_fail(plan->error, SPRY_ERR_UNSUPPORTED,
                          "%s: GGUF has no place for the tanh after a matrix of embeddings", plan->model->name);
        spry_weight *w = keep(plan, (spry_weight){.data = (const unsigned char *)d->weight,
                                                  .type = SPRY_F32,
                                                  .n_out = d->n_out,
                                                  .n_in = d->n_in,
                                                  .row_bytes = d->n_in * sizeof *d->weight});
        spry_pooling_tensor_name(name, p, i, "weight");
        if (w)
            add(plan, name, w, 1, 2, (size_t[SPRY_TENSOR_DIMS]){d->n_out, d->n_in});
        spry_pooling_tensor_name(name, p, i, "bias");
        add_vector(plan, name, d->bias, d->n_out);
        add_vector(plan, "cls.norm.weight", d->norm, d->n_out);
        add_vector(plan, "cls.norm.bias", d->norm_bias, d->n_out);
    }
}

/* Refuses settings that other programs do not read from GGUF files: they assume what is usual for the architecture. */
static void check_usual(spry_export_plan *plan)
{
    const spry_config *c = &plan->model->config;
    spry_config usual = *c;
    const char *unsaid = NULL;
    usual.rope.truncate = true;
    if (c->arch->defaults)
        c->arch->defaults(&usual, SPRY_DIALECT_GGUF);
    usual.window = c->window;
    if (c->arch->chunked && !c->window)
        usual.rope_interval = 0;
    for (uint32_t i = 0; i < c->n_layers && !c->arch->mamba && !c->arch->delta_norms_before; i++)
        if (c->rotated[i] != (!c->arch->rotates || c->arch->rotates(&usual, i)))
            unsaid = "which layers have rope";
    if (c->interleaved != c->arch->interleaved && !c->arch->permuted_in_gguf)
        unsaid = "which pairs of values rope turns";
    if (c->rope.kind == SPRY_ROPE_YARN && c->rope.truncate != usual.rope.truncate)
        unsaid = "whether yarn's ends are whole numbers";
    if (c->arch->two_ropes && c->rope_sliding.kind != SPRY_ROPE_DEFAULT)
        unsaid = "a scaled rope of layers that slide";
    if (c->arch->qk_norm == SPRY_QK_NORM_BARE && c->qk_norm != spry_config_has_bare_norms(c))
        unsaid = "whether q and k have norms";
    if (c->arch->shared_blocks)
        unsaid = "blocks that layers share";
    if (c->index_top && c->index_interleaved != c->arch->index_rotates_pairs)
        unsaid = "which pairs of values the indexer's rope turns";
    if (c->average_shared != usual.average_shared)
        unsaid = "how shared experts are added";
    if (unsaid)
        plan->status = spry_fail(plan->error, SPRY_ERR_UNSUPPORTED, "%s: GGUF files of %s models have no place for %s",
                                 plan->model->name, c->arch->name, unsaid);
}

static void plan_checkpoint(spry_export_plan *plan)
{
    const spry_model *m = plan->model;
    const spry_weights *w = &m->weights;
    check_usual(plan);
    bool folded = m->config.arch->folded_scales && (m->config.embedding_scale != 1 || m->config.logit_scale != 1);
    spry_weight *ends[] = {keep(plan, w->embedding), keep(plan, w->output)};
    if (!ends[0] || !ends[1])
        return;
    if (folded) {
        ends[0]->scale = m->config.embedding_scale;
        ends[1]->scale = m->config.logit_scale;
    }
    add(plan, "token_embd.weight", ends[0], 1, 2, (size_t[SPRY_TENSOR_DIMS]){w->embedding.n_out, m->config.n_embd});
    add_vector(plan, m->config.arch->gguf_output_norm ? "token_embd_norm.weight" : "output_norm.weight", w->output_norm,
               m->config.n_embd);
    add_vector(plan, "output_norm.bias", w->output_norm_bias, m->config.n_embd);
    if (!m->config.tied || folded)
        add(plan, "output.weight", ends[1], 1, 2, (size_t[SPRY_TENSOR_DIMS]){w->output.n_out, m->config.n_embd});
    add_vector(plan, "output.bias", w->output.bias, m->config.n_vocab);
    if (m->config.arch->encoder)
        add_encoder(plan);
    add_dense(plan);
    add_rope(plan);
    if (m->config.n_layer_embd)
        add_layer_inputs(plan);
    if (m->config.arch->streams)
        add_streams(plan);
    if (m->config.n_hyper)
        add_hyper(plan, &w->hyper, SPRY_HYPER_END, "");
    for (uint32_t i = 0; i < m->config.n_layers; i++)
        add_layer(plan, &w->layers[i], i);
    add_head(plan);
}

/* Adds every tensor of the file, known or not, as rows of its last dimension. */
static void plan_gguf(spry_export_plan *plan)
{
    const spry_gguf *gguf = plan->model->gguf;
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf) && !plan->status; i++) {
        const spry_tensor *t = spry_gguf_tensor(gguf, i);
        size_t n_in = t->dims[t->n_dims - 1], n_out = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3] / n_in;
        spry_weight *w = keep(plan, (spry_weight){.data = t->data, .type = t->type, .n_out = n_out, .n_in = n_in});
        char *name = spry_arena_copy(&plan->arena, t->name);
        if (!w || !name)
            plan->status = spry_fail_memory(plan->error, "a tensor's name", t->name.size);
        else if (!spry_dtype_size(&w->row_bytes, t->type, n_in))
            plan->status =
                spry_fail(plan->error, SPRY_ERR_FORMAT, "%s: tensor '%s' has rows of %zu, not whole blocks of %s",
                          plan->model->name, name, n_in, spry_dtype_name(t->type));
        else
            add(plan, name, w, 1, t->n_dims, t->dims);
    }
}

spry_status spry_export_plan_init(spry_export_plan *plan, const spry_model *model, const spry_export *options,
                                  spry_error *error)
{
    *plan = (spry_export_plan){.options = options, .model = model, .config = &model->config, .error = error};
    spry_arena_init(&plan->arena);
    if (!model->gguf)
        plan->status = spry_draft_head_open(&plan->head, model, error);
    if (model->gguf)
        plan_gguf(plan);
    else if (!plan->status)
        plan_checkpoint(plan);
    return plan->status;
}

void spry_export_plan_deinit(spry_export_plan *plan)
{
    free(plan->items);
    spry_draft_head_close(plan->head);
    spry_arena_deinit(&plan->arena);
}
