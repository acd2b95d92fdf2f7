/* Gemma 3n: residual streams, inputs by layer, the paths beside the block. */
#include <stdio.h>

#include "model/arch.h"
#include "model/weights_bind.h"

static const spry_tensor *find_whole(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], const char *gguf,
                                     const char *hf)
{
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s%s.weight", b->gguf ? "" : b->prefix, b->gguf ? gguf : hf);
    return spry_bind_find(b, name);
}

/* One matrix for each stream but the first: stacked in GGUF, one tensor each otherwise. */
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
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_config *c = b->config;
    size_t all = (size_t)c->n_layers * c->n_layer_embd;
    spry_status status = bind_projections(b, &b->out->stream_in, "altup_proj", "altup_projections");
    if (!status)
        status = bind_projections(b, &b->out->stream_out, "altup_unembd_proj", "altup_unembed_projections");
    if (status)
        return status;
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
                   {&s->post_norm, "post_norm", n},
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
        (status = spry_bind_linear(b, &s->gate, i, "inp_gate", c->n_layer_embd, c->n_embd, REQUIRED)) ||
        (status = spry_bind_linear(b, &s->proj, i, "proj", c->n_embd, c->n_layer_embd, REQUIRED)))
        return status;
    return bind_vectors(b, s, i);
}
