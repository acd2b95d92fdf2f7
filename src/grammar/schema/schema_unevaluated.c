/* unevaluatedItems and unevaluatedProperties beside keywords that apply other schemas. The shapes of those keywords
 * know which schemas they come from: each shape is an alternative in which certain subschemas are valid, and their
 * members and items are evaluated. Where more subschemas happen to be valid there is another shape, which allows more;
 * so no shape allows too much. Negated schemas evaluate nothing. */
#include "grammar/schema/schema.h"

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

const spry_shapes *spry_shapes_hidden(spry_schema *schema, const spry_shapes *shapes)
{
    if (!shapes)
        return NULL;
    spry_shape **hidden = spry_schema_alloc(schema, shapes->count, sizeof *hidden);
    for (size_t i = 0; hidden && i < shapes->count; i++)
        hidden[i] = hide(schema, shapes->items[i]);
    return hidden ? spry_shapes_of(schema, hidden, shapes->count) : NULL;
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

/* Changes each shape of one kind left by the other keywords. */
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
