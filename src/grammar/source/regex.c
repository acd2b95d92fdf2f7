/* Regular expressions: the part of ECMA-262's Unicode dialect that describes regular languages. Lazy quantifiers match
 * the same texts as greedy ones, and groups capture nothing here.
 *
 * Anchors: "^" and "$" become two bytes that do not occur in texts. Only texts are kept in which all marks of the first
 * kind precede, and all of the second kind follow, the characters; then the marks are removed. So anchors are exact
 * anywhere in a pattern. The usual case, one anchor at either end, does not need this. Look-around: regex_look.h. */
#include "base/utf8.h"
#include "grammar/ir/ir_groups.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/source/regex_class.h"
#include "grammar/source/regex_look.h"
#include "grammar/source/source_text.h"

#include <stdlib.h>

enum { REPEATS_MAX = 1 << 24, LOOK_NESTING_MAX = 8 };

/* An open look-around, and what the pattern had before it. */
typedef struct open_look {
    size_t depth; /* of groups */
    bool behind, negated;
    size_t n_looks, n_begins, n_ends;
} open_look;

typedef struct parser {
    spry_ir *ir;
    spry_source source;
    spry_ir_groups groups;
    spry_code_set set;
    size_t n_begins, n_ends; /* anchors inside the pattern */
    spry_regex_looks looks;
    open_look open[LOOK_NESTING_MAX];
    size_t n_open;
} parser;

static spry_ir_node fail(parser *state, const char *sentence)
{
    return spry_source_fail(&state->source, state->ir, "%s", sentence);
}

/* For what is valid but no regular language. */
static spry_ir_node refuse(parser *state, const char *sentence)
{
    bool first = !state->ir->error.status;
    fail(state, sentence);
    if (first)
        state->ir->error.status = SPRY_ERR_UNSUPPORTED;
    return SPRY_IR_NONE;
}

static spry_ir_node one_character(parser *state, uint32_t character)
{
    if (character >= 0xD800 && character <= 0xDFFF)
        return fail(state, "half of a surrogate pair is no character");
    char bytes[4];
    return spry_ir_literal(state->ir, (spry_view){bytes, spry_utf8_encode(bytes, character)});
}

static spry_ir_node finish_set(parser *state, bool negated)
{
    if (state->set.failed)
        return spry_ir_fail(state->ir, SPRY_ERR_MEMORY, "not enough memory for a class of a pattern");
    return spry_ir_class(state->ir, state->set.ranges, state->set.count, negated);
}

/* ---- escapes ----------------------------------------------------------------------------------------------------- */

/* \uHHHH (two of them for a surrogate pair) or \u{H...}; starts after the "u". */
static bool read_unicode(parser *state, uint32_t *character)
{
    spry_source *source = &state->source;
    if (spry_source_take(source, '{')) {
        uint32_t value = 0, digit;
        size_t begin = source->at;
        while (value <= 0x10FFFF && spry_source_hex(source, 1, &digit))
            value = value << 4 | digit;
        *character = value;
        return source->at > begin && value <= 0x10FFFF && spry_source_take(source, '}');
    }
    if (!spry_source_hex(source, 4, character))
        return false;
    uint32_t low;
    size_t behind = source->at;
    if (*character >= 0xD800 && *character <= 0xDBFF && spry_source_take(source, '\\') &&
        spry_source_take(source, 'u') && spry_source_hex(source, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
        *character = 0x10000 + ((*character - 0xD800) << 10) + (low - 0xDC00);
    else
        source->at = behind;
    return true;
}

/* The character of an escape; starts after the backslash. */
static bool read_escape(parser *state, uint32_t *character)
{
    static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
    spry_source *source = &state->source;
    int byte = spry_source_peek(source);
    bool ok = true;
    const char *simple = byte > 0 ? strchr(from, byte) : NULL;
    if (byte == -1)
        return fail(state, "a backslash at the end"), false;
    if (byte >= 0x80)
        return spry_source_character(source, state->ir, character);
    source->at++;
    if (simple)
        *character = (unsigned char)to[simple - from];
    else if (byte == 'u')
        ok = read_unicode(state, character);
    else if (byte == 'x')
        ok = spry_source_hex(source, 2, character);
    else if (byte == '0' && !(spry_source_peek(source) >= '0' && spry_source_peek(source) <= '9'))
        *character = 0;
    else if (byte == 'c' && ((spry_source_peek(source) | 0x20) >= 'a' && (spry_source_peek(source) | 0x20) <= 'z'))
        *character = (uint32_t)source->text.data[source->at++] & 31;
    else if ((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'))
        ok = false;
    else
        *character = (uint32_t)byte;
    if (!ok)
        fail(state, "this escape is not known");
    return ok;
}

/* \d \w \s \p{..} and their complements, added to the set; starts after the backslash. False for other escapes. */
static bool read_set_escape(parser *state)
{
    spry_source *source = &state->source;
    int byte = spry_source_peek(source);
    if (byte == 'p' || byte == 'P') {
        source->at++;
        size_t begin = source->at + 1;
        if (spry_source_take(source, '{'))
            while (spry_source_peek(source) != -1 && spry_source_peek(source) != '}')
                source->at++;
        spry_view name = {source->text.data + begin, source->at > begin ? source->at - begin : 0};
        if (!spry_source_take(source, '}') || !spry_regex_add_property(&state->set, name, byte == 'P'))
            fail(state, "known properties are general categories (\\p{L}, \\p{Uppercase_Letter}), Any and ASCII");
        return true;
    }
    if (byte == -1 || !spry_regex_add_letter(&state->set, byte))
        return false;
    source->at++;
    return true;
}

static spry_ir_node boundary(parser *state, bool at)
{
    state->source.at++;
    if (state->n_open)
        return refuse(state, "word boundaries (\\b) inside of look-around cannot be enforced");
    state->looks.boundaries = true;
    return spry_regex_mark(state->ir, at ? SPRY_MARK_BOUNDARY : SPRY_MARK_NO_BOUNDARY);
}

static spry_ir_node parse_escape(parser *state)
{
    spry_source *source = &state->source;
    int byte = spry_source_peek(source);
    if (byte == 'b' || byte == 'B')
        return boundary(state, byte == 'b');
    if ((byte >= '1' && byte <= '9') || byte == 'k')
        return refuse(state, "back references cannot be enforced");
    state->set.count = 0;
    if (read_set_escape(state))
        return finish_set(state, false);
    uint32_t character;
    return read_escape(state, &character) ? one_character(state, character) : SPRY_IR_NONE;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* One end of a range; *is_set when it was a whole set, which is already added. */
static bool read_class_item(parser *state, uint32_t *character, bool *is_set)
{
    spry_source *source = &state->source;
    *is_set = false;
    if (!spry_source_take(source, '\\'))
        return spry_source_character(source, state->ir, character);
    *is_set = read_set_escape(state);
    if (*is_set)
        return !spry_ir_status(state->ir, NULL);
    if (spry_source_take(source, 'b')) {
        *character = '\b';
        return true;
    }
    return read_escape(state, character);
}

static spry_ir_node parse_class(parser *state)
{
    spry_source *source = &state->source;
    bool negated = spry_source_take(source, '^');
    state->set.count = 0;
    while (!spry_source_take(source, ']')) {
        uint32_t first, last;
        bool is_set, is_last_set;
        if (spry_source_peek(source) == -1)
            return fail(state, "the character class has no closing bracket");
        if (!read_class_item(state, &first, &is_set))
            return SPRY_IR_NONE;
        bool range = spry_source_peek(source) == '-' && spry_source_peek_at(source, 1) != ']';
        if (is_set || !range) {
            if (!is_set)
                spry_code_set_add(&state->set, first, first);
            continue;
        }
        source->at++;
        if (!read_class_item(state, &last, &is_last_set))
            return SPRY_IR_NONE;
        if (is_last_set) {
            spry_code_set_add(&state->set, first, first);
            spry_code_set_add(&state->set, '-', '-');
        } else if (last < first) {
            return fail(state, "the range of characters runs backwards");
        } else {
            spry_code_set_add(&state->set, first, last);
        }
    }
    return finish_set(state, negated);
}

/* ---- groups and repetitions -------------------------------------------------------------------------------------- */

/* At the "=" or "!" of a look-around. */
static void open_look_around(parser *state, bool behind)
{
    bool negated = spry_source_peek(&state->source) == '!';
    state->source.at++;
    if (state->n_open == LOOK_NESTING_MAX)
        refuse(state, "look-around is nested too deep");
    else if (state->n_open && state->open[state->n_open - 1].behind != behind)
        refuse(state, "look-ahead inside of look-behind, or the reverse, cannot be enforced");
    else
        state->open[state->n_open++] = (open_look){.depth = state->groups.n_open + 1,
                                                   .behind = behind,
                                                   .negated = negated,
                                                   .n_looks = state->looks.count,
                                                   .n_begins = state->n_begins,
                                                   .n_ends = state->n_ends};
}

/* The mark for a complete look-around. */
static spry_ir_node close_look_around(parser *state, spry_ir_node inside)
{
    open_look look = state->open[--state->n_open];
    spry_regex_looks *looks = &state->looks;
    spry_ir *ir = state->ir;
    bool begins = state->n_begins > look.n_begins, ends = state->n_ends > look.n_ends;
    if (look.behind ? ends : begins)
        return refuse(state, "\"^\" inside of look-ahead and \"$\" inside of look-behind cannot be enforced");
    spry_ir_node anything = spry_regex_anything(ir);
    spry_ir_node ahead[] = {inside, anything}, behind[] = {anything, inside};
    spry_ir_node language = spry_ir_sequence(ir, look.behind ? behind : ahead, 2);
    if (begins || ends || looks->count > look.n_looks)
        language = spry_ir_anchored(ir, spry_regex_looks_apply(ir, looks, look.n_looks, language));
    looks->count = look.n_looks;
    state->n_begins = look.n_begins;
    state->n_ends = look.n_ends;
    if (looks->count == SPRY_LOOKS_MAX)
        return refuse(state, "so many look-arounds cannot be enforced together");
    looks->items[looks->count] = (spry_regex_look){look.behind, look.negated, language};
    return spry_regex_mark(ir, SPRY_IR_MARKS + (unsigned)looks->count++);
}

static void open_group(parser *state)
{
    spry_source *source = &state->source;
    if (spry_source_take(source, '?')) {
        int byte = spry_source_peek(source), next = spry_source_peek_at(source, 1);
        if (byte == '=' || byte == '!' || (byte == '<' && (next == '=' || next == '!'))) {
            source->at += byte == '<';
            open_look_around(state, byte == '<');
        } else if (byte == '<') {
            while (spry_source_peek(source) != -1 && spry_source_peek(source) != '>')
                source->at++;
            if (!spry_source_take(source, '>'))
                fail(state, "the name of the group has no end");
        } else if (!spry_source_take(source, ':')) {
            fail(state, "groups are (...), (?:...) and (?<name>...)");
        }
    }
    spry_ir_groups_open(&state->groups);
}

static void close_group(parser *state)
{
    if (state->groups.n_open < 2) {
        fail(state, "a closing parenthesis without an opening one");
        return;
    }
    state->source.at++;
    bool look = state->n_open && state->open[state->n_open - 1].depth == state->groups.n_open;
    spry_ir_node node = spry_ir_groups_close(&state->groups);
    if (look && !spry_ir_status(state->ir, NULL))
        node = close_look_around(state, node);
    spry_ir_groups_item(&state->groups, node);
}

/* {m}, {m,} or {m,n} at an opening brace; false, with nothing read, when the brace is a literal. */
static bool read_braces(parser *state, uint32_t *min, uint32_t *max)
{
    spry_source *source = &state->source;
    size_t begin = source->at++;
    bool ok = spry_source_number(source, REPEATS_MAX, min);
    *max = *min;
    if (ok && spry_source_take(source, ',')) {
        int byte = spry_source_peek(source);
        *max = SPRY_IR_UNBOUNDED;
        if (byte >= '0' && byte <= '9')
            ok = spry_source_number(source, REPEATS_MAX, max);
    }
    int last = source->text.data[source->at - 1];
    if (!ok && last >= '0' && last <= '9') {
        spry_source_fail(source, state->ir, "a repetition of more than %d times", REPEATS_MAX);
        return true;
    }
    if (ok && spry_source_take(source, '}'))
        return true;
    source->at = begin;
    return false;
}

static void repeat_last(parser *state, uint32_t min, uint32_t max)
{
    spry_source_take(&state->source, '?');
    spry_ir_node *last = spry_ir_groups_last(&state->groups);
    if (spry_ir_status(state->ir, NULL))
        return;
    if (!last)
        fail(state, "there is nothing to repeat");
    else if (min > max)
        spry_source_fail(&state->source, state->ir, "the repetition runs from %u to %u", min, max);
    else
        *last = spry_ir_repeat(state->ir, *last, min, max);
}

static void parse_brace(parser *state)
{
    uint32_t min = 0, max;
    if (read_braces(state, &min, &max)) {
        repeat_last(state, min, max);
        return;
    }
    state->source.at++;
    spry_ir_groups_item(&state->groups, spry_ir_literal(state->ir, SPRY_VIEW("{")));
}

static void parse_item(parser *state)
{
    static const spry_code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    static const char begin = (char)SPRY_IR_BEGIN, end = (char)SPRY_IR_END;
    spry_source *source = &state->source;
    spry_ir_groups *groups = &state->groups;
    int byte = spry_source_peek(source);
    if (byte == ')') {
        close_group(state);
        return;
    }
    if (byte == '{') {
        parse_brace(state);
        return;
    }
    uint32_t character;
    if (!strchr("(|*+?.[\\^$", byte) || byte == 0) {
        if (spry_source_character(source, state->ir, &character))
            spry_ir_groups_item(groups, one_character(state, character));
        return;
    }
    source->at++;
    switch (byte) {
    case '(': open_group(state); break;
    case '|': spry_ir_groups_alternative(groups); break;
    case '*': repeat_last(state, 0, SPRY_IR_UNBOUNDED); break;
    case '+': repeat_last(state, 1, SPRY_IR_UNBOUNDED); break;
    case '?': repeat_last(state, 0, 1); break;
    case '.': spry_ir_groups_item(groups, spry_ir_class(state->ir, line_ends, SPRY_COUNT(line_ends), true)); break;
    case '[': spry_ir_groups_item(groups, parse_class(state)); break;
    case '\\': spry_ir_groups_item(groups, parse_escape(state)); break;
    default:
        *(byte == '^' ? &state->n_begins : &state->n_ends) += 1;
        spry_ir_groups_item(groups, spry_ir_literal(state->ir, (spry_view){byte == '^' ? &begin : &end, 1}));
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static spry_ir_node parse(parser *state)
{
    spry_source *source = &state->source;
    spry_ir_groups_open(&state->groups);
    while (spry_source_peek(source) != -1 && !spry_ir_status(state->ir, NULL))
        parse_item(state);
    if (state->groups.n_open > 1)
        fail(state, "a parenthesis is not closed");
    return spry_ir_status(state->ir, NULL) ? SPRY_IR_NONE : spry_ir_groups_close(&state->groups);
}

/* Removes a "^" at the start and a "$" at the end that apply to the whole pattern. */
static void take_outer_anchors(spry_view *pattern, bool *begin, bool *end)
{
    spry_view inner = *pattern;
    size_t depth = 0;
    bool in_class = false;
    for (size_t i = 0; i < inner.size; i++) {
        char byte = inner.data[i];
        if (byte == '\\')
            i++;
        else if (in_class)
            in_class = byte != ']';
        else if (byte == '[')
            in_class = true;
        else if (byte == '(')
            depth++;
        else if (byte == ')' && depth)
            depth--;
        else if (byte == '|' && !depth)
            return;
    }
    if (inner.size && inner.data[0] == '^') {
        *begin = true;
        inner = (spry_view){inner.data + 1, inner.size - 1};
    }
    size_t slashes = 0;
    while (slashes + 1 < inner.size && inner.data[inner.size - 2 - slashes] == '\\')
        slashes++;
    if (inner.size && inner.data[inner.size - 1] == '$' && slashes % 2 == 0) {
        *end = true;
        inner.size--;
    }
    *pattern = inner;
}

spry_ir_node spry_ir_regex(spry_ir *ir, spry_view pattern, bool search)
{
    bool begin = false, end = false;
    spry_view inner = pattern;
    take_outer_anchors(&inner, &begin, &end);
    parser state = {.ir = ir, .source = {pattern, (size_t)(inner.data - pattern.data), false}};
    state.source.text.size = state.source.at + inner.size;
    spry_ir_groups_init(&state.groups, ir);
    spry_ir_node node = parse(&state);
    spry_ir_groups_deinit(&state.groups);
    free(state.set.ranges);
    if (spry_ir_status(ir, NULL))
        return SPRY_IR_NONE;
    if (state.n_begins || state.n_ends || state.looks.count || state.looks.boundaries) {
        char bytes[] = {(char)SPRY_IR_BEGIN, (char)SPRY_IR_END};
        spry_ir_node first = begin ? spry_ir_literal(ir, (spry_view){bytes, 1}) : spry_ir_empty(ir);
        spry_ir_node last = end ? spry_ir_literal(ir, (spry_view){bytes + 1, 1}) : spry_ir_empty(ir);
        spry_ir_node around = search ? spry_regex_anything(ir) : spry_ir_empty(ir);
        node = spry_ir_sequence(ir, (spry_ir_node[]){around, first, node, last, around}, 5);
        return spry_ir_anchored(ir, spry_regex_looks_apply(ir, &state.looks, 0, node));
    }
    if (!search)
        return node;
    spry_ir_node before = begin ? spry_ir_empty(ir) : spry_regex_anything(ir),
                 behind = end ? spry_ir_empty(ir) : spry_regex_anything(ir);
    return spry_ir_sequence(ir, (spry_ir_node[]){before, node, behind}, 3);
}
