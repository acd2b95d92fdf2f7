/* How models write tool calls and thoughts, and which tools a request allows. Templates are compared from the top of
 * a table, so more specific styles come first. */
#include "template/tool_styles.h"

#include <string.h>

#include "base/compiler.h"
#include "template/arguments.h"

/* ---- styles of calls --------------------------------------------------------------------------------------------- */

/* The table of styles. Templates are compared from the top, so more specific styles come first. */

/* Every call has a NAME and a JSON object or parameters; members that are not set are not used by the style. */
static const spry_tool_style styles[] = {
    {.name = "mistral-named", /* [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...} */
     .in_template = {"[TOOL_CALLS]", "[ARGS]"},
     .syntax = SPRY_CALL_NAMED,
     .open = "[TOOL_CALLS]",
     .id_mark = "[CALL_ID]",
     .arguments_open = "[ARGS]"},
    {.name = "mistral", /* [TOOL_CALLS][{...}, ...] */
     .in_template = {"[TOOL_CALLS]"},
     .syntax = SPRY_CALL_JSON,
     .open = "[TOOL_CALLS]",
     .list = true},
    {.name = "deepseek-fenced", /* V3, R1: function<sep>NAME and JSON between fences */
     .in_template = {"<｜tool▁calls▁begin｜>", "```json"},
     .syntax = SPRY_CALL_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .open = "<｜tool▁call▁begin｜>",
     .name_mark = "<｜tool▁sep｜>",
     .arguments_open = "```json",
     .arguments_close = "```",
     .close = "<｜tool▁call▁end｜>"},
    {.name = "deepseek", /* V3.1 */
     .in_template = {"<｜tool▁calls▁begin｜>"},
     .syntax = SPRY_CALL_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .open = "<｜tool▁call▁begin｜>",
     .arguments_open = "<｜tool▁sep｜>",
     .close = "<｜tool▁call▁end｜>"},
    {.name = "dsml-tools", /* DeepSeek V4 */
     .in_template = {"｜DSML｜", "tool_calls>"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<｜DSML｜tool_calls>",
     .section_close = "</｜DSML｜tool_calls>",
     .open = "<｜DSML｜invoke name=\"",
     .arguments_open = "\">",
     .close = "</｜DSML｜invoke>",
     .parameter = {"<｜DSML｜parameter name=\"", ">", NULL, "</｜DSML｜parameter>"},
     .string_attribute = "\" string=\"true\"",
     .other_attribute = "\" string=\"false\""},
    {.name = "dsml", /* DeepSeek V3.2 */
     .in_template = {"｜DSML｜"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<｜DSML｜function_calls>",
     .section_close = "</｜DSML｜function_calls>",
     .open = "<｜DSML｜invoke name=\"",
     .arguments_open = "\">",
     .close = "</｜DSML｜invoke>",
     .parameter = {"<｜DSML｜parameter name=\"", ">", NULL, "</｜DSML｜parameter>"},
     .string_attribute = "\" string=\"true\"",
     .other_attribute = "\" string=\"false\""},
    {.name = "kimi", /* K2: functions.NAME:0 */
     .in_template = {"<|tool_call_argument_begin|>"},
     .syntax = SPRY_CALL_NAMED,
     .section_open = "<|tool_calls_section_begin|>",
     .section_close = "<|tool_calls_section_end|>",
     .open = "<|tool_call_begin|>",
     .name_prefix = "functions.",
     .numbered = true,
     .arguments_open = "<|tool_call_argument_begin|>",
     .close = "<|tool_call_end|>"},
    {.name = "kimi-elements", /* K3 */
     .in_template = {"<|open|>", "<|close|>"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<|open|>tools<|sep|>",
     .section_close = "<|close|>tools<|sep|>",
     .open = "<|open|>call tool=\"",
     .name_tails = {"\" index=\"1\"", "\" index=\"2\""},
     .arguments_open = "<|sep|>",
     .close = "<|close|>call<|sep|>",
     .parameter = {"<|open|>argument key=\"", "<|sep|>", NULL, "<|close|>argument<|sep|>"},
     .string_attribute = "\" type=\"string\""},
    {.name = "minimax-elements", /* M3 */
     .in_template = {"]<]minimax[>["},
     .syntax = SPRY_CALL_TREE,
     .section_open = "]<]minimax[>[<tool_call>",
     .section_close = "]<]minimax[>[</tool_call>",
     .open = "]<]minimax[>[<invoke name=\"",
     .arguments_open = "\">",
     .close = "]<]minimax[>[</invoke>",
     .quote = "]<]minimax[>["},
    {.name = "minimax", /* M2 */
     .in_template = {"<minimax:tool_call>"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<minimax:tool_call>",
     .section_close = "</minimax:tool_call>",
     .open = "<invoke name=\"",
     .arguments_open = "\">",
     .close = "</invoke>",
     .parameter = {"<parameter name=\"", "\">", NULL, "</parameter>"}},
    {.name = "atem",
     .in_template = {"<atem:function_calls>"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<atem:function_calls>",
     .section_close = "</atem:function_calls>",
     .open = "<atem:invoke name=\"",
     .arguments_open = "\">",
     .close = "</atem:invoke>",
     .parameter = {"<atem:parameter name=\"", "\">", NULL, "</atem:parameter>"}},
    {.name = "seed", /* Seed-OSS */
     .in_template = {"<seed:tool_call>"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<seed:tool_call>",
     .section_close = "</seed:tool_call>",
     .open = "<function=",
     .arguments_open = ">",
     .close = "</function>",
     .parameter = {"<parameter=", ">", NULL, "</parameter>"}},
    {.name = "hunyuan", /* Hy3 */
     .in_template = {"arg_key", ":opensource"},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<tool_calls:opensource>",
     .section_close = "</tool_calls:opensource>",
     .open = "<tool_call:opensource>",
     .arguments_open = "<tool_sep:opensource>",
     .close = "</tool_call:opensource>",
     .parameter = {"<arg_key:opensource>", "</arg_key:opensource>", "<arg_value:opensource>",
                   "</arg_value:opensource>"}},
    {.name = "glm", /* 4.5 and later */
     .in_template = {"<arg_key>"},
     .syntax = SPRY_CALL_TAGGED,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .parameter = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
    {.name = "minicpm",
     .in_template = {"<function name=\"", "<param name=\""},
     .syntax = SPRY_CALL_TAGGED,
     .open = "<function name=\"",
     .arguments_open = "\">",
     .close = "</function>",
     .parameter = {"<param name=\"", "\">", NULL, "</param>"}},
    {.name = "qwen-coder", /* Qwen3-Coder, Qwen3.5, Nemotron 3, Step */
     .in_template = {"<function=", "<parameter="},
     .syntax = SPRY_CALL_TAGGED,
     .section_open = "<tool_call>",
     .section_close = "</tool_call>",
     .open = "<function=",
     .arguments_open = ">",
     .close = "</function>",
     .parameter = {"<parameter=", ">", NULL, "</parameter>"},
     .lines = true},
    {.name = "functionary", /* v3.1 */
     .in_template = {"<function=", "</function>"},
     .syntax = SPRY_CALL_NAMED,
     .open = "<function=",
     .arguments_open = ">",
     .close = "</function>"},
    {.name = "functionary-recipients", /* v3.2: >>>NAME, a line break, JSON; content goes to ">>>all" */
     .in_template = {"'>>>'", ">>>all"},
     .syntax = SPRY_CALL_NAMED,
     .open = ">>>",
     .arguments_open = "\n",
     .prompted = true},
    {.name = "gpt-oss", /* harmony: to=functions.NAME<|channel|>commentary json<|message|>{...}<|call|> */
     .in_template = {"<|channel|>commentary", "<|message|>"},
     .syntax = SPRY_CALL_NAMED,
     .open = " to=functions.",
     .name_tails = {"<|channel|>commentary json", " <|constrain|>json"},
     .arguments_open = "<|message|>",
     .close = "<|call|>",
     .close_ends = true},
    {.name = "solar",
     .in_template = {"<|tool_call:args|>"},
     .syntax = SPRY_CALL_NAMED,
     .section_open = "<|tool_calls|>",
     .section_close = "<|calls|>",
     .open = "<|tool_call:begin|>",
     .name_mark = "<|tool_call:name|>",
     .id_first = true,
     .arguments_open = "<|tool_call:args|>",
     .close = "<|tool_call:end|>"},
    {.name = "gemma", /* Gemma 4 */
     .in_template = {"<|tool_call>"},
     .syntax = SPRY_CALL_BRACED,
     .open = "<|tool_call>call:",
     .arguments_open = "{",
     .close = "<tool_call|>",
     .quote = "<|\"|>"},
    {.name = "function-gemma", /* Gemma 3 */
     .in_template = {"<start_function_call>"},
     .syntax = SPRY_CALL_BRACED,
     .open = "<start_function_call>call:",
     .arguments_open = "{",
     .close = "<end_function_call>",
     .quote = "<escape>"},
    {.name = "lfm", /* LFM2: [NAME(key=value), ...] */
     .in_template = {"<|tool_list_start|>"},
     .syntax = SPRY_CALL_PYTHON,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>"},
    {.name = "lfm",
     .in_template = {"List of tools: [", "keep_past_thinking"},
     .syntax = SPRY_CALL_PYTHON,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>"},
    {.name = "lfm",
     .in_template = {"<|tool_call_start|>"},
     .syntax = SPRY_CALL_PYTHON,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>"},
    {.name = "cohere", /* Command R7B and A */
     .in_template = {"<|START_ACTION|>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .list = true},
    {.name = "cohere-action", /* Command R+ */
     .in_template = {"Action:", "\"tool_name\""},
     .syntax = SPRY_CALL_JSON,
     .open = "Action:\n```json",
     .close = "```",
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .list = true},
    {.name = "apertus", /* [{NAME: {...}}, ...] */
     .in_template = {"<|tools_prefix|>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .keyed = true,
     .list = true},
    {.name = "nemotron", /* Nano v2 */
     .in_template = {"<TOOLCALL>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>",
     .list = true},
    {.name = "apriel",
     .in_template = {"<tool_calls>", "</tool_calls>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<tool_calls>",
     .close = "</tool_calls>",
     .list = true},
    {.name = "gigachat", .in_template = {"<|function_call|>"}, .syntax = SPRY_CALL_JSON, .open = "<|function_call|>"},
    {.name = "gigachat-role",
     .in_template = {"function call", "<|role_sep|>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<|message_sep|>\n\nfunction call<|role_sep|>\n"},
    {.name = "functools", /* firefunction */
     .in_template = {"functools["},
     .syntax = SPRY_CALL_JSON,
     .open = "functools",
     .list = true},
    {.name = "hermes", /* Hermes, Qwen, Granite 4 */
     .in_template = {"<tool_call>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<tool_call>",
     .close = "</tool_call>"},
    {.name = "phi", /* Phi-4, Granite 3 */
     .in_template = {"<|tool_call|>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<|tool_call|>",
     .close = "<|/tool_call|>",
     .list = true},
    {.name = "llama", /* models also write <|python_tag|>NAME.call(key="value") */
     .in_template = {"<|python_tag|>"},
     .syntax = SPRY_CALL_JSON,
     .open = "<|python_tag|>",
     .arguments_key = "parameters",
     .bare = true},
    {.name = "llama", /* 3.2 */
     .in_template = {"ipython", "\"parameters\""},
     .syntax = SPRY_CALL_JSON,
     .open = "<|python_tag|>",
     .arguments_key = "parameters",
     .bare = true},
    {.name = "json", /* templates that contain no known style */
     .syntax = SPRY_CALL_JSON,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .bare = true},
};

static bool contains(spry_view source, const char *text)
{
    return !text || (source.size && memmem(source.data, source.size, text, strlen(text)));
}

const spry_tool_style *spry_tool_style_find(spry_view source)
{
    const spry_tool_style *last = &styles[SPRY_COUNT(styles) - 1];
    for (const spry_tool_style *style = styles; style < last; style++)
        if (contains(source, style->in_template[0]) && contains(source, style->in_template[1]))
            return style;
    return last;
}

const spry_tool_style *spry_tool_style_named(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(styles); i++)
        if (strcmp(styles[i].name, name) == 0)
            return &styles[i];
    return NULL;
}

const spry_tool_style *spry_tool_style_at(size_t index)
{
    return index < SPRY_COUNT(styles) ? &styles[index] : NULL;
}

/* ---- styles of thoughts ------------------------------------------------------------------------------------------ */

/* More specific styles come first; the last one is the default. */
static const spry_thought_style thoughts[] = {
    {"<|channel|>analysis",
     "<|channel|>analysis<|message|>",
     "<|end|>",
     true, /* harmony */
     {"<|start|>assistant", "<|channel|>final", "<|channel|>commentary", "<|channel|>analysis", "<|message|>",
      "<|end|>", "<|return|>", "<|call|>"}},
    {"to=self<|message|>",
     " to=self<|message|>",
     "<|eom|>",
     true,
     {"<|start|>assistant", " to=*<|message|>", "<|eom|>"}},
    {"<|begin|>assistant<|think|>",
     "<|think|>",
     "<|end|>",
     true,
     {"<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>"}},
    {"<|open|>",
     "<|open|>think<|sep|>",
     "<|close|>think<|sep|>",
     false,
     {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"}},
    {"<|channel>thought", "<|channel>thought\n", "<channel|>", false, {NULL}},
    {"<|START_THINKING|>",
     "<|START_THINKING|>",
     "<|END_THINKING|>",
     false,
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>", true, {NULL}},
    {"<seed:think>", "<seed:think>", "</seed:think>", false, {NULL}},
    {"<mm:think>", "<mm:think>", "</mm:think>", false, {NULL}},
    {":opensource", "<think:opensource>", "</think:opensource>", false, {NULL}},
    {"[BEGIN FINAL RESPONSE]",
     "Here are my reasoning steps:",
     "[BEGIN FINAL RESPONSE]",
     false,
     {"[END FINAL RESPONSE]"}},
    {"[THINK]", "[THINK]", "[/THINK]", false, {NULL}},
    {"<SPECIAL_11>", "<think>", "</think>", false, {"<SPECIAL_12>", "<SPECIAL_11>Assistant"}},
    {">>>all", "<think>", "</think>", false, {">>>all\n"}},
    {"<response>", "<think>", "</think>", false, {"<response>", "</response>"}},
    {"<think>", "<think>", "</think>", false, {NULL}},
};

const spry_thought_style *spry_thought_style_default(void)
{
    return &thoughts[SPRY_COUNT(thoughts) - 1];
}

const spry_thought_style *spry_thought_style_find(spry_view source)
{
    for (size_t i = 0; i < SPRY_COUNT(thoughts); i++)
        if (contains(source, thoughts[i].in_template))
            return &thoughts[i];
    return spry_thought_style_default();
}

size_t spry_turn_ends_find(const char *ends[SPRY_TURN_ENDS], spry_view source, const char *eos)
{
    static const char *const known[] = {"<|im_end|>",
                                        "<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|eot|>",
                                        "<|end_of_text|>",
                                        "<|endoftext|>",
                                        "<end_of_turn>",
                                        "<turn|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<seed:eos>",
                                        "<|message_sep|>",
                                        "[e~[",
                                        "<end_of_sentence>",
                                        "<|assistant_end|>",
                                        "</assistant>",
                                        "<sep>",
                                        "<|tool_response>",
                                        "<|end_of_msg|>",
                                        "<|end|>"};
    size_t count = 0;
    if (eos && *eos && contains(source, "eos_token"))
        ends[count++] = contains(source, ":opensource") ? "<｜hy_eos:opensource｜>" : eos;
    for (size_t i = 0; i < SPRY_COUNT(known) && count < SPRY_TURN_ENDS; i++)
        if (contains(source, known[i]))
            ends[count++] = known[i];
    return count;
}

/* ---- which tools may be called ----------------------------------------------------------------------------------- */

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(spry_tool_function(tool), "name"));
}

/* The names of the tools, each with its index. The caller releases them with json_decref. */
static spry_status index_names(json_t **out, const json_t *tools, spry_error *error)
{
    json_t *names = *out = json_object();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *name = name_of(json_array_get(tools, i));
        if (!name || !*name)
            return spry_fail(error, SPRY_ERR_INPUT, "tools[%zu] has no name", i);
        const json_t *before = json_object_get(names, name);
        if (before)
            return spry_fail(error, SPRY_ERR_INPUT, "tools[%zu] and tools[%d] have the same name, %.200s",
                             (size_t)json_integer_value(before), (int)i, name);
        if (json_object_set_new(names, name, json_integer((json_int_t)i)))
            return spry_fail_memory(error, "the names of tools", json_array_size(tools));
    }
    return SPRY_OK;
}

static spry_status add(spry_tool_choice *out, const json_t *tools, const json_t *names, const char *name,
                       spry_error *error)
{
    const json_t *place = name ? json_object_get(names, name) : NULL;
    if (!place)
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice names %.200s, which is not among the tools",
                         name ? name : "a tool without a name");
    const json_t *tool = json_array_get(tools, (size_t)json_integer_value(place));
    if (json_array_append(out->functions, (json_t *)(uintptr_t)spry_tool_function(tool)))
        return spry_fail_memory(error, "tools", json_array_size(tools));
    return SPRY_OK;
}

/* Reads {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}, or the same without the inner
 * object. */
static spry_status add_allowed(spry_tool_choice *out, const json_t *tools, const json_t *names, const json_t *choice,
                               spry_error *error)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *from = json_is_object(inner) ? inner : choice, *list = json_object_get(from, "tools");
    const char *mode = json_string_value(json_object_get(from, "mode"));
    out->required = mode && strcmp(mode, "required") == 0;
    if (!json_array_size(list) || (mode && !out->required && strcmp(mode, "auto") != 0))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "tool_choice.allowed_tools needs a list of tools, and the mode \"auto\" or \"required\"");
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = add(out, tools, names, name_of(json_array_get(list, i)), error);
    return status;
}

static spry_status read_choice(spry_tool_choice *out, const json_t *tools, const json_t *names, const json_t *choice,
                               spry_error *error)
{
    const char *word = json_string_value(choice), *type = json_string_value(json_object_get(choice, "type"));
    const char *only = name_of(choice);
    word = word || only ? word : type; /* {"type": "auto"}, as some clients send it */
    if (word && strcmp(word, "none") == 0)
        return SPRY_OK;
    if (type && strcmp(type, "allowed_tools") == 0)
        return add_allowed(out, tools, names, choice, error);
    out->required = only || (word && (strcmp(word, "required") == 0 || strcmp(word, "any") == 0));
    if (out->required && !json_array_size(tools))
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice asks for a call, but there are no tools");
    if (only)
        return add(out, tools, names, only, error);
    if (choice && !json_is_null(choice) && !out->required && !(word && strcmp(word, "auto") == 0))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "tool_choice must be \"auto\", \"none\", \"required\", an object that names a function, or "
                         "allowed_tools");
    for (size_t i = 0; i < json_array_size(tools); i++)
        json_array_append(out->functions, (json_t *)(uintptr_t)spry_tool_function(json_array_get(tools, i)));
    return SPRY_OK;
}

spry_status spry_tool_choice_read(spry_tool_choice *out, const json_t *tools, const json_t *choice, spry_error *error)
{
    json_t *names;
    *out = (spry_tool_choice){.functions = json_array()};
    spry_status status = index_names(&names, tools, error);
    if (!status)
        status = read_choice(out, tools, names, choice, error);
    json_decref(names);
    if (status)
        spry_tool_choice_deinit(out);
    return status;
}

void spry_tool_choice_deinit(spry_tool_choice *choice)
{
    json_decref(choice->functions);
    *choice = (spry_tool_choice){0};
}
