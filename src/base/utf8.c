/* The table of well-formed sequences is Unicode's (chapter 3, table 3-7): the valid range of the second byte depends on
 * the first. */
#include "base/utf8.h"

/* Length of the character that starts with `lead`, and the range of its second byte; 0 when `lead` starts no
 * character. */
static size_t lead_info(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0)
            *low = 0xA0;
        else if (lead == 0xED)
            *high = 0x9F;
        return 3;
    }
    if (lead == 0xF0)
        *low = 0x90;
    else if (lead == 0xF4)
        *high = 0x8F;
    return 4;
}

/* Number of leading bytes that form a (possibly incomplete) character; *length is its full length, 0 when no character
 * starts here. */
static size_t well_formed_prefix(const char *data, size_t size, size_t *length)
{
    unsigned char low, high;
    *length = size ? lead_info((unsigned char)data[0], &low, &high) : 0;
    if (!*length)
        return 0;
    size_t have = 1;
    while (have < *length && have < size) {
        unsigned char byte = (unsigned char)data[have];
        if (byte < low || byte > high)
            break;
        low = 0x80;
        high = 0xBF;
        have++;
    }
    return have;
}

size_t spry_utf8_decode(uint32_t *character, const char *data, size_t size)
{
    static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t length;
    if (well_formed_prefix(data, size, &length) != length || !length)
        return 0;
    uint32_t value = (unsigned char)data[0] & lead_mask[length];
    for (size_t i = 1; i < length; i++)
        value = value << 6 | ((unsigned char)data[i] & 0x3F);
    *character = value;
    return length;
}

size_t spry_utf8_encode(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(lead[length] | c);
    return length;
}

size_t spry_utf8_incomplete_tail(const char *data, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        size_t length;
        size_t have = well_formed_prefix(data + size - back, back, &length);
        if (length && have == back && have < length)
            return back;
    }
    return 0;
}

bool spry_utf8_valid(spry_view text)
{
    uint32_t character;
    for (size_t i = 0, n; i < text.size; i += n) {
        n = spry_utf8_decode(&character, text.data + i, text.size - i);
        if (!n)
            return false;
    }
    return true;
}

size_t spry_utf8_append_valid(spry_buffer *out, spry_view text)
{
    size_t replaced = 0, start = 0, i = 0;
    while (i < text.size) {
        size_t length;
        size_t have = well_formed_prefix(text.data + i, text.size - i, &length);
        if (length && have == length) {
            i += length;
            continue;
        }
        spry_buffer_append(out, text.data + start, i - start);
        spry_buffer_append(out, "\xEF\xBF\xBD", 3);
        replaced++;
        i += have ? have : 1;
        start = i;
    }
    if (start < text.size)
        spry_buffer_append(out, text.data + start, text.size - start);
    return replaced;
}
