/* What the declared tools say about arguments. */
#ifndef SPRY_TEMPLATE_ARGUMENTS_H
#define SPRY_TEMPLATE_ARGUMENTS_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/view.h"

/* Types as bits; what nothing is known of has all of them. */
enum {
    SPRY_ARGUMENT_STRING = 1,
    SPRY_ARGUMENT_INTEGER = 2,
    SPRY_ARGUMENT_NUMBER = 4,
    SPRY_ARGUMENT_BOOLEAN = 8,
    SPRY_ARGUMENT_NULL = 16,
    SPRY_ARGUMENT_ARRAY = 32,
    SPRY_ARGUMENT_OBJECT = 64,
    SPRY_ARGUMENT_ANY = 127
};

/* A schema within its document, which references start from. NULL: nothing is known. */
typedef struct spry_argument_schema {
    const json_t *root, *schema;
} spry_argument_schema;

/* The function of a declared tool: {"type": "function", "function": {...}} or the inner object alone. */
const json_t *spry_tool_function(const json_t *tool);
/* The function of that name; NULL when it is not declared. */
const json_t *spry_tool_find(const json_t *tools, spry_view name);

/* The schema of a function's arguments; `function` may be NULL. */
spry_argument_schema spry_argument_schema_of(const json_t *function);
/* The schemas of a member and of the items. */
spry_argument_schema spry_argument_member(spry_argument_schema of, spry_view name);
spry_argument_schema spry_argument_item(spry_argument_schema of);

/* The types that a value may have. */
unsigned spry_argument_types(spry_argument_schema of);

/* Values of arguments that a model did not write as JSON, as JSON of the declared types. */

/* Appends a text as a JSON string. False when memory is short or the text is not UTF-8. */
bool spry_argument_string(spry_buffer *out, spry_view text);

/* Appends the value of a text without quotes: the value that it spells (JSON, or Python's True, None, {'a': 1}) where
 * the declared types allow it, else a string. */
bool spry_argument_text(spry_buffer *out, spry_view text, spry_argument_schema of);

/* Appends a whole literal with quotes: JSON or Python's, keys also without quotes. `quote`: a mark around strings, or
 * NULL. A string where none is declared becomes the value that it spells. False: it is no literal. */
bool spry_argument_literal(spry_buffer *out, spry_view text, const char *quote, spry_argument_schema of);

/* How far a literal has been scanned, so that no byte is scanned twice. Starts zeroed except `at`. */
typedef struct spry_literal_scan {
    size_t at;
    uint32_t depth;
    char quote; /* 0: not inside a string; 1: inside one between marks */
    bool escaped;
} spry_literal_scan;

/* Finds the end of the literal that began at the scan's first `at`: the comma or bracket after it. False: it is not
 * there yet. A quote ends a string only where a delimiter follows it, since models leave quotes inside unescaped. */
bool spry_argument_literal_end(spry_literal_scan *scan, spry_view text, const char *quote, bool final);

#endif
