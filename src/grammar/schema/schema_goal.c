/* Goals: sets of claims about one value. They are found one after the other; those that no finite text satisfies are
 * dropped, and each of the others becomes a rule. */
#include "grammar/schema/schema.h"

#include "grammar/ir/grow.h"

#include <stdio.h>

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* A claim that every value satisfies. */
static bool is_idle(const spry_schema *schema, spry_claim claim)
{
    const json_t *json = schema->places[claim >> 2]->json;
    if (claim & SPRY_CLAIM_VALUE)
        return false;
    if (claim & SPRY_CLAIM_NEGATED)
        return json_is_false(json);
    return json_is_true(json) || (json_is_object(json) && json_object_size(json) == 0);
}

/* Adds a goal to the list of those that become rules, unless probing. */
static uint32_t want(spry_schema *schema, uint32_t number)
{
    spry_goal *goal = schema->goals[number];
    if (goal->wanted || schema->probing)
        return number;
    if (!spry_grow(&schema->wanted, &schema->wanted_room, schema->n_wanted + 1, sizeof *schema->wanted)) {
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
        return UINT32_MAX;
    }
    goal->wanted = true;
    schema->wanted[schema->n_wanted++] = number;
    return number;
}

uint32_t spry_schema_goal(spry_schema *schema, spry_claims claims)
{
    spry_claim *kept = spry_schema_alloc(schema, claims.count, sizeof *kept);
    spry_goal *goal = spry_schema_alloc(schema, 1, sizeof *goal);
    if (!kept || !goal)
        return UINT32_MAX;
    for (size_t i = 0; i < claims.count; i++)
        if (!is_idle(schema, claims.items[i]))
            kept[goal->claims.count++] = claims.items[i];
    goal->claims.items = kept;
    spry_view key = {(const char *)kept, goal->claims.count * sizeof *kept};
    uint32_t known;
    if (spry_map_find(&schema->goal_index, key, &known))
        return want(schema, known);
    if (schema->n_goals == SPRY_SCHEMA_GOALS_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, NULL, NULL,
                           "it combines its schemas in more than %d ways; write it with fewer combinations",
                           SPRY_SCHEMA_GOALS_MAX);
        return UINT32_MAX;
    }
    bool added;
    if (!spry_grow(&schema->goals, &schema->goals_room, schema->n_goals + 1, sizeof *schema->goals) ||
        !spry_map_add(&schema->goal_index, key, (uint32_t)schema->n_goals, &added)) {
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
        return UINT32_MAX;
    }
    schema->goals[schema->n_goals++] = goal;
    return want(schema, (uint32_t)schema->n_goals - 1);
}

const spry_shapes *spry_goal_shapes(spry_schema *schema, uint32_t number)
{
    if (number >= schema->n_goals)
        return NULL;
    spry_goal *goal = schema->goals[number];
    if (goal->shapes || goal->busy)
        return goal->shapes;
    goal->busy = true;
    const spry_shapes *shapes = &schema->everything;
    for (size_t i = 0; shapes && i < goal->claims.count; i++)
        shapes = spry_shapes_both(schema, shapes, spry_schema_expand(schema, goal->claims.items[i]));
    goal->busy = false;
    goal->shapes = shapes;
    return shapes;
}

bool spry_claims_are_dead(spry_schema *schema, spry_claims claims, unsigned depth)
{
    for (size_t i = 1; i < claims.count; i++) /* sorted: a claim and its opposite are neighbours */
        if (claims.items[i] == (claims.items[i - 1] ^ SPRY_CLAIM_NEGATED) && claims.items[i] & SPRY_CLAIM_NEGATED)
            return true;
    schema->probing++;
    const spry_shapes *shapes = spry_goal_shapes(schema, spry_schema_goal(schema, claims));
    schema->probing--;
    bool dead = shapes;
    for (size_t i = 0; dead && i < shapes->count; i++)
        dead = spry_shape_is_dead(schema, shapes->items[i], depth);
    return dead;
}

static void lay_out_shape(spry_schema *schema, spry_shape *shape)
{
    if (shape->item_goals || shape->layout || shape->kind < SPRY_SHAPE_ARRAY)
        return;
    if (schema->n_layouts++ == SPRY_SCHEMA_LAYOUTS_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, NULL, NULL,
                           "it has more than %d different objects and arrays; write it with fewer combinations",
                           SPRY_SCHEMA_LAYOUTS_MAX);
    } else if (shape->kind == SPRY_SHAPE_ARRAY) {
        spry_array_lay_out(schema, shape);
    } else {
        spry_object_lay_out(schema, shape);
    }
}

static void lay_out_goal(spry_schema *schema, uint32_t number)
{
    const spry_shapes *shapes = spry_goal_shapes(schema, number);
    for (size_t i = 0; shapes && i < shapes->count && !spry_schema_failed(schema); i++)
        lay_out_shape(schema, shapes->items[i]);
}

/* ---- which can be met -------------------------------------------------------------------------------------------- */

static bool shape_is_productive(spry_schema *schema, spry_shape *shape)
{
    switch (shape->kind) {
    case SPRY_SHAPE_ARRAY: return spry_array_is_productive(schema, shape);
    case SPRY_SHAPE_OBJECT: return spry_object_is_productive(schema, shape);
    default: return !spry_shape_is_dead(schema, shape, 0);
    }
}

static bool goal_is_productive(spry_schema *schema, const spry_goal *goal)
{
    for (size_t i = 0; i < goal->shapes->count; i++)
        if (shape_is_productive(schema, goal->shapes->items[i]))
            return true;
    return false;
}

/* Goals found later are usually inside those found earlier: the iteration runs backward and mostly needs two passes. */
static void find_productive(spry_schema *schema)
{
    for (bool changed = true; changed && !spry_schema_failed(schema);) {
        changed = false;
        for (size_t i = schema->n_wanted; i-- > 0;) {
            spry_goal *goal = schema->goals[schema->wanted[i]];
            if (goal->productive || !goal_is_productive(schema, goal))
                continue;
            goal->productive = changed = true;
        }
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static spry_ir_node write_shape(spry_schema *schema, spry_shape *shape)
{
    static const char *const words[] = {
        [SPRY_SHAPE_NULL] = "null", [SPRY_SHAPE_FALSE] = "false", [SPRY_SHAPE_TRUE] = "true"};
    switch (shape->kind) {
    case SPRY_SHAPE_ARRAY: return spry_array_write(schema, shape);
    case SPRY_SHAPE_OBJECT: return spry_object_write(schema, shape);
    case SPRY_SHAPE_NUMBER:
    case SPRY_SHAPE_STRING: return shape->node; /* written when it was found productive */
    default: return spry_ir_literal(schema->ir, spry_view_of(words[shape->kind]));
    }
}

enum { RULE_NAME = 48 };

static spry_view rule_name(const spry_schema *schema, char room[RULE_NAME], uint32_t goal)
{
    return (spry_view){room, (size_t)snprintf(room, RULE_NAME, "json schema %zu.%u", schema->serial, goal)};
}

spry_ir_node spry_goal_node(spry_schema *schema, uint32_t goal)
{
    char room[RULE_NAME];
    return spry_ir_rule(schema->ir, rule_name(schema, room, goal));
}

static void write_goal(spry_schema *schema, uint32_t number)
{
    const spry_shapes *shapes = schema->goals[number]->shapes;
    spry_ir_node *nodes = spry_schema_alloc(schema, shapes->count, sizeof *nodes);
    size_t count = 0;
    for (size_t i = 0; nodes && i < shapes->count && !spry_schema_failed(schema); i++)
        if (shape_is_productive(schema, shapes->items[i]))
            nodes[count++] = write_shape(schema, shapes->items[i]);
    char room[RULE_NAME];
    if (nodes)
        spry_ir_define(schema->ir, rule_name(schema, room, number), spry_ir_choice(schema->ir, nodes, count));
}

spry_ir_node spry_schema_write(spry_schema *schema, spry_claim claim)
{
    spry_claims claims = spry_claims_add(schema, (spry_claims){NULL, 0}, claim);
    uint32_t root = spry_schema_goal(schema, claims);
    for (size_t i = 0; i < schema->n_wanted && !spry_schema_failed(schema); i++)
        lay_out_goal(schema, schema->wanted[i]); /* may add further goals */
    find_productive(schema);
    if (!spry_schema_failed(schema) && !schema->goals[root]->productive)
        spry_schema_refuse(schema, SPRY_ERR_INPUT, NULL, NULL, "no JSON value at all is valid against it");
    for (size_t i = 0; i < schema->n_wanted && !spry_schema_failed(schema); i++)
        if (schema->goals[schema->wanted[i]]->productive)
            write_goal(schema, schema->wanted[i]);
    return spry_schema_failed(schema) ? SPRY_IR_NONE : spry_goal_node(schema, root);
}
