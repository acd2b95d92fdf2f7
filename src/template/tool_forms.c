/* The form of a call follows from the style. */
#include "template/tool_forms.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "template/argument_types.h"

enum { MAX_TEXT_BYTES = 16 << 20 };

static char *join(const char *a, const char *b, const char *c)
{
    spry_buffer text;
    spry_buffer_init(&text, MAX_TEXT_BYTES);
    spry_buffer_text(&text, a);
    spry_buffer_text(&text, b);
    spry_buffer_text(&text, c);
    char *copy = text.failed ? NULL : strdup(spry_buffer_view(&text).data);
    spry_buffer_deinit(&text);
    return copy;
}

/* References such as "#/$defs/x" start at the root, so the definitions move there. */
static void hoist_definitions(json_t *schema, json_t *parameters)
{
    static const char *const keys[] = {"$defs", "definitions"};
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        json_t *definitions = json_object_get(parameters, keys[i]);
        if (definitions) {
            json_object_set(schema, keys[i], definitions);
            json_object_del(parameters, keys[i]);
        }
    }
}

/* {"name": NAME, arguments: ...}, in a list where the style has one. */
static json_t *call_schema(const spry_tool_style *style, const char *name, json_t *parameters)
{
    const char *name_key = style->name_key ? style->name_key : "name";
    const char *arguments_key = style->arguments_key ? style->arguments_key : "arguments";
    json_t *call = style->keyed ? json_pack("{ss s{sO} s[s] sb}", "type", "object", "properties", name, parameters,
                                            "required", name, "additionalProperties", 0)
                                : json_pack("{ss s{s{ss} sO} s[ss] sb}", "type", "object", "properties", name_key,
                                            "const", name, arguments_key, parameters, "required", name_key,
                                            arguments_key, "additionalProperties", 0);
    json_t *schema =
        call && style->list ? json_pack("{ss so si}", "type", "array", "items", call, "minItems", 1) : call;
    if (schema)
        hoist_definitions(schema, parameters);
    return schema;
}

static bool make_form(spry_tool_form *out, const spry_tool_style *style, const char *name, const json_t *function)
{
    const json_t *given = json_object_get(function, "parameters");
    json_t *parameters = json_is_object(given) ? json_deep_copy(given) : json_pack("{ss}", "type", "object");
    json_t *schema = NULL;
    if (!parameters)
        return false;
    if (style->syntax == SPRY_CALL_NAMED) {
        out->open = join(style->open, name, style->arguments_open);
        out->close = strdup(style->close ? style->close : "");
        schema = json_incref(parameters);
    } else if (style->syntax == SPRY_CALL_JSON) {
        bool lines = strcmp(style->name, "hermes") == 0;
        out->open = style->bare ? strdup("") : join(style->open, lines ? "\n" : "", "");
        out->close = join(lines ? "\n" : "", style->bare || !style->close ? "" : style->close, "");
        schema = call_schema(style, name, parameters);
    } else {
        out->open = join("<tool_call>\n<function=", name, ">\n");
        out->close = strdup("</function>\n</tool_call>");
    }
    out->schema = schema ? json_dumps(schema, JSON_COMPACT) : NULL;
    bool made = out->open && out->close;
    json_decref(schema);
    json_decref(parameters);
    return made;
}

/* Parses `choice`. *only is the function it names, or NULL. */
static spry_status read_choice(bool *required, bool *none, const char **only, const json_t *choice, spry_error *error)
{
    const char *word = json_string_value(choice);
    *only = json_string_value(json_object_get(spry_tool_function(choice), "name"));
    *none = word && strcmp(word, "none") == 0;
    *required = *only || (word && strcmp(word, "required") == 0);
    bool known = !choice || json_is_null(choice) || *none || *required || (word && strcmp(word, "auto") == 0);
    return known ? SPRY_OK
                 : spry_fail(error, SPRY_ERR_INPUT,
                             "tool_choice must be \"auto\", \"none\", \"required\" or an object that names a function");
}

static spry_status add_forms(spry_tool_forms *out, const spry_tool_style *style, const json_t *tools, const char *only,
                             spry_error *error)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = spry_tool_function(json_array_get(tools, i));
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name || !*name)
            return spry_fail(error, SPRY_ERR_INPUT, "tools[%zu] has no name", i);
        if (only && strcmp(only, name) != 0)
            continue;
        if (!make_form(&out->items[out->count++], style, name, function))
            return spry_fail_memory(error, "the form of a tool call", MAX_TEXT_BYTES);
    }
    if (only && out->count == 0)
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice names %.200s, which is not among the tools", only);
    return SPRY_OK;
}

spry_status spry_tool_forms_make(spry_tool_forms *out, const spry_tool_style *style, const json_t *tools,
                                 const json_t *choice, spry_error *error)
{
    bool none;
    const char *only;
    *out = (spry_tool_forms){0};
    spry_status status = read_choice(&out->required, &none, &only, choice, error);
    if (status || none || (json_array_size(tools) == 0 && !out->required))
        return status;
    if (json_array_size(tools) == 0)
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice asks for a call, but there are no tools");
    out->items = calloc(json_array_size(tools), sizeof *out->items);
    if (!out->items)
        return spry_fail_memory(error, "the forms of tool calls", json_array_size(tools) * sizeof *out->items);
    status = add_forms(out, style, tools, only, error);
    if (status)
        spry_tool_forms_deinit(out);
    return status;
}

void spry_tool_forms_deinit(spry_tool_forms *forms)
{
    for (size_t i = 0; i < forms->count; i++) {
        free(forms->items[i].open);
        free(forms->items[i].close);
        free(forms->items[i].schema);
    }
    free(forms->items);
    *forms = (spry_tool_forms){0};
}
