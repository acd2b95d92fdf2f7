/* Experts that are packed when they are used: models give the same bits with room for one of them, for some and for
 * all; those chosen often keep their places; limits that make no sense are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_state.h"
#include "golden/golden_models.h"
#include "model/gguf_export.h"
#include "support/engine_fixture.h"
#include "support/must.h"

enum { PROMPT = 40, STEPS = 12 };

static void convert(const char *path, const char *folder, const char *type)
{
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    spry_model *model;
    must(spry_model_open(&model, folder, &error), &error);
    must(spry_recipe_find(&recipe, type, &error), &error);
    must(spry_threads_create(&threads, 1, &error), &error);
    const spry_export options = {.recipe = recipe, .threads = threads};
    must(spry_model_export(model, path, &options, &error), &error);
    spry_threads_destroy(threads);
    spry_model_close(model);
}

static spry_engine *open_limited(const char *path, size_t expert_bytes)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 2;
    options.expert_bytes = expert_bytes;
    return fixture_open(path, &options);
}

static spry_device_memory sizes_of(const spry_engine *e)
{
    spry_device_memory memory;
    spry_device_setup setup = spry_engine_setup(e);
    setup.expert_bytes = 0;
    assert_true(spry_device_estimate(e->kind, &memory, &setup, NULL));
    return memory;
}

/* A prompt and then token by token; [STEPS, n_vocab], the caller frees. */
static float *run(spry_engine *e, int32_t *ids)
{
    spry_error error = {0};
    spry_session *session = fixture_session(e);
    float *all = malloc((size_t)STEPS * FIXTURE_VOCAB * sizeof *all);
    const float *logits;
    assert_non_null(all);
    for (size_t i = 0; i < STEPS; i++) {
        must(spry_session_eval(session, &logits, ids, PROMPT + i, &error), &error);
        memcpy(all + i * FIXTURE_VOCAB, logits, FIXTURE_VOCAB * sizeof *all);
    }
    spry_session_destroy(session);
    return all;
}

static const spry_expert_store *store_of(const spry_engine *e)
{
    return &((const spry_cpu_device *)(const void *)e->device)->experts;
}

static void compare(const char *path, const char *model)
{
    int32_t ids[PROMPT + STEPS];
    fixture_ids(ids, SPRY_COUNT(ids), 11);
    spry_engine *whole = open_limited(path, 0);
    spry_device_memory sizes = sizes_of(whole);
    assert_true(sizes.experts > 0);
    assert_null(store_of(whole)->memory);
    float *wanted = run(whole, ids);
    const size_t places[] = {1, 3, whole->model->config.n_experts};
    for (size_t i = 0; sizes.expert && i < SPRY_COUNT(places); i++) {
        spry_engine *e = open_limited(path, places[i] * sizes.expert);
        const spry_expert_store *store = store_of(e);
        assert_int_equal(store->n_places, places[i]);
        assert_true(store->bytes <= places[i] * sizes.expert);
        float *got = run(e, ids);
        if (memcmp(got, wanted, (size_t)STEPS * FIXTURE_VOCAB * sizeof *got))
            fail_msg("%s: room for %zu experts changes bits", model, places[i]);
        assert_true(store->n_packed > places[i]); /* some lost their place and came back */
        print_message("%s: room for %zu experts: %zu packed in %d steps\n", model, places[i], (size_t)store->n_packed,
                      STEPS);
        free(got);
        spry_engine_close(e);
    }
    if (!sizes.expert)
        print_message("SKIPPED %s: these kernels pack no matrix\n", model);
    spry_engine_close(whole);
    free(wanted);
}

static void results_do_not_depend_on_the_limit(void **state)
{
    (void)state;
    static const char *const models[] = {"mixtral", "qwen3-moe", "qwen2-moe", "granite-moe", "glm4-moe", "qwen3-next"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        char folder[512], path[] = "/tmp/spry-experts-XXXXXX";
        if (!golden_folder(folder, models[i]))
            continue;
        assert_int_equal(close(mkstemp(path)), 0);
        convert(path, folder, "q8_0");
        compare(path, models[i]);
        unlink(path);
    }
}

/* One that is used between all others stays, with room for two. */
static void what_is_used_often_stays(void **state)
{
    (void)state;
    char folder[512], path[] = "/tmp/spry-experts-XXXXXX";
    assert_true(golden_folder(folder, "qwen3-moe"));
    assert_int_equal(close(mkstemp(path)), 0);
    convert(path, folder, "q8_0");
    spry_engine *whole = open_limited(path, 0);
    spry_device_memory sizes = sizes_of(whole);
    spry_engine_close(whole);
    if (sizes.expert) {
        spry_engine *e = open_limited(path, 2 * sizes.expert);
        spry_expert_store *store = &((spry_cpu_device *)(void *)e->device)->experts;
        for (uint32_t i = 1; i < e->model->config.n_experts; i++) {
            spry_expert_store_take(store, e->threads, 0, 0);
            spry_expert_store_take(store, e->threads, 0, i);
            assert_non_null(store->layers[0].expert_gate[0].packed);
            assert_non_null(store->layers[0].expert_gate[i].packed);
            assert_true(i < 2 || !store->layers[0].expert_gate[i - 1].packed);
        }
        assert_int_equal(store->n_packed, e->model->config.n_experts);
        spry_engine_close(e);
    } else {
        print_message("SKIPPED %s: these kernels pack no matrix\n", __func__);
    }
    unlink(path);
}

static void refused(const char *path, const spry_engine_options *options, const char *words)
{
    spry_error error = {0};
    spry_engine *e;
    assert_int_not_equal(spry_engine_open(&e, path, options, &error), SPRY_OK);
    assert_non_null(strstr(error.message, words));
}

static void limits_that_make_no_sense(void **state)
{
    (void)state;
    char folder[512], dense[600], path[] = "/tmp/spry-experts-XXXXXX";
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.expert_bytes = 1;
    assert_true(golden_folder(folder, "qwen3-moe"));
    snprintf(dense, sizeof dense, "%s/models/llama", TEST_DATA);
    refused(dense, &options, "there are none");
    assert_int_equal(close(mkstemp(path)), 0);
    convert(path, folder, "q8_0");
    spry_engine *whole = open_limited(path, 0);
    if (sizes_of(whole).expert)
        refused(path, &options, "one expert has");
    spry_engine_close(whole);
    options.quantize = "q8_0"; /* rows that exist in memory only */
    refused(folder, &options, "there are none");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_the_limit),
        cmocka_unit_test(what_is_used_often_stays),
        cmocka_unit_test(limits_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
