#include "device/ranks/rank_open.h"

#include <stdlib.h>
#include <string.h>

#include "device/ranks/ranks.h"
#include "model/quantize.h"

typedef struct open_message {
    spry_step_limits limits;
    uint32_t kv_type, threads;
    uint64_t n_pages;
    uint64_t file_bytes; /* of a model in memory, which follows as a message of its own; 0: each rank opens a file */
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

/* A hash of shapes and of some bytes of each matrix: files that differ have different ones, and little is read. */
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
    if (m.file_bytes) /* broadcasting does not change the sender's bytes */
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
        if (!own->data) /* the broadcast cannot be skipped */
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
