/* Parses a template: text and tokens, then statements. Each statement has a function, found by keyword in a table. */
#include "template/jinja_parser.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Divides the source into tokens: text up to a tag, then the tokens inside the tag, and so on. */

typedef struct lexer {
    spry_view source; /* newlines are , and the last newline is removed */
    size_t at;
    uint32_t line;
    bool at_line_start; /* only whitespace removed by tags is between here and the start of the line */
    spry_buffer *tokens;
    spry_status status;
    spry_error *error;
} lexer;

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static char peek(const lexer *l, size_t at)
{
    return at < l->source.size ? l->source.data[at] : 0;
}

static bool is_at(const lexer *l, size_t at, const char *text)
{
    size_t size = strlen(text);
    return l->source.size - at >= size && memcmp(l->source.data + at, text, size) == 0;
}

static void move_to(lexer *l, size_t at)
{
    for (; l->at < at; l->at++)
        l->line += l->source.data[l->at] == '\n';
}

static void emit(lexer *l, spry_jinja_token_kind kind, size_t begin, size_t end)
{
    spry_jinja_token token = {{l->source.data + begin, end - begin}, l->line, kind};
    if (!spry_buffer_append(l->tokens, &token, sizeof token) && !l->status)
        l->status = spry_fail(l->error, SPRY_ERR_FORMAT, "line %u: the template is too long", l->line);
}

static void complain(lexer *l, const char *sentence)
{
    if (!l->status)
        l->status = spry_fail(l->error, SPRY_ERR_FORMAT, "line %u: %s", l->line, sentence);
}

/* ---- between tags ------------------------------------------------------------------------------------------------ */

/* The end of the text [begin, end), after removing the whitespace that the tag at `end`, of kind '%', '#' or '{',
 * removes. */
static size_t trimmed_end(const lexer *l, size_t begin, size_t end, char kind)
{
    char sign = peek(l, end + 2);
    size_t at = end;
    if (sign == '-') {
        while (at > begin && is_space(l->source.data[at - 1]))
            at--;
        return at;
    }
    if (sign == '+' || kind == '{')
        return end;
    while (at > begin && l->source.data[at - 1] != '\n' && is_space(l->source.data[at - 1]))
        at--;
    bool line_start = at > begin ? l->source.data[at - 1] == '\n' : l->at_line_start;
    return line_start ? at : end;
}

/* Continues after the end of a tag; `sign` is the character before the closing delimiter. */
static void leave_tag(lexer *l, size_t at, char sign, bool takes_newline)
{
    if (sign == '-')
        while (is_space(peek(l, at)))
            at++;
    else if (sign != '+' && takes_newline && peek(l, at) == '\n')
        at++;
    move_to(l, at);
    l->at_line_start = l->source.data[at - 1] == '\n';
}

static void skip_comment(lexer *l)
{
    size_t at = l->at + 2, begin;
    at += peek(l, at) == '-' || peek(l, at) == '+';
    begin = at;
    while (at < l->source.size && !is_at(l, at, "#}"))
        at++;
    if (at >= l->source.size) {
        complain(l, "a comment does not end");
        return;
    }
    leave_tag(l, at + 2, at > begin ? l->source.data[at - 1] : 0, true);
}

/* True if {% word %} is at `at`; *end is the offset after it, *sign the character before the closing delimiter. */
static bool is_word_tag(const lexer *l, size_t at, const char *word, size_t *end, char *sign)
{
    if (!is_at(l, at, "{%"))
        return false;
    at += 2;
    at += peek(l, at) == '-' || peek(l, at) == '+';
    while (is_space(peek(l, at)))
        at++;
    if (!is_at(l, at, word))
        return false;
    at += strlen(word);
    while (is_space(peek(l, at)))
        at++;
    *sign = peek(l, at) == '-' || peek(l, at) == '+' ? peek(l, at) : 0;
    at += *sign != 0;
    *end = at + 2;
    return is_at(l, at, "%}");
}

static void lex_raw(lexer *l, size_t after, char sign)
{
    size_t end;
    leave_tag(l, after, sign, false);
    for (size_t at = l->at; at < l->source.size; at++)
        if (is_word_tag(l, at, "endraw", &end, &sign)) {
            emit(l, SPRY_JINJA_TOKEN_TEXT, l->at, trimmed_end(l, l->at, at, '%'));
            leave_tag(l, end, sign, true);
            return;
        }
    complain(l, "a raw block does not end");
}

/* ---- inside tags ------------------------------------------------------------------------------------------------- */

static void lex_string(lexer *l)
{
    char quote = l->source.data[l->at];
    size_t at = l->at + 1;
    while (at < l->source.size && l->source.data[at] != quote)
        at += l->source.data[at] == '\\' ? 2 : 1;
    if (at >= l->source.size) {
        complain(l, "a string does not end");
        return;
    }
    emit(l, SPRY_JINJA_TOKEN_STRING, l->at + 1, at);
    move_to(l, at + 1);
}

static size_t skip_digits(const lexer *l, size_t at)
{
    while (is_digit(peek(l, at)) || (peek(l, at) == '_' && is_digit(peek(l, at + 1))))
        at++;
    return at;
}

static void lex_number(lexer *l, bool after_point)
{
    size_t end = skip_digits(l, l->at);
    bool whole = true;
    if (!after_point && peek(l, end) == '.' && is_digit(peek(l, end + 1))) {
        end = skip_digits(l, end + 1);
        whole = false;
    }
    if (!after_point && (peek(l, end) == 'e' || peek(l, end) == 'E')) {
        size_t digits = end + 1;
        digits += peek(l, digits) == '+' || peek(l, digits) == '-';
        if (is_digit(peek(l, digits))) {
            end = skip_digits(l, digits);
            whole = false;
        }
    }
    emit(l, whole ? SPRY_JINJA_TOKEN_INT : SPRY_JINJA_TOKEN_FLOAT, l->at, end);
    move_to(l, end);
}

static void lex_name(lexer *l)
{
    size_t end = l->at;
    while (is_name(peek(l, end)) || is_digit(peek(l, end)))
        end++;
    emit(l, SPRY_JINJA_TOKEN_NAME, l->at, end);
    move_to(l, end);
}

/* Length of an operator; those with two characters are tried first. */
static size_t sign_size(const lexer *l)
{
    static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < SPRY_COUNT(signs); i++)
        if (is_at(l, l->at, signs[i]))
            return 2;
    char c = l->source.data[l->at];
    return c && strchr("+-*/%~[](){}<>=.:|,", c) != NULL;
}

static void lex_sign(lexer *l, int *nesting)
{
    size_t size = sign_size(l);
    if (!size) {
        complain(l, "a character that has no meaning here");
        return;
    }
    char c = l->source.data[l->at];
    if (size == 1)
        *nesting += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    emit(l, SPRY_JINJA_TOKEN_SIGN, l->at, l->at + size);
    move_to(l, l->at + size);
}

/* True if the tag ends here: an optional sign, then `close`. */
static bool ends_tag(lexer *l, const char *close, bool block)
{
    char sign = peek(l, l->at);
    sign = sign == '-' || (sign == '+' && block) ? sign : 0;
    if (!is_at(l, l->at + (sign != 0), close))
        return false;
    emit(l, block ? SPRY_JINJA_TOKEN_BLOCK_END : SPRY_JINJA_TOKEN_PRINT_END, l->at, l->at);
    leave_tag(l, l->at + (sign != 0) + 2, sign, block);
    return true;
}

static void lex_tag(lexer *l, bool block)
{
    int nesting = 0;
    emit(l, block ? SPRY_JINJA_TOKEN_BLOCK : SPRY_JINJA_TOKEN_PRINT, l->at, l->at);
    size_t at = l->at + 2;
    move_to(l, at + (peek(l, at) == '-' || peek(l, at) == '+'));
    while (!l->status) {
        while (is_space(peek(l, l->at)))
            move_to(l, l->at + 1);
        if (l->at >= l->source.size) {
            complain(l, "a tag does not end");
            return;
        }
        if (nesting <= 0 && ends_tag(l, block ? "%}" : "}}", block))
            return;
        char c = l->source.data[l->at];
        if (c == '"' || c == '\'')
            lex_string(l);
        else if (is_digit(c))
            lex_number(l, l->source.data[l->at - 1] == '.');
        else if (is_name(c))
            lex_name(l);
        else
            lex_sign(l, &nesting);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static size_t next_tag(const lexer *l)
{
    for (size_t at = l->at; at + 1 < l->source.size; at++)
        if (l->source.data[at] == '{' && strchr("%#{", l->source.data[at + 1]) && l->source.data[at + 1])
            return at;
    return l->source.size;
}

static void lex_piece(lexer *l)
{
    size_t tag = next_tag(l), end = l->source.size, after;
    char kind = peek(l, tag + 1), sign;
    if (tag < l->source.size)
        end = trimmed_end(l, l->at, tag, kind);
    if (end > l->at)
        emit(l, SPRY_JINJA_TOKEN_TEXT, l->at, end);
    move_to(l, tag);
    if (tag == l->source.size)
        return;
    if (kind == '#')
        skip_comment(l);
    else if (is_word_tag(l, tag, "raw", &after, &sign))
        lex_raw(l, after, sign);
    else
        lex_tag(l, kind == '%');
}

/* Copies the text with uniform newlines and without the last one. */
static bool normalize(spry_view *out, spry_view source, spry_arena *arena)
{
    char *copy = spry_arena_copy(arena, source);
    size_t n = 0;
    if (!copy)
        return false;
    for (size_t i = 0; i < source.size; i++) {
        char c = source.data[i];
        if (c == '\n' && i && source.data[i - 1] == '\r')
            continue;
        copy[n++] = c == '\r' ? '\n' : c;
    }
    *out = (spry_view){copy, n && copy[n - 1] == '\n' ? n - 1 : n};
    return true;
}

/* Appends tokens, the last one END, to `tokens`. Their text is in `arena`. Error messages contain the line. */
static spry_status jinja_lex(spry_buffer *tokens, spry_view source, spry_arena *arena, spry_error *error)
{
    lexer l = {.line = 1, .at_line_start = true, .tokens = tokens, .error = error};
    if (!normalize(&l.source, source, arena))
        return spry_fail_memory(error, "a chat template", source.size);
    while (l.at < l.source.size && !l.status)
        lex_piece(&l);
    emit(&l, SPRY_JINJA_TOKEN_END, l.at, l.at);
    return l.status;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* Statements. Each has a function, found by keyword in a table. */

enum { MAX_DEPTH = 150, MAX_TOKEN_BYTES = 64 << 20, MAX_ENDS = 3 };

static spry_jinja_node *parse_body(spry_jinja_parser *p, const char *const ends[MAX_ENDS]);

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

spry_jinja_node *spry_jinja_node_create(spry_jinja_parser *p, spry_jinja_node_kind kind)
{
    spry_jinja_node *node = p->status ? NULL : spry_arena_alloc(p->arena, 1, sizeof *node);
    if (!node) {
        p->status = p->status ? p->status : spry_fail_memory(p->error, "a chat template", sizeof *node);
        p->nowhere = (spry_jinja_node){0};
        return &p->nowhere;
    }
    node->kind = kind;
    node->line = p->token->line;
    return node;
}

void spry_jinja_parse_fail(spry_jinja_parser *p, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    va_list arguments;
    if (p->status)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    p->status = spry_fail(p->error, SPRY_ERR_FORMAT, "line %u: %s", p->token->line, sentence);
}

bool spry_jinja_parser_enter(spry_jinja_parser *p)
{
    if (p->depth >= MAX_DEPTH)
        spry_jinja_parse_fail(p, "nested deeper than %d levels", MAX_DEPTH);
    if (p->status)
        return false;
    p->depth++;
    return true;
}

void spry_jinja_advance(spry_jinja_parser *p)
{
    if (p->token->kind != SPRY_JINJA_TOKEN_END)
        p->token++;
}

bool spry_jinja_is_sign(const spry_jinja_parser *p, const char *sign)
{
    return p->token->kind == SPRY_JINJA_TOKEN_SIGN && spry_view_is(p->token->text, sign);
}

bool spry_jinja_is_word(const spry_jinja_parser *p, const char *word)
{
    return p->token->kind == SPRY_JINJA_TOKEN_NAME && spry_view_is(p->token->text, word);
}

bool spry_jinja_take_sign(spry_jinja_parser *p, const char *sign)
{
    bool here = !p->status && spry_jinja_is_sign(p, sign);
    p->token += here;
    return here;
}

bool spry_jinja_take_word(spry_jinja_parser *p, const char *word)
{
    bool here = !p->status && spry_jinja_is_word(p, word);
    p->token += here;
    return here;
}

/* How messages name the current token. */
static spry_view token_name(const spry_jinja_parser *p)
{
    switch (p->token->kind) {
    case SPRY_JINJA_TOKEN_END: return SPRY_VIEW("the end of the template");
    case SPRY_JINJA_TOKEN_PRINT_END: return SPRY_VIEW("}}");
    case SPRY_JINJA_TOKEN_BLOCK_END: return SPRY_VIEW("%}");
    default: return p->token->text;
    }
}

void spry_jinja_expect_sign(spry_jinja_parser *p, const char *sign)
{
    spry_view name = token_name(p);
    if (!spry_jinja_take_sign(p, sign))
        spry_jinja_parse_fail(p, "'%s' is expected, not '%.*s'", sign, SPRY_VIEW_ARG(name));
}

static void expect_word(spry_jinja_parser *p, const char *word)
{
    spry_view name = token_name(p);
    if (!spry_jinja_take_word(p, word))
        spry_jinja_parse_fail(p, "'%s' is expected, not '%.*s'", word, SPRY_VIEW_ARG(name));
}

spry_view spry_jinja_expect_name(spry_jinja_parser *p)
{
    spry_view name = token_name(p);
    if (p->token->kind != SPRY_JINJA_TOKEN_NAME)
        spry_jinja_parse_fail(p, "a name is expected, not '%.*s'", SPRY_VIEW_ARG(name));
    if (p->status)
        return (spry_view){"", 0};
    spry_jinja_advance(p);
    return name;
}

static void expect_end(spry_jinja_parser *p, spry_jinja_token_kind kind)
{
    spry_view name = token_name(p);
    if (p->token->kind == kind)
        spry_jinja_advance(p);
    else
        spry_jinja_parse_fail(p, "the end of the tag is expected, not '%.*s'", SPRY_VIEW_ARG(name));
}

/* Parses the rest of a tag, the statements under it, and the keyword that ends them. */
static spry_jinja_node *parse_block(spry_jinja_parser *p, const char *end)
{
    const char *const ends[MAX_ENDS] = {end};
    expect_end(p, SPRY_JINJA_TOKEN_BLOCK_END);
    spry_jinja_node *list = parse_body(p, ends);
    expect_word(p, end);
    return list;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static spry_jinja_node *parse_target(spry_jinja_parser *p, bool attributes)
{
    spry_jinja_node *first = NULL, **tail = &first;
    bool tuple = false;
    if (!spry_jinja_parser_enter(p))
        return spry_jinja_node_create(p, SPRY_JINJA_NAME);
    do {
        if (spry_jinja_take_sign(p, "(")) {
            *tail = parse_target(p, attributes);
            spry_jinja_expect_sign(p, ")");
        } else {
            *tail = spry_jinja_node_create(p, SPRY_JINJA_NAME);
            (*tail)->name = spry_jinja_expect_name(p);
            if (attributes && spry_jinja_take_sign(p, ".")) {
                spry_jinja_node *name = *tail;
                *tail = spry_jinja_node_create(p, SPRY_JINJA_ATTRIBUTE);
                (*tail)->a = name;
                (*tail)->name = spry_jinja_expect_name(p);
            }
        }
        tail = &(*tail)->next;
        tuple |= spry_jinja_is_sign(p, ",");
    } while (!p->status && spry_jinja_take_sign(p, ",") && !spry_jinja_is_word(p, "in") && !spry_jinja_is_sign(p, ")"));
    p->depth--;
    if (!tuple)
        return first;
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_MAKE_TUPLE);
    node->list = first;
    return node;
}

static spry_jinja_node *parse_for(spry_jinja_parser *p)
{
    static const char *const ends[MAX_ENDS] = {"else", "endfor"};
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_FOR);
    node->a = parse_target(p, false);
    expect_word(p, "in");
    node->b = spry_jinja_parse_tuple(p, true);
    if (spry_jinja_take_word(p, "if"))
        node->c = spry_jinja_parse_expression(p);
    expect_end(p, SPRY_JINJA_TOKEN_BLOCK_END);
    node->list = parse_body(p, ends);
    if (spry_jinja_take_word(p, "else"))
        node->other = parse_block(p, "endfor");
    else
        expect_word(p, "endfor");
    return node;
}

/* Parses `if`; an `elif` becomes an `if` in the else branch. */
static spry_jinja_node *parse_if(spry_jinja_parser *p)
{
    static const char *const ends[MAX_ENDS] = {"elif", "else", "endif"};
    spry_jinja_node *first = NULL, **next = &first;
    do {
        spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_IF);
        node->a = spry_jinja_parse_tuple(p, false);
        expect_end(p, SPRY_JINJA_TOKEN_BLOCK_END);
        node->list = parse_body(p, ends);
        *next = node;
        next = &node->other;
    } while (spry_jinja_take_word(p, "elif"));
    if (spry_jinja_take_word(p, "else"))
        *next = parse_block(p, "endif");
    else
        expect_word(p, "endif");
    return first;
}

static spry_jinja_node *parse_set(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_SET);
    node->a = parse_target(p, true);
    if (spry_jinja_take_sign(p, "=")) {
        node->b = spry_jinja_parse_tuple(p, false);
        return node;
    }
    node->kind = SPRY_JINJA_SET_BLOCK;
    node->b = spry_jinja_parse_filters(p, NULL);
    node->list = parse_block(p, "endset");
    return node;
}

/* Parses the parameters `(a, b=1)` of a macro. */
static spry_jinja_node *parse_params(spry_jinja_parser *p)
{
    spry_jinja_node *list = NULL, **tail = &list;
    spry_jinja_expect_sign(p, "(");
    while (!p->status && !spry_jinja_take_sign(p, ")")) {
        *tail = spry_jinja_node_create(p, SPRY_JINJA_NAMED);
        (*tail)->name = spry_jinja_expect_name(p);
        if (spry_jinja_take_sign(p, "="))
            (*tail)->b = spry_jinja_parse_expression(p);
        tail = &(*tail)->next;
        if (!spry_jinja_is_sign(p, ")"))
            spry_jinja_expect_sign(p, ",");
    }
    return list;
}

static spry_jinja_node *parse_macro(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_MACRO);
    node->name = spry_jinja_expect_name(p);
    node->params = parse_params(p);
    node->list = parse_block(p, "endmacro");
    return node;
}

static spry_jinja_node *parse_call_block(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_CALL_BLOCK);
    node->name = SPRY_VIEW("caller");
    if (spry_jinja_is_sign(p, "("))
        node->params = parse_params(p);
    node->a = spry_jinja_parse_expression(p);
    if (node->a->kind != SPRY_JINJA_CALL)
        spry_jinja_parse_fail(p, "a call is expected");
    node->list = parse_block(p, "endcall");
    return node;
}

static spry_jinja_node *parse_filter_block(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_FILTER_BLOCK);
    spry_jinja_node *first = spry_jinja_node_create(p, SPRY_JINJA_FILTER);
    first->name = spry_jinja_expect_name(p);
    if (spry_jinja_is_sign(p, "("))
        first->list = spry_jinja_parse_arguments(p);
    node->b = spry_jinja_parse_filters(p, first);
    node->list = parse_block(p, "endfilter");
    return node;
}

static spry_jinja_node *parse_with(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_WITH), **tail = &node->params;
    while (!p->status && p->token->kind != SPRY_JINJA_TOKEN_BLOCK_END) {
        *tail = spry_jinja_node_create(p, SPRY_JINJA_NAMED);
        (*tail)->name = spry_jinja_expect_name(p);
        spry_jinja_expect_sign(p, "=");
        (*tail)->b = spry_jinja_parse_expression(p);
        tail = &(*tail)->next;
        if (p->token->kind != SPRY_JINJA_TOKEN_BLOCK_END)
            spry_jinja_expect_sign(p, ",");
    }
    node->list = parse_block(p, "endwith");
    return node;
}

/* Parses a generation block, which marks the assistant's text for training; it has no effect here. */
static spry_jinja_node *parse_generation(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_GROUP);
    node->list = parse_block(p, "endgeneration");
    return node;
}

static spry_jinja_node *parse_break(spry_jinja_parser *p)
{
    return spry_jinja_node_create(p, SPRY_JINJA_BREAK);
}

static spry_jinja_node *parse_continue(spry_jinja_parser *p)
{
    return spry_jinja_node_create(p, SPRY_JINJA_CONTINUE);
}

static spry_jinja_node *parse_statement(spry_jinja_parser *p)
{
    static const struct {
        const char *word;
        spry_jinja_node *(*parse)(spry_jinja_parser *p);
    } table[] = {
        {"for", parse_for},           {"if", parse_if},
        {"set", parse_set},           {"macro", parse_macro},
        {"call", parse_call_block},   {"filter", parse_filter_block},
        {"with", parse_with},         {"break", parse_break},
        {"continue", parse_continue}, {"generation", parse_generation},
    };
    spry_jinja_node *node = NULL;
    if (!spry_jinja_parser_enter(p))
        return &p->nowhere;
    for (size_t i = 0; i < SPRY_COUNT(table) && !node; i++)
        if (spry_jinja_take_word(p, table[i].word))
            node = table[i].parse(p);
    if (!node) {
        spry_view name = token_name(p);
        spry_jinja_parse_fail(p, "the statement '%.*s' is not known here", SPRY_VIEW_ARG(name));
        node = &p->nowhere;
    }
    expect_end(p, SPRY_JINJA_TOKEN_BLOCK_END);
    p->depth--;
    return node;
}

static spry_jinja_node *parse_text(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_WRITE);
    node->name = p->token->text;
    spry_jinja_advance(p);
    return node;
}

static spry_jinja_node *parse_print(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_PRINT);
    spry_jinja_advance(p);
    node->a = spry_jinja_parse_tuple(p, false);
    expect_end(p, SPRY_JINJA_TOKEN_PRINT_END);
    return node;
}

/* Parses statements up to a block that begins with one of `ends`, which is then the current token, or up to the end of
 * the template when `ends` is empty. */
static spry_jinja_node *parse_body(spry_jinja_parser *p, const char *const ends[MAX_ENDS])
{
    spry_jinja_node *list = NULL, **tail = &list;
    while (!p->status && p->token->kind != SPRY_JINJA_TOKEN_END) {
        if (p->token->kind == SPRY_JINJA_TOKEN_TEXT) {
            *tail = parse_text(p);
        } else if (p->token->kind == SPRY_JINJA_TOKEN_PRINT) {
            *tail = parse_print(p);
        } else {
            spry_jinja_advance(p);
            for (size_t i = 0; i < MAX_ENDS && ends[i]; i++)
                if (spry_jinja_is_word(p, ends[i]))
                    return list;
            *tail = parse_statement(p);
        }
        tail = &(*tail)->next;
    }
    if (ends[0])
        spry_jinja_parse_fail(p, "'%s' is missing", ends[1] ? ends[2] ? ends[2] : ends[1] : ends[0]);
    return list;
}

spry_status spry_jinja_parse(const spry_jinja_node **out, spry_view source, spry_arena *arena, spry_error *error)
{
    static const char *const none[MAX_ENDS] = {NULL};
    spry_buffer tokens;
    spry_buffer_init(&tokens, MAX_TOKEN_BYTES);
    *out = NULL;
    spry_status status = jinja_lex(&tokens, source, arena, error);
    if (!status) {
        spry_jinja_parser p = {
            .token = (const spry_jinja_token *)(const void *)tokens.data, .arena = arena, .error = error};
        *out = parse_body(&p, none);
        status = p.status;
    }
    spry_buffer_deinit(&tokens);
    return status;
}
