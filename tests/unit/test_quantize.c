/* Quantising while loading against converting to a file and loading that: the same logits, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "model/gguf_export.h"
#include "platform/file.h"
#include "spry.h"
#include "support/hostile.h"
#include "support/made_model.h"
#include "support/model_folder.h"
#include "support/must.h"
#include "support/quoted_json.h"

enum { PROMPT = 40 }; /* more than a page of keys and values */

static scratch place, outside; /* outside: where made checkpoints stand */

static const char *export_as(const char *from, const char *type)
{
    spry_model *model;
    spry_error error = {0};
    spry_export options = {0};
    must(spry_threads_create(&options.threads, 2, &error), &error);
    must(spry_model_open(&model, from, &error), &error);
    must(spry_recipe_find(&options.recipe, type, &error), &error);
    must(spry_model_export(model, scratch_path(&place, "out.gguf"), &options, &error), &error);
    spry_model_close(model);
    spry_threads_destroy(options.threads);
    return place.path;
}

static spry_engine_options options_for(const char *quantize, const char *cpu, uint32_t threads)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.quantize = quantize;
    options.cpu = cpu;
    options.threads = threads;
    return options;
}

typedef struct rows {
    float *logits; /* [PROMPT, vocabulary] */
    size_t vocabulary;
} rows;

static bool keep_row(void *user, size_t index, const float *logits)
{
    const rows *r = user;
    memcpy(r->logits + index * r->vocabulary, logits, r->vocabulary * sizeof *logits);
    return true;
}

/* Logits of a prompt; the engine is closed. */
static rows logits_of(spry_engine *engine)
{
    spry_engine_info info;
    spry_session *session;
    spry_error error = {0};
    int32_t ids[PROMPT];
    spry_engine_describe(engine, &info);
    for (size_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)(i * 7 % info.vocabulary);
    rows r = {malloc(PROMPT * info.vocabulary * sizeof(float)), info.vocabulary};
    assert_non_null(r.logits);
    must(spry_session_create(&session, engine, &error), &error);
    must(spry_session_eval_rows(session, ids, PROMPT, keep_row, &r, &error), &error);
    spry_session_destroy(session);
    spry_engine_close(engine);
    return r;
}

static spry_engine *open_path(const char *path, const spry_engine_options *options)
{
    spry_engine *engine;
    spry_error error = {0};
    must(spry_engine_open(&engine, path, options, &error), &error);
    return engine;
}

static void expect_same(rows a, rows b, const char *what, const char *type)
{
    assert_int_equal(a.vocabulary, b.vocabulary);
    if (memcmp(a.logits, b.logits, PROMPT * a.vocabulary * sizeof *a.logits))
        fail_msg("%s as %s: other bits than from the converted file", what, type);
    free(a.logits);
    free(b.logits);
}

static void compare(const char *path, const char *what, const char *type, const char *cpu)
{
    spry_engine_options quantized = options_for(type, cpu, 2), plain = options_for(NULL, cpu, 1);
    rows a = logits_of(open_path(path, &quantized)), b = logits_of(open_path(export_as(path, type), &plain));
    expect_same(a, b, what, type);
}

static void every_fixture_is_as_its_converted_file(void **state)
{
    (void)state;
    static const char *const types[] = {"q4_k_m", "f16"};
    for (size_t i = 0; i < N_MODELS; i++)
        for (size_t t = 0; t < SPRY_COUNT(types); t++) {
            char folder[SCRATCH_PATH];
            compare(model_path(folder, model_names[i], ""), model_names[i], types[t], "auto");
        }
}

static void every_type_and_kernel_set(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH];
    for (size_t t = 0; spry_recipe_names[t]; t++)
        compare(model_path(folder, "llama", ""), "llama", spry_recipe_names[t], "auto");
    compare(model_path(folder, "llama-256", ""), "llama-256", "q5_k_m", "ref"); /* the one with rows of 256 */
}

#define TINY                                                                                                           \
    "'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 40, "                   \
    "'max_position_embeddings': 128"

/* Biases of permuted rows, rows that are no whole blocks, an embedding that is the output matrix. */
static void made_models_are_as_their_converted_files(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 96, 'attention_bias': true, " TINY "}",
        "{'model_type': 'llama', 'hidden_size': 80, 'intermediate_size': 72, 'head_dim': 20, " TINY "}",
        "{'model_type': 'llama', 'hidden_size': 256, 'intermediate_size': 256, 'tie_word_embeddings': true, " TINY "}",
        "{'model_type': 'phi3', 'hidden_size': 256, 'intermediate_size': 256, " TINY "}",
    };
    for (size_t i = 0; i < SPRY_COUNT(configs); i++) {
        json_t *config = quoted_json(configs[i]);
        scratch_clear(&outside);
        made_model_write(&outside, config);
        json_decref(config);
        compare(outside.folder, configs[i], "q4_k_m", "auto");
    }
}

/* A GGUF file of floats, mapped and in memory. */
static void gguf_of_floats_is_quantised_too(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma3"};
    spry_engine_options quantized = options_for("q5_k_m", "auto", 2), plain = options_for(NULL, "auto", 2);
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        char path[SCRATCH_PATH];
        spry_buffer file;
        spry_engine *engine;
        spry_error error = {0};
        spry_buffer_init(&file, 1 << 26);
        must(spry_file_read(&file, model_path(path, names[i], "model-f32.gguf"), &error), &error);
        must(spry_engine_open_memory(&engine, file.data, file.size, "memory", &quantized, &error), &error);
        rows memory = logits_of(engine), mapped = logits_of(open_path(path, &quantized));
        rows again = logits_of(open_path(path, &quantized));
        expect_same(memory, mapped, names[i], "q5_k_m");
        expect_same(again, logits_of(open_path(export_as(path, "q5_k_m"), &plain)), names[i], "q5_k_m");
        spry_buffer_deinit(&file);
    }
}

static void sizes_are_told(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH];
    spry_engine_options plain = options_for(NULL, "auto", 1), quantized = options_for("q4_k_m", "auto", 1);
    spry_engine_info before, after;
    spry_engine *engine = open_path(model_path(folder, "llama-256", ""), &plain);
    spry_engine_describe(engine, &before);
    spry_engine_close(engine);
    engine = open_path(folder, &quantized);
    spry_engine_describe(engine, &after);
    spry_engine_close(engine);
    assert_int_equal(before.parameters, after.parameters);
    assert_int_equal(before.copied_bytes, 0);
    assert_true(after.copied_bytes > 0 && after.copied_bytes <= after.weight_bytes);
    assert_true((double)after.weight_bytes < 0.8 * (double)after.parameters); /* six bits a weight */
}

static void what_cannot_be_quantised_is_refused(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH];
    spry_engine *engine = NULL;
    spry_error error = {0};
    spry_engine_options options = options_for("q4_0", "auto", 1);
    const char *path = export_as(model_path(folder, "llama-256", ""), "q8_0");
    hostile_expect(spry_engine_open(&engine, path, &options, &error), &error, SPRY_ERR_INPUT,
                   "out.gguf|blk.0.attn_q.weight|Q8_0|already|q4_0");
    assert_null(engine);
    options.quantize = "q9";
    hostile_expect(spry_engine_open(&engine, folder, &options, &error), &error, SPRY_ERR_INPUT, "'q9'|q4_k_m");
    assert_null(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_is_as_its_converted_file),
        cmocka_unit_test(every_type_and_kernel_set),
        cmocka_unit_test(made_models_are_as_their_converted_files),
        cmocka_unit_test(gguf_of_floats_is_quantised_too),
        cmocka_unit_test(sizes_are_told),
        cmocka_unit_test(what_cannot_be_quantised_is_refused),
    };
    scratch_init(&place);
    scratch_init(&outside);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_deinit(&place);
    scratch_deinit(&outside);
    return failed;
}
