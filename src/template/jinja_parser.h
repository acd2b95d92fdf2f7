/* Parses tokens into a tree. */
#ifndef SPRY_TEMPLATE_JINJA_PARSER_H
#define SPRY_TEMPLATE_JINJA_PARSER_H

#include "template/jinja_lexer.h"
#include "template/jinja_node.h"

/* Parses a template into nodes in `arena`. *out is a list of statements, NULL when there are none. Error messages
 * contain the line. */
spry_status spry_jinja_parse(const spry_jinja_node **out, spry_view source, spry_arena *arena, spry_error *error);

/* ---- shared by the parts of the parser --------------------------------------------------------------------------- */

typedef struct spry_jinja_parser {
    const spry_jinja_token *token; /* the current token; the last one, END, is never passed */
    spry_arena *arena;
    uint32_t depth;
    spry_status status; /* the first failure */
    spry_error *error;
    spry_jinja_node nowhere; /* target of writes after a failure */
} spry_jinja_parser;

/* Never NULL: a failed parser gets a dummy node. */
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
