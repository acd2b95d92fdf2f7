#include "server/request/request_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "server/http/http_reply.h"

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a string", "a number",
                                        "a number",  "true",   "false",    "null"};
    return names[json_typeof(value)];
}

bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange)
{
    spry_error error;
    *fields = (spry_fields){.within = ""};
    *root = NULL;
    if (exchange->body.size == 0)
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, NULL, "the body is empty; send a JSON object");
    else if (spry_json_object(root, spry_buffer_view(&exchange->body), &error) != SPRY_OK)
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, NULL, "the body: %s", error.message);
    fields->object = *root;
    return *root != NULL;
}

bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange)
{
    if (fields->wrong[0])
        spry_reply_error(exchange, MHD_HTTP_BAD_REQUEST, fields->wrong, "%s", fields->error.message);
    return !fields->wrong[0];
}

void spry_fields_refuse(spry_fields *fields, const char *key, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    if (fields->wrong[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    snprintf(fields->wrong, sizeof fields->wrong, "%s%s", fields->within, key);
    spry_fail(&fields->error, SPRY_ERR_INPUT, "%s", sentence);
}

void spry_fields_refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted)
{
    spry_fields_refuse(fields, key, "%s%s is %s, but must be %s", fields->within, key, type_name(value), wanted);
}

const json_t *spry_fields_get(const spry_fields *fields, const char *key)
{
    const json_t *value = json_object_get(fields->object, key);
    return value && !json_is_null(value) ? value : NULL;
}

bool spry_fields_bool(spry_fields *fields, const char *key, bool fallback)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        spry_fields_refuse_type(fields, key, value, "true or false");
    return json_is_true(value);
}

int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    double real = json_number_value(value);
    if (!json_is_number(value) || real != floor(real)) {
        spry_fields_refuse_type(fields, key, value, "a whole number");
        return fallback;
    }
    if (real < (double)min || real > (double)max) {
        spry_fields_refuse(fields, key, "%s%s is %.17g, but must be from %" PRId64 " to %" PRId64, fields->within, key,
                           real, min, max);
        return fallback;
    }
    return json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
}

const char *spry_fields_string(spry_fields *fields, const char *key, const char *fallback)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value)
        return fallback;
    if (!json_is_string(value)) {
        spry_fields_refuse_type(fields, key, value, "a string");
        return fallback;
    }
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value))
        spry_fields_refuse(fields, key, "%s%s has a zero byte in its text", fields->within, key);
    return text;
}

static const json_t *container(spry_fields *fields, const char *key, json_type type, const char *wanted)
{
    const json_t *value = spry_fields_get(fields, key);
    if (!value || json_typeof(value) == type)
        return value;
    spry_fields_refuse_type(fields, key, value, wanted);
    return NULL;
}

const json_t *spry_fields_object(spry_fields *fields, const char *key)
{
    return container(fields, key, JSON_OBJECT, "an object");
}

const json_t *spry_fields_array(spry_fields *fields, const char *key)
{
    return container(fields, key, JSON_ARRAY, "a list");
}

const json_t *spry_fields_tools(spry_fields *fields)
{
    enum { TOOLS_MAX = 16384 };
    const json_t *tools = spry_fields_array(fields, "tools");
    if (json_array_size(tools) > TOOLS_MAX)
        spry_fields_refuse(fields, "tools", "tools has %zu tools; the limit is %d", json_array_size(tools), TOOLS_MAX);
    return tools;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool check_content(spry_fields *fields, size_t number, const json_t *content)
{
    size_t i;
    const json_t *part;
    if (!content || json_is_null(content) || json_is_string(content))
        return true;
    if (!json_is_array(content)) {
        spry_fields_refuse(fields, "messages", "messages[%zu].content is %s, but must be a string or a list of parts",
                           number, type_name(content));
        return false;
    }
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text")))
            continue;
        spry_fields_refuse(fields, "messages",
                           "messages[%zu].content[%zu] must be {\"type\": \"text\", \"text\": ...}: only text is "
                           "understood",
                           number, i);
        return false;
    }
    return true;
}

void spry_fields_messages(spry_fields *fields, const json_t *messages)
{
    size_t i;
    const json_t *message;
    if (!messages || json_array_size(messages) == 0)
        spry_fields_refuse(fields, "messages", "messages must be a list with at least one message");
    json_array_foreach(messages, i, message)
    {
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role"))) {
            spry_fields_refuse(fields, "messages", "messages[%zu] must be an object with a \"role\"", i);
            return;
        }
        if (!check_content(fields, i, json_object_get(message, "content")))
            return;
    }
}
