/* Expands a claim to shapes: the table of keywords, and how their results are combined.
 *
 * A schema is the conjunction of its keywords, and a keyword constrains one kind of value only: {"minimum": 3} allows
 * every string. A negated schema is the disjunction of its negated keywords. */
#include "grammar/schema/schema.h"

#include <math.h>

static spry_keyword_shapes type_shapes;

enum { SPRY_SHAPE_REPLACED = SPRY_SHAPE_KINDS + 1 };

/* A row applies when one of its keywords is present and known to the schema's draft. Kind SPRY_SHAPE_KINDS: the shapes
 * are of every kind; SPRY_SHAPE_REPLACED: they are those of the preceding keywords, changed. */
static const struct {
    const char *keywords[4];
    unsigned kind;
    spry_keyword_shapes *shapes;
    spry_draft since;
} rows[] = {
    {{"$ref"}, SPRY_SHAPE_KINDS, spry_schema_reference, SPRY_DRAFT_04},
    {{"$dynamicRef"}, SPRY_SHAPE_KINDS, spry_schema_reference, SPRY_DRAFT_2020_12},
    {{"$recursiveRef"}, SPRY_SHAPE_KINDS, spry_schema_reference, SPRY_DRAFT_2019_09},
    {{"type"}, SPRY_SHAPE_KINDS, type_shapes, SPRY_DRAFT_04},
    {{"const"}, SPRY_SHAPE_KINDS, spry_schema_const, SPRY_DRAFT_06},
    {{"enum"}, SPRY_SHAPE_KINDS, spry_schema_enum, SPRY_DRAFT_04},
    {{"minimum"}, SPRY_SHAPE_NUMBER, spry_schema_number_bound, SPRY_DRAFT_04},
    {{"maximum"}, SPRY_SHAPE_NUMBER, spry_schema_number_bound, SPRY_DRAFT_04},
    {{"exclusiveMinimum"}, SPRY_SHAPE_NUMBER, spry_schema_number_bound, SPRY_DRAFT_04},
    {{"exclusiveMaximum"}, SPRY_SHAPE_NUMBER, spry_schema_number_bound, SPRY_DRAFT_04},
    {{"multipleOf"}, SPRY_SHAPE_NUMBER, spry_schema_multiple_of, SPRY_DRAFT_04},
    {{"minLength"}, SPRY_SHAPE_STRING, spry_schema_length, SPRY_DRAFT_04},
    {{"maxLength"}, SPRY_SHAPE_STRING, spry_schema_length, SPRY_DRAFT_04},
    {{"pattern"}, SPRY_SHAPE_STRING, spry_schema_pattern, SPRY_DRAFT_04},
    {{"format"}, SPRY_SHAPE_KINDS, spry_schema_format, SPRY_DRAFT_04},
    {{"items", "prefixItems", "unevaluatedItems"}, SPRY_SHAPE_ARRAY, spry_schema_items, SPRY_DRAFT_04},
    {{"minItems"}, SPRY_SHAPE_ARRAY, spry_schema_item_count, SPRY_DRAFT_04},
    {{"maxItems"}, SPRY_SHAPE_ARRAY, spry_schema_item_count, SPRY_DRAFT_04},
    {{"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"},
     SPRY_SHAPE_OBJECT,
     spry_schema_members,
     SPRY_DRAFT_04},
    {{"required"}, SPRY_SHAPE_OBJECT, spry_schema_required, SPRY_DRAFT_04},
    {{"minProperties"}, SPRY_SHAPE_OBJECT, spry_schema_member_count, SPRY_DRAFT_04},
    {{"maxProperties"}, SPRY_SHAPE_OBJECT, spry_schema_member_count, SPRY_DRAFT_04},
    {{"propertyNames"}, SPRY_SHAPE_OBJECT, spry_schema_property_names, SPRY_DRAFT_06},
    {{"dependentRequired"}, SPRY_SHAPE_KINDS, spry_schema_dependent, SPRY_DRAFT_2019_09},
    {{"dependentSchemas"}, SPRY_SHAPE_KINDS, spry_schema_dependent, SPRY_DRAFT_2019_09},
    {{"dependencies"}, SPRY_SHAPE_KINDS, spry_schema_dependent, SPRY_DRAFT_04},
    {{"allOf"}, SPRY_SHAPE_KINDS, spry_schema_all_of, SPRY_DRAFT_04},
    {{"anyOf"}, SPRY_SHAPE_KINDS, spry_schema_any_of, SPRY_DRAFT_04},
    {{"oneOf"}, SPRY_SHAPE_KINDS, spry_schema_one_of, SPRY_DRAFT_04},
    {{"not"}, SPRY_SHAPE_KINDS, spry_schema_not, SPRY_DRAFT_04},
    {{"if"}, SPRY_SHAPE_KINDS, spry_schema_if, SPRY_DRAFT_07},
    {{"uniqueItems"}, SPRY_SHAPE_ARRAY, spry_schema_unique, SPRY_DRAFT_04},
    {{"contains"}, SPRY_SHAPE_ARRAY, spry_schema_contains, SPRY_DRAFT_06},
    {{"unevaluatedItems"}, SPRY_SHAPE_REPLACED, spry_schema_unevaluated_items, SPRY_DRAFT_2019_09},
    {{"unevaluatedProperties"}, SPRY_SHAPE_REPLACED, spry_schema_unevaluated_properties, SPRY_DRAFT_2019_09},
};

/* unevaluatedProperties beside keywords that apply other schemas depends on what those have evaluated; otherwise it
 * equals additionalProperties. The same holds for items. */
bool spry_schema_is_plain(const json_t *json)
{
    static const char *const applicators[] = {
        "$ref",         "allOf",    "anyOf",       "oneOf",        "not", "if", "dependentSchemas",
        "dependencies", "contains", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof applicators / sizeof *applicators; i++)
        if (json_object_get(json, applicators[i]))
            return false;
    return true;
}

static const struct {
    const char *name;
    unsigned kinds;
} types[] = {
    {"null", 1u << SPRY_SHAPE_NULL},     {"boolean", 1u << SPRY_SHAPE_FALSE | 1u << SPRY_SHAPE_TRUE},
    {"number", 1u << SPRY_SHAPE_NUMBER}, {"string", 1u << SPRY_SHAPE_STRING},
    {"array", 1u << SPRY_SHAPE_ARRAY},   {"object", 1u << SPRY_SHAPE_OBJECT},
};

/* Adds the kinds of a type name; false when there is no such type. */
static bool add_type(unsigned *kinds, bool *integer, const json_t *name)
{
    const char *text = spry_schema_text(name);
    if (text && strcmp(text, "integer") == 0)
        return *integer = true;
    for (size_t i = 0; text && i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, text) == 0) {
            *kinds |= types[i].kinds;
            return true;
        }
    }
    return false;
}

static const spry_shapes *type_shapes(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    unsigned kinds = 0;
    bool integer = false, known = true;
    if (!json_is_array(value))
        known = add_type(&kinds, &integer, value);
    for (size_t i = 0; known && i < json_array_size(value); i++)
        known = add_type(&kinds, &integer, json_array_get(value, i));
    if (!known) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword,
                           "names no type; types are null, boolean, integer, number, string, array and object");
        return NULL;
    }
    spry_shape *shapes[SPRY_SHAPE_KINDS] = {NULL};
    for (size_t i = 0; i < schema->everything.count; i++) {
        spry_shape *shape = schema->everything.items[i];
        bool named = kinds >> shape->kind & 1;
        if (shape->kind == SPRY_SHAPE_NUMBER && integer && !named) {
            shapes[i] = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
            if (!shapes[i])
                return NULL;
            shapes[i]->as.number.integer = !negated;
            shapes[i]->as.number.fractional = negated;
        } else if (named != negated) {
            shapes[i] = shape;
        }
    }
    return spry_shapes_of(schema, shapes, schema->everything.count);
}

bool spry_schema_range(spry_schema *schema, uint32_t *min, uint32_t *max, uint32_t place, const char *keyword,
                       const json_t *value, bool negated)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != floor(number)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword,
                           "must be a whole number from 0");
        return false;
    }
    bool is_min = strncmp(keyword, "min", 3) == 0;
    if (number >= SPRY_IR_UNBOUNDED) /* longer than any text */
        return is_min == negated;
    uint32_t count = (uint32_t)number;
    if (is_min != negated)
        *min = count + negated;
    else
        *max = count - negated;
    return !(is_min && negated && count == 0);
}

typedef struct small_text {
    char bytes[250];
    size_t size;
} small_text;

/* For json_dump_callback: stops at the first text that is too long. */
static int add_text(const char *bytes, size_t size, void *user)
{
    small_text *text = user;
    if (size > sizeof text->bytes - text->size)
        return -1;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return 0;
}

static uint32_t find_equal(spry_schema *schema, uint32_t place)
{
    const spry_schema_place *inner = schema->places[place];
    small_text text = {.size = 0};
    if (!json_is_object(inner->json) || json_object_size(inner->json) > 8 || inner->base != schema->places[0]->base ||
        json_object_get(inner->json, "$id") || json_object_get(inner->json, "id") ||
        json_dump_callback(inner->json, add_text, &text, JSON_COMPACT))
        return place;
    bool added;
    uint32_t first = place;
    spry_view view = {text.bytes, text.size};
    if (spry_map_find(&schema->equal_index, view, &first))
        return first;
    char *key = spry_arena_copy(&schema->arena, view);
    if (!key || !spry_map_add(&schema->equal_index, (spry_view){key, view.size}, place, &added))
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    return place;
}

/* The first place with the same small schema: claims about equal schemas are then equal, too, which keeps negated
 * combinations small. */
static uint32_t first_equal(spry_schema *schema, uint32_t place)
{
    uint32_t *known = &schema->places[place]->equal;
    if (!*known)
        *known = find_equal(schema, place) + 1;
    return *known - 1;
}

spry_claim spry_schema_claim(spry_schema *schema, uint32_t place, const json_t *json, bool negated)
{
    uint32_t inner = spry_schema_place_at(schema, json, schema->places[place]->base);
    if (!spry_schema_failed(schema))
        inner = first_equal(schema, inner);
    return spry_claim_of(inner, negated ? SPRY_CLAIM_NEGATED : 0);
}

/* Applies one row: `sofar` restricted to the allowed shapes, or with `negated` extended by those not allowed. */
static const spry_shapes *apply_row(spry_schema *schema, uint32_t place, size_t row, const spry_shapes *sofar,
                                    bool negated)
{
    const json_t *json = schema->places[place]->json, *value = NULL;
    const char *keyword = NULL;
    for (size_t i = 0; !value && i < 4 && rows[row].keywords[i]; i++)
        value = json_object_get(json, keyword = rows[row].keywords[i]);
    if (!value || schema->draft < rows[row].since)
        return sofar;
    schema->beside = negated ? &schema->everything : sofar;
    const spry_shapes *said = rows[row].shapes(schema, place, keyword, value, negated);
    if (!negated && spry_schema_excuse(schema))
        return sofar;
    if (negated)
        return spry_shapes_either(schema, sofar, said);
    if (rows[row].kind == SPRY_SHAPE_REPLACED)
        return said;
    if (rows[row].kind == SPRY_SHAPE_KINDS)
        return spry_shapes_both(schema, sofar, said);
    return spry_shapes_restrict(schema, sofar, (spry_shape_kind)rows[row].kind, said);
}

static const spry_shapes *expand_schema(spry_schema *schema, uint32_t place, bool negated)
{
    const json_t *json = schema->places[place]->json;
    if (json_is_boolean(json))
        return json_is_true(json) != negated ? &schema->everything : spry_shapes_none(schema);
    if (!json_is_object(json)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, json, NULL, "must be a schema: an object, true or false");
        return NULL;
    }
    size_t n_rows = sizeof rows / sizeof *rows;
    if (spry_schema_lone_reference(schema, json))
        n_rows = 1;
    const spry_shapes *shapes = negated ? spry_shapes_none(schema) : &schema->everything;
    for (size_t row = 0; shapes && row < n_rows; row++)
        shapes = apply_row(schema, place, row, shapes, negated);
    return shapes;
}

const spry_shapes *spry_schema_expand(spry_schema *schema, spry_claim claim)
{
    bool negated = claim & SPRY_CLAIM_NEGATED;
    if (claim >> 2 >= schema->n_places || spry_schema_failed(schema))
        return NULL;
    if (claim & SPRY_CLAIM_VALUE)
        return spry_schema_equal(schema, claim >> 2, negated);
    spry_schema_place *place = schema->places[claim >> 2];
    if (place->shapes[negated])
        return place->shapes[negated];
    if (place->busy[negated]) {
        if (!schema->probing)
            spry_schema_refuse(schema, SPRY_ERR_INPUT, place->json, NULL,
                               "refers to itself for the same value, without end");
        return NULL;
    }
    if (schema->depth == SPRY_SCHEMA_DEPTH_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, place->json, NULL,
                           "is nested more than %d schemas deep for one value", SPRY_SCHEMA_DEPTH_MAX);
        return NULL;
    }
    const json_t *outer = schema->at;
    schema->at = place->json;
    schema->depth++;
    place->busy[negated] = true;
    place->shapes[negated] = expand_schema(schema, claim >> 2, negated);
    if (negated && schema->unevaluated)
        place->shapes[negated] = spry_shapes_hidden(schema, place->shapes[negated]);
    place->busy[negated] = false;
    schema->depth--;
    schema->at = outer;
    return place->shapes[negated];
}
