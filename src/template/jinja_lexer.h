/* Splits a template into tokens and applies whitespace control. The rules are those of Jinja2 with trim_blocks and
 * lstrip_blocks, which chat templates expect: a newline directly after a block or comment is removed, and so is
 * whitespace between the start of a line and a block or comment; `-` removes all whitespace on its side, `+` none. */
#ifndef SPRY_TEMPLATE_JINJA_LEXER_H
#define SPRY_TEMPLATE_JINJA_LEXER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

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

/* Appends tokens, the last one END, to `tokens`. Their text is in `arena`. Error messages contain the line. */
spry_status spry_jinja_lex(spry_buffer *tokens, spry_view source, spry_arena *arena, spry_error *error);

#endif
