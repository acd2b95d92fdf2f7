/* Changed messages are copied; unchanged parts are shared. */
#include "template/chat_messages.h"

#include "base/buffer.h"
#include "template/jinja_json.h"

enum { MAX_CONTENT_BYTES = 256 << 20, VALUE_BYTES = 4 };

static json_t *mutable(const json_t *json)
{
    return (json_t *)(uintptr_t)json; /* for reference counting: jansson's functions are not const */
}

static bool is_text_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text"));
}

static bool is_text_parts(const json_t *content)
{
    if (!json_is_array(content))
        return false;
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!is_text_part(json_array_get(content, i)))
            return false;
    return true;
}

static json_t *joined_parts(const json_t *content)
{
    spry_buffer text;
    spry_buffer_init(&text, MAX_CONTENT_BYTES);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        spry_buffer_text(&text, i ? "\n" : "");
        spry_buffer_append(&text, json_string_value(part), json_string_length(part));
    }
    json_t *joined = text.failed ? NULL : json_stringn(spry_buffer_view(&text).data, text.size);
    spry_buffer_deinit(&text);
    return joined;
}

/* False when memory is short. */
static bool make_content_plain(json_t *message, bool *changed)
{
    const json_t *content = json_object_get(message, "content");
    bool parts = is_text_parts(content);
    if (!parts && !json_is_null(content))
        return true;
    *changed = true;
    return json_object_set_new(message, "content", parts ? joined_parts(content) : json_string("")) == 0;
}

/* The object that a JSON text of arguments contains; NULL when it is not an object. */
static json_t *parsed_arguments(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function ? function : call, "arguments");
    json_t *json = NULL;
    if (json_is_string(text))
        json = json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

static bool parse_arguments(json_t *message, bool *changed)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *copy = NULL;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *arguments = parsed_arguments(json_array_get(calls, i));
        if (!arguments)
            continue;
        copy = copy ? copy : json_deep_copy(calls);
        json_t *call = json_array_get(copy, i), *function = json_object_get(call, "function");
        if (json_object_set_new(function ? function : call, "arguments", arguments)) {
            json_decref(copy);
            return false;
        }
        *changed = true;
    }
    return !copy || json_object_set_new(message, "tool_calls", copy) == 0;
}

spry_status spry_chat_messages_form(json_t **out, bool *differs, const json_t *messages, spry_chat_form form,
                                    spry_error *error)
{
    bool arguments = false, contents = false, made = true;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(messages) && made; i++) {
        const json_t *message = json_array_get(messages, i);
        json_t *copy = json_is_object(message) ? json_copy(mutable(message)) : json_incref(mutable(message));
        made = copy;
        if (json_is_object(copy)) {
            made = made && (form == SPRY_CHAT_AS_GIVEN || make_content_plain(copy, &contents));
            /* The last form keeps the arguments as text, but must detect that there are some. */
            json_t *target = form == SPRY_CHAT_TEXT_ARGUMENTS ? json_copy(copy) : json_incref(copy);
            made = made && target && parse_arguments(target, &arguments);
            json_decref(target);
        }
        made = json_array_append_new(*out, copy) == 0 && made;
    }
    if (!made || !*out) {
        json_decref(*out);
        *out = NULL;
        return spry_fail_memory(error, "a conversation", json_array_size(messages));
    }
    *differs = form == SPRY_CHAT_TEXT_ARGUMENTS ? arguments : contents;
    return SPRY_OK;
}

/* A copy of an object with `key` set to an empty text where it has none. */
static json_t *with_text(const json_t *object, const char *key, bool *changed)
{
    json_t *copy = json_is_object(object) ? json_copy(mutable(object)) : json_incref(mutable(object));
    if (json_is_object(copy) && !json_object_get(copy, key)) {
        *changed = true;
        json_object_set_new(copy, key, json_string(""));
    }
    return copy;
}

/* The same for a function and its parameters. */
static json_t *described_function(const json_t *function, bool *changed)
{
    json_t *copy = with_text(function, "description", changed);
    json_t *parameters = json_deep_copy(json_object_get(copy, "parameters")), *property;
    json_t *properties = json_object_get(parameters, "properties");
    const char *key;
    void *next;
    json_object_foreach_safe(properties, next, key, property)
    {
        json_object_set_new(properties, key, with_text(property, "description", changed));
    }
    if (!parameters) {
        *changed = true;
        parameters = json_pack("{s:s, s:{}}", "type", "object", "properties");
    }
    json_object_set_new(copy, "parameters", parameters);
    return copy;
}

spry_status spry_chat_tools_described(json_t **out, bool *differs, const json_t *tools, spry_error *error)
{
    *differs = false;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        json_t *copy = function ? json_copy(mutable(tool)) : described_function(tool, differs);
        if (function)
            json_object_set_new(copy, "function", described_function(function, differs));
        if (!copy || json_array_append_new(*out, copy)) {
            json_decref(*out);
            *out = NULL;
            return spry_fail_memory(error, "tools", json_array_size(tools));
        }
    }
    return *out ? SPRY_OK : spry_fail_memory(error, "tools", 0);
}

bool spry_chat_messages_have_parts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (json_array_size(content) && is_text_parts(content))
            return true;
    }
    return false;
}

static bool is_known_role(spry_view role)
{
    static const char *const roles[] = {"system",   "user",    "assistant",   "tool",  "developer",
                                        "function", "ipython", "observation", "model", "tool_response"};
    for (size_t i = 0; i < SPRY_COUNT(roles); i++)
        if (spry_view_is(role, roles[i]))
            return true;
    return false;
}

spry_jinja_value spry_chat_messages_value(spry_jinja_run *run, const json_t *messages)
{
    spry_jinja_value list = spry_jinja_from_json(run, messages);
    for (size_t i = 0; !run->status && i < list.list->count; i++) {
        spry_jinja_value message = list.list->items[i];
        if (message.kind != SPRY_JINJA_DICT)
            continue;
        spry_jinja_value *role = spry_jinja_dict_find_text(message.dict, SPRY_VIEW("role"));
        const spry_jinja_value *content = spry_jinja_dict_find_text(message.dict, SPRY_VIEW("content"));
        if (role && role->kind == SPRY_JINJA_STRING && is_known_role(spry_jinja_view(*role)))
            *role = spry_jinja_text(run, spry_jinja_view(*role), false);
        if (content && content->kind == SPRY_JINJA_LIST)
            content->list->parts = true;
    }
    return list;
}

size_t spry_chat_json_bytes(const json_t *json)
{
    size_t bytes = VALUE_BYTES;
    if (!json)
        return 0;
    if (json_is_string(json))
        bytes += json_string_length(json);
    for (size_t i = 0; i < json_array_size(json); i++)
        bytes += spry_chat_json_bytes(json_array_get(json, i));
    for (void *at = json_object_iter(mutable(json)); at; at = json_object_iter_next(mutable(json), at))
        bytes += json_object_iter_key_len(at) + spry_chat_json_bytes(json_object_iter_value(at));
    return bytes;
}
