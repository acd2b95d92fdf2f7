/* The input of OpenAI's Responses is a list of items: thoughts, texts and calls of the assistant that follow each other
 * become one message. */
#include <stdio.h>

#include "server/api/chat_body.h"

/* ---- content ----------------------------------------------------------------------------------------------------- */

static bool is_text(const json_t *part)
{
    static const char *const types[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text"};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        if (spry_chat_body_is(part, "type", types[i]))
            return json_is_string(json_object_get(part, "text"));
    return false;
}

/* A text, or a list of parts that are text; a new list of parts. */
static json_t *text_parts(spry_fields *fields, size_t number, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *part;
    size_t i;
    if (json_is_string(content))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    else if (!json_is_array(content))
        spry_fields_refuse(fields, "input", "input[%zu] must have a text or a list of parts", number);
    json_array_foreach(content, i, part)
    {
        const json_t *refusal = json_object_get(part, "refusal");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (is_text(part) || json_is_string(refusal))
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text",
                                                   json_is_string(refusal) ? refusal : json_object_get(part, "text")));
        else
            spry_fields_refuse(fields, "input", "input[%zu], part %zu, is of type \"%.40s\": only text is understood",
                               number, i, type ? type : "");
    }
    return parts;
}

static json_t *joined(const json_t *parts)
{
    json_t *text = json_string(""), *part;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        const char *more = json_string_value(json_object_get(part, "text"));
        json_t *longer = json_sprintf("%s%s", json_string_value(text), more ? more : "");
        json_decref(text);
        text = longer;
    }
    return text;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* The assistant's message at the end of the list, made if there is none; `after`: it must not have this member yet. */
static json_t *assistant(json_t *messages, const char *after)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool fresh = spry_chat_body_is(last, "role", "assistant") && !json_object_get(last, "tool_calls") &&
                 (!after || !json_string_length(json_object_get(last, after)));
    if (fresh || (!after && spry_chat_body_is(last, "role", "assistant")))
        return last;
    last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    json_array_append_new(messages, last);
    return last;
}

static void add_message(json_t *messages, spry_fields *fields, size_t number, const json_t *item)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *parts = text_parts(fields, number, json_object_get(item, "content"));
    if (!role)
        spry_fields_refuse(fields, "input", "input[%zu] has no role", number);
    else if (strcmp(role, "assistant") == 0)
        json_object_set_new(assistant(messages, "content"), "content", joined(parts));
    else
        json_array_append_new(
            messages, json_pack("{s:s, s:O}", "role", strcmp(role, "developer") ? role : "system", "content", parts));
    json_decref(parts);
}

static void add_thought(json_t *messages, spry_fields *fields, size_t number, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    json_t *parts = text_parts(fields, number, json_array_size(content) ? content : json_object_get(item, "summary"));
    if (json_array_size(parts))
        json_object_set_new(assistant(messages, "content"), "reasoning_content", joined(parts));
    json_decref(parts);
}

static void add_call(json_t *messages, spry_fields *fields, size_t number, const json_t *item)
{
    const json_t *name = json_object_get(item, "name"), *arguments = json_object_get(item, "arguments");
    if (!json_is_string(name) || !json_is_string(arguments)) {
        spry_fields_refuse(fields, "input", "input[%zu] must have a name and arguments, which are strings", number);
        return;
    }
    json_t *message = assistant(messages, NULL);
    if (!json_object_get(message, "tool_calls"))
        json_object_set_new(message, "tool_calls", json_array());
    json_array_append_new(
        json_object_get(message, "tool_calls"),
        spry_chat_body_call(json_object_get(item, "call_id"), name, json_incref((json_t *)(uintptr_t)arguments)));
}

static void add_result(json_t *messages, spry_fields *fields, size_t number, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id");
    json_t *parts = text_parts(fields, number, json_object_get(item, "output"));
    if (json_is_string(id))
        json_array_append_new(messages,
                              json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id, "content", parts));
    else
        spry_fields_refuse(fields, "input", "input[%zu] has no call_id", number);
    json_decref(parts);
}

static void add_item(json_t *messages, spry_fields *fields, size_t number, const json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!json_is_object(item))
        spry_fields_refuse(fields, "input", "input[%zu] must be an object", number);
    else if (!type || strcmp(type, "message") == 0)
        add_message(messages, fields, number, item);
    else if (strcmp(type, "function_call") == 0)
        add_call(messages, fields, number, item);
    else if (strcmp(type, "function_call_output") == 0)
        add_result(messages, fields, number, item);
    else if (strcmp(type, "reasoning") == 0)
        add_thought(messages, fields, number, item);
    else
        spry_fields_refuse(fields, "input", "input[%zu].type is \"%.40s\", which is not supported", number, type);
}

static json_t *messages_of(spry_fields *fields, const json_t *before)
{
    const json_t *input = spry_fields_get(fields, "input"), *item;
    json_t *messages = before ? json_deep_copy(before) : json_array();
    size_t i;
    if (json_is_string(input))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    else
        json_array_foreach(input, i, item) add_item(messages, fields, i, item);
    if (!json_array_size(messages))
        spry_fields_refuse(fields, "input", "input must be a text or a list with at least one item");
    return messages;
}

/* ---- tools and settings ------------------------------------------------------------------------------------------ */

static void add_tools(json_t *body, spry_fields *fields)
{
    const json_t *list = spry_fields_tools(fields), *tool;
    json_t *tools = json_array();
    size_t i;
    json_array_foreach(list, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));
        const json_t *name = json_object_get(tool, "name");
        if (!type || strcmp(type, "function") != 0)
            spry_fields_refuse(fields, "tools", "tools[%zu].type is \"%.40s\": only functions are supported", i,
                               type ? type : "");
        else if (!json_is_string(name))
            spry_fields_refuse(fields, "tools", "tools[%zu] has no name", i);
        else
            json_array_append_new(tools, spry_chat_body_tool(name, json_object_get(tool, "description"),
                                                             json_object_get(tool, "parameters")));
    }
    if (json_array_size(tools))
        json_object_set(body, "tools", tools);
    json_decref(tools);
}

static void add_choice(json_t *body, spry_fields *fields)
{
    const json_t *choice = spry_fields_get(fields, "tool_choice"), *name = json_object_get(choice, "name");
    if (json_is_string(choice))
        json_object_set(body, "tool_choice", (json_t *)(uintptr_t)choice);
    else if (spry_chat_body_is(choice, "type", "function") && json_is_string(name))
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    else if (choice)
        spry_fields_refuse(fields, "tool_choice", "tool_choice must be a string, or name a function");
}

static void add_format(json_t *body, spry_fields *fields)
{
    const json_t *format = json_object_get(spry_fields_object(fields, "text"), "format");
    if (spry_chat_body_is(format, "type", "json_schema"))
        json_object_set_new(body, "response_format",
                            json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format));
    else if (format && !json_is_null(format))
        json_object_set(body, "response_format", (json_t *)(uintptr_t)format);
}

static void add_include(json_t *body, spry_fields *fields)
{
    const json_t *list = spry_fields_array(fields, "include"), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        if (name && strcmp(name, "message.output_text.logprobs") == 0)
            json_object_set_new(body, "logprobs", json_true());
        else if (!name || strcmp(name, "reasoning.encrypted_content") != 0)
            spry_fields_refuse(fields, "include", "include[%zu] is not supported", i);
    }
    if (spry_fields_get(fields, "top_logprobs"))
        json_object_set_new(body, "logprobs", json_true());
}

static void add_rest(json_t *body, spry_fields *fields)
{
    const json_t *effort = json_object_get(spry_fields_object(fields, "reasoning"), "effort");
    const char *truncation = spry_fields_string(fields, "truncation", "disabled");
    if (effort && !json_is_null(effort))
        json_object_set(body, "reasoning_effort", (json_t *)(uintptr_t)effort);
    if (strcmp(truncation, "auto") == 0)
        json_object_set_new(body, "slide", json_true());
    else if (strcmp(truncation, "disabled") != 0)
        spry_fields_refuse(fields, "truncation", "truncation must be \"auto\" or \"disabled\"");
}

json_t *spry_chat_body_responses(spry_fields *fields, const json_t *before)
{
    static const char *const same[][2] = {{"model", "model"},
                                          {"max_output_tokens", "max_tokens"},
                                          {"stream", "stream"},
                                          {"return_progress", "return_progress"},
                                          {"timings_per_token", "timings_per_token"},
                                          {"temperature", "temperature"},
                                          {"top_p", "top_p"},
                                          {"top_logprobs", "top_logprobs"},
                                          {"parallel_tool_calls", "parallel_tool_calls"}};
    json_t *body = json_object();
    const json_t *instructions = spry_fields_get(fields, "instructions");
    spry_chat_body_copy(body, fields, same, SPRY_COUNT(same));
    spry_chat_body_copy_own(body, fields);
    json_object_set_new(body, "messages", messages_of(fields, before));
    if (json_is_string(instructions))
        json_array_insert_new(json_object_get(body, "messages"), 0,
                              json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    add_tools(body, fields);
    add_choice(body, fields);
    add_format(body, fields);
    add_include(body, fields);
    add_rest(body, fields);
    return body;
}
