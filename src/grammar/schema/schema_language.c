/* Cached operations on sets of spellings: automata are expensive, and schemas repeat themselves. */
#include "grammar/schema/schema.h"

#include "base/buffer.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"

/* Caches a result for some nodes; without memory it is computed again. */
static void keep(spry_schema *schema, spry_map *map, const spry_ir_node *nodes, size_t count, uint32_t answer)
{
    spry_ir_node *key = spry_arena_alloc(&schema->arena, count, sizeof *key);
    bool added;
    if (!key)
        return;
    memcpy(key, nodes, count * sizeof *key);
    (void)spry_map_add(map, (spry_view){(const char *)key, count * sizeof *key}, answer, &added);
}

spry_ir_node spry_schema_limited(spry_schema *schema, spry_ir_node text, uint32_t min, uint32_t max)
{
    spry_ir_node key[] = {text, min, max}, node;
    if (spry_map_find(&schema->limited_index, (spry_view){(const char *)key, sizeof key}, &node))
        return node;
    node = spry_ir_limited(schema->ir, text, spry_json_any_character(schema->ir, false), min, max);
    if (node != SPRY_IR_NONE)
        keep(schema, &schema->limited_index, key, 3, node);
    return node;
}

/* A text in its spelling with the fewest escapes. */
static void spell_text(spry_buffer *out, spry_view text)
{
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte == '"' || byte == '\\')
            spry_buffer_format(out, "\\%c", byte);
        else if (byte < 0x20)
            spry_buffer_format(out, "\\u%04x", byte);
        else
            spry_buffer_append(out, text.data + i, 1);
    }
}

/* The state after a byte; UINT32_MAX when there is none. */
static uint32_t next_state(const spry_automaton *automaton, uint32_t state, unsigned char byte)
{
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++)
        if (automaton->edges[i].first <= byte && byte <= automaton->edges[i].last)
            return automaton->edges[i].target;
    return UINT32_MAX;
}

bool spry_schema_accepts(spry_schema *schema, spry_ir_node language, spry_view text)
{
    spry_ir_node node = spry_ir_intersect(schema->ir, language, spry_strings_except(schema, NULL, 0));
    if (spry_schema_failed(schema) || schema->ir->nodes[node].kind != SPRY_IR_AUTOMATON)
        return false; /* an intersection that is not an automaton is empty */
    const spry_automaton *automaton = &schema->ir->automata[schema->ir->nodes[node].a];
    spry_buffer spelled;
    spry_buffer_init(&spelled, 8 * SPRY_SCHEMA_NAME_MAX);
    spell_text(&spelled, text);
    uint32_t state = automaton->n_states ? 0 : UINT32_MAX;
    for (size_t i = 0; i < spelled.size && state != UINT32_MAX; i++)
        state = next_state(automaton, state, (unsigned char)spelled.data[i]);
    if (spelled.failed)
        spry_ir_fail(schema->ir, SPRY_ERR_UNSUPPORTED, "the text \"%.40s...\" is too long", text.data);
    spry_buffer_deinit(&spelled);
    return state != UINT32_MAX && automaton->tags[state];
}
