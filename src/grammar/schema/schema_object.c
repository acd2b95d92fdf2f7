/* Objects: keywords, and the conjunction of two shapes. */
#include <stdlib.h>

#include "grammar/schema/schema.h"

static const spry_shapes *one_object(spry_schema *schema, spry_object_shape object)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_OBJECT);
    if (!shape)
        return NULL;
    shape->as.object = object;
    return spry_shapes_of(schema, &shape, 1);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const spry_object_name *)a)->name, ((const spry_object_name *)b)->name);
}

/* ---- shapes about one member ------------------------------------------------------------------------------------- */

const spry_shapes *spry_object_without(spry_schema *schema, const char *name)
{
    spry_object_name *names = spry_schema_alloc(schema, 1, sizeof *names);
    if (!names)
        return NULL;
    *names = (spry_object_name){name, false};
    return one_object(schema, (spry_object_shape){.names = names, .n_names = 1, .max = SPRY_IR_UNBOUNDED});
}

const spry_shapes *spry_object_with(spry_schema *schema, const char *name, const spry_claim *claim)
{
    spry_object_name *names = spry_schema_alloc(schema, 1, sizeof *names);
    spry_object_part *part = spry_schema_alloc(schema, 1, sizeof *part);
    if (!names || !part)
        return NULL;
    *names = (spry_object_name){name, true};
    spry_object_shape object = {.names = names, .n_names = 1, .max = SPRY_IR_UNBOUNDED};
    if (claim) {
        *part = (spry_object_part){.kind = SPRY_PART_NAME, .name = name, .claim = *claim};
        object.parts = part;
        object.n_parts = 1;
    }
    return one_object(schema, object);
}

const spry_shapes *spry_object_requiring(spry_schema *schema, const json_t *list)
{
    size_t count = 0, kept = 0;
    spry_object_name *names = spry_schema_alloc(schema, json_array_size(list) + json_object_size(list), sizeof *names);
    if (!names)
        return NULL;
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)list, name, member) names[count++] = (spry_object_name){name, true};
    for (size_t i = 0; i < json_array_size(list); i++)
        names[count++] = (spry_object_name){json_string_value(json_array_get(list, i)), true};
    if (count)
        qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || by_name(&names[kept - 1], &names[i]) != 0)
            names[kept++] = names[i];
    return one_object(schema, (spry_object_shape){.names = names, .n_names = kept, .max = SPRY_IR_UNBOUNDED});
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

/* True for a schema that allows everything. */
static bool says_nothing(const json_t *schema)
{
    return !schema || json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0);
}

static bool check_group(spry_schema *schema, const json_t *json)
{
    static const char *const maps[] = {"properties", "patternProperties"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *map = json_object_get(json, maps[i]);
        if (map && !json_is_object(map)) {
            spry_schema_refuse(schema, SPRY_ERR_INPUT, json, maps[i], "must be an object of schemas");
            return false;
        }
    }
    return true;
}

const json_t *spry_schema_additional(const json_t *json)
{
    const json_t *additional = json_object_get(json, "additionalProperties");
    return additional || !spry_schema_is_plain(json) ? additional : json_object_get(json, "unevaluatedProperties");
}

/* Objects in which some member meets a demand. */
static const spry_shapes *demanding(spry_schema *schema, spry_object_demand demand)
{
    spry_object_demand *kept = spry_schema_alloc(schema, 1, sizeof *kept);
    if (!kept)
        return NULL;
    *kept = demand;
    return one_object(schema, (spry_object_shape){.demands = kept, .n_demands = 1, .max = SPRY_IR_UNBOUNDED});
}

/* Objects with an invalid member: a declared one, one that matches a pattern, or another one. */
static const spry_shapes *not_members(spry_schema *schema, uint32_t place, const json_t *json)
{
    const spry_shapes *shapes = spry_shapes_none(schema);
    const char *name;
    json_t *member;
    json_object_foreach(json_object_get(json, "properties"), name, member)
    {
        spry_claim claim = spry_schema_claim(schema, place, member, true);
        if (!says_nothing(member))
            shapes = spry_shapes_either(schema, shapes, spry_object_with(schema, name, &claim));
    }
    spry_object_demand demand = {.kind = SPRY_DEMAND_MATCHING, .place = place};
    json_object_foreach(json_object_get(json, "patternProperties"), demand.pattern, member)
    {
        demand.claim = spry_schema_claim(schema, place, member, true);
        if (!says_nothing(member))
            shapes = spry_shapes_either(schema, shapes, demanding(schema, demand));
    }
    const json_t *additional = spry_schema_additional(json);
    if (says_nothing(additional))
        return shapes;
    demand = (spry_object_demand){
        .kind = SPRY_DEMAND_OTHER, .place = place, .claim = spry_schema_claim(schema, place, additional, true)};
    return spry_shapes_either(schema, shapes, demanding(schema, demand));
}

const spry_shapes *spry_schema_members(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                       bool negated)
{
    (void)keyword, (void)value;
    const json_t *json = schema->places[place]->json;
    if (!check_group(schema, json))
        return NULL;
    if (negated)
        return not_members(schema, place, json);
    spry_object_part *part = spry_schema_alloc(schema, 1, sizeof *part);
    if (!part)
        return NULL;
    *part = (spry_object_part){.kind = SPRY_PART_SCHEMA, .place = place};
    return one_object(schema, (spry_object_shape){.parts = part, .n_parts = 1, .max = SPRY_IR_UNBOUNDED});
}

const spry_shapes *spry_schema_required(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                        bool negated)
{
    bool valid = json_is_array(value);
    for (size_t i = 0; i < json_array_size(value); i++)
        valid = valid && spry_schema_text(json_array_get(value, i));
    if (!valid) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a list of names");
        return NULL;
    }
    if (!negated)
        return spry_object_requiring(schema, value);
    const spry_shapes *shapes = spry_shapes_none(schema);
    for (size_t i = 0; i < json_array_size(value); i++)
        shapes = spry_shapes_either(schema, shapes,
                                    spry_object_without(schema, json_string_value(json_array_get(value, i))));
    return shapes;
}

const spry_shapes *spry_schema_member_count(spry_schema *schema, uint32_t place, const char *keyword,
                                            const json_t *value, bool negated)
{
    spry_object_shape object = {.max = SPRY_IR_UNBOUNDED, .min_at = schema->places[place]->json};
    if (!spry_schema_range(schema, &object.min, &object.max, place, keyword, value, negated))
        return spry_schema_failed(schema) ? NULL : spry_shapes_none(schema);
    return one_object(schema, object);
}

const spry_shapes *spry_schema_property_names(spry_schema *schema, uint32_t place, const char *keyword,
                                              const json_t *value, bool negated)
{
    (void)keyword;
    spry_claim claim = spry_schema_claim(schema, place, value, false);
    spry_object_shape object = {.max = SPRY_IR_UNBOUNDED};
    if (!negated) {
        object.key_claims = spry_claims_add(schema, object.key_claims, claim);
    } else if (says_nothing(value)) {
        return spry_shapes_none(schema);
    } else if (json_is_false(value)) {
        object.min = 1;
    } else {
        return demanding(schema, (spry_object_demand){.kind = SPRY_DEMAND_NAMED,
                                                      .place = place,
                                                      .claim = spry_schema_claim(schema, place, value, true)});
    }
    return one_object(schema, object);
}

/* ---- conjunction of two shapes ----------------------------------------------------------------------------------- */

/* Collects the names of both objects; false when one requires a member that the other forbids. */
static bool join_names(spry_schema *schema, spry_object_shape *out, const spry_object_shape *a,
                       const spry_object_shape *b)
{
    if (a->n_names + b->n_names > 2 * SPRY_SCHEMA_ITEMS_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL, "an object has more than %d required names",
                           SPRY_SCHEMA_ITEMS_MAX);
        return false;
    }
    spry_object_name *names = spry_schema_alloc(schema, a->n_names + b->n_names, sizeof *names);
    if (!names)
        return false;
    size_t i = 0, j = 0, count = 0;
    while (i < a->n_names || j < b->n_names) {
        int order = i == a->n_names ? 1 : j == b->n_names ? -1 : by_name(&a->names[i], &b->names[j]);
        if (order == 0 && a->names[i].present != b->names[j].present)
            return false;
        names[count++] = order <= 0 ? a->names[i] : b->names[j];
        i += order <= 0;
        j += order >= 0;
    }
    out->names = names;
    out->n_names = count;
    return true;
}

static bool same_part(const spry_object_part *a, const spry_object_part *b)
{
    if (a->kind != b->kind || a->kind != SPRY_PART_NAME)
        return a->kind == b->kind && a->place == b->place && a->seen == b->seen && a->hidden == b->hidden;
    return a->claim == b->claim && strcmp(a->name, b->name) == 0;
}

static bool join_parts(spry_schema *schema, spry_object_shape *out, const spry_object_shape *a,
                       const spry_object_shape *b)
{
    if (a->n_parts + b->n_parts > SPRY_SCHEMA_JOINED_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL,
                           "more than %d schemas speak about the members of one object", SPRY_SCHEMA_JOINED_MAX);
        return false;
    }
    spry_object_part *parts = spry_schema_alloc(schema, a->n_parts + b->n_parts, sizeof *parts);
    if (!parts)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        parts[count++] = a->parts[i];
    for (size_t j = 0; j < b->n_parts; j++) {
        bool known = false;
        for (size_t i = 0; i < a->n_parts && !known; i++)
            known = same_part(&a->parts[i], &b->parts[j]);
        if (!known)
            parts[count++] = b->parts[j];
    }
    out->parts = parts;
    out->n_parts = count;
    return true;
}

static bool same_demand(const spry_object_demand *a, const spry_object_demand *b)
{
    return a->kind == b->kind && a->place == b->place && a->claim == b->claim &&
           (a->kind != SPRY_DEMAND_MATCHING || strcmp(a->pattern, b->pattern) == 0);
}

static bool join_demands(spry_schema *schema, spry_object_shape *out, const spry_object_shape *a,
                         const spry_object_shape *b)
{
    spry_object_demand *demands = spry_schema_alloc(schema, a->n_demands + b->n_demands, sizeof *demands);
    if (!demands)
        return false;
    for (size_t i = 0; i < a->n_demands; i++)
        demands[out->n_demands++] = a->demands[i];
    for (size_t i = 0; i < b->n_demands; i++) {
        bool known = false;
        for (size_t k = 0; k < a->n_demands && !known; k++)
            known = same_demand(&a->demands[k], &b->demands[i]);
        if (!known)
            demands[out->n_demands++] = b->demands[i];
    }
    out->demands = demands;
    if (out->n_demands > SPRY_SCHEMA_DEMANDS_MAX)
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->at, NULL,
                           "more than %d negated keywords each demand a wrong member of one object",
                           SPRY_SCHEMA_DEMANDS_MAX);
    return out->n_demands <= SPRY_SCHEMA_DEMANDS_MAX;
}

static size_t count_schemas(const spry_object_shape *object)
{
    size_t count = 0;
    for (size_t i = 0; i < object->n_parts; i++)
        count += object->parts[i].kind == SPRY_PART_SCHEMA;
    return count;
}

static bool covers_parts(const spry_object_shape *a, const spry_object_shape *b)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        size_t k = 0;
        while (k < b->n_parts && !same_part(&a->parts[i], &b->parts[k]))
            k++;
        if (k == b->n_parts)
            return false;
    }
    for (size_t i = 0; i < a->n_demands; i++) {
        size_t k = 0;
        while (k < b->n_demands && !same_demand(&a->demands[i], &b->demands[k]))
            k++;
        if (k == b->n_demands)
            return false;
    }
    return true;
}

static uint64_t trait(uint64_t kind, uint64_t number, const char *name)
{
    return (uint64_t)1 << spry_hash_bytes(name, strlen(name), kind << 32 ^ number) % 63;
}

uint64_t spry_object_traits(const spry_object_shape *object)
{
    uint64_t traits = (uint64_t)1 << 63;
    for (size_t i = 0; i < object->n_parts; i++) {
        const spry_object_part *part = &object->parts[i];
        bool named = part->kind == SPRY_PART_NAME;
        traits |= trait(part->kind, named ? part->claim : part->place, named ? part->name : "");
    }
    for (size_t i = 0; i < object->n_demands; i++)
        traits |= trait(8 + object->demands[i].kind, object->demands[i].place, "");
    for (size_t i = 0; i < object->n_names; i++)
        traits |= trait(16, object->names[i].present, object->names[i].name);
    for (size_t i = 0; i < object->key_claims.count; i++)
        traits |= trait(17, object->key_claims.items[i], "");
    return traits;
}

bool spry_object_covers(const spry_schema *schema, const spry_object_shape *a, const spry_object_shape *b)
{
    if (a->min > b->min || a->max < b->max || a->n_parts > b->n_parts || a->n_names > b->n_names ||
        a->n_demands > b->n_demands || a->key_claims.count > b->key_claims.count ||
        (spry_schema_writes(schema) && count_schemas(a) != count_schemas(b)))
        return false;
    for (size_t i = 0, k = 0; i < a->n_names; i++, k++) { /* both lists are sorted */
        while (k < b->n_names && by_name(&b->names[k], &a->names[i]) < 0)
            k++;
        if (k == b->n_names || by_name(&b->names[k], &a->names[i]) != 0 || b->names[k].present != a->names[i].present)
            return false;
    }
    for (size_t i = 0, k = 0; i < a->key_claims.count; i++, k++) { /* both lists are sorted */
        while (k < b->key_claims.count && b->key_claims.items[k] < a->key_claims.items[i])
            k++;
        if (k == b->key_claims.count || b->key_claims.items[k] != a->key_claims.items[i])
            return false;
    }
    return covers_parts(a, b);
}

spry_shape *spry_object_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_object_shape *a = &first->as.object, *b = &second->as.object;
    spry_object_shape out = {.min = a->min > b->min ? a->min : b->min, .max = a->max < b->max ? a->max : b->max};
    if (out.min > out.max || !join_names(schema, &out, a, b) || !join_parts(schema, &out, a, b) ||
        !join_demands(schema, &out, a, b))
        return NULL;
    out.key_claims = spry_claims_join(schema, a->key_claims, b->key_claims);
    out.min_at = a->min > b->min ? a->min_at : b->min_at;
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_OBJECT);
    if (shape)
        shape->as.object = out;
    return shape;
}

/* ---- demands ----------------------------------------------------------------------------------------------------- */

/* Demands of an object: a negated patternProperties, additionalProperties or propertyNames needs some member that
 * violates the keyword. That member is a *witness*: the one with a declared name, or one of a class of names. Each way
 * to choose witnesses for all demands becomes an alternative of the object. */

typedef struct search {
    spry_schema *schema;
    spry_layout *layout;
    const spry_object_shape *object;
    spry_layout_witness chosen[SPRY_SCHEMA_DEMANDS_MAX];
    size_t count;
    bool doubled; /* some choice needs two members of one class */
} search;

static uint32_t inside_of(const spry_layout *layout, const spry_layout_witness *witness)
{
    return witness->of_class ? layout->classes[witness->index].inside : layout->names[witness->index].inside;
}

/* The claims about a witness that must also meet this demand. */
static spry_claims with_demand(const search *s, spry_claims claims, const spry_object_demand *demand)
{
    return demand->kind == SPRY_DEMAND_NAMED ? claims : spry_claims_add(s->schema, claims, demand->claim);
}

static bool same_claims(spry_claims a, spry_claims b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.items, b.items, a.count * sizeof *a.items) == 0);
}

/* True if the demand is only about the member's name, so that any value meets it. */
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
        /* A second member of the same class may be needed. The result is exact only where one member cannot meet both
         * demands or need not. */
        s->doubled |= of_class && !same_claims(s->chosen[i].claims, claims);
        return;
    }
    if (spry_claims_are_dead(s->schema, claims, 2))
        return;
    s->chosen[s->count++] = (spry_layout_witness){.of_class = of_class, .index = index, .claims = claims};
    choose(s, number + 1);
    s->count--;
}

/* True if a chosen or required member meets the demand, whatever its value is. */
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

/* Chooses a witness for each demand from `number` on. The recursion is as deep as the number of demands. */
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
    for (size_t i = 0; i < s->count; i++) { /* try a member that already meets earlier demands */
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
