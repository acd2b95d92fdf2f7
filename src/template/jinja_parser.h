/* Parses tokens into a tree. */
#ifndef SPRY_TEMPLATE_JINJA_PARSER_H
#define SPRY_TEMPLATE_JINJA_PARSER_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "template/jinja_value.h"

/* A parsed template: a tree of nodes in an arena. The comment of each kind lists its fields; node lists are linked by
 * `next`. */

typedef enum spry_jinja_node_kind {
    /* expressions */
    SPRY_JINJA_CONST,     /* value */
    SPRY_JINJA_NAME,      /* name */
    SPRY_JINJA_MAKE_LIST, /* list */
    SPRY_JINJA_MAKE_TUPLE,
    SPRY_JINJA_MAKE_DICT, /* list of NAMED: a key, b value */
    SPRY_JINJA_ATTRIBUTE, /* a.name */
    SPRY_JINJA_INDEX,     /* a[b] */
    SPRY_JINJA_SLICE,     /* a[b:c:d]; each of b, c, d may be NULL */
    SPRY_JINJA_CALL,      /* a(list): NAMED for keywords, SPREAD for *x and **x (by sign) */
    SPRY_JINJA_FILTER,    /* a | name(list); a is NULL for a filter block */
    SPRY_JINJA_TEST,      /* a is name(list) */
    SPRY_JINJA_NOT,       /* a */
    SPRY_JINJA_AND,       /* a, b */
    SPRY_JINJA_OR,
    SPRY_JINJA_NEGATE, /* a */
    SPRY_JINJA_PLUS,
    SPRY_JINJA_ARITHMETIC,  /* a sign b */
    SPRY_JINJA_CONCAT,      /* list, joined as strings */
    SPRY_JINJA_COMPARE,     /* a, then list of COMPARED: sign, a */
    SPRY_JINJA_CONDITIONAL, /* a if b else c; c may be NULL */
    SPRY_JINJA_NAMED,
    SPRY_JINJA_SPREAD,
    SPRY_JINJA_COMPARED,
    /* statements */
    SPRY_JINJA_WRITE,        /* value: text between tags */
    SPRY_JINJA_PRINT,        /* a */
    SPRY_JINJA_IF,           /* a, list, other */
    SPRY_JINJA_FOR,          /* a target, b iterable, c condition or NULL, list, other */
    SPRY_JINJA_SET,          /* a target, b value */
    SPRY_JINJA_SET_BLOCK,    /* a target, b filters or NULL, list */
    SPRY_JINJA_MACRO,        /* name, params: NAMED with a default or NULL; list */
    SPRY_JINJA_CALL_BLOCK,   /* a CALL, params, list */
    SPRY_JINJA_FILTER_BLOCK, /* b filters, list */
    SPRY_JINJA_WITH,         /* params: NAMED; list */
    SPRY_JINJA_GROUP,        /* list */
    SPRY_JINJA_BREAK,
    SPRY_JINJA_CONTINUE,
    SPRY_JINJA_NODE_KINDS
} spry_jinja_node_kind;

/* Arithmetic and comparison operators. */
typedef enum spry_jinja_sign {
    SPRY_JINJA_ADD,
    SPRY_JINJA_SUB,
    SPRY_JINJA_MUL,
    SPRY_JINJA_DIV,
    SPRY_JINJA_FLOOR_DIV,
    SPRY_JINJA_MOD,
    SPRY_JINJA_POW,
    SPRY_JINJA_EQ,
    SPRY_JINJA_NE,
    SPRY_JINJA_LT,
    SPRY_JINJA_LE,
    SPRY_JINJA_GT,
    SPRY_JINJA_GE,
    SPRY_JINJA_IN,
    SPRY_JINJA_NOT_IN,
    SPRY_JINJA_SPREAD_LIST,
    SPRY_JINJA_SPREAD_DICT,
} spry_jinja_sign;

typedef struct spry_jinja_node {
    spry_jinja_node_kind kind;
    spry_jinja_sign sign;
    uint32_t line;
    spry_view name;
    spry_jinja_value value;
    struct spry_jinja_node *a, *b, *c, *d;
    struct spry_jinja_node *list, *other, *params, *next;
} spry_jinja_node;

/* Splits a template into tokens and applies whitespace control. The rules are Jinja2's with trim_blocks and
 * lstrip_blocks, which chat templates expect: a newline directly after a block or comment is removed, and so is
 * whitespace between the start of a line and a block or comment; `-` removes all whitespace on its side, `+` none. */

typedef enum spry_jinja_token_kind {
    SPRY_JINJA_TOKEN_END, /* end of the template */
    SPRY_JINJA_TOKEN_TEXT,
    SPRY_JINJA_TOKEN_PRINT,     /* {{ */
    SPRY_JINJA_TOKEN_PRINT_END, /* }} */
    SPRY_JINJA_TOKEN_BLOCK,     /* {% */
    SPRY_JINJA_TOKEN_BLOCK_END, /* %} */
    SPRY_JINJA_TOKEN_NAME,
    SPRY_JINJA_TOKEN_STRING, /* the text between the quotes, with escapes */
    SPRY_JINJA_TOKEN_INT,
    SPRY_JINJA_TOKEN_FLOAT,
    SPRY_JINJA_TOKEN_SIGN, /* an operator or a bracket */
} spry_jinja_token_kind;

typedef struct spry_jinja_token {
    spry_view text;
    uint32_t line;
    spry_jinja_token_kind kind;
} spry_jinja_token;

/* Parses a template into nodes in `arena`. *out is a list of statements, NULL when there are none. Error messages
 * contain the line. */
spry_status spry_jinja_parse(const spry_jinja_node **out, spry_view source, spry_arena *arena, spry_error *error);

/* ---- shared by the files of the parser --------------------------------------------------------------------------- */

typedef struct spry_jinja_parser {
    const spry_jinja_token *token; /* the current token; the last one, END, is never passed */
    spry_arena *arena;
    uint32_t depth;
    spry_status status; /* the first failure */
    spry_error *error;
    spry_jinja_node nowhere; /* target of writes after a failure */
} spry_jinja_parser;

/* Never NULL: after a failure the parser gives out a dummy node. */
spry_jinja_node *spry_jinja_node_create(spry_jinja_parser *p, spry_jinja_node_kind kind);
void spry_jinja_parse_fail(spry_jinja_parser *p, const char *format, ...) SPRY_PRINTF(2, 3);

/* Consumes the current token if it is this operator, or this keyword. */
bool spry_jinja_take_sign(spry_jinja_parser *p, const char *sign);
bool spry_jinja_take_word(spry_jinja_parser *p, const char *word);
bool spry_jinja_is_sign(const spry_jinja_parser *p, const char *sign);
bool spry_jinja_is_word(const spry_jinja_parser *p, const char *word);
void spry_jinja_expect_sign(spry_jinja_parser *p, const char *sign);
/* A name; empty when the parser failed. */
spry_view spry_jinja_expect_name(spry_jinja_parser *p);
void spry_jinja_advance(spry_jinja_parser *p);
bool spry_jinja_parser_enter(spry_jinja_parser *p);

spry_jinja_node *spry_jinja_parse_expression(spry_jinja_parser *p);
/* One expression, or several separated by commas: a tuple. */
spry_jinja_node *spry_jinja_parse_tuple(spry_jinja_parser *p, bool plain);
/* Parses any number of `| name(...)` filters applied to `inner`. */
spry_jinja_node *spry_jinja_parse_filters(spry_jinja_parser *p, spry_jinja_node *inner);
/* `(a, b=1)` as a list of nodes. */
spry_jinja_node *spry_jinja_parse_arguments(spry_jinja_parser *p);

#endif
