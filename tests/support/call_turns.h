/* Turns with tool calls, rendered by a template and parsed back. Include after cmocka.h. */
#ifndef SPRY_TESTS_CALL_TURNS_H
#define SPRY_TESTS_CALL_TURNS_H

#include "support/rendering.h"
#include "template/tool_calls.h"

enum { CALL_TURNS_MAX = 4 };

static const char call_turn_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"The weather.\","
    "  \"parameters\": {\"type\": \"object\", \"properties\": {"
    "    \"city\": {\"type\": \"string\", \"description\": \"where\"},"
    "    \"days\": {\"type\": \"integer\", \"description\": \"how many\"},"
    "    \"factor\": {\"type\": \"number\", \"description\": \"f\"},"
    "    \"exact\": {\"type\": \"boolean\", \"description\": \"e\"},"
    "    \"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"description\": \"t\"},"
    "    \"place\": {\"type\": \"object\", \"description\": \"p\", \"properties\": {"
    "       \"at\": {\"type\": \"array\", \"items\": {\"type\": \"number\"}}, \"name\": {\"type\": \"string\"}}, "
    "\"additionalProperties\": false},"
    "    \"code\": {\"type\": [\"string\", \"null\"], \"description\": \"c\"}},"
    "   \"required\": [\"city\"], \"additionalProperties\": false}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"list_all\", \"description\": \"All.\","
    "  \"parameters\": {\"type\": \"object\", \"properties\": {}, \"required\": [], \"additionalProperties\": "
    "false}}}]";

/* One message of an assistant: content, thoughts, and calls as name and arguments. */
typedef struct call_turn {
    const char *what, *content, *thoughts;
    const char *calls[CALL_TURNS_MAX][2];
} call_turn;

static const call_turn call_turns[] = {
    {"one call", "", NULL, {{"get_weather", "{\"city\": \"Paris\", \"days\": 3}"}}},
    {"quotes, lines", "", NULL, {{"get_weather", "{\"city\": \"a \\\"b\\\" c\\nd\\n  e, f: {g} [h]\"}"}}},
    {"unicode, marks",
     "",
     NULL,
     {{"get_weather",
       "{\"city\": \"Z\\u00fcrich \\u5317\\u4eac \\ud83d\\ude00 <b> </x> <tool_call> </tool_call> [TOOL_CALLS] "
       "</parameter> x\"}"}}},
    {"numbers", "", NULL, {{"get_weather", "{\"city\": \"123\", \"days\": -7, \"factor\": 2.5, \"exact\": true}"}}},
    {"nested",
     "",
     NULL,
     {{"get_weather", "{\"city\": \"x\", \"tags\": [\"a\", \"b c\"], \"place\": {\"at\": [1.5, 2], \"name\": \"n\"}, "
                      "\"exact\": false}"}}},
    {"null", "", NULL, {{"get_weather", "{\"city\": \"true\", \"code\": null}"}}},
    {"string or null", "", NULL, {{"get_weather", "{\"city\": \"x\", \"code\": \"123\"}"}}},
    {"no arguments", "", NULL, {{"list_all", "{}"}}},
    {"two calls", "", NULL, {{"get_weather", "{\"city\": \"Paris\"}"}, {"list_all", "{}"}}},
    {"two of one", "", NULL, {{"get_weather", "{\"city\": \"A\"}"}, {"get_weather", "{\"city\": \"B\", \"days\": 1}"}}},
    {"content", "I will look it up.", NULL, {{"get_weather", "{\"city\": \"Paris\"}"}}},
    {"thoughts", "", "The user wants the weather.", {{"get_weather", "{\"city\": \"Paris\"}"}}},
    {"both", "One moment.", "I need\nthe tool.", {{"get_weather", "{\"city\": \"Paris\", \"days\": 2}"}}},
};

/* ---- what came back ------------------------------------------------------------------------------------------------
 */

typedef struct call_log {
    spry_buffer content, thoughts, arguments;
    json_t *calls; /* [[name, arguments], ...] */
    bool cut;
} call_log;

static inline void call_log_event(void *user, const spry_answer_event *event)
{
    call_log *log = user;
    json_t *call;
    switch (event->kind) {
    case SPRY_ANSWER_CONTENT: spry_buffer_append(&log->content, event->text.data, event->text.size); break;
    case SPRY_ANSWER_REASONING: spry_buffer_append(&log->thoughts, event->text.data, event->text.size); break;
    case SPRY_ANSWER_CALL_BEGIN: spry_buffer_clear(&log->arguments); break;
    case SPRY_ANSWER_ARGUMENTS: spry_buffer_append(&log->arguments, event->text.data, event->text.size); break;
    case SPRY_ANSWER_CALL_END:
        call = json_loadb(log->arguments.data, log->arguments.size, 0, NULL);
        json_array_append_new(log->calls, json_pack("[s#, o]", event->name.data, (int)event->name.size,
                                                    call ? call : json_string("not JSON")));
        break;
    case SPRY_ANSWER_CALL_CUT: log->cut = true; break;
    }
}

static inline void call_log_init(call_log *log)
{
    *log = (call_log){.calls = json_array()};
    spry_buffer_init(&log->content, 1 << 20);
    spry_buffer_init(&log->thoughts, 1 << 20);
    spry_buffer_init(&log->arguments, 1 << 20);
}

static inline void call_log_deinit(call_log *log)
{
    spry_buffer_deinit(&log->content);
    spry_buffer_deinit(&log->thoughts);
    spry_buffer_deinit(&log->arguments);
    json_decref(log->calls);
}

/* Parses `answer`, fed up to `cut` and from there on, or byte by byte where `cut` is SIZE_MAX. */
static inline void call_log_parse(call_log *log, spry_view source, spry_view prompt, spry_view answer,
                                  const json_t *tools, size_t cut)
{
    spry_answer_parser *parser;
    const spry_answer_options options = {.tools = true,
                                         .style = spry_tool_style_find(source),
                                         .declared = tools,
                                         .reasoning = true,
                                         .thoughts = spry_thought_style_find(source),
                                         .prompt = prompt,
                                         .source = source,
                                         .eos = "</s>",
                                         .on_event = call_log_event,
                                         .user = log};
    call_log_init(log);
    assert_int_equal(spry_answer_parser_create(&parser, &options, NULL), SPRY_OK);
    for (size_t at = 0, size; at < answer.size; at += size) {
        size = cut == SIZE_MAX ? 1 : at < cut && cut < answer.size ? cut : answer.size - at;
        assert_int_equal(spry_answer_parser_feed(parser, (spry_view){answer.data + at, size}, NULL), SPRY_OK);
    }
    spry_answer_parser_finish(parser);
    spry_answer_parser_destroy(parser);
}

static inline bool call_log_equal(const call_log *a, const call_log *b)
{
    return spry_view_equal(spry_buffer_view(&a->content), spry_buffer_view(&b->content)) &&
           spry_view_equal(spry_buffer_view(&a->thoughts), spry_buffer_view(&b->thoughts)) &&
           json_equal(a->calls, b->calls) && a->cut == b->cut;
}

/* ---- rendering -----------------------------------------------------------------------------------------------------
 */

static inline json_t *call_turn_calls(const call_turn *turn)
{
    json_t *calls = json_array();
    for (size_t i = 0; i < CALL_TURNS_MAX && turn->calls[i][0]; i++)
        json_array_append_new(calls, json_pack("[s, o]", turn->calls[i][0], rendering_json(turn->calls[i][1])));
    return calls;
}

static inline json_t *call_turn_message(const call_turn *turn)
{
    static const char *const ids[] = {"abc123def", "xyz456uvw", "k1l2m3n4o", "p5q6r7s8t"};
    json_t *message = json_pack("{s:s, s:s}", "role", "assistant", "content", turn->content), *calls = json_array();
    for (size_t i = 0; i < CALL_TURNS_MAX && turn->calls[i][0]; i++)
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", ids[i], "type", "function", "function",
                                               "name", turn->calls[i][0], "arguments", turn->calls[i][1]));
    json_object_set_new(message, "tool_calls", calls);
    if (turn->thoughts) {
        json_object_set_new(message, "reasoning_content", json_string(turn->thoughts));
        json_object_set_new(message, "reasoning", json_string(turn->thoughts));
        json_object_set_new(message, "thinking", json_string(turn->thoughts));
    }
    return message;
}

/* The prompt of the turn, or the conversation with it; false: the template refuses it. */
static inline bool call_turn_render(spry_chat_text *out, const spry_chat_template *chat, const call_turn *turn,
                                    bool with_turn, const json_t *tools, spry_error *error)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hello?"), *extra = json_object();
    if (with_turn)
        json_array_append_new(messages, call_turn_message(turn));
    char *functions = json_dumps(tools, 0);
    json_object_set_new(extra, "functions", json_string(functions)); /* for templates that predate "tools" */
    free(functions);
    if (turn->thoughts)
        json_object_set_new(extra, "enable_thinking", json_true());
    json_t *request = json_pack("{s:o, s:O, s:b, s:o, s:b}", "messages", messages, "tools", tools,
                                "add_generation_prompt", !with_turn, "extra", extra, "dates", 1);
    spry_status status = rendering_request(out, chat, request, error);
    json_decref(request);
    return status == SPRY_OK;
}

/* Where the answer begins in the whole text: after the prompt, or where the two differ, but not inside a mark. */
static inline size_t call_turn_begin(spry_view prompt, spry_view whole)
{
    size_t at = 0;
    while (at < prompt.size && at < whole.size && prompt.data[at] == whole.data[at])
        at++;
    if (at == prompt.size)
        return at;
    for (size_t back = at; back-- > 0 && at - back < 40;) {
        if (prompt.data[back] == '>' || prompt.data[back] == '\n')
            return back + 1;
        if (prompt.data[back] == '<')
            return back;
    }
    return at;
}

#endif
