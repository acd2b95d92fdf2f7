/* Unicode support for tokenizers: the character classes of patterns, and the four normal forms. Both use utf8proc; the
 * classes of the first 65,536 characters are in a table, because scanners need one lookup per character. */
#ifndef SPRY_TOKENIZER_UNICODE_H
#define SPRY_TOKENIZER_UNICODE_H

#include "base/buffer.h"
#include "base/utf8.h"

enum {
    SPRY_CHAR_LETTER = 1,     /* \p{L} */
    SPRY_CHAR_NUMBER = 2,     /* \p{N} */
    SPRY_CHAR_SPACE = 4,      /* \s: the property White_Space */
    SPRY_CHAR_WORD = 8,       /* \w */
    SPRY_CHAR_UNSETTLED = 16, /* NFC may change it or combine it with preceding text */
};

typedef struct spry_unicode {
    unsigned char classes[0x10000];
} spry_unicode;

void spry_unicode_init(spry_unicode *unicode);

/* The classes of any character, without the table. */
unsigned spry_unicode_classify(uint32_t character);

/* The classes of the character that starts at `text`, and its length. An invalid byte has no class and length 1. `size`
 * is at least 1. */
static inline unsigned spry_unicode_next(const spry_unicode *unicode, const char *text, size_t size, size_t *length)
{
    uint32_t character = (unsigned char)*text;
    *length = 1;
    if (character >= 0x80) {
        *length = spry_utf8_decode(&character, text, size);
        if (!*length) {
            *length = 1;
            return 0;
        }
    }
    return character < 0x10000 ? unicode->classes[character] : spry_unicode_classify(character);
}

/* The classes of the character that ends at `end` (> 0), and its length. */
unsigned spry_unicode_previous(const spry_unicode *unicode, const char *text, size_t end, size_t *length);

typedef enum spry_normal_form { SPRY_NFC, SPRY_NFD, SPRY_NFKC, SPRY_NFKD } spry_normal_form;

/* True if NFC certainly leaves `text` unchanged. */
bool spry_unicode_settled(const spry_unicode *unicode, spry_view text);

/* Appends the normal form of `text`; invalid UTF-8 bytes are unchanged and separate the surrounding text. Takes linear
 * time for any text. False when memory is short. */
bool spry_unicode_normalize(spry_buffer *out, const spry_unicode *unicode, spry_view text, spry_normal_form form);

#endif
