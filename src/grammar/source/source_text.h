/* Reads the text of a grammar or pattern and tracks positions for messages. */
#ifndef SPRY_GRAMMAR_SOURCE_TEXT_H
#define SPRY_GRAMMAR_SOURCE_TEXT_H

#include "grammar/ir/grammar_ir.h"

typedef struct spry_source {
    spry_view text;
    size_t at;
    bool lines; /* positions are lines and columns; otherwise characters of a pattern */
} spry_source;

/* The byte `ahead` bytes after the current one; -1 past the end. */
static inline int spry_source_peek_at(const spry_source *source, size_t ahead)
{
    return ahead < source->text.size - source->at ? (unsigned char)source->text.data[source->at + ahead] : -1;
}

static inline int spry_source_peek(const spry_source *source)
{
    return spry_source_peek_at(source, 0);
}

static inline bool spry_source_take(spry_source *source, char wanted)
{
    if (spry_source_peek(source) != (unsigned char)wanted)
        return false;
    source->at++;
    return true;
}

/* Reads one character; for invalid UTF-8 the builder fails and it returns false. */
bool spry_source_character(spry_source *source, spry_ir *ir, uint32_t *character);

/* Reads exactly `digits` hexadecimal digits; false, with nothing read, when there are fewer. */
bool spry_source_hex(spry_source *source, unsigned digits, uint32_t *value);

/* Reads a decimal number up to `max`; false when there is none. */
bool spry_source_number(spry_source *source, uint32_t max, uint32_t *value);

/* Makes the builder fail with "line 3, column 7: message" or "character 7 of the pattern: message". */
spry_ir_node spry_source_fail(const spry_source *source, spry_ir *ir, const char *format, ...) SPRY_PRINTF(3, 4);

#endif
