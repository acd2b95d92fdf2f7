/* The types that tools declare for arguments, and conversion of argument values to JSON. */
#ifndef SPRY_TEMPLATE_ARGUMENTS_H
#define SPRY_TEMPLATE_ARGUMENTS_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/view.h"

/* Types as bits. A value about which nothing is known may have all types. */
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

/* A schema, and the document in which its references are resolved. NULL: nothing is known. */
typedef struct spry_argument_schema {
    const json_t *root, *schema;
} spry_argument_schema;

/* The function of a declared tool, which is {"type": "function", "function": {...}} or only the inner object. */
const json_t *spry_tool_function(const json_t *tool);
/* The function with this name; NULL when it is not declared. */
const json_t *spry_tool_find(const json_t *tools, spry_view name);

/* The schema of a function's arguments; `function` may be NULL. */
spry_argument_schema spry_argument_schema_of(const json_t *function);
/* The schema of a member; then, of the items. */
spry_argument_schema spry_argument_member(spry_argument_schema of, spry_view name);
spry_argument_schema spry_argument_item(spry_argument_schema of);

/* The types that a value may have. */
unsigned spry_argument_types(spry_argument_schema of);

/* Converts argument values that a model did not write as JSON to JSON of the declared types. */

/* Appends a text as a JSON string. False when memory is short or the text is not UTF-8. */
bool spry_argument_string(spry_buffer *out, spry_view text);

/* Appends a value that is written without quotes: as the value that it means (JSON, or Python's True, None, {'a': 1})
 * if the declared types allow that, otherwise as a string. */
bool spry_argument_text(spry_buffer *out, spry_view text, spry_argument_schema of);

/* Appends a complete literal with quotes, in JSON's or Python's syntax, where keys need no quotes. `quote`: a mark
 * around strings, or NULL. A string that is not declared as one becomes the value that it means. False: this is no
 * literal. */
bool spry_argument_literal(spry_buffer *out, spry_view text, const char *quote, spry_argument_schema of);

/* How far a literal has been scanned, so that no byte is scanned twice. Starts zeroed except `at`. */
typedef struct spry_literal_scan {
    size_t at;
    uint32_t depth;
    char quote; /* 0: not inside a string; 1: inside a string between marks */
    bool escaped;
} spry_literal_scan;

/* Finds the end of a literal that began where the scan began: the comma or bracket after it. False: it has not arrived
 * yet. A quote ends a string only if a delimiter follows, because models leave quotes inside strings unescaped. */
bool spry_argument_literal_end(spry_literal_scan *scan, spry_view text, const char *quote, bool final);

#endif
