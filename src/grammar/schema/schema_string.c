/* Strings: keywords, conjunction of two shapes, and spelling. */
#include "grammar/schema/schema.h"

#include "base/utf8.h"
#include "grammar/schema/json_spelling.h"

enum { PROSE_MIN_MAX = 4096 }; /* for a larger minimum runs of blanks are not excluded */

static const spry_shapes *one_string(spry_schema *schema, spry_string_shape string)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_STRING);
    if (!shape)
        return NULL;
    shape->as.string = string;
    return spry_shapes_of(schema, &shape, 1);
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

const spry_shapes *spry_schema_length(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    spry_string_shape string = {.max = SPRY_IR_UNBOUNDED};
    if (!spry_schema_range(schema, &string.min, &string.max, place, keyword, value, negated))
        return spry_schema_failed(schema) ? NULL : spry_shapes_none(schema);
    return one_string(schema, string);
}

spry_ir_node spry_schema_pattern_node(spry_schema *schema, const json_t *where, const char *keyword, spry_view pattern)
{
    uint32_t node;
    bool added;
    if (spry_map_find(&schema->pattern_index, pattern, &node))
        return node;
    if (spry_schema_failed(schema))
        return SPRY_IR_NONE;
    node = spry_json_respell(schema->ir, spry_ir_regex(schema->ir, pattern, true));
    spry_schema_blame(schema, where, keyword);
    if (!spry_map_add(&schema->pattern_index, pattern, node, &added))
        return spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    return node;
}

/* Strings whose spelling is in a set, or with `negated` is not. */
const spry_shapes *spry_schema_spelled(spry_schema *schema, spry_ir_node spelled, bool negated)
{
    if (negated)
        spelled = spry_ir_subtract(schema->ir, spry_strings_except(schema, NULL, 0), spelled);
    return one_string(schema, (spry_string_shape){.max = SPRY_IR_UNBOUNDED, .also = spry_nodes_one(schema, spelled)});
}

const spry_shapes *spry_schema_pattern(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                       bool negated)
{
    const json_t *json = schema->places[place]->json;
    if (!json_is_string(value)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, json, keyword, "must be a string");
        return NULL;
    }
    spry_view pattern = {json_string_value(value), json_string_length(value)};
    return spry_schema_spelled(schema, spry_schema_pattern_node(schema, json, keyword, pattern), negated);
}

/* ---- two shapes -------------------------------------------------------------------------------------------------- */

static uint32_t length_of(const json_t *string)
{
    uint32_t count = 0;
    const char *text = json_string_value(string);
    for (size_t i = 0; i < json_string_length(string); i++)
        count += (text[i] & 0xC0) != 0x80;
    return count;
}

static bool has_value(const spry_string_shape *string, const json_t *value)
{
    for (size_t i = 0; i < string->n_values; i++)
        if (json_equal(string->values[i], value))
            return true;
    return !string->values;
}

static bool has_patterns(spry_schema *schema, spry_nodes patterns, const json_t *value)
{
    for (size_t i = 0; i < patterns.count; i++)
        if (!spry_schema_accepts(schema, patterns.items[i],
                                 (spry_view){json_string_value(value), json_string_length(value)}))
            return false;
    return true;
}

/* Removes the values that do not have the patterns, which then need not be stated. */
static void apply_patterns(spry_schema *schema, spry_string_shape *string, const json_t **values, const json_t *at)
{
    size_t kept = 0;
    for (size_t i = 0; i < string->n_values; i++)
        if (json_string_length(values[i]) > SPRY_SCHEMA_NAME_MAX)
            return;
    for (size_t i = 0; i < string->n_values; i++)
        if (has_patterns(schema, string->also, values[i]))
            values[kept++] = values[i];
    string->n_values = kept;
    string->also = (spry_nodes){NULL, 0};
    spry_schema_blame(schema, at, NULL);
}

spry_shape *spry_string_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_string_shape *a = &first->as.string, *b = &second->as.string;
    spry_string_shape out = {.min = a->min > b->min ? a->min : b->min, .max = a->max < b->max ? a->max : b->max};
    if (out.min > out.max)
        return NULL;
    if (!a->values) {
        const spry_string_shape *swap = a;
        a = b;
        b = swap;
    }
    if (a->values) {
        const json_t **kept = spry_schema_alloc(schema, a->n_values, sizeof *kept);
        if (!kept)
            return NULL;
        for (size_t i = 0; i < a->n_values; i++) {
            uint32_t length = length_of(a->values[i]);
            if (length >= out.min && length <= out.max && has_value(b, a->values[i]))
                kept[out.n_values++] = a->values[i];
        }
        out.values = kept;
        out.also = spry_nodes_join(schema, a->also, b->also);
        apply_patterns(schema, &out, kept, first->at);
        if (out.n_values == 0 || spry_schema_failed(schema))
            return NULL;
    } else {
        out.also = spry_nodes_join(schema, a->also, b->also);
    }
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_STRING);
    if (shape)
        shape->as.string = out;
    return shape;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static spry_ir_node write_values(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir_node *choices = spry_schema_alloc(schema, string->n_values, sizeof *choices);
    if (!choices)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < string->n_values; i++) {
        spry_view text = {json_string_value(string->values[i]), json_string_length(string->values[i])};
        choices[i] = spry_schema_writes(schema) ? spry_json_spell_usual(schema->ir, text)
                                                : spry_json_spell_text(schema->ir, text);
    }
    return spry_ir_choice(schema->ir, choices, string->n_values);
}

/* Strings of limited length without patterns. */
static spry_ir_node write_length(spry_schema *schema, const spry_string_shape *string)
{
    bool writes = spry_schema_writes(schema);
    if (writes && string->min <= PROSE_MIN_MAX)
        return spry_schema_limited(schema, spry_json_prose(schema->ir), string->min, string->max);
    return spry_ir_repeat(schema->ir, spry_json_any_character(schema->ir, !writes), string->min, string->max);
}

/* The spellings between the quotes. */
static spry_ir_node write_inside(spry_schema *schema, const spry_string_shape *string)
{
    if (string->values) {
        spry_ir_node inside = write_values(schema, string);
        for (size_t i = 0; i < string->also.count; i++)
            inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
        return inside;
    }
    if (string->also.count == 0)
        return write_length(schema, string);
    spry_ir_node inside = string->also.items[0];
    for (size_t i = 1; i < string->also.count; i++)
        inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
    return spry_schema_limited(schema, inside, string->min, string->max);
}

spry_ir_node spry_string_write(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir_node quote = spry_ir_literal(schema->ir, SPRY_VIEW("\""));
    return spry_ir_sequence(schema->ir, (spry_ir_node[]){quote, write_inside(schema, string), quote}, 3);
}

/* The spellings between the quotes as a regular node: names of members are compared with each other. */
static spry_ir_node write_regular(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir *ir = schema->ir;
    bool escapes = string->also.count == 0 && !spry_schema_writes(schema);
    if (string->values || (string->min == 0 && string->max == SPRY_IR_UNBOUNDED))
        return write_inside(schema, string);
    spry_ir_node inside = spry_ir_repeat(ir, spry_json_any_character(ir, escapes), string->min, string->max);
    for (size_t i = 0; i < string->also.count; i++)
        inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
    return inside;
}

spry_ir_node spry_schema_key_language(spry_schema *schema, spry_claims claims)
{
    const spry_shapes *shapes = spry_goal_shapes(schema, spry_schema_goal(schema, claims));
    spry_ir_node language = spry_ir_never(schema->ir);
    for (size_t i = 0; shapes && i < shapes->count; i++) {
        if (shapes->items[i]->kind != SPRY_SHAPE_STRING)
            continue;
        spry_ir_node inside = write_regular(schema, &shapes->items[i]->as.string);
        language = spry_ir_choice(schema->ir, (spry_ir_node[]){language, inside}, 2);
    }
    return language;
}
