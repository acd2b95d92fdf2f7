/* uniqueItems: enforced where an item has one of finitely many values, which are then written like names of an object,
 * each at most once; and where no two items can be equal anyway. */
#include "grammar/schema/schema.h"

enum { PAIRS_MAX = 8 }; /* items compared with each other */

typedef struct values {
    spry_schema *schema;
    spry_ir_node *nodes;
    spry_decimal *numbers; /* those among them that are numbers */
    spry_map strings;
    size_t count, n_numbers;
    unsigned words; /* null, true and false: a bit each */
    bool endless;
} values;

static void add_node(values *v, spry_ir_node node)
{
    if (v->count == SPRY_SCHEMA_DISTINCT_MAX)
        v->endless = true;
    else if (!spry_ir_is_never(v->schema->ir, node))
        v->nodes[v->count++] = node;
}

static void add_number(values *v, const spry_number_shape *shape, spry_decimal value)
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

/* An integer of at most 15 digits. */
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

static void add_numbers(values *v, const spry_number_shape *shape)
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

static void add_strings(values *v, const spry_string_shape *shape)
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

static void add_shape(values *v, const spry_shape *shape)
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
    values v = {.schema = schema, .endless = !shapes};
    for (size_t i = 0; shapes && i < shapes->count && !v.endless; i++) /* most are endless: find that first */
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

/* Whether no two of the possible items can be equal. */
static bool all_differ(spry_schema *schema, const spry_array_shape *array)
{
    if (array->max > PAIRS_MAX)
        return false;
    for (uint32_t i = 1; i < array->max; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!spry_claims_are_dead(
                    schema, spry_claims_join(schema, spry_array_claims(array, i), spry_array_claims(array, k)), 2))
                return false;
    return true;
}

void spry_array_lay_out_unique(spry_schema *schema, spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    spry_array_shape certain = *array; /* as far as items are possible */
    for (uint32_t i = 0; i <= array->n_prefix && i < certain.max; i++)
        if (spry_claims_are_dead(schema, spry_array_claims(array, i), 2))
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
