/* Expressions, one function per precedence level, lowest first: conditional, or, and, not, comparison, + -, ~, * / //
 * %, **, sign, then postfix operators: attributes, calls, filters and tests. */
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "base/utf8.h"
#include "template/jinja_parser.h"

static spry_jinja_node *parse_unary(spry_jinja_parser *p, bool with_filters);

static spry_jinja_node *create_with(spry_jinja_parser *p, spry_jinja_node_kind kind, spry_jinja_node *a,
                                    spry_jinja_node *b)
{
    spry_jinja_node *node = spry_jinja_node_create(p, kind);
    node->a = a;
    node->b = b;
    return node;
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

static spry_jinja_node *constant(spry_jinja_parser *p, spry_jinja_value value)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_CONST);
    node->value = value;
    return node;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The character of \xhh, \uhhhh or \Uhhhhhhhh; text.data[at] is the letter. 0 for other forms. */
static size_t unescape_hex(uint32_t *character, spry_view text, size_t at)
{
    size_t digits = text.data[at] == 'x' ? 2 : text.data[at] == 'u' ? 4 : 8;
    *character = 0;
    if (text.size - at <= digits)
        return 0;
    for (size_t i = 1; i <= digits; i++) {
        int digit = hex_digit(text.data[at + i]);
        if (digit < 0)
            return 0;
        *character = *character << 4 | (uint32_t)digit;
    }
    return *character <= 0x10ffff && (*character < 0xd800 || *character > 0xdfff) ? 1 + digits : 0;
}

static size_t unescape_octal(uint32_t *character, spry_view text, size_t at)
{
    size_t n = 0;
    *character = 0;
    while (n < 3 && at + n < text.size && text.data[at + n] >= '0' && text.data[at + n] <= '7')
        *character = *character << 3 | (uint32_t)(text.data[at + n++] - '0');
    return n;
}

/* Decodes one escape, `at` is after its backslash; writes to *out and returns its length. An unknown escape is kept
 * with its backslash. */
static size_t unescape(char **out, spry_view text, size_t at)
{
    static const char letters[] = "nrt\\'\"abfv", meanings[] = "\n\r\t\\'\"\a\b\f\v";
    char c = text.data[at];
    const char *found = c ? strchr(letters, c) : NULL;
    uint32_t character = 0;
    size_t used = 0;
    if (found) {
        *(*out)++ = meanings[found - letters];
        return 1;
    }
    if (c == '\n')
        return 1;
    if (c == 'x' || c == 'u' || c == 'U')
        used = unescape_hex(&character, text, at);
    else
        used = unescape_octal(&character, text, at);
    if (used)
        *out += spry_utf8_encode(*out, character);
    else
        *(*out)++ = '\\';
    return used;
}

/* Parses strings; adjacent strings are concatenated. */
static spry_jinja_node *parse_string(spry_jinja_parser *p)
{
    size_t room = 1;
    for (const spry_jinja_token *t = p->token; t->kind == SPRY_JINJA_TOKEN_STRING; t++)
        room += t->text.size;
    spry_jinja_string *string = spry_arena_alloc(p->arena, 1, sizeof *string);
    char *data = spry_arena_alloc(p->arena, room, 1), *out = data;
    spry_jinja_node *node = constant(p, SPRY_JINJA_NOTHING);
    if (!string || !data) {
        p->status = p->status ? p->status : spry_fail_memory(p->error, "a chat template", room);
        return node;
    }
    for (; p->token->kind == SPRY_JINJA_TOKEN_STRING; p->token++) {
        spry_view text = p->token->text;
        for (size_t i = 0; i < text.size;) {
            if (text.data[i] == '\\' && i + 1 < text.size)
                i += 1 + unescape(&out, text, i + 1);
            else
                *out++ = text.data[i++];
        }
    }
    *string = (spry_jinja_string){.data = data, .size = (size_t)(out - data)};
    node->value = (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = string};
    return node;
}

static spry_jinja_node *parse_number(spry_jinja_parser *p)
{
    char digits[64];
    size_t n = 0;
    spry_view text = p->token->text;
    for (size_t i = 0; i < text.size && n < sizeof digits; i++)
        if (text.data[i] != '_')
            digits[n++] = text.data[i];
    spry_view plain = {digits, n};
    spry_jinja_node *node = constant(p, SPRY_JINJA_NOTHING);
    uint64_t whole;
    double real;
    if (p->token->kind == SPRY_JINJA_TOKEN_INT && spry_number_u64(&whole, plain) && whole <= INT64_MAX)
        node->value = SPRY_JINJA_INTEGER((int64_t)whole);
    else if (p->token->kind == SPRY_JINJA_TOKEN_FLOAT && n < sizeof digits && spry_number_double(&real, plain))
        node->value = SPRY_JINJA_REAL(real);
    else
        spry_jinja_parse_fail(p, "the number %.*s is too large", SPRY_VIEW_ARG(text));
    spry_jinja_advance(p);
    return node;
}

static spry_jinja_node *parse_name(spry_jinja_parser *p)
{
    static const struct {
        const char *word;
        spry_jinja_value value;
    } words[] = {
        {"true", {.kind = SPRY_JINJA_BOOL, .boolean = true}},
        {"True", {.kind = SPRY_JINJA_BOOL, .boolean = true}},
        {"false", {.kind = SPRY_JINJA_BOOL, .boolean = false}},
        {"False", {.kind = SPRY_JINJA_BOOL, .boolean = false}},
        {"none", {.kind = SPRY_JINJA_NONE}},
        {"None", {.kind = SPRY_JINJA_NONE}},
    };
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        if (spry_jinja_take_word(p, words[i].word))
            return constant(p, words[i].value);
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_NAME);
    node->name = spry_jinja_expect_name(p);
    return node;
}

/* ---- brackets ---------------------------------------------------------------------------------------------------- */

static spry_jinja_node *parse_list(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_MAKE_LIST), **tail = &node->list;
    spry_jinja_expect_sign(p, "[");
    while (!p->status && !spry_jinja_take_sign(p, "]")) {
        *tail = spry_jinja_parse_expression(p);
        tail = &(*tail)->next;
        if (!spry_jinja_is_sign(p, "]"))
            spry_jinja_expect_sign(p, ",");
    }
    return node;
}

static spry_jinja_node *parse_dict(spry_jinja_parser *p)
{
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_MAKE_DICT), **tail = &node->list;
    spry_jinja_expect_sign(p, "{");
    while (!p->status && !spry_jinja_take_sign(p, "}")) {
        spry_jinja_node *key = spry_jinja_parse_expression(p);
        spry_jinja_expect_sign(p, ":");
        *tail = create_with(p, SPRY_JINJA_NAMED, key, spry_jinja_parse_expression(p));
        tail = &(*tail)->next;
        if (!spry_jinja_is_sign(p, "}"))
            spry_jinja_expect_sign(p, ",");
    }
    return node;
}

static spry_jinja_node *parse_parentheses(spry_jinja_parser *p)
{
    spry_jinja_expect_sign(p, "(");
    if (spry_jinja_take_sign(p, ")"))
        return spry_jinja_node_create(p, SPRY_JINJA_MAKE_TUPLE);
    spry_jinja_node *node = spry_jinja_parse_tuple(p, false);
    spry_jinja_expect_sign(p, ")");
    return node;
}

static spry_jinja_node *parse_primary(spry_jinja_parser *p)
{
    switch (p->token->kind) {
    case SPRY_JINJA_TOKEN_NAME: return parse_name(p);
    case SPRY_JINJA_TOKEN_STRING: return parse_string(p);
    case SPRY_JINJA_TOKEN_INT:
    case SPRY_JINJA_TOKEN_FLOAT: return parse_number(p);
    default: break;
    }
    if (spry_jinja_is_sign(p, "("))
        return parse_parentheses(p);
    if (spry_jinja_is_sign(p, "["))
        return parse_list(p);
    if (spry_jinja_is_sign(p, "{"))
        return parse_dict(p);
    spry_jinja_parse_fail(p, "a value is expected, not '%.*s'", SPRY_VIEW_ARG(p->token->text));
    return spry_jinja_node_create(p, SPRY_JINJA_CONST);
}

/* ---- postfix operators ------------------------------------------------------------------------------------------- */

static spry_jinja_node *parse_subscript(spry_jinja_parser *p, spry_jinja_node *inner)
{
    spry_jinja_node *node = create_with(p, SPRY_JINJA_INDEX, inner, NULL), **parts[] = {&node->b, &node->c, &node->d};
    spry_jinja_expect_sign(p, "[");
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        if (!spry_jinja_is_sign(p, ":") && !spry_jinja_is_sign(p, "]"))
            *parts[i] = i == 0 ? spry_jinja_parse_tuple(p, false) : spry_jinja_parse_expression(p);
        if (!spry_jinja_take_sign(p, ":"))
            break;
        node->kind = SPRY_JINJA_SLICE;
    }
    if (node->kind == SPRY_JINJA_INDEX && !node->b)
        spry_jinja_parse_fail(p, "an index is missing");
    spry_jinja_expect_sign(p, "]");
    return node;
}

static spry_jinja_node *parse_attribute(spry_jinja_parser *p, spry_jinja_node *inner)
{
    spry_jinja_expect_sign(p, ".");
    if (p->token->kind == SPRY_JINJA_TOKEN_INT)
        return create_with(p, SPRY_JINJA_INDEX, inner, parse_number(p));
    spry_jinja_node *node = create_with(p, SPRY_JINJA_ATTRIBUTE, inner, NULL);
    node->name = spry_jinja_expect_name(p);
    return node;
}

static spry_jinja_node *parse_argument(spry_jinja_parser *p)
{
    spry_jinja_node *node;
    if (spry_jinja_is_sign(p, "*") || spry_jinja_is_sign(p, "**")) {
        node = spry_jinja_node_create(p, SPRY_JINJA_SPREAD);
        node->sign = p->token->text.size == 1 ? SPRY_JINJA_SPREAD_LIST : SPRY_JINJA_SPREAD_DICT;
        spry_jinja_advance(p);
        node->a = spry_jinja_parse_expression(p);
        return node;
    }
    if (p->token->kind == SPRY_JINJA_TOKEN_NAME && p->token[1].kind == SPRY_JINJA_TOKEN_SIGN &&
        spry_view_is(p->token[1].text, "=")) {
        node = spry_jinja_node_create(p, SPRY_JINJA_NAMED);
        node->name = spry_jinja_expect_name(p);
        spry_jinja_expect_sign(p, "=");
        node->b = spry_jinja_parse_expression(p);
        return node;
    }
    return spry_jinja_parse_expression(p);
}

spry_jinja_node *spry_jinja_parse_arguments(spry_jinja_parser *p)
{
    spry_jinja_node *list = NULL, **tail = &list;
    spry_jinja_expect_sign(p, "(");
    while (!p->status && !spry_jinja_take_sign(p, ")")) {
        *tail = parse_argument(p);
        tail = &(*tail)->next;
        if (!spry_jinja_is_sign(p, ")"))
            spry_jinja_expect_sign(p, ",");
    }
    return list;
}

static spry_jinja_node *parse_call(spry_jinja_parser *p, spry_jinja_node *inner)
{
    spry_jinja_node *node = create_with(p, SPRY_JINJA_CALL, inner, NULL);
    node->list = spry_jinja_parse_arguments(p);
    return node;
}

static spry_jinja_node *parse_postfix(spry_jinja_parser *p, spry_jinja_node *node)
{
    while (!p->status) {
        if (spry_jinja_is_sign(p, "."))
            node = parse_attribute(p, node);
        else if (spry_jinja_is_sign(p, "["))
            node = parse_subscript(p, node);
        else if (spry_jinja_is_sign(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static spry_jinja_node *parse_filter(spry_jinja_parser *p, spry_jinja_node *inner)
{
    spry_jinja_node *node = create_with(p, SPRY_JINJA_FILTER, inner, NULL);
    node->name = spry_jinja_expect_name(p);
    if (spry_jinja_is_sign(p, "("))
        node->list = spry_jinja_parse_arguments(p);
    return node;
}

spry_jinja_node *spry_jinja_parse_filters(spry_jinja_parser *p, spry_jinja_node *inner)
{
    while (!p->status && spry_jinja_take_sign(p, "|"))
        inner = parse_filter(p, inner);
    return inner;
}

/* True if a test's argument begins here, without parentheses; keywords that continue the expression are not an
 * argument. */
static bool begins_argument(const spry_jinja_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "if", "is", "in", "not", "recursive"};
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        if (spry_jinja_is_word(p, words[i]))
            return false;
    return (p->token->kind >= SPRY_JINJA_TOKEN_NAME && p->token->kind <= SPRY_JINJA_TOKEN_FLOAT) ||
           spry_jinja_is_sign(p, "[") || spry_jinja_is_sign(p, "{");
}

static spry_jinja_node *parse_test(spry_jinja_parser *p, spry_jinja_node *inner)
{
    bool negated = spry_jinja_take_word(p, "not");
    spry_jinja_node *node = create_with(p, SPRY_JINJA_TEST, inner, NULL);
    node->name = spry_jinja_expect_name(p);
    if (spry_jinja_is_sign(p, "("))
        node->list = spry_jinja_parse_arguments(p);
    else if (begins_argument(p))
        node->list = parse_postfix(p, parse_primary(p));
    return negated ? create_with(p, SPRY_JINJA_NOT, node, NULL) : node;
}

static spry_jinja_node *parse_filters_and_tests(spry_jinja_parser *p, spry_jinja_node *node)
{
    while (!p->status) {
        if (spry_jinja_take_sign(p, "|"))
            node = parse_filter(p, node);
        else if (spry_jinja_take_word(p, "is"))
            node = parse_test(p, node);
        else if (spry_jinja_is_sign(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static spry_jinja_node *parse_unary(spry_jinja_parser *p, bool with_filters)
{
    spry_jinja_node *node;
    if (!spry_jinja_parser_enter(p))
        return spry_jinja_node_create(p, SPRY_JINJA_CONST);
    if (spry_jinja_take_sign(p, "-"))
        node = create_with(p, SPRY_JINJA_NEGATE, parse_unary(p, false), NULL);
    else if (spry_jinja_take_sign(p, "+"))
        node = create_with(p, SPRY_JINJA_PLUS, parse_unary(p, false), NULL);
    else
        node = parse_primary(p);
    node = parse_postfix(p, node);
    if (with_filters)
        node = parse_filters_and_tests(p, node);
    p->depth--;
    return node;
}

typedef struct sign_name {
    const char *text;
    spry_jinja_sign sign;
} sign_name;

/* Accepts one of the operators; false when the current token is none of them. */
static bool take_one_of(spry_jinja_parser *p, spry_jinja_sign *sign, const sign_name *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (spry_jinja_take_sign(p, names[i].text)) {
            *sign = names[i].sign;
            return true;
        }
    return false;
}

static spry_jinja_node *parse_operators(spry_jinja_parser *p, const sign_name *names, size_t count,
                                        spry_jinja_node *(*operand)(spry_jinja_parser *))
{
    spry_jinja_node *node = operand(p);
    spry_jinja_sign sign;
    while (!p->status && take_one_of(p, &sign, names, count)) {
        node = create_with(p, SPRY_JINJA_ARITHMETIC, node, NULL);
        node->sign = sign;
        node->b = operand(p);
    }
    return node;
}

static spry_jinja_node *parse_value(spry_jinja_parser *p)
{
    return parse_unary(p, true);
}

static spry_jinja_node *parse_power(spry_jinja_parser *p)
{
    static const sign_name signs[] = {{"**", SPRY_JINJA_POW}};
    return parse_operators(p, signs, SPRY_COUNT(signs), parse_value);
}

static spry_jinja_node *parse_product(spry_jinja_parser *p)
{
    static const sign_name signs[] = {
        {"*", SPRY_JINJA_MUL}, {"/", SPRY_JINJA_DIV}, {"//", SPRY_JINJA_FLOOR_DIV}, {"%", SPRY_JINJA_MOD}};
    return parse_operators(p, signs, SPRY_COUNT(signs), parse_power);
}

static spry_jinja_node *parse_concat(spry_jinja_parser *p)
{
    spry_jinja_node *first = parse_product(p);
    if (!spry_jinja_is_sign(p, "~"))
        return first;
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_CONCAT), **tail = &first->next;
    node->list = first;
    while (!p->status && spry_jinja_take_sign(p, "~")) {
        *tail = parse_product(p);
        tail = &(*tail)->next;
    }
    return node;
}

static spry_jinja_node *parse_sum(spry_jinja_parser *p)
{
    static const sign_name signs[] = {{"+", SPRY_JINJA_ADD}, {"-", SPRY_JINJA_SUB}};
    return parse_operators(p, signs, SPRY_COUNT(signs), parse_concat);
}

static bool take_comparison(spry_jinja_parser *p, spry_jinja_sign *sign)
{
    static const sign_name signs[] = {{"==", SPRY_JINJA_EQ}, {"!=", SPRY_JINJA_NE}, {"<", SPRY_JINJA_LT},
                                      {"<=", SPRY_JINJA_LE}, {">", SPRY_JINJA_GT},  {">=", SPRY_JINJA_GE}};
    if (spry_jinja_take_word(p, "in")) {
        *sign = SPRY_JINJA_IN;
        return true;
    }
    if (spry_jinja_is_word(p, "not") && p->token[1].kind == SPRY_JINJA_TOKEN_NAME &&
        spry_view_is(p->token[1].text, "in")) {
        spry_jinja_advance(p);
        spry_jinja_advance(p);
        *sign = SPRY_JINJA_NOT_IN;
        return true;
    }
    return take_one_of(p, sign, signs, SPRY_COUNT(signs));
}

static spry_jinja_node *parse_comparison(spry_jinja_parser *p)
{
    spry_jinja_node *first = parse_sum(p), *node = NULL, **tail = NULL;
    spry_jinja_sign sign;
    while (!p->status && take_comparison(p, &sign)) {
        if (!node) {
            node = create_with(p, SPRY_JINJA_COMPARE, first, NULL);
            tail = &node->list;
        }
        *tail = create_with(p, SPRY_JINJA_COMPARED, parse_sum(p), NULL);
        (*tail)->sign = sign;
        tail = &(*tail)->next;
    }
    return node ? node : first;
}

static spry_jinja_node *parse_not(spry_jinja_parser *p)
{
    if (!spry_jinja_is_word(p, "not"))
        return parse_comparison(p);
    if (!spry_jinja_parser_enter(p))
        return spry_jinja_node_create(p, SPRY_JINJA_CONST);
    spry_jinja_advance(p);
    spry_jinja_node *node = create_with(p, SPRY_JINJA_NOT, parse_not(p), NULL);
    p->depth--;
    return node;
}

static spry_jinja_node *parse_and(spry_jinja_parser *p)
{
    spry_jinja_node *node = parse_not(p);
    while (!p->status && spry_jinja_take_word(p, "and"))
        node = create_with(p, SPRY_JINJA_AND, node, parse_not(p));
    return node;
}

static spry_jinja_node *parse_or(spry_jinja_parser *p)
{
    spry_jinja_node *node = parse_and(p);
    while (!p->status && spry_jinja_take_word(p, "or"))
        node = create_with(p, SPRY_JINJA_OR, node, parse_and(p));
    return node;
}

/* An expression without a conditional at its top, so that a following `if` belongs to the enclosing statement. */
static spry_jinja_node *parse_plain(spry_jinja_parser *p)
{
    if (!spry_jinja_parser_enter(p))
        return spry_jinja_node_create(p, SPRY_JINJA_CONST);
    spry_jinja_node *node = parse_or(p);
    p->depth--;
    return node;
}

spry_jinja_node *spry_jinja_parse_expression(spry_jinja_parser *p)
{
    spry_jinja_node *node = parse_plain(p);
    if (!spry_jinja_parser_enter(p))
        return node;
    while (!p->status && spry_jinja_take_word(p, "if")) {
        node = create_with(p, SPRY_JINJA_CONDITIONAL, node, parse_or(p));
        if (spry_jinja_take_word(p, "else"))
            node->c = spry_jinja_parse_expression(p);
    }
    p->depth--;
    return node;
}

/* True if a tuple that contains a comma ends here. */
static bool ends_tuple(const spry_jinja_parser *p)
{
    return p->token->kind == SPRY_JINJA_TOKEN_PRINT_END || p->token->kind == SPRY_JINJA_TOKEN_BLOCK_END ||
           spry_jinja_is_sign(p, ")") || spry_jinja_is_sign(p, "]") || spry_jinja_is_sign(p, "=") ||
           spry_jinja_is_word(p, "in");
}

spry_jinja_node *spry_jinja_parse_tuple(spry_jinja_parser *p, bool plain)
{
    spry_jinja_node *(*item)(spry_jinja_parser *) = plain ? parse_plain : spry_jinja_parse_expression;
    spry_jinja_node *first = item(p), **tail = &first->next;
    if (!spry_jinja_is_sign(p, ","))
        return first;
    spry_jinja_node *node = spry_jinja_node_create(p, SPRY_JINJA_MAKE_TUPLE);
    node->list = first;
    while (!p->status && spry_jinja_take_sign(p, ",") && !ends_tuple(p)) {
        *tail = item(p);
        tail = &(*tail)->next;
    }
    return node;
}
