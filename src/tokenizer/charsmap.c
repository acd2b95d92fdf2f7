/* A unit of the trie has its label in the low 8 bits, whether a leaf follows in bit 8, where its children are in bits
 * 10 and up (times 256 with bit 9); a unit with bit 31 is a leaf and has a value. */
#include "tokenizer/charsmap.h"

#include <utf8proc.h>

#include "base/utf8.h"

enum { GRAPHEME_BYTES = 6 }; /* longer ones are looked up character by character */

static uint32_t number(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

spry_status spry_charsmap_init(spry_charsmap *map, spry_view bytes, spry_error *error)
{
    const unsigned char *data = (const unsigned char *)bytes.data;
    size_t size = bytes.size >= 4 ? number(data) : 0;
    if (bytes.size < 4 || size % 4 || size > bytes.size - 4 || !size)
        return spry_fail(error, SPRY_ERR_FORMAT, "the precompiled charsmap is cut off or damaged");
    *map = (spry_charsmap){.units = data + 4, .n_units = size / 4};
    map->texts = (spry_view){bytes.data + 4 + size, bytes.size - 4 - size};
    if (map->texts.size && map->texts.data[map->texts.size - 1] != 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "the precompiled charsmap does not end with a zero");
    return SPRY_OK;
}

static size_t children(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/* The value of the shortest spelling that `text` begins with; false: there is none. */
static bool find(const spry_charsmap *map, spry_view text, uint32_t *value)
{
    size_t at = 0;
    uint32_t unit = number(map->units);
    at ^= children(unit);
    for (size_t i = 0; i < text.size; i++) {
        unsigned char label = (unsigned char)text.data[i];
        at ^= label;
        if (at >= map->n_units)
            return false;
        unit = number(map->units + 4 * at);
        if ((unit & 0x800000FF) != label)
            return false;
        at ^= children(unit);
        if (unit & 0x100) {
            if (at >= map->n_units)
                return false;
            *value = number(map->units + 4 * at) & 0x7FFFFFFF;
            return true;
        }
    }
    return false;
}

/* Appends what `text` becomes; *found is false when the map does not have it. */
static bool transform(spry_buffer *out, const spry_charsmap *map, spry_view text, bool *found)
{
    uint32_t value = 0;
    *found = find(map, text, &value) && value < map->texts.size;
    return !*found || spry_buffer_append(out, map->texts.data + value, strlen(map->texts.data + value));
}

static bool apply_character(spry_buffer *out, const spry_charsmap *map, spry_view character)
{
    bool found;
    return transform(out, map, character, &found) && (found || spry_buffer_append(out, character.data, character.size));
}

static bool apply_grapheme(spry_buffer *out, const spry_charsmap *map, spry_view grapheme)
{
    bool found = false;
    if (grapheme.size < GRAPHEME_BYTES && !transform(out, map, grapheme, &found))
        return false;
    for (size_t i = 0, length; !found && i < grapheme.size; i += length) {
        uint32_t c;
        length = spry_utf8_decode(&c, grapheme.data + i, grapheme.size - i);
        length = length ? length : 1;
        if (!apply_character(out, map, (spry_view){grapheme.data + i, length}))
            return false;
    }
    return true;
}

bool spry_charsmap_apply(spry_buffer *out, const spry_charsmap *map, spry_view text)
{
    size_t begin = 0;
    utf8proc_int32_t state = 0;
    uint32_t previous = 0;
    for (size_t i = 0, length; i < text.size; i += length) {
        uint32_t c = 0xFFFD;
        length = spry_utf8_decode(&c, text.data + i, text.size - i);
        length = length ? length : 1;
        if (i && utf8proc_grapheme_break_stateful((utf8proc_int32_t)previous, (utf8proc_int32_t)c, &state)) {
            if (!apply_grapheme(out, map, (spry_view){text.data + begin, i - begin}))
                return false;
            begin = i;
        }
        previous = c;
    }
    return begin == text.size || apply_grapheme(out, map, (spry_view){text.data + begin, text.size - begin});
}

static int digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool spry_base64_decode(spry_buffer *out, spry_view text)
{
    uint32_t bits = 0;
    size_t n_bits = 0;
    while (text.size && text.data[text.size - 1] == '=')
        text.size--;
    for (size_t i = 0; i < text.size; i++) {
        int value = digit(text.data[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits >= 8) {
            unsigned char byte = (unsigned char)(bits >> (n_bits -= 8));
            if (!spry_buffer_append(out, &byte, 1))
                return false;
        }
    }
    return n_bits < 6;
}
