/* Messages of chat completions and of Ollama, in the one form that chat templates expect. Clients write the same things
 * in many forms: thoughts under five names, calls with and without arguments, texts as strings, parts and objects. What
 * has the same meaning is rewritten; members that are null are absent. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "server/fields/fields.h"
#include "server/request/completion.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void remove_nulls(json_t *object)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
    {
        if (json_is_null(value) && strcmp(key, "content") != 0)
            json_object_del(object, key);
    }
}

/* ---- thoughts ---------------------------------------------------------------------------------------------------- */

/* The texts of a list of parts, joined; `key`: the member that has the text. */
static json_t *joined(const json_t *parts, const char *key)
{
    spry_buffer all;
    const json_t *part;
    size_t i;
    spry_buffer_init(&all, SIZE_MAX / 2);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, key);
        spry_buffer_append(&all, json_is_string(text) ? json_string_value(text) : "", json_string_length(text));
    }
    json_t *text = spry_buffer_json(&all);
    spry_buffer_deinit(&all);
    return text;
}

/* "reasoning_content" from the names that other servers have for it. */
static void unify_thought(json_t *message)
{
    static const char *const names[] = {"reasoning", "reasoning_text", "thinking"};
    for (size_t i = 0; i < SPRY_COUNT(names) && !json_object_get(message, "reasoning_content"); i++)
        if (*text_of(message, names[i]))
            json_object_set(message, "reasoning_content", json_object_get(message, names[i]));
    const json_t *details = json_object_get(message, "reasoning_details");
    json_t *text = json_object_get(message, "reasoning_content") ? NULL : joined(details, "text");
    if (json_string_length(text))
        json_object_set(message, "reasoning_content", text);
    json_decref(text);
}

/* A part {"type": "thinking"}, whose thought is a text or a list of texts. */
static void take_thought(json_t *message, const json_t *part)
{
    json_t *thought = json_object_get(part, "thinking");
    json_t *text = json_is_string(thought) ? json_incref(thought) : joined(thought, "text");
    if (!json_object_get(message, "reasoning_content"))
        json_object_set(message, "reasoning_content", text);
    json_decref(text);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Makes {"function": {"name", "arguments"}} of a call of a custom tool, of one whose members are not within "function",
 * and of one without arguments. */
static void unify_call(json_t *call)
{
    json_t *custom = json_object_get(call, "custom"), *function;
    if (json_is_object(custom)) {
        json_t *input = json_object_get(custom, "input");
        json_t *object = json_pack("{s:o}", "input", json_is_string(input) ? json_incref(input) : json_string(""));
        char *text = spry_json_text(object, JSON_COMPACT);
        json_object_set_new(call, "function",
                            json_pack("{s:O*, s:s}", "name", json_object_get(custom, "name"), "arguments", text));
        json_object_set_new(call, "type", json_string("function"));
        json_object_del(call, "custom");
        json_decref(object);
        free(text);
    }
    if (json_is_string(json_object_get(call, "name")) && !json_object_get(call, "function"))
        json_object_set_new(call, "function",
                            json_pack("{s:O, s:O*}", "name", json_object_get(call, "name"), "arguments",
                                      json_object_get(call, "arguments")));
    function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    if (json_is_object(function) && (!arguments || json_is_null(arguments)))
        json_object_set_new(function, "arguments", json_string("{}"));
}

/* Leaves out calls of unknown types, by name, and refuses those without a name, which no template can write. */
static void check_calls(spry_fields *fields, json_t *calls, size_t number)
{
    char name[96];
    for (size_t i = json_array_size(calls); i-- > 0 && !fields->wrong[0];) {
        const json_t *call = json_array_get(calls, i);
        const char *type = text_of(call, "type");
        if (*text_of(json_object_get(call, "function"), "name"))
            continue;
        if (!*type || strcmp(type, "function") == 0) {
            spry_fields_refuse(fields, "messages", "messages[%zu].tool_calls[%zu] has no name", number, i);
        } else {
            snprintf(name, sizeof name, "messages.tool_calls.%.60s", type);
            spry_fields_ignore(fields, "messages", name, "this type of call is not known");
            json_array_remove(calls, i);
        }
    }
}

/* Calls and their results, also in the form of the older `functions`. */
static void unify_calls(spry_fields *fields, json_t *message, size_t number)
{
    static const char id[] = "function"; /* calls had none: a result belongs to the call before it */
    json_t *call = json_object_get(message, "function_call"), *calls;
    size_t i;
    if (json_is_object(call)) {
        json_object_set_new(message, "tool_calls",
                            json_pack("[{s:s, s:s, s:O}]", "id", id, "type", "function", "function", call));
        json_object_del(message, "function_call");
    }
    if (strcmp(text_of(message, "role"), "function") == 0) {
        json_object_set_new(message, "role", json_string("tool"));
        json_object_set_new(message, "tool_call_id", json_string(id));
    }
    calls = json_object_get(message, "tool_calls");
    json_array_foreach(calls, i, call) unify_call(call);
    check_calls(fields, calls, number);
    if (json_is_array(calls) && json_array_size(calls) == 0)
        json_object_del(message, "tool_calls"); /* templates look whether there is a list */
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

/* Pictures, sound and files are refused where they are the question. In a conversation with tools, and before the last
 * message, a sentence takes their place: an error would end the work of an agent, which sends its history again and
 * again. */

static bool is_media(const char *type)
{
    static const char *const types[] = {"image_url", "image", "input_audio", "file", "video_url"};
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* A part of a text under another name, or a string in place of a part, as a part; NULL: the part is something else. */
static json_t *text_part(const json_t *part)
{
    static const char *const types[] = {"text", "input_text", "output_text"};
    const json_t *type = json_object_get(part, "type"), *text = json_is_string(part) ? part : NULL;
    bool known = json_is_object(part) && !type;
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        known = known || (json_is_string(type) && strcmp(json_string_value(type), types[i]) == 0);
    if (known)
        text = json_object_get(part, "text");
    if (type && strcmp(text_of(part, "type"), "refusal") == 0)
        text = json_object_get(part, "refusal");
    return json_is_string(text) ? json_pack("{s:s, s:O}", "type", "text", "text", text) : NULL;
}

/* A picture the way other interfaces write it, as a part; NULL: the part is something else. */
static json_t *picture_part(const json_t *part)
{
    const json_t *source = json_object_get(part, "source"), *url = json_object_get(part, "image_url");
    const char *type = text_of(part, "type"), *data = text_of(source, "data");
    if (strcmp(type, "input_image") == 0 && json_is_string(url))
        return json_pack("{s:s, s:{s:O}}", "type", "image_url", "image_url", "url", url);
    if (strcmp(type, "image") != 0 || !json_is_object(source))
        return NULL;
    if (*text_of(source, "url"))
        return json_pack("{s:s, s:{s:O}}", "type", "image_url", "image_url", "url", json_object_get(source, "url"));
    if (!*data)
        return NULL;
    json_t *address = json_sprintf("data:%s;base64,%s", text_of(source, "media_type"), data);
    return json_pack("{s:s, s:{s:o}}", "type", "image_url", "image_url", "url", address);
}

/* A text that is null says nothing. */
static bool is_empty(const json_t *part)
{
    return json_is_null(part) || (json_is_object(part) && json_is_null(json_object_get(part, "text")));
}

/* The part that takes the place of `part`; NULL: the part is refused, or of an unknown type and left out. */
static json_t *replaced_part(spry_fields *fields, const json_t *part, size_t number, size_t index, bool history)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    char name[96], sentence[128];
    bool media = type && is_media(type);
    if (!type || strcmp(type, "text") == 0 || (media && (!history || !fields->ignored))) {
        spry_fields_refuse(fields, "messages",
                           "messages[%zu].content[%zu] must be {\"type\": \"text\", \"text\": ...}: only text is "
                           "understood",
                           number, index);
        return NULL;
    }
    snprintf(name, sizeof name, "messages.%.60s", type);
    spry_fields_ignore(fields, "messages", name, "this type of part is not known");
    snprintf(sentence, sizeof sentence, "[%.60s: not shown, this model reads only text]", type);
    return media ? json_pack("{s:s, s:s}", "type", "text", "text", sentence) : NULL;
}

static bool is_picture(const json_t *part)
{
    return strcmp(text_of(part, "type"), "image_url") == 0 && json_object_get(part, "image_url") &&
           !json_is_null(json_object_get(part, "image_url"));
}

/* Leaves only parts that are text, and pictures: what becomes of them depends on the model (request/prompt.c). */
static void check_parts(spry_fields *fields, json_t *message, size_t number, bool history)
{
    json_t *content = json_object_get(message, "content"), *kept = json_array(), *part;
    size_t i;
    json_array_foreach(content, i, part)
    {
        bool plain = strcmp(text_of(part, "type"), "text") == 0 && json_is_string(json_object_get(part, "text"));
        if (fields->wrong[0])
            break;
        if (plain || is_picture(part)) {
            json_array_append(kept, part);
            continue;
        }
        if (is_empty(part))
            continue;
        if (strcmp(text_of(part, "type"), "thinking") == 0) {
            take_thought(message, part);
            continue;
        }
        json_t *replaced = text_part(part);
        if (!replaced)
            replaced = picture_part(part);
        if (!replaced)
            replaced = replaced_part(fields, part, number, i, history);
        if (replaced)
            json_array_append_new(kept, replaced);
    }
    if (json_is_array(content))
        json_object_set(message, "content", kept);
    json_decref(kept);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A single part in place of a list; the result of a tool, which is any object. */
static void unify_content(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    bool tool = strcmp(text_of(message, "role"), "tool") == 0;
    if (json_is_object(content) && *text_of(content, "type"))
        json_object_set_new(message, "content", json_pack("[O]", content));
    else if (json_is_object(content) && tool) {
        char *text = spry_json_text(content, JSON_COMPACT);
        json_object_set_new(message, "content", json_string(text ? text : ""));
        free(text);
    } else if (!content && strcmp(text_of(message, "role"), "assistant") != 0) {
        json_object_set_new(message, "content", json_string(""));
    }
}

void spry_fields_messages(spry_fields *fields, const json_t *messages)
{
    size_t i, count = json_array_size(messages);
    json_t *message;
    bool agent = json_array_size(json_object_get(fields->object, "tools"));
    if (count == 0)
        spry_fields_refuse(fields, "messages", "messages must be a list with at least one message");
    json_array_foreach(messages, i, message)
    {
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role"))) {
            spry_fields_refuse(fields, "messages", "messages[%zu] must be an object with a \"role\"", i);
            return;
        }
        remove_nulls(message);
        unify_calls(fields, message, i);
        unify_thought(message);
        unify_content(message);
        const json_t *content = json_object_get(message, "content");
        if (content && !json_is_null(content) && !json_is_string(content) && !json_is_array(content))
            spry_fields_refuse(fields, "messages",
                               "messages[%zu].content is %s, but must be a string or a list of parts", i,
                               spry_fields_type_name(content));
        else
            check_parts(fields, message, i, agent || i + 1 < count);
        if (fields->wrong[0])
            return;
    }
}
