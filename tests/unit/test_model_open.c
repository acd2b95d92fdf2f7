/* Opening a folder: config.json that is not there or not JSON, end tokens, sampling settings and chat templates in all
 * the places where checkpoints keep them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "model/model.h"
#include "support/hostile.h"
#include "support/model_folder.h"
#include "support/place.h"
#include "support/quoted_json.h"

static void expect_open(spry_status expected, const char *words)
{
    spry_model *model = (spry_model *)&place;
    spry_error error = {0};
    hostile_expect(spry_model_open(&model, place.folder, &error), &error, expected, words);
    assert_null(model);
}

static void test_config_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } broken[] = {
        {"", "config.json|not valid JSON"},
        {"{", "config.json|not valid JSON|line 1"},
        {"[1, 2]", "config.json|not a JSON object"},
        {"\"llama\"", "config.json|not a JSON object"},
        {"{\"model_type\": \"llama\",\n \"model_type\": \"llama\"}", "config.json|line 2|duplicate"},
        {"{\"model_type\": \"ll\xff\"}", "config.json|not valid UTF-8"},
    };
    model_folder_fill(&place, "llama", "config.json");
    expect_open(SPRY_ERR_FILE, "no config.json");
    for (size_t i = 0; i < SPRY_COUNT(broken); i++) {
        scratch_write(&place, "config.json", broken[i].text, strlen(broken[i].text));
        expect_open(SPRY_ERR_FORMAT, broken[i].words);
    }
    json_t *json = model_config("llama");
    json_object_set_new(json, "hidden_size", json_integer(65));
    model_folder_json(&place, "config.json", json);
    expect_open(SPRY_ERR_FORMAT, "model.embed_tokens.weight|512, 64|512, 65");
    json_decref(json);
}

/* eos_token_id may be a number or a list, in either file; model_max_length may pass any integer. */
static void test_end_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *config, *generation;
        int32_t ends[3];
        size_t n;
    } cases[] = {
        {"{'eos_token_id': 7}", "{}", {7}, 1},
        {"{'eos_token_id': [7, 8, 'x', -1, 1e20]}", "{'eos_token_id': 9}", {7, 8, 9}, 3},
        {"{'eos_token_id': null}", "{'eos_token_id': [10, null]}", {10}, 1},
        {"{'eos_token_id': '-'}", "{}", {0}, 0},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        json_t *config = model_config("llama"), *generation = quoted_json(cases[i].generation);
        spry_model *model;
        spry_error error = {0};
        quoted_json_change(config, cases[i].config);
        model_folder_fill(&place, "llama", "config.json");
        assert_int_equal(unlink(scratch_path(&place, "chat_template.jinja")),
                         0); /* then tokenizer_config.json counts */
        model_folder_json(&place, "config.json", config);
        model_folder_json(&place, "generation_config.json", generation);
        if (spry_model_open(&model, place.folder, &error))
            fail_msg("%s", error.message);
        assert_int_equal(model->n_end_ids, cases[i].n);
        assert_memory_equal(model->end_ids, cases[i].ends, cases[i].n * sizeof *model->end_ids);
        for (size_t k = 0; k < cases[i].n; k++)
            assert_true(spry_model_is_end(model, cases[i].ends[k]));
        assert_false(spry_model_is_end(model, 100));
        assert_false(spry_chat_template_is_own(model->chat));
        spry_model_close(model);
        json_decref(config);
        json_decref(generation);
    }
}

/* generation_config.json recommends; what is no number or out of range recommends nothing. */
static void test_sampling_hints(void **state)
{
    (void)state;
    static const struct {
        const char *generation;
        spry_sampling expected; /* over all fields 0.75 and top-k 9 */
    } cases[] = {
        {"{}", {.temperature = 0.75f, .top_k = 9, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f}},
        {"{'temperature': 0, 'top_k': 0, 'top_p': 1, 'min_p': 0.25, 'repetition_penalty': 1.5}",
         {.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0.25f, .repeat_penalty = 1.5f}},
        {"{'temperature': null, 'top_k': 2.5, 'top_p': 1.01, 'min_p': '0.1', 'repetition_penalty': 0}",
         {.temperature = 0.75f, .top_k = 9, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f}},
        {"{'temperature': -1, 'top_k': 64, 'min_p': 1e300}",
         {.temperature = 0.75f, .top_k = 64, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f}},
        {"{'do_sample': false, 'temperature': 0.5}",
         {.temperature = 0.75f, .top_k = 9, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f}},
        {"{'do_sample': true, 'temperature': 0.5}",
         {.temperature = 0.5f, .top_k = 9, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f}},
    };
    model_folder_fill(&place, "llama", NULL);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        json_t *generation = quoted_json(cases[i].generation);
        spry_sampling s = {.temperature = 0.75f, .top_k = 9, .top_p = 0.75f, .min_p = 0.75f, .repeat_penalty = 0.75f};
        spry_model *model;
        model_folder_json(&place, "generation_config.json", generation);
        assert_int_equal(spry_model_open(&model, place.folder, NULL), SPRY_OK);
        spry_sampling_hints_apply(&model->sampling, &s);
        assert_memory_equal(&s, &cases[i].expected, sizeof s);
        spry_model_close(model);
        json_decref(generation);
    }
}

/* A template may stand in tokenizer_config.json: as a string, or in a list of named ones. */
static void test_template_places(void **state)
{
    (void)state;
    static const char *const places[] = {
        "{'chat_template': '<|im_start|><|im_end|>', 'eos_token': '<|im_end|>'}",
        "{'chat_template': [{'name': 'tool_use', 'template': 'no'}, {'name': 'default', 'template': "
        "'<|im_start|><|im_end|>'}], 'model_max_length': 1000000000000000019884624838656}",
    };
    for (size_t i = 0; i < SPRY_COUNT(places); i++) {
        json_t *json = quoted_json(places[i]);
        spry_model *model;
        spry_error error = {0};
        model_folder_fill(&place, "llama", "chat_template.jinja");
        model_folder_json(&place, "tokenizer_config.json", json);
        if (spry_model_open(&model, place.folder, &error))
            fail_msg("%s", error.message);
        assert_true(spry_chat_template_is_own(model->chat));
        spry_model_close(model);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_file),
        cmocka_unit_test(test_end_tokens),
        cmocka_unit_test(test_sampling_hints),
        cmocka_unit_test(test_template_places),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
