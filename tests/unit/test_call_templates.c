/* Published models' templates write tool calls, and the parser reads them back: whole, and cut at every byte. The data
 * is not ours and is beside the checkout; without it nothing is tested. `test_call_templates FOLDER` prints the same
 * table for the templates of another folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "base/compiler.h"
#include "platform/file.h"
#include "support/call_turns.h"

#define FOLDER PUBLIC_DATA "/templates"

enum { TEMPLATES_MAX = 256 };

static const char *folder = FOLDER;

static spry_view trimmed(spry_view text)
{
    while (text.size && strchr(" \n", text.data[text.size - 1]))
        text.size--;
    while (text.size && strchr(" \n", text.data[0]))
        text = (spry_view){text.data + 1, text.size - 1};
    return text;
}

/* What the template leaves out cannot come back. */
static bool texts_right(const call_log *log, const call_turn *turn, spry_view answer)
{
    spry_view content = trimmed(spry_buffer_view(&log->content)), thoughts = spry_buffer_view(&log->thoughts);
    bool has_content = memmem(answer.data, answer.size, turn->content, strlen(turn->content));
    bool has_thoughts = turn->thoughts && memmem(answer.data, answer.size, turn->thoughts, strlen(turn->thoughts));
    return spry_view_is(content, has_content ? turn->content : "") &&
           spry_view_is(thoughts, has_thoughts ? turn->thoughts : "");
}

static void show(const char *name, const call_turn *turn, const call_log *log, spry_view prompt, spry_view answer)
{
    char *calls = json_dumps(log->calls, JSON_COMPACT);
    size_t tail = prompt.size < 60 ? prompt.size : 60;
    printf("  %s, %s: content (%s), thoughts (%s), calls %s%s\n    prompt ...%.*s\n    answer %.*s\n", name, turn->what,
           spry_buffer_view(&log->content).data, spry_buffer_view(&log->thoughts).data, calls, log->cut ? ", cut" : "",
           (int)tail, prompt.data + prompt.size - tail, (int)answer.size, answer.data);
    free(calls);
}

/* The answer up to the mark that ends the turn, where the engine stops. */
static spry_view until_turn_end(spry_view answer, spry_view source, const call_turn *turn)
{
    const char *ends[SPRY_TURN_ENDS], *last = answer.data, *found;
    size_t from, first = answer.size;
    for (size_t i = 0; i < CALL_TURNS_MAX && turn->calls[i][0]; i++)
        while ((found = memmem(last + 1, (size_t)(answer.data + answer.size - last - 1), turn->calls[i][0],
                               strlen(turn->calls[i][0]))))
            last = found;
    from = (size_t)(last - answer.data);
    for (size_t i = 0, n = spry_turn_ends_find(ends, source, "</s>"); i < n; i++) {
        found = memmem(answer.data + from, answer.size - from, ends[i], strlen(ends[i]));
        if (found && (size_t)(found - answer.data) < first)
            first = (size_t)(found - answer.data);
    }
    found = memmem(answer.data + from, answer.size - from, "<|START_OF_TURN_TOKEN|>", 23);
    if (found && (size_t)(found - answer.data) < first)
        first = (size_t)(found - answer.data);
    size_t role = spry_view_starts(answer, SPRY_VIEW("<|CHATBOT_TOKEN|>")) ? strlen("<|CHATBOT_TOKEN|>") : 0;
    return (spry_view){answer.data + role, first - role};
}

/* 1: right, 0: wrong, -1: the template does not write these calls. */
static int try_turn(const char *name, const spry_chat_template *chat, spry_view source, const call_turn *turn)
{
    json_t *tools = rendering_json(call_turn_tools), *expected = call_turn_calls(turn);
    spry_chat_text prompt, whole;
    spry_error error = {0};
    int result = -1;
    bool made = call_turn_render(&prompt, chat, turn, false, tools, &error);
    if (!made) { /* templates that know no lists of types */
        spry_chat_text_deinit(&prompt);
        json_t *function = json_object_get(json_array_get(tools, 0), "function");
        json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
        json_object_set_new(json_object_get(properties, "code"), "type", json_string("string"));
        error = (spry_error){0};
        made = call_turn_render(&prompt, chat, turn, false, tools, &error);
    }
    made = call_turn_render(&whole, chat, turn, true, tools, &error) && made;
    spry_view text = spry_buffer_view(&whole.text), before = spry_buffer_view(&prompt.text);
    if (made && memmem(text.data, text.size, turn->calls[0][0], strlen(turn->calls[0][0]))) {
        size_t begin = call_turn_begin(before, text);
        spry_view answer = {text.data + begin, text.size - begin};
        answer = until_turn_end(answer, source, turn);
        before.size = before.size < begin ? before.size : begin;
        if (memmem(answer.data, answer.size, turn->calls[0][0], strlen(turn->calls[0][0]))) {
            call_log log;
            call_log_parse(&log, source, before, answer, tools, answer.size);
            result = json_equal(log.calls, expected) && texts_right(&log, turn, answer);
            for (size_t cut = 0; cut <= answer.size; cut++) {
                call_log other;
                call_log_parse(&other, source, before, answer, tools, cut ? cut : SIZE_MAX);
                if (!call_log_equal(&log, &other)) {
                    show(name, turn, &other, before, answer);
                    fail_msg("%s, %s: cut at %zu it is another answer", name, turn->what, cut);
                }
                call_log_deinit(&other);
            }
            if (!result)
                show(name, turn, &log, before, answer);
            call_log_deinit(&log);
        }
    } else if (!made) {
        printf("  %s, %s: %s\n", name, turn->what, error.message);
    }
    spry_chat_text_deinit(&prompt);
    spry_chat_text_deinit(&whole);
    json_decref(expected);
    json_decref(tools);
    return result;
}

static int is_template(const struct dirent *entry)
{
    return spry_view_ends(spry_view_of(entry->d_name), SPRY_VIEW(".jinja"));
}

/* ---- templates of our own, one for each family ------------------------------------------------------------------- */

#define TURN(thoughts, calls)                                                                                          \
    "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}\n{% else %}A:" thoughts "{{ m.content }}" calls \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
#define THINK(open, close) "{% if m.reasoning_content %}" open "{{ m.reasoning_content }}" close "{% endif %}"
#define THINKS             THINK("<think>\n", "\n</think>\n\n")
#define EACH(call)         "{% for c in m.tool_calls %}" call "{% endfor %}"
#define LIST(call)         EACH(call "{{ ', ' if not loop.last }}")
#define NAME               "{{ c.function.name }}"
#define ARGS               "{{ c.function.arguments | tojson }}"
#define PAIRS(pair)        "{% for k, v in c.function.arguments.items() %}" pair "{% endfor %}"
#define KEY                "{{ k }}"
#define VALUE              "{{ v if v is string else v | tojson }}"
#define PRINTED            "{{ v if v is string or v is number else v | string }}"
#define CALL               "{\"name\": \"" NAME "\", \"arguments\": " ARGS "}"

static const struct {
    const char *style, *source;
} own[] = {
    {"hermes", TURN(THINKS, EACH("\n<tool_call>\n" CALL "\n</tool_call>"))},
    {"qwen-coder", TURN(THINKS, EACH("\n<tool_call>\n<function=" NAME ">\n" PAIRS(
                                    "<parameter=" KEY ">\n" PRINTED "\n</parameter>\n") "</function>\n</tool_call>"))},
    {"seed", TURN(THINK("<seed:think>", "</seed:think>"),
                  EACH("<seed:tool_call>\n<function=" NAME
                       ">\n" PAIRS("<parameter=" KEY ">" PRINTED "</parameter>\n") "</function>\n</seed:tool_call>"))},
    {"mistral", TURN(THINK("[THINK]", "[/THINK]"), "[TOOL_CALLS][" LIST(CALL) "]")},
    {"mistral-named", TURN(THINK("[THINK]", "[/THINK]"), EACH("[TOOL_CALLS]" NAME "[ARGS]" ARGS))},
    {"llama", "{# <|python_tag|> #}" TURN("", LIST("{\"name\": \"" NAME "\", \"parameters\": " ARGS "}"))},
    {"deepseek-fenced",
     TURN(THINKS, "<｜tool▁calls▁begin｜>" EACH("<｜tool▁call▁begin｜>function<｜tool▁sep｜>" NAME "\n```json\n" ARGS
                                                "\n```<｜tool▁call▁end｜>") "<｜tool▁calls▁end｜>")},
    {"deepseek", TURN(THINKS, "<｜tool▁calls▁begin｜>" EACH("<｜tool▁call▁begin｜>" NAME "<｜tool▁sep｜>" ARGS
                                                            "<｜tool▁call▁end｜>") "<｜tool▁calls▁end｜>")},
    {"dsml",
     TURN(THINKS, "<｜DSML｜function_calls>\n" EACH("<｜DSML｜invoke name=\"" NAME "\">\n" PAIRS(
                      "<｜DSML｜parameter name=\"" KEY "\" string=\"{{ 'true' if v is string else 'false' }}\">" VALUE
                      "</｜DSML｜parameter>\n") "</｜DSML｜invoke>\n") "</｜DSML｜function_calls>")},
    {"glm", TURN(THINKS, EACH("\n<tool_call>" NAME "\n" PAIRS("<arg_key>" KEY "</arg_key>\n<arg_value>" VALUE
                                                              "</arg_value>\n") "</tool_call>"))},
    {"gpt-oss", TURN(THINK("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
                     "{# <|channel|>commentary #}" EACH("<|channel|>commentary to=functions." NAME
                                                        " <|constrain|>json<|message|>" ARGS "<|call|>"))},
    {"gemma", TURN(THINK("<|channel>thought\n", "<channel|>"),
                   EACH("<|tool_call>call:" NAME "{{ '{' }}" PAIRS(
                       KEY ":{{ '<|\"|>' + v + '<|\"|>' if v is string else v | tojson | replace('\"', "
                           "'<|\"|>') }}{{ ',' if not loop.last }}") "{{ '}' }}<tool_call|>"))},
    {"kimi", TURN(THINKS, "<|tool_calls_section_begin|>" EACH("<|tool_call_begin|>functions." NAME
                                                              ":{{ loop.index0 }}<|tool_call_argument_begin|>" ARGS
                                                              "<|tool_call_end|>") "<|tool_calls_section_end|>")},
    {"minimax",
     TURN(THINKS, "<minimax:tool_call>\n" EACH("<invoke name=\"" NAME "\">\n" PAIRS(
                      "<parameter name=\"" KEY "\">" VALUE "</parameter>\n") "</invoke>\n") "</minimax:tool_call>")},
    {"cohere", TURN(THINK("<|START_THINKING|>", "<|END_THINKING|>"),
                    "<|START_ACTION|>[" LIST("{\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"" NAME
                                             "\", \"parameters\": " ARGS "}") "]<|END_ACTION|>")},
    {"lfm", TURN(THINKS, "<|tool_call_start|>[" LIST(NAME "(" PAIRS(
                             KEY "={{ v | tojson }}{{ ', ' if not loop.last }}") ")") "]<|tool_call_end|>")},
    {"nemotron", TURN(THINKS, "<TOOLCALL>[" LIST(CALL) "]</TOOLCALL>")},
    {"apertus", TURN(THINK("<|inner_prefix|>", "<|inner_suffix|>"),
                     "<|tools_prefix|>[" LIST("{\"" NAME "\": " ARGS "}") "]<|tools_suffix|>")},
    {"phi", TURN(THINKS, "<|tool_call|>[" LIST(CALL) "]<|/tool_call|>")},
    {"functionary", TURN(THINKS, EACH("<function=" NAME ">" ARGS "</function>"))},
    {"solar",
     TURN(THINK("<|think|>", "<|end|><|begin|>assistant"),
          "{# <|begin|>assistant<|think|> #}<|tool_calls|>" EACH("<|tool_call:begin|>{{ c.id }}<|tool_call:name|>" NAME
                                                                 "<|tool_call:args|>" ARGS "<|tool_call:end|>"))},
};

static void test_own_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(own); i++) {
        spry_chat_template *chat = rendering_template(own[i].source);
        spry_view source = spry_view_of(own[i].source);
        assert_string_equal(spry_tool_style_find(source)->name, own[i].style);
        for (size_t k = 0; k < SPRY_COUNT(call_turns); k++) {
            bool bare = strcmp(own[i].style, "llama") == 0; /* calls without marks are the whole answer */
            if (bare && (*call_turns[k].content || call_turns[k].calls[1][0]))
                continue;
            if (try_turn(own[i].style, chat, source, &call_turns[k]) != 1)
                fail_msg("%s: %s", own[i].style, call_turns[k].what);
        }
        spry_chat_template_destroy(chat);
    }
}

/* A string that contains the marks of its own family is an argument like any other. */
static void test_own_marks(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(own); i++) {
        const spry_tool_style *style = spry_tool_style_named(own[i].style);
        const char *marks[] = {style->open, style->section_open, style->arguments_open, style->close,
                               style->section_close};
        spry_chat_template *chat = rendering_template(own[i].source);
        for (size_t k = 0; k < SPRY_COUNT(marks); k++) {
            if (!marks[k])
                continue;
            char city[256];
            snprintf(city, sizeof city, "Behind %s and %sthe end", marks[k], marks[k]);
            json_t *object = json_pack("{s:s}", "city", city);
            char *arguments = json_dumps(object, 0);
            call_turn turn = {marks[k], "", NULL, {{"get_weather", arguments}}};
            if (try_turn(own[i].style, chat, spry_view_of(own[i].source), &turn) != 1)
                fail_msg("%s: %s in a string", own[i].style, marks[k]);
            free(arguments);
            json_decref(object);
        }
        spry_chat_template_destroy(chat);
    }
}

static void test_templates(void **state)
{
    (void)state;
    struct dirent **entries;
    size_t right = 0, all = 0;
    int n = scandir(folder, &entries, is_template, alphasort);
    if (n <= 0) {
        print_message("SKIPPED test_templates: ../shared/public is not there\n");
        return;
    }
    printf("| template | style | right | written |\n|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        char path[1024];
        spry_buffer source;
        size_t good = 0, written = 0;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        spry_buffer_init(&source, 1 << 20);
        assert_int_equal(spry_file_read(&source, path, NULL), SPRY_OK);
        spry_chat_template *chat = rendering_template(source.data);
        for (size_t k = 0; k < SPRY_COUNT(call_turns); k++) {
            int result = try_turn(entries[i]->d_name, chat, spry_buffer_view(&source), &call_turns[k]);
            good += result == 1;
            written += result >= 0;
        }
        printf("| %s | %s | %zu | %zu |\n", entries[i]->d_name, spry_tool_style_find(spry_buffer_view(&source))->name,
               good, written);
        right += good;
        all += written;
        spry_chat_template_destroy(chat);
        spry_buffer_deinit(&source);
        free(entries[i]);
    }
    free(entries);
    printf("%zu of %zu turns come back right\n", right, all);
    assert_true(right * 100 >= all * 95);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_templates), cmocka_unit_test(test_own_marks),
                                       cmocka_unit_test(test_templates)};
    folder = argc > 1 ? argv[1] : FOLDER;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
