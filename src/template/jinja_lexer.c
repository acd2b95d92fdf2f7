/* Text up to a tag, then the tokens inside it, and so on. */
#include "template/jinja_lexer.h"

typedef struct lexer {
    spry_view source; /* newlines are \n, the last one is removed */
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

static bool stands(const lexer *l, size_t at, const char *text)
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

/* The end of the text [begin, end) after whitespace control by the tag at `end` of kind '%', '#' or '{'. */
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
    while (at < l->source.size && !stands(l, at, "#}"))
        at++;
    if (at >= l->source.size) {
        complain(l, "a comment does not end");
        return;
    }
    leave_tag(l, at + 2, at > begin ? l->source.data[at - 1] : 0, true);
}

/* Whether {% word %} is at `at`; *end is after it, *sign is the character before the closing delimiter. */
static bool is_word_tag(const lexer *l, size_t at, const char *word, size_t *end, char *sign)
{
    if (!stands(l, at, "{%"))
        return false;
    at += 2;
    at += peek(l, at) == '-' || peek(l, at) == '+';
    while (is_space(peek(l, at)))
        at++;
    if (!stands(l, at, word))
        return false;
    at += strlen(word);
    while (is_space(peek(l, at)))
        at++;
    *sign = peek(l, at) == '-' || peek(l, at) == '+' ? peek(l, at) : 0;
    at += *sign != 0;
    *end = at + 2;
    return stands(l, at, "%}");
}

static void lex_raw(lexer *l, size_t behind, char sign)
{
    size_t end;
    leave_tag(l, behind, sign, false);
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

/* Operators of two characters first. */
static size_t sign_size(const lexer *l)
{
    static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < SPRY_COUNT(signs); i++)
        if (stands(l, l->at, signs[i]))
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

/* Whether the tag ends here: an optional sign, then `close`. */
static bool ends_tag(lexer *l, const char *close, bool block)
{
    char sign = peek(l, l->at);
    sign = sign == '-' || (sign == '+' && block) ? sign : 0;
    if (!stands(l, l->at + (sign != 0), close))
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
    size_t tag = next_tag(l), end = l->source.size, behind;
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
    else if (is_word_tag(l, tag, "raw", &behind, &sign))
        lex_raw(l, behind, sign);
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

spry_status spry_jinja_lex(spry_buffer *tokens, spry_view source, spry_arena *arena, spry_error *error)
{
    lexer l = {.line = 1, .at_line_start = true, .tokens = tokens, .error = error};
    if (!normalize(&l.source, source, arena))
        return spry_fail_memory(error, "a chat template", source.size);
    while (l.at < l.source.size && !l.status)
        lex_piece(&l);
    emit(&l, SPRY_JINJA_TOKEN_END, l.at, l.at);
    return l.status;
}
