/* One rank's part of a model, and opening the parts on all ranks. */
#include "device/ranks/rank_part.h"

#include <stdlib.h>
#include <string.h>

#include "device/ranks/ranks.h"
#include "model/arch.h"
#include "model/quantize.h"

/* ---- a rank's part of a model ------------------------------------------------------------------------------------ */

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Reduces a matrix, if it exists, to the rows that this rank computes. */
static void keep_rows(spry_weight *w, size_t begin, size_t end)
{
    if (!w->data)
        return;
    w->data += begin * w->row_bytes;
    w->n_before += begin;
    w->n_after += w->n_out - end;
    w->bias = w->bias ? w->bias + begin : NULL;
    w->n_out = end - begin;
}

static void share(const spry_team *team, spry_weight *w)
{
    size_t starts[SPRY_TEAM_MAX + 1];
    spry_team_outputs(starts, team, w->n_out);
    keep_rows(w, starts[team->rank], starts[team->rank + 1]);
}

static void share_layer(const spry_team *team, spry_layer *l)
{
    const spry_config *c = team->whole;
    spry_weight *const matrices[] = {&l->o,           &l->gate,      &l->up,         &l->down,
                                     &l->shared_gate, &l->shared_up, &l->shared_down};
    spry_team_heads heads = spry_team_heads_of(team, team->rank);
    size_t each = c->arch->latent ? c->nope_dim + c->rope_dim : c->head_dim;
    keep_rows(&l->q, heads.q_begin * each, heads.q_end * each);
    keep_rows(&l->k, heads.kv_begin * c->head_dim, heads.kv_end * c->head_dim);
    keep_rows(&l->v, heads.kv_begin * c->head_dim, heads.kv_end * c->head_dim);
    if (c->arch->latent) {
        l->k_b += heads.q_begin;
        l->v_b += heads.q_begin;
    }
    if (l->q_norm && c->arch->qk_norm == SPRY_QK_NORM_EACH) {
        l->q_norm += heads.q_begin * c->head_dim;
        l->k_norm += heads.kv_begin * c->head_dim;
    }
    l->sinks = l->sinks ? l->sinks + heads.q_begin : NULL;
    for (size_t i = 0; i < SPRY_COUNT(matrices); i++)
        share(team, matrices[i]);
    for (uint32_t e = 0; l->expert_gate && e < c->n_experts; e++) {
        share(team, &l->expert_gate[e]);
        share(team, &l->expert_up[e]);
        share(team, &l->expert_down[e]);
    }
}

static spry_status share_weights(spry_rank_part *p, const spry_weights *whole, spry_error *error)
{
    p->weights = *whole;
    if (!spry_weights_copy_lists(&p->weights, &p->arena, p->team.whole))
        return spry_fail_memory(error, "the lists of weights", p->team.whole->n_layers * sizeof(spry_layer));
    for (uint32_t i = 0; i < p->team.whole->n_layers; i++)
        share_layer(&p->team, &p->weights.layers[i]);
    share(&p->team, &p->weights.output);
    return SPRY_OK;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

size_t spry_rank_page_bytes(size_t *bytes, const spry_rank_part *part)
{
    size_t sum = 0;
    for (size_t rank = 0; rank < part->team.size; sum += bytes[rank++]) {
        spry_team_heads heads = spry_team_heads_of(&part->team, rank);
        bytes[rank] = part->outside->page_bytes / part->outside->shape.n_kv_heads * (heads.kv_end - heads.kv_begin);
    }
    return sum;
}

void spry_rank_page_take(void *own, const spry_rank_part *part, const void *whole)
{
    spry_team_heads heads = spry_team_heads_of(&part->team, part->team.rank);
    const unsigned char *from = (const unsigned char *)whole + heads.kv_begin * part->pool.head_bytes;
    unsigned char *to = own;
    size_t sides = spry_kv_sides(&part->pool.shape) * part->pool.shape.n_layers, bytes = part->pool.side_bytes;
    for (size_t i = 0; i < sides; i++, to += bytes, from += part->outside->side_bytes)
        memcpy(to, from, bytes);
}

void spry_rank_page_put(void *whole, const spry_rank_part *part, size_t rank, const void *own)
{
    spry_team_heads heads = spry_team_heads_of(&part->team, rank);
    size_t sides = spry_kv_sides(&part->pool.shape) * part->pool.shape.n_layers,
           bytes = (heads.kv_end - heads.kv_begin) * part->pool.head_bytes;
    unsigned char *to = (unsigned char *)whole + heads.kv_begin * part->pool.head_bytes;
    const unsigned char *from = own;
    for (size_t i = 0; i < sides; i++, from += bytes, to += part->outside->side_bytes)
        memcpy(to, from, bytes);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void gather(spry_team *team, void *all, const void *own, const size_t *bytes, bool to_first)
{
    (void)team;
    spry_ranks_link()->gather(all, own, bytes, to_first);
}

static spry_status take_heads(spry_rank_part *p, const spry_device_setup *setup, spry_error *error)
{
    const spry_config *c = setup->config;
    if (p->team.size > c->n_heads)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model has %u heads, too few for %zu ranks: start at most %u",
                         c->n_heads, p->team.size, c->n_heads);
    spry_team_heads heads = spry_team_heads_of(&p->team, p->team.rank);
    p->config = *c;
    p->config.n_heads = (uint32_t)(heads.q_end - heads.q_begin);
    p->config.n_kv_heads = p->config.slide.n_kv_heads = (uint32_t)(heads.kv_end - heads.kv_begin);
    spry_kv_shape shape = setup->pool->shape;
    shape.n_kv_heads = p->config.n_kv_heads;
    return spry_kv_pool_init(&p->pool, &shape, setup->pool->n_pages, error);
}

spry_status spry_rank_part_open(spry_rank_part *part, const spry_device_setup *setup, spry_error *error)
{
    const spry_rank_link *link = spry_ranks_link();
    *part = (spry_rank_part){.team = {link->rank, link->size, setup->config, gather}, .outside = setup->pool};
    spry_arena_init(&part->arena);
    spry_status status = take_heads(part, setup, error);
    if (!status)
        status = share_weights(part, setup->weights, error);
    spry_device_setup own = *setup;
    own.config = &part->config;
    own.weights = &part->weights;
    own.pool = &part->pool;
    if (!status)
        status = spry_cpu_device_init(&part->cpu, &own, false, &part->team, error);
    if (status)
        spry_rank_part_close(part);
    return status;
}

void spry_rank_part_close(spry_rank_part *part)
{
    spry_cpu_device_deinit(&part->cpu);
    spry_kv_pool_deinit(&part->pool);
    spry_arena_deinit(&part->arena);
}

/* ---- opening it -------------------------------------------------------------------------------------------------- */

typedef struct open_message {
    spry_step_limits limits;
    uint32_t kv_type, threads;
    uint64_t n_pages;
    uint64_t file_bytes; /* size of a model in memory, which is sent in a message of its own; 0: each rank opens a
                          * file */
    spry_kv_key sample;
    char kernels[32], quantize[32], name[2048];
} open_message;

/* ---- the same model on all ranks --------------------------------------------------------------------------------- */

static void sample_matrix(spry_buffer *out, const spry_weight *w)
{
    enum { SAMPLES = 16, BYTES = 64 };
    size_t bytes = w->n_out * w->row_bytes, length = bytes < BYTES ? bytes : BYTES;
    spry_buffer_format(out, "%d %zu %zu;", w->type, w->n_out, w->n_in);
    for (size_t i = 0; w->data && i < SAMPLES; i++)
        spry_buffer_append(out, w->data + (bytes - length) / SAMPLES * i, length);
}

/* A hash of shapes and of some bytes of each matrix. It detects different files without reading much. */
static spry_status sample_weights(spry_kv_key *key, const spry_weights *weights, const spry_config *config,
                                  spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, (size_t)1 << 30);
    sample_matrix(&text, &weights->embedding);
    sample_matrix(&text, &weights->output);
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const spry_layer *l = &weights->layers[i];
        const spry_weight *const matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router};
        for (size_t k = 0; k < SPRY_COUNT(matrices); k++)
            sample_matrix(&text, matrices[k]);
        for (uint32_t e = 0; l->expert_gate && e < config->n_experts; e++)
            sample_matrix(&text, &l->expert_down[e]);
    }
    spry_status status = text.failed ? spry_fail_memory(error, "comparing models", text.size) : SPRY_OK;
    if (!status)
        *key = spry_kv_key_root((spry_kv_key){0}, text.data, text.size);
    spry_buffer_deinit(&text);
    return status;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

static bool copy_text(char *out, size_t size, const char *text)
{
    size_t length = strlen(text ? text : "");
    if (length >= size)
        return false;
    memcpy(out, text ? text : "", length + 1);
    return true;
}

spry_status spry_rank_send_open(uint32_t device, const spry_device_setup *setup, spry_error *error)
{
    const spry_device_source *source = &setup->source;
    open_message m = {.limits = setup->limits,
                      .kv_type = setup->pool->shape.type,
                      .threads = (uint32_t)spry_threads_count(setup->threads),
                      .n_pages = setup->pool->n_pages,
                      .file_bytes = source->data ? source->size : 0};
    if (!source->name || !copy_text(m.name, sizeof m.name, source->name) ||
        !copy_text(m.quantize, sizeof m.quantize, source->quantize) ||
        !copy_text(m.kernels, sizeof m.kernels, setup->ops->name))
        return spry_fail(error, SPRY_ERR_INPUT, "the model's path is too long for ranks to open");
    spry_status status = sample_weights(&m.sample, setup->weights, setup->config, error);
    if (status)
        return status;
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_OPEN, .device = device, .size = sizeof m}, &m);
    if (m.file_bytes) /* the sender's bytes do not change, so the cast is safe */
        spry_ranks_link()->broadcast((void *)source->data, source->size, false);
    return SPRY_OK;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static spry_status open_model(spry_rank_model *own, const open_message *m, const spry_ops *ops, spry_error *error)
{
    spry_kv_key sample;
    const spry_recipe *recipe;
    spry_status status = spry_model_open_sizes(&own->model, m->name, own->data, m->file_bytes, error);
    if (!status && *m->quantize)
        status = spry_recipe_find(&recipe, m->quantize, error);
    if (!status && *m->quantize)
        status = spry_model_quantize(own->model, recipe, ops, own->threads, !own->data, error);
    if (!status)
        status = sample_weights(&sample, &own->model->weights, &own->model->config, error);
    if (!status && !spry_kv_key_equal(sample, m->sample))
        status = spry_fail(error, SPRY_ERR_INPUT, "%.200s is another model than that of rank 0", m->name);
    return status;
}

static spry_status open_part(spry_rank_model *own, const open_message *m, const spry_ops *ops, spry_error *error)
{
    spry_kv_shape shape = spry_model_kv_shape(own->model, (spry_dtype)m->kv_type);
    spry_status status = spry_kv_pool_init(&own->pool, &shape, m->n_pages, error);
    if (status)
        return status;
    const spry_device_setup setup = {.config = &own->model->config,
                                     .weights = &own->model->weights,
                                     .pool = &own->pool,
                                     .ops = ops,
                                     .threads = own->threads,
                                     .limits = m->limits,
                                     .mapped = !own->data};
    status = spry_rank_part_open(&own->part, &setup, error);
    own->open = !status;
    return status;
}

spry_status spry_rank_model_open(spry_rank_model *own, const spry_buffer *message, spry_error *error)
{
    open_message m;
    const spry_ops *ops = NULL;
    spry_status status = SPRY_OK;
    *own = (spry_rank_model){0};
    memcpy(&m, message->data, sizeof m);
    if (m.file_bytes) {
        own->data = malloc(m.file_bytes);
        if (!own->data) /* the broadcast must be received in any case */
            spry_ranks_link()->quit("there is no memory for the model's file");
        spry_ranks_link()->broadcast(own->data, m.file_bytes, false);
    }
    status = spry_ops_get(&ops, m.kernels, error);
    if (!status)
        status = spry_threads_create(&own->threads, m.threads, error);
    if (!status)
        status = open_model(own, &m, ops, error);
    return status ? status : open_part(own, &m, ops, error);
}

void spry_rank_model_close(spry_rank_model *own)
{
    if (own->open)
        spry_rank_part_close(&own->part);
    spry_kv_pool_deinit(&own->pool);
    spry_threads_destroy(own->threads);
    spry_model_close(own->model);
    free(own->data);
    *own = (spry_rank_model){0};
}
