/* The table of functions; opening and closing. Everything a step needs is allocated here. */
#include "device/cuda/cuda_whisper.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_whisper_state.h"
#include "model/arch.h"

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

/* They came with the step. */
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

/* The block, as a language model's config would describe it. */
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
                              .norm_eps = NORM_EPS,
                              .embedding_scale = 1,
                              .residual_scale = 1,
                              .logit_scale = 1};
    w->gpu.config = &w->config;
    if (!w->none || !w->cross_kv || !slots || !w->gpu.model.layers)
        return spry_fail_memory(error, "the layers of a Whisper model", n_layers * sizeof *w->gpu.model.layers);
    for (uint32_t i = 0; i < 2 * s->n_text_layers; i++)
        slots[s->n_audio_layers + i] = i % s->n_text_layers;
    return SPRY_OK;
}

/* What attention depends on. */
static spry_config heads_of(const spry_config *c, uint32_t n_heads)
{
    return (spry_config){.n_heads = n_heads, .n_kv_heads = n_heads, .head_dim = c->n_embd / n_heads};
}

static spry_status open_view(spry_cuda_view *view, const spry_cuda_whisper *w, size_t n_layers, size_t n_tokens,
                             uint32_t n_heads, spry_error *error)
{
    const spry_config heads = heads_of(&w->config, n_heads);
    const spry_kv_shape shape = {n_layers, n_heads, heads.head_dim, w->weights->kv_type, false, 0};
    size_t pages = (n_tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    view->attention = spry_cuda_attention_of(&w->gpu.context, &heads, shape.type);
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

/* Counts, or hands out addresses where the scratch has one. */
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

/* What never changes is sent once: entries of all pages, numbers of few rows, and the zeros before the first frame. */
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

/* A sentence with the whole of it, before the driver refuses a part. */
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
