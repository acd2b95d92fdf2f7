/* Statements. Each has a function, found by keyword in a table. */
#include "template/jinja_parser.h"

#include <stdarg.h>
#include <stdio.h>

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

/* The name of the current token in messages. */
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

/* `elif` becomes an `if` in the else branch. */
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

/* `(a, b=1)` of a macro. */
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

/* Marks the assistant's text for training; has no effect here. */
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

/* Statements up to a block that begins with one of `ends` (then the current token), or to the end of the template when
 * `ends` is empty. */
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
    spry_status status = spry_jinja_lex(&tokens, source, arena, error);
    if (!status) {
        spry_jinja_parser p = {
            .token = (const spry_jinja_token *)(const void *)tokens.data, .arena = arena, .error = error};
        *out = parse_body(&p, none);
        status = p.status;
    }
    spry_buffer_deinit(&tokens);
    return status;
}
