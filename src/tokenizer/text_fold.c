/* Two passes over characters, with the normal form between them where accents go. */
#include "tokenizer/text_fold.h"

#include <utf8proc.h>

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

/* One small letter, but for one that becomes two characters. */
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

bool spry_text_fold(spry_buffer *out, const spry_unicode *unicode, spry_view text, unsigned folds)
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
