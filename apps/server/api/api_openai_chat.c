/* POST /v1/chat/completions. */
#include "server/api/apis.h"
#include "server/api/openai_json.h"
#include "server/request/prompt.h"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *chunk(const spry_completion *c, const spry_choice *choice, json_t *delta, const char *finish)
{
    json_t *entry = json_pack("{s:i, s:o, s:n, s:s?}", "index", (int)choice->index, "delta", delta, "logprobs",
                              "finish_reason", finish);
    return spry_openai_envelope(c, "chat.completion.chunk", json_pack("[o]", entry));
}

/* The log probabilities of the tokens since the last chunk. */
static void add_logprobs(json_t *message, const spry_completion *c, spry_choice *choice)
{
    if (!c->options.want_logprobs || choice->n_written == choice->n_tokens)
        return;
    json_t *entry = json_array_get(json_object_get(message, "choices"), 0);
    json_object_set_new(entry, "logprobs",
                        spry_openai_chat_logprobs(c, choice->tokens, choice->n_written, choice->n_tokens));
    choice->n_written = choice->n_tokens;
}

static void open_stream(spry_completion *c)
{
    const char *none = spry_server_likes_llama(c->exchange->server) ? NULL : "";
    for (uint32_t i = 0; i < c->n_choices; i++)
        spry_completion_event(
            c, chunk(c, &c->choices[i], json_pack("{s:s, s:s?}", "role", "assistant", "content", none), NULL));
}

static json_t *delta_of(const spry_chat_event *event)
{
    switch (event->kind) {
    case SPRY_CHAT_CONTENT: return json_pack("{s:o}", "content", spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_REASONING: return json_pack("{s:o}", "reasoning_content", spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_CALL_BEGIN:
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index", (int)event->index, "id",
                         event->id, "type", "function", "function", "name", spry_view_json(spry_event_name(event)),
                         "arguments", "");
    case SPRY_CHAT_ARGUMENTS:
        return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)event->index, "function", "arguments",
                         spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_CALL_END:
    case SPRY_CHAT_CALL_CUT: break;
    }
    return NULL;
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    if (event->kind == SPRY_CHAT_CALL_END || event->kind == SPRY_CHAT_CALL_CUT)
        return;
    json_t *message = chunk(c, choice, delta_of(event), NULL);
    add_logprobs(message, c, choice);
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    spry_openai_progress(c, chunk(c, choice, json_object(), NULL), choice);
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    json_t *message = chunk(c, choice, json_object(), spry_choice_finish_reason(choice));
    add_logprobs(message, c, choice);
    if (last && !c->options.include_usage)
        json_object_set_new(message, "timings", spry_completion_timings(c));
    spry_completion_event(c, message);
}

static void close_stream(spry_completion *c)
{
    spry_openai_close_stream(c, "chat.completion.chunk");
}

static json_t *calls_json(const json_t *calls)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(calls, i, call) json_array_append_new(
        list, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "type", "function", "function",
                        "name", json_object_get(call, "name"), "arguments", json_object_get(call, "arguments")));
    return list;
}

static json_t *message_of(const spry_choice *choice)
{
    json_t *message = json_pack(
        "{s:s, s:o}", "role", "assistant", "content",
        json_array_size(choice->calls) && !choice->content.size ? json_null() : spry_buffer_json(&choice->content));
    if (choice->reasoning.size)
        json_object_set_new(message, "reasoning_content", spry_buffer_json(&choice->reasoning));
    if (json_array_size(choice->calls))
        json_object_set_new(message, "tool_calls", calls_json(choice->calls));
    return message;
}

static json_t *whole(spry_completion *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const spry_choice *choice = &c->choices[i];
        json_t *logprobs =
            c->options.want_logprobs ? spry_openai_chat_logprobs(c, choice->tokens, 0, choice->n_tokens) : json_null();
        json_array_append_new(choices,
                              json_pack("{s:i, s:o, s:o, s:s}", "index", (int)i, "message", message_of(choice),
                                        "logprobs", logprobs, "finish_reason", spry_choice_finish_reason(choice)));
    }
    return spry_openai_whole(c, "chat.completion", choices);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_none(const json_t *tool_choice)
{
    return json_is_string(tool_choice) && strcmp(json_string_value(tool_choice), "none") == 0;
}

/* NULL when there are none, or the model must not call any. */
static const json_t *usable_tools(const spry_fields *fields)
{
    const json_t *tools = spry_fields_get(fields, "tools");
    return json_array_size(tools) && !is_none(spry_fields_get(fields, "tool_choice")) ? tools : NULL;
}

static bool reads_reasoning(spry_fields *fields)
{
    static const char *const formats[] = {"none", "auto", "deepseek", "deepseek-legacy"};
    const char *given = spry_fields_string(fields, "reasoning_format", "auto");
    size_t i = 0;
    while (i < SPRY_COUNT(formats) && strcmp(given, formats[i]) != 0)
        i++;
    if (i == SPRY_COUNT(formats))
        spry_fields_refuse(fields, "reasoning_format", "reasoning_format must be \"none\", \"auto\" or \"deepseek\"");
    return i > 0;
}

void spry_openai_chat_read(spry_completion_options *o, spry_fields *fields)
{
    spry_fields_messages(fields, spry_fields_array(fields, "messages"));
    spry_fields_tools(fields);
    spry_fields_object(fields, "chat_template_kwargs");
    spry_openai_read_common(o, fields);
    o->want_logprobs = spry_fields_bool(fields, "logprobs", false);
    o->request.logprobs = (uint32_t)spry_fields_integer(fields, "top_logprobs", 0, 0, SPRY_TOP_LOGPROBS_MAX);
    if (o->request.logprobs && !o->want_logprobs)
        spry_fields_refuse(fields, "top_logprobs", "top_logprobs needs logprobs to be true");
    o->request.max_tokens = (uint32_t)spry_openai_limit(fields, 0, 1);
    o->slide = spry_fields_bool(fields, "slide", false);
    o->parse_tools = usable_tools(fields) != NULL;
    o->one_call = !spry_fields_bool(fields, "parallel_tool_calls", true);
    o->parse_reasoning = reads_reasoning(fields);
}

/* The variables of the template, those that reasoning_effort sets included; a new reference. */
static json_t *variables_of(const spry_fields *fields)
{
    const json_t *given = spry_fields_get(fields, "chat_template_kwargs");
    const json_t *effort = spry_fields_get(fields, "reasoning_effort");
    json_t *variables = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (is_none(effort))
        json_object_set_new(variables, "enable_thinking", json_false());
    else if (effort)
        json_object_set(variables, "reasoning_effort", (json_t *)(uintptr_t)effort);
    return variables;
}

static spry_status make_prompt(spry_completion *c, spry_fields *fields, const json_t *messages, bool generate,
                               spry_error *error)
{
    const json_t *choice = spry_fields_get(fields, "tool_choice");
    json_t *variables = variables_of(fields);
    const json_t *tools = usable_tools(fields);
    choice = is_none(choice) ? NULL : choice;
    spry_status status = c->options.slide && generate
                             ? spry_prompt_chat_fit(c, messages, tools, variables, choice, error)
                             : spry_prompt_chat(c, messages, tools, variables, choice, generate, error);
    json_decref(variables);
    return status;
}

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* The answer continues the last message: the prompt of the messages before it, and its text. */
static spry_status continue_prompt(spry_completion *c, spry_fields *fields, const json_t *messages, spry_error *error)
{
    size_t count = json_array_size(messages);
    const json_t *last = json_array_get(messages, count - 1), *content = json_object_get(last, "content"), *part;
    if (!is_assistant(last))
        return spry_fail(error, SPRY_ERR_INPUT, "continue_final_message: the last message is not the assistant's");
    spry_buffer text;
    size_t i;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_append(&text, json_is_string(content) ? json_string_value(content) : "", json_string_length(content));
    json_array_foreach(content, i, part)
    {
        if (i && spry_server_likes_llama(c->exchange->server))
            spry_buffer_text(&text, "\n\n");
        spry_buffer_text(&text, json_string_value(json_object_get(part, "text")));
    }
    json_t *before = json_copy((json_t *)(uintptr_t)messages), *begun = spry_buffer_json(&text);
    json_array_remove(before, count - 1);
    c->prompts.begun = begun;
    spry_status status = make_prompt(c, fields, before, true, error);
    c->prompts.begun = NULL;
    json_decref(before);
    json_decref(begun);
    spry_buffer_deinit(&text);
    return status;
}

/* Whether the last message is the beginning of an answer, and the request does not say what it is for. */
static bool ends_with_assistant(spry_fields *fields, const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return is_assistant(last) && !json_array_size(json_object_get(last, "tool_calls")) &&
           !spry_fields_get(fields, "add_generation_prompt");
}

spry_status spry_openai_chat_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *messages = json_object_get(fields->object, "messages");
    bool generate = spry_fields_bool(fields, "add_generation_prompt", true);
    bool given = spry_fields_bool(fields, "continue_final_message", false),
         ends = ends_with_assistant(fields, messages);
    if (given && spry_fields_get(fields, "add_generation_prompt") && generate)
        return spry_fail(error, SPRY_ERR_INPUT, "add_generation_prompt and continue_final_message exclude each other");
    if (!given && ends && is_assistant(json_array_get(messages, json_array_size(messages) - 2)))
        return spry_fail(error, SPRY_ERR_INPUT, "the last two messages are both the assistant's");
    if (given || (ends && !spry_fields_get(fields, "continue_final_message")))
        return continue_prompt(c, fields, messages, error);
    return make_prompt(c, fields, messages, generate, error);
}

static const spry_completion_interface interface = {.id_prefix = "chatcmpl-",
                                                    .read = spry_openai_chat_read,
                                                    .make_prompts = spry_openai_chat_prompt,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .open = open_stream,
                                                    .delta = write_delta,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice,
                                                    .close = close_stream};

void spry_openai_chat(spry_exchange *x)
{
    spry_openai_serve(x, &interface, &spry_fields_openai_chat);
}

/* ---- how many tokens a prompt has -------------------------------------------------------------------------------- */

void spry_openai_count_read(spry_completion_options *o, spry_fields *fields)
{
    spry_openai_chat_read(o, fields);
    o->no_answer = true;
    o->stream = false;
}

static json_t *count_json(spry_completion *c)
{
    return json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                     (json_int_t)c->prompts.ids[0].count);
}

static const spry_completion_interface count_interface = {.id_prefix = "count_",
                                                          .read = spry_openai_count_read,
                                                          .make_prompts = spry_openai_chat_prompt,
                                                          .whole = count_json};

void spry_openai_chat_count(spry_exchange *x)
{
    spry_openai_serve(x, &count_interface, &spry_fields_openai_chat);
}
