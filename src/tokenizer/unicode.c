/* Normalisation works on spans. A span starts at a character that cannot combine with preceding text and ends before
 * the next such character, so spans can be normalised separately. Most spans are one unchanged character, which is
 * copied. Inside a span marks are sorted into canonical order by a stable counting sort: utf8proc's sort takes
 * quadratic time on long runs of marks. */
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/number.h"

enum {
    MAX_EXPANSION = 18, /* maximum decomposition length of a character (U+FDFA, compatibility) */
    MAX_PER_BYTE = 6,   /* maximum decomposition per byte of UTF-8 */
};

static bool is_white_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_conjoining_jamo(uint32_t c)
{
    return (c >= 0x1160 && c <= 0x11FF) || (c >= 0xD7B0 && c <= 0xD7FF);
}

/* True if NFC changes the character even if it is alone. */
static bool changes_alone(uint32_t c, const utf8proc_property_t *property)
{
    if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0)
        return false;
    utf8proc_int32_t parts[MAX_EXPANSION];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, MAX_EXPANSION, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 0 || n > MAX_EXPANSION)
        return true;
    n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return n != 1 || parts[0] != (utf8proc_int32_t)c;
}

static unsigned category_classes(utf8proc_category_t category)
{
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return SPRY_CHAR_LETTER | SPRY_CHAR_WORD;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: return SPRY_CHAR_NUMBER | SPRY_CHAR_WORD;
    case UTF8PROC_CATEGORY_NO: return SPRY_CHAR_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return SPRY_CHAR_WORD | SPRY_CHAR_UNSETTLED;
    case UTF8PROC_CATEGORY_PC: return SPRY_CHAR_WORD;
    default: return 0;
    }
}

unsigned spry_unicode_classify(uint32_t c)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)c);
    unsigned classes = category_classes((utf8proc_category_t)property->category);
    if (is_white_space(c))
        classes |= SPRY_CHAR_SPACE;
    if (c == 0x200C || c == 0x200D) /* \w includes the property Join_Control */
        classes |= SPRY_CHAR_WORD;
    if (property->combining_class || is_conjoining_jamo(c) || changes_alone(c, property))
        classes |= SPRY_CHAR_UNSETTLED;
    return classes;
}

void spry_unicode_init(spry_unicode *unicode)
{
    for (uint32_t c = 0; c < 0x10000; c++)
        unicode->classes[c] = (unsigned char)spry_unicode_classify(c);
}

unsigned spry_unicode_previous(const spry_unicode *unicode, const char *text, size_t end, size_t *length)
{
    for (size_t back = 2; back <= 4 && back <= end; back++) {
        uint32_t character;
        if (spry_utf8_decode(&character, text + end - back, back) == back)
            return spry_unicode_next(unicode, text + end - back, back, length);
    }
    return spry_unicode_next(unicode, text + end - 1, 1, length);
}

bool spry_unicode_settled(const spry_unicode *unicode, spry_view text)
{
    for (size_t i = 0, length; i < text.size; i += length) {
        length = 1;
        /* U+0300, the first character that NFC may reorder, starts with byte CC */
        if ((unsigned char)text.data[i] >= 0xCC &&
            spry_unicode_next(unicode, text.data + i, text.size - i, &length) & SPRY_CHAR_UNSETTLED)
            return false;
    }
    return true;
}

static unsigned combining_class(utf8proc_int32_t character)
{
    return (unsigned)utf8proc_get_property(character)->combining_class;
}

/* Stable sort of a run of marks by combining class. `spare` has the same size. */
static void sort_marks(utf8proc_int32_t *marks, utf8proc_int32_t *spare, size_t count)
{
    size_t starts[257] = {0};
    for (size_t i = 0; i < count; i++)
        starts[combining_class(marks[i]) + 1]++;
    for (size_t order = 1; order < 257; order++)
        starts[order] += starts[order - 1];
    for (size_t i = 0; i < count; i++)
        spare[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void order_marks(utf8proc_int32_t *characters, utf8proc_int32_t *spare, size_t count)
{
    for (size_t begin = 0; begin < count; begin++) {
        bool sorted = true;
        unsigned previous = 0, order;
        size_t end = begin;
        while (end < count && (order = combining_class(characters[end])) != 0) {
            sorted = sorted && order >= previous;
            previous = order;
            end++;
        }
        if (!sorted)
            sort_marks(characters + begin, spare, end - begin);
        begin = end;
    }
}

static size_t decompose(utf8proc_int32_t *out, size_t capacity, spry_view span, spry_normal_form form)
{
    unsigned compat = form == SPRY_NFKC || form == SPRY_NFKD ? (unsigned)UTF8PROC_COMPAT : 0;
    size_t count = 0, length;
    for (size_t i = 0; i < span.size; i += length) {
        uint32_t character = 0;
        length = spry_utf8_decode(&character, span.data + i, span.size - i);
        int boundary = 0;
        size_t room = capacity - count;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)character, out + count, (utf8proc_ssize_t)room,
                                                     (utf8proc_option_t)(UTF8PROC_DECOMPOSE | compat), &boundary);
        count += n > 0 && (size_t)n <= room ? (size_t)n : 0;
    }
    return count;
}

/* Normalises a span of valid UTF-8. */
static bool normalize_span(spry_buffer *out, spry_view span, spry_normal_form form)
{
    utf8proc_int32_t local[256];
    utf8proc_int32_t *characters = local;
    size_t capacity = SPRY_COUNT(local) / 2;
    if (span.size > (capacity - MAX_EXPANSION) / MAX_PER_BYTE) {
        size_t bytes;
        if (!spry_checked_mul(&capacity, span.size, MAX_PER_BYTE) ||
            !spry_checked_add(&capacity, capacity, MAX_EXPANSION) ||
            !spry_checked_mul(&bytes, capacity, 2 * sizeof *characters) || !(characters = malloc(bytes)))
            return false;
    }
    size_t count = decompose(characters, capacity, span, form);
    order_marks(characters, characters + capacity, count);
    if (form == SPRY_NFC || form == SPRY_NFKC) {
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(characters, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        count = n > 0 ? (size_t)n : 0;
    }
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        char bytes[4];
        ok = spry_buffer_append(out, bytes, spry_utf8_encode(bytes, (uint32_t)characters[i]));
    }
    if (characters != local)
        free(characters);
    return ok;
}

/* The end of the span at `begin`: its first character and the unsettled ones after it. */
static size_t span_end(const spry_unicode *unicode, spry_view text, size_t begin, bool *alone)
{
    size_t length, end = begin;
    *alone = !(spry_unicode_next(unicode, text.data + end, text.size - end, &length) & SPRY_CHAR_UNSETTLED);
    uint32_t character;
    bool valid = spry_utf8_decode(&character, text.data + end, text.size - end) != 0;
    end += length;
    if (!valid)
        return end;
    while (end < text.size &&
           spry_unicode_next(unicode, text.data + end, text.size - end, &length) & SPRY_CHAR_UNSETTLED) {
        *alone = false;
        end += length;
    }
    return end;
}

static bool normalize_nfc(spry_buffer *out, const spry_unicode *unicode, spry_view text)
{
    size_t copied = 0, end;
    for (size_t i = 0; i < text.size; i = end) {
        bool alone;
        end = span_end(unicode, text, i, &alone);
        if (alone)
            continue;
        if (!spry_buffer_append(out, text.data + copied, i - copied) ||
            !normalize_span(out, (spry_view){text.data + i, end - i}, SPRY_NFC))
            return false;
        copied = end;
    }
    return spry_buffer_append(out, text.data + copied, text.size - copied);
}

bool spry_unicode_normalize(spry_buffer *out, const spry_unicode *unicode, spry_view text, spry_normal_form form)
{
    if (form == SPRY_NFC)
        return normalize_nfc(out, unicode, text);
    size_t begin = 0, i = 0;
    while (i < text.size) {
        uint32_t character;
        size_t length = spry_utf8_decode(&character, text.data + i, text.size - i);
        if (!length) {
            if (!normalize_span(out, (spry_view){text.data + begin, i - begin}, form) ||
                !spry_buffer_append(out, text.data + i, 1))
                return false;
            begin = i + 1;
        }
        i += length ? length : 1;
    }
    return normalize_span(out, (spry_view){text.data + begin, i - begin}, form);
}
