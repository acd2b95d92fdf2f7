/* Parameters that are not written as one JSON object: in the order of their declaration, the required ones always. A
 * string without quotes is any text that does not contain the mark behind it and has its pattern, format and length. */
#include <stdio.h>
#include <stdlib.h>

#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"
#include "grammar/source/tool_grammar.h"

enum { NESTING_MAX = 6, MARK_BYTES = 512 };

typedef spry_ir_node value_writer(const spry_tool_builder *b, spry_argument_schema of, int depth);

static bool is_required(spry_argument_schema of, const char *name)
{
    const json_t *required = json_object_get(of.schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

/* The strings of an enum or const, if the schema has only such values; SPRY_IR_NONE otherwise. */
static spry_ir_node fixed_strings(const spry_tool_builder *b, spry_argument_schema of, const char *before,
                                  const char *after)
{
    const json_t *values = json_object_get(of.schema, "enum"), *fixed = json_object_get(of.schema, "const");
    size_t count = json_is_string(fixed) ? 1 : json_array_size(values), n = 0;
    spry_ir_node *nodes = malloc((count + 1) * sizeof *nodes), node = SPRY_IR_NONE;
    for (; nodes && n < count; n++) {
        const json_t *value = json_is_string(fixed) ? fixed : json_array_get(values, n);
        if (!json_is_string(value))
            break;
        nodes[n] = SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, before), spry_tool_literal(b, json_string_value(value)),
                                      spry_tool_literal(b, after));
    }
    if (nodes && n && n == count)
        node = spry_ir_choice(b->ir, nodes, n);
    free(nodes);
    return node;
}

/* The number under a key of a schema; `otherwise` where there is none. */
static uint32_t length_of(spry_argument_schema of, const char *key, uint32_t otherwise)
{
    const json_t *value = json_object_get(of.schema, key);
    double number = json_number_value(value);
    return json_is_number(value) && number >= 0 && number < SPRY_IR_UNBOUNDED ? (uint32_t)number : otherwise;
}

/* A string without quotes. Blanks around a value do not belong to it, so where its text matters there are none. A
 * pattern or format that cannot be enforced is left out, and a warning says so. */
static spry_ir_node raw_string(const spry_tool_builder *b, spry_argument_schema of)
{
    spry_ir *ir = b->ir;
    const json_t *pattern = json_object_get(of.schema, "pattern");
    const char *name = json_string_value(json_object_get(of.schema, "format"));
    uint32_t min = length_of(of, "minLength", 0), max = length_of(of, "maxLength", SPRY_IR_UNBOUNDED), most;
    const char *format = spry_json_format(name ? name : "", &most);
    max = most < max ? most : max;
    bool limited = min > 0 || max != SPRY_IR_UNBOUNDED;
    if (spry_ir_status(ir, NULL) || (!json_is_string(pattern) && !format && !limited) ||
        spry_argument_types(of) != SPRY_ARGUMENT_STRING)
        return b->raw;
    spry_ir_node node = spry_ir_intersect(ir, b->raw, spry_ir_regex(ir, SPRY_VIEW("(\\S([\\s\\S]*\\S)?)?"), false));
    if (json_is_string(pattern)) {
        spry_view text = {json_string_value(pattern), json_string_length(pattern)};
        node = spry_ir_intersect(ir, node, spry_ir_regex(ir, text, true));
    }
    if (format)
        node = spry_ir_intersect(ir, node, spry_ir_regex(ir, spry_view_of(format), false));
    if (limited)
        node = spry_ir_limited(ir, node, spry_ir_class(ir, NULL, 0, true), min, max);
    if (ir->error.status == SPRY_ERR_UNSUPPORTED || ir->error.status == SPRY_ERR_INPUT) {
        spry_ir_warn(ir, ir->error.message);
        ir->error = (spry_error){0};
        return b->raw;
    }
    return spry_ir_is_never(ir, node) ? b->raw : node;
}

/* A value without quotes. */
static spry_ir_node plain_value(const spry_tool_builder *b, spry_argument_schema of)
{
    if (!(spry_argument_types(of) & SPRY_ARGUMENT_STRING))
        return spry_tool_json(b, of);
    spry_ir_node fixed = fixed_strings(b, of, NULL, NULL);
    return fixed != SPRY_IR_NONE ? fixed : raw_string(b, of);
}

/* ---- parameters between marks ------------------------------------------------------------------------------------ */

static spry_ir_node attributes(const spry_tool_builder *b, bool string)
{
    static const char *const types[] = {"number", "integer", "boolean", "null", "array", "object"};
    const spry_tool_style *s = b->style;
    spry_ir_node nodes[SPRY_COUNT(types)];
    if (!s->string_attribute || string || s->other_attribute)
        return spry_tool_literal(b, string || !s->other_attribute ? s->string_attribute : s->other_attribute);
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        char text[MARK_BYTES];
        snprintf(text, sizeof text, "\" type=\"%s\"", types[i]);
        nodes[i] = spry_tool_literal(b, text);
    }
    return spry_ir_choice(b->ir, nodes, SPRY_COUNT(types));
}

/* One parameter; its key and value are given. */
static spry_ir_node between_marks(const spry_tool_builder *b, spry_ir_node key, spry_ir_node value, bool string)
{
    const spry_tool_style *s = b->style;
    const spry_parameter_marks *m = &s->parameter;
    spry_ir_node line = spry_tool_literal(b, s->lines ? "\n" : NULL);
    return SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, m->key_open), key, attributes(b, string),
                              spry_tool_literal(b, m->key_close), m->value_open ? b->gap : spry_ir_empty(b->ir),
                              spry_tool_literal(b, m->value_open), line, value, line,
                              spry_tool_literal(b, m->value_close), b->gap);
}

static spry_ir_node tagged(const spry_tool_builder *b, const char *key, spry_argument_schema of)
{
    return between_marks(b, spry_tool_literal(b, key), plain_value(b, of),
                         spry_argument_types(of) & SPRY_ARGUMENT_STRING);
}

/* ---- nested elements --------------------------------------------------------------------------------------------- */

static spry_ir_node element(const spry_tool_builder *b, const char *key, spry_argument_schema of, int depth);

static spry_ir_node children(const spry_tool_builder *b, spry_argument_schema of, int depth)
{
    json_t *properties = json_object_get(of.schema, "properties"), *property;
    const char *key;
    spry_ir_node node = spry_ir_empty(b->ir);
    json_object_foreach(properties, key, property)
    {
        spry_ir_node one = element(b, key, (spry_argument_schema){of.root, property}, depth + 1);
        one = is_required(of, key) ? one : spry_ir_repeat(b->ir, one, 0, 1);
        node = SPRY_TOOL_SEQUENCE(b, node, one);
    }
    return node;
}

static spry_ir_node element(const spry_tool_builder *b, const char *key, spry_argument_schema of, int depth)
{
    char open[MARK_BYTES], close[MARK_BYTES];
    unsigned types = spry_argument_types(of);
    const json_t *items = json_object_get(of.schema, "items");
    spry_ir_node value;
    snprintf(open, sizeof open, "%s<%s>", b->style->quote, key);
    snprintf(close, sizeof close, "%s</%s>", b->style->quote, key);
    if (types == SPRY_ARGUMENT_OBJECT && json_object_size(json_object_get(of.schema, "properties")) &&
        depth < NESTING_MAX)
        value = children(b, of, depth);
    else if (types == SPRY_ARGUMENT_ARRAY && json_is_object(items) && depth < NESTING_MAX)
        value = spry_ir_repeat(b->ir, element(b, "item", (spry_argument_schema){of.root, items}, depth + 1), 0,
                               SPRY_IR_UNBOUNDED);
    else
        value = plain_value(b, of);
    return SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, open), value, spry_tool_literal(b, close));
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* Members with commas between those that are there: from the last one, with and without one before it. */
static spry_ir_node separated(const spry_tool_builder *b, spry_argument_schema of, const char *sign, const char *comma,
                              value_writer *write, int depth)
{
    json_t *properties = json_object_get(of.schema, "properties");
    size_t count = json_object_size(properties), i = 0;
    const char **keys = calloc(count + 1, sizeof *keys);
    spry_ir_node first = spry_ir_empty(b->ir), later = first;
    for (void *at = json_object_iter(properties); keys && at; at = json_object_iter_next(properties, at))
        keys[i++] = json_object_iter_key(at);
    while (keys && i-- > 0) {
        spry_argument_schema one = {of.root, json_object_get(properties, keys[i])};
        spry_ir_node member = SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, keys[i]), spry_tool_literal(b, sign),
                                                 write(b, one, depth + 1), later);
        spry_ir_node behind = SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, comma), member);
        bool must = is_required(of, keys[i]);
        first = must ? member : SPRY_TOOL_CHOICE(b, member, first);
        later = must ? behind : SPRY_TOOL_CHOICE(b, behind, later);
    }
    if (!keys)
        spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for the parameters of a tool");
    free(keys);
    return first;
}

static spry_ir_node python_value(const spry_tool_builder *b, spry_argument_schema of, int depth)
{
    (void)depth;
    return spry_tool_json(b, of);
}

static spry_ir_node braced_value(const spry_tool_builder *b, spry_argument_schema of, int depth)
{
    const char *quote = b->style->quote;
    unsigned types = spry_argument_types(of);
    const json_t *items = json_object_get(of.schema, "items");
    if (types == SPRY_ARGUMENT_OBJECT && json_object_get(of.schema, "properties") && depth < NESTING_MAX)
        return SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, "{"), separated(b, of, ":", ",", braced_value, depth),
                                  spry_tool_literal(b, "}"));
    if (types == SPRY_ARGUMENT_ARRAY && json_is_object(items) && depth < NESTING_MAX) {
        spry_ir_node item = braced_value(b, (spry_argument_schema){of.root, items}, depth + 1);
        spry_ir_node more =
            spry_ir_repeat(b->ir, SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, ","), item), 0, SPRY_IR_UNBOUNDED);
        return SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, "["),
                                  spry_ir_repeat(b->ir, SPRY_TOOL_SEQUENCE(b, item, more), 0, 1),
                                  spry_tool_literal(b, "]"));
    }
    if (!(types & (SPRY_ARGUMENT_STRING | SPRY_ARGUMENT_OBJECT | SPRY_ARGUMENT_ARRAY)))
        return spry_tool_json(b, of);
    if (!(types & SPRY_ARGUMENT_STRING)) /* containers that declare nothing */
        return spry_tool_literal(b, types & SPRY_ARGUMENT_OBJECT ? "{}" : "[]");
    spry_ir_node fixed = fixed_strings(b, of, quote, quote);
    return fixed != SPRY_IR_NONE
               ? fixed
               : SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, quote), raw_string(b, of), spry_tool_literal(b, quote));
}

spry_ir_node spry_tool_parameters(const spry_tool_builder *b, const json_t *function)
{
    spry_argument_schema of = spry_argument_schema_of(function);
    json_t *properties = json_object_get(of.schema, "properties"), *property;
    const char *key;
    spry_ir_node node = spry_ir_empty(b->ir);
    if (b->style->syntax == SPRY_CALL_PYTHON)
        return separated(b, of, "=", ", ", python_value, 0);
    if (b->style->syntax == SPRY_CALL_BRACED)
        return separated(b, of, ":", ",", braced_value, 0);
    if (b->style->syntax == SPRY_CALL_TREE)
        return children(b, of, 0);
    json_object_foreach(properties, key, property)
    {
        spry_ir_node one = tagged(b, key, (spry_argument_schema){of.root, property});
        node = SPRY_TOOL_SEQUENCE(b, node, is_required(of, key) ? one : spry_ir_repeat(b->ir, one, 0, 1));
    }
    return node;
}

spry_ir_node spry_tool_any_parameters(const spry_tool_builder *b)
{
    static const spry_code_range letters[] = {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}};
    const spry_argument_schema anything = {NULL, NULL};
    spry_ir_node key = spry_ir_repeat(b->ir, spry_ir_class(b->ir, letters, SPRY_COUNT(letters), false), 1, 64), member;
    switch (b->style->syntax) {
    case SPRY_CALL_TAGGED: return spry_ir_repeat(b->ir, between_marks(b, key, b->raw, true), 0, SPRY_IR_UNBOUNDED);
    case SPRY_CALL_PYTHON:
        member = SPRY_TOOL_SEQUENCE(b, key, spry_tool_literal(b, "="), spry_tool_json(b, anything));
        break;
    case SPRY_CALL_BRACED:
        member = SPRY_TOOL_SEQUENCE(b, key, spry_tool_literal(b, ":"), braced_value(b, anything, 0));
        break;
    default: return spry_ir_fail(b->ir, SPRY_ERR_UNSUPPORTED, "so many tools cannot be enforced for this model");
    }
    spry_ir_node more = SPRY_TOOL_SEQUENCE(b, spry_tool_literal(b, ","), b->space, member);
    return spry_ir_repeat(b->ir, SPRY_TOOL_SEQUENCE(b, member, spry_ir_repeat(b->ir, more, 0, SPRY_IR_UNBOUNDED)), 0,
                          1);
}
