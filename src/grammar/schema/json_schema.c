/* The entry point for JSON schemas. schema.h describes the whole conversion. */
#include "grammar/schema/schema.h"

#include "base/buffer.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *spry_schema_alloc(spry_schema *schema, size_t count, size_t size)
{
    void *memory = spry_arena_alloc(&schema->arena, count ? count : 1, size);
    spry_ir_spend(schema->ir, 16 + count * size / 8); /* what is done with the memory takes about as long */
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

/* ---- saying where ------------------------------------------------------------------------------------------------ */

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

/* The blanks of the style. */
static void init_gaps(spry_schema *schema)
{
    spry_ir *ir = schema->ir;
    spry_ir_node space = spry_ir_repeat(ir, spry_ir_literal(ir, SPRY_VIEW(" ")), 0, 1), empty = spry_ir_empty(ir);
    bool compact = schema->style == SPRY_JSON_COMPACT, pretty = schema->style == SPRY_JSON_PRETTY;
    schema->gap = compact ? empty : pretty ? spry_json_line(ir) : spry_json_gap(ir);
    schema->empty_gap = pretty ? empty : schema->gap;
    spry_ir_node comma[] = {spry_ir_literal(ir, SPRY_VIEW(",")), compact ? space : schema->gap};
    schema->comma = spry_ir_sequence(ir, comma, 2);
    spry_ir_node behind = pretty ? spry_ir_literal(ir, SPRY_VIEW(" ")) : space;
    spry_ir_node colon[] = {compact || pretty ? empty : space, spry_ir_literal(ir, SPRY_VIEW(":")), behind};
    schema->colon = spry_ir_sequence(ir, colon, 3);
}

spry_ir_node spry_ir_json_written(spry_ir *ir, spry_view text, spry_json_style style)
{
    spry_schema schema;
    spry_ir_node node = SPRY_IR_NONE;
    init(&schema, ir, style);
    init_gaps(&schema);
    if (!spry_schema_failed(&schema))
        spry_schema_read(&schema, text);
    if (!spry_schema_failed(&schema))
        node = spry_schema_write(&schema, spry_claim_of(0, 0));
    deinit(&schema);
    return node;
}

spry_ir_node spry_ir_json_schema(spry_ir *ir, spry_view text)
{
    return spry_ir_json_written(ir, text, SPRY_JSON_ANY);
}

spry_ir_node spry_ir_json_object(spry_ir *ir, spry_json_style style)
{
    return spry_ir_json_written(ir, SPRY_VIEW("{\"type\":\"object\"}"), style);
}
