/* Arrays: keywords, conjunction of two shapes, and spelling. */
#include "grammar/schema/schema.h"

static const spry_shapes *one_array(spry_schema *schema, spry_array_shape array)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
    if (!shape)
        return NULL;
    shape->as.array = array;
    return spry_shapes_of(schema, &shape, 1);
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

/* The schemas of the first items, and of all further items (NULL: none). */
typedef struct item_schemas {
    const json_t *prefix, *rest;
} item_schemas;

static item_schemas read_items(const spry_schema *schema, const json_t *json)
{
    const json_t *items = json_object_get(json, "items"), *prefix = NULL;
    if (schema->draft >= SPRY_DRAFT_2020_12)
        prefix = json_object_get(json, "prefixItems");
    if (json_is_array(items)) { /* until draft 2019-09 */
        prefix = items;
        items = json_object_get(json, "additionalItems");
    }
    if (!items && spry_schema_is_plain(json) && schema->draft >= SPRY_DRAFT_2019_09)
        items = json_object_get(json, "unevaluatedItems");
    return (item_schemas){prefix, items};
}

static spry_claims claims_about(spry_schema *schema, uint32_t place, const json_t *json, bool negated)
{
    if (!json)
        return (spry_claims){NULL, 0};
    return spry_claims_add(schema, (spry_claims){NULL, 0}, spry_schema_claim(schema, place, json, negated));
}

/* Arrays of which some item satisfies a claim. */
static const spry_shapes *containing(spry_schema *schema, spry_claims claims)
{
    return one_array(schema, (spry_array_shape){.min = 1, .max = SPRY_IR_UNBOUNDED, .contains = claims});
}

/* Arrays with an invalid item: a certain one of the first, or, where there are no first ones, some item. */
static const spry_shapes *not_items(spry_schema *schema, uint32_t place, item_schemas items)
{
    size_t count = json_array_size(items.prefix);
    const spry_shapes *shapes = spry_shapes_none(schema);
    for (size_t i = 0; i < count; i++) {
        spry_claims *prefix = spry_schema_alloc(schema, i + 1, sizeof *prefix);
        if (!prefix)
            return NULL;
        prefix[i] = claims_about(schema, place, json_array_get(items.prefix, i), true);
        spry_array_shape array = {
            .prefix = prefix, .n_prefix = i + 1, .min = (uint32_t)i + 1, .max = SPRY_IR_UNBOUNDED};
        shapes = spry_shapes_either(schema, shapes, one_array(schema, array));
    }
    if (json_is_false(items.rest)) {
        spry_array_shape longer = {.min = (uint32_t)count + 1, .max = SPRY_IR_UNBOUNDED};
        return spry_shapes_either(schema, shapes, one_array(schema, longer));
    }
    bool says_nothing = !items.rest || json_is_true(items.rest) || json_object_size(items.rest) == 0;
    if (!says_nothing && !count)
        return containing(schema, claims_about(schema, place, items.rest, true));
    if (!says_nothing) {
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, "items",
            "cannot be enforced behind a list of items where it is negated (by not, if, or a oneOf whose "
            "branches overlap)");
        return NULL;
    }
    return shapes;
}

const spry_shapes *spry_schema_contains(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                        bool negated)
{
    const json_t *json = schema->places[place]->json, *min = NULL, *max = NULL;
    if (schema->draft >= SPRY_DRAFT_2019_09) {
        min = json_object_get(json, "minContains");
        max = json_object_get(json, "maxContains");
    }
    double least = min ? json_number_value(min) : 1;
    if (least == 0 && !max)
        return negated ? spry_shapes_none(schema) : &schema->everything;
    if (least != 1 || max) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, json, max ? "maxContains" : "minContains",
                           "cannot be enforced; %s can be without it", keyword);
        return NULL;
    }
    spry_claims claims = claims_about(schema, place, value, negated);
    if (negated)
        return one_array(schema, (spry_array_shape){.rest = claims, .max = SPRY_IR_UNBOUNDED});
    return containing(schema, claims);
}

const spry_shapes *spry_schema_items(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                     bool negated)
{
    (void)value;
    item_schemas items = read_items(schema, schema->places[place]->json);
    if (items.prefix && !json_is_array(items.prefix)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a list of schemas");
        return NULL;
    }
    if (negated)
        return not_items(schema, place, items);
    size_t count = json_array_size(items.prefix);
    spry_claims *prefix = spry_schema_alloc(schema, count, sizeof *prefix);
    if (!prefix)
        return NULL;
    for (size_t i = 0; i < count; i++)
        prefix[i] = claims_about(schema, place, json_array_get(items.prefix, i), false);
    return one_array(schema, (spry_array_shape){.prefix = prefix,
                                                .n_prefix = count,
                                                .rest = claims_about(schema, place, items.rest, false),
                                                .max = SPRY_IR_UNBOUNDED});
}

const spry_shapes *spry_schema_item_count(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                          bool negated)
{
    spry_array_shape array = {.max = SPRY_IR_UNBOUNDED};
    if (!spry_schema_range(schema, &array.min, &array.max, place, keyword, value, negated))
        return spry_schema_failed(schema) ? NULL : spry_shapes_none(schema);
    return one_array(schema, array);
}

/* ---- two shapes -------------------------------------------------------------------------------------------------- */

static spry_claims claims_at(const spry_array_shape *array, size_t index)
{
    return index < array->n_prefix ? array->prefix[index] : array->rest;
}

spry_shape *spry_array_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_array_shape *a = &first->as.array, *b = &second->as.array;
    spry_array_shape out = {.min = a->min > b->min ? a->min : b->min,
                            .max = a->max < b->max ? a->max : b->max,
                            .n_prefix = a->n_prefix > b->n_prefix ? a->n_prefix : b->n_prefix};
    spry_claims *prefix = spry_schema_alloc(schema, out.n_prefix, sizeof *prefix);
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
    if (out.min > out.max || !prefix || !shape)
        return NULL;
    out.contains = a->contains.count ? a->contains : b->contains;
    if (a->contains.count && b->contains.count &&
        (a->contains.count != b->contains.count ||
         memcmp(a->contains.items, b->contains.items, a->contains.count * sizeof *a->contains.items) != 0)) {
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL,
            "an array of which several different items are demanded (contains, not items) cannot be enforced");
        return NULL;
    }
    for (size_t i = 0; i < out.n_prefix; i++)
        prefix[i] = spry_claims_join(schema, claims_at(a, i), claims_at(b, i));
    out.prefix = prefix;
    out.rest = spry_claims_join(schema, a->rest, b->rest);
    shape->as.array = out;
    return shape;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void spry_array_lay_out(spry_schema *schema, spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    if (array->n_prefix > SPRY_SCHEMA_ITEMS_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, NULL, NULL,
                           "more than %d items of an array have schemas of their own", SPRY_SCHEMA_ITEMS_MAX);
        return;
    }
    uint32_t *goals = spry_schema_alloc(schema, array->n_prefix + 2, sizeof *goals);
    for (size_t i = 0; goals && i <= array->n_prefix; i++)
        goals[i] = spry_schema_goal(schema, claims_at(array, i));
    if (goals && array->contains.count)
        goals[array->n_prefix + 1] = spry_schema_goal(schema, spry_claims_join(schema, array->rest, array->contains));
    shape->item_goals = goals;
}

/* The maximum number of items: up to the first whose goal cannot be satisfied. */
static uint32_t possible_items(const spry_schema *schema, const spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    for (size_t i = 0; i <= array->n_prefix; i++)
        if (!schema->goals[shape->item_goals[i]]->productive)
            return i < array->max ? (uint32_t)i : array->max;
    return array->max;
}

bool spry_array_is_productive(const spry_schema *schema, const spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    if (array->contains.count && !schema->goals[shape->item_goals[array->n_prefix + 1]]->productive)
        return false;
    return array->min <= possible_items(schema, shape);
}

/* The items separated by commas: nested from the last, because the array may end after each. */
static spry_ir_node write_items(spry_schema *schema, const spry_shape *shape, uint32_t max)
{
    spry_ir *ir = schema->ir;
    const spry_array_shape *array = &shape->as.array;
    uint32_t fixed = array->n_prefix < max ? (uint32_t)array->n_prefix : max;
    if (fixed == 0)
        fixed = 1; /* the first has no comma before it */
    spry_ir_node items = spry_ir_empty(ir);
    if (max > fixed) {
        spry_ir_node further[] = {schema->comma, spry_goal_node(schema, shape->item_goals[array->n_prefix])};
        items = spry_ir_repeat(ir, spry_ir_sequence(ir, further, 2), array->min > fixed ? array->min - fixed : 0,
                               max == SPRY_IR_UNBOUNDED ? max : max - fixed);
    }
    for (uint32_t i = fixed; i-- > 0;) {
        size_t goal = i < array->n_prefix ? i : array->n_prefix;
        spry_ir_node parts[] = {schema->comma, spry_goal_node(schema, shape->item_goals[goal]), items};
        items = i > 0 ? spry_ir_sequence(ir, parts, 3) : spry_ir_sequence(ir, parts + 1, 2);
        if (i > 0 && i >= array->min)
            items = spry_ir_repeat(ir, items, 0, 1);
    }
    return items;
}

/* Items of which some one is the contained one: any before it, any behind it. */
static spry_ir_node write_containing(spry_schema *schema, const spry_shape *shape, uint32_t max)
{
    spry_ir *ir = schema->ir;
    const spry_array_shape *array = &shape->as.array;
    if (array->n_prefix || array->min > 1 || max != SPRY_IR_UNBOUNDED) {
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, shape->at, NULL,
            "contains (or a negated items) beside a list of items, minItems or maxItems cannot be enforced");
        return SPRY_IR_NONE;
    }
    spry_ir_node any = spry_goal_node(schema, shape->item_goals[0]), it = spry_goal_node(schema, shape->item_goals[1]);
    spry_ir_node before = spry_ir_sequence(ir, (spry_ir_node[]){any, schema->comma}, 2);
    spry_ir_node behind = spry_ir_sequence(ir, (spry_ir_node[]){schema->comma, any}, 2);
    spry_ir_node all[] = {spry_ir_repeat(ir, before, 0, SPRY_IR_UNBOUNDED), it,
                          spry_ir_repeat(ir, behind, 0, SPRY_IR_UNBOUNDED)};
    return spry_ir_sequence(ir, all, 3);
}

spry_ir_node spry_array_write(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    uint32_t max = possible_items(schema, shape);
    spry_ir_node inside = spry_ir_never(ir);
    if (max > 0) {
        spry_ir_node items =
            shape->as.array.contains.count ? write_containing(schema, shape, max) : write_items(schema, shape, max);
        inside = spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, items, schema->gap}, 3);
    }
    if (max == 0 || shape->as.array.min == 0)
        inside = spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2);
    spry_ir_node whole[] = {spry_ir_literal(ir, SPRY_VIEW("[")), inside, spry_ir_literal(ir, SPRY_VIEW("]"))};
    return spry_ir_sequence(ir, whole, 3);
}
