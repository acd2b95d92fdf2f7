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
    assert_null(prompt.call_constraint);
    spry_chat_prompt_deinit(&prompt);
    spry_chat_prompt_deinit(&prompt); /* twice is nothing */
    spry_engine_close(engine);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

typedef struct heard {
    char text[4096];
} heard;

static void on_event(void *user, const spry_chat_event *e)
{
    static const char *const kinds[] = {"C", "R", "call ", "A", "end ", "cut "};
    heard *h = user;
    size_t at = strlen(h->text);
    assert_int_equal(e->size, offsetof(spry_chat_event, reserved));
    snprintf(h->text + at, sizeof h->text - at, "%s%.*s%.*s|", kinds[e->kind], (int)e->name_size,
             e->name ? e->name : "", (int)e->text_size, e->text ? e->text : "");
    assert_true(e->kind != SPRY_CHAT_CALL_BEGIN || strlen(e->id) == 9);
}

static bool feed(void *user, const char *text, size_t size)
{
    return spry_chat_parser_feed(user, text, size, NULL) == SPRY_OK;
}

/* The model answers under the constraint: random weights give a call all the same. */
static void answer_with_call(spry_engine *engine, const char *messages)
{
    spry_chat_prompt prompt;
    spry_chat_parser *parser;
    spry_chat_parser_options options;
    spry_session *session;
    spry_request request;
    spry_result result;
    heard h = {""};
    char json[1024];
    snprintf(json, sizeof json, "{%s, \"tool_choice\": \"required\", \"parallel_tool_calls\": false}", messages);
    make_prompt(&prompt, engine, json);
    spry_chat_parser_options_default(&options);
    options.tools = TOOLS;
    options.prompt = &prompt;
    options.reasoning = true;
    options.on_event = on_event;
    options.user = &h;
    assert_int_equal(spry_chat_parser_create(&parser, engine, &options, NULL), SPRY_OK);
    spry_request_default(&request);
    request.prompt = prompt.ids;
    request.n_prompt = prompt.count;
    request.constraint = SPRY_TOOL_CALLS;
    request.constraint_text = prompt.call_constraint;
    request.marks = true;
    request.max_tokens = 120;
    request.on_text = feed;
    request.user = parser;
    assert_int_equal(spry_session_create(&session, engine, NULL), SPRY_OK);
    assert_int_equal(spry_session_generate(session, &result, &request, NULL), SPRY_OK);
    spry_chat_parser_finish(parser);
    const char *call = strstr(h.text, "call add|"); /* perhaps after a thought */
    if (!call || !strstr(call, "end add|") || strstr(call, "C"))
        fail_msg("%s", h.text);
    spry_session_destroy(session);
    spry_chat_parser_destroy(parser);
    spry_chat_prompt_deinit(&prompt);
}

static void test_required_call(void **state)
{
    (void)state;
    spry_engine *engine = open_engine();
    spry_chat_prompt prompt;
    spry_error error = {0};
    static const char messages[] = "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": " TOOLS;
    char json[1024];

    static const struct {
        const char *choice;
        bool constrained, required;
    } cases[] = {
        {"\"required\"", true, true}, {"\"auto\"", true, false}, {"null", true, false}, {"\"none\"", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(json, sizeof json, "{%s, \"tool_choice\": %s}", messages, cases[i].choice);
        make_prompt(&prompt, engine, json);
        assert_int_equal(prompt.call_constraint != NULL, cases[i].constrained);
        if (prompt.call_constraint) {
            assert_int_equal(strstr(prompt.call_constraint, "\"required\":true") != NULL, cases[i].required);
            assert_int_equal(
                spry_constraint_check(SPRY_TOOL_CALLS, prompt.call_constraint, strlen(prompt.call_constraint), &error),
                SPRY_OK);
        }
        spry_chat_prompt_deinit(&prompt);
    }
    answer_with_call(engine, messages);
    snprintf(json, sizeof json, "{%s, \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"nobody\"}}}",
             messages);
    assert_int_equal(spry_engine_chat_prompt(engine, &prompt, json, strlen(json), &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "nobody"));
    assert_null(prompt.ids);
    spry_chat_prompt_deinit(&prompt);
    spry_engine_close(engine);
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
