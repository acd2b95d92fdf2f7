/* Placing a Whisper model's weights: the same walk counts and copies. Rows that the host has packed for its own kernels
 * are unpacked first; on the GPU they have the type they have in the file. */
#include <stdlib.h>

#include "device/cuda/cuda_whisper_state.h"
#include "kernels/packed.h"

/* Rows as they lie in files: those of the matrix, or *own, which the caller frees. */
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
    m->positions = m->token_types = (spry_cuda_matrix){.type = SPRY_DTYPE_COUNT}; /* positions are added here */
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
    m->memory = spry_cuda_allocate(c, m->bytes);
    spry_cuda_loader p = {.context = c, .config = &w->config, .ops = ops, .base = m->memory};
    p.staging = spry_cuda_allocate(c, SPRY_CUDA_STAGING);
    if (p.staging)
        load_all(w, &p);
    spry_cuda_finish(c);
    spry_cuda_free(c, &p.staging);
    return spry_cuda_fault(c, "placing the weights of a Whisper model", error);
}
