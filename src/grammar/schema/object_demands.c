/* Demands of an object: a negated patternProperties, additionalProperties or propertyNames needs some member that is
 * wrong for it. That member is a *witness*: one of a declared name, or one of a class of names. Each way to choose
 * witnesses for all demands becomes an alternative of the object. */
#include "grammar/schema/schema.h"

typedef struct search {
    spry_schema *schema;
    spry_layout *layout;
    const spry_object_shape *object;
    spry_layout_witness chosen[SPRY_SCHEMA_DEMANDS_MAX];
    size_t count;
    bool doubled; /* a way needs two members of one class */
} search;

static uint32_t inside_of(const spry_layout *layout, const spry_layout_witness *witness)
{
    return witness->of_class ? layout->classes[witness->index].inside : layout->names[witness->index].inside;
}

/* The claims of a witness that also meets this demand. */
static spry_claims with_demand(const search *s, spry_claims claims, const spry_object_demand *demand)
{
    return demand->kind == SPRY_DEMAND_NAMED ? claims : spry_claims_add(s->schema, claims, demand->claim);
}

static bool same_claims(spry_claims a, spry_claims b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.items, b.items, a.count * sizeof *a.items) == 0);
}

/* Whether any value meets the demand. */
static bool is_about_names(const search *s, const spry_object_demand *demand)
{
    return demand->kind == SPRY_DEMAND_NAMED || json_is_false(s->schema->places[demand->claim >> 2]->json);
}

static void add_way(search *s)
{
    spry_layout *layout = s->layout;
    if (layout->n_ways == SPRY_SCHEMA_WAYS_MAX) {
        spry_schema_refuse(s->schema, SPRY_ERR_UNSUPPORTED, s->schema->places[s->object->demands->place]->json, NULL,
                           "negated (by not, if, or a oneOf whose branches overlap), it can be met by members in more "
                           "than %d ways",
                           SPRY_SCHEMA_WAYS_MAX);
        return;
    }
    spry_layout_witness *witnesses = spry_schema_alloc(s->schema, s->count, sizeof *witnesses);
    if (!witnesses)
        return;
    for (size_t i = 0; i < s->count; i++) {
        witnesses[i] = s->chosen[i];
        witnesses[i].goal = spry_schema_goal(s->schema, witnesses[i].claims);
    }
    layout->ways[layout->n_ways++] = (spry_layout_way){witnesses, s->count};
}

static void choose(search *s, uint32_t demand);

static void choose_new(search *s, uint32_t number, bool of_class, uint32_t index, spry_claims claims)
{
    claims = with_demand(s, claims, &s->object->demands[number]);
    for (size_t i = 0; i < s->count; i++) {
        if (s->chosen[i].of_class != of_class || s->chosen[i].index != index)
            continue;
        /* Another member of the class: exact only where one member cannot meet both demands or needs not to. */
        s->doubled |= of_class && !same_claims(s->chosen[i].claims, claims);
        return;
    }
    if (spry_claims_are_dead(s->schema, claims, 2))
        return;
    s->chosen[s->count++] = (spry_layout_witness){.of_class = of_class, .index = index, .claims = claims};
    choose(s, number + 1);
    s->count--;
}

/* Whether a chosen or required member meets the demand whatever its value is. */
static bool is_met(const search *s, uint32_t number)
{
    const spry_object_demand *demand = &s->object->demands[number];
    bool names = is_about_names(s, demand);
    for (size_t i = 0; i < s->count; i++)
        if (inside_of(s->layout, &s->chosen[i]) >> number & 1 &&
            (names || same_claims(s->chosen[i].claims, with_demand(s, s->chosen[i].claims, demand))))
            return true;
    for (size_t i = 0; names && i < s->layout->n_names; i++)
        if (s->layout->names[i].required && s->layout->names[i].inside >> number & 1)
            return true;
    return false;
}

/* The recursion is as deep as there are demands. */
static void choose(search *s, uint32_t number)
{
    if (spry_schema_failed(s->schema))
        return;
    if (number == s->object->n_demands) {
        add_way(s);
        return;
    }
    if (is_met(s, number)) {
        choose(s, number + 1);
        return;
    }
    const spry_object_demand *demand = &s->object->demands[number];
    for (size_t i = 0; i < s->count; i++) { /* a member that meets earlier demands, too */
        spry_claims before = s->chosen[i].claims, claims = with_demand(s, before, demand);
        if (!(inside_of(s->layout, &s->chosen[i]) >> number & 1) || spry_claims_are_dead(s->schema, claims, 2))
            continue;
        s->chosen[i].claims = claims;
        choose(s, number + 1);
        s->chosen[i].claims = before;
    }
    for (uint32_t i = 0; i < s->layout->n_names; i++)
        if (s->layout->names[i].inside >> number & 1 && !s->layout->names[i].absent)
            choose_new(s, number, false, i, s->layout->names[i].claims);
    for (uint32_t i = 0; i < s->layout->n_classes; i++)
        if (s->layout->classes[i].inside >> number & 1)
            choose_new(s, number, true, i, s->layout->classes[i].claims);
}

void spry_object_find_ways(spry_schema *schema, spry_layout *layout, const spry_object_shape *object)
{
    search s = {.schema = schema, .layout = layout, .object = object};
    layout->ways = spry_schema_alloc(schema, object->n_demands ? SPRY_SCHEMA_WAYS_MAX : 1, sizeof *layout->ways);
    if (!layout->ways)
        return;
    choose(&s, 0);
    if (s.doubled)
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, schema->places[object->demands->place]->json, NULL,
            "negated (by not, if, or a oneOf whose branches overlap), it cannot be enforced beside another "
            "one that two different members could meet");
}
