/* The entry point for JSON schemas. schema.h describes the whole conversion. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"
#include "grammar/schema/schema.h"

/* ---- goals ------------------------------------------------------------------------------------------------------- */

/* Goals: sets of claims about one value (schema.h). They are found one after the other; goals that no finite text
 * satisfies are dropped, and each of the others becomes a rule. */

/* ---- finding goals ----------------------------------------------------------------------------------------------- */

/* True for a claim that every value satisfies. */
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
    for (size_t i = 1; i < claims.count; i++) /* claims are sorted, so a claim and its opposite are neighbours */
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

/* ---- which goals some text satisfies ----------------------------------------------------------------------------- */

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

/* A goal found later is usually nested in goals found earlier, so the iteration runs backward and usually needs two
 * passes. */
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

/* ---- writing goals as rules -------------------------------------------------------------------------------------- */

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

/* The complete conversion from a claim to the node that matches it. */
static spry_ir_node schema_write(spry_schema *schema, spry_claim claim)
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

/* ---- the entry point --------------------------------------------------------------------------------------------- */

void *spry_schema_alloc(spry_schema *schema, size_t count, size_t size)
{
    void *memory = spry_arena_alloc(&schema->arena, count ? count : 1, size);
    spry_ir_spend(schema->ir, 16 + count * size / 8); /* the work on this memory takes about as long as this much work
                                                       * on automata */
    if (!memory)
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    if (schema->arena.total > SPRY_SCHEMA_MEMORY_MAX)
        spry_ir_fail(schema->ir, SPRY_ERR_UNSUPPORTED, "the JSON schema takes more than %d MiB to work out",
                     SPRY_SCHEMA_MEMORY_MAX >> 20);
    return spry_schema_failed(schema) ? NULL : memory;
}

bool spry_schema_failed(const spry_schema *schema)
{
    return spry_ir_status(schema->ir, NULL) != SPRY_OK;
}

/* ---- paths for messages ------------------------------------------------------------------------------------------ */

static void append_step(spry_buffer *path, const char *step)
{
    spry_buffer_text(path, "/");
    for (; *step; step++)
        spry_buffer_text(path, *step == '~' ? "~0" : *step == '/' ? "~1" : (char[]){*step, 0});
}

/* Appends the JSON pointer from `from` to `what`; false when it is not inside. The parser limits the depth. */
static bool find_path(spry_buffer *path, const json_t *from, const json_t *what)
{
    if (from == what)
        return true;
    size_t before = path->size;
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)from, name, member)
    {
        append_step(path, name);
        if (find_path(path, member, what))
            return true;
        path->size = before;
    }
    for (size_t i = 0; i < json_array_size(from); i++) {
        spry_buffer_format(path, "/%zu", i);
        if (find_path(path, json_array_get(from, i), what))
            return true;
        path->size = before;
    }
    return false;
}

/* "JSON schema at PATH", or without a path when `where` is not in the schema. */
static void say_where(char *out, size_t size, const spry_schema *schema, const json_t *where, const char *keyword)
{
    spry_buffer path;
    spry_buffer_init(&path, 1 << 20);
    spry_buffer_text(&path, "#");
    bool found = where && find_path(&path, schema->root, where);
    if (found && keyword)
        append_step(&path, keyword);
    spry_view at = spry_buffer_view(&path);
    snprintf(out, size, found ? "JSON schema at %.*s" : "JSON schema", SPRY_VIEW_ARG(at));
    spry_buffer_deinit(&path);
}

void spry_schema_refuse(spry_schema *schema, spry_status status, const json_t *where, const char *keyword,
                        const char *format, ...)
{
    if (spry_schema_failed(schema))
        return;
    char what[280], place[220];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    say_where(place, sizeof place, schema, where, keyword);
    spry_ir_fail(schema->ir, status, "%s: %s", place, what);
}

void spry_schema_blame(spry_schema *schema, const json_t *where, const char *keyword)
{
    char place[220];
    if (!spry_schema_failed(schema) || strncmp(schema->ir->error.message, "JSON schema", 11) == 0)
        return;
    say_where(place, sizeof place, schema, where, keyword);
    spry_fail_prefix(&schema->ir->error, schema->ir->error.status, place);
}

bool spry_schema_excuse(spry_schema *schema)
{
    spry_error *why = &schema->ir->error;
    if (!schema->lenient || why->status != SPRY_ERR_UNSUPPORTED)
        return false;
    spry_ir_warn(schema->ir, why->message);
    *why = (spry_error){0};
    return true;
}

/* ---- the entry --------------------------------------------------------------------------------------------------- */

static void deinit(spry_schema *schema)
{
    json_decref(schema->root);
    json_decref(schema->made);
    spry_arena_deinit(&schema->arena);
    free(schema->places);
    free(schema->goals);
    free(schema->wanted);
    free(schema->bases);
    spry_map_deinit(&schema->place_index);
    spry_map_deinit(&schema->equal_index);
    spry_map_deinit(&schema->uris);
    spry_map_deinit(&schema->goal_index);
    spry_map_deinit(&schema->pattern_index);
    spry_map_deinit(&schema->limited_index);
}

static void init(spry_schema *schema, spry_ir *ir, spry_json_style style)
{
    *schema = (spry_schema){.ir = ir,
                            .serial = ir->n_rules,
                            .any_string = SPRY_IR_NONE,
                            .style = (spry_json_style)(style % SPRY_JSON_LENIENT),
                            .lenient = style >= SPRY_JSON_LENIENT};
    spry_arena_init(&schema->arena);
    spry_map_init(&schema->place_index);
    spry_map_init(&schema->equal_index);
    spry_map_init(&schema->uris);
    spry_map_init(&schema->goal_index);
    spry_map_init(&schema->pattern_index);
    spry_map_init(&schema->limited_index);
    schema->everything.items = spry_schema_alloc(schema, SPRY_SHAPE_KINDS, sizeof(spry_shape *));
    for (int kind = 0; schema->everything.items && kind < SPRY_SHAPE_KINDS; kind++) {
        spry_shape *shape = spry_shape_new(schema, (spry_shape_kind)kind);
        if (!shape)
            return;
        shape->any = true;
        schema->everything.items[schema->everything.count++] = shape;
    }
}

/* Creates the whitespace nodes of the style. */
static void init_gaps(spry_schema *schema)
{
    spry_ir *ir = schema->ir;
    spry_ir_node space = spry_ir_repeat(ir, spry_ir_literal(ir, SPRY_VIEW(" ")), 0, 1), empty = spry_ir_empty(ir);
    bool compact = schema->style == SPRY_JSON_COMPACT, pretty = schema->style == SPRY_JSON_PRETTY;
    schema->gap = compact ? empty : pretty ? spry_json_line(ir) : spry_json_gap(ir);
    schema->empty_gap = pretty ? empty : schema->gap;
    spry_ir_node comma[] = {spry_ir_literal(ir, SPRY_VIEW(",")), compact ? space : schema->gap};
    schema->comma = spry_ir_sequence(ir, comma, 2);
    spry_ir_node after_colon = pretty ? spry_ir_literal(ir, SPRY_VIEW(" ")) : space;
    spry_ir_node colon[] = {compact || pretty ? empty : space, spry_ir_literal(ir, SPRY_VIEW(":")), after_colon};
    schema->colon = spry_ir_sequence(ir, colon, 3);
}

spry_ir_node spry_ir_json_schema(spry_ir *ir, spry_view text, spry_json_style style)
{
    spry_schema schema;
    spry_ir_node node = SPRY_IR_NONE;
    init(&schema, ir, style);
    init_gaps(&schema);
    if (!spry_schema_failed(&schema))
        spry_schema_read(&schema, text);
    if (!spry_schema_failed(&schema))
        node = schema_write(&schema, spry_claim_of(0, 0));
    deinit(&schema);
    return node;
}

spry_ir_node spry_ir_json_object(spry_ir *ir, spry_json_style style)
{
    return spry_ir_json_schema(ir, SPRY_VIEW("{\"type\":\"object\"}"), style);
}
