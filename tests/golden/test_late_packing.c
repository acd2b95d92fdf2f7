/* Weights that are packed while steps use them: the first prompt of an engine, the second one, and one after all
 * weights were packed have the same bits, for every table of kernels, for types in all layouts, for dense models and
 * experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_state.h"
#include "golden/golden_models.h"
#include "model/gguf_export.h"
#include "spry_tools.h"
#include "support/engine_fixture.h"

enum { PROMPT = 21 };

static const spry_late_store *store_of(const spry_engine *e)
{
    return &((const spry_cpu_device *)(const void *)e->device)->placed.late;
}

/* Models this small are packed at load: the device is replaced by one that packs late. */
static spry_engine *open_late(const char *path, const spry_engine_options *options)
{
    spry_error error = {0};
    spry_engine *e = fixture_open(path, options);
    assert_int_equal(store_of(e)->n_left, 0);
    spry_device_close(e->device);
    spry_device_setup setup = spry_engine_setup(e);
    setup.late_bytes = 0;
    if (spry_device_open(&e->device, "cpu", &setup, &error))
        fail_msg("%s", error.message);
    spry_device_attach(e->device, &e->pool);
    return e;
}

static void eval(float *out, spry_engine *e, uint32_t seed)
{
    spry_error error = {0};
    int32_t ids[PROMPT];
    const float *logits;
    spry_session *session = fixture_session(e);
    fixture_ids(ids, PROMPT, seed);
    if (spry_session_eval(session, &logits, ids, PROMPT, &error))
        fail_msg("%s", error.message);
    memcpy(out, logits, FIXTURE_VOCAB * sizeof *out);
    spry_session_destroy(session);
}

static void compare(const char *path, const char *cpu, const char *type, uint32_t threads)
{
    static float first[FIXTURE_VOCAB], second[FIXTURE_VOCAB], last[FIXTURE_VOCAB], other[FIXTURE_VOCAB];
    spry_error error = {0};
    spry_engine_options options;
    spry_steps *steps;
    spry_engine_options_default(&options);
    options.cpu = cpu;
    options.threads = threads;
    spry_engine *fresh = open_late(path, &options), *used = open_late(path, &options);
    size_t n = store_of(fresh)->n_left;
    eval(first, fresh, 5);
    assert_int_equal(store_of(fresh)->n_left, n); /* nothing is kept yet */
    eval(other, used, 6);
    assert_int_equal(store_of(used)->n_left, n);
    eval(second, used, 5);
    assert_true(!n || store_of(used)->n_left < n);
    if (spry_steps_create(&steps, fresh, 1, &error) || spry_steps_prefill(steps, &(int32_t){3}, 1, true, &error))
        fail_msg("%s", error.message);
    spry_steps_destroy(steps);
    assert_true(!n || store_of(fresh)->n_left < n);
    eval(other, fresh, 7); /* experts that were not chosen yet */
    eval(last, fresh, 5);
    if (memcmp(first, second, sizeof first) || memcmp(first, last, sizeof first))
        fail_msg("%s, %s, %s, %u threads: bits depend on whether weights are packed", path, cpu, type, threads);
    spry_engine_close(fresh);
    spry_engine_close(used);
}

static void convert(const char *path, const char *folder, const char *type)
{
    spry_error error = {0};
    const spry_recipe *recipe = NULL;
    spry_threads *threads = NULL;
    spry_model *model = NULL;
    if (spry_model_open(&model, folder, &error) || spry_recipe_find(&recipe, type, &error) ||
        spry_threads_create(&threads, 1, &error))
        fail_msg("%s", error.message);
    const spry_export options = {.recipe = recipe, .threads = threads};
    if (spry_model_export(model, path, &options, &error))
        fail_msg("%s", error.message);
    spry_threads_destroy(threads);
    spry_model_close(model);
}

static void bits_do_not_depend_on_packing(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-256", "qwen3-moe", "phi3"};
    static const char *const types[] = {"f32", "q4_0", "q8_0", "q4_k_m", "f16", "bf16"};
    for (size_t i = 0; i < SPRY_COUNT(models) * SPRY_COUNT(types); i++) {
        const char *type = types[i % SPRY_COUNT(types)];
        char folder[512], names[256], path[] = "/tmp/spry-late-XXXXXX";
        if (!golden_folder(folder, models[i / SPRY_COUNT(types)]))
            continue;
        assert_int_equal(close(mkstemp(path)), 0);
        convert(path, folder, type);
        snprintf(names, sizeof names, "%s", spry_ops_names());
        for (char *rest = names, *cpu; (cpu = strtok_r(rest, ", ", &rest));)
            compare(path, cpu, type, i % 2 ? 1 : 3);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_do_not_depend_on_packing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
