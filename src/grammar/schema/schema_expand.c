/* Expands a claim to shapes: the table of keywords, and how their results are combined.
 *
 * A schema is the conjunction of its keywords, and a keyword constrains one kind of value only: {"minimum": 3} allows
 * every string. A negated schema is the disjunction of its negated keywords. */
#include <math.h>

#include "grammar/schema/schema.h"

/* ---- keywords that apply other schemas --------------------------------------------------------------------------- */

/* Keywords that apply other schemas to the same value: $ref, allOf, anyOf, oneOf, not, if, dependentSchemas and
 * dependentRequired. */

/* True if the value is a list of schemas; otherwise the builder fails. */
static bool is_list(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value)
{
    if (json_is_array(value) && json_array_size(value) > 0)
        return true;
    spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a list of schemas");
    return false;
}

static const spry_shapes *expand_at(spry_schema *schema, uint32_t place, const json_t *json, bool negated)
{
    return spry_schema_expand(schema, spry_schema_claim(schema, place, json, negated));
}

/* The values that all of the listed schemas allow, or that any of them allows. */
static const spry_shapes *fold(spry_schema *schema, uint32_t place, const json_t *list, bool negated, bool all)
{
    const spry_shapes *shapes = all ? &schema->everything : spry_shapes_none(schema);
    for (size_t i = 0; shapes && i < json_array_size(list); i++) {
        const spry_shapes *next = expand_at(schema, place, json_array_get(list, i), negated);
        shapes = all ? spry_shapes_both(schema, shapes, next) : spry_shapes_either(schema, shapes, next);
    }
    return shapes;
}

const spry_shapes *spry_schema_reference(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                         bool negated)
{
    uint32_t target = spry_schema_resolve(schema, place, keyword, value);
    if (target == UINT32_MAX)
        return NULL;
    return spry_schema_expand(schema, spry_claim_of(target, negated ? SPRY_CLAIM_NEGATED : 0));
}

const spry_shapes *spry_schema_all_of(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    return is_list(schema, place, keyword, value) ? fold(schema, place, value, negated, !negated) : NULL;
}

const spry_shapes *spry_schema_any_of(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    if (!is_list(schema, place, keyword, value))
        return NULL;
    if (negated || !schema->unevaluated)
        return fold(schema, place, value, negated, negated);
    /* Every valid branch evaluates members and items, so each combination of branches becomes an alternative. */
    const spry_shapes *shapes = spry_shapes_none(schema);
    for (size_t i = 0; shapes && i < json_array_size(value); i++) {
        const spry_shapes *next = expand_at(schema, place, json_array_get(value, i), false);
        const spry_shapes *with = spry_shapes_either(schema, next, spry_shapes_both(schema, shapes, next));
        shapes = spry_shapes_either(schema, shapes, with);
    }
    return shapes;
}

const spry_shapes *spry_schema_not(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                   bool negated)
{
    (void)keyword;
    return expand_at(schema, place, value, !negated);
}

const spry_shapes *spry_schema_if(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                  bool negated)
{
    (void)keyword;
    const json_t *json = schema->places[place]->json;
    const json_t *branch[] = {json_object_get(json, "then"), json_object_get(json, "else")};
    if (!branch[0] && !branch[1] && (negated || !schema->unevaluated))
        return negated ? spry_shapes_none(schema) : &schema->everything;
    const spry_shapes *shapes = spry_shapes_none(schema);
    for (int i = 0; i < 2; i++) {
        const spry_shapes *condition = expand_at(schema, place, value, i == 1);
        const spry_shapes *then = branch[i] ? expand_at(schema, place, branch[i], negated)
                                  : negated ? spry_shapes_none(schema)
                                            : &schema->everything;
        shapes = spry_shapes_either(schema, shapes, spry_shapes_both(schema, condition, then));
    }
    return shapes;
}

/* ---- oneOf ------------------------------------------------------------------------------------------------------- */

/* The shapes `mine` without the values that another branch allows. Shapes that share no value with that branch need no
 * negation, which keeps unions with a discriminating member small. */
static const spry_shapes *without_branch(spry_schema *schema, uint32_t place, const spry_shapes *mine,
                                         const json_t *branch)
{
    const spry_shapes *other = expand_at(schema, place, branch, false);
    spry_shape **apart = spry_schema_alloc(schema, mine->count, sizeof *apart);
    spry_shape **shared = spry_schema_alloc(schema, mine->count, sizeof *shared);
    size_t n_apart = 0, n_shared = 0;
    if (!other || !apart || !shared)
        return NULL;
    for (size_t i = 0; i < mine->count; i++) {
        const spry_shapes one = {&mine->items[i], 1};
        if (spry_shapes_disjoint(schema, &one, other))
            apart[n_apart++] = mine->items[i];
        else
            shared[n_shared++] = mine->items[i];
    }
    if (n_shared == 0)
        return mine;
    const spry_shapes *rest =
        spry_shapes_both(schema, spry_shapes_of(schema, shared, n_shared), expand_at(schema, place, branch, true));
    rest = spry_shapes_alive(schema, rest);
    return n_apart ? spry_shapes_either(schema, spry_shapes_of(schema, apart, n_apart), rest) : rest;
}

/* The values that branch `own` allows and no other branch does, restricted to `beside`, the values that the schema's
 * other keywords allow. */
static const spry_shapes *only_branch(spry_schema *schema, uint32_t place, const json_t *list, size_t own,
                                      const spry_shapes *beside)
{
    const spry_shapes *shapes =
        spry_shapes_both(schema, beside, expand_at(schema, place, json_array_get(list, own), false));
    for (size_t i = 0; shapes && i < json_array_size(list); i++)
        if (i != own)
            shapes = without_branch(schema, place, shapes, json_array_get(list, i));
    return shapes;
}

/* The values that no branch allows, or at least two branches. */
static const spry_shapes *not_one(spry_schema *schema, uint32_t place, const json_t *list)
{
    const spry_shapes *shapes = fold(schema, place, list, true, true);
    for (size_t i = 0; shapes && i < json_array_size(list); i++) {
        const spry_shapes *a = expand_at(schema, place, json_array_get(list, i), false);
        for (size_t j = 0; shapes && j < i; j++) {
            const spry_shapes *b = expand_at(schema, place, json_array_get(list, j), false);
            shapes = spry_shapes_either(schema, shapes, spry_shapes_both(schema, a, b));
        }
    }
    return shapes;
}

const spry_shapes *spry_schema_one_of(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    if (!is_list(schema, place, keyword, value))
        return NULL;
    if (json_array_size(value) > SPRY_SCHEMA_BRANCHES_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                           "has more than %d branches; write anyOf where they cannot overlap",
                           SPRY_SCHEMA_BRANCHES_MAX);
        return NULL;
    }
    if (negated)
        return not_one(schema, place, value);
    const spry_shapes *shapes = spry_shapes_none(schema), *beside = schema->beside;
    for (size_t i = 0; shapes && i < json_array_size(value); i++)
        shapes = spry_shapes_either(schema, shapes, only_branch(schema, place, value, i, beside));
    return shapes;
}

/* ---- keywords that depend on a member ---------------------------------------------------------------------------- */

/* The constraint that applies when the member is present: a schema, or a list of further required members. */
static const spry_shapes *consequence(spry_schema *schema, uint32_t place, const char *keyword, const json_t *then,
                                      bool negated)
{
    if (!json_is_array(then))
        return expand_at(schema, place, then, negated);
    return spry_schema_required(schema, place, keyword, then, negated);
}

const spry_shapes *spry_schema_dependent(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                         bool negated)
{
    if (!json_is_object(value)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be an object");
        return NULL;
    }
    const spry_shapes *shapes = negated ? spry_shapes_none(schema) : &schema->everything;
    const char *name;
    json_t *then;
    json_object_foreach((json_t *)value, name, then)
    {
        const spry_shapes *both = spry_shapes_both(schema, spry_object_with(schema, name, NULL),
                                                   consequence(schema, place, keyword, then, negated));
        if (!negated) {
            const spry_shapes *others = spry_shapes_without(schema, SPRY_SHAPE_OBJECT);
            const spry_shapes *absent = spry_shapes_either(schema, others, spry_object_without(schema, name));
            both = spry_shapes_both(schema, shapes, spry_shapes_either(schema, absent, both));
        }
        shapes = negated ? spry_shapes_either(schema, shapes, both) : both;
        if (!shapes)
            return NULL;
    }
    return shapes;
}

/* ---- unevaluated items and properties ---------------------------------------------------------------------------- */

/* unevaluatedItems and unevaluatedProperties beside keywords that apply other schemas. The shapes of those keywords
 * know which schemas they come from: each shape is an alternative in which certain subschemas are valid, and their
 * members and items are evaluated. A value for which more subschemas are valid is covered by another shape, which
 * allows more; so no shape allows too much. Negated schemas evaluate nothing. */

/* ---- shapes that evaluate nothing -------------------------------------------------------------------------------- */

static spry_shape *copy_shape(spry_schema *schema, const spry_shape *shape)
{
    spry_shape *copy = spry_shape_new(schema, shape->kind);
    if (copy)
        copy->as = shape->as;
    return copy;
}

static spry_shape *hide(spry_schema *schema, spry_shape *shape)
{
    if (shape->any || shape->kind < SPRY_SHAPE_ARRAY)
        return shape;
    spry_shape *copy = copy_shape(schema, shape);
    if (!copy || shape->kind == SPRY_SHAPE_ARRAY) {
        if (copy) {
            copy->as.array.evaluated = 0;
            copy->as.array.evaluating = (spry_claims){NULL, 0};
        }
        return copy;
    }
    size_t count = shape->as.object.n_parts;
    spry_object_part *parts = spry_schema_alloc(schema, count, sizeof *parts);
    for (size_t i = 0; parts && i < count; i++) {
        parts[i] = shape->as.object.parts[i];
        parts[i].hidden = true;
    }
    copy->as.object.parts = parts;
    return parts ? copy : NULL;
}

/* A copy of the shapes that evaluates nothing. */
static const spry_shapes *shapes_hidden(spry_schema *schema, const spry_shapes *shapes)
{
    if (!shapes)
        return NULL;
    spry_shape **hidden = spry_schema_alloc(schema, shapes->count, sizeof *hidden);
    for (size_t i = 0; hidden && i < shapes->count; i++)
        hidden[i] = hide(schema, shapes->items[i]);
    return hidden ? spry_shapes_of(schema, hidden, shapes->count) : NULL;
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

/* Changes each shape of one kind that the other keywords have left. */
typedef spry_shape *change_shape(spry_schema *schema, uint32_t place, const json_t *value, const spry_shape *shape);

static const spry_shapes *change(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                 bool negated, spry_shape_kind kind, change_shape *change_one)
{
    const json_t *json = schema->places[place]->json;
    const spry_shapes *before = schema->beside;
    if (json_is_true(value) || spry_schema_is_plain(json)) /* plain: read as items or additionalProperties */
        return negated ? spry_shapes_none(schema) : before;
    if (negated) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, json, keyword,
                           "cannot be enforced where it is negated (by not, if, or a oneOf whose branches overlap)");
        return NULL;
    }
    spry_shape **changed = spry_schema_alloc(schema, before->count, sizeof *changed);
    for (size_t i = 0; changed && i < before->count; i++)
        changed[i] =
            before->items[i]->kind == kind ? change_one(schema, place, value, before->items[i]) : before->items[i];
    return changed ? spry_shapes_of(schema, changed, before->count) : NULL;
}

static spry_shape *limit_members(spry_schema *schema, uint32_t place, const json_t *value, const spry_shape *shape)
{
    (void)value;
    const spry_object_shape *object = &shape->as.object;
    spry_shape *copy = copy_shape(schema, shape);
    spry_object_part *parts = spry_schema_alloc(schema, object->n_parts + 1, sizeof *parts);
    spry_object_part *seen = spry_schema_alloc(schema, object->n_parts, sizeof *seen);
    spry_object_part own = {.kind = SPRY_PART_UNEVALUATED, .place = place, .seen = seen};
    if (!copy || !parts || !seen)
        return NULL;
    for (size_t i = 0; i < object->n_parts; i++) {
        const spry_object_part *part = &object->parts[i];
        parts[i] = *part;
        if (!part->hidden && (part->kind == SPRY_PART_SCHEMA || part->kind == SPRY_PART_UNEVALUATED))
            seen[own.n_seen++] = *part;
    }
    parts[object->n_parts] = own;
    copy->as.object.parts = parts;
    copy->as.object.n_parts = object->n_parts + 1;
    copy->traits = 0;
    return copy;
}

const spry_shapes *spry_schema_unevaluated_properties(spry_schema *schema, uint32_t place, const char *keyword,
                                                      const json_t *value, bool negated)
{
    return change(schema, place, keyword, value, negated, SPRY_SHAPE_OBJECT, limit_members);
}

/* The claim that an item satisfies one of `claims`, or the schema `value`. */
static spry_claim either_claim(spry_schema *schema, uint32_t place, spry_claims claims, const json_t *value)
{
    if (!claims.count)
        return spry_schema_claim(schema, place, value, false);
    json_t *any_of = json_array(), *made = json_object();
    if (!schema->made)
        schema->made = json_array();
    bool ok = any_of && made && schema->made && json_array_append(any_of, (json_t *)value) == 0;
    for (size_t i = 0; i < claims.count && ok; i++)
        ok = json_array_append(any_of, (json_t *)schema->places[claims.items[i] >> 2]->json) == 0;
    ok = ok && json_object_set(made, "anyOf", any_of) == 0 && json_array_append(schema->made, made) == 0;
    json_decref(any_of);
    json_decref(made);
    if (!ok)
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    return ok ? spry_schema_claim(schema, place, made, false) : 0;
}

static spry_shape *limit_items(spry_schema *schema, uint32_t place, const json_t *value, const spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    if (array->evaluated == SPRY_IR_UNBOUNDED)
        return (spry_shape *)shape;
    spry_shape *others = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
    spry_claims *prefix = spry_schema_alloc(schema, array->evaluated, sizeof *prefix);
    if (!others || !prefix)
        return NULL;
    spry_claim claim = either_claim(schema, place, array->evaluating, value);
    others->as.array = (spry_array_shape){.prefix = prefix,
                                          .n_prefix = array->evaluated,
                                          .rest = spry_claims_add(schema, (spry_claims){NULL, 0}, claim),
                                          .max = SPRY_IR_UNBOUNDED,
                                          .evaluated = SPRY_IR_UNBOUNDED};
    return shape->any ? others : spry_array_both(schema, shape, others);
}

const spry_shapes *spry_schema_unevaluated_items(spry_schema *schema, uint32_t place, const char *keyword,
                                                 const json_t *value, bool negated)
{
    return change(schema, place, keyword, value, negated, SPRY_SHAPE_ARRAY, limit_items);
}

/* ---- expansion --------------------------------------------------------------------------------------------------- */

static spry_keyword_shapes type_shapes;

enum { SPRY_SHAPE_REPLACED = SPRY_SHAPE_KINDS + 1 };

/* A row applies when one of its keywords is present and known to the schema's draft. Kind SPRY_SHAPE_KINDS: the shapes
 * are of every kind; SPRY_SHAPE_REPLACED: they are the shapes of the preceding keywords, changed. */
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
    {{"x-spry-lark"}, SPRY_SHAPE_STRING, spry_schema_lark, SPRY_DRAFT_04},
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

/* True if a schema has no keyword that applies other schemas. Beside such keywords unevaluatedProperties depends on
 * what they have evaluated; otherwise it equals additionalProperties. The same holds for items. */
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

/* Adds the kinds of values of a type name; false when there is no such type. */
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
    if (number >= SPRY_IR_UNBOUNDED) /* larger than any count in a text */
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

/* For json_dump_callback. After a piece that does not fit nothing fits: jansson goes on after a key. */
static int add_text(const char *bytes, size_t size, void *user)
{
    small_text *text = user;
    if (size > sizeof text->bytes - text->size) {
        text->size = sizeof text->bytes;
        return -1;
    }
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

/* The first place with the same small schema. Claims about equal schemas become equal, too, which keeps negated
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

/* Applies one row of the table: restricts `sofar` to the allowed shapes, or with `negated` adds the shapes that are not
 * allowed. */
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
        place->shapes[negated] = shapes_hidden(schema, place->shapes[negated]);
    place->busy[negated] = false;
    schema->depth--;
    schema->at = outer;
    return place->shapes[negated];
}
