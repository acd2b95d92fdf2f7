/* Loads weights: a first pass over the model counts bytes, a second one copies. Rows are uploaded as they are in the
 * file and repacked on the GPU. */
#include "device/cuda/cuda_model.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernel_args.h"
#include "model/arch.h"
#include "model/config.h"

enum { ALIGNMENT = 256 };

/* ---- layout: the sizes of kernels/weight_tiles.cuh
 * ---------------------------------------------------------------------- */

spry_dtype spry_cuda_stored_type(spry_dtype type, bool vulkan)
{
#define KNOWN(name, NAME, ...) [SPRY_##NAME] = true,
    static const bool vulkan_types[SPRY_DTYPE_COUNT] = {SPRY_FLOAT_TYPES(KNOWN) SPRY_QUANT_TYPES(KNOWN)};
#undef KNOWN
    bool stored = vulkan ? vulkan_types[type] : spry_cuda_weight_types[type].values > 0;
    return stored ? type : SPRY_F32;
}

spry_act_format spry_cuda_act_format(spry_dtype placed)
{
    return spry_cuda_weight_types[placed].format;
}

size_t spry_cuda_act_terms(spry_dtype placed)
{
    return (size_t)spry_cuda_act_format(placed) + 1;
}

size_t spry_cuda_unit_bytes(spry_dtype placed)
{
    const spry_weight_type *t = &spry_cuda_weight_types[placed];
    return t->values + t->high + t->scale + t->super;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static spry_tiles lay_out(spry_dtype placed, const spry_weight *w)
{
    const spry_weight_type *t = &spry_cuda_weight_types[placed];
    spry_tiles tiles = {.n_out = (uint32_t)w->n_out,
                        .n_in = (uint32_t)w->n_in,
                        .n_tiles = (uint32_t)((w->n_out + SPRY_TILE_ROWS - 1) / SPRY_TILE_ROWS),
                        .n_units = (uint32_t)((w->n_in + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT)};
    uint64_t together = (tiles.n_tiles + SPRY_TILE_GROUP - 1) / SPRY_TILE_GROUP;
    uint64_t units = together * SPRY_TILE_GROUP * tiles.n_units;
    uint64_t supers = together * SPRY_TILE_GROUP * ((tiles.n_units + 3) / 4);
    tiles.high = aligned(units * t->values);
    tiles.scale = aligned(tiles.high + units * t->high);
    tiles.super = aligned(tiles.scale + units * t->scale);
    tiles.matrix_bytes = aligned(tiles.super + supers * t->super);
    return tiles;
}

/* ---- passes over the model --------------------------------------------------------------------------------------- */

typedef spry_cuda_loader loader;

static spry_cuda_memory carve(loader *p, uint64_t bytes)
{
    size_t size = aligned(bytes);
    if (p->chunk && p->used % p->chunk + size > p->chunk)
        p->used = (p->used / p->chunk + 1) * p->chunk;
    size_t number = p->chunk ? p->used / p->chunk : 0, at = p->used - number * p->chunk;
    p->used += size;
    p->largest = size > p->largest ? size : p->largest;
    return p->bases ? p->bases[number] + at : 0;
}

static spry_cuda_memory load_vector(loader *p, const float *values, size_t n)
{
    if (!values)
        return 0;
    if (p->list)
        spry_cuda_share_list(p->list, values, n * sizeof *values, false);
    spry_cuda_memory at = carve(p, n * sizeof *values);
    if (p->context)
        spry_cuda_write(p->context, at, values, n * sizeof *values);
    return at;
}

size_t spry_cuda_staging_bytes(const spry_cuda_context *c)
{
    return c->max_allocation && c->max_allocation < SPRY_CUDA_STAGING ? c->max_allocation : SPRY_CUDA_STAGING;
}

/* Uploads some rows of a matrix to staging memory and repacks them from there. */
static void load_rows_repacked(loader *p, const spry_cuda_matrix *m, spry_tiles tiles, spry_kernel_id kernel,
                               const void *rows, size_t row_bytes, size_t first, size_t n)
{
    const spry_repack_args args = {
        .to = tiles, .rows = p->staging, .row_bytes = row_bytes, .first_tile = (uint32_t)(first / SPRY_TILE_ROWS)};
    spry_cuda_write(p->context, p->staging, rows, n * row_bytes);
    spry_cuda_launch(p->context, kernel, m->tiles.n_units, (n + SPRY_TILE_ROWS - 1) / SPRY_TILE_ROWS, 1, &args);
}

/* One matrix, in parts that fit into staging memory. */
static void load_matrix(loader *p, const spry_cuda_matrix *m, const spry_weight *w, uint64_t offset)
{
    bool decode = m->type != w->type;
    size_t row_bytes = decode ? w->n_in * sizeof(float) : w->row_bytes;
    size_t most = spry_cuda_staging_bytes(p->context) / row_bytes / SPRY_TILE_ROWS * SPRY_TILE_ROWS;
    float *floats = decode ? malloc(most * row_bytes) : NULL;
    spry_tiles tiles = m->tiles;
    tiles.base += offset;
    spry_kernel_id kernel = spry_cuda_weight_types[m->type].repack;
    if (decode && !floats)
        p->context->fault = p->context->fault ? p->context->fault : SPRY_CUDA_OUT_OF_MEMORY;
    for (size_t row = 0; row < w->n_out && !p->context->fault; row += most) {
        size_t n = w->n_out - row < most ? w->n_out - row : most;
        for (size_t i = 0; floats && i < n; i++)
            p->ops->decode[w->type](floats + i * w->n_in, w->data + (row + i) * w->row_bytes, w->n_in);
        load_rows_repacked(p, m, tiles, kernel, floats ? (const void *)floats : w->data + row * w->row_bytes, row_bytes,
                           row, n);
        if (floats)
            spry_cuda_finish(p->context);
    }
    free(floats);
}

/* The adapters of `n` matrices. */
static spry_cuda_memory load_lora_pairs(loader *p, const spry_weight *w, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || w[i].adapters;
    spry_cuda_memory list = any ? carve(p, n * p->n_adapters * sizeof(spry_lora_pair)) : 0;
    for (size_t i = 0; any && i < n; i++) {
        spry_lora_pair pairs[SPRY_ADAPTERS_MAX] = {0};
        for (size_t k = 0; w[i].adapters && k < p->n_adapters; k++) {
            const spry_adapter_pair *pair = &w[i].adapters[k];
            if (pair->rank)
                pairs[k] = (spry_lora_pair){.a = load_vector(p, pair->a, pair->rank * w->n_in),
                                            .b = load_vector(p, pair->b, pair->rank * w->n_out),
                                            .rank = pair->rank,
                                            .scale = pair->scale};
        }
        if (!p->context)
            continue;
        spry_cuda_write(p->context, list + i * p->n_adapters * sizeof *pairs, pairs, p->n_adapters * sizeof *pairs);
        spry_cuda_finish(p->context);
    }
    return list;
}

/* A bias, which the kernels add before the product is multiplied by its factor. */
static void load_bias(loader *p, spry_cuda_memory to, const spry_weight *w)
{
    float *divided = w->scale != 0 ? malloc(w->n_out * sizeof *divided) : NULL;
    if (w->scale != 0 && !divided)
        p->context->fault = p->context->fault ? p->context->fault : SPRY_CUDA_OUT_OF_MEMORY;
    for (size_t i = 0; divided && i < w->n_out; i++)
        divided[i] = w->bias[i] / w->scale;
    spry_cuda_write(p->context, to, divided ? divided : w->bias, w->n_out * sizeof(float));
    if (divided)
        spry_cuda_finish(p->context);
    free(divided);
}

/* Whether kernels can read `n` matrices where they are: of one type, at equal distances, with values that are aligned.
 * Then their bytes are listed, or *m becomes what is shared. */
static bool share(loader *p, spry_cuda_matrix *m, const spry_weight *w, size_t n)
{
    const size_t odd = m->type == SPRY_MXFP4 ? 1 : m->type == SPRY_F32 ? 4 : 2;
    const size_t far = (size_t)1 << 40;
    size_t apart = n > 1 ? (size_t)(w[1].data - w[0].data) : 0, bytes = w->n_out * w->row_bytes;
    if ((!p->list && !p->shared) || ((uintptr_t)w->data | w->row_bytes | apart) % odd)
        return false;
    if (n > 1 && (apart < bytes || apart > far))
        return false;
    for (size_t i = 0; i < n; i++)
        if (w[i].type != m->type || w[i].row_bytes != w->row_bytes || w[i].data != w->data + i * apart)
            return false;
    bytes += (n - 1) * apart;
    if (p->list)
        spry_cuda_share_list(p->list, w->data, bytes, true);
    spry_cuda_memory at = p->shared ? spry_cuda_shared_at(p->shared, w->data, bytes) : 0;
    if (!at)
        return false;
    m->tiles.base = at;
    m->tiles.high = w->row_bytes;
    m->tiles.scale = m->tiles.super = 0;
    m->tiles.matrix_bytes = apart ? apart : bytes;
    return true;
}

/* `n` matrices of one shape: experts, heads, or one. If their types differ, all are stored as F32. */
static spry_cuda_matrix load(loader *p, const spry_weight *w, size_t n)
{
    spry_cuda_matrix m = {.type = SPRY_DTYPE_COUNT};
    if (!w || !w->data)
        return m;
    m.type = spry_cuda_stored_type(w->type, p->vulkan);
    for (size_t i = 1; i < n; i++)
        m.type = w[i].type == w->type ? m.type : SPRY_F32;
    m.tiles = lay_out(m.type, w);
    bool shared = share(p, &m, w, n);
    if (!shared)
        m.tiles.base = carve(p, m.tiles.matrix_bytes * n);
    m.read_bytes = (double)m.tiles.matrix_bytes;
    m.bias = w->bias ? carve(p, n * w->n_out * sizeof(float)) : 0;
    m.scale = w->scale;
    m.limits = w->limits;
    m.pairs = load_lora_pairs(p, w, n);
    m.pairs_bytes = p->n_adapters * sizeof(spry_lora_pair);
    for (size_t i = 0; i < n; i++) {
        p->as_floats += m.type != w[i].type;
        if (!p->context)
            continue;
        if (!shared)
            load_matrix(p, &m, &w[i], i * m.tiles.matrix_bytes);
        if (w->bias)
            load_bias(p, m.bias + i * w->n_out * sizeof(float), &w[i]);
    }
    return m;
}

spry_cuda_matrix spry_cuda_load_matrix(spry_cuda_loader *p, const spry_weight *w)
{
    return load(p, w, 1);
}

spry_cuda_memory spry_cuda_load_vector(spry_cuda_loader *p, const float *values, size_t n)
{
    return load_vector(p, values, n);
}

/* Loads the weights of the query norm. If the norms come after RoPE, they are multiplied by the weights of the key
 * norm: then rotation is the last step of a stored key, so that its page can be rotated again. */
static spry_cuda_memory load_q_norm(loader *p, const spry_layer *l, size_t n)
{
    float both[SPRY_MAX_HEAD_DIM];
    if (!l->q_norm || p->config->arch->qk_norm != SPRY_QK_NORM_HEAD_LATER)
        return load_vector(p, l->q_norm, n);
    for (size_t i = 0; i < n; i++)
        both[i] = l->q_norm[i] * l->k_norm[i];
    return load_vector(p, both, n);
}

static spry_cuda_side load_side(loader *p, const spry_side *s)
{
    size_t n = p->config->n_embd, streams = p->config->n_streams;
    if (!s)
        return (spry_cuda_side){0};
    return (spry_cuda_side){
        .laurel_l = load(p, &s->laurel_l, 1),
        .laurel_r = load(p, &s->laurel_r, 1),
        .router = load(p, &s->router, 1),
        .gate = load(p, &s->gate, 1),
        .proj = load(p, &s->proj, 1),
        .laurel_norm = load_vector(p, s->laurel_norm, n),
        .router_norm = load_vector(p, s->router_norm, n),
        .post_norm = load_vector(p, s->post_norm, n),
        .correct_scale = load_vector(p, s->correct_scale, n),
        .predict = load_vector(p, s->predict, streams * streams * streams),
        .correct = load_vector(p, s->correct, streams * streams),
    };
}

static spry_cuda_layer load_layer(loader *p, const spry_layer *l, uint32_t index)
{
    const spry_config *c = p->config;
    const spry_heads h = spry_config_heads(c, index);
    bool experts = l->router.data, wide = c->arch->qk_norm >= SPRY_QK_NORM_EACH;
    size_t n = experts ? c->n_experts : 1;
    return (spry_cuda_layer){
        .attn_norm = load_vector(p, l->attn_norm, c->n_embd),
        .ffn_norm = load_vector(p, l->ffn_norm, c->n_embd),
        .attn_scales = load_vector(p, l->attn_scales, c->n_embd),
        .ffn_scales = load_vector(p, l->ffn_scales, c->n_embd),
        .attn_post_norm = load_vector(p, l->attn_post_norm, c->n_embd),
        .ffn_post_norm = load_vector(p, l->ffn_post_norm, c->n_embd),
        .attn_norm_bias = load_vector(p, l->attn_norm_bias, c->n_embd),
        .ffn_norm_bias = load_vector(p, l->ffn_norm_bias, c->n_embd),
        .attn_post_norm_bias = load_vector(p, l->attn_post_norm_bias, c->n_embd),
        .ffn_post_norm_bias = load_vector(p, l->ffn_post_norm_bias, c->n_embd),
        .q_norm = load_q_norm(p, l, (size_t)h.head_dim * (wide ? c->n_heads : 1)),
        .k_norm = load_vector(p, l->k_norm, (size_t)h.head_dim * (wide ? h.n_kv_heads : 1)),
        .sinks = load_vector(p, l->sinks, c->n_heads),
        .choice_bias = load_vector(p, l->choice_bias, c->n_experts),
        .expert_scale = load_vector(p, l->expert_scale, c->n_experts),
        .conv = load_vector(p, l->conv, (size_t)c->n_embd * c->n_conv),
        .conv_bias = load_vector(p, l->conv_bias, c->n_embd),
        .q = load(p, &l->q, 1),
        .k = load(p, &l->k, 1),
        .v = load(p, &l->v, 1),
        .attn_gate = load(p, &l->attn_gate, 1),
        .o = load(p, &l->o, 1),
        .state_out = load(p, l->conv_out.data ? &l->conv_out : &l->delta_out, 1),
        .conv_in = load(p, &l->conv_in, 1),
        .delta_conv = load_vector(p, l->delta_conv, spry_config_delta_mixed(c) * c->n_conv),
        .delta_conv_bias = load_vector(p, l->delta_conv_bias, spry_config_delta_mixed(c)),
        .delta_skip = load_vector(p, l->delta_skip, c->n_delta_heads),
        .delta_dt = load_vector(p, l->delta_dt, c->n_delta_heads),
        .delta_fading = load_vector(p, l->delta_fading, c->n_delta_heads),
        .delta_norm = load_vector(p, l->delta_norm,
                                  c->arch->mamba ? (size_t)c->n_delta_heads * c->delta_value_dim : c->delta_value_dim),
        .delta_qkv = {load(p, &l->delta_qkv[0], 1), load(p, &l->delta_qkv[1], 1), load(p, &l->delta_qkv[2], 1)},
        .delta_gate = load(p, &l->delta_gate, 1),
        .delta_b = load(p, &l->delta_b, 1),
        .delta_a = load(p, &l->delta_a, 1),
        .q_a_norm = load_vector(p, l->q_a_norm, c->n_q_rank),
        .kv_a_norm = load_vector(p, l->kv_a_norm, c->n_kv_rank),
        .q_a = load(p, &l->q_a, 1),
        .k_b = load(p, l->k_b, c->n_heads),
        .v_b = load(p, l->v_b, c->n_heads),
        .gate = load(p, experts ? l->expert_gate : &l->gate, n),
        .up = load(p, experts ? l->expert_up : &l->up, n),
        .down = load(p, experts ? l->expert_down : &l->down, n),
        .router = load(p, &l->router, 1),
        .shared_gate = load(p, &l->shared_gate, 1),
        .shared_up = load(p, &l->shared_up, 1),
        .shared_down = load(p, &l->shared_down, 1),
        .shared_router = load(p, &l->shared_router, 1),
        .latent_in = load(p, &l->latent_in, 1),
        .latent_out = load(p, &l->latent_out, 1),
        .dense_gate = load(p, experts ? &l->gate : NULL, 1),
        .dense_up = load(p, experts ? &l->up : NULL, 1),
        .dense_down = load(p, experts ? &l->down : NULL, 1),
        .router_norm = load_vector(p, l->router_norm, c->n_embd),
        .expert_norm = load_vector(p, l->expert_norm, c->n_embd),
        .expert_post_norm = load_vector(p, l->expert_post_norm, c->n_embd),
        .dense_post_norm = load_vector(p, l->dense_post_norm, c->n_embd),
        .output_scale = l->output_scale ? *l->output_scale : 0,
        .side = load_side(p, l->side),
    };
}

/* Records what reads the product of `w`: an RMS norm without a bias, and the existing ones of three matrices. */
static void link_next(spry_cuda_matrix *w, spry_cuda_memory norm, spry_cuda_memory bias, const spry_cuda_matrix *first,
                      const spry_cuda_matrix *second, const spry_cuda_matrix *third)
{
    const spry_cuda_matrix *all[] = {first, second, third};
    size_t n = 0;
    w->next_norm = bias ? 0 : norm;
    for (size_t i = 0; i < SPRY_COUNT(all); i++)
        if (all[i] && all[i]->type != SPRY_DTYPE_COUNT)
            w->next[n++] = all[i];
}

/* Attention is followed by the feed-forward part, a layer by the next one's attention. */
static void link_layers(spry_cuda_model *m, const spry_config *c)
{
    if (c->layer_norm || c->arch->norms == SPRY_NORMS_PARALLEL || c->n_kv_rank || c->arch->single_parts ||
        c->arch->both_mixers || c->arch->attention_free)
        return;
    for (size_t i = 0; i < c->n_layers; i++) {
        spry_cuda_layer *l = &m->layers[i], *next = l + 1;
        if (l->router.type == SPRY_DTYPE_COUNT)
            link_next(c->convolves[i] ? &l->state_out : &l->o, l->ffn_norm, l->ffn_norm_bias, &l->up, &l->gate, NULL);
        if (i + 1 < c->n_layers && !c->convolves[i + 1])
            link_next(&l->down, next->attn_norm, next->attn_norm_bias, &next->q, &next->k, &next->v);
    }
}

/* The axis of each pair that RoPE turns. */
static spry_cuda_memory load_axes(loader *p)
{
    uint32_t axes[SPRY_MAX_HEAD_DIM / 2];
    size_t n = p->config->rope_dim / 2;
    if (!p->config->rope_axes)
        return 0;
    spry_cuda_memory at = carve(p, n * sizeof *axes);
    for (size_t i = 0; i < n; i++)
        axes[i] = p->config->rope_axes[i];
    if (p->context) {
        spry_cuda_write(p->context, at, axes, n * sizeof *axes);
        spry_cuda_finish(p->context);
    }
    return at;
}

static void load_all(spry_cuda_model *m, loader *p, const spry_weights *w, const float *frequencies)
{
    const spry_config *c = p->config;
    m->embedding = load(p, &w->embedding, 1);
    m->output = m->embedding;
    if (w->output.data == w->embedding.data)
        m->output.pairs = load_lora_pairs(p, &w->output, 1);
    else
        m->output = load(p, &w->output, 1);
    m->output_norm = load_vector(p, w->output_norm, c->n_embd);
    m->output_norm_bias = load_vector(p, w->output_norm_bias, c->n_embd);
    m->positions = load(p, &w->positions, 1);
    m->token_types = load(p, &w->token_types, 1);
    m->embedding_norm = load_vector(p, w->embedding_norm, c->n_embd);
    m->embedding_norm_bias = load_vector(p, w->embedding_norm_bias, c->n_embd);
    if (c->arch->streams) {
        m->stream_in = load(p, w->stream_in, c->n_streams - 1);
        m->stream_out = load(p, w->stream_out, c->n_streams - 1);
    }
    if (c->n_layer_embd) {
        m->layer_embedding = load(p, &w->layer_embedding, 1);
        m->layer_projection = load(p, &w->layer_projection, 1);
        m->layer_norm = load_vector(p, w->layer_norm, c->n_layer_embd);
    }
    m->frequencies[0] = load_vector(p, frequencies, c->rope_dim / 2);
    m->frequencies[1] = load_vector(p, frequencies + c->rope_dim / 2, c->slide.rope_dim / 2);
    m->axes = load_axes(p);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        spry_cuda_layer layer = load_layer(p, &w->layers[i], i);
        if (m->layers)
            m->layers[i] = layer;
    }
}

spry_cuda_matrix spry_cuda_matrix_of(const spry_cuda_matrix *all, size_t number)
{
    spry_cuda_matrix one = *all;
    one.tiles.base += number * all->tiles.matrix_bytes;
    one.pairs += all->pairs ? number * all->pairs_bytes : 0;
    return one;
}

static size_t count_bytes(size_t *largest, loader counting, const spry_weights *weights)
{
    static const float none[2 * SPRY_MAX_HEAD_DIM];
    spry_cuda_model counted = {0};
    load_all(&counted, &counting, weights, none);
    if (largest)
        *largest = counting.largest;
    return counting.used;
}

size_t spry_cuda_model_bytes(size_t *largest, const spry_config *config, const spry_weights *weights,
                             const spry_step_limits *limits, size_t chunk, bool vulkan)
{
    const loader counting = {.config = config, .n_adapters = limits->n_adapters, .chunk = chunk, .vulkan = vulkan};
    return count_bytes(largest, counting, weights);
}

spry_status spry_cuda_model_init(spry_cuda_model *m, spry_cuda_context *context, const spry_config *config,
                                 const spry_weights *weights, const spry_ops *ops, const spry_step_limits *limits,
                                 spry_log log, spry_error *error)
{
    float frequencies[2 * SPRY_MAX_HEAD_DIM];
    size_t chunk = context->max_allocation / ALIGNMENT * ALIGNMENT, largest;
    *m = (spry_cuda_model){0};
    loader p = {.config = config, .n_adapters = limits->n_adapters, .chunk = chunk, .vulkan = context->vulkan};
    if (context->cuda->memory_share) {
        p.list = &m->shared;
        count_bytes(NULL, p, weights);
        p.list = NULL;
        spry_cuda_share(&m->shared, context);
        p.shared = &m->shared;
    }
    m->bytes = count_bytes(&largest, p, weights);
    if (chunk && (largest > chunk || m->bytes > chunk * SPRY_CUDA_CHUNKS))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: a matrix of %zu MB, but the driver allocates at most %zu at once",
                         context->name, largest / 1000000, chunk / 1000000);
    m->magnitude[0] = spry_rope_frequencies(frequencies, &config->rope, config->rope_dim, limits->session);
    m->magnitude[1] = spry_rope_frequencies(frequencies + config->rope_dim / 2, &config->rope_sliding,
                                            config->slide.rope_dim, limits->session);
    m->layers = calloc(config->n_layers, sizeof *m->layers);
    if (!m->layers)
        return spry_fail_memory(error, "the layers of a model", config->n_layers * sizeof *m->layers);
    p.context = context;
    p.ops = ops;
    p.bases = m->memory;
    for (size_t i = 0, at = 0; i == 0 || (chunk && at < m->bytes); i++, at += chunk)
        m->memory[i] = spry_cuda_allocate(context, chunk && m->bytes - at > chunk ? chunk : m->bytes - at);
    p.staging = spry_cuda_allocate(context, spry_cuda_staging_bytes(context));
    if (p.staging) {
        load_all(m, &p, weights, frequencies);
        link_layers(m, config);
    }
    spry_cuda_finish(context);
    spry_cuda_free(context, &p.staging);
    spry_status status = spry_cuda_fault(context, "placing weights", error);
    if (status)
        spry_cuda_model_deinit(m, context);
    else if (m->shared.bytes)
        spry_log_write(&log, SPRY_LOG_INFO, "%s uses %zu MB of weights where they are mapped, without a copy",
                       context->name, m->shared.bytes / 1000000);
    if (!status && p.as_floats)
        spry_log_write(&log, SPRY_LOG_INFO, "%zu matrices have types without GPU kernels and are stored there as F32",
                       p.as_floats);
    return status;
}

void spry_cuda_model_deinit(spry_cuda_model *m, spry_cuda_context *context)
{
    for (size_t i = 0; i < SPRY_CUDA_CHUNKS; i++)
        spry_cuda_free(context, &m->memory[i]);
    spry_cuda_unshare(&m->shared, context);
    free(m->layers);
    *m = (spry_cuda_model){0};
}
