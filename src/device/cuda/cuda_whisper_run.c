/* Whisper's encoder and decoder as launches. Convolutions are products whose input rows overlap in memory. Rows of
 * sound stand behind all keys, so that each sees every one of them. */
#include <stdio.h>

#include "device/cuda/cuda_whisper_state.h"
#include "device/cuda/whisper_args.h"

enum { ROW_THREADS = 256 };

static const spry_cuda_expert_groups no_groups = {0};

/* ---- what is sent ahead ------------------------------------------------------------------------------------------ */

/* From here on attention is of this kind. */
static void look_at(spry_cuda_whisper *w, spry_cuda_view_kind kind)
{
    const spry_cuda_view *view = &w->views[kind];
    spry_cuda_device *d = &w->gpu;
    w->config.n_heads = w->config.n_kv_heads = view->n_heads;
    w->config.head_dim = view->head_dim;
    w->config.query_scalar = (float)view->head_dim;
    d->pool = &view->pool;
    d->pages = view->pages;
    d->attention = view->attention;
    d->n_chunks = view->n_chunks;
    d->upload.rows = w->rows + (kind == SPRY_VIEW_CROSS ? d->n_rows * sizeof(spry_step_row) : 0);
}

/* Which blocks of attention take which rows: few one by one, many in runs. */
static void share_rows(spry_cuda_device *d, bool decode)
{
    const spry_cuda_attention *attention = &d->attention;
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
    size_t most = d->attention.multi_row ? SPRY_CUDA_DECODE_TILE_ROWS : SPRY_CUDA_DECODE_ROWS;
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
    spry_cuda_quantise_gemms(d, spry_cuda_input(d, l->ffn_norm, l->ffn_norm_bias), &up, 1, d->n_rows, false);
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
    spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, "spry_positions"), d->n_rows, 1, 1, ROW_THREADS, &args);
}

/* Features to the encoder's input: two convolutions over three frames, the second with a step of two. The first one's
 * activation is that of the second one's input. */
static void convolve(spry_cuda_whisper *w)
{
    spry_cuda_device *d = &w->gpu;
    size_t n = d->config->n_embd, row = n * sizeof(float), n_bands = w->weights->shape.n_bands;
    for (size_t first = 0; first < 2 * d->n_rows; first += d->n_rows) { /* encoded rows have room for so many */
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

/* The encoder's states, and of them keys and values of the decoder's attention to sound, which all tokens share. */
static void keep_states(spry_cuda_whisper *w)
{
    spry_cuda_device *d = &w->gpu;
    const spry_whisper_shape *s = &w->weights->shape;
    size_t n = s->n_audio_state, first_cross = s->n_audio_layers + s->n_text_layers;
    char name[SPRY_CUDA_KERNEL_NAME];
    spry_quantise_args states = spry_cuda_input(d, w->audio_norm, w->audio_norm_bias);
    states.plain = d->scratch.h;
    snprintf(name, sizeof name, "spry_rope_kv_%s", spry_cuda_type_name(w->weights->kv_type));
    look_at(w, SPRY_VIEW_CROSS);
    for (size_t i = 0; i < s->n_text_layers; i++) {
        const spry_cuda_gemm kv[] = {{d->scratch.k, n, &w->cross_kv[2 * i]},
                                     {d->scratch.v, n, &w->cross_kv[2 * i + 1]}};
        const spry_rope_kv_args args = {.k = d->scratch.k,
                                        .v = d->scratch.v,
                                        .rows = d->upload.memory + w->rows,
                                        .kv = spry_cuda_layer_pages(d, (uint32_t)(first_cross + i)),
                                        .n_rows = (uint32_t)d->n_rows};
        spry_cuda_quantise(d, states, kv, SPRY_COUNT(kv), d->n_rows);
        states.plain = 0;
        spry_cuda_gemms(d, kv, SPRY_COUNT(kv), d->n_rows, false, no_groups);
        spry_cuda_launch(&d->context, spry_cuda_kernel(&d->context, name),
                         (d->n_rows + SPRY_ROPE_KV_ROWS - 1) / SPRY_ROPE_KV_ROWS, 2 * (size_t)s->n_text_heads, 1,
                         SPRY_ROPE_KV_THREADS, &args);
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
        spry_cuda_attention_part(d, &d->model.layers[i], i);
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
        spry_cuda_attention_part(d, &d->model.layers[i], i);
        look_at(w, SPRY_VIEW_CROSS);
        spry_cuda_attention_part(d, &d->model.layers[cross], cross);
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
