/* Opening, closing, and the plain use: one sequence, all logits. */
#include "golden/model_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/packing.h"

static void must(spry_status status, const spry_error *error)
{
    if (status)
        fail_msg("%s", error->message);
}

void runner_open(model_runner *r, const char *path, const char *cpu, spry_dtype kv, size_t threads)
{
    spry_error error = {0};
    const spry_ops *ops;
    *r = (model_runner){0};
    must(spry_model_open(&r->model, path, &error), &error);
    must(spry_ops_get(&ops, cpu, &error), &error);
    must(spry_threads_create(&r->threads, threads, &error), &error);
    must(spry_weights_pack(&r->model->weights, &r->model->config, ops, r->threads, true, &error), &error);
    spry_kv_shape shape = spry_model_kv_shape(r->model, kv);
    size_t pages = 4 * RUNNER_TOKENS / SPRY_PAGE_TOKENS;
    must(spry_kv_pool_init(&r->pool, &shape, pages, &error), &error);
    spry_pass_limits limits = {RUNNER_ROWS, RUNNER_ROWS, r->model->config.n_context};
    must(spry_pass_create(&r->pass, &r->model->config, &r->model->weights, &r->pool, ops, r->threads, &limits, &error),
         &error);
}

void runner_close(model_runner *r)
{
    assert_int_equal(r->pool.n_free, r->pool.n_pages); /* every page came back */
    spry_pass_destroy(r->pass);
    spry_kv_pool_deinit(&r->pool);
    spry_threads_destroy(r->threads);
    spry_weights_unpack(&r->model->weights);
    spry_model_close(r->model);
}

float *runner_logits(model_runner *r, const int32_t *ids, size_t count, size_t chunk)
{
    spry_error error = {0};
    spry_kv_table table;
    size_t n_vocab = r->model->config.n_vocab;
    float *logits = malloc(count * n_vocab * sizeof *logits);
    assert_non_null(logits);
    must(spry_kv_table_init(&table, RUNNER_TOKENS, &error), &error);
    for (size_t done = 0; done < count;) {
        size_t part = count - done < chunk ? count - done : chunk;
        must(spry_kv_table_extend(&table, &r->pool, part, &error), &error);
        spry_segment segment = {&table, ids + done, (uint32_t)done, (uint32_t)part, SPRY_WANT_ALL};
        must(spry_pass_step(r->pass, &segment, 1, &error), &error);
        memcpy(logits + done * n_vocab, spry_pass_logits(r->pass, 0), part * n_vocab * sizeof *logits);
        done += part;
    }
    spry_kv_table_deinit(&table, &r->pool);
    return logits;
}
