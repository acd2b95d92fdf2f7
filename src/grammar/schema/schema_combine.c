/* Keywords that apply other schemas to the same value: $ref, allOf, anyOf, oneOf, not, if, dependentSchemas and
 * dependentRequired. */
#include "grammar/schema/schema.h"

/* Checks for a list of schemas; otherwise the builder fails. */
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
    /* Every valid branch evaluates members and items: each set of branches is an alternative. */
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

/* `mine` without the values that another branch allows. Shapes that share no value with it need no negation: this
 * keeps unions with a discriminating member small. */
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

/* Values of branch `own` that no other branch allows, among those that the keywords `beside` it allow. */
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

/* Values of none, or of at least two branches. */
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

/* ---- what depends on a member ------------------------------------------------------------------------------------ */

/* The constraint that applies when the member is present: a schema, or a list of further members. */
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
