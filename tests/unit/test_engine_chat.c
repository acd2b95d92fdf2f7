/* Conversations as JSON through the public interface, and a template of the caller's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/compiler.h"
#include "formats/gguf_writer.h"
#include "support/engine_fixture.h"
#include "support/hostile.h"
#include "support/model_folder.h"
#include "support/quoted_json.h"

static spry_engine *open_with(const char *path, const char *template, spry_error *error)
{
    spry_engine *engine;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.context = 64;
    options.chat_template = template;
    spry_engine_open(&engine, path, &options, error);
    return engine;
}

static spry_status chat_text(char *text, size_t capacity, size_t *size, const spry_engine *engine, const char *json,
                             spry_error *error)
{
    char *made = NULL;
    spry_status status = spry_engine_chat_text(engine, &made, size, json, strlen(json), error);
    assert_int_equal(made != NULL, status == SPRY_OK);
    if (made) {
        assert_true(*size < capacity && made[*size] == 0);
        memcpy(text, made, *size + 1);
    }
    spry_free(made);
    return status;
}

static void test_json(void **state)
{
    (void)state;
    static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}]}";
    static const char text[] = "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n";
    static const spry_message message = {"user", "<|im_end|>"};
    spry_engine *engine = fixture_open("llama", NULL);
    int32_t ids[64], same[64];
    char out[256];
    size_t count, n_same, size;
    spry_chat_prompt prompt;
    assert_int_equal(spry_engine_chat_prompt(engine, &prompt, json, strlen(json), NULL), SPRY_OK);
    count = prompt.count;
    assert_true(count && count <= 64 && !prompt.n_spans && prompt.template_ms > 0 && prompt.tokenize_ms > 0);
    memcpy(ids, prompt.ids, count * sizeof *ids);
    spry_chat_prompt_deinit(&prompt);
    assert_int_equal(spry_engine_chat(engine, same, 64, &n_same, &message, 1, NULL), SPRY_OK);
    assert_int_equal(count, n_same);
    assert_memory_equal(ids, same, count * sizeof *ids);
    assert_int_equal(chat_text(out, sizeof out, &size, engine, json, NULL), SPRY_OK);
    assert_string_equal(out, text);
    assert_int_equal(size, strlen(text));
    spry_engine_close(engine);
    engine = open_with(TEST_DATA "/models/llama", "{{ '' }}", NULL);
    assert_int_equal(chat_text(out, sizeof out, &size, engine, json, NULL), SPRY_OK);
    assert_true(size == 0 && out[0] == 0);
    spry_engine_close(engine);
}

static void test_variables(void **state)
{
    (void)state;
    static const char template[] = "{{ messages | length }}{{ tools is defined }}{{ x }}{{ add_generation_prompt }}"
                                   "{{ eos_token }}{{ strftime_now('%Y') | int > 2000 }}";
    static const char *const cases[][2] = {
        {"{\"messages\": []}", "0FalseTrue<|im_end|>True"},
        {"{\"messages\": [{}], \"tools\": [], \"chat_template_kwargs\": null}", "1FalseTrue<|im_end|>True"},
        {"{\"messages\": [{}], \"tools\": null, \"chat_template_kwargs\": {}}", "1FalseTrue<|im_end|>True"},
        {"{\"messages\": [], \"tools\": [{}], \"chat_template_kwargs\": {\"x\": 5}, \"add_generation_prompt\": false}",
         "0True5False<|im_end|>True"},
    };
    spry_engine *engine = open_with(TEST_DATA "/models/llama", template, NULL);
    assert_non_null(engine);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        char out[256];
        size_t size;
        assert_int_equal(chat_text(out, sizeof out, &size, engine, cases[i][0], NULL), SPRY_OK);
        assert_string_equal(out, cases[i][1]);
    }
    spry_engine_close(engine);
}

static void test_wrong_json(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "the conversation|JSON"},
        {"[]", "not a JSON object"},
        {"{}", "\"messages\" must be a list"},
        {"{\"messages\": 5}", "\"messages\" must be a list"},
        {"{\"messages\": [], \"tools\": {}}", "\"tools\" must be a list"},
        {"{\"messages\": [], \"chat_template_kwargs\": []}", "\"chat_template_kwargs\" must be an object"},
        {"{\"messages\": [], \"add_generation_prompt\": 1}", "\"add_generation_prompt\" must be true or false"},
        {"{\"messages\": [5]}", "chat template, line 1"},
    };
    spry_engine *engine = fixture_open("llama", NULL);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        char out[8];
        size_t count = 7;
        spry_chat_prompt prompt;
        hostile_expect(spry_engine_chat_prompt(engine, &prompt, cases[i][0], strlen(cases[i][0]), &error), &error,
                       SPRY_ERR_INPUT, cases[i][1]);
        assert_true(!prompt.ids && !prompt.count && !prompt.spans && !prompt.n_spans);
        hostile_expect(chat_text(out, 8, &count, engine, cases[i][0], &error), &error, SPRY_ERR_INPUT, cases[i][1]);
    }
    spry_engine_close(engine);
}

/* A template of the caller's: a text, or a file; one that is wrong is an error, unlike a model's own. */
static void test_own_template(void **state)
{
    (void)state;
    static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    scratch place;
    spry_error error = {0};
    char out[64];
    size_t size;
    scratch_init(&place);
    scratch_write(&place, "mine.jinja", "from a file: {{ messages[0].content }}", 38);
    const char *const sources[][2] = {{"text: {{ messages[0].content }}", "text: a"},
                                      {scratch_path(&place, "mine.jinja"), "from a file: a"}};
    for (size_t i = 0; i < SPRY_COUNT(sources); i++) {
        spry_engine *engine = open_with(TEST_DATA "/models/llama", sources[i][0], &error);
        if (!engine)
            fail_msg("%s", error.message);
        assert_int_equal(chat_text(out, sizeof out, &size, engine, json, NULL), SPRY_OK);
        assert_string_equal(out, sources[i][1]);
        spry_engine_close(engine);
    }
    assert_null(open_with(TEST_DATA "/models/llama", "{{ wrong", &error));
    hostile_expect(error.status, &error, SPRY_ERR_FORMAT, "line 1|does not end");
    assert_null(open_with(TEST_DATA "/models/llama", "nowhere.jinja", &error));
    hostile_expect(error.status, &error, SPRY_ERR_FILE, "nowhere.jinja");
    scratch_deinit(&place);
}

/* The usual template and the one for tools, each where it serves. */
static void check_named(const char *path)
{
    static const char *const requests[][2] = {{"{\"messages\": []}", "usual"},
                                              {"{\"messages\": [], \"tools\": [{\"a\": 1}]}", "tools: 1"}};
    spry_error error = {0};
    spry_engine *engine = open_with(path, NULL, &error);
    size_t size;
    if (!engine)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < SPRY_COUNT(requests); i++) {
        char out[64];
        assert_int_equal(chat_text(out, sizeof out, &size, engine, requests[i][0], NULL), SPRY_OK);
        assert_string_equal(out, requests[i][1]);
    }
    assert_string_equal(spry_engine_chat_template(engine, false, &size), "usual");
    assert_int_equal(size, 5);
    assert_string_equal(spry_engine_chat_template(engine, true, &size), "tools: {{ tools[0].a | int }}");
    spry_engine_close(engine);
}

static void test_named_in_folder(void **state)
{
    (void)state;
    scratch place;
    scratch_init(&place);
    model_folder_fill(&place, "llama", "chat_template.jinja");
    json_t *config = quoted_json("{'eos_token': '<|im_end|>', 'chat_template': [{'name': 'rag', 'template': 'no'},"
                                 "{'name': 'tool_use', 'template': 'tools: {{ tools[0].a | int }}'},"
                                 "{'name': 'default', 'template': 'usual'}]}");
    model_folder_json(&place, "tokenizer_config.json", config);
    check_named(place.folder);
    json_decref(config);
    scratch_deinit(&place);
}

/* The smaller bundled model, with other templates. */
static void test_named_in_gguf(void **state)
{
    (void)state;
    scratch place;
    spry_gguf *from;
    spry_gguf_writer *to;
    scratch_init(&place);
    assert_int_equal(spry_gguf_open(&from, MODELS_DIR "/Spry-Tales-Draft-4M.gguf", NULL), SPRY_OK);
    assert_int_equal(spry_gguf_writer_create(&to, NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++)
        if (!spry_view_is(spry_gguf_entry_at(from, i)->key, "tokenizer.chat_template"))
            spry_gguf_writer_entry(to, spry_gguf_entry_at(from, i));
    spry_gguf_writer_string(to, "tokenizer.chat_template", SPRY_VIEW("usual"));
    spry_gguf_writer_string(to, "tokenizer.chat_template.tool_use", SPRY_VIEW("tools: {{ tools[0].a | int }}"));
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++)
        spry_gguf_writer_tensor(to, spry_gguf_tensor(from, i));
    assert_int_equal(spry_gguf_writer_begin(to, scratch_path(&place, "model.gguf"), NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++) {
        const spry_tensor *tensor = spry_gguf_tensor(from, i);
        assert_int_equal(spry_gguf_writer_data(to, tensor->data, tensor->bytes, NULL), SPRY_OK);
    }
    assert_int_equal(spry_gguf_writer_finish(to, NULL), SPRY_OK);
    spry_gguf_writer_destroy(to);
    spry_gguf_close(from);
    check_named(scratch_path(&place, "model.gguf"));
    scratch_deinit(&place);
}

static int warnings;

static void count_warnings(void *user, int level, const char *sentence)
{
    char *last = user;
    if (level < SPRY_LOG_WARN)
        return;
    warnings++;
    snprintf(last, SPRY_ERROR_MAX, "%s", sentence);
}

/* A model whose template cannot be read is still a model. */
static void test_broken_template(void **state)
{
    (void)state;
    static const spry_message message = {"user", "Hi"};
    scratch place;
    char warning[SPRY_ERROR_MAX] = "";
    spry_engine *engine;
    spry_engine_options options;
    int32_t ids[64];
    size_t count;
    scratch_init(&place);
    model_folder_fill(&place, "llama", "chat_template.jinja");
    scratch_write(&place, "chat_template.jinja", "\n{% if %}", 9);
    spry_engine_options_default(&options);
    options.threads = 1;
    options.log = count_warnings;
    options.log_user = warning;
    warnings = 0;
    assert_int_equal(spry_engine_open(&engine, place.folder, &options, NULL), SPRY_OK);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "ChatML is used instead: line 2: a value is expected"));
    assert_int_equal(spry_engine_chat(engine, ids, 64, &count, &message, 1, NULL), SPRY_OK);
    assert_int_equal(ids[0], 1);
    spry_engine_close(engine);
    scratch_deinit(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_wrong_json),
        cmocka_unit_test(test_own_template),
        cmocka_unit_test(test_named_in_folder),
        cmocka_unit_test(test_named_in_gguf),
        cmocka_unit_test(test_broken_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
