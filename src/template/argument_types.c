/* References and alternatives are followed up to a number of visits; beyond it all types are allowed. */
#include "template/argument_types.h"

#include <stdlib.h>

#include "base/compiler.h"

enum { MAX_REFERENCES = 16, MAX_VISITS = 256 };

static spry_view string_view(const json_t *string)
{
    return string ? (spry_view){json_string_value(string), json_string_length(string)} : (spry_view){"", 0};
}

const json_t *spry_tool_function(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_is_object(function) ? function : tool;
}

const json_t *spry_tool_find(const json_t *tools, spry_view name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = spry_tool_function(json_array_get(tools, i)), *own = json_object_get(function, "name");
        if (json_is_string(own) && spry_view_equal(string_view(own), name))
            return function;
    }
    return NULL;
}

spry_argument_schema spry_argument_schema_of(const json_t *function)
{
    const json_t *parameters = json_object_get(function, "parameters");
    return (spry_argument_schema){parameters, parameters};
}

/* Follows "#/a/b" within the document. */
static const json_t *follow(const json_t *root, const char *pointer)
{
    const json_t *at = *pointer == '#' ? root : NULL;
    for (pointer++; at && *pointer == '/';) {
        size_t size = strcspn(++pointer, "/");
        at = json_is_array(at) ? json_array_get(at, strtoul(pointer, NULL, 10)) : json_object_getn(at, pointer, size);
        pointer += size;
    }
    return at;
}

/* The schema itself, or what it refers to. */
static spry_argument_schema resolve(spry_argument_schema of)
{
    for (int i = 0; i < MAX_REFERENCES; i++) {
        const char *to = json_string_value(json_object_get(of.schema, "$ref"));
        if (!to)
            return of;
        of.schema = follow(of.root, to);
    }
    return (spry_argument_schema){of.root, NULL};
}

static const char *const branches[] = {"anyOf", "oneOf", "allOf"};

/* The first of the schema and its branches that has the member `key`, or within that the member `name`. */
static const json_t *find_in(spry_argument_schema of, const char *key, const spry_view *name, unsigned *visits)
{
    if (++*visits > MAX_VISITS)
        return NULL;
    of = resolve(of);
    const json_t *found = json_object_get(of.schema, key);
    if (found && name)
        found = json_object_getn(found, name->data, name->size);
    for (size_t i = 0; !found && i < SPRY_COUNT(branches); i++) {
        const json_t *list = json_object_get(of.schema, branches[i]);
        for (size_t k = 0; !found && k < json_array_size(list) && *visits <= MAX_VISITS; k++)
            found = find_in((spry_argument_schema){of.root, json_array_get(list, k)}, key, name, visits);
    }
    return found;
}

spry_argument_schema spry_argument_member(spry_argument_schema of, spry_view name)
{
    unsigned visits = 0;
    const json_t *found = find_in(of, "properties", &name, &visits);
    if (!found)
        found = find_in(of, "additionalProperties", NULL, &visits);
    return (spry_argument_schema){of.root, found};
}

spry_argument_schema spry_argument_item(spry_argument_schema of)
{
    unsigned visits = 0;
    return (spry_argument_schema){of.root, find_in(of, "items", NULL, &visits)};
}

static unsigned named_type(const json_t *name)
{
    static const char *const names[] = {"string", "integer", "number", "boolean", "null", "array", "object"};
    for (size_t i = 0; json_is_string(name) && i < SPRY_COUNT(names); i++)
        if (spry_view_is(string_view(name), names[i]))
            return 1u << i | (i == 2 ? SPRY_ARGUMENT_INTEGER : 0u);
    return SPRY_ARGUMENT_ANY;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return SPRY_ARGUMENT_STRING;
    case JSON_INTEGER: return SPRY_ARGUMENT_INTEGER | SPRY_ARGUMENT_NUMBER;
    case JSON_REAL: return SPRY_ARGUMENT_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return SPRY_ARGUMENT_BOOLEAN;
    case JSON_NULL: return SPRY_ARGUMENT_NULL;
    case JSON_ARRAY: return SPRY_ARGUMENT_ARRAY;
    default: return SPRY_ARGUMENT_OBJECT;
    }
}

static unsigned types_within(spry_argument_schema of, unsigned *visits);

/* Of the branches under one key: all of them hold, or one does. */
static unsigned types_of_branches(spry_argument_schema of, const char *key, bool all, unsigned *visits)
{
    const json_t *list = json_object_get(of.schema, key);
    unsigned types = all || !json_array_size(list) ? SPRY_ARGUMENT_ANY : 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (*visits > MAX_VISITS)
            return SPRY_ARGUMENT_ANY;
        unsigned one = types_within((spry_argument_schema){of.root, json_array_get(list, i)}, visits);
        types = all ? types & one : types | one;
    }
    return types;
}

static unsigned types_within(spry_argument_schema of, unsigned *visits)
{
    unsigned types = SPRY_ARGUMENT_ANY, of_values = 0;
    of = resolve(of);
    if (!json_is_object(of.schema) || ++*visits > MAX_VISITS)
        return types;
    const json_t *type = json_object_get(of.schema, "type"), *values = json_object_get(of.schema, "enum");
    const json_t *fixed = json_object_get(of.schema, "const");
    if (json_is_array(type)) {
        types = 0;
        for (size_t i = 0; i < json_array_size(type); i++)
            types |= named_type(json_array_get(type, i));
    } else if (type) {
        types = named_type(type);
    }
    for (size_t i = 0; i < json_array_size(values); i++)
        of_values |= type_of_value(json_array_get(values, i));
    types &= json_array_size(values) ? of_values : SPRY_ARGUMENT_ANY;
    types &= fixed ? type_of_value(fixed) : SPRY_ARGUMENT_ANY;
    for (size_t i = 0; i < SPRY_COUNT(branches); i++)
        types &= types_of_branches(of, branches[i], strcmp(branches[i], "allOf") == 0, visits);
    return types;
}

unsigned spry_argument_types(spry_argument_schema of)
{
    unsigned visits = 0, types = types_within(of, &visits);
    return types ? types : SPRY_ARGUMENT_ANY;
}
