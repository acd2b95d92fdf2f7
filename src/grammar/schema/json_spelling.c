/* The spellings of characters, and the whitespace between JSON tokens. */
#include "grammar/schema/json_spelling.h"

#include <stdlib.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "grammar/automaton/ir_automaton.h"
#include "grammar/ir/grammar_ir.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/schema.h"

/* ---- \uXXXX ------------------------------------------------------------------------------------------------------ */

static spry_ir_node hex_digits(spry_ir *ir, uint32_t first, uint32_t last)
{
    spry_code_range ranges[3];
    size_t count = 0;
    if (first < 10)
        ranges[count++] = (spry_code_range){'0' + first, '0' + (last < 9 ? last : 9)};
    if (last >= 10) {
        uint32_t from = first > 10 ? first - 10 : 0, to = last - 10;
        ranges[count++] = (spry_code_range){'a' + from, 'a' + to};
        ranges[count++] = (spry_code_range){'A' + from, 'A' + to};
    }
    return spry_ir_class(ir, ranges, count, false);
}

/* The hexadecimal numbers from first to last, written with exactly `digits` digits. */
static spry_ir_node hex_range(spry_ir *ir, uint32_t first, uint32_t last, unsigned digits)
{
    if (digits == 0)
        return spry_ir_empty(ir);
    unsigned shift = 4 * (digits - 1);
    uint32_t low = first >> shift, high = last >> shift, rest = (1u << shift) - 1;
    spry_ir_node choices[3];
    size_t count = 0;
    if (low == high) {
        spry_ir_node parts[] = {hex_digits(ir, low, low), hex_range(ir, first & rest, last & rest, digits - 1)};
        return spry_ir_sequence(ir, parts, 2);
    }
    if ((first & rest) != 0) {
        spry_ir_node parts[] = {hex_digits(ir, low, low), hex_range(ir, first & rest, rest, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        low++;
    }
    if ((last & rest) != rest) {
        spry_ir_node parts[] = {hex_digits(ir, high, high), hex_range(ir, 0, last & rest, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        high--;
    }
    if (low <= high) {
        spry_ir_node parts[] = {hex_digits(ir, low, high),
                                spry_ir_repeat(ir, hex_digits(ir, 0, 15), digits - 1, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
    }
    return spry_ir_choice(ir, choices, count);
}

static spry_ir_node unit_range(spry_ir *ir, uint32_t first, uint32_t last)
{
    spry_ir_node parts[] = {spry_ir_literal(ir, SPRY_VIEW("\\u")), hex_range(ir, first, last, 4)};
    return spry_ir_sequence(ir, parts, 2);
}

/* Surrogate pairs for a range above U+FFFF. */
static spry_ir_node pair_range(spry_ir *ir, uint32_t first, uint32_t last)
{
    first -= 0x10000, last -= 0x10000;
    uint32_t low = first >> 10, high = last >> 10;
    spry_ir_node choices[3];
    size_t count = 0;
    if (low == high || (first & 0x3FF) != 0) {
        uint32_t end = low == high ? last & 0x3FF : 0x3FF;
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + low, 0xD800 + low),
                                unit_range(ir, 0xDC00 + (first & 0x3FF), 0xDC00 + end)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        if (low == high)
            return choices[0];
        low++;
    }
    if ((last & 0x3FF) != 0x3FF) {
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + high, 0xD800 + high),
                                unit_range(ir, 0xDC00, 0xDC00 + (last & 0x3FF))};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        high--;
    }
    if (low <= high) {
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + low, 0xD800 + high), unit_range(ir, 0xDC00, 0xDFFF)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
    }
    return spry_ir_choice(ir, choices, count);
}

/* ---- one character ----------------------------------------------------------------------------------------------- */

static const struct {
    char character;
    char escape[3];
} short_escapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'/', "\\/"},  {'\b', "\\b"},
                     {'\f', "\\f"}, {'\n', "\\n"},  {'\r', "\\r"}, {'\t', "\\t"}};

/* The allowed spellings by range, in order: the character itself, \uXXXX, surrogate pairs. */
static const struct {
    spry_code_range range;
    enum { PLAIN, UNIT, PAIR } how;
} manners[] = {
    {{0x20, 0x21}, PLAIN}, {{0x23, 0x5B}, PLAIN},  {{0x5D, 0xD7FF}, PLAIN},  {{0xE000, 0x10FFFF}, PLAIN},
    {{0x00, 0x1F}, UNIT},  {{0x7F, 0xD7FF}, UNIT}, {{0xE000, 0xFFFF}, UNIT}, {{0x10000, 0x10FFFF}, PAIR},
};

/* The spellings of several ranges, collected to become one node. */
typedef struct spelling {
    spry_ir *ir;
    spry_code_range *plain;
    spry_ir_node *choices;
    size_t n_plain, n_choices;
} spelling;

static void spell_range(spelling *out, spry_code_range range)
{
    for (size_t i = 0; i < sizeof manners / sizeof *manners; i++) {
        spry_code_range cut = manners[i].range;
        cut.first = cut.first > range.first ? cut.first : range.first;
        cut.last = cut.last < range.last ? cut.last : range.last;
        if (cut.first > cut.last)
            continue;
        if (manners[i].how == PLAIN)
            out->plain[out->n_plain++] = cut;
        else if (manners[i].how == UNIT)
            out->choices[out->n_choices++] = unit_range(out->ir, cut.first, cut.last);
        else
            out->choices[out->n_choices++] = pair_range(out->ir, cut.first, cut.last);
    }
}

static bool has_character(const spry_code_range *ranges, size_t count, uint32_t character)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].first <= character && character <= ranges[i].last)
            return true;
    return false;
}

/* One character of the ranges (any order), without quotes. */
static spry_ir_node spell_class(spry_ir *ir, const spry_code_range *ranges, size_t count)
{
    enum { MANNERS = sizeof manners / sizeof *manners, SHORT = sizeof short_escapes / sizeof *short_escapes };
    if (count == 0)
        return spry_ir_never(ir);
    spelling out = {.ir = ir,
                    .plain = calloc(count * MANNERS, sizeof *out.plain),
                    .choices = calloc(count * MANNERS + SHORT + 1, sizeof *out.choices)};
    spry_ir_node node = SPRY_IR_NONE;
    if (out.plain && out.choices) {
        for (size_t i = 0; i < count; i++)
            spell_range(&out, ranges[i]);
        for (size_t i = 0; i < SHORT; i++)
            if (has_character(ranges, count, (unsigned char)short_escapes[i].character))
                out.choices[out.n_choices++] = spry_ir_literal(ir, spry_view_of(short_escapes[i].escape));
        if (out.n_plain)
            out.choices[out.n_choices++] = spry_ir_class(ir, out.plain, out.n_plain, false);
        node = spry_ir_choice(ir, out.choices, out.n_choices);
    } else {
        spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a class of %zu ranges", count);
    }
    free(out.plain);
    free(out.choices);
    return node;
}

spry_ir_node spry_json_any_character(spry_ir *ir, bool escapes)
{
    spry_ir_node plain = spell_class(ir, &(spry_code_range){0, SPRY_CODE_LAST}, 1);
    if (!escapes)
        return plain;
    return spry_ir_choice(ir, (spry_ir_node[]){plain, unit_range(ir, 0x20, 0x7E)}, 2);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Whether the byte itself is its only spelling. */
static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/';
}

/* The next part of a text: a run of plain bytes, or one character. Moves *at past it. */
static spry_ir_node spell_part(spry_ir *ir, spry_view text, size_t *at)
{
    size_t begin = *at;
    while (*at < text.size && is_plain(text.data[*at]))
        ++*at;
    if (*at > begin)
        return spry_ir_literal(ir, (spry_view){text.data + begin, *at - begin});
    uint32_t character;
    size_t size = spry_utf8_decode(&character, text.data + begin, text.size - begin);
    *at = size ? begin + size : text.size;
    if (size == 0)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "a text of the JSON schema is not valid UTF-8");
    return spell_class(ir, &(spry_code_range){character, character}, 1);
}

spry_ir_node spry_json_spell_text(spry_ir *ir, spry_view text)
{
    spry_ir_node *parts = malloc((text.size + 1) * sizeof *parts);
    size_t count = 0;
    if (!parts)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a text of %zu bytes", text.size);
    for (size_t at = 0; at < text.size;)
        parts[count++] = spell_part(ir, text, &at);
    spry_ir_node whole = spry_ir_sequence(ir, parts, count);
    free(parts);
    return whole;
}

spry_ir_node spry_json_spell_usual(spry_ir *ir, spry_view text)
{
    spry_buffer out;
    spry_buffer_init(&out, 6 * text.size + 1);
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        const char *escape = NULL;
        for (size_t k = 0; k < sizeof short_escapes / sizeof *short_escapes; k++)
            if (byte == (unsigned char)short_escapes[k].character && byte != '/')
                escape = short_escapes[k].escape;
        if (escape)
            spry_buffer_text(&out, escape);
        else if (byte < 0x20)
            spry_buffer_format(&out, "\\u%04x", byte);
        else
            spry_buffer_append(&out, text.data + i, 1);
    }
    spry_ir_node node = out.failed
                            ? spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a text of %zu bytes", text.size)
                            : spry_ir_literal(ir, spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return node;
}

/* ---- blanks ------------------------------------------------------------------------------------------------------ */

enum { INDENT_MAX = 40 };

spry_ir_node spry_json_gap(spry_ir *ir)
{
    spry_ir_node space = spry_ir_literal(ir, SPRY_VIEW(" "));
    spry_ir_node blank = spry_ir_class(ir, (spry_code_range[]){{' ', ' '}, {'\t', '\t'}}, 2, false);
    spry_ir_node line[] = {spry_ir_repeat(ir, spry_ir_literal(ir, SPRY_VIEW("\r")), 0, 1),
                           spry_ir_literal(ir, SPRY_VIEW("\n")), spry_ir_repeat(ir, blank, 0, INDENT_MAX)};
    spry_ir_node gap[] = {spry_ir_empty(ir), space, spry_ir_sequence(ir, line, 3)};
    return spry_ir_choice(ir, gap, 3);
}

spry_ir_node spry_json_line(spry_ir *ir)
{
    spry_ir_node space = spry_ir_literal(ir, SPRY_VIEW(" "));
    return spry_ir_sequence(
        ir, (spry_ir_node[]){spry_ir_literal(ir, SPRY_VIEW("\n")), spry_ir_repeat(ir, space, 0, INDENT_MAX)}, 2);
}

spry_ir_node spry_json_prose(spry_ir *ir)
{
    static const spry_code_range others[] = {{0, '\n' - 1}, {'\n' + 1, ' ' - 1}, {' ' + 1, SPRY_CODE_LAST}};
    spry_ir_node blank = spry_ir_literal(ir, SPRY_VIEW(" ")), blanks = spry_ir_repeat(ir, blank, 0, 1);
    spry_ir_node line[] = {spry_ir_literal(ir, SPRY_VIEW("\\n")), spry_ir_repeat(ir, blank, 0, SPRY_JSON_INDENT_MAX)};
    spry_ir_node either[] = {spell_class(ir, others, 3), spry_ir_sequence(ir, line, 2)};
    spry_ir_node round[] = {blanks, spry_ir_choice(ir, either, 2)};
    spry_ir_node rounds = spry_ir_repeat(ir, spry_ir_sequence(ir, round, 2), 0, SPRY_IR_UNBOUNDED);
    return spry_ir_sequence(ir, (spry_ir_node[]){rounds, blanks}, 2);
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

/* Converts a pattern to the JSON spelling of its texts: every character is replaced by its spellings. */

/* ---- patterns that are automata ---------------------------------------------------------------------------------- */

/* The characters that lead from one state of an automaton over UTF-8 to another. */
typedef struct step {
    uint32_t target;
    spry_code_range range;
} step;

typedef struct steps {
    step *items;
    size_t count, room, visits;
    bool failed;
} steps;

static void add_step(steps *out, uint32_t target, uint32_t first, uint32_t last)
{
    step *before = out->count ? &out->items[out->count - 1] : NULL;
    if (before && before->target == target && before->range.last + 1 == first) {
        before->range.last = last;
        return;
    }
    if (!spry_grow(&out->items, &out->room, out->count + 1, sizeof *out->items)) {
        out->failed = true;
        return;
    }
    out->items[out->count++] = (step){target, {first, last}};
}

/* The state to which all texts of `missing` continuation bytes lead, if it is only one; otherwise UINT32_MAX. */
static uint32_t common_target(const spry_automaton *automaton, uint32_t state, unsigned missing)
{
    if (!automaton->deterministic)
        return UINT32_MAX;
    for (; missing && state != UINT32_MAX; missing--) {
        uint32_t i = automaton->first_edge[state], end = automaton->first_edge[state + 1];
        while (i < end && automaton->edges[i].last < 0xBF)
            i++;
        state = i < end && automaton->edges[i].first <= 0x80 ? automaton->edges[i].target : UINT32_MAX;
    }
    return state;
}

/* Follows the remaining `missing` bytes of a character. */
static void walk(steps *out, const spry_automaton *automaton, uint32_t state, uint32_t character, unsigned missing)
{
    uint32_t common = common_target(automaton, state, missing);
    out->visits++;
    if (common != UINT32_MAX) {
        add_step(out, common, character << 6 * missing, ((character + 1) << 6 * missing) - 1);
        return;
    }
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1] && !out->failed; i++) {
        spry_edge edge = automaton->edges[i];
        if (edge.last < 0x80 || edge.first > 0xBF)
            continue;
        uint32_t first = edge.first > 0x80 ? edge.first - 0x80u : 0, last = edge.last < 0xBF ? edge.last - 0x80u : 0x3F;
        if (missing == 1) {
            add_step(out, edge.target, character << 6 | first, character << 6 | last);
            continue;
        }
        for (uint32_t low = first; low <= last; low++)
            walk(out, automaton, edge.target, character << 6 | low, missing - 1);
    }
}

static int by_target(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->range.first > y->range.first) - (x->range.first < y->range.first);
}

/* Finds all characters that have a transition from a state at a character boundary. */
static void find_steps(steps *out, const spry_automaton *automaton, uint32_t state)
{
    out->count = out->visits = 0;
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++) {
        spry_edge edge = automaton->edges[i];
        if (edge.first < 0x80)
            add_step(out, edge.target, edge.first, edge.last < 0x7F ? edge.last : 0x7F);
        for (uint32_t byte = edge.first > 0xC2 ? edge.first : 0xC2; byte <= edge.last && byte <= 0xF4; byte++) {
            unsigned missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
            walk(out, automaton, edge.target, byte & (0x3Fu >> missing), missing);
        }
    }
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_target);
}

/* Adds an edge for each target, with the spellings of its characters. */
static void spell_steps(spry_ir *ir, spry_ir_nfa *build, const steps *all, uint32_t state)
{
    for (size_t i = 0, end; i < all->count; i = end) {
        spry_code_range *ranges = malloc(all->count * sizeof *ranges);
        if (!ranges) {
            spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
            return;
        }
        for (end = i; end < all->count && all->items[end].target == all->items[i].target; end++)
            ranges[end - i] = all->items[end].range;
        spry_ir_node spelled = spell_class(ir, ranges, end - i);
        free(ranges);
        if (spelled != SPRY_IR_NONE)
            spry_ir_nfa_write(build, spelled, state, all->items[i].target, true);
    }
}

static spry_ir_node respell_automaton(spry_ir *ir, uint32_t number)
{
    spry_nfa nfa;
    spry_ir_nfa build = {.nfa = &nfa, .ir = ir};
    steps all = {0};
    spry_automaton spelled = {0};
    uint32_t n_states = ir->automata[number].n_states;
    spry_nfa_init(&nfa, (size_t)1 << 18);
    nfa.spent = ir->spent;
    for (uint32_t i = 0; i < n_states + !n_states; i++)
        spry_nfa_state_add(&nfa);
    for (uint32_t i = 0; i < n_states && !nfa.result && !all.failed && !ir->error.status; i++) {
        nfa.states[i].tag = ir->automata[number].tags[i];
        find_steps(&all, &ir->automata[number], i);
        spry_ir_spend(ir, 8 * (all.count + all.visits + 1));
        spell_steps(ir, &build, &all, i);
    }
    spry_automaton_result result = all.failed ? SPRY_AUTOMATON_NO_MEMORY : SPRY_AUTOMATON_TOO_LARGE;
    if (!all.failed && !ir->error.status)
        result = spry_automaton_make(&spelled, &nfa, SPRY_DFA_STATES_MAX);
    free(all.items);
    spry_nfa_deinit(&nfa);
    if (result == SPRY_AUTOMATON_OK)
        return spry_ir_take_automaton(ir, &spelled);
    spry_automaton_deinit(&spelled);
    return spry_ir_too_large(ir, result, "spelling");
}

/* ---- patterns that are trees of nodes ---------------------------------------------------------------------------- */

static spry_ir_node respell(spry_ir *ir, spry_ir_node node, spry_ir_node *done);

/* Copies the children first, because creating nodes moves the arrays. */
static spry_ir_node respell_children(spry_ir *ir, spry_ir_entry entry, spry_ir_node *done)
{
    spry_ir_node *children = malloc((entry.b + 1) * sizeof *children);
    if (!children)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    for (uint32_t i = 0; i < entry.b; i++)
        children[i] = ir->children[entry.a + i];
    for (uint32_t i = 0; i < entry.b; i++)
        children[i] = respell(ir, children[i], done);
    spry_ir_node node = entry.kind == SPRY_IR_SEQUENCE ? spry_ir_sequence(ir, children, entry.b)
                                                       : spry_ir_choice(ir, children, entry.b);
    free(children);
    return node;
}

static spry_ir_node respell_class(spry_ir *ir, spry_ir_entry entry)
{
    spry_code_range *ranges = malloc((entry.b + 1) * sizeof *ranges);
    if (!ranges)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    memcpy(ranges, ir->ranges + entry.a, entry.b * sizeof *ranges);
    spry_ir_node node = spell_class(ir, ranges, entry.b);
    free(ranges);
    return node;
}

static spry_ir_node respell_literal(spry_ir *ir, spry_ir_entry entry)
{
    char *bytes = malloc(entry.b + 1);
    if (!bytes)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    memcpy(bytes, ir->bytes + entry.a, entry.b);
    spry_ir_node node = spry_json_spell_text(ir, (spry_view){bytes, entry.b});
    free(bytes);
    return node;
}

/* Converts a node. `done` holds the results, so that a node used in many places is converted once. */
static spry_ir_node respell(spry_ir *ir, spry_ir_node node, spry_ir_node *done)
{
    if (spry_ir_status(ir, NULL) != SPRY_OK || done[node] != SPRY_IR_NONE)
        return spry_ir_status(ir, NULL) != SPRY_OK ? SPRY_IR_NONE : done[node];
    spry_ir_entry entry = ir->nodes[node];
    switch ((spry_ir_kind)entry.kind) {
    case SPRY_IR_EMPTY:
    case SPRY_IR_NEVER: done[node] = node; break;
    case SPRY_IR_LITERAL: done[node] = respell_literal(ir, entry); break;
    case SPRY_IR_CLASS: done[node] = respell_class(ir, entry); break;
    case SPRY_IR_SEQUENCE:
    case SPRY_IR_CHOICE: done[node] = respell_children(ir, entry, done); break;
    case SPRY_IR_REPEAT: done[node] = spry_ir_repeat(ir, respell(ir, entry.a, done), entry.b, entry.c); break;
    case SPRY_IR_AUTOMATON: done[node] = respell_automaton(ir, entry.a); break;
    default: return spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED, "a pattern uses what cannot be spelled in a JSON string");
    }
    return done[node];
}

spry_ir_node spry_json_respell(spry_ir *ir, spry_ir_node node)
{
    if (spry_ir_status(ir, NULL) != SPRY_OK || node >= ir->n_nodes)
        return SPRY_IR_NONE;
    size_t count = (size_t)node + 1; /* children have smaller numbers */
    spry_ir_node *done = malloc(count * sizeof *done);
    if (!done)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    for (size_t i = 0; i < count; i++)
        done[i] = SPRY_IR_NONE;
    node = respell(ir, node, done);
    free(done);
    return node;
}

/* ---- all strings except a list of them --------------------------------------------------------------------------- */

/* All strings except a list: the complement is built along the trie of the excluded texts. This avoids determinisation,
 * so that a thousand declared names are cheap. */

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

/* Sets of texts that begin with the `depth` bytes that some sorted texts have in common. The union of `ending` and of
 * `parting` with any suffix is all such texts except the sorted ones. */
typedef struct beginnings {
    spry_ir_node parting; /* texts up to the first character that differs from every sorted text */
    spry_ir_node ending;  /* proper prefixes of sorted texts that are not sorted texts themselves */
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
        beginnings tail = begin(schema, texts + i, end - i, depth + (size ? size : 1));
        spry_ir_node spelled = spell_class(ir, &(spry_code_range){character, character}, 1);
        taken[n_ranges++] = (spry_code_range){character, character};
        parting[n] = spry_ir_sequence(ir, (spry_ir_node[]){spelled, tail.parting}, 2);
        ending[n++] = spry_ir_sequence(ir, (spry_ir_node[]){spelled, tail.ending}, 2);
    }
    n_ranges = spry_code_ranges_normalize(taken, n_ranges);
    n_ranges = spry_code_ranges_invert(others, taken, n_ranges);
    parting[n] = spell_class(ir, others, n_ranges);
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

/* ---- cached operations ------------------------------------------------------------------------------------------- */

/* Cached operations on sets of spellings: automata are expensive, and schemas repeat themselves. */

/* Caches a result for some nodes. When memory is short it is not cached and computed again later. */
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

/* Writes a text with the fewest escapes. */
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
        return false; /* an intersection that is not an automaton matches nothing */
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
