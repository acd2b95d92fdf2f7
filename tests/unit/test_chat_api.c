/* Conversations through the public headers: prompts with fragments and required calls, answers in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spry_serve.h"
#include "support/engine_fixture.h"

/* Writes calls as Qwen does. */
static const char template[] = "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
                               "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
                               "{% if tools %}<tool_call>{\"name\": \"n\", \"arguments\": {}}</tool_call>{% endif %}"
                               "{% if add_generation_prompt %}[assistant]{% endif %}{{ extra_text }}";

#define TOOLS                                                                                                          \
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\","               \
    "\"properties\": {\"n\": {\"type\": \"integer\"}}}}}]"

static spry_engine *open_engine(void)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.chat_template = template;
    return fixture_open("llama", &options);
}

static void make_prompt(spry_chat_prompt *prompt, const spry_engine *engine, const char *json)
{
    spry_error error = {0};
    if (spry_engine_chat_prompt(engine, prompt, json, strlen(json), &error))
        fail_msg("%s", error.message);
}

static void prompt_text(char *text, size_t capacity, const spry_engine *engine, const spry_chat_prompt *prompt)
{
    size_t size;
    assert_int_equal(spry_engine_detokenize(engine, text, capacity, &size, prompt->ids, prompt->count, true, NULL),
                     SPRY_OK);
    assert_true(size < capacity);
}

static void test_spans(void **state)
{
    (void)state;
    spry_engine *engine = open_engine();
    spry_chat_prompt prompt;
    char text[256];
    size_t size;
    make_prompt(
        &prompt, engine,
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"once upon a time\","
        "\"cache\": \"span\"}, {\"type\": \"text\", \"text\": \"go on\"}, {\"type\": \"text\", \"text\":"
        "\"a document\", \"cache\": \"span\"}]}]}");
    assert_int_equal(prompt.n_spans, 2);
    static const char *const expected[] = {"once upon a time", "a document"};
    for (size_t i = 0; i < 2; i++) {
        spry_span s = prompt.spans[i];
        assert_true(s.begin < s.end && s.end <= prompt.count && (!i || prompt.spans[0].end <= s.begin));
        assert_int_equal(
            spry_engine_detokenize(engine, text, sizeof text, &size, prompt.ids + s.begin, s.end - s.begin, true, NULL),
            SPRY_OK);
        assert_non_null(strstr(text, expected[i]));
    }
    assert_true(prompt.template_ms >= 0 && prompt.tokenize_ms > 0);
    assert_null(prompt.call_open);
    spry_chat_prompt_deinit(&prompt);
    spry_chat_prompt_deinit(&prompt); /* twice is nothing */
    spry_engine_close(engine);
}

static void test_required_call(void **state)
{
    (void)state;
    spry_engine *engine = open_engine();
    spry_chat_prompt prompt;
    spry_error error = {0};
    char text[512];
    static const char messages[] = "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": " TOOLS;
    char json[1024];

    snprintf(json, sizeof json, "{%s, \"tool_choice\": \"required\"}", messages);
    make_prompt(&prompt, engine, json);
    assert_non_null(prompt.call_open);
    assert_non_null(prompt.call_close);
    assert_non_null(strstr(prompt.call_open, "<tool_call>"));
    assert_non_null(strstr(prompt.call_schema, "integer"));
    prompt_text(text, sizeof text, engine, &prompt);
    size_t opened = strlen(prompt.call_open), whole = strlen(text);
    assert_true(whole > opened);
    assert_string_equal(text + whole - opened, prompt.call_open);
    assert_int_equal(spry_constraint_check(SPRY_JSON_SCHEMA, prompt.call_schema, strlen(prompt.call_schema), &error),
                     SPRY_OK);
    spry_chat_prompt_deinit(&prompt);

    static const char *const free_choices[] = {"\"auto\"", "\"none\"", "null"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(json, sizeof json, "{%s, \"tool_choice\": %s}", messages, free_choices[i]);
        make_prompt(&prompt, engine, json);
        assert_true(!prompt.call_open && !prompt.call_close && !prompt.call_schema);
        spry_chat_prompt_deinit(&prompt);
    }
    snprintf(json, sizeof json, "{%s, \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"nobody\"}}}",
             messages);
    assert_int_equal(spry_engine_chat_prompt(engine, &prompt, json, strlen(json), &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "nobody"));
    assert_null(prompt.ids);
    spry_chat_prompt_deinit(&prompt);
    spry_engine_close(engine);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

typedef struct heard {
    char text[512];
} heard;

static void on_event(void *user, const spry_chat_event *e)
{
    static const char *const kinds[] = {"C", "R", "call ", "A", "end "};
    heard *h = user;
    size_t at = strlen(h->text);
    assert_int_equal(e->size, offsetof(spry_chat_event, reserved));
    snprintf(h->text + at, sizeof h->text - at, "%s%.*s%.*s|", kinds[e->kind], (int)e->name_size,
             e->name ? e->name : "", (int)e->text_size, e->text ? e->text : "");
    assert_true(e->kind != SPRY_CHAT_CALL_BEGIN || strlen(e->id) == 9);
}

static void test_parser(void **state)
{
    (void)state;
    spry_engine *engine = open_engine();
    spry_chat_parser *parser;
    spry_chat_parser_options options;
    heard h = {""};
    static const char answer[] =
        "<think>hm</think>Yes.<tool_call>{\"name\": \"add\", \"arguments\": {\"n\": 1}}</tool_call>";
    spry_chat_parser_options_default(&options);
    options.tools = TOOLS;
    options.reasoning = true;
    options.on_event = on_event;
    options.user = &h;
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, NULL), SPRY_OK);
    assert_int_equal(spry_chat_parser_feed(parser, answer, sizeof answer - 1, NULL), SPRY_OK);
    spry_chat_parser_finish(parser);
    spry_chat_parser_destroy(parser);
    assert_string_equal(h.text, "Rhm|CYes.|call add|Aadd{\"n\": 1}|end add|");

    /* The prompt has begun the call. */
    spry_chat_prompt prompt;
    make_prompt(&prompt, engine,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": " TOOLS
                ", \"tool_choice\": \"required\"}");
    h.text[0] = 0;
    options.prompt = &prompt;
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, NULL), SPRY_OK);
    static const char rest[] = "{\"name\": \"add\", \"arguments\": {\"n\": 2}}";
    const char *begun = strchr(prompt.call_open, '{'); /* where the style begins with the name */
    const char *left = begun ? rest + strlen(begun) : rest;
    assert_int_equal(spry_chat_parser_feed(parser, left, strlen(left), NULL), SPRY_OK);
    assert_int_equal(spry_chat_parser_feed(parser, prompt.call_close, strlen(prompt.call_close), NULL), SPRY_OK);
    spry_chat_parser_finish(parser);
    assert_string_equal(h.text, "call add|Aadd{\"n\": 2}|end add|");
    spry_chat_parser_destroy(parser);
    spry_chat_prompt_deinit(&prompt);

    /* Nothing to look for: all is content. */
    h.text[0] = 0;
    options.prompt = NULL;
    options.tools = NULL;
    options.reasoning = false;
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, NULL), SPRY_OK);
    assert_int_equal(spry_chat_parser_feed(parser, "<think>a", 8, NULL), SPRY_OK);
    spry_chat_parser_finish(parser);
    assert_string_equal(h.text, "C<think>a|");
    spry_chat_parser_destroy(parser);
    spry_engine_close(engine);
}

static void test_wrong_parser(void **state)
{
    (void)state;
    spry_engine *engine = open_engine();
    spry_chat_parser *parser;
    spry_chat_parser_options options;
    spry_error error = {0};
    spry_chat_parser_options_default(&options);
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "on_event"));
    options.on_event = on_event;
    options.tools = "{}";
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "JSON array"));
    options.tools = NULL;
    options.size = 3;
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_chat_parser_options_default"));
    assert_null(parser);
    spry_chat_parser_destroy(NULL);
    spry_engine_close(engine);
}

static void test_tokens(void **state)
{
    (void)state;
    spry_engine *engine = fixture_open("llama", NULL);
    spry_engine_info info;
    int32_t ids[32], part[32];
    size_t count, n_part, size, whole = 0;
    static const char said[] = "once upon a time";
    spry_engine_describe(engine, &info);
    assert_int_equal(spry_engine_tokenize_part(engine, part, 32, &n_part, said, strlen(said), false, NULL), SPRY_OK);
    assert_int_equal(spry_engine_tokenize(engine, ids, 32, &count, said, strlen(said), false, NULL), SPRY_OK);
    assert_true(n_part > 0 && n_part <= count && count <= 32);
    for (size_t i = 0; i < n_part; i++) {
        const char *bytes = spry_engine_token_bytes(engine, part[i], false, &size);
        assert_true(bytes && whole + size <= strlen(said));
        assert_memory_equal(bytes, said + whole, size);
        whole += size;
    }
    assert_int_equal(whole, strlen(said));
    assert_int_equal(spry_engine_tokenize_part(engine, ids, 32, &count, "<|im_end|>", 10, true, NULL), SPRY_OK);
    assert_int_equal(count, 1);
    assert_non_null(spry_engine_token_bytes(engine, ids[0], false, &size));
    assert_int_equal(size, 0);
    assert_memory_equal(spry_engine_token_bytes(engine, ids[0], true, &size), "<|im_end|>", 10);
    assert_int_equal(size, 10);
    assert_null(spry_engine_token_bytes(engine, -1, true, &size));
    assert_null(spry_engine_token_bytes(engine, 1 << 20, true, &size));
    assert_true(spry_engine_begin_token(engine) >= -1 && spry_engine_begin_token(engine) < (int32_t)info.vocabulary);
    spry_engine_close(engine);
}

static void test_constraint_check(void **state)
{
    (void)state;
    spry_error error = {0};
    assert_int_equal(spry_constraint_check(SPRY_REGEX, "a+", 2, &error), SPRY_OK);
    assert_int_equal(spry_constraint_check(SPRY_ANY_TEXT, NULL, 0, &error), SPRY_OK);
    assert_int_equal(spry_constraint_check(SPRY_JSON_OBJECT, NULL, 0, &error), SPRY_OK);
    assert_int_equal(spry_constraint_check(SPRY_REGEX, "a(", 2, &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_constraint_check(SPRY_GBNF, "root ::= (", 10, &error) != SPRY_OK, 1);
    assert_int_equal(spry_constraint_check((spry_constraint)77, "a", 1, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "77"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),        cmocka_unit_test(test_required_call),    cmocka_unit_test(test_parser),
        cmocka_unit_test(test_wrong_parser), cmocka_unit_test(test_constraint_check), cmocka_unit_test(test_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
