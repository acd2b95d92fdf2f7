/* Bodies of OpenAI's Responses, rewritten as bodies of chat completions: thoughts, texts and calls of the assistant
 * that follow each other become one message, and tools of every kind become functions. "calls" of the body maps the
 * name of a function to {"type", "name", "namespace"} of its tool, for the reply. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/request/completion.h"

enum { PLACE_BYTES = 96 };

typedef struct reader {
    spry_fields *fields;
    json_t *messages, *tools, *calls;
} reader;

static void ignore(reader *r, const char *key, const char *type)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%.60s", key, *type ? type : "?");
    spry_fields_ignore(r->fields, key, name, "this type is not known, or the server cannot do it");
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

static bool is_text(const json_t *part)
{
    static const char *const types[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text"};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        if (spry_chat_body_is(part, "type", types[i]))
            return json_is_string(json_object_get(part, "text"));
    return false;
}

static void add_part(json_t *parts, reader *r, size_t number, const json_t *part)
{
    const json_t *refusal = json_object_get(part, "refusal"), *url = json_object_get(part, "image_url");
    const char *type = spry_chat_body_string(part, "type");
    if (is_text(part))
        spry_chat_body_add_text(parts, json_object_get(part, "text"));
    else if (json_is_string(part))
        spry_chat_body_add_text(parts, part);
    else if (json_is_object(part) && json_is_null(json_object_get(part, "text")))
        return; /* says nothing */
    else if (json_is_string(refusal))
        spry_chat_body_add_text(parts, refusal);
    else if (strcmp(type, "input_image") == 0 && json_is_string(url))
        spry_chat_body_add_image(parts, json_string_value(url));
    else if (strcmp(type, "input_image") == 0 || strcmp(type, "input_file") == 0 || strcmp(type, "input_audio") == 0)
        spry_chat_body_add_notice(parts, r->fields, "input", type);
    else if (*type)
        ignore(r, "input", type);
    else
        spry_fields_refuse(r->fields, "input", "input[%zu] has a part without a type", number);
}

/* A text, or a list of parts; a new list. */
static json_t *parts_of(reader *r, size_t number, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *part;
    size_t i;
    if (json_is_string(content))
        spry_chat_body_add_text(parts, content);
    else if (!json_is_array(content) && content && !json_is_null(content))
        spry_fields_refuse(r->fields, "input", "input[%zu] must have a text or a list of parts", number);
    json_array_foreach(content, i, part) add_part(parts, r, number, part);
    return parts;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* The name of the function for a tool, which may be in a namespace. */
static json_t *function_name(const char *space, const char *name)
{
    return *space ? json_sprintf("%s__%s", space, name) : json_string(name);
}

/* Adds a tool; `parts` (NULL: none): the message that defines it, because the list is already in the prompt. Takes
 * `name` and `tool`. */
static void add_made(reader *r, json_t *parts, const char *type, const char *space, const char *own, json_t *name,
                     json_t *tool)
{
    if (parts) {
        spry_chat_body_define(parts, tool);
        spry_chat_body_defer(tool);
    }
    json_array_append_new(r->tools, tool);
    json_object_set_new(r->calls, json_string_value(name),
                        json_pack("{s:s, s:s, s:s}", "type", type, "name", own, "namespace", space));
    json_decref(name);
}

/* Adds a tool as a function. Takes `about` and `schema`. */
static void add_function(reader *r, json_t *parts, const char *type, const char *space, const char *own, json_t *about,
                         json_t *schema)
{
    json_t *name = function_name(space, own);
    add_made(r, parts, type, space, own, name, spry_chat_body_tool(name, about, schema));
    json_decref(about);
    json_decref(schema);
}

static void add_custom(reader *r, json_t *parts, const char *space, const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    const char *own = spry_chat_body_string(tool, "name");
    json_t *name = function_name(space, own);
    add_made(r, parts, "custom", space, own, name,
             spry_chat_body_custom_tool(name, spry_chat_body_string(tool, "description"),
                                        spry_chat_body_string(format, "syntax"),
                                        spry_chat_body_string(format, "definition")));
}

static void add_shell(reader *r, json_t *parts)
{
    add_function(r, parts, "local_shell", "", "local_shell", json_string("Runs a command."),
                 json_pack("{s:s, s:{s:{s:s, s:{s:s}}, s:{s:s}, s:{s:s}}, s:[s]}", "type", "object", "properties",
                           "command", "type", "array", "items", "type", "string", "working_directory", "type", "string",
                           "timeout_ms", "type", "integer", "required", "command"));
}

static void add_shell_of_commands(reader *r, json_t *parts)
{
    add_function(r, parts, "shell", "", "shell", json_string("Runs commands in a shell, at the same time."),
                 json_pack("{s:s, s:{s:{s:s, s:{s:s}}, s:{s:s}, s:{s:s}}, s:[s]}", "type", "object", "properties",
                           "commands", "type", "array", "items", "type", "string", "timeout_ms", "type", "integer",
                           "max_output_length", "type", "integer", "required", "commands"));
}

static void add_patch(reader *r, json_t *parts)
{
    add_function(r, parts, "apply_patch", "", "apply_patch",
                 json_string("Creates, changes or deletes a file. \"diff\" is a V4A diff: lines of context, lines "
                             "that begin with - and with +."),
                 json_pack("{s:s, s:{s:{s:s, s:[s, s, s]}, s:{s:s}, s:{s:s}}, s:[s, s]}", "type", "object",
                           "properties", "type", "type", "string", "enum", "create_file", "update_file", "delete_file",
                           "path", "type", "string", "diff", "type", "string", "required", "type", "path"));
}

/* Whether the client runs a shell's commands, not a container of another server. */
static bool is_local(const json_t *tool)
{
    const json_t *environment = json_object_get(tool, "environment");
    return !json_is_object(environment) || spry_chat_body_is(environment, "type", "local");
}

static json_t *shared(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? json_incref(value) : NULL;
}

static void add_tool(reader *r, json_t *parts, const char *space, const json_t *tool, const char *place);

static void add_tool_list(reader *r, json_t *parts, const char *space, const json_t *list, const char *place)
{
    const json_t *tool;
    char inner[PLACE_BYTES];
    size_t i;
    json_array_foreach(list, i, tool)
    {
        snprintf(inner, sizeof inner, "%.60s[%zu]", place, i);
        add_tool(r, parts, space, tool, inner);
    }
}

static void add_tool(reader *r, json_t *parts, const char *space, const json_t *tool, const char *place)
{
    const char *type = spry_chat_body_string(tool, "type");
    if (json_is_object(json_object_get(tool, "function")) && !json_object_get(tool, "name"))
        tool = json_object_get(tool, "function"); /* the form of chat completions */
    const char *name = spry_chat_body_string(tool, "name");
    if (!*type && json_is_object(json_object_get(tool, "parameters")))
        type = "function";
    bool function = strcmp(type, "function") == 0, custom = strcmp(type, "custom") == 0,
         names = strcmp(type, "namespace") == 0;
    if (!*type)
        spry_fields_refuse(r->fields, "tools", "%s has no type", place);
    else if ((function || custom || names) && !*name)
        spry_fields_refuse(r->fields, "tools", "%s has no name", place);
    else if (function)
        add_function(r, parts, type, space, name, shared(tool, "description"), shared(tool, "parameters"));
    else if (custom)
        add_custom(r, parts, space, tool);
    else if (names && !*space)
        add_tool_list(r, parts, name, json_object_get(tool, "tools"), place);
    else if (strcmp(type, "tool_search") == 0 && spry_chat_body_is(tool, "execution", "client"))
        add_function(r, parts, type, "", type, shared(tool, "description"), shared(tool, "parameters"));
    else if (strcmp(type, "local_shell") == 0)
        add_shell(r, parts);
    else if (strcmp(type, "shell") == 0 && is_local(tool))
        add_shell_of_commands(r, parts);
    else if (strcmp(type, "apply_patch") == 0)
        add_patch(r, parts);
    else if (strcmp(type, "mcp") == 0 && !parts)
        json_array_append(r->tools, (json_t *)(uintptr_t)tool); /* rounds.h expands it */
    else
        ignore(r, "tools", type);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* The assistant's message at the end of the list, made if there is none; `after`: it must not have this member yet. */
static json_t *assistant(reader *r, const char *after)
{
    json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    bool fresh = spry_chat_body_is(last, "role", "assistant") && !json_object_get(last, "tool_calls") &&
                 (!after || !json_string_length(json_object_get(last, after)));
    if (fresh || (!after && spry_chat_body_is(last, "role", "assistant")))
        return last;
    last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    json_array_append_new(r->messages, last);
    return last;
}

static void add_message(reader *r, size_t number, const json_t *item)
{
    const char *role = spry_chat_body_string(item, "role");
    json_t *parts = parts_of(r, number, json_object_get(item, "content"));
    if (!*role)
        spry_fields_refuse(r->fields, "input", "input[%zu] has no role", number);
    else if (strcmp(role, "assistant") == 0)
        json_object_set_new(assistant(r, "content"), "content", spry_chat_body_joined(parts));
    else
        json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", role, "content", parts));
    json_decref(parts);
}

static void add_thought(reader *r, size_t number, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    const char *kept = spry_chat_body_string(item, "encrypted_content");
    bool own = strncmp(kept, SPRY_KEPT_THOUGHT, strlen(SPRY_KEPT_THOUGHT)) == 0;
    json_t *parts = parts_of(r, number, json_array_size(content) ? content : json_object_get(item, "summary"));
    if (own)
        json_object_set_new(assistant(r, "content"), "reasoning_content",
                            json_string(kept + strlen(SPRY_KEPT_THOUGHT)));
    else if (json_array_size(parts))
        json_object_set_new(assistant(r, "content"), "reasoning_content", spry_chat_body_joined(parts));
    json_decref(parts);
}

/* Adds a call; takes `arguments`, a string. */
static void add_call(reader *r, const json_t *item, const char *own, json_t *arguments)
{
    json_t *message = assistant(r, NULL), *name = function_name(spry_chat_body_string(item, "namespace"), own);
    if (!json_object_get(message, "tool_calls"))
        json_object_set_new(message, "tool_calls", json_array());
    json_array_append_new(json_object_get(message, "tool_calls"),
                          spry_chat_body_call(json_object_get(item, "call_id"), name, arguments));
    json_decref(name);
}

/* {KEY: VALUE}, or the value alone, as a JSON text. */
static json_t *arguments_of(const char *key, const json_t *value)
{
    json_t *object = key ? json_pack("{s:O}", key, value) : NULL;
    char *text = spry_json_text(object ? object : value, JSON_COMPACT);
    json_t *arguments = json_string(text ? text : "{}");
    free(text);
    json_decref(object);
    return arguments;
}

static void add_function_call(reader *r, size_t number, const json_t *item)
{
    const char *name = spry_chat_body_string(item, "name");
    json_t *arguments = json_object_get(item, "arguments");
    if (*name && json_is_string(arguments))
        add_call(r, item, name, json_incref(arguments));
    else if (*name && json_is_object(arguments))
        add_call(r, item, name, arguments_of(NULL, arguments));
    else if (*name && json_is_null(arguments))
        add_call(r, item, name, json_string("{}"));
    else
        spry_fields_refuse(r->fields, "input", "input[%zu] must have a name and arguments, which are strings", number);
}

static void add_custom_call(reader *r, size_t number, const json_t *item)
{
    const char *name = spry_chat_body_string(item, "name");
    const json_t *input = json_object_get(item, "input");
    if (*name && json_is_string(input))
        add_call(r, item, name, arguments_of("input", input));
    else
        spry_fields_refuse(r->fields, "input", "input[%zu] must have a name and an input, which are strings", number);
}

static void add_search_call(reader *r, size_t number, const json_t *item)
{
    json_t *arguments = json_object_get(item, "arguments");
    (void)number;
    add_call(r, item, "tool_search",
             json_is_string(arguments) ? json_incref(arguments) : arguments_of(NULL, arguments));
}

/* Calls of tools that the interface defines: what they do is in one member. */
static void add_known_call(reader *r, size_t number, const json_t *item)
{
    const char *type = spry_chat_body_string(item, "type");
    const json_t *what = json_object_get(item, strcmp(type, "apply_patch_call") == 0 ? "operation" : "action");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(type) - strlen("_call")), type);
    if (json_is_object(what))
        add_call(r, item, name, arguments_of(NULL, what));
    else
        spry_fields_refuse(r->fields, "input", "input[%zu] does not say what it does", number);
}

/* The result of a call; takes `parts`. */
static void add_output(reader *r, size_t number, const json_t *item, json_t *parts)
{
    const char *id = spry_chat_body_string(item, "call_id"), *type = spry_chat_body_string(item, "type");
    if (!*id)
        id = spry_chat_body_string(item, "id"); /* a local_shell_call_output has "id" in place of "call_id" */
    if (!*id && strcmp(type, "tool_search_output") == 0)
        id = type; /* what the vendor's own search found has no call */
    if (*id)
        json_array_append_new(r->messages,
                              json_pack("{s:s, s:s, s:O}", "role", "tool", "tool_call_id", id, "content", parts));
    else
        spry_fields_refuse(r->fields, "input", "input[%zu] has no call_id", number);
    json_decref(parts);
}

static void add_result(reader *r, size_t number, const json_t *item)
{
    const json_t *output = json_object_get(item, "output");
    json_t *text = json_is_object(output) ? arguments_of(NULL, output) : NULL;
    add_output(r, number, item, parts_of(r, number, text ? text : output));
    json_decref(text);
}

/* The result of a shell is a list of objects without types. */
static void add_shell_result(reader *r, size_t number, const json_t *item)
{
    json_t *text = arguments_of(NULL, json_object_get(item, "output"));
    add_output(r, number, item, parts_of(r, number, text));
    json_decref(text);
}

/* The result of a patch may have only a status. */
static void add_patch_result(reader *r, size_t number, const json_t *item)
{
    const json_t *output = json_object_get(item, "output");
    add_output(r, number, item,
               parts_of(r, number, json_string_length(output) ? output : json_object_get(item, "status")));
}

/* A call that the server made, as it was returned: the call and its result. */
static void add_mcp_call(reader *r, size_t number, const json_t *item)
{
    const char *label = spry_chat_body_string(item, "server_label"), *name = spry_chat_body_string(item, "name");
    const json_t *id = json_object_get(item, "id"), *output = json_object_get(item, "output");
    const json_t *error = json_object_get(item, "error");
    json_t *call = json_pack("{s:s, s:O*}", "namespace", label, "call_id", id);
    json_t *arguments = json_object_get(item, "arguments");
    json_t *result = json_pack("{s:O*, s:O*}", "call_id", id, "output", json_is_null(output) ? error : output);
    add_call(r, call, name, json_is_string(arguments) ? json_incref(arguments) : json_string("{}"));
    add_result(r, number, result);
    json_decref(call);
    json_decref(result);
}

/* A part outside of a message is the user's. */
static void add_loose_part(reader *r, size_t number, const json_t *item)
{
    json_t *parts = json_array();
    add_part(parts, r, number, item);
    if (json_array_size(parts))
        json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", "user", "content", parts));
    json_decref(parts);
}

/* What one agent says to another. */
static void add_agent_message(reader *r, size_t number, const json_t *item)
{
    json_t *parts = parts_of(r, number, json_object_get(item, "content"));
    const char *author = spry_chat_body_string(item, "author");
    if (*author)
        json_array_insert_new(parts, 0,
                              json_pack("{s:s, s:o}", "type", "text", "text", json_sprintf("From %.200s:\n", author)));
    json_array_append_new(r->messages, json_pack("{s:s, s:o}", "role", "user", "content", parts));
}

/* Tools that were found are defined where they were found, so that the list of tools and the cached prompt remain. */
static void add_search_result(reader *r, size_t number, const json_t *item)
{
    json_t *parts = json_array();
    add_tool_list(r, parts, "", json_object_get(item, "tools"), "tools");
    if (!json_array_size(parts))
        spry_chat_body_add_sentence(parts, "No tool was found.");
    add_output(r, number, item, parts);
}

/* The same for tools that are added in the middle of a conversation. */
static void add_more_tools(reader *r, size_t number, const json_t *item)
{
    const json_t *list = json_object_get(item, "tools");
    (void)number;
    if (!json_array_size(r->messages)) {
        add_tool_list(r, NULL, "", list, "tools");
        return;
    }
    json_t *parts = json_array();
    add_tool_list(r, parts, "", list, "tools");
    if (json_array_size(parts))
        json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", "developer", "content", parts));
    json_decref(parts);
}

static void add_compaction(reader *r, size_t number, const json_t *item)
{
    const char *kept = spry_chat_body_string(item, "encrypted_content");
    (void)number;
    if (strncmp(kept, SPRY_KEPT_THOUGHT, strlen(SPRY_KEPT_THOUGHT)) != 0) {
        ignore(r, "input", "compaction");
        return;
    }
    json_array_append_new(r->messages, json_pack("{s:s, s:o}", "role", "user", "content",
                                                 json_sprintf("Summary of the conversation so far:\n%s",
                                                              kept + strlen(SPRY_KEPT_THOUGHT))));
}

static void add_item(reader *r, size_t number, const json_t *item)
{
    static const struct {
        const char *type;
        void (*add)(reader *r, size_t number, const json_t *item);
    } kinds[] = {{"message", add_message},
                 {"function_call", add_function_call},
                 {"function_call_output", add_result},
                 {"custom_tool_call", add_custom_call},
                 {"custom_tool_call_output", add_result},
                 {"local_shell_call", add_known_call},
                 {"local_shell_call_output", add_result},
                 {"shell_call", add_known_call},
                 {"shell_call_output", add_shell_result},
                 {"apply_patch_call", add_known_call},
                 {"apply_patch_call_output", add_patch_result},
                 {"mcp_call", add_mcp_call},
                 {"agent_message", add_agent_message},
                 {"input_text", add_loose_part},
                 {"input_image", add_loose_part},
                 {"tool_search_call", add_search_call},
                 {"tool_search_output", add_search_result},
                 {"additional_tools", add_more_tools},
                 {"reasoning", add_thought},
                 {"compaction", add_compaction}};
    const char *type = spry_chat_body_string(item, "type");
    if (!json_is_object(item)) {
        spry_fields_refuse(r->fields, "input", "input[%zu] must be an object", number);
        return;
    }
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (strcmp(*type ? type : "message", kinds[i].type) == 0) {
            kinds[i].add(r, number, item);
            return;
        }
    ignore(r, "input", type);
}

static void add_items(reader *r)
{
    const json_t *input = spry_fields_get(r->fields, "input"), *item;
    size_t i;
    if (json_is_string(input))
        json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
    else
        json_array_foreach(input, i, item) add_item(r, i, item);
    if (!json_array_size(r->messages) && !json_string_length(spry_fields_get(r->fields, "instructions")))
        spry_fields_refuse(r->fields, "input", "input must be a text or a list with at least one item");
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* Whether the tool of a choice, which was not left out, is among the tools. */
static bool can_call(const reader *r, const json_t *tool)
{
    const char *type = spry_chat_body_string(tool, "type"), *own = spry_chat_body_string(tool, "name");
    json_t *name = function_name(spry_chat_body_string(tool, "namespace"), *own ? own : type);
    bool found = json_object_get(r->calls, json_string_value(name)) != NULL;
    json_decref(name);
    return found || strcmp(type, "function") == 0 || strcmp(type, "custom") == 0;
}

/* {"type": "allowed_tools"} without tools that were left out; where none remains, the model may decide. */
static void add_allowed(json_t *body, reader *r, const json_t *choice)
{
    json_t *kept = json_array(), *tool;
    size_t i;
    json_array_foreach(json_object_get(choice, "tools"), i, tool)
    {
        if (can_call(r, tool))
            json_array_append_new(kept, json_pack("{s:s, s:o}", "type", "function", "name",
                                                  function_name(spry_chat_body_string(tool, "namespace"),
                                                                *spry_chat_body_string(tool, "name")
                                                                    ? spry_chat_body_string(tool, "name")
                                                                    : spry_chat_body_string(tool, "type"))));
        else
            ignore(r, "tool_choice", spry_chat_body_string(tool, "type"));
    }
    if (json_array_size(kept))
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:O*, s:O}", "type", "allowed_tools", "mode",
                                      json_object_get(choice, "mode"), "tools", kept));
    json_decref(kept);
}

static void add_choice(json_t *body, reader *r)
{
    const json_t *choice = spry_fields_get(r->fields, "tool_choice");
    const char *type = spry_chat_body_string(choice, "type"), *name = spry_chat_body_string(choice, "name");
    bool named = (strcmp(type, "function") == 0 || strcmp(type, "custom") == 0) && *name;
    bool known = !named && *type && json_object_get(r->calls, type); /* a tool that the interface defines */
    bool none_left = json_array_size(spry_fields_get(r->fields, "tools")) && !json_array_size(r->tools);
    if (json_array_size(json_object_get(choice, "tools")) && strcmp(type, "allowed_tools") == 0)
        add_allowed(body, r, choice);
    else if (json_is_string(choice) && none_left)
        ignore(r, "tool_choice", json_string_value(choice));
    else if (known)
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", type));
    else if (json_is_string(choice) || strcmp(type, "allowed_tools") == 0)
        json_object_set(body, "tool_choice", (json_t *)(uintptr_t)choice);
    else if (named)
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:{s:o}}", "type", "function", "function", "name",
                                      function_name(spry_chat_body_string(choice, "namespace"), name)));
    else if (*type)
        ignore(r, "tool_choice", type);
    else if (choice)
        spry_fields_refuse(r->fields, "tool_choice", "tool_choice must be a string, or name a function");
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

static void add_include(json_t *body, reader *r)
{
    const json_t *list = spry_fields_array(r->fields, "include"), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);
        if (name && strcmp(name, "message.output_text.logprobs") == 0)
            json_object_set_new(body, "logprobs", json_true());
        else if (!name)
            spry_fields_refuse(r->fields, "include", "include[%zu] must be a string", i);
        else if (strcmp(name, "reasoning.encrypted_content") != 0)
            ignore(r, "include", name);
    }
    if (spry_fields_get(r->fields, "top_logprobs"))
        json_object_set_new(body, "logprobs", json_true());
}

static void add_rest(json_t *body, spry_fields *fields)
{
    const json_t *effort = json_object_get(spry_fields_object(fields, "reasoning"), "effort");
    const char *truncation = spry_fields_string(fields, "truncation", "disabled");
    if (effort && !json_is_null(effort))
        json_object_set(body, "reasoning_effort", (json_t *)(uintptr_t)effort);
    if (strcmp(truncation, "auto") == 0 && !json_object_get(body, "context_overflow"))
        json_object_set_new(body, "context_overflow", json_string("slide"));
    else if (strcmp(truncation, "disabled") != 0)
        spry_fields_refuse(fields, "truncation", "truncation must be \"auto\" or \"disabled\"");
}

json_t *spry_chat_body_responses(spry_fields *fields, const json_t *before)
{
    json_t *body = json_object();
    const json_t *instructions = spry_fields_get(fields, "instructions");
    reader r = {.fields = fields,
                .messages = before ? json_deep_copy(before) : json_array(),
                .tools = json_array(),
                .calls = json_object()};
    spry_fields_copy(body, fields, &spry_fields_responses);
    add_tool_list(&r, NULL, "", spry_fields_tools(fields), "tools");
    add_items(&r);
    if (json_is_string(instructions))
        json_array_insert_new(r.messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    json_object_set_new(body, "messages", r.messages);
    if (json_array_size(r.tools))
        json_object_set(body, "tools", r.tools);
    json_object_set_new(body, "calls", r.calls);
    json_decref(r.tools);
    add_choice(body, &r);
    add_format(body, fields);
    add_include(body, &r);
    add_rest(body, fields);
    return body;
}
