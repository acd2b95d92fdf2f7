/* Grammars in Lark's notation, as OpenAI's custom tools send them: rules in lower case, terminals in upper case, and
 * terminals that may stand between all others (%ignore). The text is matched as a whole: what a terminal takes is what
 * makes the rest fit, where Lark's lexer takes the longest.
 *
 * Definitions may follow their uses, so the first pass notes where each begins. Rules become rules of the builder,
 * under names that have a hash of the text, because one grammar may have several such texts; terminals are regular and
 * become nodes. A rule that begins with itself becomes a repetition: "a: a x | y" is "y x*". */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/utf8.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/json_spelling.h"
#include "grammar/source/source_text.h"

enum { NAME_BYTES_MAX = 200, NAME_BYTES = NAME_BYTES_MAX + 32, TERMINALS_DEEP = 32, REPEATS_MAX = 1 << 24 };

typedef enum token_kind { T_END, T_LINE, T_NAME, T_STRING, T_REGEX, T_NUMBER, T_ARROW, T_DOTS, T_SIGN } token_kind;

typedef struct token {
    token_kind kind;
    char sign;      /* of T_SIGN */
    spry_view text; /* a string or regular expression without its quotes or slashes */
    spry_view flags;
} token;

typedef struct definition {
    spry_view name;   /* of a terminal */
    size_t body;      /* where it begins */
    spry_ir_node raw; /* as text; SPRY_IR_NONE: not read yet */
    bool open;        /* it is being read */
} definition;

typedef struct parser {
    spry_ir *ir;
    spry_source source;
    token now;
    bool in_json; /* texts are written as inside of JSON strings */
    uint64_t hash;
    spry_map names; /* of terminals, to indices of `terminals` */
    definition *terminals;
    size_t n_terminals, terminals_room;
    size_t *ignored; /* where the bodies of %ignore begin */
    size_t n_ignored, ignored_room;
    spry_ir_node between; /* what may follow each terminal in a rule; SPRY_IR_NONE: nothing */
    unsigned depth;
} parser;

static bool failed(const parser *p)
{
    return spry_ir_status(p->ir, NULL) != SPRY_OK;
}

/* Fails because of what Lark has and this has not. */
static spry_ir_node cannot(parser *p, const char *what)
{
    if (!failed(p)) {
        spry_source_fail(&p->source, p->ir, "%s in a lark grammar cannot be enforced", what);
        p->ir->error.status = SPRY_ERR_UNSUPPORTED;
    }
    return SPRY_IR_NONE;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static bool is_name(int byte)
{
    return byte == '_' || (byte > 0 && byte < 128 && isalnum(byte));
}

/* Blanks and comments; with `lines` also line ends. */
static void skip_blanks(spry_source *s, bool lines)
{
    for (;;) {
        int byte = spry_source_peek(s);
        if (byte == '#' || (byte == '/' && spry_source_peek_at(s, 1) == '/')) {
            while (spry_source_peek(s) != -1 && spry_source_peek(s) != '\n')
                s->at++;
        } else if (byte == ' ' || byte == '\t' || byte == '\r' || (lines && byte == '\n')) {
            s->at++;
        } else {
            return;
        }
    }
}

static token delimited(parser *p, token_kind kind, char end)
{
    spry_source *s = &p->source;
    size_t begin = ++s->at;
    while (spry_source_peek(s) != end) {
        if (spry_source_peek(s) == '\\')
            s->at++;
        if (spry_source_peek(s) == -1 || spry_source_peek(s) == '\n') {
            spry_source_fail(s, p->ir, "there is no closing %c", end);
            return (token){.kind = T_END};
        }
        s->at++;
    }
    token read = {.kind = kind, .text = {s->text.data + begin, s->at - begin}};
    size_t flags = ++s->at;
    while (spry_source_peek(s) != -1 && strchr(kind == T_REGEX ? "imslux" : "i", spry_source_peek(s)))
        s->at++;
    read.flags = (spry_view){s->text.data + flags, s->at - flags};
    return read;
}

/* Reads the next token. A line that begins with "|" continues the one before. */
static void next(parser *p)
{
    spry_source *s = &p->source;
    skip_blanks(s, false);
    int byte = spry_source_peek(s);
    size_t begin = s->at;
    p->now = (token){.kind = T_END};
    if (failed(p) || byte == -1)
        return;
    if (byte == '\n') {
        skip_blanks(s, true);
        if (spry_source_peek(s) == '|')
            p->now = (token){.kind = T_SIGN, .sign = '|'}, s->at++;
        else
            p->now.kind = T_LINE;
    } else if (byte == '"') {
        p->now = delimited(p, T_STRING, '"');
    } else if (byte == '/') {
        p->now = delimited(p, T_REGEX, '/');
    } else if (byte == '-' && spry_source_peek_at(s, 1) == '>') {
        p->now.kind = T_ARROW, s->at += 2;
    } else if (byte == '.' && spry_source_peek_at(s, 1) == '.') {
        p->now.kind = T_DOTS, s->at += 2;
    } else if (is_name(byte)) {
        while (is_name(spry_source_peek(s)))
            s->at++;
        p->now = (token){.kind = byte >= '0' && byte <= '9' ? T_NUMBER : T_NAME,
                         .text = {s->text.data + begin, s->at - begin}};
    } else {
        p->now = (token){.kind = T_SIGN, .sign = (char)byte}, s->at++;
    }
}

static bool at_sign(const parser *p, char sign)
{
    return p->now.kind == T_SIGN && p->now.sign == sign;
}

static bool take(parser *p, char sign)
{
    bool there = at_sign(p, sign);
    if (there)
        next(p);
    return there;
}

/* A number up to REPEATS_MAX; false, and the builder has failed, where there is none. */
static bool take_number(parser *p, uint32_t *value)
{
    spry_source digits = {p->now.text, 0, true};
    if (p->now.kind != T_NUMBER || !spry_source_number(&digits, REPEATS_MAX, value) || digits.at < digits.text.size) {
        spry_source_fail(&p->source, p->ir, "expected a number up to %d", REPEATS_MAX);
        return false;
    }
    next(p);
    return true;
}

/* ---- terminals --------------------------------------------------------------------------------------------------- */

/* Those that Lark's library has. */
static const struct {
    const char *name, *regex;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "\\/\\*([^*]|\\*+[^*\\/])*\\*+\\/"},
};

/* Decodes the escapes of a string; false: the builder has failed. */
static bool unescape(parser *p, spry_buffer *out, spry_view text)
{
    static const char from[] = "nrtfv0\\\"'/", to[] = "\n\r\t\f\v\0\\\"'/";
    spry_source s = {text, 0, true};
    while (spry_source_peek(&s) != -1) {
        uint32_t character;
        char bytes[4];
        if (!spry_source_take(&s, '\\')) {
            if (!spry_source_character(&s, p->ir, &character))
                return false;
        } else {
            int byte = spry_source_peek(&s);
            const char *simple = byte > 0 ? strchr(from, byte) : NULL;
            unsigned digits = byte == 'x' ? 2 : byte == 'u' ? 4 : byte == 'U' ? 8 : 0;
            s.at++;
            character = simple ? (unsigned char)to[simple - from] : 0;
            if (!simple && (!digits || !spry_source_hex(&s, digits, &character) || character > SPRY_CODE_LAST ||
                            (character >= 0xD800 && character <= 0xDFFF))) {
                spry_source_fail(&p->source, p->ir, "unknown escape in the string \"%.*s\"", SPRY_VIEW_ARG(text));
                return false;
            }
        }
        spry_buffer_append(out, bytes, spry_utf8_encode(bytes, character));
    }
    if (out->failed)
        spry_ir_fail(p->ir, SPRY_ERR_MEMORY, "not enough memory for a literal of a grammar");
    return !out->failed;
}

/* The letters of a text in both cases. */
static spry_ir_node any_case(parser *p, spry_view text)
{
    spry_ir_node *parts = malloc((text.size + 1) * sizeof *parts);
    if (!parts)
        return spry_ir_fail(p->ir, SPRY_ERR_MEMORY, "not enough memory for a literal of a grammar");
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        spry_code_range cases[2] = {{(uint32_t)tolower(byte), (uint32_t)tolower(byte)},
                                    {(uint32_t)toupper(byte), (uint32_t)toupper(byte)}};
        parts[i] = byte < 128 && isalpha(byte) ? spry_ir_class(p->ir, cases, 2, false)
                                               : spry_ir_literal(p->ir, (spry_view){text.data + i, 1});
    }
    spry_ir_node node = spry_ir_sequence(p->ir, parts, text.size);
    free(parts);
    return node;
}

/* "a", "a"i or "a".."z" */
static spry_ir_node read_string(parser *p)
{
    spry_view flags = p->now.flags;
    spry_buffer text;
    spry_ir_node node = SPRY_IR_NONE;
    spry_code_range range;
    spry_buffer_init(&text, p->source.text.size + 4);
    bool fine = unescape(p, &text, p->now.text);
    next(p);
    if (fine && p->now.kind == T_DOTS) {
        spry_view first = spry_buffer_view(&text);
        bool one = first.size && spry_utf8_decode(&range.first, first.data, first.size) == first.size;
        spry_buffer_clear(&text);
        next(p);
        fine = p->now.kind == T_STRING && unescape(p, &text, p->now.text);
        spry_view last = spry_buffer_view(&text);
        one = one && fine && last.size && spry_utf8_decode(&range.last, last.data, last.size) == last.size;
        if (one && range.first <= range.last)
            node = spry_ir_class(p->ir, &range, 1, false);
        else
            spry_source_fail(&p->source, p->ir, "a range is two characters, such as \"a\"..\"z\"");
        next(p);
    } else if (fine) {
        node = flags.size ? any_case(p, spry_buffer_view(&text)) : spry_ir_literal(p->ir, spry_buffer_view(&text));
    }
    spry_buffer_deinit(&text);
    return node;
}

static spry_ir_node read_regex(parser *p)
{
    spry_view text = p->now.text, flags = p->now.flags;
    for (size_t i = 0; i < flags.size; i++)
        if (flags.data[i] != 'u')
            return cannot(p, "a flag of a regular expression");
    next(p);
    return spry_ir_regex(p->ir, text, false);
}

static spry_ir_node read_body(parser *p, spry_view rule);

/* A terminal as text. */
static spry_ir_node terminal(parser *p, spry_view name)
{
    uint32_t index;
    if (failed(p))
        return SPRY_IR_NONE;
    if (!spry_map_find(&p->names, name, &index))
        return spry_source_fail(&p->source, p->ir, "the terminal %.*s is not defined", SPRY_VIEW_ARG(name));
    if (p->terminals[index].raw != SPRY_IR_NONE)
        return p->terminals[index].raw;
    if (p->terminals[index].open || p->depth >= TERMINALS_DEEP)
        return spry_source_fail(&p->source, p->ir, "the terminal %.*s refers to itself", SPRY_VIEW_ARG(name));
    const spry_source before = p->source;
    const token now = p->now;
    p->terminals[index].open = true;
    p->source.at = p->terminals[index].body;
    next(p);
    spry_ir_node node = read_body(p, SPRY_VIEW(""));
    p->terminals[index].raw = node;
    p->terminals[index].open = false;
    p->source = before;
    p->now = now;
    return node;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

static bool is_terminal_name(spry_view name)
{
    size_t i = 0;
    while (i < name.size && name.data[i] == '_')
        i++;
    return i < name.size && isupper((unsigned char)name.data[i]);
}

/* The builder's name of a rule; returns `out`. */
static spry_view rule_name(char out[NAME_BYTES], const parser *p, spry_view name)
{
    int size = snprintf(out, NAME_BYTES, "lark %016llx %d ", (unsigned long long)p->hash, p->in_json);
    size_t rest = name.size < NAME_BYTES_MAX ? name.size : NAME_BYTES_MAX;
    memcpy(out + size, name.data, rest);
    return (spry_view){out, (size_t)size + rest};
}

static spry_ir_node rule_node(parser *p, spry_view name)
{
    char own[NAME_BYTES];
    return spry_ir_rule(p->ir, rule_name(own, p, name));
}

static bool is_defined(const parser *p, spry_view name)
{
    char own[NAME_BYTES];
    return spry_ir_is_defined(p->ir, rule_name(own, p, name));
}

/* A terminal as a part of a rule. */
static spry_ir_node in_rule(parser *p, spry_ir_node node)
{
    if (p->in_json)
        node = spry_json_respell(p->ir, node);
    if (p->between == SPRY_IR_NONE)
        return node;
    return spry_ir_sequence(p->ir, (spry_ir_node[]){node, p->between}, 2);
}

/* The counts of a repetition; false: there is none. */
static bool read_counts(parser *p, uint32_t *min, uint32_t *max)
{
    static const struct {
        char sign;
        uint32_t min, max;
    } signs[] = {{'?', 0, 1}, {'*', 0, SPRY_IR_UNBOUNDED}, {'+', 1, SPRY_IR_UNBOUNDED}};
    for (size_t i = 0; i < SPRY_COUNT(signs); i++)
        if (take(p, signs[i].sign)) {
            *min = signs[i].min;
            *max = signs[i].max;
            return true;
        }
    bool braces = take(p, '{');
    if (!braces && !take(p, '~'))
        return false;
    if (!take_number(p, min))
        return true;
    *max = *min;
    if (p->now.kind == T_DOTS || (braces && at_sign(p, ','))) {
        next(p);
        *max = SPRY_IR_UNBOUNDED;
        if (!braces || !at_sign(p, '}'))
            take_number(p, max);
    }
    if (!failed(p) && ((braces && !take(p, '}')) || *min > *max))
        spry_source_fail(&p->source, p->ir, "a repetition is ~ m, ~ m..n or {m,n}");
    return true;
}

/* Reads one item of a sequence, or a bracket or "|" of a group. `open`: the brackets so far. False: the alternative
 * ends here. */
static bool read_item(parser *p, spry_ir_groups *groups, spry_buffer *open, bool in_terminal)
{
    spry_ir_node node = SPRY_IR_NONE;
    uint32_t min, max;
    if (p->now.kind == T_LINE && open->size) {
        next(p);
        return true;
    }
    if (at_sign(p, '(') || at_sign(p, '[')) {
        spry_buffer_append(open, &p->now.sign, 1);
        spry_ir_groups_open(groups);
        next(p);
        return true;
    }
    if (open->size && take(p, '|')) {
        spry_ir_groups_alternative(groups);
        return true;
    }
    if (open->size && p->now.kind == T_ARROW) { /* the name of an alternative */
        next(p);
        next(p);
        return true;
    }
    if (open->size && (at_sign(p, ')') || at_sign(p, ']'))) {
        bool square = open->data[--open->size] == '[';
        if (square != at_sign(p, ']')) {
            spry_source_fail(&p->source, p->ir, "brackets do not match");
            return false;
        }
        node = spry_ir_groups_close(groups);
        if (square)
            node = spry_ir_repeat(p->ir, node, 0, 1);
        next(p);
    } else if (p->now.kind == T_STRING) {
        node = read_string(p);
        node = in_terminal ? node : in_rule(p, node);
    } else if (p->now.kind == T_REGEX) {
        node = read_regex(p);
        node = in_terminal ? node : in_rule(p, node);
    } else if (p->now.kind == T_NAME) {
        spry_view name = p->now.text;
        if (is_terminal_name(name))
            node = in_terminal ? terminal(p, name) : in_rule(p, terminal(p, name));
        else if (in_terminal)
            spry_source_fail(&p->source, p->ir, "a terminal refers to the rule %.*s", SPRY_VIEW_ARG(name));
        else
            node = rule_node(p, name);
        next(p);
    } else {
        return false;
    }
    if (read_counts(p, &min, &max) && !failed(p))
        node = spry_ir_repeat(p->ir, node, min, max);
    spry_ir_groups_item(groups, node);
    return !failed(p);
}

typedef struct node_list {
    spry_ir_node *items;
    size_t count, room;
} node_list;

static void add_node(parser *p, node_list *list, spry_ir_node node)
{
    if (!spry_grow(&list->items, &list->room, list->count + 1, sizeof node))
        spry_ir_fail(p->ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    else
        list->items[list->count++] = node;
}

/* Whether the alternative begins with the rule itself, which is then skipped. */
static bool begins_with(parser *p, spry_view rule)
{
    const spry_source before = p->source;
    const token now = p->now;
    if (!rule.size || p->now.kind != T_NAME || !spry_view_equal(p->now.text, rule))
        return false;
    next(p);
    if (!at_sign(p, '?') && !at_sign(p, '*') && !at_sign(p, '+') && !at_sign(p, '~') && !at_sign(p, '{'))
        return true;
    p->source = before;
    p->now = now;
    return false;
}

/* The alternatives up to the end of the statement. `rule`: its name; empty: it is a terminal. */
static spry_ir_node read_body(parser *p, spry_view rule)
{
    spry_ir_groups groups;
    node_list ways = {0}, more = {0}; /* `more`: what follows the rule itself */
    spry_buffer open;
    spry_ir_node node = SPRY_IR_NONE;
    spry_ir_groups_init(&groups, p->ir);
    spry_buffer_init(&open, p->source.text.size + 1);
    p->depth++;
    do {
        bool again = begins_with(p, rule);
        spry_ir_groups_open(&groups);
        while (!failed(p) && read_item(p, &groups, &open, !rule.size)) {
        }
        if (failed(p))
            break;
        if (open.size) {
            spry_source_fail(&p->source, p->ir, "a bracket is not closed");
            break;
        }
        node = spry_ir_groups_close(&groups);
        if (p->now.kind == T_ARROW) {
            next(p);
            next(p);
        }
        add_node(p, again ? &more : &ways, node);
    } while (take(p, '|'));
    p->depth--;
    if (!failed(p) && p->now.kind != T_LINE && p->now.kind != T_END)
        spry_source_fail(&p->source, p->ir, "expected a new line, or another part of the definition");
    node = spry_ir_choice(p->ir, ways.items, ways.count);
    if (more.count)
        node =
            spry_ir_sequence(p->ir,
                             (spry_ir_node[]){node, spry_ir_repeat(p->ir, spry_ir_choice(p->ir, more.items, more.count),
                                                                   0, SPRY_IR_UNBOUNDED)},
                             2);
    spry_ir_groups_deinit(&groups);
    spry_buffer_deinit(&open);
    free(ways.items);
    free(more.items);
    return failed(p) ? SPRY_IR_NONE : node;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static void add_terminal(parser *p, spry_view name, size_t body, spry_ir_node raw)
{
    bool added = true;
    if (!spry_grow(&p->terminals, &p->terminals_room, p->n_terminals + 1, sizeof *p->terminals) ||
        !spry_map_add(&p->names, name, (uint32_t)p->n_terminals, &added))
        spry_ir_fail(p->ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    else if (!added)
        spry_source_fail(&p->source, p->ir, "the terminal %.*s is defined twice", SPRY_VIEW_ARG(name));
    else
        p->terminals[p->n_terminals++] = (definition){.name = name, .body = body, .raw = raw};
}

static void import_one(parser *p)
{
    spry_view name = p->now.text, own = name;
    size_t i = 0;
    while (i < SPRY_COUNT(common) && !spry_view_equal(name, spry_view_of(common[i].name)))
        i++;
    if (p->now.kind != T_NAME || i == SPRY_COUNT(common)) {
        cannot(p, "an import of what is not in common");
        return;
    }
    next(p);
    if (p->now.kind == T_ARROW) {
        next(p);
        own = p->now.text;
        next(p);
    }
    add_terminal(p, own, 0, spry_ir_regex(p->ir, spry_view_of(common[i].regex), false));
}

/* %import common.NAME, %import common.NAME -> NAME, %import common (NAME, NAME) */
static void read_import(parser *p)
{
    bool own = p->now.kind == T_NAME && spry_view_equal(p->now.text, SPRY_VIEW("common"));
    next(p);
    if (!own)
        cannot(p, "an import of another grammar");
    else if (take(p, '.'))
        import_one(p);
    else if (take(p, '('))
        do
            import_one(p);
        while (!failed(p) && take(p, ','));
    if (!failed(p))
        take(p, ')');
}

static void skip_statement(parser *p)
{
    size_t depth = 0;
    while (p->now.kind != T_END && (p->now.kind != T_LINE || depth)) {
        depth += at_sign(p, '(') || at_sign(p, '[');
        depth -= depth && (at_sign(p, ')') || at_sign(p, ']'));
        next(p);
    }
}

static void read_directive(parser *p)
{
    spry_view name = p->now.text;
    if (spry_view_equal(name, SPRY_VIEW("import"))) {
        next(p);
        read_import(p);
    } else if (spry_view_equal(name, SPRY_VIEW("ignore"))) {
        if (!spry_grow(&p->ignored, &p->ignored_room, p->n_ignored + 1, sizeof *p->ignored))
            spry_ir_fail(p->ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
        else
            p->ignored[p->n_ignored++] = p->source.at;
        skip_statement(p);
    } else {
        cannot(p, "this directive");
    }
}

/* "name:" with its modifiers and priority; the body follows. False: it is none, and the builder has failed. */
static bool read_head(parser *p, spry_view *name)
{
    while (take(p, '?') || take(p, '!')) {
    }
    *name = p->now.text;
    if (p->now.kind != T_NAME)
        return spry_source_fail(&p->source, p->ir, "expected the name of a rule"), false;
    next(p);
    if (at_sign(p, '{'))
        return cannot(p, "a template"), false;
    if (take(p, '.'))
        next(p);
    if (!at_sign(p, ':'))
        return spry_source_fail(&p->source, p->ir, "expected \":\" after %.*s", SPRY_VIEW_ARG(*name)), false;
    return true;
}

/* One pass over all statements: the first notes terminals, the second defines rules. */
static void read_statements(parser *p, bool rules)
{
    spry_view name;
    p->source.at = 0;
    skip_blanks(&p->source, true);
    next(p);
    while (!failed(p) && p->now.kind != T_END) {
        if (p->now.kind == T_LINE) {
            next(p);
            continue;
        }
        if (take(p, '%')) {
            if (rules)
                skip_statement(p);
            else
                read_directive(p);
            continue;
        }
        if (!read_head(p, &name))
            return;
        size_t body = p->source.at;
        if (!rules && is_terminal_name(name))
            add_terminal(p, name, body, SPRY_IR_NONE);
        if (rules && !is_terminal_name(name)) {
            char own[NAME_BYTES];
            next(p);
            spry_ir_define(p->ir, rule_name(own, p, name), read_body(p, name));
        } else {
            skip_statement(p);
        }
    }
}

static void read_ignored(parser *p)
{
    node_list list = {0};
    for (size_t i = 0; i < p->n_ignored && !failed(p); i++) {
        p->source.at = p->ignored[i];
        next(p);
        spry_ir_node node = read_body(p, SPRY_VIEW(""));
        add_node(p, &list, p->in_json ? spry_json_respell(p->ir, node) : node);
    }
    if (list.count)
        p->between = spry_ir_repeat(p->ir, spry_ir_choice(p->ir, list.items, list.count), 0, SPRY_IR_UNBOUNDED);
    free(list.items);
}

spry_ir_node spry_ir_lark(spry_ir *ir, spry_view text, bool in_json)
{
    parser p = {.ir = ir,
                .source = {text, 0, true},
                .in_json = in_json,
                .hash = spry_hash_bytes(text.data, text.size, 0),
                .between = SPRY_IR_NONE};
    const spry_view start = SPRY_VIEW("start");
    spry_map_init(&p.names);
    read_statements(&p, false);
    read_ignored(&p);
    if (!is_defined(&p, start)) /* else another part of the grammar has the same text */
        read_statements(&p, true);
    if (!failed(&p) && !is_defined(&p, start))
        spry_ir_fail(ir, SPRY_ERR_INPUT, "the lark grammar has no rule 'start'");
    spry_ir_node node = rule_node(&p, start);
    if (p.between != SPRY_IR_NONE)
        node = spry_ir_sequence(ir, (spry_ir_node[]){p.between, node}, 2);
    spry_map_deinit(&p.names);
    free(p.terminals);
    free(p.ignored);
    return node;
}
