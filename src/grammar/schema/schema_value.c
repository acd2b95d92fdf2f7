/* const and enum: values equal, or not equal, to a JSON value. Numbers are compared numerically (1 equals 1.0), objects
 * as sets of members. */
#include "grammar/schema/schema.h"

#include <stdlib.h>

/* ---- lists of numbers and strings -------------------------------------------------------------------------------- */

static const spry_shapes *numbers(spry_schema *schema, const json_t *const *values, size_t count)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
    spry_decimal *decimals = spry_schema_alloc(schema, count, sizeof *decimals);
    if (!shape || !decimals)
        return NULL;
    for (size_t i = 0; i < count; i++)
        decimals[i] = spry_decimal_of(values[i]);
    shape->as.number.values = decimals;
    shape->as.number.n_values = count;
    return spry_shapes_of(schema, &shape, 1);
}

static int by_size(const void *a, const void *b)
{
    return spry_decimal_compare(a, b);
}

/* The numbers between the listed ones, below all of them and above all of them. */
static const spry_shapes *other_numbers(spry_schema *schema, const json_t *const *values, size_t count)
{
    spry_decimal *sorted = spry_schema_alloc(schema, count, sizeof *sorted);
    spry_shape **shapes = spry_schema_alloc(schema, count + 1, sizeof *shapes);
    if (!sorted || !shapes)
        return NULL;
    for (size_t i = 0; i < count; i++)
        sorted[i] = spry_decimal_of(values[i]);
    qsort(sorted, count, sizeof *sorted, by_size);
    for (size_t i = 0; i <= count; i++) {
        if (i > 0 && i < count && by_size(&sorted[i - 1], &sorted[i]) == 0)
            continue; /* there is no number between them */
        shapes[i] = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
        if (!shapes[i])
            return NULL;
        if (i > 0)
            shapes[i]->as.number.low = (spry_bound){.set = true, .exclusive = true, .at = sorted[i - 1]};
        if (i < count)
            shapes[i]->as.number.high = (spry_bound){.set = true, .exclusive = true, .at = sorted[i]};
    }
    return spry_shapes_of(schema, shapes, count + 1);
}

static const spry_shapes *strings(spry_schema *schema, const json_t *const *values, size_t count, bool negated)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_STRING);
    if (!shape)
        return NULL;
    if (negated) {
        shape->as.string.also = spry_nodes_one(schema, spry_strings_except(schema, values, count));
    } else {
        shape->as.string.values = values;
        shape->as.string.n_values = count;
    }
    return spry_shapes_of(schema, &shape, 1);
}

/* ---- arrays and objects ------------------------------------------------------------------------------------------ */

static spry_claims item_claim(spry_schema *schema, uint32_t place, const json_t *value, bool negated)
{
    spry_claim claim = spry_schema_claim(schema, place, value, negated) | SPRY_CLAIM_VALUE;
    return spry_claims_add(schema, (spry_claims){NULL, 0}, claim);
}

/* Arrays of this length with equal items. */
static const spry_shapes *equal_arrays(spry_schema *schema, uint32_t place, const json_t *value)
{
    size_t count = json_array_size(value);
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
    spry_claims *prefix = spry_schema_alloc(schema, count, sizeof *prefix);
    if (!shape || !prefix)
        return NULL;
    for (size_t i = 0; i < count; i++)
        prefix[i] = item_claim(schema, place, json_array_get(value, i), false);
    shape->as.array =
        (spry_array_shape){.prefix = prefix, .n_prefix = count, .min = (uint32_t)count, .max = (uint32_t)count};
    return spry_shapes_of(schema, &shape, 1);
}

static const spry_shapes *arrays_of_length(spry_schema *schema, uint32_t min, uint32_t max)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
    if (!shape)
        return NULL;
    shape->as.array.min = min;
    shape->as.array.max = max;
    return spry_shapes_of(schema, &shape, 1);
}

/* Arrays that are longer or shorter, or have an item that is not equal. */
static const spry_shapes *other_arrays(spry_schema *schema, uint32_t place, const json_t *value)
{
    uint32_t count = (uint32_t)json_array_size(value);
    const spry_shapes *shapes = arrays_of_length(schema, count + 1, SPRY_IR_UNBOUNDED);
    if (count > 0)
        shapes = spry_shapes_either(schema, shapes, arrays_of_length(schema, 0, count - 1));
    for (uint32_t i = 0; shapes && i < count; i++) {
        spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_ARRAY);
        spry_claims *prefix = spry_schema_alloc(schema, (size_t)i + 1, sizeof *prefix);
        if (!shape || !prefix)
            return NULL;
        prefix[i] = item_claim(schema, place, json_array_get(value, i), true);
        shape->as.array =
            (spry_array_shape){.prefix = prefix, .n_prefix = (size_t)i + 1, .min = i + 1, .max = SPRY_IR_UNBOUNDED};
        shapes = spry_shapes_either(schema, shapes, spry_shapes_of(schema, &shape, 1));
    }
    return shapes;
}

/* Objects with exactly these members. */
static const spry_shapes *equal_objects(spry_schema *schema, uint32_t place, const json_t *value)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_OBJECT);
    spry_object_part *part = spry_schema_alloc(schema, 1, sizeof *part);
    if (!shape || !part)
        return NULL;
    *part = (spry_object_part){.kind = SPRY_PART_VALUE, .place = place};
    shape->as.object.parts = part;
    shape->as.object.n_parts = 1;
    return spry_shapes_both(schema, spry_shapes_of(schema, &shape, 1), spry_object_requiring(schema, value));
}

/* Objects with more members, without one of them, or with one that is not equal. */
static const spry_shapes *other_objects(spry_schema *schema, uint32_t place, const json_t *value)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_OBJECT);
    if (!shape)
        return NULL;
    shape->as.object.min = (uint32_t)json_object_size(value) + 1;
    const spry_shapes *more =
        spry_shapes_both(schema, spry_shapes_of(schema, &shape, 1), spry_object_requiring(schema, value));
    const spry_shapes *shapes = spry_shapes_none(schema);
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)value, name, member)
    {
        spry_claim claim = spry_schema_claim(schema, place, member, true) | SPRY_CLAIM_VALUE;
        shapes = spry_shapes_either(schema, shapes, spry_object_without(schema, name));
        shapes = spry_shapes_either(schema, shapes, spry_object_with(schema, name, &claim));
    }
    return spry_shapes_either(schema, shapes, more);
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

const spry_shapes *spry_schema_equal(spry_schema *schema, uint32_t place, bool negated)
{
    const json_t *value = schema->places[place]->json;
    if (json_is_array(value))
        return negated ? spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_ARRAY),
                                            other_arrays(schema, place, value))
                       : equal_arrays(schema, place, value);
    if (json_is_object(value))
        return negated ? spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_OBJECT),
                                            other_objects(schema, place, value))
                       : equal_objects(schema, place, value);
    const json_t **one = spry_schema_alloc(schema, 1, sizeof *one);
    if (!one)
        return NULL;
    one[0] = value;
    if (json_is_number(value))
        return negated ? spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_NUMBER),
                                            other_numbers(schema, one, 1))
                       : numbers(schema, one, 1);
    if (json_is_string(value))
        return negated ? spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_STRING),
                                            strings(schema, one, 1, true))
                       : strings(schema, one, 1, false);
    spry_shape_kind kind = json_is_null(value)   ? SPRY_SHAPE_NULL
                           : json_is_true(value) ? SPRY_SHAPE_TRUE
                                                 : SPRY_SHAPE_FALSE;
    return negated ? spry_shapes_without(schema, kind) : spry_shapes_of(schema, &schema->everything.items[kind], 1);
}

const spry_shapes *spry_schema_const(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                     bool negated)
{
    (void)keyword;
    return spry_schema_expand(schema, spry_schema_claim(schema, place, value, negated) | SPRY_CLAIM_VALUE);
}

/* The strings, or the numbers, of a list. */
static const json_t **take(spry_schema *schema, const json_t *list, size_t *count, bool want_numbers)
{
    const json_t **values = spry_schema_alloc(schema, json_array_size(list), sizeof *values);
    *count = 0;
    for (size_t i = 0; values && i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (want_numbers ? json_is_number(value) : json_is_string(value))
            values[(*count)++] = value;
    }
    return values;
}

/* All strings of the list become one shape, and so do all numbers, which keeps long lists small. */
const spry_shapes *spry_schema_enum(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                    bool negated)
{
    if (!json_is_array(value)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a list of values");
        return NULL;
    }
    size_t n_numbers, n_strings;
    const json_t **number_values = take(schema, value, &n_numbers, true);
    const json_t **string_values = take(schema, value, &n_strings, false);
    if (!number_values || !string_values)
        return NULL;
    const spry_shapes *shapes = negated ? &schema->everything : spry_shapes_none(schema);
    if (negated && n_strings)
        shapes =
            spry_shapes_restrict(schema, shapes, SPRY_SHAPE_STRING, strings(schema, string_values, n_strings, true));
    else if (n_strings)
        shapes = spry_shapes_either(schema, shapes, strings(schema, string_values, n_strings, false));
    if (negated && n_numbers)
        shapes =
            spry_shapes_restrict(schema, shapes, SPRY_SHAPE_NUMBER, other_numbers(schema, number_values, n_numbers));
    else if (n_numbers)
        shapes = spry_shapes_either(schema, shapes, numbers(schema, number_values, n_numbers));
    for (size_t i = 0; shapes && i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (json_is_number(one) || json_is_string(one))
            continue;
        const spry_shapes *same =
            spry_schema_expand(schema, spry_schema_claim(schema, place, one, negated) | SPRY_CLAIM_VALUE);
        shapes = negated ? spry_shapes_both(schema, shapes, same) : spry_shapes_either(schema, shapes, same);
    }
    return shapes;
}
