/* What BERT's normalizer does to a text: spaces for white space, nothing for control characters, spaces around Chinese
 * characters, no accents, small letters. */
#ifndef SPRY_TOKENIZER_TEXT_FOLD_H
#define SPRY_TOKENIZER_TEXT_FOLD_H

#include "tokenizer/unicode.h"

enum {
    SPRY_FOLD_CLEAN = 1,
    SPRY_FOLD_CHINESE = 2, /* spaces around them */
    SPRY_FOLD_ACCENTS = 4, /* NFD without nonspacing marks */
    SPRY_FOLD_CASE = 8,
};

/* Appends `text` changed so. Invalid UTF-8 becomes U+FFFD, or nothing with CLEAN. False when memory is short. */
bool spry_text_fold(spry_buffer *out, const spry_unicode *unicode, spry_view text, unsigned folds);

#endif
