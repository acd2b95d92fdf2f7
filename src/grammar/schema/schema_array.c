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

/* Arrays of which so many items satisfy a claim, which may evaluate them. */
static const spry_shapes *containing(spry_schema *schema, spry_array_demand demand, bool evaluates)
{
    spry_array_demand *kept = spry_schema_alloc(schema, 1, sizeof *kept);
    if (!kept)
        return NULL;
    *kept = demand;
    spry_array_shape array = {.max = SPRY_IR_UNBOUNDED, .demands = kept, .n_demands = 1};
    if (evaluates)
        array.evaluating = spry_claims_add(schema, array.evaluating, demand.claim);
    return one_array(schema, array);
}

/* Arrays with an invalid item: a certain one of the first, or some item behind them. */
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
    if (says_nothing)
        return shapes;
    spry_array_demand demand = {.claim = spry_schema_claim(schema, place, items.rest, true),
                                .from = (uint32_t)count,
                                .min = 1,
                                .max = SPRY_IR_UNBOUNDED};
    return spry_shapes_either(schema, shapes, containing(schema, demand, false));
}

const spry_shapes *spry_schema_contains(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                        bool negated)
{
    (void)keyword;
    const json_t *json = schema->places[place]->json, *min = NULL, *max = NULL;
    if (schema->draft >= SPRY_DRAFT_2019_09) {
        min = json_object_get(json, "minContains");
        max = json_object_get(json, "maxContains");
    }
    spry_array_demand demand = {
        .claim = spry_schema_claim(schema, place, value, false), .min = 1, .max = SPRY_IR_UNBOUNDED};
    bool evaluates = schema->unevaluated && schema->draft >= SPRY_DRAFT_2020_12;
    uint32_t unused;
    if ((min && !spry_schema_range(schema, &demand.min, &unused, place, "minContains", min, false)) ||
        (max && !spry_schema_range(schema, &unused, &demand.max, place, "maxContains", max, false)))
        return spry_schema_failed(schema) ? NULL : spry_shapes_none(schema);
    if (!negated)
        return demand.min > demand.max ? spry_shapes_none(schema) : containing(schema, demand, evaluates);
    const spry_shapes *shapes = spry_shapes_none(schema);
    spry_array_demand fewer = demand, more = demand;
    fewer.min = 0;
    fewer.max = demand.min - 1;
    if (demand.min > 0)
        shapes = spry_shapes_either(schema, shapes, containing(schema, fewer, false));
    more.min = demand.max + 1;
    more.max = SPRY_IR_UNBOUNDED;
    if (demand.max != SPRY_IR_UNBOUNDED)
        shapes = spry_shapes_either(schema, shapes, containing(schema, more, false));
    return shapes;
}

const spry_shapes *spry_schema_unique(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    const json_t *json = schema->places[place]->json;
    if (!json_is_true(value))
        return negated ? spry_shapes_none(schema) : &schema->everything;
    if (!negated)
        return one_array(schema, (spry_array_shape){.max = SPRY_IR_UNBOUNDED, .unique_at = json});
    spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, json, keyword, "cannot be enforced where it is negated");
    return NULL;
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
                                                .evaluated = items.rest ? SPRY_IR_UNBOUNDED : (uint32_t)count,
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

spry_claims spry_array_claims(const spry_array_shape *array, size_t index)
{
    return index < array->n_prefix ? array->prefix[index] : array->rest;
}

/* The demands of both, the same claim once; false when they contradict each other. */
static bool join_demands(spry_schema *schema, spry_array_shape *out, const spry_array_shape *a,
                         const spry_array_shape *b)
{
    spry_array_demand *demands = spry_schema_alloc(schema, a->n_demands + b->n_demands, sizeof *demands);
    if (!demands)
        return false;
    for (size_t i = 0; i < a->n_demands + b->n_demands; i++) {
        spry_array_demand demand = i < a->n_demands ? a->demands[i] : b->demands[i - a->n_demands];
        size_t same = 0;
        while (same < out->n_demands && (demands[same].claim != demand.claim || demands[same].from != demand.from))
            same++;
        if (same < out->n_demands) {
            demand.min = demand.min > demands[same].min ? demand.min : demands[same].min;
            demand.max = demand.max < demands[same].max ? demand.max : demands[same].max;
        }
        if (demand.min > demand.max)
            return false;
        demands[same] = demand;
        out->n_demands += same == out->n_demands;
    }
    out->demands = demands;
    return true;
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
    if (!join_demands(schema, &out, a, b))
        return NULL;
    out.unique_at = a->unique_at ? a->unique_at : b->unique_at;
    out.evaluated = a->evaluated > b->evaluated ? a->evaluated : b->evaluated;
    out.evaluating = spry_claims_join(schema, a->evaluating, b->evaluating);
    for (size_t i = 0; i < out.n_prefix; i++)
        prefix[i] = spry_claims_join(schema, spry_array_claims(a, i), spry_array_claims(b, i));
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
    if (array->n_demands) {
        spry_array_lay_out_demands(schema, shape);
        return;
    }
    uint32_t *goals = spry_schema_alloc(schema, array->n_prefix + 1, sizeof *goals);
    for (size_t i = 0; goals && i <= array->n_prefix; i++)
        goals[i] = spry_schema_goal(schema, spry_array_claims(array, i));
    shape->item_goals = goals;
    if (goals && array->unique_at)
        spry_array_lay_out_unique(schema, shape);
}

/* The maximum number of items: up to the first whose goal cannot be satisfied. */
static uint32_t possible_items(const spry_schema *schema, const spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    uint32_t max = array->max;
    if (shape->distinct && shape->distinct->count < max)
        max = (uint32_t)shape->distinct->count;
    for (size_t i = 0; i <= array->n_prefix; i++)
        if (!schema->goals[shape->item_goals[i]]->productive)
            return i < max ? (uint32_t)i : max;
    return max;
}

bool spry_array_is_productive(const spry_schema *schema, const spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    return array->n_demands ? spry_array_meets_demands(schema, shape) : array->min <= possible_items(schema, shape);
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

/* Each of the values at most once: as the members of an object, of which only the names are written. */
static spry_ir_node write_distinct(spry_schema *schema, const spry_shape *shape, uint32_t max)
{
    const spry_nodes *values = shape->distinct;
    spry_ir_member *members = spry_schema_alloc(schema, values->count, sizeof *members);
    for (size_t i = 0; members && i < values->count; i++)
        members[i] = (spry_ir_member){.key = values->items[i], .value = spry_ir_empty(schema->ir)};
    uint32_t min = shape->as.array.min > 1 ? shape->as.array.min : 1;
    return members ? spry_ir_members(schema->ir, members, values->count, schema->comma, min, max) : SPRY_IR_NONE;
}

spry_ir_node spry_array_write(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    bool demands = shape->as.array.n_demands;
    uint32_t max = demands ? 0 : possible_items(schema, shape);
    spry_ir_node inside = spry_ir_never(ir);
    if (demands) {
        inside = spry_array_write_demands(schema, shape);
    } else if (max > 0) {
        spry_ir_node items = shape->distinct ? write_distinct(schema, shape, max) : write_items(schema, shape, max);
        inside = spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, items, schema->gap}, 3);
    }
    if (!demands && (max == 0 || shape->as.array.min == 0))
        inside = spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2);
    spry_ir_node whole[] = {spry_ir_literal(ir, SPRY_VIEW("[")), inside, spry_ir_literal(ir, SPRY_VIEW("]"))};
    return spry_ir_sequence(ir, whole, 3);
}
