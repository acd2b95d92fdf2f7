/* Answers taken apart: words, thoughts and calls, in every style, cut at every byte; and what a call must look like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "support/rendering.h"
#include "template/tool_calls.h"
#include "template/tool_styles.h"

enum { LOG_BYTES = 1 << 16 };

static const char declared[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\","
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}}}}]";

/* Events as text: C(...) R(...) for words, f{...} for calls. Deltas that follow each other are one. */
typedef struct event_log {
    spry_buffer text;
    spry_answer_event_kind last;
    size_t calls, open;
    char id[64];
} event_log;

static void on_event(void *user, const spry_answer_event *event)
{
    event_log *log = user;
    bool words = event->kind == SPRY_ANSWER_CONTENT || event->kind == SPRY_ANSWER_REASONING;
    assert_true(!words || event->text.size > 0);
    if (words && log->text.size && log->last == event->kind)
        log->text.size--; /* its closing parenthesis */
    else if (words)
        spry_buffer_text(&log->text, event->kind == SPRY_ANSWER_CONTENT ? "C(" : "R(");
    if (event->kind == SPRY_ANSWER_CALL_BEGIN) {
        assert_int_equal(log->open, 0);
        assert_int_equal(event->index, log->calls);
        assert_true(strlen(event->id) > 0 && strlen(event->id) < sizeof log->id);
        assert_string_not_equal(event->id, log->id);
        snprintf(log->id, sizeof log->id, "%s", event->id);
        spry_buffer_append(&log->text, event->name.data, event->name.size);
        log->open = 1;
    }
    if (event->kind == SPRY_ANSWER_ARGUMENTS) {
        assert_int_equal(event->index, log->calls);
        assert_int_equal(log->open, 1);
    }
    if (event->kind == SPRY_ANSWER_CALL_CUT)
        spry_buffer_text(&log->text, " CUT(");
    spry_buffer_append(&log->text, event->text.data, event->text.size);
    if (words)
        spry_buffer_text(&log->text, ")");
    if (event->kind == SPRY_ANSWER_CALL_CUT)
        spry_buffer_text(&log->text, ")");
    if (event->kind == SPRY_ANSWER_CALL_END || event->kind == SPRY_ANSWER_CALL_CUT) {
        assert_int_equal(log->open, 1);
        log->open = 0;
        log->calls++;
    }
    log->last = event->kind;
}

typedef struct answer_case {
    const char *style, *answer, *expected;
    bool in_thought;
} answer_case;

/* Fed in pieces: up to `cut`, then the rest, `step` bytes at a time. */
static void parse(event_log *log, const answer_case *c, const json_t *tools, size_t cut, size_t step)
{
    spry_answer_parser *parser;
    spry_answer_options options = {
        .tools = true,
        .style = spry_tool_style_named(c->style),
        .thoughts = spry_thought_style_find(spry_view_of(strstr(c->answer, "[THINK]") ? "[THINK]" : "")),
        .declared = tools,
        .reasoning = true,
        .prompt = spry_view_of(c->in_thought ? "<think>\n" : ""),
        .seed = 1,
        .on_event = on_event,
        .user = log};
    spry_view answer = spry_view_of(c->answer);
    *log = (event_log){0};
    spry_buffer_init(&log->text, LOG_BYTES);
    assert_int_equal(spry_answer_parser_create(&parser, &options, NULL), SPRY_OK);
    for (size_t at = 0, size; at < answer.size; at += size) {
        size = at < cut ? cut - at : step < answer.size - at ? step : answer.size - at;
        unsigned char *piece = hostile_copy(answer.data + at, size);
        assert_int_equal(spry_answer_parser_feed(parser, (spry_view){(char *)piece, size}, NULL), SPRY_OK);
        free(piece);
    }
    spry_answer_parser_finish(parser);
    spry_answer_parser_destroy(parser);
}

static void check(const answer_case *c, const json_t *tools, size_t cut, size_t step)
{
    event_log log;
    parse(&log, c, tools, cut, step);
    if (!spry_view_is(spry_buffer_view(&log.text), c->expected))
        fail_msg("%s, cut at %zu\n  gave     %s\n  and not  %s", c->answer, cut, spry_buffer_view(&log.text).data,
                 c->expected);
    assert_int_equal(log.open, 0);
    spry_buffer_deinit(&log.text);
}

static void check_cases(const answer_case *cases, size_t count)
{
    json_t *tools = rendering_json(declared);
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(cases[i].answer);
        for (size_t cut = 0; cut <= size; cut++)
            check(&cases[i], tools, cut, size);
        for (size_t step = 1; step <= 3; step++)
            check(&cases[i], tools, 0, step);
    }
    json_decref(tools);
}

static void test_words(void **state)
{
    (void)state;
    static const answer_case cases[] = {
        {"hermes", "", "", false},
        {"hermes", "Hello", "C(Hello)", false},
        {"hermes", " \n", "C( \n)", false},
        {"hermes", " a <b> <tool", "C( a <b> <tool)", false},
        {"hermes", "<think>\nhm\n </think>\n\nHi", "R(hm)C(Hi)", false},
        {"hermes", "\n<think></think>Hi", "C(Hi)", false},
        {"hermes", "<think>a </thin b", "R(a </thin b)", false},
        {"hermes", "<think>a\n", "R(a\n)", false},
        {"hermes", "<thinker>", "C(<thinker>)", false},
        {"hermes", "a <think>b</think>", "C(a <think>b</think>)", false},
        {"hermes", "\nhm</think>\nHi <think>", "R(hm)C(Hi <think>)", true},
        {"hermes", "hm", "R(hm)", true},
        {"mistral", "[THINK]a[/THINK]b", "R(a)C(b)", false},
    };
    check_cases(cases, SPRY_COUNT(cases));
}

static void test_hermes(void **state)
{
    (void)state;
#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\":  \"}\\\"{\"}}\n</tool_call>"
    static const answer_case cases[] = {
        {"hermes", CALL, "f{\"s\":  \"}\\\"{\"}", false},
        {"hermes", "<think>x</think>\n\n" CALL "\n" CALL "\n", "R(x)f{\"s\":  \"}\\\"{\"}f{\"s\":  \"}\\\"{\"}", false},
        {"hermes", "Let me.\n" CALL " Done.", "C(Let me.)f{\"s\":  \"}\\\"{\"}C( Done.)", false},
        {"hermes", "<tool_call>{\"name\": \"g\"}</tool_call>", "g{}", false},
        {"hermes", "<tool_call>{\"arguments\": {\"a\": [{}]}, \"name\": \"a\\u0062\"}</tool_call>", "ab{\"a\": [{}]}",
         false},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 1}\"}</tool_call>", "f{\"n\": 1}", false},
        {"hermes",
         "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}</tool_call>", "f{}",
         false},
        {"hermes", "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>", "f{}g{}", false},
        /* the closing mark may be missing at the end */
        {"hermes", "<tool_call>{\"name\": \"f\"}\n", "f{}", false},
        {"hermes", "<tool_call>{\"name\": \"f\"}</tool", "f{}", false},
        /* and these are none */
        {"hermes", "<tool_call>{\"name\": \"f\"", "C(<tool_call>{\"name\": \"f\")", false},
        {"hermes", "<tool_call>{\"name\": f}</tool_call>", "C(<tool_call>{\"name\": f}</tool_call>)", false},
        {"hermes", "<tool_call>{\"name\": 5}</tool_call>", "C(<tool_call>{\"name\": 5}</tool_call>)", false},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
         "C(<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>)", false},
        {"hermes", "<tool_call>{} junk</tool_call>", "C(<tool_call>{} junk</tool_call>)", false},
        {"hermes", "<tool_call>words</tool_call>", "C(<tool_call>words</tool_call>)", false},
        {"hermes", "<tool_call>[]</tool_call>", "C(<tool_call>[]</tool_call>)", false},
        {"hermes", "<tool_call>{]</tool_call>", "C(<tool_call>{]</tool_call>)", false},
        {"hermes", "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>", "C(<tool_call>)f{}", false},
        {"hermes", "<tool_call>", "C(<tool_call>)", false},
        {"hermes", "{\"name\": \"f\", \"arguments\": {}}", "C({\"name\": \"f\", \"arguments\": {}})", false},
    };
#undef CALL
    check_cases(cases, SPRY_COUNT(cases));
}

static void test_xml(void **state)
{
    (void)state;
    static const answer_case cases[] = {
        {"qwen-coder",
         "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>\n</"
         "tool_call>",
         "f{\"s\": \"12\", \"n\": 12}", false},
        {"qwen-coder",
         "ok <tool_call><function=g><parameter=a>x \"y\"\n</parameter><parameter=b>{\"k\": "
         "[1]}</parameter></function></tool_call>",
         "C(ok)g{\"a\": \"x \\\"y\\\"\", \"b\": {\"k\": [1]}}", false},
        {"qwen-coder", "<tool_call><function=g></function></tool_call>\n<tool_call><function=h></function></tool_call>",
         "g{}h{}", false},
        {"qwen-coder", "<tool_call><function=g><parameter=a>\n</parameter></function>", "g{\"a\": \"\"}", false},
        {"qwen-coder", "<tool_call>{\"name\": \"f\"}</tool_call>", "f{}", false},
        {"qwen-coder", "<tool_call><function=g><parameter=a>x</function></tool_call>",
         "C(<tool_call><function=g><parameter=a>x</function></tool_call>)", false},
        {"qwen-coder", "<tool_call><function=></function></tool_call>",
         "C(<tool_call><function=></function></tool_call>)", false},
        {"qwen-coder", "<tool_call><functio", "C(<tool_call><functio)", false},
    };
    check_cases(cases, SPRY_COUNT(cases));
}

static void test_llama(void **state)
{
    (void)state;
    static const answer_case cases[] = {
        {"llama", "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "f{\"n\": 1}", false},
        {"llama", "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "f{}", false},
        {"llama", "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}", "other{}", false},
        {"llama", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"n\":2}}",
         "f{}f{\"n\":2}", false},
        {"llama", "{\"name\": \"f\", \"parameters\": {}} and more", "f{}C( and more)", false},
        {"llama", "<|python_tag|>print(1)", "C(<|python_tag|>print(1))", false},
        {"llama", "<|python_tag|>f.call\n(n\n = 1)", "f{\"n\": 1}", false},
        /* JSON that is an answer, not a call */
        {"llama", "{\"names\": [1]}", "C({\"names\": [1]})", false},
        {"llama", "{\"name\": \"Bob\"}", "C({\"name\": \"Bob\"})", false},
        {"llama", "{\"name\": \"other\", \"parameters\": {}}", "C({\"name\": \"other\", \"parameters\": {}})", false},
        {"llama", "{}", "C({})", false},
        {"llama", " [1, 2]", "C( [1, 2])", false},
        {"llama", "{\"na", "C({\"na)", false},
        {"llama", "a {\"name\": \"f\", \"parameters\": {}}", "C(a {\"name\": \"f\", \"parameters\": {}})", false},
        {"json", "[{\"name\": \"f\", \"arguments\": {}}, {\"function\": \"f\", \"parameters\": {\"n\":1}}]",
         "f{}f{\"n\":1}", false},
        {"json", "{\"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}]}", "f{}", false},
        {"json", "{\"tool_calls\": 5}", "C({\"tool_calls\": 5})", false},
        {"phi", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]", "f{\"n\": 1}", false},
    };
    check_cases(cases, SPRY_COUNT(cases));
}

static void test_mistral(void **state)
{
    (void)state;
    static const answer_case cases[] = {
        {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
         "f{\"n\": 1}g{}", false},
        {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abc123def\"}]", "f{}", false},
        {"mistral-named", "ok[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[ARGS]{}", "C(ok)f{\"n\": 1}g{}", false},
        {"mistral-named", "[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}", "f{}", false},
        {"mistral-named", "[TOOL_CALLS]f[ARGS]no", "C([TOOL_CALLS]f[ARGS]no)", false},
        {"mistral-named", "[TOOL_CALLS]f and no more", "C([TOOL_CALLS]f and no more)", false},
        {"mistral", "[TOOL_CALLS][1]", "C([TOOL_CALLS][1])", false},
        {"mistral", "see [TOOL", "C(see [TOOL)", false},
    };
    check_cases(cases, SPRY_COUNT(cases));
}

/* Words leave at once; only what may be a mark is kept. */
static void test_held_back(void **state)
{
    (void)state;
    event_log log = {0};
    spry_answer_parser *parser;
    spry_answer_options options = {
        .tools = true, .style = spry_tool_style_named("hermes"), .on_event = on_event, .user = &log};
    static const char *const pieces[][2] = {
        {"Hello ", "C(Hello)"}, {"<b", "C(Hello <b)"}, {" <to", "C(Hello <b)"}, {"ad", "C(Hello <b <toad)"}};
    spry_buffer_init(&log.text, LOG_BYTES);
    assert_int_equal(spry_answer_parser_create(&parser, &options, NULL), SPRY_OK);
    for (size_t i = 0; i < SPRY_COUNT(pieces); i++) {
        assert_int_equal(spry_answer_parser_feed(parser, spry_view_of(pieces[i][0]), NULL), SPRY_OK);
        assert_true(spry_view_is(spry_buffer_view(&log.text), pieces[i][1]));
    }
    spry_answer_parser_destroy(parser);
    spry_buffer_deinit(&log.text);
}

static const char *random_style(uint64_t *random)
{
    size_t count = 0;
    while (spry_tool_style_at(count))
        count++;
    return spry_tool_style_at(hostile_random(random) % count)->name;
}

/* Random text made of pieces of marks: nothing is lost, and cutting changes nothing. */
static void test_random(void **state)
{
    (void)state;
    static const char *const parts[] = {"<tool_call>",
                                        "</tool_call>",
                                        "{\"name\": \"f\", \"arguments\": {}}",
                                        "<function=",
                                        "f>",
                                        "</function>",
                                        "<think>",
                                        "</think>",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "{",
                                        "}",
                                        "\"",
                                        "[",
                                        "]",
                                        " ",
                                        "a",
                                        "\\",
                                        ",",
                                        ";",
                                        "<"};
    uint64_t random = 11;
    for (int round = 0; round < 4000; round++) {
        char answer[512] = "";
        size_t size = 0;
        for (uint64_t n = hostile_random(&random) % 10; n > 0; n--)
            size += (size_t)snprintf(answer + size, sizeof answer - size, "%s",
                                     parts[hostile_random(&random) % SPRY_COUNT(parts)]);
        answer_case c = {random_style(&random), answer, "", round % 7 == 0};
        event_log whole, bytes;
        parse(&whole, &c, NULL, size, size);
        parse(&bytes, &c, NULL, 0, 1);
        spry_view a = spry_buffer_view(&whole.text), b = spry_buffer_view(&bytes.text);
        if (!spry_view_equal(a, b))
            fail_msg("%s: whole %.*s, in bytes %.*s", answer, (int)a.size, a.data, (int)b.size, b.data);
        if (whole.calls == 0 && size && !strstr(answer, "think>") && !c.in_thought) {
            if (a.size != size + 3)
                fail_msg("%s became %.*s", answer, (int)a.size, a.data);
            assert_memory_equal(a.data + 2, answer, size);
        }
        spry_buffer_deinit(&whole.text);
        spry_buffer_deinit(&bytes.text);
    }
}

/* ---- styles and forms -------------------------------------------------------------------------------------------- */

static void test_styles(void **state)
{
    (void)state;
    static const struct {
        const char *source, *style;
    } cases[] = {
        {"... <tool_call>\\n{\"name\"", "hermes"},
        {"<tool_call>\\n<function=x><parameter=y>", "qwen-coder"},
        {"<|python_tag|>", "llama"},
        {"[TOOL_CALLS][", "mistral"},
        {"[TOOL_CALLS]' + name + '[ARGS]", "mistral-named"},
        {"<|tool_call|>", "phi"},
        {"", "json"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        assert_string_equal(spry_tool_style_find(spry_view_of(cases[i].source))->name, cases[i].style);
    assert_null(spry_tool_style_named("no such style"));
    const spry_tool_style *kimi = spry_tool_style_named("kimi");
    const spry_thought_style *thoughts = spry_thought_style_default();
    assert_true(spry_answer_needs_token(kimi, thoughts, SPRY_VIEW("<|tool_calls_section_begin|>")));
    assert_true(spry_answer_needs_token(kimi, thoughts, SPRY_VIEW("<think>")));
    assert_false(spry_answer_needs_token(kimi, thoughts, SPRY_VIEW("<|im_end|>")));
    assert_false(spry_answer_needs_token(kimi, thoughts, SPRY_VIEW("")));
}

static void test_choice(void **state)
{
    (void)state;
    static const char two[] = "[{\"name\": \"f\"}, {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";
    static const struct {
        const char *tools, *choice;
        size_t count;
        bool required;
        const char *words; /* of an error */
    } cases[] = {
        {two, "\"auto\"", 2, false, NULL},
        {two, "null", 2, false, NULL},
        {two, "\"none\"", 0, false, NULL},
        {two, "\"required\"", 2, true, NULL},
        {two, "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}", 1, true, NULL},
        {two, "{\"type\": \"function\", \"name\": \"g\"}", 1, true, NULL},
        {two,
         "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\", \"tools\": [{\"type\": \"function\", "
         "\"function\": {\"name\": \"g\"}}]}}",
         1, false, NULL},
        {two, "{\"type\": \"allowed_tools\", \"mode\": \"required\", \"tools\": [{\"name\": \"f\"}]}", 1, true, NULL},
        {two, "{\"type\": \"allowed_tools\", \"mode\": \"required\", \"tools\": []}", 0, false, "needs a list"},
        {two, "{\"type\": \"allowed_tools\", \"tools\": [{\"name\": \"h\"}]}", 0, false, "names h|not among the tools"},
        {"[]", "\"auto\"", 0, false, NULL},
        {"[]", "\"required\"", 0, false, "there are no tools"},
        {two, "{\"type\": \"function\", \"function\": {\"name\": \"h\"}}", 0, false, "names h|not among the tools"},
        {two, "\"sometimes\"", 0, false, "tool_choice must be"},
        {two, "5", 0, false, "tool_choice must be"},
        {"[{}]", "\"auto\"", 0, false, "tools[0] has no name"},
        {"[{\"name\": \"f\"}, {\"name\": \"f\"}]", "\"auto\"", 0, false, "same name"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        json_t *tools = rendering_json(cases[i].tools), *choice = rendering_json(cases[i].choice);
        spry_tool_choice read;
        spry_error error = {0};
        spry_status status = spry_tool_choice_read(&read, tools, choice, &error);
        if (cases[i].words)
            hostile_expect(status, &error, SPRY_ERR_INPUT, cases[i].words);
        else
            assert_int_equal(status, SPRY_OK);
        assert_int_equal(read.required, cases[i].required);
        assert_int_equal(json_array_size(read.functions), cases[i].count);
        spry_tool_choice_deinit(&read);
        json_decref(tools);
        json_decref(choice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),  cmocka_unit_test(test_hermes),  cmocka_unit_test(test_xml),
        cmocka_unit_test(test_llama),  cmocka_unit_test(test_mistral), cmocka_unit_test(test_held_back),
        cmocka_unit_test(test_random), cmocka_unit_test(test_styles),  cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
