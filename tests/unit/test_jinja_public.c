/* Published models' own templates, on conversations with systems, tools and thoughts, against what Jinja2 set up as
 * transformers does makes of them. The data is not ours and is beside the checkout; without it nothing is tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "platform/file.h"
#include "support/rendering.h"

#define FOLDER PUBLIC_DATA "/templates"

/* Messages, tools and the prompt as they are; everything else is a variable of the template. */
static json_t *request_of(const json_t *conversation)
{
    json_t *request = json_object(), *extra = json_object(), *value;
    const char *key;
    json_t *all = json_deep_copy(conversation);
    json_object_foreach(all, key, value)
    {
        bool own = !strcmp(key, "messages") || !strcmp(key, "tools") || !strcmp(key, "add_generation_prompt");
        json_object_set(own ? request : extra, key, value);
    }
    json_object_set_new(request, "extra", extra);
    json_decref(all);
    return request;
}

static void check_case(const spry_chat_template *chat, const char *template, const char *name,
                       const json_t *conversation, const json_t *expected)
{
    json_t *request = request_of(conversation);
    spry_chat_text text;
    spry_error error = {0};
    spry_status status = rendering_request(&text, chat, request, &error);
    const char *wanted = json_string_value(json_object_get(expected, "text"));
    if (wanted && status)
        fail_msg("%s, %s: %s", template, name, error.message);
    /* Instructions that a template refuses become text of the user. */
    const json_t *first = json_array_get(json_object_get(request, "messages"), 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool instructed = !wanted && !status && role && strcmp(role, "system") == 0;
    if (instructed)
        assert_non_null(
            strstr(spry_buffer_view(&text.text).data, json_string_value(json_object_get(first, "content"))));
    if (!wanted && !status && !instructed)
        fail_msg("%s, %s: no error, but %s", template, name, json_string_value(json_object_get(expected, "error")));
    if (wanted && !spry_view_is(spry_buffer_view(&text.text), wanted))
        fail_msg("%s, %s gave\n%s\nand not\n%s", template, name, spry_buffer_view(&text.text).data, wanted);
    if (!wanted && !instructed) { /* "TemplateError: what the template says" */
        const char *said = strchr(json_string_value(json_object_get(expected, "error")), ' ');
        assert_non_null(said);
        assert_non_null(strstr(error.message, said + 1));
    }
    spry_chat_text_deinit(&text);
    json_decref(request);
}

static void check_template(const json_t *entry, const json_t *conversations, size_t *count)
{
    const char *name = json_string_value(json_object_get(entry, "template")), *key;
    char path[1024];
    spry_buffer source;
    json_t *expected, *cases = json_object_get(entry, "cases");
    snprintf(path, sizeof path, FOLDER "/%s", name);
    spry_buffer_init(&source, 1 << 20);
    assert_int_equal(spry_file_read(&source, path, NULL), SPRY_OK);
    spry_chat_template *chat = rendering_template(source.data);
    json_object_foreach(cases, key, expected)
    {
        check_case(chat, name, key, json_object_get(conversations, key), expected);
        ++*count;
    }
    spry_chat_template_destroy(chat);
    spry_buffer_deinit(&source);
}

static void test_golden(void **state)
{
    (void)state;
    spry_buffer text;
    spry_buffer_init(&text, 16 << 20);
    if (spry_file_read(&text, FOLDER "/golden.json", NULL)) {
        print_message("SKIPPED test_golden: ../shared/public is not there\n");
        spry_buffer_deinit(&text);
        skip();
    }
    json_t *golden = rendering_json(text.data), *entry;
    size_t i, count = 0;
    json_array_foreach(json_object_get(golden, "templates"), i, entry)
        check_template(entry, json_object_get(golden, "conversations"), &count);
    assert_true(count >= 108);
    json_decref(golden);
    spry_buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
