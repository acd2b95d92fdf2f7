#include "template/tool_choice.h"

#include <string.h>

#include "template/argument_types.h"

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(spry_tool_function(tool), "name"));
}

/* The names, each with its place among the tools. The caller releases them with json_decref. */
static spry_status index_names(json_t **out, const json_t *tools, spry_error *error)
{
    json_t *names = *out = json_object();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *name = name_of(json_array_get(tools, i));
        if (!name || !*name)
            return spry_fail(error, SPRY_ERR_INPUT, "tools[%zu] has no name", i);
        const json_t *before = json_object_get(names, name);
        if (before)
            return spry_fail(error, SPRY_ERR_INPUT, "tools[%zu] and tools[%d] have the same name, %.200s",
                             (size_t)json_integer_value(before), (int)i, name);
        if (json_object_set_new(names, name, json_integer((json_int_t)i)))
            return spry_fail_memory(error, "the names of tools", json_array_size(tools));
    }
    return SPRY_OK;
}

static spry_status add(spry_tool_choice *out, const json_t *tools, const json_t *names, const char *name,
                       spry_error *error)
{
    const json_t *place = name ? json_object_get(names, name) : NULL;
    if (!place)
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice names %.200s, which is not among the tools",
                         name ? name : "a tool without a name");
    const json_t *tool = json_array_get(tools, (size_t)json_integer_value(place));
    if (json_array_append(out->functions, (json_t *)(uintptr_t)spry_tool_function(tool)))
        return spry_fail_memory(error, "tools", json_array_size(tools));
    return SPRY_OK;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}, also without the inner object. */
static spry_status add_allowed(spry_tool_choice *out, const json_t *tools, const json_t *names, const json_t *choice,
                               spry_error *error)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *from = json_is_object(inner) ? inner : choice, *list = json_object_get(from, "tools");
    const char *mode = json_string_value(json_object_get(from, "mode"));
    out->required = mode && strcmp(mode, "required") == 0;
    if (!json_array_size(list) || (mode && !out->required && strcmp(mode, "auto") != 0))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "tool_choice.allowed_tools needs a list of tools, and the mode \"auto\" or \"required\"");
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = add(out, tools, names, name_of(json_array_get(list, i)), error);
    return status;
}

static spry_status read_choice(spry_tool_choice *out, const json_t *tools, const json_t *names, const json_t *choice,
                               spry_error *error)
{
    const char *word = json_string_value(choice), *type = json_string_value(json_object_get(choice, "type"));
    const char *only = name_of(choice);
    if (word && strcmp(word, "none") == 0)
        return SPRY_OK;
    if (type && strcmp(type, "allowed_tools") == 0)
        return add_allowed(out, tools, names, choice, error);
    out->required = only || (word && strcmp(word, "required") == 0);
    if (out->required && !json_array_size(tools))
        return spry_fail(error, SPRY_ERR_INPUT, "tool_choice asks for a call, but there are no tools");
    if (only)
        return add(out, tools, names, only, error);
    if (choice && !json_is_null(choice) && !out->required && !(word && strcmp(word, "auto") == 0))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "tool_choice must be \"auto\", \"none\", \"required\", an object that names a function, or "
                         "allowed_tools");
    for (size_t i = 0; i < json_array_size(tools); i++)
        json_array_append(out->functions, (json_t *)(uintptr_t)spry_tool_function(json_array_get(tools, i)));
    return SPRY_OK;
}

spry_status spry_tool_choice_read(spry_tool_choice *out, const json_t *tools, const json_t *choice, spry_error *error)
{
    json_t *names;
    *out = (spry_tool_choice){.functions = json_array()};
    spry_status status = index_names(&names, tools, error);
    if (!status)
        status = read_choice(out, tools, names, choice, error);
    json_decref(names);
    if (status)
        spry_tool_choice_deinit(out);
    return status;
}

void spry_tool_choice_deinit(spry_tool_choice *choice)
{
    json_decref(choice->functions);
    *choice = (spry_tool_choice){0};
}
