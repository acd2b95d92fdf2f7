/* Compiles source text of any kind to a grammar. */
#include <jansson.h>
#include <stdlib.h>

#include "grammar/grammar.h"
#include "grammar/source/tool_grammar.h"

enum { SOURCE_BYTES_MAX = 1 << 24 };

bool spry_grammar_kind_of(spry_grammar_kind *kind, spry_constraint constraint)
{
    static const spry_grammar_kind kinds[] = {[SPRY_GBNF] = SPRY_GRAMMAR_GBNF,
                                              [SPRY_JSON_SCHEMA] = SPRY_GRAMMAR_JSON_SCHEMA,
                                              [SPRY_REGEX] = SPRY_GRAMMAR_REGEX,
                                              [SPRY_CHOICE] = SPRY_GRAMMAR_CHOICE,
                                              [SPRY_JSON_OBJECT] = SPRY_GRAMMAR_JSON_OBJECT,
                                              [SPRY_TOOL_CALLS] = SPRY_GRAMMAR_TOOL_CALLS};
    if (constraint == SPRY_ANY_TEXT || (size_t)constraint >= SPRY_COUNT(kinds))
        return false;
    *kind = kinds[constraint];
    return true;
}

static spry_ir_node read_choice(spry_ir *ir, spry_view source)
{
    json_error_t wrong;
    json_t *list = json_loadb(source.data, source.size, JSON_ALLOW_NUL, &wrong);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        json_decref(list);
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "a choice is a JSON array of at least one string");
    }
    size_t count = json_array_size(list);
    spry_ir_node *nodes = malloc(count * sizeof *nodes), node = SPRY_IR_NONE;
    if (!nodes)
        spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for %zu choices", count);
    for (size_t i = 0; nodes && i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            spry_ir_fail(ir, SPRY_ERR_INPUT, "item %zu of the choices is not a string", i + 1);
        nodes[i] = json_is_string(item)
                       ? spry_ir_literal(ir, (spry_view){json_string_value(item), json_string_length(item)})
                       : SPRY_IR_NONE;
    }
    if (!spry_ir_status(ir, NULL))
        node = spry_ir_choice(ir, nodes, count);
    free(nodes);
    json_decref(list);
    return node;
}

static spry_ir_node read_source(spry_ir *ir, spry_grammar_kind kind, spry_json_style style, spry_view source)
{
    switch (kind) {
    case SPRY_GRAMMAR_GBNF: return spry_ir_gbnf(ir, source);
    case SPRY_GRAMMAR_JSON_SCHEMA: return spry_ir_json_written(ir, source, style);
    case SPRY_GRAMMAR_REGEX: return spry_ir_regex(ir, source, false);
    case SPRY_GRAMMAR_CHOICE: return read_choice(ir, source);
    case SPRY_GRAMMAR_JSON_OBJECT: return spry_ir_json_object(ir, style);
    case SPRY_GRAMMAR_TOOL_CALLS: return spry_ir_tool_calls(ir, source);
    }
    return spry_ir_fail(ir, SPRY_ERR_INPUT, "a grammar of an unknown kind");
}

spry_status spry_grammar_create(spry_grammar **out, spry_grammar_kind kind, spry_view source, spry_error *error)
{
    return spry_grammar_create_styled(out, kind, SPRY_JSON_ANY, source, error);
}

spry_status spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                       spry_view source, spry_error *error)
{
    *out = NULL;
    if (source.size > SOURCE_BYTES_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "the grammar has %zu bytes; at most %d are taken", source.size,
                         SOURCE_BYTES_MAX);
    spry_ir *ir;
    spry_status status = spry_ir_create(&ir, error);
    if (status)
        return status;
    spry_ir_node root = read_source(ir, kind, style, source);
    status = spry_grammar_from_ir(out, ir, root, error);
    spry_ir_destroy(ir);
    return status;
}
