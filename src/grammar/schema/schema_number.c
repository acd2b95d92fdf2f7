/* Numbers: keywords, and the conjunction of two shapes. */
#include "grammar/schema/schema.h"

/* A number shape with one constraint. */
static const spry_shapes *one_number(spry_schema *schema, spry_number_shape number)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
    if (!shape)
        return NULL;
    shape->as.number = number;
    return spry_shapes_of(schema, &shape, 1);
}

static bool is_number(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value)
{
    if (json_is_number(value))
        return true;
    spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a number");
    return false;
}

const spry_shapes *spry_schema_number_bound(spry_schema *schema, uint32_t place, const char *keyword,
                                            const json_t *value, bool negated)
{
    bool low = strcmp(keyword, "minimum") == 0 || strcmp(keyword, "exclusiveMinimum") == 0;
    bool exclusive = strncmp(keyword, "exclusive", 9) == 0;
    if (exclusive && json_is_boolean(value)) /* draft-04: belongs to minimum or maximum */
        return negated ? spry_shapes_none(schema) : &schema->everything;
    if (!is_number(schema, place, keyword, value))
        return NULL;
    exclusive |=
        json_is_true(json_object_get(schema->places[place]->json, low ? "exclusiveMinimum" : "exclusiveMaximum"));
    spry_decimal at = spry_decimal_of(value);
    if (!spry_number_can_bound(&at)) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                           "is too large, or too near to 0, to be enforced");
        return NULL;
    }
    spry_bound bound = {.set = true, .exclusive = exclusive != negated, .at = at};
    spry_number_shape number = {0};
    *(low != negated ? &number.low : &number.high) = bound;
    return one_number(schema, number);
}

const spry_shapes *spry_schema_multiple_of(spry_schema *schema, uint32_t place, const char *keyword,
                                           const json_t *value, bool negated)
{
    if (!is_number(schema, place, keyword, value))
        return NULL;
    spry_decimal step = spry_decimal_of(value);
    if (step.negative || step.n_digits == 0) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be greater than 0");
        return NULL;
    }
    spry_ir_node multiples = spry_number_multiples(schema, &step, negated);
    if (multiples == SPRY_IR_NONE && !spry_schema_failed(schema))
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                           "has too many digits to be enforced");
    return one_number(schema, (spry_number_shape){.also = spry_nodes_one(schema, multiples)});
}

/* The tighter of two bounds; `sign` is 1 for lower bounds and -1 for upper ones. */
static spry_bound tighter(const spry_bound *a, const spry_bound *b, int sign)
{
    if (!a->set || !b->set)
        return a->set ? *a : *b;
    int order = sign * spry_decimal_compare(&a->at, &b->at);
    return order > 0 || (order == 0 && a->exclusive) ? *a : *b;
}

static bool within(const spry_number_shape *number, const spry_decimal *value)
{
    int low = number->low.set ? spry_decimal_compare(value, &number->low.at) : 1;
    int high = number->high.set ? spry_decimal_compare(value, &number->high.at) : -1;
    bool integer = spry_decimal_is_integer(value);
    return (low > 0 || (low == 0 && !number->low.exclusive)) && (high < 0 || (high == 0 && !number->high.exclusive)) &&
           !(number->integer && !integer) && !(number->fractional && integer);
}

static bool has_value(const spry_number_shape *number, const spry_decimal *value)
{
    for (size_t i = 0; i < number->n_values; i++)
        if (spry_decimal_compare(&number->values[i], value) == 0)
            return true;
    return !number->values;
}

spry_shape *spry_number_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_number_shape *a = &first->as.number, *b = &second->as.number;
    spry_number_shape out = {.integer = a->integer || b->integer,
                             .fractional = a->fractional || b->fractional,
                             .low = tighter(&a->low, &b->low, 1),
                             .high = tighter(&a->high, &b->high, -1)};
    if (out.integer && out.fractional)
        return NULL;
    if (out.low.set && out.high.set) {
        int order = spry_decimal_compare(&out.low.at, &out.high.at);
        if (order > 0 || (order == 0 && (out.low.exclusive || out.high.exclusive)))
            return NULL;
    }
    if (!a->values) {
        const spry_number_shape *swap = a;
        a = b;
        b = swap;
    }
    if (a->values) {
        spry_decimal *kept = spry_schema_alloc(schema, a->n_values, sizeof *kept);
        if (!kept)
            return NULL;
        for (size_t i = 0; i < a->n_values; i++)
            if (within(&out, &a->values[i]) && has_value(b, &a->values[i]))
                kept[out.n_values++] = a->values[i];
        out.values = kept;
        if (out.n_values == 0)
            return NULL;
    }
    out.also = spry_nodes_join(schema, a->also, b->also);
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
    if (shape)
        shape->as.number = out;
    return shape;
}
