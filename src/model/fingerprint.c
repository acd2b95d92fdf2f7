/* Tensors are hashed separately by all threads, then their hashes in file order. */
#include "model/fingerprint.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <xxhash.h>

typedef struct hash_job {
    const spry_model *model;
    XXH128_hash_t *hashes; /* [n] */
    size_t n;
    atomic_size_t next;
} hash_job;

static const spry_tensor *tensor_at(const spry_model *model, size_t index)
{
    return model->gguf ? spry_gguf_tensor(model->gguf, index) : spry_safetensors_tensor(model->files, index);
}

static XXH128_hash_t hash_tensor(const spry_tensor *t)
{
    XXH128_hash_t parts[3] = {XXH3_128bits(t->name.data, t->name.size), XXH3_128bits(t->dims, sizeof t->dims),
                              XXH3_128bits_withSeed(t->data, t->bytes, (XXH64_hash_t)t->type)};
    return XXH3_128bits(parts, sizeof parts);
}

static void hash_part(void *context, size_t worker, size_t n_workers)
{
    (void)worker;
    (void)n_workers;
    hash_job *job = context;
    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        job->hashes[i] = hash_tensor(tensor_at(job->model, i));
}

enum { SETTINGS = 96 };

static double *add_rope(double *at, const spry_rope *r)
{
    const double values[] = {(double)r->kind,
                             (double)r->theta,
                             (double)r->factor,
                             (double)r->low_freq_factor,
                             (double)r->high_freq_factor,
                             (double)r->beta_fast,
                             (double)r->beta_slow,
                             (double)r->attention_factor,
                             (double)r->original_context,
                             (double)r->truncate};
    memcpy(at, values, sizeof values);
    return at + SPRY_COUNT(values);
}

static XXH128_hash_t hash_factors(const float *factors, size_t count)
{
    return XXH3_128bits(factors ? (const void *)factors : "", factors ? count * sizeof *factors : 0);
}

/* Settings that are not in any tensor, field by field, because padding between fields is undefined. */
static XXH128_hash_t hash_config(const spry_config *c)
{
    double settings[SETTINGS], *at = settings;
    const double sizes[] = {c->n_layers,
                            c->n_heads,
                            c->n_kv_heads,
                            c->head_dim,
                            c->rope_dim,
                            c->window,
                            c->interleaved,
                            c->n_experts_used,
                            c->normalise_experts,
                            c->routing,
                            c->n_streams,
                            c->active_stream,
                            c->unscaled_stream,
                            c->n_shared_kv,
                            c->n_kv_rank,
                            c->n_q_rank,
                            c->nope_dim,
                            c->value_dim,
                            c->n_groups,
                            c->n_groups_used,
                            (double)c->routed_scale,
                            c->scale_block[0],
                            c->scale_block[1],
                            c->tied,
                            c->bidirectional,
                            c->position_offset,
                            c->n_conv,
                            c->n_delta_heads,
                            c->n_delta_keys,
                            c->delta_key_dim,
                            c->delta_value_dim,
                            c->int4,
                            c->int4_group,
                            (double)c->embedding_scale,
                            (double)c->residual_scale,
                            (double)c->logit_scale,
                            (double)c->norm_eps,
                            (double)c->query_scalar,
                            (double)c->attn_softcap,
                            (double)c->final_softcap};
    memcpy(at, sizes, sizeof sizes);
    at = add_rope(at + SPRY_COUNT(sizes), &c->rope);
    at = add_rope(at, &c->rope_sliding);
    XXH128_hash_t parts[] = {XXH3_128bits(settings, (size_t)((char *)at - (char *)settings)),
                             XXH3_128bits(c->arch->name, strlen(c->arch->name)),
                             XXH3_128bits(c->sliding, c->n_layers * sizeof *c->sliding),
                             XXH3_128bits(c->convolves, c->n_layers * sizeof *c->convolves),
                             XXH3_128bits(c->rotated, c->n_layers * sizeof *c->rotated),
                             hash_factors(c->sparsity, c->n_layers),
                             hash_factors(c->rope.factors, c->rope_dim / 2),
                             hash_factors(c->rope.long_factors, c->rope_dim / 2),
                             hash_factors(c->rope_sliding.factors, c->rope_dim / 2),
                             hash_factors(c->rope_sliding.long_factors, c->rope_dim / 2)};
    return XXH3_128bits(parts, sizeof parts);
}

spry_status spry_model_fingerprint(spry_kv_key *out, const spry_model *model, spry_threads *threads, spry_error *error)
{
    size_t n = model->gguf ? spry_gguf_tensor_count(model->gguf) : spry_safetensors_count(model->files);
    hash_job job = {.model = model, .hashes = calloc(n + 1, sizeof *job.hashes), .n = n};
    if (!job.hashes)
        return spry_fail_memory(error, "the model's fingerprint", (n + 1) * sizeof *job.hashes);
    spry_threads_run(threads, hash_part, &job);
    job.hashes[n] = hash_config(&model->config);
    XXH128_hash_t all = XXH3_128bits(job.hashes, (n + 1) * sizeof *job.hashes);
    free(job.hashes);
    *out = (spry_kv_key){all.low64, all.high64};
    return SPRY_OK;
}
