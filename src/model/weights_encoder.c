/* What encoders add to the embeddings of tokens, and the norm behind that. */
#include <stdio.h>

#include "model/arch.h"
#include "model/weights_bind.h"

/* NULL: not there; the name stays in `name`. */
static const spry_tensor *find(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], const char *gguf, const char *hf,
                               const char *suffix)
{
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%s%s.%s", b->gguf ? "" : b->prefix, b->gguf ? gguf : hf, suffix);
    return spry_bind_find(b, name);
}

static spry_status bind_norm(const spry_binder *b, const float **out, const char *suffix, const char *older)
{
    char name[SPRY_TENSOR_NAME_MAX], other[SPRY_TENSOR_NAME_MAX];
    const char *hf = b->config->arch->hf_embedding_norm;
    const spry_tensor *t = find(b, name, "token_embd_norm", hf, suffix);
    if (!t && !b->gguf)
        t = find(b, other, "token_embd_norm", hf, older);
    return t ? spry_bind_vector(b, out, t, b->config->n_embd, 0) : spry_bind_missing(b, name);
}

/* Texts are as long as there are rows for their positions. */
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

/* A text is of the first type throughout. */
static spry_status bind_token_types(const spry_binder *b)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_tensor *t = find(b, name, "token_types", "embeddings.token_type_embeddings", "weight");
    return t ? spry_bind_matrix(b, &b->out->token_types, t, t->n_dims > 1 ? t->dims[0] : 1, b->config->n_embd)
             : SPRY_OK;
}

spry_status spry_bind_encoder(const spry_binder *b)
{
    spry_status status = bind_norm(b, &b->out->embedding_norm, "weight", "gamma");
    if (!status)
        status = bind_norm(b, &b->out->embedding_norm_bias, "bias", "beta");
    if (!status && b->config->arch->positions)
        status = bind_positions(b);
    return status ? status : bind_token_types(b);
}
