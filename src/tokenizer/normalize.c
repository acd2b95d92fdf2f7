/* Text changes. Each step reads a view and writes a buffer; a step without effect passes the view on. */
#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include "base/utf8.h"

/* ---- precompiled rules of SentencePiece -------------------------------------------------------------------------- */

/* In a unit of the trie, the low 8 bits are its label, bit 8 says whether a leaf follows, and bits 10 and up (times 256
 * if bit 9 is set) are the position of its children. A unit with bit 31 set is a leaf and contains a value. */

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

/* The value of the shortest spelling with which `text` begins; false: there is none. */
static bool charsmap_find(const spry_charsmap *map, spry_view text, uint32_t *value)
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

/* Appends the replacement of `text`; *found is false when the map has none. */
static bool transform(spry_buffer *out, const spry_charsmap *map, spry_view text, bool *found)
{
    uint32_t value = 0;
    *found = charsmap_find(map, text, &value) && value < map->texts.size;
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

/* ---- BERT's normalizer ------------------------------------------------------------------------------------------- */

/* BERT's normalizer makes two passes over the characters; if accents are removed, the text is converted to NFD between
 * them. */

static bool is_control(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return c != '\t' && c != '\n' && c != '\r' &&
           (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO ||
            category == UTF8PROC_CATEGORY_CS);
}

static bool is_chinese(uint32_t c)
{
    static const uint32_t blocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < SPRY_COUNT(blocks); i++)
        if (c >= blocks[i][0] && c <= blocks[i][1])
            return true;
    return false;
}

static bool append(spry_buffer *out, uint32_t c)
{
    char bytes[4];
    return spry_buffer_append(out, bytes, spry_utf8_encode(bytes, c));
}

/* Appends the lower case of a character; one character has a lower case of two. */
static bool append_small(spry_buffer *out, uint32_t c)
{
    if (c == 0x130)
        return append(out, 'i') && append(out, 0x307);
    return append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static uint32_t take(spry_view text, size_t *at)
{
    uint32_t c = 0xFFFD;
    size_t length = spry_utf8_decode(&c, text.data + *at, text.size - *at);
    *at += length ? length : 1;
    return length ? c : 0xFFFD;
}

static bool clean(spry_buffer *out, const spry_unicode *unicode, spry_view text, unsigned folds)
{
    bool ok = true;
    for (size_t at = 0; ok && at < text.size;) {
        size_t begin = at, length;
        uint32_t c = take(text, &at);
        bool space = spry_unicode_next(unicode, text.data + begin, text.size - begin, &length) & SPRY_CHAR_SPACE;
        if (folds & SPRY_FOLD_CLEAN && (c == 0 || c == 0xFFFD || is_control(c)))
            continue;
        if (folds & SPRY_FOLD_CLEAN && space)
            c = ' ';
        bool apart = folds & SPRY_FOLD_CHINESE && is_chinese(c);
        ok = (!apart || append(out, ' ')) && append(out, c) && (!apart || append(out, ' '));
    }
    return ok;
}

static bool make_small(spry_buffer *out, spry_view text, unsigned folds)
{
    bool ok = true;
    for (size_t at = 0; ok && at < text.size;) {
        uint32_t c = take(text, &at);
        if (folds & SPRY_FOLD_ACCENTS && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN)
            continue;
        ok = folds & SPRY_FOLD_CASE ? append_small(out, c) : append(out, c);
    }
    return ok;
}

/* Appends `text` after the changes in `folds`. Invalid UTF-8 becomes U+FFFD, or nothing with CLEAN. False when memory
 * is short. */
static bool text_fold(spry_buffer *out, const spry_unicode *unicode, spry_view text, unsigned folds)
{
    spry_buffer cleaned, apart;
    spry_buffer_init(&cleaned, SIZE_MAX / 2);
    spry_buffer_init(&apart, SIZE_MAX / 2);
    bool ok = clean(&cleaned, unicode, text, folds);
    if (ok && folds & SPRY_FOLD_ACCENTS)
        ok = spry_unicode_normalize(&apart, unicode, spry_buffer_view(&cleaned), SPRY_NFD);
    ok = ok && make_small(out, spry_buffer_view(folds & SPRY_FOLD_ACCENTS ? &apart : &cleaned), folds);
    spry_buffer_deinit(&cleaned);
    spry_buffer_deinit(&apart);
    return ok;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

bool spry_changes_add(spry_changes *changes, spry_change_step step)
{
    if (changes->count == SPRY_CHANGE_STEPS_MAX)
        return false;
    changes->steps[changes->count++] = step;
    return true;
}

static const char *find(spry_view text, size_t from, spry_view needle)
{
    if (needle.size == 1)
        return memchr(text.data + from, needle.data[0], text.size - from);
    return memmem(text.data + from, text.size - from, needle.data, needle.size);
}

static bool replace(spry_buffer *out, spry_view text, spry_view from, spry_view to)
{
    size_t done = 0;
    const char *hit;
    while (done < text.size && (hit = find(text, done, from))) {
        size_t at = (size_t)(hit - text.data);
        spry_buffer_append(out, text.data + done, at - done);
        if (!spry_buffer_append(out, to.data, to.size))
            return false;
        done = at + from.size;
    }
    return spry_buffer_append(out, text.data + done, text.size - done);
}

static spry_view strip(const spry_unicode *unicode, spry_view text, bool left, bool right)
{
    size_t length;
    while (left && text.size && spry_unicode_next(unicode, text.data, text.size, &length) & SPRY_CHAR_SPACE) {
        text.data += length;
        text.size -= length;
    }
    while (right && text.size && spry_unicode_previous(unicode, text.data, text.size, &length) & SPRY_CHAR_SPACE)
        text.size -= length;
    return text;
}

static bool squeeze(spry_buffer *out, spry_view text)
{
    bool space = true; /* also removes spaces at the beginning */
    for (size_t i = 0; i < text.size; i++) {
        bool previous = space;
        space = text.data[i] == ' ';
        if (!(space && previous) && !spry_buffer_append(out, text.data + i, 1))
            return false;
    }
    if (space && out->size)
        out->data[--out->size] = 0;
    return true;
}

static bool join_runs(spry_buffer *out, spry_view text, spry_view to)
{
    for (size_t i = 0, run; i < text.size; i += run ? run : 1) {
        for (run = 0; i + run < text.size && text.data[i + run] == ' '; run++)
            continue;
        bool ok = run > 1 ? spry_buffer_append(out, to.data, to.size) : spry_buffer_append(out, text.data + i, 1);
        if (!ok)
            return false;
    }
    return true;
}

static bool join_words(spry_buffer *out, const spry_unicode *unicode, spry_view text)
{
    bool space = false; /* a space must be written before the next word */
    for (size_t i = 0, length; i < text.size; i += length) {
        if (spry_unicode_next(unicode, text.data + i, text.size - i, &length) & SPRY_CHAR_SPACE) {
            space = out->size > 0;
            continue;
        }
        if ((space && !spry_buffer_append(out, " ", 1)) || !spry_buffer_append(out, text.data + i, length))
            return false;
        space = false;
    }
    return true;
}

static bool prepend(spry_buffer *out, spry_view text, spry_view prefix)
{
    return spry_buffer_append(out, prefix.data, prefix.size) && spry_buffer_append(out, text.data, text.size);
}

/* True if the step would leave `text` unchanged. */
static bool is_idle(const spry_change_step *step, const spry_unicode *unicode, spry_view text, bool first)
{
    switch (step->change) {
    case SPRY_CHANGE_FORM: return step->form == SPRY_NFC && spry_unicode_settled(unicode, text);
    case SPRY_CHANGE_PREPEND: return text.size == 0;
    case SPRY_CHANGE_PREFIX: return text.size == 0 || (step->only_first && !first) || spry_view_starts(text, step->to);
    case SPRY_CHANGE_REPLACE: return text.size == 0 || step->from.size == 0 || !find(text, 0, step->from);
    default: return text.size == 0;
    }
}

static bool apply_step(spry_buffer *out, const spry_change_step *step, const spry_unicode *unicode, spry_view text)
{
    switch (step->change) {
    case SPRY_CHANGE_FORM: return spry_unicode_normalize(out, unicode, text, step->form);
    case SPRY_CHANGE_PREPEND:
    case SPRY_CHANGE_PREFIX: return prepend(out, text, step->to);
    case SPRY_CHANGE_REPLACE: return replace(out, text, step->from, step->to);
    case SPRY_CHANGE_RUNS: return join_runs(out, text, step->to);
    case SPRY_CHANGE_WORDS: return join_words(out, unicode, text);
    case SPRY_CHANGE_FOLD: return text_fold(out, unicode, text, step->folds);
    case SPRY_CHANGE_CHARS: return spry_charsmap_apply(out, &step->chars, text);
    default: return squeeze(out, text);
    }
}

bool spry_changes_apply(spry_view *result, const spry_changes *changes, const spry_unicode *unicode,
                        spry_buffer scratch[2], spry_view text, bool first)
{
    size_t next = 0; /* the buffer that does not contain the text */
    for (size_t i = 0; i < changes->count; i++) {
        const spry_change_step *step = &changes->steps[i];
        if (is_idle(step, unicode, text, first))
            continue;
        if (step->change == SPRY_CHANGE_STRIP) {
            text = strip(unicode, text, step->left, step->right);
            continue;
        }
        spry_buffer_clear(&scratch[next]);
        if (!apply_step(&scratch[next], step, unicode, text))
            return false;
        text = spry_buffer_view(&scratch[next]);
        next ^= 1;
    }
    *result = text;
    return true;
}
