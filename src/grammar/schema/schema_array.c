/* Arrays: keywords, conjunction of two shapes, and spelling. */
#include <stdio.h>

#include "grammar/schema/schema.h"

/* ---- contains ---------------------------------------------------------------------------------------------------- */

/* Arrays in which some items must satisfy claims (contains, minContains, maxContains, negated items). The items are
 * counted: a *tally* holds the number of items so far and, for each demand, the number of items that satisfy its claim,
 * each counted only as far as it matters. Tallies become rules that refer to each other. For each item, a set of
 * demands is chosen for which it counts: the item must satisfy their claims, and must not satisfy the claims of other
 * demands that have a maximum. */

typedef struct tallies {
    const spry_array_shape *array;
    uint32_t n_places; /* number of first items with claims of their own, plus one for all further items */
    uint32_t n_sets;   /* number of sets of demands */
    uint32_t steps[SPRY_SCHEMA_COUNTED_MAX + 1], tops[SPRY_SCHEMA_COUNTED_MAX + 1]; /* position and maximum of each
                                                                                     * number in a tally: items, then
                                                                                     * each demand */
    uint32_t count;                                                                 /* number of tallies; 0: too many */
} tallies;

static uint32_t largest(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static tallies tallies_of(const spry_array_shape *array)
{
    tallies t = {.array = array, .n_sets = 1u << array->n_demands, .count = 1};
    uint32_t places = (uint32_t)array->n_prefix;
    for (size_t i = 0; i < array->n_demands; i++)
        places = largest(places, array->demands[i].from);
    t.n_places = places + 1;
    for (size_t i = 0; i <= array->n_demands; i++) {
        const spry_array_demand *demand = &array->demands[i - (i > 0)];
        /* It always matters whether there is an item at all, because a comma comes before the second one. */
        uint32_t min = i ? demand->min : largest(largest(array->min, places), 1);
        uint32_t max = i ? demand->max : array->max;
        t.tops[i] = max == SPRY_IR_UNBOUNDED ? min : max;
        t.steps[i] = t.count;
        t.count = t.tops[i] < SPRY_SCHEMA_TALLIES_MAX ? t.count * (t.tops[i] + 1) : 0;
        if (t.count == 0 || t.count > SPRY_SCHEMA_TALLIES_MAX) {
            t.count = 0;
            break;
        }
    }
    return t;
}

static uint32_t digit(const tallies *t, uint32_t tally, size_t which)
{
    return tally / t->steps[which] % (t->tops[which] + 1);
}

/* Increments one number of a tally; false when that is not allowed. */
static bool increment(const tallies *t, uint32_t *tally, size_t which, uint32_t max)
{
    if (digit(t, *tally, which) < t->tops[which])
        *tally += t->steps[which];
    else if (max != SPRY_IR_UNBOUNDED)
        return false;
    return true;
}

/* The index of the claims for the next item. */
static uint32_t place_after(const tallies *t, uint32_t tally)
{
    uint32_t items = digit(t, tally, 0);
    return items < t->n_places - 1 ? items : t->n_places - 1;
}

/* Advances the tally by an item that counts for `set`; false when such an item is not allowed. */
static bool advance(const tallies *t, uint32_t *tally, uint32_t set)
{
    const spry_array_shape *array = t->array;
    uint32_t place = place_after(t, *tally);
    for (size_t i = 0; i < array->n_demands; i++) {
        if (!(set >> i & 1))
            continue;
        if (place < array->demands[i].from || !increment(t, tally, i + 1, array->demands[i].max))
            return false;
    }
    return increment(t, tally, 0, array->max);
}

static bool may_end(const tallies *t, uint32_t tally)
{
    for (size_t i = 0; i < t->array->n_demands; i++)
        if (digit(t, tally, i + 1) < t->array->demands[i].min)
            return false;
    return digit(t, tally, 0) >= t->array->min;
}

static uint32_t goal_of(const tallies *t, const spry_shape *shape, uint32_t tally, uint32_t set)
{
    return shape->item_goals[place_after(t, tally) * t->n_sets + set];
}

/* The claims about the item at an index. */
static spry_claims array_claims(const spry_array_shape *array, size_t index)
{
    return index < array->n_prefix ? array->prefix[index] : array->rest;
}

static spry_claims claims_of(spry_schema *schema, const tallies *t, uint32_t place, uint32_t set)
{
    spry_claims claims = array_claims(t->array, place);
    for (size_t i = 0; i < t->array->n_demands; i++) {
        const spry_array_demand *demand = &t->array->demands[i];
        if (set >> i & 1)
            claims = spry_claims_add(schema, claims, demand->claim);
        else if (demand->max != SPRY_IR_UNBOUNDED && place >= demand->from)
            claims = spry_claims_add(schema, claims, demand->claim ^ SPRY_CLAIM_NEGATED);
    }
    return claims;
}

/* Determines the goals of an array whose items must satisfy demands. */
static void array_lay_out_demands(spry_schema *schema, spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    tallies t = {0};
    if (array->n_demands <= SPRY_SCHEMA_COUNTED_MAX)
        t = tallies_of(array);
    if (!t.count) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, shape->at, NULL,
                           "too many items must be counted for contains and negated items (%zu claims, %d counts)",
                           array->n_demands, SPRY_SCHEMA_TALLIES_MAX);
        return;
    }
    if (array->unique_at && array->max > 1) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, array->unique_at, "uniqueItems",
                           "cannot be enforced beside contains or a negated items");
        if (!spry_schema_excuse(schema))
            return;
    }
    uint32_t *goals = spry_schema_alloc(schema, (size_t)t.n_places * t.n_sets, sizeof *goals);
    for (uint32_t place = 0; goals && place < t.n_places; place++)
        for (uint32_t set = 0; set < t.n_sets; set++)
            goals[place * t.n_sets + set] = spry_schema_goal(schema, claims_of(schema, &t, place, set));
    shape->item_goals = goals;
}

/* Marks the tallies from which the array can be completed. An item never decreases a tally, so one pass from the
 * largest is enough. */
static void find_alive(const spry_schema *schema, const spry_shape *shape, const tallies *t, bool *alive)
{
    for (uint32_t tally = t->count; tally-- > 0;) {
        alive[tally] = may_end(t, tally);
        for (uint32_t set = 0; set < t->n_sets && !alive[tally]; set++) {
            uint32_t next = tally;
            alive[tally] = advance(t, &next, set) && next != tally && alive[next] &&
                           schema->goals[goal_of(t, shape, tally, set)]->productive;
        }
    }
}

static bool array_meets_demands(const spry_schema *schema, const spry_shape *shape)
{
    tallies t = tallies_of(&shape->as.array);
    bool alive[SPRY_SCHEMA_TALLIES_MAX];
    find_alive(schema, shape, &t, alive);
    return alive[0];
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum { NAME_SIZE = 80 };

static spry_view rule_name(char room[NAME_SIZE], const spry_schema *schema, uint32_t tally)
{
    int size = snprintf(room, NAME_SIZE, "json schema %zu array %zu.%u", schema->serial, schema->n_tallied, tally);
    return (spry_view){room, (size_t)size};
}

/* The texts that may follow when `count` items are complete; the first item has no comma before it. An item that does
 * not change the tally may be repeated. */
static spry_ir_node write_tally(spry_schema *schema, const spry_shape *shape, const tallies *t, const bool *alive,
                                uint32_t tally)
{
    spry_ir *ir = schema->ir;
    enum { SETS = 1 << SPRY_SCHEMA_COUNTED_MAX };
    spry_ir_node same[SETS], other[SETS + 1], comma = tally ? schema->comma : spry_ir_empty(ir);
    size_t n_same = 0, n_other = 0;
    for (uint32_t set = 0; set < t->n_sets; set++) {
        uint32_t next = tally, goal = goal_of(t, shape, tally, set);
        if (!advance(t, &next, set) || !alive[next] || !schema->goals[goal]->productive)
            continue;
        char room[NAME_SIZE];
        spry_ir_node item = spry_goal_node(schema, goal);
        if (next == tally)
            same[n_same++] = spry_ir_sequence(ir, (spry_ir_node[]){comma, item}, 2);
        else
            other[n_other++] =
                spry_ir_sequence(ir, (spry_ir_node[]){comma, item, spry_ir_rule(ir, rule_name(room, schema, next))}, 3);
    }
    if (tally && may_end(t, tally))
        other[n_other++] = spry_ir_empty(ir);
    spry_ir_node rounds = spry_ir_repeat(ir, spry_ir_choice(ir, same, n_same), 0, SPRY_IR_UNBOUNDED);
    return spry_ir_sequence(ir, (spry_ir_node[]){rounds, spry_ir_choice(ir, other, n_other)}, 2);
}

static spry_ir_node array_write_demands(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    tallies t = tallies_of(&shape->as.array);
    bool alive[SPRY_SCHEMA_TALLIES_MAX];
    find_alive(schema, shape, &t, alive);
    schema->n_tallied++;
    for (uint32_t tally = 1; tally < t.count && !spry_schema_failed(schema); tally++) {
        char room[NAME_SIZE];
        if (alive[tally])
            spry_ir_define(ir, rule_name(room, schema, tally), write_tally(schema, shape, &t, alive, tally));
    }
    spry_ir_node items = write_tally(schema, shape, &t, alive, 0);
    spry_ir_node inside = spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, items, schema->gap}, 3);
    return may_end(&t, 0) ? spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2) : inside;
}

/* ---- unique items ------------------------------------------------------------------------------------------------ */

/* uniqueItems. It is enforced where an item has finitely many values, which are then written like names of an object,
 * each at most once; and where no two items can be equal anyway. */

enum { PAIRS_MAX = 8 }; /* maximum items that are compared with each other */

typedef struct value_list {
    spry_schema *schema;
    spry_ir_node *nodes;
    spry_decimal *numbers; /* the numbers among the values */
    spry_map strings;
    size_t count, n_numbers;
    unsigned words; /* bits for null, true and false */
    bool endless;
} value_list;

static void add_node(value_list *v, spry_ir_node node)
{
    if (v->count == SPRY_SCHEMA_DISTINCT_MAX)
        v->endless = true;
    else if (!spry_ir_is_never(v->schema->ir, node))
        v->nodes[v->count++] = node;
}

static void add_number(value_list *v, const spry_number_shape *shape, spry_decimal value)
{
    for (size_t i = 0; i < v->n_numbers; i++)
        if (spry_decimal_compare(&v->numbers[i], &value) == 0)
            return;
    if (v->count == SPRY_SCHEMA_DISTINCT_MAX) {
        v->endless = true;
        return;
    }
    spry_number_shape one = *shape;
    spry_decimal *kept = spry_schema_alloc(v->schema, 1, sizeof *kept);
    if (!kept)
        return;
    *kept = value;
    one.values = kept;
    one.n_values = 1;
    v->numbers[v->n_numbers++] = value;
    add_node(v, spry_number_write(v->schema, &one));
}

/* Converts an integer of at most 15 digits. */
static bool small_integer(const spry_decimal *value, int64_t *out)
{
    int64_t number = 0;
    if (!spry_decimal_is_integer(value) || value->exponent >= 15)
        return false;
    for (int i = 0; value->n_digits && i <= value->exponent; i++)
        number = number * 10 + (i < value->n_digits ? value->digits[i] - '0' : 0);
    *out = value->negative ? -number : number;
    return true;
}

static void add_numbers(value_list *v, const spry_number_shape *shape)
{
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < shape->n_values && !v->endless; i++)
        add_number(v, shape, shape->values[i]);
    if (shape->values)
        return;
    bool bounded = shape->integer && shape->low.set && shape->high.set && small_integer(&shape->low.at, &low) &&
                   small_integer(&shape->high.at, &high) && high - low < SPRY_SCHEMA_DISTINCT_MAX;
    v->endless |= !bounded;
    for (int64_t i = low + shape->low.exclusive; bounded && i <= high - shape->high.exclusive && !v->endless; i++)
        add_number(v, shape, spry_decimal_from_u64((uint64_t)(i < 0 ? -i : i), i < 0));
}

static void add_strings(value_list *v, const spry_string_shape *shape)
{
    v->endless |= !shape->values;
    for (size_t i = 0; i < shape->n_values && !v->endless; i++) {
        spry_view text = {json_string_value(shape->values[i]), json_string_length(shape->values[i])};
        const json_t **kept = spry_schema_alloc(v->schema, 1, sizeof *kept);
        spry_string_shape one = *shape;
        bool added = false;
        if (!kept || !spry_map_add(&v->strings, text, 0, &added))
            spry_ir_fail(v->schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
        if (!added || spry_schema_failed(v->schema))
            continue;
        *kept = shape->values[i];
        one.values = kept;
        one.n_values = 1;
        add_node(v, spry_string_write(v->schema, &one));
    }
}

static void add_shape(value_list *v, const spry_shape *shape)
{
    static const char *const words[] = {
        [SPRY_SHAPE_NULL] = "null", [SPRY_SHAPE_FALSE] = "false", [SPRY_SHAPE_TRUE] = "true"};
    if (shape->kind == SPRY_SHAPE_NUMBER)
        add_numbers(v, &shape->as.number);
    else if (shape->kind == SPRY_SHAPE_STRING)
        add_strings(v, &shape->as.string);
    else if (shape->kind >= SPRY_SHAPE_ARRAY)
        v->endless = true;
    else if (!(v->words >> shape->kind & 1))
        add_node(v, spry_ir_literal(v->schema->ir, spry_view_of(words[shape->kind])));
    v->words |= 1u << shape->kind;
}

/* All values of an item; NULL: too many. */
static const spry_nodes *find_values(spry_schema *schema, uint32_t goal)
{
    const spry_shapes *shapes = spry_goal_shapes(schema, goal);
    spry_nodes *found = spry_schema_alloc(schema, 1, sizeof *found);
    value_list v = {.schema = schema, .endless = !shapes};
    for (size_t i = 0; shapes && i < shapes->count && !v.endless; i++) /* most shapes have endless values, so find that
                                                                        * out first */
        v.endless = shapes->items[i]->kind >= SPRY_SHAPE_ARRAY ||
                    (shapes->items[i]->any && shapes->items[i]->kind >= SPRY_SHAPE_NUMBER);
    if (v.endless || !found)
        return NULL;
    spry_map_init(&v.strings);
    v.nodes = spry_schema_alloc(schema, SPRY_SCHEMA_DISTINCT_MAX, sizeof *v.nodes);
    v.numbers = spry_schema_alloc(schema, SPRY_SCHEMA_DISTINCT_MAX, sizeof *v.numbers);
    for (size_t i = 0; v.nodes && v.numbers && i < shapes->count && !v.endless && !spry_schema_failed(schema); i++)
        add_shape(&v, shapes->items[i]);
    spry_map_deinit(&v.strings);
    *found = (spry_nodes){v.nodes, v.count};
    return v.endless ? NULL : found;
}

/* True if no two of the possible items can be equal. */
static bool all_differ(spry_schema *schema, const spry_array_shape *array)
{
    if (array->max > PAIRS_MAX)
        return false;
    for (uint32_t i = 1; i < array->max; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!spry_claims_are_dead(schema, spry_claims_join(schema, array_claims(array, i), array_claims(array, k)),
                                      2))
                return false;
    return true;
}

/* Lays out an array whose items must be unique: finds the values of an item, or refuses. */
static void array_lay_out_unique(spry_schema *schema, spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    spry_array_shape certain = *array; /* the same array up to the maximum possible number of items */
    for (uint32_t i = 0; i <= array->n_prefix && i < certain.max; i++)
        if (spry_claims_are_dead(schema, array_claims(array, i), 2))
            certain.max = i;
    if (all_differ(schema, &certain) || spry_schema_failed(schema))
        return;
    if (array->n_prefix == 0)
        shape->distinct = find_values(schema, shape->item_goals[0]);
    if (shape->distinct)
        return;
    spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, array->unique_at, "uniqueItems",
                       "can be enforced only where items have one of at most %d values (enum, const, boolean, bounded "
                       "integers); leave it out",
                       SPRY_SCHEMA_DISTINCT_MAX);
    spry_schema_excuse(schema);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

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
    if (json_is_array(items)) { /* draft 2019-09 and earlier */
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

/* Arrays with a number of items that satisfy a claim, which may evaluate them. */
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

/* Arrays with an invalid item: one of the first items, which have their own schemas, or some item after them. */
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

/* ---- conjunction of two shapes ----------------------------------------------------------------------------------- */

/* Collects the demands of both arrays; a demand about the same claim appears once. False when they contradict each
 * other. */
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
        prefix[i] = spry_claims_join(schema, array_claims(a, i), array_claims(b, i));
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
        array_lay_out_demands(schema, shape);
        return;
    }
    uint32_t *goals = spry_schema_alloc(schema, array->n_prefix + 1, sizeof *goals);
    for (size_t i = 0; goals && i <= array->n_prefix; i++)
        goals[i] = spry_schema_goal(schema, array_claims(array, i));
    shape->item_goals = goals;
    if (goals && array->unique_at)
        array_lay_out_unique(schema, shape);
}

/* The maximum number of items: the number before the first item whose goal cannot be satisfied. */
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
    return array->n_demands ? array_meets_demands(schema, shape) : array->min <= possible_items(schema, shape);
}

/* The items separated by commas, written from the last item to the first, because the array may end after each of
 * them. */
static spry_ir_node write_items(spry_schema *schema, const spry_shape *shape, uint32_t max)
{
    spry_ir *ir = schema->ir;
    const spry_array_shape *array = &shape->as.array;
    uint32_t fixed = array->n_prefix < max ? (uint32_t)array->n_prefix : max;
    if (fixed == 0)
        fixed = 1; /* the first item is written separately, as no comma comes before it */
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

/* Each of the values at most once, written as an object's members of which only the names are written. */
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
        inside = array_write_demands(schema, shape);
    } else if (max > 0) {
        spry_ir_node items = shape->distinct ? write_distinct(schema, shape, max) : write_items(schema, shape, max);
        inside = spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, items, schema->gap}, 3);
    }
    if (!demands && (max == 0 || shape->as.array.min == 0))
        inside = spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2);
    spry_ir_node whole[] = {spry_ir_literal(ir, SPRY_VIEW("[")), inside, spry_ir_literal(ir, SPRY_VIEW("]"))};
    return spry_ir_sequence(ir, whole, 3);
}
