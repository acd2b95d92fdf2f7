/* Grammars for answers with tool calls. An answer is text with calls in it, or calls only. Text never contains the mark
 * that opens a call, so that mark always begins a call; inside a thought (reasoning) the mark is ordinary text. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/json.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"
#include "template/arguments.h"
#include "template/tool_styles.h"

typedef struct tool_builder {
    spry_ir *ir;
    const spry_tool_style *style;
    const json_t *functions;
    bool parallel;      /* more than one call is allowed */
    bool brief;         /* there are too many tools to enforce their schemas: only the form of arguments is enforced */
    spry_ir_node gap;   /* a little whitespace */
    spry_ir_node space; /* a space, or none */
    spry_ir_node any_object;
    spry_ir_node raw; /* a value without quotes: text without the mark that ends it; SPRY_IR_NONE: the style has none */
} tool_builder;

static spry_ir_node tool_literal(const tool_builder *builder, const char *text); /* NULL: the empty text */
/* A JSON value that is valid against a schema. */
static spry_ir_node tool_json(const tool_builder *builder, spry_argument_schema of);

#define TOOL_SEQUENCE(builder, ...)                                                                                    \
    spry_ir_sequence((builder)->ir, (const spry_ir_node[]){__VA_ARGS__},                                               \
                     sizeof((const spry_ir_node[]){__VA_ARGS__}) / sizeof(spry_ir_node))
#define TOOL_CHOICE(builder, ...)                                                                                      \
    spry_ir_choice((builder)->ir, (const spry_ir_node[]){__VA_ARGS__},                                                 \
                   sizeof((const spry_ir_node[]){__VA_ARGS__}) / sizeof(spry_ir_node))

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* Parameters that are not written as one JSON object. They come in the order of their declaration, and required ones
 * are always present. A string without quotes is any text that does not contain the mark after it and that has its
 * pattern, format and length. */

enum { NESTING_MAX = 6, MARK_BYTES = 512 };

typedef spry_ir_node value_writer(const tool_builder *b, spry_argument_schema of, int depth);

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
static spry_ir_node fixed_strings(const tool_builder *b, spry_argument_schema of, const char *before, const char *after)
{
    const json_t *values = json_object_get(of.schema, "enum"), *fixed = json_object_get(of.schema, "const");
    size_t count = json_is_string(fixed) ? 1 : json_array_size(values), n = 0;
    spry_ir_node *nodes = malloc((count + 1) * sizeof *nodes), node = SPRY_IR_NONE;
    for (; nodes && n < count; n++) {
        const json_t *value = json_is_string(fixed) ? fixed : json_array_get(values, n);
        if (!json_is_string(value))
            break;
        nodes[n] = TOOL_SEQUENCE(b, tool_literal(b, before), tool_literal(b, json_string_value(value)),
                                 tool_literal(b, after));
    }
    if (nodes && n && n == count)
        node = spry_ir_choice(b->ir, nodes, n);
    free(nodes);
    return node;
}

/* The number that a schema has under a key; `otherwise` if it has none. */
static uint32_t length_of(spry_argument_schema of, const char *key, uint32_t otherwise)
{
    const json_t *value = json_object_get(of.schema, key);
    double number = json_number_value(value);
    return json_is_number(value) && number >= 0 && number < SPRY_IR_UNBOUNDED ? (uint32_t)number : otherwise;
}

/* A string without quotes. Whitespace around a value does not belong to it, so where the exact text matters no
 * whitespace is allowed. A pattern or format that cannot be enforced is ignored, with a warning. */
static spry_ir_node raw_string(const tool_builder *b, spry_argument_schema of)
{
    spry_ir *ir = b->ir;
    const json_t *pattern = json_object_get(of.schema, "pattern"), *lark = json_object_get(of.schema, "x-spry-lark");
    const char *name = json_string_value(json_object_get(of.schema, "format"));
    uint32_t min = length_of(of, "minLength", 0), max = length_of(of, "maxLength", SPRY_IR_UNBOUNDED), most;
    const char *format = spry_json_format(name ? name : "", &most);
    max = most < max ? most : max;
    bool limited = min > 0 || max != SPRY_IR_UNBOUNDED;
    if (spry_ir_status(ir, NULL) || (!json_is_string(pattern) && !json_is_string(lark) && !format && !limited) ||
        spry_argument_types(of) != SPRY_ARGUMENT_STRING)
        return b->raw;
    spry_ir_node node = spry_ir_intersect(ir, b->raw, spry_ir_regex(ir, SPRY_VIEW("(\\S([\\s\\S]*\\S)?)?"), false));
    if (json_is_string(pattern)) {
        spry_view text = {json_string_value(pattern), json_string_length(pattern)};
        node = spry_ir_intersect(ir, node, spry_ir_regex(ir, text, true));
    }
    if (json_is_string(lark)) {
        spry_view text = {json_string_value(lark), json_string_length(lark)};
        node = spry_ir_intersect(ir, node, spry_ir_lark(ir, text, false));
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
static spry_ir_node plain_value(const tool_builder *b, spry_argument_schema of)
{
    if (!(spry_argument_types(of) & SPRY_ARGUMENT_STRING))
        return tool_json(b, of);
    spry_ir_node fixed = fixed_strings(b, of, NULL, NULL);
    return fixed != SPRY_IR_NONE ? fixed : raw_string(b, of);
}

/* ---- parameters between marks ------------------------------------------------------------------------------------ */

static spry_ir_node attributes(const tool_builder *b, bool string)
{
    static const char *const types[] = {"number", "integer", "boolean", "null", "array", "object"};
    const spry_tool_style *s = b->style;
    spry_ir_node nodes[SPRY_COUNT(types)];
    if (!s->string_attribute || string || s->other_attribute)
        return tool_literal(b, string || !s->other_attribute ? s->string_attribute : s->other_attribute);
    for (size_t i = 0; i < SPRY_COUNT(types); i++) {
        char text[MARK_BYTES];
        snprintf(text, sizeof text, "\" type=\"%s\"", types[i]);
        nodes[i] = tool_literal(b, text);
    }
    return spry_ir_choice(b->ir, nodes, SPRY_COUNT(types));
}

/* One parameter with the given key and value. */
static spry_ir_node between_marks(const tool_builder *b, spry_ir_node key, spry_ir_node value, bool string)
{
    const spry_tool_style *s = b->style;
    const spry_parameter_marks *m = &s->parameter;
    spry_ir_node line = tool_literal(b, s->lines ? "\n" : NULL);
    return TOOL_SEQUENCE(b, tool_literal(b, m->key_open), key, attributes(b, string), tool_literal(b, m->key_close),
                         m->value_open ? b->gap : spry_ir_empty(b->ir), tool_literal(b, m->value_open), line, value,
                         line, tool_literal(b, m->value_close), b->gap);
}

static spry_ir_node tagged(const tool_builder *b, const char *key, spry_argument_schema of)
{
    return between_marks(b, tool_literal(b, key), plain_value(b, of), spry_argument_types(of) & SPRY_ARGUMENT_STRING);
}

/* ---- nested elements --------------------------------------------------------------------------------------------- */

static spry_ir_node element(const tool_builder *b, const char *key, spry_argument_schema of, int depth);

static spry_ir_node children(const tool_builder *b, spry_argument_schema of, int depth)
{
    json_t *properties = json_object_get(of.schema, "properties"), *property;
    const char *key;
    spry_ir_node node = spry_ir_empty(b->ir);
    json_object_foreach(properties, key, property)
    {
        spry_ir_node one = element(b, key, (spry_argument_schema){of.root, property}, depth + 1);
        one = is_required(of, key) ? one : spry_ir_repeat(b->ir, one, 0, 1);
        node = TOOL_SEQUENCE(b, node, one);
    }
    return node;
}

static spry_ir_node element(const tool_builder *b, const char *key, spry_argument_schema of, int depth)
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
    return TOOL_SEQUENCE(b, tool_literal(b, open), value, tool_literal(b, close));
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* Members with commas between the ones that are present. Built from the last member to the first, once for the case
 * that one comes before it and once for the other. */
static spry_ir_node separated(const tool_builder *b, spry_argument_schema of, const char *sign, const char *comma,
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
        spry_ir_node member =
            TOOL_SEQUENCE(b, tool_literal(b, keys[i]), tool_literal(b, sign), write(b, one, depth + 1), later);
        spry_ir_node next = TOOL_SEQUENCE(b, tool_literal(b, comma), member);
        bool must = is_required(of, keys[i]);
        first = must ? member : TOOL_CHOICE(b, member, first);
        later = must ? next : TOOL_CHOICE(b, next, later);
    }
    if (!keys)
        spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for the parameters of a tool");
    free(keys);
    return first;
}

static spry_ir_node python_value(const tool_builder *b, spry_argument_schema of, int depth)
{
    (void)depth;
    return tool_json(b, of);
}

static spry_ir_node braced_value(const tool_builder *b, spry_argument_schema of, int depth)
{
    const char *quote = b->style->quote;
    unsigned types = spry_argument_types(of);
    const json_t *items = json_object_get(of.schema, "items");
    if (types == SPRY_ARGUMENT_OBJECT && json_object_get(of.schema, "properties") && depth < NESTING_MAX)
        return TOOL_SEQUENCE(b, tool_literal(b, "{"), separated(b, of, ":", ",", braced_value, depth),
                             tool_literal(b, "}"));
    if (types == SPRY_ARGUMENT_ARRAY && json_is_object(items) && depth < NESTING_MAX) {
        spry_ir_node item = braced_value(b, (spry_argument_schema){of.root, items}, depth + 1);
        spry_ir_node more = spry_ir_repeat(b->ir, TOOL_SEQUENCE(b, tool_literal(b, ","), item), 0, SPRY_IR_UNBOUNDED);
        return TOOL_SEQUENCE(b, tool_literal(b, "["), spry_ir_repeat(b->ir, TOOL_SEQUENCE(b, item, more), 0, 1),
                             tool_literal(b, "]"));
    }
    if (!(types & (SPRY_ARGUMENT_STRING | SPRY_ARGUMENT_OBJECT | SPRY_ARGUMENT_ARRAY)))
        return tool_json(b, of);
    if (!(types & SPRY_ARGUMENT_STRING)) /* containers whose schema declares no members */
        return tool_literal(b, types & SPRY_ARGUMENT_OBJECT ? "{}" : "[]");
    spry_ir_node fixed = fixed_strings(b, of, quote, quote);
    return fixed != SPRY_IR_NONE ? fixed
                                 : TOOL_SEQUENCE(b, tool_literal(b, quote), raw_string(b, of), tool_literal(b, quote));
}

/* Parameters of the function in the style's syntax, for TAGGED, TREE, PYTHON and BRACED. */
static spry_ir_node tool_parameters(const tool_builder *b, const json_t *function)
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
        node = TOOL_SEQUENCE(b, node, is_required(of, key) ? one : spry_ir_repeat(b->ir, one, 0, 1));
    }
    return node;
}

/* Parameters of any names and values. */
static spry_ir_node any_parameters(const tool_builder *b)
{
    static const spry_code_range letters[] = {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}};
    const spry_argument_schema anything = {NULL, NULL};
    spry_ir_node key = spry_ir_repeat(b->ir, spry_ir_class(b->ir, letters, SPRY_COUNT(letters), false), 1, 64), member;
    switch (b->style->syntax) {
    case SPRY_CALL_TAGGED: return spry_ir_repeat(b->ir, between_marks(b, key, b->raw, true), 0, SPRY_IR_UNBOUNDED);
    case SPRY_CALL_PYTHON: member = TOOL_SEQUENCE(b, key, tool_literal(b, "="), tool_json(b, anything)); break;
    case SPRY_CALL_BRACED: member = TOOL_SEQUENCE(b, key, tool_literal(b, ":"), braced_value(b, anything, 0)); break;
    default: return spry_ir_fail(b->ir, SPRY_ERR_UNSUPPORTED, "this number of tools cannot be enforced for this model");
    }
    spry_ir_node more = TOOL_SEQUENCE(b, tool_literal(b, ","), b->space, member);
    return spry_ir_repeat(b->ir, TOOL_SEQUENCE(b, member, spry_ir_repeat(b->ir, more, 0, SPRY_IR_UNBOUNDED)), 0, 1);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

#define JSON_STYLE ((spry_json_style)(SPRY_JSON_COMPACT | SPRY_JSON_LENIENT))

enum { BRIEF_TOOLS = 128, BRIEF_BYTES = 256 << 10, NAMES_MAX = 20000 };

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static spry_ir_node tool_literal(const tool_builder *b, const char *text)
{
    return text && *text ? spry_ir_literal(b->ir, spry_view_of(text)) : spry_ir_empty(b->ir);
}

/* Text without control characters, except tabs and line breaks. */
static spry_ir_node any_text(const tool_builder *b)
{
    static const spry_code_range controls[] = {{0, 8}, {11, 12}, {14, 31}};
    spry_ir_node one = spry_ir_class(b->ir, controls, SPRY_COUNT(controls), true);
    return spry_ir_repeat(b->ir, one, 0, SPRY_IR_UNBOUNDED);
}

/* Text that contains neither of two marks; the second may be NULL. */
static spry_ir_node text_without(const tool_builder *b, const char *mark, const char *other)
{
    spry_ir_node any = any_text(b), found = tool_literal(b, mark);
    if (other)
        found = TOOL_CHOICE(b, found, tool_literal(b, other));
    return spry_ir_subtract(b->ir, any, TOOL_SEQUENCE(b, any, found, any));
}

static spry_ir_node any_number_of(const tool_builder *b, spry_ir_node node)
{
    return spry_ir_repeat(b->ir, node, 0, SPRY_IR_UNBOUNDED);
}

static spry_ir_node optional(const tool_builder *b, spry_ir_node node)
{
    return spry_ir_repeat(b->ir, node, 0, 1);
}

/* A text written as a JSON string. */
static spry_ir_node quoted(const tool_builder *b, const char *text)
{
    json_t *string = json_string(text);
    char *spelled = string ? spry_json_text(string, JSON_ENCODE_ANY) : NULL;
    spry_ir_node node = spelled ? tool_literal(b, spelled)
                                : spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for the names of tools");
    free(spelled);
    json_decref(string);
    return node;
}

static spry_ir_node tool_json(const tool_builder *b, spry_argument_schema of)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *schema = json_is_object(of.schema) ? json_deep_copy(of.schema) : json_object();
    for (size_t i = 0; i < SPRY_COUNT(shared); i++) /* references in a schema start at the document's root */
        if (of.schema != of.root && json_object_get(of.root, shared[i]))
            json_object_set(schema, shared[i], json_object_get(of.root, shared[i]));
    char *text = spry_json_text(schema, JSON_COMPACT);
    spry_ir_node node = text ? spry_ir_json_schema(b->ir, spry_view_of(text), JSON_STYLE)
                             : spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for the schema of a tool");
    free(text);
    json_decref(schema);
    return node;
}

/* The object of all arguments. */
static spry_ir_node arguments_of(const tool_builder *b, const json_t *function)
{
    const json_t *parameters = json_object_get(function, "parameters");
    json_t *schema = json_is_object(parameters) ? json_deep_copy(parameters) : json_object();
    if (!json_object_get(schema, "type"))
        json_object_set_new(schema, "type", json_string("object"));
    if (!json_object_get(schema, "properties") && !json_object_get(schema, "$ref") && !json_object_get(schema, "anyOf"))
        json_object_set_new(schema, "additionalProperties", json_false());
    spry_ir_node node = tool_json(b, (spry_argument_schema){schema, schema});
    json_decref(schema);
    return node;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static spry_ir_node word(const tool_builder *b, uint32_t least, uint32_t most)
{
    static const spry_code_range letters[] = {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}};
    return spry_ir_repeat(b->ir, spry_ir_class(b->ir, letters, SPRY_COUNT(letters), false), least, most);
}

/* "key": followed by a space or none, as models write it. */
static spry_ir_node json_key(const tool_builder *b, const char *key)
{
    return TOOL_SEQUENCE(b, quoted(b, key), tool_literal(b, ":"), b->space);
}

/* What differs between the calls of one function and of another. */
typedef struct called {
    spry_ir_node name, quoted;          /* the name itself, and as a JSON string */
    spry_ir_node arguments, parameters; /* as one JSON object; and in the style's own syntax */
} called;

static spry_ir_node json_call(const tool_builder *b, const called *c)
{
    const spry_tool_style *s = b->style;
    spry_ir_node open = tool_literal(b, "{"), close = tool_literal(b, "}");
    spry_ir_node colon = TOOL_SEQUENCE(b, tool_literal(b, ":"), b->space);
    if (s->keyed)
        return TOOL_SEQUENCE(b, open, c->quoted, colon, c->arguments, close);
    spry_ir_node comma = TOOL_SEQUENCE(b, tool_literal(b, ","), b->space), id = spry_ir_empty(b->ir);
    if (s->name_key) /* for models that write the number of a call first */
        id = optional(b, TOOL_SEQUENCE(b, json_key(b, "tool_call_id"), tool_literal(b, "\""), word(b, 1, 9),
                                       tool_literal(b, "\""), comma));
    return TOOL_SEQUENCE(b, open, id, json_key(b, s->name_key ? s->name_key : "name"), c->quoted, comma,
                         json_key(b, s->arguments_key ? s->arguments_key : "arguments"), c->arguments, close);
}

/* The text between `open` and the arguments. */
static spry_ir_node header(const tool_builder *b, spry_ir_node name)
{
    const spry_tool_style *s = b->style;
    spry_ir_node before = spry_ir_empty(b->ir), after = spry_ir_empty(b->ir), tails[SPRY_COUNT(s->name_tails)];
    size_t n_tails = 0;
    if (s->name_mark)
        before =
            TOOL_SEQUENCE(b, s->id_first ? word(b, 1, 24) : tool_literal(b, "function"), tool_literal(b, s->name_mark));
    if (s->id_mark)
        after = optional(b, TOOL_SEQUENCE(b, tool_literal(b, s->id_mark), word(b, 9, 9)));
    if (s->numbered) {
        static const spry_code_range digits[] = {{'0', '9'}};
        after =
            TOOL_SEQUENCE(b, tool_literal(b, ":"), spry_ir_repeat(b->ir, spry_ir_class(b->ir, digits, 1, false), 1, 2));
    }
    for (; n_tails < SPRY_COUNT(s->name_tails) && s->name_tails[n_tails]; n_tails++)
        tails[n_tails] = tool_literal(b, s->name_tails[n_tails]);
    if (n_tails)
        after = spry_ir_choice(b->ir, tails, n_tails);
    return TOOL_SEQUENCE(b, before, tool_literal(b, s->name_prefix), name, after,
                         s->arguments_close ? tool_literal(b, "\n") : spry_ir_empty(b->ir),
                         tool_literal(b, s->arguments_open));
}

/* A call without the marks of a section and without `open`. */
static spry_ir_node call_of(const tool_builder *b, const called *c)
{
    const spry_tool_style *s = b->style;
    spry_ir_node line = tool_literal(b, "\n"), close = tool_literal(b, s->close_ends ? NULL : s->close);
    switch (s->syntax) {
    case SPRY_CALL_JSON: return json_call(b, c);
    case SPRY_CALL_NAMED:
        if (s->arguments_close)
            return TOOL_SEQUENCE(b, header(b, c->name), line, c->arguments, line, tool_literal(b, s->arguments_close),
                                 close);
        return TOOL_SEQUENCE(b, header(b, c->name), c->arguments, close);
    case SPRY_CALL_PYTHON: return TOOL_SEQUENCE(b, c->name, tool_literal(b, "("), c->parameters, tool_literal(b, ")"));
    case SPRY_CALL_BRACED: return TOOL_SEQUENCE(b, header(b, c->name), c->parameters, tool_literal(b, "}"), close);
    default: return TOOL_SEQUENCE(b, header(b, c->name), b->gap, c->parameters, close);
    }
}

static const char *name_at(const tool_builder *b, size_t index)
{
    return json_string_value(json_object_get(json_array_get(b->functions, index), "name"));
}

/* Any of the function names, as JSON strings or plain. */
static spry_ir_node any_name(const tool_builder *b, bool json)
{
    size_t count = json_array_size(b->functions);
    spry_ir_node *nodes = malloc((count + 1) * sizeof *nodes);
    if (!nodes)
        return spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for %zu tools", count);
    for (size_t i = 0; i < count; i++)
        nodes[i] = json ? quoted(b, name_at(b, i)) : tool_literal(b, name_at(b, i));
    spry_ir_node node = spry_ir_choice(b->ir, nodes, count);
    free(nodes);
    return node;
}

static spry_ir_node any_call(const tool_builder *b)
{
    size_t count = json_array_size(b->functions);
    bool json = b->style->syntax == SPRY_CALL_JSON || b->style->syntax == SPRY_CALL_NAMED;
    if (b->brief)
        return call_of(b, &(called){any_name(b, false), any_name(b, true), b->any_object,
                                    json ? SPRY_IR_NONE : any_parameters(b)});
    spry_ir_node *nodes = malloc((count + 1) * sizeof *nodes);
    if (!nodes)
        return spry_ir_fail(b->ir, SPRY_ERR_MEMORY, "not enough memory for %zu tools", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *function = json_array_get(b->functions, i);
        nodes[i] = call_of(b, &(called){tool_literal(b, name_at(b, i)), quoted(b, name_at(b, i)),
                                        json ? arguments_of(b, function) : SPRY_IR_NONE,
                                        json ? SPRY_IR_NONE : tool_parameters(b, function)});
    }
    spry_ir_node node = spry_ir_choice(b->ir, nodes, count);
    free(nodes);
    return node;
}

/* ---- all calls --------------------------------------------------------------------------------------------------- */

/* One item; if parallel calls are allowed, several with `between` between them. */
static spry_ir_node some(const tool_builder *b, spry_ir_node item, spry_ir_node between)
{
    if (!b->parallel)
        return item;
    return TOOL_SEQUENCE(b, item, any_number_of(b, TOOL_SEQUENCE(b, between, item)));
}

/* Calls with all their marks; `opened`: the first mark is already in the prompt. */
static spry_ir_node all_calls(const tool_builder *b, bool opened)
{
    const spry_tool_style *s = b->style;
    spry_ir_node call = any_call(b), open = tool_literal(b, s->open), close = tool_literal(b, s->close);
    spry_ir_node comma = TOOL_SEQUENCE(b, tool_literal(b, ","), b->gap), first = open;
    if (s->syntax == SPRY_CALL_PYTHON || s->list) {
        spry_ir_node list = TOOL_SEQUENCE(b, b->gap, tool_literal(b, "["), b->gap, some(b, call, comma), b->gap,
                                          tool_literal(b, "]"), b->gap, close);
        return opened ? list : TOOL_SEQUENCE(b, open, list);
    }
    if (s->syntax == SPRY_CALL_JSON)
        call = TOOL_SEQUENCE(b, b->gap, call, b->gap, close);
    if (!s->section_open) {
        spry_ir_node marked = TOOL_SEQUENCE(b, open, call);
        if (!opened)
            return some(b, marked, b->gap);
        return b->parallel ? TOOL_SEQUENCE(b, call, any_number_of(b, TOOL_SEQUENCE(b, b->gap, marked))) : call;
    }
    first = tool_literal(b, s->section_open);
    spry_ir_node inside = TOOL_SEQUENCE(b, b->gap, some(b, TOOL_SEQUENCE(b, open, call), b->gap), b->gap,
                                        tool_literal(b, s->section_close));
    spry_ir_node whole = TOOL_SEQUENCE(b, first, inside);
    if (!opened)
        return some(b, whole, b->gap);
    return b->parallel ? TOOL_SEQUENCE(b, inside, any_number_of(b, TOOL_SEQUENCE(b, b->gap, whole))) : inside;
}

/* Calls as plain JSON, which begins the answer, for styles that need no mark. */
static spry_ir_node bare_calls(const tool_builder *b)
{
    return some(b, any_call(b), TOOL_SEQUENCE(b, tool_literal(b, ";"), b->space));
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Text that does not begin like a call without marks: {"name": and the name of a tool. */
static spry_ir_node without_bare_call(const tool_builder *b, spry_ir_node text)
{
    static const spry_code_range blanks[] = {{' ', ' '}, {'\t', '\r'}};
    spry_ir_node blank = any_number_of(b, spry_ir_class(b->ir, blanks, 2, false)), name = any_name(b, true);
    spry_ir_node call = TOOL_SEQUENCE(b, blank, tool_literal(b, "{"), blank, quoted(b, "name"), blank,
                                      tool_literal(b, ":"), blank, name, any_text(b));
    return spry_ir_subtract(b->ir, text, call);
}

/* Text with calls, for answers that need not contain a call. */
static spry_ir_node free_answer(const tool_builder *b)
{
    const spry_tool_style *s = b->style;
    const char *mark = s->section_open ? s->section_open : s->open;
    spry_ir_node text = text_without(b, mark, s->section_open ? s->open : NULL);
    spry_ir_node calls = TOOL_SEQUENCE(b, tool_literal(b, mark), all_calls(b, true));
    spry_ir_node start = s->bare ? without_bare_call(b, text) : text;
    spry_ir_node rest =
        b->parallel ? any_number_of(b, TOOL_SEQUENCE(b, calls, text)) : optional(b, TOOL_SEQUENCE(b, calls, b->gap));
    spry_ir_node answer = TOOL_SEQUENCE(b, start, rest);
    return s->bare ? TOOL_CHOICE(b, TOOL_SEQUENCE(b, b->gap, bare_calls(b)), answer) : answer;
}

/* For styles with recipients: ">>>" is at the end of the prompt, and content has a recipient, too. */
static spry_ir_node prompted_answer(const tool_builder *b, bool required)
{
    spry_ir_node calls = all_calls(b, true);
    if (required)
        return calls;
    spry_ir_node content = TOOL_SEQUENCE(b, tool_literal(b, "all\n"), text_without(b, b->style->open, NULL));
    return TOOL_CHOICE(b, calls, TOOL_SEQUENCE(b, content, optional(b, all_calls(b, false))));
}

/* The answer after a thought, which the prompt has begun or which the answer begins. */
static spry_ir_node after_thought(const tool_builder *b, const json_t *spec, spry_ir_node answer, bool required)
{
    const char *open = json_string_value(json_object_get(spec, "thought_open"));
    const char *close = json_string_value(json_object_get(spec, "thought_close"));
    if (!open || !close)
        return answer;
    spry_ir_node thought = text_without(b, close, NULL);
    spry_ir_node whole = TOOL_SEQUENCE(b, thought, tool_literal(b, close), b->gap, answer);
    if (json_is_true(json_object_get(spec, "in_thought")))
        return required ? whole : TOOL_CHOICE(b, whole, thought);
    return TOOL_CHOICE(b, answer, TOOL_SEQUENCE(b, b->gap, tool_literal(b, open), whole));
}

static spry_ir_node build(tool_builder *b, const json_t *spec)
{
    bool required = json_is_true(json_object_get(spec, "required"));
    spry_ir_node answer;
    if (b->style->prompted)
        return prompted_answer(b, required);
    if (!required)
        answer = free_answer(b);
    else if (b->style->bare)
        answer = bare_calls(b);
    else
        answer = all_calls(b, false);
    return after_thought(b, spec, answer, required);
}

static void init(tool_builder *b, spry_ir *ir, const json_t *spec)
{
    static const spry_code_range blanks[] = {{' ', ' '}, {'\n', '\n'}};
    const char *style = json_string_value(json_object_get(spec, "style"));
    *b = (tool_builder){.ir = ir,
                        .style = spry_tool_style_named(style ? style : ""),
                        .functions = json_object_get(spec, "tools"),
                        .parallel = !json_is_false(json_object_get(spec, "parallel"))};
    size_t count = json_array_size(b->functions), bytes = 0;
    for (size_t i = 0; i < count && count <= BRIEF_TOOLS; i++)
        bytes += json_dumpb(json_array_get(b->functions, i), NULL, 0, JSON_COMPACT);
    b->brief = count > BRIEF_TOOLS || bytes > BRIEF_BYTES;
    b->gap = spry_ir_repeat(ir, spry_ir_class(ir, blanks, 2, false), 0, 2);
    b->space = spry_ir_repeat(ir, spry_ir_class(ir, blanks, 1, false), 0, 1);
    b->any_object = b->brief ? spry_ir_json_object(ir, SPRY_JSON_COMPACT) : SPRY_IR_NONE;
    const char *end = b->style ? b->style->parameter.value_close : NULL;
    end = !end && b->style ? b->style->quote : end;
    b->raw = end ? text_without(b, end, NULL) : SPRY_IR_NONE;
}

spry_ir_node spry_ir_tool_calls(spry_ir *ir, spry_view source)
{
    json_t *spec = spry_json_value(source);
    tool_builder b;
    spry_ir_node node;
    init(&b, ir, spec);
    size_t count = json_array_size(b.functions);
    if (!b.style || count == 0)
        node = spry_ir_fail(ir, SPRY_ERR_INPUT, "tool calls need a style and tools");
    else if (count > NAMES_MAX)
        node = spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED, "calls of %zu tools cannot be enforced; at most %d can", count,
                            NAMES_MAX);
    else
        node = build(&b, spec);
    json_decref(spec);
    return node;
}
