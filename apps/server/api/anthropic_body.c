/* Anthropic's messages consist of blocks: results of tools become messages of their own, calls and thoughts become
 * members of the assistant's message. */
#include <stdio.h>
#include <stdlib.h>

#include "server/api/chat_body.h"

enum { PLACE_BYTES = 64 };

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void refuse_block(spry_fields *fields, const char *place, const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type)
        spry_fields_refuse(fields, "messages", "%s must be an object with a \"type\"", place);
    else if (strcmp(type, "image") == 0 || strcmp(type, "document") == 0)
        spry_fields_refuse(fields, "messages", "%s is of type \"%s\": only text is understood", place, type);
    else
        spry_fields_refuse(fields, "messages", "%s has the type \"%.40s\", which is not known or has no place here",
                           place, type);
}

/* Adds the text of a block, or refuses it. */
static void add_text(json_t *parts, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *text = json_object_get(block, "text"), *source = json_object_get(block, "source");
    if (spry_chat_body_is(block, "type", "document") && spry_chat_body_is(source, "type", "text"))
        text = json_object_get(source, "data");
    else if (!spry_chat_body_is(block, "type", "text"))
        text = NULL;
    if (json_is_string(text))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    else
        refuse_block(fields, place, block);
}

/* A text, or a list of blocks that are all text; a new list of parts. */
static json_t *text_parts(spry_fields *fields, const char *place, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    if (json_is_string(content))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    else if (content && !json_is_array(content))
        spry_fields_refuse(fields, "messages", "%s must be a string or a list of blocks", place);
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        add_text(parts, fields, inner, block);
    }
    return parts;
}

static void add_result(json_t *messages, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id)) {
        spry_fields_refuse(fields, "messages", "%s has no tool_use_id", place);
        return;
    }
    json_t *parts = text_parts(fields, place, json_object_get(block, "content"));
    if (json_is_true(json_object_get(block, "is_error")))
        json_array_insert_new(parts, 0, json_pack("{s:s, s:s}", "type", "text", "text", "Error: "));
    json_array_append_new(messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", parts));
}

static void add_call(json_t *calls, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    if (!json_is_string(name) || !json_is_object(input)) {
        spry_fields_refuse(fields, "messages", "%s must have a name and an input, which is an object", place);
        return;
    }
    char *text = json_dumps(input, JSON_COMPACT);
    json_array_append_new(calls,
                          spry_chat_body_call(json_object_get(block, "id"), name, json_string(text ? text : "{}")));
    free(text);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void add_user(json_t *messages, spry_fields *fields, const char *place, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "tool_result"))
            add_result(messages, fields, inner, block);
        else
            add_text(parts, fields, inner, block);
    }
    if (json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", parts));
    json_decref(parts);
}

static void append(json_t *message, const char *key, const json_t *text)
{
    const char *before = json_string_value(json_object_get(message, key));
    json_object_set_new(message, key, json_sprintf("%s%s", before ? before : "", json_string_value(text)));
}

static void add_assistant(json_t *messages, spry_fields *fields, const char *place, const json_t *content)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "assistant", "content", ""), *calls = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    json_array_foreach(content, i, block)
    {
        const json_t *text = json_object_get(block, "text"), *thought = json_object_get(block, "thinking");
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "text") && json_is_string(text))
            append(message, "content", text);
        else if (spry_chat_body_is(block, "type", "thinking") && json_is_string(thought))
            append(message, "reasoning_content", thought);
        else if (spry_chat_body_is(block, "type", "tool_use"))
            add_call(calls, fields, inner, block);
        else if (!spry_chat_body_is(block, "type", "redacted_thinking"))
            refuse_block(fields, inner, block);
    }
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    json_array_append_new(messages, message);
}

static void add_message(json_t *messages, spry_fields *fields, const json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, "messages[%zu].content", number);
    bool user = spry_chat_body_is(message, "role", "user");
    if (!user && !spry_chat_body_is(message, "role", "assistant"))
        spry_fields_refuse(fields, "messages", "messages[%zu].role must be \"user\" or \"assistant\"", number);
    else if (json_is_string(content))
        json_array_append(messages, (json_t *)(uintptr_t)message);
    else if (!json_is_array(content))
        spry_fields_refuse(fields, "messages", "%s must be a string or a list of blocks", place);
    else
        (user ? add_user : add_assistant)(messages, fields, place, content);
}

/* The answer continues a last message of the assistant. */
static json_t *messages_of(json_t *body, spry_fields *fields)
{
    json_t *messages = json_array();
    const json_t *system = spry_fields_get(fields, "system"), *list = spry_fields_array(fields, "messages"), *message;
    size_t i;
    if (system)
        json_array_append_new(
            messages, json_pack("{s:s, s:o}", "role", "system", "content", text_parts(fields, "system", system)));
    if (!json_array_size(list))
        spry_fields_refuse(fields, "messages", "messages must be a list with at least one message");
    json_array_foreach(list, i, message) add_message(messages, fields, message, i);
    message = json_array_get(messages, json_array_size(messages) - 1);
    if (spry_chat_body_is(message, "role", "assistant") && !json_object_get(message, "tool_calls"))
        json_object_set_new(body, "continue_final_message", json_true());
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
        const json_t *type = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
        const json_t *schema = json_object_get(tool, "input_schema");
        if (json_is_string(type) && strcmp(json_string_value(type), "custom") != 0)
            spry_fields_refuse(fields, "tools", "tools[%zu].type is \"%.60s\": the server runs no tools", i,
                               json_string_value(type));
        else if (!json_is_string(name) || !json_is_object(schema))
            spry_fields_refuse(fields, "tools", "tools[%zu] must have a name and an input_schema, which is an object",
                               i);
        else
            json_array_append_new(tools, spry_chat_body_tool(name, json_object_get(tool, "description"), schema));
    }
    if (json_array_size(tools))
        json_object_set(body, "tools", tools);
    json_decref(tools);
}

static void add_choice(json_t *body, spry_fields *fields)
{
    const json_t *choice = spry_fields_object(fields, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice)
        return;
    if (spry_chat_body_is(choice, "type", "auto"))
        json_object_set_new(body, "tool_choice", json_string("auto"));
    else if (spry_chat_body_is(choice, "type", "any"))
        json_object_set_new(body, "tool_choice", json_string("required"));
    else if (spry_chat_body_is(choice, "type", "none"))
        json_object_set_new(body, "tool_choice", json_string("none"));
    else if (spry_chat_body_is(choice, "type", "tool") && json_is_string(name))
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    else
        spry_fields_refuse(fields, "tool_choice",
                           "tool_choice.type must be \"auto\", \"any\", \"none\", or \"tool\" with a name");
    json_object_set_new(body, "parallel_tool_calls",
                        json_boolean(!json_is_true(json_object_get(choice, "disable_parallel_tool_use"))));
}

/* Thoughts are off unless they are asked for, as in Anthropic's interface. */
static void add_thinking(json_t *body, spry_fields *fields)
{
    const json_t *thinking = spry_fields_object(fields, "thinking");
    bool on = spry_chat_body_is(thinking, "type", "enabled") || spry_chat_body_is(thinking, "type", "adaptive");
    if (thinking && !on && !spry_chat_body_is(thinking, "type", "disabled"))
        spry_fields_refuse(fields, "thinking", "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    spry_chat_body_variable(body, "enable_thinking", json_boolean(on));
}

static void add_format(json_t *body, spry_fields *fields)
{
    const json_t *config = spry_fields_object(fields, "output_config"), *effort = json_object_get(config, "effort");
    const json_t *format = json_object_get(config, "format");
    if (!format)
        format = spry_fields_object(fields, "output_format");
    if (json_is_string(effort))
        spry_chat_body_variable(body, "reasoning_effort", json_incref((json_t *)(uintptr_t)effort));
    if (!format || json_is_null(format))
        return;
    const json_t *schema = json_object_get(format, "schema");
    if (spry_chat_body_is(format, "type", "json_schema") && json_is_object(schema))
        json_object_set_new(
            body, "response_format",
            json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema", schema));
    else
        spry_fields_refuse(fields, config ? "output_config" : "output_format",
                           "the format must be {\"type\": \"json_schema\", \"schema\": {...}}");
}

json_t *spry_chat_body_anthropic(spry_fields *fields)
{
    static const char *const same[][2] = {
        {"model", "model"}, {"max_tokens", "max_tokens"}, {"stream", "stream"},      {"temperature", "temperature"},
        {"top_p", "top_p"}, {"top_k", "top_k"},           {"stop_sequences", "stop"}};
    json_t *body = json_object();
    spry_chat_body_copy(body, fields, same, SPRY_COUNT(same));
    spry_chat_body_copy_own(body, fields);
    json_object_set_new(body, "messages", messages_of(body, fields));
    add_tools(body, fields);
    add_choice(body, fields);
    add_thinking(body, fields);
    add_format(body, fields);
    return body;
}
