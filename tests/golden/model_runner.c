/* Opening, closing, and the plain use: one sequence, all logits. */
#include "golden/model_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/device_rows.h"
#include "support/must.h"

spry_device_setup runner_setup(model_runner *r)
{
    return (spry_device_setup){.config = &r->model->config,
                               .weights = &r->model->weights,
                               .pool = &r->pool,
                               .ops = r->ops,
                               .threads = r->threads,
                               .limits = {RUNNER_ROWS, RUNNER_ROWS, r->model->config.n_context,
                                          r->model->adapters.count, r->model->adapters.ranks},
                               .mapped = true};
}

static void open_all(model_runner *r, const char *device, uint32_t layers, const char *path, const char *lora,
                     const char *cpu, spry_dtype kv, size_t threads)
{
    spry_error error = {0};
    *r = (model_runner){0};
    must(spry_model_open(&r->model, path, &error), &error);
    if (lora)
        must(spry_model_add_adapters(r->model, lora, &error), &error);
    r->adapters = spry_adapters_default(&r->model->adapters);
    must(spry_ops_get(&r->ops, cpu, &error), &error);
    must(spry_threads_create(&r->threads, threads, &error), &error);
    spry_kv_shape shape = spry_model_kv_shape(r->model, kv);
    shape.n_states = RUNNER_STATES;
    size_t pages = 4 * RUNNER_TOKENS / SPRY_PAGE_TOKENS;
    must(spry_kv_pool_init(&r->pool, &shape, pages, &error), &error);
    spry_device_setup setup = runner_setup(r);
    setup.name = device;
    setup.layers = layers;
    must(spry_device_open(&r->device, device, &setup, &error), &error);
    spry_device_attach(r->device, &r->pool);
}

void runner_open_on(model_runner *r, const char *device, const char *path, const char *cpu, spry_dtype kv,
                    size_t threads)
{
    open_all(r, device, 0, path, NULL, cpu, kv, threads);
}

void runner_open_split(model_runner *r, const char *device, uint32_t layers, const char *path, const char *lora,
                       spry_dtype kv)
{
    open_all(r, device, layers, path, lora, "auto", kv, 2);
}

void runner_open_adapted(model_runner *r, const char *path, const char *lora, const char *cpu, size_t threads)
{
    open_all(r, TEST_DEVICE, 0, path, lora, cpu, SPRY_F32, threads);
}

void runner_close(model_runner *r)
{
    assert_int_equal(r->pool.n_free, r->pool.n_pages); /* every page came back */
    spry_device_close(r->device);
    spry_kv_pool_deinit(&r->pool);
    spry_threads_destroy(r->threads);
    spry_model_close(r->model);
}

static float *run_all(model_runner *r, const int32_t *ids, size_t count, size_t chunk, spry_want want, size_t width)
{
    spry_error error = {0};
    spry_kv_table table;
    float *rows = malloc(count * width * sizeof *rows);
    assert_non_null(rows);
    must(spry_kv_table_init(&table, RUNNER_TOKENS, &error), &error);
    for (size_t done = 0; done < count;) {
        size_t part = count - done < chunk ? count - done : chunk;
        must(spry_kv_table_extend(&table, &r->pool, part, &error), &error);
        spry_segment segment = {&table, ids + done, (uint32_t)done, (uint32_t)part, want, r->adapters, 0, NULL, 0};
        must(step_run(r->device, &segment, 1, &error), &error);
        const float *step = want == SPRY_WANT_ALL ? step_logits(r->device, 0, part) : step_hidden(r->device, 0, part);
        memcpy(rows + done * width, step, part * width * sizeof *rows);
        done += part;
    }
    spry_kv_table_deinit(&table, &r->pool);
    return rows;
}

float *runner_logits(model_runner *r, const int32_t *ids, size_t count, size_t chunk)
{
    return run_all(r, ids, count, chunk, SPRY_WANT_ALL, r->model->config.n_vocab);
}

float *runner_hidden(model_runner *r, const int32_t *ids, size_t count)
{
    return run_all(r, ids, count, count, SPRY_WANT_HIDDEN, r->model->config.n_embd);
}
