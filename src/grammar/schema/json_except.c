/* All strings except a list: the complement is built along the trie of the excluded texts. This avoids determinisation,
 * so that a thousand declared names are cheap. */
#include "grammar/schema/schema.h"

#include "base/utf8.h"
#include "grammar/schema/json_spelling.h"
#include "grammar/source/code_ranges.h"

#include <stdlib.h>

static int by_text(const void *a, const void *b)
{
    const spry_view *x = a, *y = b;
    size_t shared = x->size < y->size ? x->size : y->size;
    int order = shared ? memcmp(x->data, y->data, shared) : 0;
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* The character at byte `depth`; returns its length, 0 at the end of the text. */
static size_t character_at(uint32_t *character, spry_view text, size_t depth)
{
    return depth < text.size ? spry_utf8_decode(character, text.data + depth, text.size - depth) : 0;
}

/* Two sets of texts, both with a common prefix of `depth` bytes with some sorted texts. Their union, with any suffix
 * appended to the first set, is all texts except the sorted ones. */
typedef struct beginnings {
    spry_ir_node parting; /* up to the first character that differs from every text */
    spry_ir_node ending;  /* proper prefixes that are not in the list */
} beginnings;

/* The recursion depth is the length of the longest text, which is bounded. */
static beginnings begin(spry_schema *schema, const spry_view *texts, size_t count, size_t depth)
{
    spry_ir *ir = schema->ir;
    beginnings out = {SPRY_IR_NONE, SPRY_IR_NONE};
    size_t n = 0, n_ranges = 0;
    spry_ir_node *parting = spry_schema_alloc(schema, count + 1, sizeof *parting);
    spry_ir_node *ending = spry_schema_alloc(schema, count + 1, sizeof *ending);
    spry_code_range *taken = spry_schema_alloc(schema, count + 1, sizeof *taken);
    spry_code_range *others = spry_schema_alloc(schema, count + 2, sizeof *others);
    if (!parting || !ending || !taken || !others)
        return out;
    bool may_end = count == 0 || texts->size != depth;
    while (count > 0 && texts->size == depth)
        texts++, count--;
    for (size_t i = 0, end; i < count; i = end) {
        uint32_t character = 0, next = 0;
        size_t size = character_at(&character, texts[i], depth);
        for (end = i + 1; end < count && character_at(&next, texts[end], depth) == size && next == character;)
            end++;
        beginnings behind = begin(schema, texts + i, end - i, depth + (size ? size : 1));
        spry_ir_node step = spry_json_spell_class(ir, &(spry_code_range){character, character}, 1);
        taken[n_ranges++] = (spry_code_range){character, character};
        parting[n] = spry_ir_sequence(ir, (spry_ir_node[]){step, behind.parting}, 2);
        ending[n++] = spry_ir_sequence(ir, (spry_ir_node[]){step, behind.ending}, 2);
    }
    n_ranges = spry_code_ranges_normalize(taken, n_ranges);
    n_ranges = spry_code_ranges_invert(others, taken, n_ranges);
    parting[n] = spry_json_spell_class(ir, others, n_ranges);
    ending[n] = may_end ? spry_ir_empty(ir) : spry_ir_never(ir);
    out.parting = spry_ir_choice(ir, parting, n + 1);
    out.ending = spry_ir_choice(ir, ending, n + 1);
    return out;
}

static spry_ir_node except(spry_schema *schema, spry_view *texts, size_t count)
{
    spry_ir *ir = schema->ir;
    if (schema->any_string == SPRY_IR_NONE)
        schema->any_string = spry_ir_repeat(ir, spry_json_any_character(ir, false), 0, SPRY_IR_UNBOUNDED);
    spry_ir_node anything = schema->any_string;
    if (count == 0)
        return anything;
    qsort(texts, count, sizeof *texts, by_text);
    beginnings out = begin(schema, texts, count, 0);
    spry_ir_node parted = spry_ir_sequence(ir, (spry_ir_node[]){out.parting, anything}, 2);
    return spry_ir_choice(ir, (spry_ir_node[]){parted, out.ending}, 2);
}

spry_ir_node spry_strings_except(spry_schema *schema, const json_t *const *values, size_t count)
{
    spry_view *texts = spry_schema_alloc(schema, count, sizeof *texts);
    if (!texts)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < count; i++) {
        texts[i] = (spry_view){json_string_value(values[i]), json_string_length(values[i])};
        if (texts[i].size > SPRY_SCHEMA_NAME_MAX) {
            spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, values[i], NULL,
                               "has more than %d bytes, too many to be excluded", SPRY_SCHEMA_NAME_MAX);
            return SPRY_IR_NONE;
        }
    }
    return except(schema, texts, count);
}

spry_ir_node spry_names_except(spry_schema *schema, const spry_layout_name *names, size_t count)
{
    spry_view *texts = spry_schema_alloc(schema, count, sizeof *texts);
    if (!texts)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < count; i++)
        texts[i] = spry_view_of(names[i].name);
    return except(schema, texts, count);
}
