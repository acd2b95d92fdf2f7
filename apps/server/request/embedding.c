#include "server/request/embedding.h"

#include <stdlib.h>

#include "server/request/job_wait.h"
#include "server/request/prompt.h"
#include "server/server.h"

spry_status spry_embedder_init(spry_embedder *e, spry_costs *costs, const spry_pooled *model, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_jobs_figures figures;
    spry_engine_jobs_figures(model->engine, &figures);
    *e = (spry_embedder){.costs = costs, .model = model, .width = info.embedding, .most = 2 * figures.max_running};
    e->most = e->most < SPRY_EMBEDDINGS_MAX ? e->most : SPRY_EMBEDDINGS_MAX;
    e->vector = calloc(e->width, sizeof *e->vector);
    return e->vector ? SPRY_OK : spry_fail_memory(error, "an embedding", e->width * sizeof *e->vector);
}

/* Freeing a job waits for a step, so all are cancelled before. */
void spry_embedder_deinit(spry_embedder *e)
{
    for (size_t i = 0; i < e->count; i++)
        spry_job_cancel(e->jobs[(e->first + i) % SPRY_EMBEDDINGS_MAX]);
    for (size_t i = 0; i < e->count; i++)
        spry_job_free(e->jobs[(e->first + i) % SPRY_EMBEDDINGS_MAX]);
    free(e->vector);
    *e = (spry_embedder){.n_tokens = e->n_tokens};
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

spry_status spry_embedder_encode(spry_tokens *ids, const spry_engine *engine, const char *prompt, spry_view text,
                                 spry_error *error)
{
    spry_buffer both;
    if (!prompt || !*prompt)
        return spry_prompt_encode(ids, engine, text, false, true, error);
    spry_buffer_init(&both, SIZE_MAX / 2);
    spry_buffer_text(&both, prompt);
    spry_status status = spry_buffer_append(&both, text.data, text.size)
                             ? spry_prompt_encode(ids, engine, spry_buffer_view(&both), false, true, error)
                             : spry_fail_memory(error, "a text", text.size);
    spry_buffer_deinit(&both);
    return status;
}

/* On the engine's thread, where looking at its pages waits for nothing. */
static void on_done(void *user, spry_job *job)
{
    const spry_embedder *e = user;
    (void)job;
    spry_registry_sample(&e->costs->exchange->server->registry, e->model->name, e->model->engine, 0, false);
}

spry_status spry_embedder_add(spry_embedder *e, const spry_tokens *ids, spry_error *error)
{
    spry_job *job;
    spry_job_options options;
    size_t at = (e->first + e->count) % SPRY_EMBEDDINGS_MAX;
    spry_job_options_of(&options, e->costs->exchange);
    options.on_done = on_done;
    options.user = e;
    spry_costs_begin_share(e->costs);
    spry_status status = spry_job_create_embedding(&job, e->model->engine, ids->ids, ids->count, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, e->costs, error);
    if (status != SPRY_OK) {
        spry_job_free(job);
        return status;
    }
    e->jobs[at] = job;
    e->sizes[at] = ids->count;
    e->count++;
    return SPRY_OK;
}

spry_status spry_embedder_take(spry_embedder *e, spry_error *error)
{
    spry_job *job = e->jobs[e->first];
    spry_status status = spry_job_finish(job, e->costs, error);
    if (status == SPRY_OK) {
        memcpy(e->vector, spry_job_embedding(job), e->width * sizeof *e->vector);
        e->n_tokens += e->sizes[e->first];
    }
    spry_job_free(job);
    e->first = (e->first + 1) % SPRY_EMBEDDINGS_MAX;
    e->count--;
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

json_t *spry_embedder_list(const spry_embedder *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->width; i++)
        json_array_append_new(list, json_real((double)e->vector[i]));
    return list;
}

/* Byte `at` of the vector, little end first; 0 behind its end. */
static uint32_t byte_of(const spry_embedder *e, size_t at)
{
    uint32_t bits = 0;
    if (at / 4 < e->width)
        memcpy(&bits, &e->vector[at / 4], sizeof bits);
    return bits >> 8 * (at % 4) & 0xFF;
}

json_t *spry_embedder_base64(const spry_embedder *e)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = e->width * 4, size = (n_bytes + 2) / 3 * 4, missing = size / 4 * 3 - n_bytes;
    char *text = malloc(size);
    for (size_t i = 0; text && i < size / 4; i++) {
        uint32_t group = byte_of(e, 3 * i) << 16 | byte_of(e, 3 * i + 1) << 8 | byte_of(e, 3 * i + 2);
        for (size_t k = 0; k < 4; k++)
            text[4 * i + k] = digits[group >> (18 - 6 * k) & 63];
    }
    for (size_t i = 0; text && i < missing; i++)
        text[size - 1 - i] = '=';
    json_t *string = text ? json_stringn(text, size) : NULL;
    free(text);
    return string;
}
