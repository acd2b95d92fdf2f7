/* Values of arguments that a model did not write as JSON, as JSON of the declared types. */
#ifndef SPRY_TEMPLATE_ARGUMENT_VALUE_H
#define SPRY_TEMPLATE_ARGUMENT_VALUE_H

#include <stdint.h>

#include "base/buffer.h"
#include "template/argument_types.h"

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

/* Finds the end of the literal that began at the scan's first `at`: the comma or bracket behind it. False: it is not
 * there yet. A quote ends a string only where a delimiter follows it, since models leave quotes inside unescaped. */
bool spry_argument_literal_end(spry_literal_scan *scan, spry_view text, const char *quote, bool final);

#endif
