/* A gated delta net's tensors. Hugging Face files hold what becomes queries, keys, values and gates key head by key
 * head; here, as in GGUF files, all queries come first, then all keys, all values, and gates in a matrix of their own:
 * rows are copied. */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "model/weights_bind.h"

/* Appends rows [first, first + n) of a matrix to what was copied of it. */
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
    l->delta_qkv = spry_weight_rows(&whole, 0, all->n_out - n_values);
    l->delta_gate = spry_weight_rows(&whole, all->n_out - n_values, n_values);
    return SPRY_OK;
}

static spry_status bind_inputs(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_values = (size_t)c->n_delta_heads * c->delta_value_dim, n_mixed = spry_config_delta_mixed(c);
    char name[SPRY_TENSOR_NAME_MAX] = "";
    if (b->gguf && !spry_bind_find_in_layer(b, name, i, "delta_qkvz", 0, "weight")) {
        spry_status status = spry_bind_linear(b, &l->delta_qkv, i, "attn_qkv", n_mixed, c->n_embd, REQUIRED);
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

/* Hugging Face files hold the logarithm of how fast states fade. */
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

spry_status spry_bind_delta(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_values = (size_t)c->n_delta_heads * c->delta_value_dim;
    spry_status status = bind_inputs(b, l, i);
    if (!status)
        status = spry_bind_linear(b, &l->delta_ba, i, "ssm_ba", 2 * (size_t)c->n_delta_heads, c->n_embd, REQUIRED);
    if (!status)
        status = spry_bind_linear(b, &l->delta_out, i, "ssm_out", c->n_embd, n_values, REQUIRED);
    if (!status)
        status = vector(b, &l->delta_conv, i, "ssm_conv1d", "weight", spry_config_delta_mixed(c) * c->n_conv);
    if (!status)
        status = vector(b, &l->delta_dt, i, "ssm_dt", "bias", c->n_delta_heads);
    if (!status)
        status = vector(b, &l->delta_norm, i, "ssm_norm", "weight", c->delta_value_dim);
    return status ? status : bind_fading(b, l, i);
}
