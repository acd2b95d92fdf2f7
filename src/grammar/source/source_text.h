/* Reading the text of a grammar or pattern, with places for messages. */
#ifndef SPRY_GRAMMAR_SOURCE_TEXT_H
#define SPRY_GRAMMAR_SOURCE_TEXT_H

#include "grammar/ir/grammar_ir.h"

typedef struct spry_source {
    spry_view text;
    size_t at;
    bool lines; /* places are lines and columns; otherwise characters of a pattern */
} spry_source;

/* The byte here, or `ahead` bytes on; -1 behind the end. */
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

/* One character; when the bytes are not UTF-8 the builder fails and it returns false. */
bool spry_source_character(spry_source *source, spry_ir *ir, uint32_t *character);

/* So many hexadecimal digits; false, and nothing read, when they are not there. */
bool spry_source_hex(spry_source *source, unsigned digits, uint32_t *value);

/* A decimal number up to `max`; false when there is none. */
bool spry_source_number(spry_source *source, uint32_t max, uint32_t *value);

/* Makes the builder fail with "line 3, column 7: sentence" or "character 7 of the pattern: sentence". */
spry_ir_node spry_source_fail(const spry_source *source, spry_ir *ir, const char *format, ...) SPRY_PRINTF(3, 4);

#endif
