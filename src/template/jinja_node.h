/* A parsed template: a tree of nodes in an arena. The comment of each kind lists its fields; node lists are linked by
 * `next`. */
#ifndef SPRY_TEMPLATE_JINJA_NODE_H
#define SPRY_TEMPLATE_JINJA_NODE_H

#include "template/jinja_value.h"

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

#endif
