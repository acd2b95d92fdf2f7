/* Regular expressions: the part of ECMA-262's Unicode dialect that describes regular languages. Lazy quantifiers match
 * the same texts as greedy ones, and groups capture nothing here.
 *
 * Anchors: "^" and "$" become marks, two bytes that do not occur in texts. Only texts are kept in which all "^" marks
 * precede the characters and all "$" marks follow them; then the marks are removed. So anchors are exact anywhere in a
 * pattern. The usual case, one anchor at either end, does not need this. */
#include <pthread.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/compiler.h"
#include "base/utf8.h"
#include "base/view.h"
#include "grammar/ir/grammar_ir.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/source/source_text.h"

/* A growing list of ranges; `failed` when memory was short. */
typedef struct spry_code_set {
    spry_code_range *ranges;
    size_t count, room;
    bool failed;
} spry_code_set;

/* ---- look-around ------------------------------------------------------------------------------------------------- */

/* Look-around and word boundaries of regular expressions. In its place the pattern gets a *mark*: a byte that does not
 * occur in texts. Texts with a mark at a point where its condition does not hold are removed; spry_ir_anchored then
 * removes the marks. So conditions are exact anywhere in a pattern, also in repetitions. */

enum {
    SPRY_LOOKS_MAX = SPRY_IR_END - SPRY_IR_MARKS - 3, /* maximum look-arounds of one pattern that apply at the same
                                                       * time */
    SPRY_MARK_BOUNDARY = SPRY_IR_BEGIN - 2,
    SPRY_MARK_NO_BOUNDARY,
};

typedef struct spry_regex_look {
    bool behind, negated;
    spry_ir_node language; /* what the whole text after the mark, or before it, must match */
} spry_regex_look;

typedef struct spry_regex_looks {
    spry_regex_look items[SPRY_LOOKS_MAX]; /* the mark of each is SPRY_IR_MARKS + its index */
    size_t count;
    bool boundaries; /* the pattern contains \b or \B */
} spry_regex_looks;

/* ---- named sets of characters ------------------------------------------------------------------------------------ */

static void code_set_add(spry_code_set *set, uint32_t first, uint32_t last)
{
    if (set->failed || !spry_grow(&set->ranges, &set->room, set->count + 1, sizeof *set->ranges))
        set->failed = true;
    else
        set->ranges[set->count++] = (spry_code_range){first, last};
}

/* The complement, without surrogates. */
static void invert(spry_code_set *set)
{
    size_t n = spry_code_ranges_normalize(set->ranges, set->count);
    if (set->failed || !spry_grow(&set->ranges, &set->room, 2 * n + 1, sizeof *set->ranges)) {
        set->failed = true;
        return;
    }
    set->count = spry_code_ranges_invert(set->ranges + n, set->ranges, n);
    memmove(set->ranges, set->ranges + n, set->count * sizeof *set->ranges);
}

static void add_all(spry_code_set *set, const spry_code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        code_set_add(set, ranges[i].first, ranges[i].last);
}

/* Adds a set, or its complement. */
static void add_maybe_negated(spry_code_set *set, spry_code_set *added, bool negated)
{
    if (negated)
        invert(added);
    add_all(set, added->ranges, added->count);
    set->failed |= added->failed;
    free(added->ranges);
}

/* Adds the set of \d \w \s (upper case: its complement); false for other letters. */
static bool add_letter(spry_code_set *set, int letter)
{
    static const spry_code_range digits[] = {{'0', '9'}};
    static const spry_code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const spry_code_range spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                             {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                             {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    spry_code_set added = {0};
    switch (letter | 0x20) {
    case 'd': add_all(&added, digits, SPRY_COUNT(digits)); break;
    case 'w': add_all(&added, words, SPRY_COUNT(words)); break;
    case 's': add_all(&added, spaces, SPRY_COUNT(spaces)); break;
    default: return false;
    }
    add_maybe_negated(set, &added, letter < 'a');
    return true;
}

/* Categories are ranges of utf8proc's numbering: a one-letter category covers all that begin with the letter. */
static const struct category {
    const char *name, *long_name;
    utf8proc_category_t first, last;
} categories[] = {
    {"L", "Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO},
    {"Lu", "Uppercase_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LU},
    {"Ll", "Lowercase_Letter", UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL},
    {"Lt", "Titlecase_Letter", UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LT},
    {"LC", "Cased_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT},
    {"Lm", "Modifier_Letter", UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LM},
    {"Lo", "Other_Letter", UTF8PROC_CATEGORY_LO, UTF8PROC_CATEGORY_LO},
    {"Combining_Mark", "Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME},
    {"M", "Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME},
    {"Mn", "Nonspacing_Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN},
    {"Mc", "Spacing_Mark", UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_MC},
    {"Me", "Enclosing_Mark", UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_ME},
    {"N", "Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO},
    {"digit", "Decimal_Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND},
    {"Nd", "Decimal_Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND},
    {"Nl", "Letter_Number", UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NL},
    {"No", "Other_Number", UTF8PROC_CATEGORY_NO, UTF8PROC_CATEGORY_NO},
    {"punct", "Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO},
    {"P", "Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO},
    {"Pc", "Connector_Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC},
    {"Pd", "Dash_Punctuation", UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PD},
    {"Ps", "Open_Punctuation", UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PS},
    {"Pe", "Close_Punctuation", UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PE},
    {"Pi", "Initial_Punctuation", UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PI},
    {"Pf", "Final_Punctuation", UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PF},
    {"Po", "Other_Punctuation", UTF8PROC_CATEGORY_PO, UTF8PROC_CATEGORY_PO},
    {"S", "Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO},
    {"Sm", "Math_Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SM},
    {"Sc", "Currency_Symbol", UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SC},
    {"Sk", "Modifier_Symbol", UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SK},
    {"So", "Other_Symbol", UTF8PROC_CATEGORY_SO, UTF8PROC_CATEGORY_SO},
    {"Z", "Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP},
    {"Zs", "Space_Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZS},
    {"Zl", "Line_Separator", UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZL},
    {"Zp", "Paragraph_Separator", UTF8PROC_CATEGORY_ZP, UTF8PROC_CATEGORY_ZP},
    {"cntrl", "Control", UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CC},
    {"Cc", "Control", UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CC},
    {"Cf", "Format", UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CF},
    {"Co", "Private_Use", UTF8PROC_CATEGORY_CO, UTF8PROC_CATEGORY_CO},
    {"Cn", "Unassigned", UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_CN},
};

/* Ranges of code points of one category, in ascending order. Looking up each code point takes long, so this is computed
 * once. */
static struct category_run {
    spry_code_range range;
    utf8proc_category_t of;
} * runs;
static size_t n_runs; /* 0: memory was short */
static pthread_once_t runs_found = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    size_t room = 0;
    for (uint32_t point = 0; point <= SPRY_CODE_LAST; point++) {
        utf8proc_category_t of = utf8proc_category((utf8proc_int32_t)point);
        if (n_runs && runs[n_runs - 1].of == of) {
            runs[n_runs - 1].range.last = point;
            continue;
        }
        if (!spry_grow(&runs, &room, n_runs + 1, sizeof *runs)) {
            n_runs = 0;
            return;
        }
        runs[n_runs++] = (struct category_run){{point, point}, of};
    }
}

static void add_category(spry_code_set *set, const struct category *category)
{
    pthread_once(&runs_found, find_runs);
    set->failed |= n_runs == 0;
    for (size_t i = 0; i < n_runs; i++)
        if (runs[i].of >= category->first && runs[i].of <= category->last)
            code_set_add(set, runs[i].range.first, runs[i].range.last);
}

/* Adds the characters of a Unicode property: a general category by its short or long name ("Lu", "Letter",
 * "General_Category=Lu"), "Any" or "ASCII". False for unknown names. */
static bool add_property(spry_code_set *set, spry_view name, bool negated)
{
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < SPRY_COUNT(prefixes); i++) {
        spry_view prefix = spry_view_of(prefixes[i]);
        if (spry_view_starts(name, prefix))
            name = (spry_view){name.data + prefix.size, name.size - prefix.size};
    }
    spry_code_set added = {0};
    bool known = true;
    if (spry_view_is(name, "Any")) {
        code_set_add(&added, 0, SPRY_CODE_LAST);
    } else if (spry_view_is(name, "ASCII")) {
        code_set_add(&added, 0, 0x7F);
    } else {
        size_t i = 0;
        while (i < SPRY_COUNT(categories) && !spry_view_is(name, categories[i].name) &&
               !spry_view_is(name, categories[i].long_name))
            i++;
        known = i < SPRY_COUNT(categories);
        if (known)
            add_category(&added, &categories[i]);
    }
    add_maybe_negated(set, &added, negated && known);
    return known;
}

static const spry_code_range all[] = {{0, 0x10FFFF}};

/* Any text. */
static spry_ir_node regex_anything(spry_ir *ir)
{
    return spry_ir_repeat(ir, spry_ir_class(ir, all, 1, false), 0, SPRY_IR_UNBOUNDED);
}

static spry_ir_node regex_mark(spry_ir *ir, unsigned mark)
{
    char byte = (char)mark;
    return spry_ir_literal(ir, (spry_view){&byte, 1});
}

/* Any number of marks and, with `characters`, of characters. */
static spry_ir_node any_marks(spry_ir *ir, bool characters)
{
    spry_ir_node choices[SPRY_IR_END - SPRY_IR_MARKS + 2];
    size_t count = 0;
    for (unsigned mark = SPRY_IR_MARKS; mark <= SPRY_IR_END; mark++)
        choices[count++] = regex_mark(ir, mark);
    if (characters)
        choices[count++] = spry_ir_class(ir, all, 1, false);
    return spry_ir_repeat(ir, spry_ir_choice(ir, choices, count), 0, SPRY_IR_UNBOUNDED);
}

/* Texts in which the mark of a look-around is where its condition does not hold. */
static spry_ir_node wrong_look(spry_ir *ir, const spry_regex_look *look, unsigned mark)
{
    spry_ir_node wrong = look->negated ? look->language : spry_ir_subtract(ir, regex_anything(ir), look->language);
    spry_ir_node beside = spry_ir_marked(ir, wrong), others = any_marks(ir, true), at = regex_mark(ir, mark);
    spry_ir_node ahead[] = {others, at, beside}, behind[] = {beside, at, others};
    return spry_ir_sequence(ir, look->behind ? behind : ahead, 3);
}

/* Texts in which the mark of a word boundary (with `inside`: of its opposite) is where the condition does not hold. */
static spry_ir_node wrong_boundary(spry_ir *ir, unsigned mark, bool inside)
{
    static const spry_code_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    spry_ir_node marks = any_marks(ir, false), others = any_marks(ir, true), before[2], after[2], wrong[2];
    for (int word = 0; word < 2; word++) {
        spry_ir_node letter = spry_ir_class(ir, letters, SPRY_COUNT(letters), !word);
        spry_ir_node left = spry_ir_sequence(ir, (spry_ir_node[]){others, letter}, 2);
        spry_ir_node right = spry_ir_sequence(ir, (spry_ir_node[]){letter, others}, 2);
        if (!word) { /* the beginning and end of the text count as no word */
            left = spry_ir_repeat(ir, left, 0, 1);
            right = spry_ir_repeat(ir, right, 0, 1);
        }
        before[word] = spry_ir_sequence(ir, (spry_ir_node[]){left, marks}, 2);
        after[word] = spry_ir_sequence(ir, (spry_ir_node[]){marks, right}, 2);
    }
    for (int word = 0; word < 2; word++)
        wrong[word] =
            spry_ir_sequence(ir, (spry_ir_node[]){before[word], regex_mark(ir, mark), after[inside ? !word : word]}, 3);
    return spry_ir_choice(ir, wrong, 2);
}

/* The texts of `node` in which the marks of the look-arounds from index `first` on are only where their conditions
 * hold. */
static spry_ir_node looks_apply(spry_ir *ir, const spry_regex_looks *looks, size_t first, spry_ir_node node)
{
    for (size_t i = first; i < looks->count; i++)
        node = spry_ir_subtract(ir, node, wrong_look(ir, &looks->items[i], SPRY_IR_MARKS + (unsigned)i));
    if (looks->boundaries && first == 0) {
        node = spry_ir_subtract(ir, node, wrong_boundary(ir, SPRY_MARK_BOUNDARY, false));
        node = spry_ir_subtract(ir, node, wrong_boundary(ir, SPRY_MARK_NO_BOUNDARY, true));
    }
    return node;
}

/* ---- parsing of patterns ----------------------------------------------------------------------------------------- */

enum { REPEATS_MAX = 1 << 24, LOOK_NESTING_MAX = 8 };

/* An open look-around, and the state of the pattern before it. */
typedef struct open_look {
    size_t depth; /* depth of groups */
    bool behind, negated;
    size_t n_looks, n_begins, n_ends;
} open_look;

typedef struct parser {
    spry_ir *ir;
    spry_source source;
    spry_ir_groups groups;
    spry_code_set set;
    size_t n_begins, n_ends; /* number of anchors inside the pattern */
    spry_regex_looks looks;
    open_look open[LOOK_NESTING_MAX];
    size_t n_open;
} parser;

static spry_ir_node fail(parser *state, const char *sentence)
{
    return spry_source_fail(&state->source, state->ir, "%s", sentence);
}

/* For patterns that are valid but describe no regular language. */
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
    size_t end = source->at;
    if (*character >= 0xD800 && *character <= 0xDBFF && spry_source_take(source, '\\') &&
        spry_source_take(source, 'u') && spry_source_hex(source, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
        *character = 0x10000 + ((*character - 0xD800) << 10) + (low - 0xDC00);
    else
        source->at = end;
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

/* Adds the set of \d \w \s \p{..} or of its complement; starts after the backslash. False for other escapes. */
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
        if (!spry_source_take(source, '}') || !add_property(&state->set, name, byte == 'P'))
            fail(state, "known properties are general categories (\\p{L}, \\p{Uppercase_Letter}), Any and ASCII");
        return true;
    }
    if (byte == -1 || !add_letter(&state->set, byte))
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
    return regex_mark(state->ir, at ? SPRY_MARK_BOUNDARY : SPRY_MARK_NO_BOUNDARY);
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

/* Reads one end of a range; *is_set: it was a whole set, which has been added already. */
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
                code_set_add(&state->set, first, first);
            continue;
        }
        source->at++;
        if (!read_class_item(state, &last, &is_last_set))
            return SPRY_IR_NONE;
        if (is_last_set) {
            code_set_add(&state->set, first, first);
            code_set_add(&state->set, '-', '-');
        } else if (last < first) {
            return fail(state, "the range of characters runs backwards");
        } else {
            code_set_add(&state->set, first, last);
        }
    }
    return finish_set(state, negated);
}

/* ---- groups and repetitions -------------------------------------------------------------------------------------- */

/* Opens a look-around; the next character is its "=" or "!". */
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

/* Closes a look-around; returns its mark. */
static spry_ir_node close_look_around(parser *state, spry_ir_node inside)
{
    open_look look = state->open[--state->n_open];
    spry_regex_looks *looks = &state->looks;
    spry_ir *ir = state->ir;
    bool begins = state->n_begins > look.n_begins, ends = state->n_ends > look.n_ends;
    if (look.behind ? ends : begins)
        return refuse(state, "\"^\" inside of look-ahead and \"$\" inside of look-behind cannot be enforced");
    spry_ir_node anything = regex_anything(ir);
    spry_ir_node ahead[] = {inside, anything}, behind[] = {anything, inside};
    spry_ir_node language = spry_ir_sequence(ir, look.behind ? behind : ahead, 2);
    if (begins || ends || looks->count > look.n_looks)
        language = spry_ir_anchored(ir, looks_apply(ir, looks, look.n_looks, language));
    looks->count = look.n_looks;
    state->n_begins = look.n_begins;
    state->n_ends = look.n_ends;
    if (looks->count == SPRY_LOOKS_MAX)
        return refuse(state, "this number of look-arounds cannot be enforced together");
    looks->items[looks->count] = (spry_regex_look){look.behind, look.negated, language};
    return regex_mark(ir, SPRY_IR_MARKS + (unsigned)looks->count++);
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

/* ---- complete patterns ------------------------------------------------------------------------------------------- */

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
        spry_ir_node around = search ? regex_anything(ir) : spry_ir_empty(ir);
        node = spry_ir_sequence(ir, (spry_ir_node[]){around, first, node, last, around}, 5);
        return spry_ir_anchored(ir, looks_apply(ir, &state.looks, 0, node));
    }
    if (!search)
        return node;
    spry_ir_node before = begin ? spry_ir_empty(ir) : regex_anything(ir),
                 after = end ? spry_ir_empty(ir) : regex_anything(ir);
    return spry_ir_sequence(ir, (spry_ir_node[]){before, node, after}, 3);
}
