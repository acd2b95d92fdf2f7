#include "server/api/chat_body.h"

#include "server/fields/field_table.h"

bool spry_chat_body_is(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, text) == 0;
}

void spry_chat_body_copy(json_t *body, const spry_fields *fields, const char *const (*pairs)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = spry_fields_get(fields, pairs[i][0]);
        if (value)
            json_object_set(body, pairs[i][1], (json_t *)(uintptr_t)value);
    }
}

void spry_chat_body_copy_own(json_t *body, const spry_fields *fields)
{
    for (size_t i = 0; i < SPRY_OWN_FIELDS; i++) {
        const json_t *value = spry_fields_get(fields, spry_own_fields[i].name);
        if (value)
            json_object_set(body, spry_own_fields[i].name, (json_t *)(uintptr_t)value);
    }
}

void spry_chat_body_variable(json_t *body, const char *name, json_t *value)
{
    json_t *variables = json_object_get(body, "chat_template_kwargs");
    if (!variables) {
        json_object_set_new(body, "chat_template_kwargs", json_object());
        variables = json_object_get(body, "chat_template_kwargs");
    }
    json_object_set_new(variables, name, value);
}

json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema)
{
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                     json_is_null(description) ? NULL : description, "parameters",
                     json_is_null(schema) ? NULL : schema);
}

json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments)
{
    return json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}
