/* GBNF, the grammar notation of llama.cpp: rules of alternatives of sequences of literals, classes, names and groups,
 * each with an optional repetition. A rule ends at the end of its line, except inside parentheses and after "|". */
#include "base/utf8.h"
#include "grammar/ir/grammar_ir.h"
#include "grammar/ir/grow.h"
#include "grammar/source/source_text.h"

enum { REPEATS_MAX = 1 << 24 };

typedef struct parser {
    spry_ir *ir;
    spry_source source;
    spry_ir_groups groups;
    spry_buffer literal;
    spry_code_range *ranges;
    size_t n_ranges, ranges_room;
} parser;

static bool is_name(int byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

/* Skips whitespace and comments; with `newlines` also line ends, where a rule may continue. */
static void skip_blanks(spry_source *source, bool newlines)
{
    for (;;) {
        int byte = spry_source_peek(source);
        if (byte == '#') {
            while (spry_source_peek(source) != -1 && spry_source_peek(source) != '\n')
                source->at++;
        } else if (byte == ' ' || byte == '\t' || byte == '\r' || (newlines && byte == '\n')) {
            source->at++;
        } else {
            return;
        }
    }
}

static spry_view read_name(spry_source *source)
{
    size_t begin = source->at;
    while (is_name(spry_source_peek(source)))
        source->at++;
    return (spry_view){source->text.data + begin, source->at - begin};
}

/* Reads one character of a literal or class and decodes escapes; false when the builder failed. */
static bool read_character(parser *state, uint32_t *character)
{
    static const char from[] = "nrt\\\"[]-^'", to[] = "\n\r\t\\\"[]-^'";
    spry_source *source = &state->source;
    if (spry_source_peek(source) != '\\')
        return spry_source_character(source, state->ir, character);
    source->at++;
    int byte = spry_source_peek(source);
    const char *simple = byte > 0 ? strchr(from, byte) : NULL;
    if (simple) {
        source->at++;
        *character = (unsigned char)to[simple - from];
        return true;
    }
    unsigned digits = byte == 'x' ? 2 : byte == 'u' ? 4 : byte == 'U' ? 8 : 0;
    if (!digits) {
        spry_source_fail(source, state->ir,
                         "unknown escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH and "
                         "\\UHHHHHHHH");
        return false;
    }
    source->at++;
    if (!spry_source_hex(source, digits, character) || *character > 0x10FFFF) {
        spry_source_fail(source, state->ir, "the escape needs %u hexadecimal digits, at most 10FFFF", digits);
        return false;
    }
    return true;
}

static spry_ir_node parse_literal(parser *state)
{
    spry_source *source = &state->source;
    spry_buffer_clear(&state->literal);
    source->at++;
    while (spry_source_peek(source) != '"') {
        uint32_t character;
        int byte = spry_source_peek(source);
        if (byte == -1 || byte == '\n')
            return spry_source_fail(source, state->ir, "the literal has no closing quote");
        if (!read_character(state, &character))
            return SPRY_IR_NONE;
        if (character >= 0xD800 && character <= 0xDFFF)
            return spry_source_fail(source, state->ir, "half of a surrogate pair is no character; use \\UHHHHHHHH");
        char bytes[4];
        spry_buffer_append(&state->literal, bytes, spry_utf8_encode(bytes, character));
    }
    source->at++;
    if (state->literal.failed)
        return spry_ir_fail(state->ir, SPRY_ERR_MEMORY, "not enough memory for a literal of a grammar");
    return spry_ir_literal(state->ir, spry_buffer_view(&state->literal));
}

static spry_ir_node parse_class(parser *state)
{
    spry_source *source = &state->source;
    source->at++;
    bool negated = spry_source_take(source, '^');
    state->n_ranges = 0;
    while (spry_source_peek(source) != ']') {
        spry_code_range range;
        int byte = spry_source_peek(source);
        if (byte == -1 || byte == '\n')
            return spry_source_fail(source, state->ir, "the character class has no closing bracket");
        if (!read_character(state, &range.first))
            return SPRY_IR_NONE;
        range.last = range.first;
        if (spry_source_peek(source) == '-' && spry_source_peek_at(source, 1) != ']') {
            source->at++;
            if (!read_character(state, &range.last))
                return SPRY_IR_NONE;
            if (range.last < range.first)
                return spry_source_fail(source, state->ir, "the range of characters runs backwards");
        }
        if (!spry_grow(&state->ranges, &state->ranges_room, state->n_ranges + 1, sizeof range))
            return spry_ir_fail(state->ir, SPRY_ERR_MEMORY, "not enough memory for a class of a grammar");
        state->ranges[state->n_ranges++] = range;
    }
    source->at++;
    return spry_ir_class(state->ir, state->ranges, state->n_ranges, negated);
}

/* Parses the counts of a repetition; false when there is none, or the builder failed. */
static bool parse_counts(parser *state, uint32_t *min, uint32_t *max)
{
    spry_source *source = &state->source;
    *min = 0;
    *max = SPRY_IR_UNBOUNDED;
    switch (spry_source_peek(source)) {
    case '*': source->at++; return true;
    case '+':
        source->at++;
        *min = 1;
        return true;
    case '?':
        source->at++;
        *max = 1;
        return true;
    case '{': break;
    default: return false;
    }
    source->at++;
    skip_blanks(source, false);
    bool ok = spry_source_number(source, REPEATS_MAX, min);
    skip_blanks(source, false);
    *max = *min;
    if (ok && spry_source_take(source, ',')) {
        skip_blanks(source, false);
        if (spry_source_peek(source) == '}')
            *max = SPRY_IR_UNBOUNDED;
        else
            ok = spry_source_number(source, REPEATS_MAX, max);
        skip_blanks(source, false);
    }
    if (!ok || !spry_source_take(source, '}'))
        spry_source_fail(source, state->ir, "a repetition is {m}, {m,} or {m,n} with numbers up to %d", REPEATS_MAX);
    else if (*min > *max)
        spry_source_fail(source, state->ir, "the repetition runs from %u to %u", *min, *max);
    return true;
}

static void parse_repetition(parser *state)
{
    uint32_t min, max;
    size_t place = state->source.at;
    if (!parse_counts(state, &min, &max))
        return;
    spry_ir_node *last = spry_ir_groups_last(&state->groups);
    if (spry_ir_status(state->ir, NULL))
        return;
    if (!last) {
        state->source.at = place;
        spry_source_fail(&state->source, state->ir, "there is nothing to repeat");
        return;
    }
    *last = spry_ir_repeat(state->ir, *last, min, max);
}

static void close_group(parser *state)
{
    if (state->groups.n_open < 2) {
        spry_source_fail(&state->source, state->ir, "a closing parenthesis without an opening one");
        return;
    }
    state->source.at++;
    spry_ir_node node = spry_ir_groups_close(&state->groups);
    spry_ir_groups_item(&state->groups, node);
}

/* Parses one item of a sequence, or an operator; false at the end of the rule. */
static bool parse_item(parser *state)
{
    static const spry_code_range any = {0, 0x10FFFF};
    spry_source *source = &state->source;
    spry_ir_groups *groups = &state->groups;
    int byte = spry_source_peek(source);
    switch (byte) {
    case '"': spry_ir_groups_item(groups, parse_literal(state)); return true;
    case '[': spry_ir_groups_item(groups, parse_class(state)); return true;
    case '.':
        source->at++;
        spry_ir_groups_item(groups, spry_ir_class(state->ir, &any, 1, false));
        return true;
    case '(':
        source->at++;
        spry_ir_groups_open(groups);
        return true;
    case ')': close_group(state); return true;
    case '|':
        source->at++;
        spry_ir_groups_alternative(groups);
        skip_blanks(source, true);
        return true;
    case '*':
    case '+':
    case '?':
    case '{': parse_repetition(state); return true;
    case '<':
    case '!':
        spry_source_fail(source, state->ir,
                         "tokens in a grammar (<name>, <[id]>) are not supported; spell out their text as a literal");
        return false;
    default:
        if (!is_name(byte))
            return false;
        spry_ir_groups_item(groups, spry_ir_rule(state->ir, read_name(source)));
        return true;
    }
}

static void parse_rule(parser *state)
{
    spry_source *source = &state->source;
    spry_ir_groups *groups = &state->groups;
    spry_view name = read_name(source);
    skip_blanks(source, false);
    if (!name.size || !spry_source_take(source, ':') || !spry_source_take(source, ':') ||
        !spry_source_take(source, '=')) {
        spry_source_fail(source, state->ir, "a rule begins with its name and \"::=\"");
        return;
    }
    spry_ir_groups_open(groups);
    skip_blanks(source, true);
    while (!spry_ir_status(state->ir, NULL) && parse_item(state))
        skip_blanks(source, groups->n_open > 1);
    if (spry_ir_status(state->ir, NULL))
        return;
    if (groups->n_open > 1)
        spry_source_fail(source, state->ir, "a parenthesis is not closed in the rule '%.*s'", SPRY_VIEW_ARG(name));
    else if (spry_source_peek(source) != -1 && spry_source_peek(source) != '\n')
        spry_source_fail(source, state->ir, "expected a new line, or another part of the rule '%.*s'",
                         SPRY_VIEW_ARG(name));
    else
        spry_ir_define(state->ir, name, spry_ir_groups_close(groups));
}

spry_ir_node spry_ir_gbnf(spry_ir *ir, spry_view text)
{
    parser state = {.ir = ir, .source = {text, 0, true}};
    spry_ir_groups_init(&state.groups, ir);
    spry_buffer_init(&state.literal, text.size + 4);
    skip_blanks(&state.source, true);
    while (!spry_ir_status(ir, NULL) && spry_source_peek(&state.source) != -1) {
        parse_rule(&state);
        skip_blanks(&state.source, true);
    }
    spry_ir_groups_deinit(&state.groups);
    spry_buffer_deinit(&state.literal);
    free(state.ranges);
    if (!spry_ir_status(ir, NULL) && !spry_ir_is_defined(ir, SPRY_VIEW("root")))
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "the grammar has no rule 'root'");
    return spry_ir_rule(ir, SPRY_VIEW("root"));
}
