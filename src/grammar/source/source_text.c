#include "grammar/source/source_text.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

bool spry_source_character(spry_source *source, spry_ir *ir, uint32_t *character)
{
    size_t size = spry_utf8_decode(character, source->text.data + source->at, source->text.size - source->at);
    if (!size)
        spry_source_fail(source, ir, "the text is not UTF-8");
    source->at += size;
    return size != 0;
}

static int digit_of(int byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return -1;
}

bool spry_source_hex(spry_source *source, unsigned digits, uint32_t *value)
{
    uint32_t read = 0;
    for (unsigned i = 0; i < digits; i++) {
        int digit = digit_of(spry_source_peek_at(source, i));
        if (digit < 0)
            return false;
        read = read << 4 | (uint32_t)digit;
    }
    *value = read;
    source->at += digits;
    return true;
}

bool spry_source_number(spry_source *source, uint32_t max, uint32_t *value)
{
    uint64_t read = 0;
    size_t begin = source->at;
    for (int byte; (byte = spry_source_peek(source)) >= '0' && byte <= '9'; source->at++) {
        read = read * 10 + (unsigned)(byte - '0');
        if (read > max)
            return false;
    }
    *value = (uint32_t)read;
    return source->at > begin;
}

spry_ir_node spry_source_fail(const spry_source *source, spry_ir *ir, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < source->at && i < source->text.size; i++) {
        unsigned char byte = (unsigned char)source->text.data[i];
        column += (byte & 0xC0) != 0x80;
        if (byte == '\n' && source->lines) {
            line++;
            column = 1;
        }
    }
    if (source->lines)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "line %zu, column %zu of the grammar: %s", line, column, sentence);
    return spry_ir_fail(ir, SPRY_ERR_INPUT, "character %zu of the pattern: %s", column, sentence);
}
