/* Whisper models on a GPU: opening, weights, and the encoder and decoder as launches. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_whisper.h"
#include "device/cuda/kernel_args.h"
#include "kernels/packed.h"
#include "model/arch.h"

/* ---- device ------------------------------------------------------------------------------------------------------ */

enum { HEAD_DIM_STEP = 16, ALIGNMENT = 256 };
#define NORM_EPS 1e-5f

static spry_cuda_whisper *whisper_of(spry_whisper_device *device)
{
    return (spry_cuda_whisper *)device;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static spry_status submit(spry_whisper_device *device, const spry_whisper_step *step, spry_error *error)
{
    spry_cuda_whisper *w = whisper_of(device);
    spry_cuda_enter(&w->gpu.context);
    if (step->features)
        spry_cuda_whisper_encode(w, step->features, step->n_states);
    else
        spry_cuda_whisper_decode(w, step->tokens, step->n_tokens, step->past);
    return spry_cuda_fault(&w->gpu.context, "starting a step", error);
}

static spry_status wait_step(spry_whisper_device *device, spry_error *error)
{
    spry_cuda_whisper *w = whisper_of(device);
    spry_cuda_enter(&w->gpu.context);
    spry_cuda_finish(&w->gpu.context);
    return spry_cuda_fault(&w->gpu.context, "a step", error);
}

/* The logits were copied with the step. */
static spry_status logits(spry_whisper_device *device, const float **out, spry_error *error)
{
    const spry_cuda_whisper *w = whisper_of(device);
    *out = w->gpu.host_rows;
    return spry_cuda_fault(&w->gpu.context, "copying results", error);
}

static spry_status states(spry_whisper_device *device, const float **out, spry_error *error)
{
    spry_cuda_whisper *w = whisper_of(device);
    spry_cuda_enter(&w->gpu.context);
    spry_cuda_read(&w->gpu.context, w->gpu.host_rows, w->gpu.scratch.h, w->n_states * w->config.n_embd * sizeof(float));
    spry_cuda_finish(&w->gpu.context);
    *out = w->gpu.host_rows;
    return spry_cuda_fault(&w->gpu.context, "copying results", error);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_device(spry_whisper_device *device)
{
    spry_cuda_whisper *w = whisper_of(device);
    spry_cuda_device *d = &w->gpu;
    spry_cuda driver = d->driver;
    if (d->context.context)
        driver.context_set(d->context.context);
    spry_cuda_graphs_deinit(d);
    spry_cuda_upload_deinit(d);
    spry_cuda_scratch_deinit(d);
    spry_cuda_free_host(&d->context, d->host_rows);
    spry_cuda_model_deinit(&d->model, &d->context);
    spry_cuda_context_deinit(&d->context);
    for (size_t i = 0; i < SPRY_VIEWS; i++)
        spry_kv_pool_deinit(&w->views[i].pool);
    free(w->cross_kv);
    free(w->config.kv_slot);
    free(w->none);
    free(w);
    spry_cuda_close(&driver);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Fills in the config of a language model whose block computes Whisper's layers. */
static spry_status describe(spry_cuda_whisper *w, spry_error *error)
{
    static const spry_arch block = {.name = "Whisper", .gate = SPRY_GATE_GELU, .layer_norm = true, .ungated = true};
    const spry_whisper_shape *s = &w->weights->shape;
    size_t n_layers = s->n_audio_layers + 2 * (size_t)s->n_text_layers;
    w->none = calloc(n_layers, sizeof *w->none);
    w->cross_kv = calloc(2 * (size_t)s->n_text_layers, sizeof *w->cross_kv);
    w->gpu.model.layers = calloc(n_layers, sizeof *w->gpu.model.layers);
    uint32_t *slots = calloc(n_layers, sizeof *slots);
    w->config = (spry_config){.arch = &block,
                              .n_layers = (uint32_t)n_layers,
                              .n_embd = s->n_audio_state,
                              .n_vocab = s->n_vocab,
                              .n_context = s->n_text_ctx,
                              .kv_slot = slots,
                              .convolves = w->none,
                              .rotated = w->none,
                              .sliding = w->none,
                              .layer_norm = true,
                              .norm_eps = NORM_EPS,
                              .embedding_scale = 1,
                              .residual_scale = 1,
                              .value_scale = 1,
                              .logit_scale = 1};
    w->gpu.config = &w->config;
    if (!w->none || !w->cross_kv || !slots || !w->gpu.model.layers)
        return spry_fail_memory(error, "the layers of a Whisper model", n_layers * sizeof *w->gpu.model.layers);
    for (uint32_t i = 0; i < 2 * s->n_text_layers; i++)
        slots[s->n_audio_layers + i] = i % s->n_text_layers;
    return SPRY_OK;
}

/* The part of a config that attention depends on. */
static spry_config heads_of(const spry_config *c, uint32_t n_heads)
{
    return (spry_config){.n_heads = n_heads, .n_kv_heads = n_heads, .head_dim = c->n_embd / n_heads};
}

static spry_status open_view(spry_cuda_view *view, const spry_cuda_whisper *w, size_t n_layers, size_t n_tokens,
                             uint32_t n_heads, spry_error *error)
{
    const spry_config heads = heads_of(&w->config, n_heads);
    const spry_kv_shape shape = {
        .n_layers = n_layers, .n_kv_heads = n_heads, .head_dim = heads.head_dim, .type = w->weights->kv_type};
    size_t pages = (n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    view->attention = spry_cuda_attention_of(&w->gpu.context, &heads, shape.type, false);
    view->n_heads = n_heads;
    view->head_dim = heads.head_dim;
    view->n_tokens = n_tokens;
    view->n_chunks = (pages + view->attention.chunk_pages - 1) / view->attention.chunk_pages;
    if (heads.head_dim % HEAD_DIM_STEP)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "heads of %u values: GPU kernels need multiples of %d",
                         heads.head_dim, HEAD_DIM_STEP);
    return spry_kv_pool_init(&view->pool, &shape, pages + 1, error);
}

static spry_status open_views(spry_cuda_whisper *w, spry_error *error)
{
    const spry_whisper_shape *s = &w->weights->shape;
    spry_cuda_view *v = w->views;
    spry_status status = open_view(&v[SPRY_VIEW_SOUND], w, 1, s->n_audio_ctx, s->n_audio_heads, error);
    if (!status)
        status = open_view(&v[SPRY_VIEW_TEXT], w, s->n_text_layers, s->n_text_ctx, s->n_text_heads, error);
    if (!status)
        status = open_view(&v[SPRY_VIEW_CROSS], w, s->n_text_layers, s->n_audio_ctx, s->n_text_heads, error);
    return status;
}

/* The widest input of a product. */
static size_t widest(const spry_whisper_weights *w)
{
    size_t n = larger(w->conv1.n_in, w->conv2.n_in);
    for (uint32_t i = 0; i < w->shape.n_audio_layers; i++)
        n = larger(n, w->audio[i].up.n_out);
    for (uint32_t i = 0; i < w->shape.n_text_layers; i++)
        n = larger(n, w->text[i].up.n_out);
    return n;
}

/* Counts bytes, or assigns addresses if the scratch memory has one. */
static void carve_all(spry_cuda_whisper *w)
{
    const spry_whisper_shape *shape = &w->weights->shape;
    spry_cuda_scratch *s = &w->gpu.scratch;
    size_t n = shape->n_audio_state, rows = larger(shape->n_audio_ctx, shape->n_text_ctx), wide = widest(w->weights);
    size_t frames = 2 * (size_t)shape->n_audio_ctx + 2, chunks = 0;
    spry_cuda_memory *const vectors[] = {&s->x, &s->h, &s->q, &s->k, &s->v, &s->attn};
    s->bytes = 0;
    for (size_t i = 0; i < SPRY_COUNT(vectors); i++)
        *vectors[i] = spry_cuda_carve(s, rows, n, sizeof(float));
    s->gate = spry_cuda_carve(s, rows, wide, sizeof(float));
    spry_cuda_carve_activations(s, rows, wide);
    s->logits = spry_cuda_carve(s, 1, shape->n_vocab, sizeof(float));
    w->features = spry_cuda_carve(s, frames, shape->n_bands, sizeof(float));
    w->wide = spry_cuda_carve(s, frames, n, sizeof(float));
    for (size_t i = 0; i < SPRY_VIEWS; i++) {
        spry_cuda_view *view = &w->views[i];
        view->pages = spry_cuda_carve(s, view->pool.n_pages, view->pool.page_bytes, 1);
        chunks = larger(chunks, view->n_chunks);
    }
    const spry_config heads = heads_of(&w->config, shape->n_text_heads);
    s->partial_floats = SPRY_CUDA_DECODE_TILE_ROWS * chunks * spry_cuda_partial_floats(&heads);
    s->partial = spry_cuda_carve(s, s->partial_floats, 1, sizeof(float));
}

static size_t section(size_t *used, size_t count, size_t size)
{
    size_t at = *used;
    *used += (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* Uploads the constant part once: entries of all pages, decode row numbers, zeros before the first frame. */
static void open_upload(spry_cuda_whisper *w)
{
    const spry_whisper_shape *s = &w->weights->shape;
    spry_cuda_upload *u = &w->gpu.upload;
    spry_cuda_context *c = &w->gpu.context;
    size_t rows = larger(s->n_audio_ctx, s->n_text_ctx), pages = rows / SPRY_PAGE_TOKENS + 1, used = 0;
    size_t row = s->n_audio_state * sizeof(float);
    w->gpu.host_rows_bytes = larger(rows * row, s->n_vocab * sizeof(float));
    u->entries = section(&used, pages, sizeof(spry_step_entry));
    u->decode_rows = section(&used, SPRY_CUDA_DECODE_TILE_ROWS, sizeof(uint32_t));
    u->source = section(&used, 1, sizeof(int32_t));
    u->decode_tiles = section(&used, SPRY_CUDA_DECODE_TILE_ROWS, sizeof(spry_decode_tile));
    u->prefill_tiles = section(&used, rows, sizeof(spry_row_range));
    w->rows = section(&used, 2 * rows, sizeof(spry_step_row));
    u->bytes = used;
    u->memory = spry_cuda_allocate(c, used);
    u->both = u->host = spry_cuda_allocate_host(c, used);
    w->gpu.host_rows = spry_cuda_allocate_host(c, w->gpu.host_rows_bytes);
    if (c->fault)
        return;
    spry_step_entry *entries = (spry_step_entry *)(void *)(u->host + u->entries);
    uint32_t *decode_rows = (uint32_t *)(void *)(u->host + u->decode_rows);
    for (uint32_t i = 0; i < pages; i++)
        entries[i] = (spry_step_entry){.page = i, .start = i * SPRY_PAGE_TOKENS, .count = SPRY_PAGE_TOKENS};
    for (uint32_t i = 0; i < SPRY_CUDA_DECODE_TILE_ROWS; i++)
        decode_rows[i] = i;
    memset(w->gpu.host_rows, 0, row);
    spry_cuda_write(c, u->memory, u->host, u->source);
    spry_cuda_write(c, w->wide, w->gpu.host_rows, row);
    spry_cuda_finish(c);
}

/* Reports the total need, before the driver refuses a part of it. */
static spry_status check_memory(spry_cuda_whisper *w, const spry_ops *ops, spry_error *error)
{
    size_t free_bytes = 0, bytes = 0, weights = spry_cuda_whisper_bytes(w, ops), steps = w->gpu.scratch.bytes;
    if (!w->gpu.driver.memory_info(&free_bytes, &bytes) && weights + steps > free_bytes)
        return spry_fail(error, SPRY_ERR_MEMORY,
                         "%s has %zu MB free, and %zu are needed for a Whisper model: %zu for weights, %zu for steps",
                         w->gpu.context.name, free_bytes / 1000000, (weights + steps) / 1000000, weights / 1000000,
                         steps / 1000000);
    return SPRY_OK;
}

static spry_status open_parts(spry_cuda_whisper *w, const spry_ops *ops, spry_error *error)
{
    spry_cuda_context *c = &w->gpu.context;
    spry_status status = describe(w, error);
    if (!status)
        status = open_views(w, error);
    if (status)
        return status;
    carve_all(w);
    status = check_memory(w, ops, error);
    if (!status)
        status = spry_cuda_whisper_load(w, ops, error);
    if (status)
        return status;
    w->gpu.scratch.memory = spry_cuda_allocate(c, w->gpu.scratch.bytes);
    carve_all(w);
    for (size_t i = 0; i < SPRY_VIEWS; i++) {
        spry_cuda_view *view = &w->views[i];
        const spry_kv_pages kv = {.pages = view->pages,
                                  .page_bytes = view->pool.page_bytes,
                                  .token_bytes = (uint32_t)view->pool.token_bytes,
                                  .head_dim = view->head_dim};
        spry_cuda_encode_tensor_maps(c, &view->attention, &kv, view->pool.n_pages);
    }
    open_upload(w);
    return spry_cuda_fault(c, "allocating the working memory of steps", error);
}

spry_status spry_cuda_whisper_open(spry_whisper_device **out, const spry_cuda *driver, const void *const *images,
                                   int index, const spry_whisper_setup *setup, spry_error *error)
{
    static const spry_whisper_device_ops ops = {
        .close = close_device, .submit = submit, .wait = wait_step, .logits = logits, .states = states};
    *out = NULL;
    spry_cuda own = *driver;
    spry_cuda_whisper *w = calloc(1, sizeof *w);
    if (!w) {
        spry_cuda_close(&own);
        return spry_fail_memory(error, "a device", sizeof *w);
    }
    w->device.ops = &ops;
    w->weights = setup->weights;
    w->gpu.driver = own;
    spry_status status = spry_cuda_context_init(&w->gpu.context, &w->gpu.driver, index, images, error);
    if (!status)
        status = open_parts(w, setup->ops, error);
    if (status)
        close_device(&w->device);
    else
        *out = &w->device;
    return status;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Rows as they are in files: the matrix itself, or a copy *own without the packing of the host's kernels, which the
 * caller frees. */
static spry_weight unpack(unsigned char **own, spry_cuda_loader *p, const spry_voice_matrix *m)
{
    spry_weight w = {
        .data = m->data, .type = m->type, .n_out = m->n_out, .n_in = m->n_in, .row_bytes = m->stride, .bias = m->bias};
    size_t group = p->ops->matmul[m->type].group;
    *own = NULL;
    if (!p->context || !group)
        return w;
    if (!spry_dtype_size(&w.row_bytes, m->type, m->n_in) || !(*own = malloc(m->n_out * w.row_bytes))) {
        p->context->fault = p->context->fault ? p->context->fault : SPRY_CUDA_OUT_OF_MEMORY;
        return w;
    }
    for (size_t row = 0; row < m->n_out; row++)
        spry_unpack_row(m->type, *own + row * w.row_bytes, m->data + row / group * m->stride, row % group, m->n_in,
                        group);
    w.data = *own;
    return w;
}

static spry_cuda_matrix load(spry_cuda_loader *p, const spry_voice_matrix *m)
{
    unsigned char *own;
    const spry_weight rows = unpack(&own, p, m);
    spry_cuda_matrix placed = spry_cuda_load_matrix(p, &rows);
    if (own)
        spry_cuda_finish(p->context);
    free(own);
    return placed;
}

/* Attention of a layer; `whole`: with its own keys and values. */
static spry_cuda_layer load_attention(spry_cuda_loader *p, const spry_whisper_attention *a, size_t n, bool whole)
{
    const spry_cuda_matrix none = {.type = SPRY_DTYPE_COUNT};
    return (spry_cuda_layer){.attn_norm = spry_cuda_load_vector(p, a->norm.weight, n),
                             .attn_norm_bias = spry_cuda_load_vector(p, a->norm.bias, n),
                             .q = load(p, &a->q),
                             .k = whole ? load(p, &a->k) : none,
                             .v = whole ? load(p, &a->v) : none,
                             .attn_gate = none,
                             .o = load(p, &a->o)};
}

static spry_cuda_layer load_layer(spry_cuda_loader *p, const spry_whisper_layer *l, size_t n)
{
    spry_cuda_layer layer = load_attention(p, &l->self, n, true);
    layer.ffn_norm = spry_cuda_load_vector(p, l->norm.weight, n);
    layer.ffn_norm_bias = spry_cuda_load_vector(p, l->norm.bias, n);
    layer.up = load(p, &l->up);
    layer.down = load(p, &l->down);
    return layer;
}

static void load_all(spry_cuda_whisper *w, spry_cuda_loader *p)
{
    const spry_whisper_weights *from = w->weights;
    const spry_whisper_shape *s = &from->shape;
    spry_cuda_model *m = &w->gpu.model;
    size_t n = s->n_audio_state;
    w->conv1 = load(p, &from->conv1);
    w->conv2 = load(p, &from->conv2);
    w->audio_positions = spry_cuda_load_vector(p, from->audio_positions, s->n_audio_ctx * n);
    w->text_positions = spry_cuda_load_vector(p, from->text_positions, s->n_text_ctx * n);
    w->audio_norm = spry_cuda_load_vector(p, from->audio_norm.weight, n);
    w->audio_norm_bias = spry_cuda_load_vector(p, from->audio_norm.bias, n);
    m->output_norm = spry_cuda_load_vector(p, from->text_norm.weight, n);
    m->output_norm_bias = spry_cuda_load_vector(p, from->text_norm.bias, n);
    m->embedding = m->output = load(p, &from->tokens);
    m->positions = m->token_types =
        (spry_cuda_matrix){.type = SPRY_DTYPE_COUNT}; /* positions are added by a kernel of their own */
    for (size_t i = 0; i < s->n_audio_layers; i++)
        m->layers[i] = load_layer(p, &from->audio[i], n);
    for (size_t i = 0; i < s->n_text_layers; i++) {
        const spry_whisper_attention *cross = &from->text[i].cross;
        m->layers[s->n_audio_layers + i] = load_layer(p, &from->text[i], n);
        m->layers[s->n_audio_layers + s->n_text_layers + i] = load_attention(p, cross, n, false);
        w->cross_kv[2 * i] = load(p, &cross->k);
        w->cross_kv[2 * i + 1] = load(p, &cross->v);
    }
}

size_t spry_cuda_whisper_bytes(spry_cuda_whisper *w, const spry_ops *ops)
{
    spry_cuda_loader counting = {.config = &w->config, .ops = ops};
    load_all(w, &counting);
    return counting.used;
}

spry_status spry_cuda_whisper_load(spry_cuda_whisper *w, const spry_ops *ops, spry_error *error)
{
    spry_cuda_context *c = &w->gpu.context;
    spry_cuda_model *m = &w->gpu.model;
    m->bytes = spry_cuda_whisper_bytes(w, ops);
    m->memory[0] = spry_cuda_allocate(c, m->bytes);
    spry_cuda_loader p = {.context = c, .config = &w->config, .ops = ops, .bases = m->memory};
    p.staging = spry_cuda_allocate(c, spry_cuda_staging_bytes(c));
    if (p.staging)
        load_all(w, &p);
    spry_cuda_finish(c);
    spry_cuda_free(c, &p.staging);
    return spry_cuda_fault(c, "placing the weights of a Whisper model", error);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Convolutions are GEMMs whose input rows overlap in memory. Rows of the encoder have the last position, so that each
 * sees all keys. */

/* ---- upload ------------------------------------------------------------------------------------------------------ */

/* Selects a kind of attention for the launches that follow. */
static void look_at(spry_cuda_whisper *w, spry_cuda_view_kind kind)
{
    const spry_cuda_view *view = &w->views[kind];
    spry_cuda_device *d = &w->gpu;
    w->config.n_heads = w->config.n_kv_heads = view->n_heads;
    w->config.head_dim = view->head_dim;
    w->config.query_scalar = (float)view->head_dim;
    d->pool = &view->pool;
    d->pages = view->pages;
    d->attention[0] = view->attention;
    d->n_chunks = view->n_chunks;
    d->upload.rows = w->rows + (kind == SPRY_VIEW_CROSS ? d->n_rows * sizeof(spry_step_row) : 0);
}

/* Divides the rows into decode tiles or prefill tiles. */
static void share_rows(spry_cuda_device *d, bool decode)
{
    const spry_cuda_attention *attention = &d->attention[0];
    spry_decode_tile *decode_tiles = (spry_decode_tile *)(void *)(d->upload.host + d->upload.decode_tiles);
    spry_row_range *prefill_tiles = (spry_row_range *)(void *)(d->upload.host + d->upload.prefill_tiles);
    size_t each = decode ? attention->queries : attention->prefill_warps / attention->parts * attention->queries;
    d->n_decode_rows = decode ? d->n_rows : 0;
    d->n_decode_tiles = d->n_prefill_tiles = 0;
    d->longest_prefill_tile = each < d->n_rows ? each : d->n_rows;
    for (size_t row = 0; row < d->n_rows; row += each) {
        uint32_t first = (uint32_t)row, n = (uint32_t)(d->n_rows - row < each ? d->n_rows - row : each);
        if (decode)
            decode_tiles[d->n_decode_tiles++] = (spry_decode_tile){first, n, first};
        else
            prefill_tiles[d->n_prefill_tiles++] = (spry_row_range){first, n};
    }
}

static uint32_t pages_of(size_t n_tokens)
{
    return (uint32_t)((n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS);
}

static void send_sound(spry_cuda_whisper *w, const float *features)
{
    spry_cuda_device *d = &w->gpu;
    const spry_whisper_shape *s = &w->weights->shape;
    spry_step_row *rows = (spry_step_row *)(void *)(d->upload.host + w->rows);
    for (uint32_t i = 0; i < w->n_states; i++)
        rows[i] = (spry_step_row){.position = (uint32_t)w->n_states - 1,
                                  .page = i / SPRY_PAGE_TOKENS,
                                  .slot = i % SPRY_PAGE_TOKENS,
                                  .n_entries = pages_of(w->n_states)};
    share_rows(d, false);
    spry_cuda_write(&d->context, d->upload.memory, d->upload.host, w->rows + d->n_rows * sizeof *rows);
    spry_cuda_write(&d->context, w->features, features, (2 * w->n_states + 2) * s->n_bands * sizeof *features);
}

static void send_text(spry_cuda_whisper *w, const int32_t *tokens, uint32_t past)
{
    spry_cuda_device *d = &w->gpu;
    spry_step_row *rows = (spry_step_row *)(void *)(d->upload.host + w->rows), *cross = rows + d->n_rows;
    size_t most = d->attention[0].multi_row ? SPRY_CUDA_DECODE_TILE_ROWS : SPRY_CUDA_DECODE_ROWS;
    for (uint32_t i = 0; i < d->n_rows; i++) {
        uint32_t position = past + i;
        rows[i] = (spry_step_row){.token = tokens[i],
                                  .position = position,
                                  .page = position / SPRY_PAGE_TOKENS,
                                  .slot = position % SPRY_PAGE_TOKENS,
                                  .n_entries = position / SPRY_PAGE_TOKENS + 1,
                                  .first_new = past};
        cross[i] = (spry_step_row){.position = (uint32_t)w->n_states - 1,
                                   .page = pages_of(w->views[SPRY_VIEW_CROSS].n_tokens),
                                   .n_entries = pages_of(w->n_states),
                                   .first_new = UINT32_MAX};
    }
    *(int32_t *)(void *)(d->upload.host + d->upload.source) = (int32_t)d->n_rows - 1;
    share_rows(d, d->n_rows <= most);
    spry_cuda_write(&d->context, d->upload.memory, d->upload.host, w->rows + 2 * d->n_rows * sizeof *rows);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void feed_forward(spry_cuda_device *d, const spry_cuda_layer *l)
{
    size_t n = l->up.tiles.n_out;
    const spry_cuda_gemm up = {d->scratch.gate, n, &l->up}, down = {d->scratch.x, d->config->n_embd, &l->down};
    const spry_quantise_args activated = {
        .in = d->scratch.gate, .n = (uint32_t)n, .ungated = true, .gate = SPRY_GATE_GELU};
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->ffn_norm, l->ffn_norm_bias, NULL), &up, 1, d->n_rows, false);
    spry_cuda_quantise_gemms(d, activated, &down, 1, d->n_rows, true);
}

static void add_positions(spry_cuda_whisper *w, spry_cuda_memory positions, spry_cuda_memory rows, bool activated)
{
    spry_cuda_device *d = &w->gpu;
    const spry_positions_args args = {.x = d->scratch.x,
                                      .positions = positions,
                                      .rows = rows,
                                      .n = d->config->n_embd,
                                      .activated = activated,
                                      .gate = SPRY_GATE_GELU};
    spry_cuda_launch(&d->context, spry_positions_id, d->n_rows, 1, 1, &args);
}

/* The encoder's input: two convolutions over three frames, the second with stride 2. The activation of the first is
 * applied when the second one's input is quantised. */
static void convolve(spry_cuda_whisper *w)
{
    spry_cuda_device *d = &w->gpu;
    size_t n = d->config->n_embd, row = n * sizeof(float), n_bands = w->weights->shape.n_bands;
    for (size_t first = 0; first < 2 * d->n_rows;
         first += d->n_rows) { /* the activations have room for half of the frames */
        const spry_cuda_gemm conv1 = {w->wide + (1 + first) * row, n, &w->conv1};
        const spry_quantise_args frames = {.in = w->features + first * n_bands * sizeof(float),
                                           .n = (uint32_t)(3 * n_bands),
                                           .in_stride = (uint32_t)n_bands};
        spry_cuda_quantise_gemms(d, frames, &conv1, 1, d->n_rows, false);
    }
    spry_cuda_copy(&d->context, w->wide + (1 + 2 * d->n_rows) * row, w->wide, row);
    const spry_cuda_gemm conv2 = {d->scratch.x, n, &w->conv2};
    const spry_quantise_args activated = {
        .in = w->wide, .n = (uint32_t)(3 * n), .in_stride = (uint32_t)(2 * n), .ungated = true, .gate = SPRY_GATE_GELU};
    spry_cuda_quantise_gemms(d, activated, &conv2, 1, d->n_rows, false);
    add_positions(w, w->audio_positions, 0, true);
}

/* The encoder's states, and from them the keys and values of cross-attention. */
static void keep_states(spry_cuda_whisper *w)
{
    spry_cuda_device *d = &w->gpu;
    const spry_whisper_shape *s = &w->weights->shape;
    size_t n = s->n_audio_state, first_cross = s->n_audio_layers + s->n_text_layers;
    spry_quantise_args states = spry_cuda_input(d, w->audio_norm, w->audio_norm_bias, NULL);
    states.plain = d->scratch.h;
    look_at(w, SPRY_VIEW_CROSS);
    for (size_t i = 0; i < s->n_text_layers; i++) {
        const spry_cuda_gemm kv[] = {{d->scratch.k, n, &w->cross_kv[2 * i]},
                                     {d->scratch.v, n, &w->cross_kv[2 * i + 1]}};
        const spry_rope_kv_args args = {.k = d->scratch.k,
                                        .v = d->scratch.v,
                                        .rows = d->upload.memory + w->rows,
                                        .kv = spry_cuda_layer_pages(d, (uint32_t)(first_cross + i)),
                                        .n_rows = (uint32_t)d->n_rows};
        const spry_cuda_rows in = spry_cuda_quantise(d, states, kv, SPRY_COUNT(kv), d->n_rows, false);
        states.plain = 0;
        spry_cuda_gemms(d, &in, kv, SPRY_COUNT(kv), d->n_rows, false, (spry_cuda_expert_groups){0});
        spry_cuda_launch(&d->context, spry_cuda_kv_kernels[w->weights->kv_type].rope_kv,
                         (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, 2 * (size_t)s->n_text_heads, 1,
                         &args);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void spry_cuda_whisper_encode(spry_cuda_whisper *w, const float *features, size_t n_states)
{
    spry_cuda_device *d = &w->gpu;
    w->n_states = d->n_rows = n_states;
    d->alone = false;
    look_at(w, SPRY_VIEW_SOUND);
    send_sound(w, features);
    convolve(w);
    for (uint32_t i = 0; i < w->weights->shape.n_audio_layers; i++) {
        spry_cuda_attention_part(d, &d->model.layers[i], i, NULL);
        feed_forward(d, &d->model.layers[i]);
    }
    keep_states(w);
}

static void run_text(spry_cuda_device *d)
{
    spry_cuda_whisper *w = (spry_cuda_whisper *)(void *)((unsigned char *)d - offsetof(spry_cuda_whisper, gpu));
    const spry_whisper_shape *s = &w->weights->shape;
    look_at(w, SPRY_VIEW_TEXT);
    spry_cuda_embed(d);
    add_positions(w, w->text_positions, d->upload.memory + w->rows, false);
    for (uint32_t i = s->n_audio_layers; i < s->n_audio_layers + s->n_text_layers; i++) {
        uint32_t cross = i + s->n_text_layers;
        look_at(w, SPRY_VIEW_TEXT);
        spry_cuda_attention_part(d, &d->model.layers[i], i, NULL);
        look_at(w, SPRY_VIEW_CROSS);
        spry_cuda_attention_part(d, &d->model.layers[cross], cross, NULL);
        feed_forward(d, &d->model.layers[i]);
    }
    spry_cuda_unembed(d);
}

void spry_cuda_whisper_decode(spry_cuda_whisper *w, const int32_t *tokens, size_t n_tokens, size_t past)
{
    spry_cuda_device *d = &w->gpu;
    d->n_rows = n_tokens;
    d->n_logits = d->n_wanted = 1;
    d->alone = n_tokens == 1;
    look_at(w, SPRY_VIEW_TEXT);
    send_text(w, tokens, (uint32_t)past);
    spry_cuda_run_graph(d, run_text);
    spry_cuda_read(&d->context, d->host_rows, d->scratch.logits, w->weights->shape.n_vocab * sizeof(float));
}
