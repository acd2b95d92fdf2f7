/* Calls under the grammar of every style: whatever is drawn at random is a call of a declared tool with arguments of
 * its schema, and the parser reads it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "grammar/grammar.h"
#include "platform/clock.h"
#include "support/call_turns.h"
#include "template/arguments.h"
#include "template/tool_styles.h"

enum { STEPS_MAX = 600, ROUNDS = 12 };

static json_t *functions_of(const char *tools)
{
    spry_tool_choice choice;
    json_t *list = rendering_json(tools);
    assert_int_equal(spry_tool_choice_read(&choice, list, NULL, NULL), SPRY_OK);
    json_decref(list);
    return choice.functions;
}

static spry_status compile(spry_grammar **out, const spry_tool_style *style, json_t *functions, bool required,
                           bool parallel, bool in_thought, spry_error *error)
{
    json_t *spec = json_pack("{s:s, s:O, s:b, s:b, s:b, s:s, s:s}", "style", style->name, "tools", functions,
                             "required", required, "parallel", parallel, "in_thought", in_thought, "thought_open",
                             "<think>", "thought_close", "</think>");
    char *text = json_dumps(spec, JSON_COMPACT);
    spry_status status = spry_grammar_create(out, SPRY_GRAMMAR_TOOL_CALLS, spry_view_of(text), error);
    free(text);
    json_decref(spec);
    return status;
}

static bool take(spry_matcher *matcher, spry_buffer *text, spry_view bytes)
{
    size_t taken;
    assert_int_equal(spry_matcher_bytes(matcher, &taken, bytes, NULL), SPRY_OK);
    if (taken == bytes.size)
        spry_buffer_append(text, bytes.data, bytes.size);
    return taken == bytes.size;
}

/* Bytes at random, letters more often than others, and then the shortest end. `begin` is put first. */
static void draw(spry_buffer *text, spry_grammar *grammar, const char *begin, uint64_t *random)
{
    spry_matcher *matcher;
    spry_error error = {0};
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, NULL), SPRY_OK);
    spry_buffer_clear(text);
    assert_true(take(matcher, text, spry_view_of(begin)));
    for (uint64_t n = hostile_random(random) % STEPS_MAX; n > 0 && !spry_matcher_must_end(matcher); n--) {
        uint64_t allowed[4];
        unsigned char choices[256];
        size_t count = 0;
        spry_matcher_next_bytes(matcher, allowed);
        for (unsigned byte = 0; byte < 256; byte++)
            if (allowed[byte / 64] >> byte % 64 & 1)
                choices[count++] = (unsigned char)byte;
        if (!count)
            break;
        unsigned char byte = choices[hostile_random(random) % count];
        if (hostile_random(random) % 4 == 0 && (allowed['"' / 64] >> '"' % 64 & 1))
            byte = '"';
        if (hostile_random(random) % 8 == 0 && (allowed['<' / 64] >> '<' % 64 & 1))
            byte = '<';
        assert_true(take(matcher, text, (spry_view){(char *)&byte, 1}));
    }
    spry_buffer end;
    spry_buffer_init(&end, 1 << 20);
    if (spry_matcher_completion(matcher, &end, &error))
        fail_msg("%s after %s", error.message, spry_buffer_view(text).data);
    spry_buffer_append(text, end.data, end.size);
    spry_buffer_deinit(&end);
    spry_matcher_destroy(matcher);
}

typedef struct judge {
    const spry_tool_style *style;
    const json_t *functions;
    spry_view answer;
    spry_buffer arguments;
    size_t calls;
} judge;

/* Whether arguments are of the function's schema. */
static bool arguments_right(const json_t *functions, spry_view name, spry_view arguments)
{
    const json_t *function = spry_tool_find(functions, name);
    if (!function)
        return false;
    char *schema = json_dumps(json_object_get(function, "parameters"), 0);
    spry_grammar *grammar;
    spry_matcher *matcher;
    size_t taken;
    assert_int_equal(spry_grammar_create(&grammar, SPRY_GRAMMAR_JSON_SCHEMA, spry_view_of(schema), NULL), SPRY_OK);
    assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, NULL), SPRY_OK);
    assert_int_equal(spry_matcher_bytes(matcher, &taken, arguments, NULL), SPRY_OK);
    bool right = taken == arguments.size && spry_matcher_may_end(matcher);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
    free(schema);
    return right;
}

static void on_event(void *user, const spry_answer_event *event)
{
    judge *j = user;
    spry_view arguments = spry_buffer_view(&j->arguments);
    if (event->kind == SPRY_ANSWER_CALL_BEGIN)
        spry_buffer_clear(&j->arguments);
    if (event->kind == SPRY_ANSWER_ARGUMENTS)
        spry_buffer_append(&j->arguments, event->text.data, event->text.size);
    if (event->kind == SPRY_ANSWER_CALL_CUT)
        fail_msg("%s: cut: %.*s", j->style->name, (int)j->answer.size, j->answer.data);
    if (event->kind == SPRY_ANSWER_CALL_END) {
        j->calls++;
        if (!arguments_right(j->functions, event->name, arguments))
            fail_msg("%s: %.*s %.*s, from %.*s", j->style->name, (int)event->name.size, event->name.data,
                     (int)arguments.size, arguments.data, (int)j->answer.size, j->answer.data);
    }
}

/* The number of calls in an answer. */
static size_t check(const spry_tool_style *style, const json_t *functions, spry_view answer, const char *prompt)
{
    spry_answer_parser *parser;
    judge j = {.style = style, .functions = functions, .answer = answer};
    const spry_answer_options options = {.tools = true,
                                         .style = style,
                                         .declared = functions,
                                         .reasoning = true,
                                         .prompt = spry_view_of(style->prompted ? style->open : prompt),
                                         .on_event = on_event,
                                         .user = &j};
    spry_buffer_init(&j.arguments, 1 << 22);
    assert_int_equal(spry_answer_parser_create(&parser, &options, NULL), SPRY_OK);
    assert_int_equal(spry_answer_parser_feed(parser, answer, NULL), SPRY_OK);
    spry_answer_parser_finish(parser);
    spry_answer_parser_destroy(parser);
    spry_buffer_deinit(&j.arguments);
    return j.calls;
}

/* A call is required: there is one, or with parallel calls at least one, and nothing else. */
static void check_required(const char *tools)
{
    json_t *functions = functions_of(tools);
    uint64_t random = 5;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 22);
    for (size_t i = 0; spry_tool_style_at(i); i++) {
        const spry_tool_style *style = spry_tool_style_at(i);
        for (int form = 0; form < 3; form++) {
            bool parallel = form == 1, thinks = form == 2 && !style->prompted;
            spry_grammar *grammar;
            spry_error error = {0};
            if (compile(&grammar, style, functions, true, parallel, thinks, &error))
                fail_msg("%s: %s", style->name, error.message);
            for (int round = 0; round < ROUNDS; round++) {
                draw(&text, grammar, thinks ? "hm <tool_call> </think>" : "", &random);
                size_t calls = check(style, functions, spry_buffer_view(&text), thinks ? "<think>" : "");
                if (calls == 0 || (calls > 1 && !parallel))
                    fail_msg("%s: %zu calls in %s", style->name, calls, spry_buffer_view(&text).data);
            }
            spry_grammar_unref(grammar);
        }
    }
    spry_buffer_deinit(&text);
    json_decref(functions);
}

static void test_required(void **state)
{
    (void)state;
    check_required(call_turn_tools);
}

/* Patterns and lengths of strings hold in every style, also where strings have no quotes. */
static void test_patterns(void **state)
{
    (void)state;
    check_required(
        "[{\"type\": \"function\", \"function\": {\"name\": \"ship\", \"parameters\": {\"type\": \"object\","
        "\"properties\": {\"code\": {\"type\": \"string\", \"pattern\": \"^[A-Z]{2}-[0-9]+$\", \"maxLength\": 6},"
        "\"to\": {\"type\": \"string\", \"minLength\": 3, \"maxLength\": 9},"
        "\"note\": {\"type\": \"string\", \"pattern\": \"x.y\"},"
        "\"day\": {\"type\": \"string\", \"format\": \"date\"},"
        "\"any\": {\"type\": \"string\", \"format\": \"not one\"}},"
        "\"required\": [\"code\", \"to\", \"note\", \"day\", \"any\"]}}}]");
}

/* No call is required: after the opening mark there is one all the same. */
static void test_auto(void **state)
{
    (void)state;
    json_t *functions = functions_of(call_turn_tools);
    uint64_t random = 7;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 22);
    for (size_t i = 0; spry_tool_style_at(i); i++) {
        const spry_tool_style *style = spry_tool_style_at(i);
        char begin[256];
        spry_grammar *grammar;
        spry_error error = {0};
        if (compile(&grammar, style, functions, false, true, false, &error))
            fail_msg("%s: %s", style->name, error.message);
        snprintf(begin, sizeof begin, style->prompted ? "all\nLet me see.%s" : "Let me see. %s",
                 style->section_open ? style->section_open : style->open);
        for (int round = 0; round < ROUNDS; round++) {
            draw(&text, grammar, "", &random);
            check(style, functions, spry_buffer_view(&text), "");
            draw(&text, grammar, begin, &random);
            if (check(style, functions, spry_buffer_view(&text), "") == 0)
                fail_msg("%s: no call in %s", style->name, spry_buffer_view(&text).data);
        }
        draw(&text, grammar, style->prompted ? "all\nNo calls" : "No calls at all", &random);
        spry_grammar_unref(grammar);
    }
    spry_buffer_deinit(&text);
    json_decref(functions);
}

/* So many tools that only names are enforced. */
static void test_many_tools(void **state)
{
    (void)state;
    static const char *const styles[] = {"hermes", "llama", "qwen-coder", "mistral-named", "gemma", "lfm"};
    json_t *tools = json_array();
    for (int i = 0; i < 10000; i++) {
        char name[32];
        snprintf(name, sizeof name, "tool_%d", i);
        json_array_append_new(tools,
                              json_pack("{s:s, s:{s:s, s:{s:{s:s}, s:{s:s}}}}", "name", name, "parameters", "type",
                                        "object", "properties", "city", "type", "string", "days", "type", "integer"));
    }
    spry_tool_choice choice;
    assert_int_equal(spry_tool_choice_read(&choice, tools, NULL, NULL), SPRY_OK);
    assert_int_equal(json_array_size(choice.functions), 10000);
    for (size_t i = 0; i < SPRY_COUNT(styles); i++) {
        const spry_tool_style *style = spry_tool_style_named(styles[i]);
        spry_grammar *grammar;
        spry_error error = {0};
        uint64_t random = 3, start = spry_clock_ns();
        spry_buffer text;
        spry_status status = compile(&grammar, style, choice.functions, true, false, false, &error);
        printf("%s: 10000 tools in %.0f ms\n", styles[i], (double)(spry_clock_ns() - start) / 1e6);
        if (status)
            fail_msg("%s: %s", styles[i], error.message);
        spry_buffer_init(&text, 1 << 22);
        draw(&text, grammar, "", &random);
        assert_non_null(strstr(spry_buffer_view(&text).data, "tool_"));
        spry_buffer_deinit(&text);
        spry_grammar_unref(grammar);
    }
    spry_tool_choice_deinit(&choice);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_required), cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_auto), cmocka_unit_test(test_many_tools)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
