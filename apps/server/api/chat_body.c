/* What the interfaces share that write their bodies as bodies of chat completions. */
#include "server/api/chat_body.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "server/request/completion.h"

bool spry_chat_body_is(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, text) == 0;
}

const char *spry_chat_body_string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

/* ---- parts of messages ------------------------------------------------------------------------------------------- */

void spry_chat_body_add_text(json_t *parts, const json_t *text)
{
    json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

void spry_chat_body_add_sentence(json_t *parts, const char *format, ...)
{
    enum { SENTENCE_BYTES = 4096 };
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    json_array_append_new(parts,
                          json_pack("{s:s, s:o}", "type", "text", "text", spry_view_json(spry_view_of(sentence))));
}

void spry_chat_body_add_image(json_t *parts, const char *url)
{
    json_array_append_new(parts, json_pack("{s:s, s:{s:s}}", "type", "image_url", "image_url", "url", url));
}

void spry_chat_body_add_image_data(json_t *parts, const char *media_type, const char *base64)
{
    spry_buffer url;
    spry_buffer_init(&url, SIZE_MAX / 2);
    spry_buffer_format(&url, "data:%s;base64,", media_type);
    spry_buffer_text(&url, base64);
    spry_chat_body_add_image(parts, spry_buffer_view(&url).data);
    spry_buffer_deinit(&url);
}

void spry_chat_body_add_notice(json_t *parts, spry_fields *fields, const char *key, const char *type)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%.60s", key, type);
    spry_fields_ignore(fields, key, name, "the model cannot be shown this");
    spry_chat_body_add_sentence(parts, "[%.60s: not shown, this model reads only text]", type);
}

json_t *spry_chat_body_joined(const json_t *parts)
{
    spry_buffer all;
    const json_t *part;
    size_t i;
    spry_buffer_init(&all, SIZE_MAX / 2);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        spry_buffer_append(&all, json_string_value(text), json_string_length(text));
    }
    json_t *text = spry_buffer_json(&all);
    spry_buffer_deinit(&all);
    return text;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema)
{
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                     json_is_null(description) ? NULL : description, "parameters",
                     json_is_null(schema) ? NULL : schema);
}

json_t *spry_chat_body_custom_tool(const json_t *name, const char *description, const char *syntax, const char *rule)
{
    json_t *input = json_pack("{s:s}", "type", "string"), *about;
    if (*rule && strcmp(syntax, "regex") == 0)
        json_object_set_new(input, "pattern", json_sprintf("^(?:%s)$", rule));
    else if (*rule && strcmp(syntax, "lark") == 0)
        json_object_set_new(input, "x-spry-lark", json_string(rule));
    about = *rule ? json_sprintf("%s\n\"input\" is text of this %s grammar:\n%s", description, syntax, rule)
                  : json_sprintf("%s\n\"input\" is text.", description);
    json_t *schema = json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", "input", input, "required",
                               "input", "additionalProperties", 0);
    json_t *tool = spry_chat_body_tool(name, about, schema);
    json_decref(about);
    json_decref(schema);
    return tool;
}

json_t *spry_chat_body_custom_input(spry_view arguments)
{
    json_t *object = spry_json_value(arguments), *input = json_object_get(object, "input");
    input = json_is_string(input) ? json_incref(input) : spry_view_json(arguments);
    json_decref(object);
    return input;
}

json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments)
{
    return json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

void spry_chat_body_define(json_t *parts, const json_t *tool)
{
    char *text = spry_json_text(json_object_get(tool, "function"), JSON_COMPACT);
    spry_buffer sentence;
    spry_buffer_init(&sentence, SIZE_MAX / 2);
    spry_buffer_text(&sentence, "This tool can be called now:\n");
    spry_buffer_text(&sentence, text ? text : "");
    spry_buffer_text(&sentence, "\n");
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", spry_buffer_json(&sentence));
    json_array_append_new(parts, part);
    spry_buffer_deinit(&sentence);
    free(text);
}

void spry_chat_body_defer(json_t *tool)
{
    json_object_set_new(tool, "defer_loading", json_true());
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void spry_chat_body_variable(json_t *body, const char *name, json_t *value)
{
    json_t *variables = json_object_get(body, "chat_template_kwargs");
    if (!variables) {
        json_object_set_new(body, "chat_template_kwargs", json_object());
        variables = json_object_get(body, "chat_template_kwargs");
    }
    json_object_set_new(variables, name, value);
}
