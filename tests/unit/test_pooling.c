/* How embeddings are made of hidden states: sentence-transformers' settings, whole, odd and hostile; the same from the
 * GGUF file that we write; the arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "model/gguf_export.h"
#include "model/model.h"
#include "support/hostile.h"
#include "support/model_folder.h"

#define MODULE(kind, path) "{\"type\": \"sentence_transformers.models." kind "\", \"path\": \"" path "\"}"
#define TRANSFORMER        MODULE("Transformer", "")

/* The folders inside, which scratch_clear does not empty. */
static void empty_folders(scratch *s)
{
    static const char *const files[] = {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"};
    for (size_t i = 0; i < SPRY_COUNT(files); i++)
        remove(scratch_path(s, files[i]));
}

static void fill(scratch *s, const char *modules, const char *pooling)
{
    empty_folders(s);
    model_folder_fill(s, "bert", NULL);
    scratch_write(s, "modules.json", modules, strlen(modules));
    assert_int_equal(mkdir(scratch_path(s, "1_Pooling"), 0700), 0);
    if (pooling)
        scratch_write(s, "1_Pooling/config.json", pooling, strlen(pooling));
}

static spry_model *open_model(scratch *s)
{
    spry_error error = {0};
    spry_model *model;
    if (spry_model_open(&model, s->folder, &error))
        fail_msg("%s", error.message);
    return model;
}

static void settings_are_read(void **state)
{
    scratch *s = *state;
    static const struct {
        const char *modules, *pooling;
        spry_pool_kind kind;
        bool normalise;
    } cases[] = {
        {"[" TRANSFORMER ", " MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_cls_token\": true}", SPRY_POOL_FIRST,
         false},
        {"[" TRANSFORMER ", " MODULE("Pooling", "1_Pooling") ", " MODULE("Normalize", "2_Normalize") "]",
         "{\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": false}", SPRY_POOL_LAST, true},
        {"[" TRANSFORMER ", " MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode\": \"mean\"}", SPRY_POOL_MEAN,
         false},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        fill(s, cases[i].modules, cases[i].pooling);
        spry_model *model = open_model(s);
        assert_int_equal(model->pooling.kind, cases[i].kind);
        assert_int_equal(model->pooling.normalise, cases[i].normalise);
        assert_int_equal(model->pooling.width, model->config.n_embd);
        spry_model_close(model);
    }
    empty_folders(s);
    model_folder_fill(s, "bert", NULL); /* none: the mean, of length 1 */
    spry_model *model = open_model(s);
    assert_true(model->pooling.kind == SPRY_POOL_MEAN && model->pooling.normalise);
    spry_model_close(model);
}

static void bad_settings_are_refused(void **state)
{
    scratch *s = *state;
    static const struct {
        const char *modules, *pooling, *says;
    } cases[] = {
        {"{}", "{}", "not a list"},
        {"[" MODULE("Pooling", "../1_Pooling") "]", "{}", "inside"},
        {"[" MODULE("Pooling", "/etc") "]", "{}", "inside"},
        {"[" MODULE("Pooling", "9_Pooling") "]", "{}", "9_Pooling"},
        {"[" MODULE("CNN", "1_Pooling") "]", "{}", "CNN"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode_max_tokens\": true}", "max_tokens"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "{}", "exactly one"},
        {"[" MODULE("Pooling", "1_Pooling") "]",
         "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", "exactly one"},
        {"[" MODULE("Pooling", "1_Pooling") "]", "{\"pooling_mode\": \"mean\", \"include_prompt\": false}",
         "include_prompt"},
        {"[" MODULE("Dense", "1_Pooling") "]", "{\"activation_function\": \"torch.nn.modules.activation.GELU\"}",
         "GELU"},
        {"[" MODULE("Dense", "1_Pooling") "]", "{}", "safetensors"},
        {"[1", "{}", "modules.json"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        fill(s, cases[i].modules, cases[i].pooling);
        spry_status status = spry_model_open(&model, s->folder, &error);
        if (!status || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
    }
}

/* A matrix after the model, and prompts; also through GGUF. */
static void dense_and_prompts(void **state)
{
    scratch *s = *state;
    enum { IN = 64, OUT = 3 };
    char head[256];
    float values[OUT * IN];
    unsigned char file[256 + sizeof values];
    const char prompts[] =
        "{\"prompts\": {\"query\": \"query: \", \"document\": \"\"}, \"default_prompt_name\": \"query\"}";
    const char dense[] = "{\"bias\": false, \"activation_function\": \"torch.nn.modules.linear.Identity\"}";
    fill(s, "[" TRANSFORMER ", " MODULE("Pooling", "1_Pooling") ", " MODULE("Dense", "2_Dense") "]",
         "{\"pooling_mode\": \"mean\"}");
    for (size_t i = 0; i < OUT * IN; i++)
        values[i] = (float)i / 8;
    uint64_t size = (uint64_t)snprintf(
        head, sizeof head, "{\"linear.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}", OUT,
        IN, sizeof values);
    memcpy(file, &size, 8);
    memcpy(file + 8, head, size);
    memcpy(file + 8 + size, values, sizeof values);
    assert_int_equal(mkdir(scratch_path(s, "2_Dense"), 0700), 0);
    scratch_write(s, "2_Dense/config.json", dense, strlen(dense));
    scratch_write(s, "2_Dense/model.safetensors", file, 8 + size + sizeof values);
    scratch_write(s, "config_sentence_transformers.json", prompts, strlen(prompts));
    spry_model *model = open_model(s);
    const spry_recipe *recipe;
    spry_threads *threads;
    spry_error error = {0};
    assert_int_equal(spry_recipe_find(&recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    const spry_export options = {.recipe = recipe, .threads = threads};
    if (spry_model_export(model, scratch_path(s, "out.gguf"), &options, &error))
        fail_msg("%s", error.message);
    for (int gguf = 0; gguf < 2; gguf++) {
        double sum[IN] = {0};
        float out[OUT];
        sum[1] = 16; /* of 2 rows */
        assert_int_equal(model->pooling.width, OUT);
        assert_string_equal(spry_pooling_prompt(&model->pooling, NULL), "query: ");
        assert_string_equal(spry_pooling_prompt(&model->pooling, "document"), "");
        assert_null(spry_pooling_prompt(&model->pooling, "passage"));
        assert_int_equal(spry_pooling_finish(&model->pooling, out, sum, 2, IN, NULL), SPRY_OK);
        for (size_t o = 0; o < OUT; o++)
            assert_float_equal(out[o], 8 * values[o * IN + 1], 0);
        spry_model_close(model);
        if (!gguf && spry_model_open(&model, scratch_path(s, "out.gguf"), &error))
            fail_msg("%s", error.message);
    }
    spry_threads_destroy(threads);
}

static int set_up(void **state)
{
    static scratch s;
    scratch_init(&s);
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    empty_folders(*state);
    scratch_deinit(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(dense_and_prompts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
