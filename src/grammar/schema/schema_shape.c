/* Lists of shapes: unions, intersections, and emptiness. */
#include "grammar/schema/schema.h"

spry_shape *spry_shape_new(spry_schema *schema, spry_shape_kind kind)
{
    spry_shape *shape = spry_schema_alloc(schema, 1, sizeof *shape);
    if (!shape)
        return NULL;
    shape->kind = kind;
    shape->at = schema->at;
    shape->node = SPRY_IR_NONE;
    if (kind == SPRY_SHAPE_STRING)
        shape->as.string.max = SPRY_IR_UNBOUNDED;
    if (kind == SPRY_SHAPE_ARRAY)
        shape->as.array.max = SPRY_IR_UNBOUNDED;
    if (kind == SPRY_SHAPE_OBJECT)
        shape->as.object.max = SPRY_IR_UNBOUNDED;
    return shape;
}

static spry_shapes *new_list(spry_schema *schema, size_t room)
{
    spry_shapes *list = spry_schema_alloc(schema, 1, sizeof *list);
    if (!list || !(list->items = spry_schema_alloc(schema, room, sizeof(spry_shape *))))
        return NULL;
    return list;
}

const spry_shapes *spry_shapes_of(spry_schema *schema, spry_shape *const *shapes, size_t count)
{
    spry_shapes *list = new_list(schema, count);
    for (size_t i = 0; list && i < count; i++)
        if (shapes[i])
            list->items[list->count++] = shapes[i];
    return spry_schema_failed(schema) ? NULL : list;
}

const spry_shapes *spry_shapes_none(spry_schema *schema)
{
    return new_list(schema, 0);
}

const spry_shapes *spry_shapes_without(spry_schema *schema, spry_shape_kind kind)
{
    spry_shape *others[SPRY_SHAPE_KINDS] = {NULL};
    for (size_t i = 0; i < schema->everything.count; i++)
        if (schema->everything.items[i]->kind != kind)
            others[i] = schema->everything.items[i];
    return spry_shapes_of(schema, others, schema->everything.count);
}

static spry_shape *both(spry_schema *schema, spry_shape *a, spry_shape *b)
{
    if (a->any || a == b)
        return b;
    if (b->any)
        return a;
    switch (a->kind) {
    case SPRY_SHAPE_NUMBER: return spry_number_both(schema, a, b);
    case SPRY_SHAPE_STRING: return spry_string_both(schema, a, b);
    case SPRY_SHAPE_ARRAY: return spry_array_both(schema, a, b);
    case SPRY_SHAPE_OBJECT: return spry_object_both(schema, a, b);
    default: return a;
    }
}

/* True if every value of object `b` is certainly one of `a`; usually the traits already decide. */
static bool covers(const spry_schema *schema, spry_shape *a, spry_shape *b)
{
    if (!a->traits)
        a->traits = spry_object_traits(&a->as.object);
    if (!b->traits)
        b->traits = spry_object_traits(&b->as.object);
    return !(a->traits & ~b->traits) && spry_object_covers(schema, &a->as.object, &b->as.object);
}

/* Adds a shape to a list with room for it. A shape without constraints replaces others of its kind. */
static void add_shape(spry_schema *schema, spry_shapes *list, spry_shape *shape)
{
    size_t kept = 0, same = 0;
    bool replaces = shape->kind < SPRY_SHAPE_ARRAY || !schema->unevaluated; /* with unevaluated... other shapes may
                                                                             * evaluate more members */
    for (size_t i = 0; i < list->count; i++) {
        spry_shape *old = list->items[i];
        if (old == shape || (old->kind == shape->kind && old->any && replaces))
            return;
        if (old->kind == shape->kind && shape->any && replaces)
            continue;
        if (old->kind == SPRY_SHAPE_OBJECT && shape->kind == SPRY_SHAPE_OBJECT && replaces && list->count > 1) {
            if (covers(schema, old, shape))
                return;
            if (covers(schema, shape, old))
                continue;
        }
        list->items[kept++] = old;
        same += old->kind == shape->kind;
    }
    spry_ir_spend(schema->ir, 8 * list->count);
    list->count = kept;
    size_t most = shape->kind < SPRY_SHAPE_ARRAY ? SPRY_SCHEMA_SHAPES_MAX : SPRY_SCHEMA_OBJECTS_MAX;
    if (same == most) {
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL,
            "its combinations (anyOf, oneOf, not, dependencies) come to more than %zu alternatives for one "
            "value; write fewer",
            most);
        return;
    }
    list->items[list->count++] = shape;
}

static size_t bounded_room(size_t a, size_t b)
{
    const size_t most = SPRY_SHAPE_KINDS * SPRY_SCHEMA_SHAPES_MAX;
    return a * b < most ? a * b : most; /* neither exceeds `most` */
}

const spry_shapes *spry_shapes_both(spry_schema *schema, const spry_shapes *a, const spry_shapes *b)
{
    if (!a || !b)
        return NULL;
    if (a == &schema->everything || b == &schema->everything)
        return a == &schema->everything ? b : a;
    spry_shapes *list = new_list(schema, bounded_room(a->count, b->count));
    for (size_t i = 0; list && i < a->count; i++) {
        for (size_t j = 0; j < b->count && !spry_schema_failed(schema); j++) {
            if (a->items[i]->kind != b->items[j]->kind)
                continue;
            spry_shape *shape = both(schema, a->items[i], b->items[j]);
            if (shape)
                add_shape(schema, list, shape);
        }
    }
    return spry_schema_failed(schema) ? NULL : list;
}

const spry_shapes *spry_shapes_either(spry_schema *schema, const spry_shapes *a, const spry_shapes *b)
{
    if (!a || !b)
        return NULL;
    spry_shapes *list = new_list(schema, a->count + b->count);
    if (!list)
        return NULL;
    if (a->count)
        memcpy(list->items, a->items, a->count * sizeof *a->items);
    list->count = a->count;
    for (size_t i = 0; i < b->count; i++)
        add_shape(schema, list, b->items[i]);
    return spry_schema_failed(schema) ? NULL : list;
}

const spry_shapes *spry_shapes_restrict(spry_schema *schema, const spry_shapes *all, spry_shape_kind kind,
                                        const spry_shapes *allowed)
{
    if (!allowed)
        return NULL;
    return spry_shapes_both(schema, all, spry_shapes_either(schema, spry_shapes_without(schema, kind), allowed));
}

/* ---- shapes that certainly have no value ------------------------------------------------------------------------- */

bool spry_shapes_disjoint(spry_schema *schema, const spry_shapes *a, const spry_shapes *b)
{
    for (size_t i = 0; i < a->count; i++) {
        for (size_t j = 0; j < b->count; j++) {
            if (a->items[i]->kind != b->items[j]->kind)
                continue;
            spry_shape *shape = both(schema, a->items[i], b->items[j]);
            if (shape && !spry_shape_is_dead(schema, shape, 3))
                return false;
        }
    }
    return true;
}

static bool array_is_dead(spry_schema *schema, const spry_array_shape *array, unsigned depth)
{
    size_t certain = array->min < array->n_prefix ? array->min : array->n_prefix;
    for (size_t i = 0; i < certain; i++)
        if (spry_claims_are_dead(schema, array->prefix[i], depth))
            return true;
    for (size_t i = 0; i < array->n_demands; i++) {
        const spry_array_demand *demand = &array->demands[i];
        bool possible = demand->min == 0 || demand->from < array->n_prefix;
        if (!possible && spry_claims_are_dead(schema, spry_claims_add(schema, array->rest, demand->claim), depth))
            return true;
    }
    return array->min > array->n_prefix && spry_claims_are_dead(schema, array->rest, depth);
}

static bool object_is_dead(spry_schema *schema, const spry_object_shape *object, unsigned depth)
{
    for (size_t i = 0; i < object->n_names; i++)
        if (object->names[i].present &&
            spry_claims_are_dead(schema, spry_object_claims(schema, object, object->names[i].name), depth))
            return true;
    return object->n_demands && spry_object_misses_demand(schema, object, depth);
}

/* True if the shape's constraints may contradict each other in a way that joining them did not detect. */
static bool may_be_empty(const spry_shape *shape)
{
    if (shape->kind == SPRY_SHAPE_STRING)
        return shape->as.string.also.count > 0;
    const spry_number_shape *number = &shape->as.number;
    return number->also.count > 0 || ((number->integer || number->fractional) && number->low.set && number->high.set);
}

static bool text_is_dead(spry_schema *schema, spry_shape *shape)
{
    if (!shape->written) {
        shape->written = true;
        shape->node = shape->kind == SPRY_SHAPE_NUMBER ? spry_number_write(schema, &shape->as.number)
                                                       : spry_string_write(schema, &shape->as.string);
        spry_schema_blame(schema, shape->at, NULL);
    }
    return shape->node != SPRY_IR_NONE && may_be_empty(shape) && spry_ir_is_never(schema->ir, shape->node);
}

bool spry_shape_is_dead(spry_schema *schema, spry_shape *shape, unsigned depth)
{
    switch (shape->kind) {
    case SPRY_SHAPE_NUMBER:
    case SPRY_SHAPE_STRING: return text_is_dead(schema, shape);
    case SPRY_SHAPE_ARRAY: return depth && array_is_dead(schema, &shape->as.array, depth - 1);
    case SPRY_SHAPE_OBJECT: return depth && object_is_dead(schema, &shape->as.object, depth - 1);
    default: return false;
    }
}

const spry_shapes *spry_shapes_alive(spry_schema *schema, const spry_shapes *shapes)
{
    spry_shapes *alive = shapes ? new_list(schema, shapes->count) : NULL;
    for (size_t i = 0; alive && i < shapes->count; i++)
        if (!spry_shape_is_dead(schema, shapes->items[i], 2))
            alive->items[alive->count++] = shapes->items[i];
    return spry_schema_failed(schema) ? NULL : alive;
}

/* ---- small lists ------------------------------------------------------------------------------------------------- */

/* Lists are joined again and again; without a limit many small ones would need quadratic memory. */
static bool is_too_long(spry_schema *schema, size_t count)
{
    if (count > SPRY_SCHEMA_JOINED_MAX)
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL,
                           "more than %d things are said about one value; write fewer", SPRY_SCHEMA_JOINED_MAX);
    return count > SPRY_SCHEMA_JOINED_MAX;
}

spry_claims spry_claims_join(spry_schema *schema, spry_claims a, spry_claims b)
{
    if (!a.count || !b.count || is_too_long(schema, a.count + b.count))
        return a.count ? a : b;
    spry_claim *items = spry_schema_alloc(schema, a.count + b.count, sizeof *items);
    if (!items)
        return a;
    size_t i = 0, j = 0, count = 0;
    while (i < a.count || j < b.count) {
        spry_claim next;
        if (j == b.count || (i < a.count && a.items[i] <= b.items[j]))
            next = a.items[i++];
        else
            next = b.items[j++];
        if (count == 0 || items[count - 1] != next)
            items[count++] = next;
    }
    return (spry_claims){items, count};
}

spry_claims spry_claims_add(spry_schema *schema, spry_claims claims, spry_claim claim)
{
    spry_claim *one = spry_schema_alloc(schema, 1, sizeof *one);
    if (!one)
        return claims;
    *one = claim;
    return spry_claims_join(schema, claims, (spry_claims){one, 1});
}

spry_nodes spry_nodes_join(spry_schema *schema, spry_nodes a, spry_nodes b)
{
    if (!a.count || !b.count || is_too_long(schema, a.count + b.count))
        return a.count ? a : b;
    spry_ir_node *items = spry_schema_alloc(schema, a.count + b.count, sizeof *items);
    if (!items)
        return a;
    memcpy(items, a.items, a.count * sizeof *items);
    size_t count = a.count;
    for (size_t i = 0; i < b.count; i++) {
        bool known = false;
        for (size_t k = 0; k < a.count && !known; k++)
            known = a.items[k] == b.items[i];
        if (!known)
            items[count++] = b.items[i];
    }
    return (spry_nodes){items, count};
}

spry_nodes spry_nodes_one(spry_schema *schema, spry_ir_node node)
{
    spry_ir_node *items = spry_schema_alloc(schema, 1, sizeof *items);
    if (!items)
        return (spry_nodes){NULL, 0};
    *items = node;
    return (spry_nodes){items, 1};
}
