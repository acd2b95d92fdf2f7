/* Text changes before splitting: a list of steps from tokenizer.json's normalizers, SentencePiece's rules and the
 * text-changing pre-tokenizers. */
#ifndef SPRY_TOKENIZER_NORMALIZE_H
#define SPRY_TOKENIZER_NORMALIZE_H

#include "base/buffer.h"
#include "base/error.h"
#include "tokenizer/unicode.h"

/* SentencePiece's precompiled normalisation: a double-array trie of spellings, and the replacement of each. */

typedef struct spry_charsmap {
    const unsigned char *units; /* [n_units] little-endian 32-bit numbers, at any address */
    size_t n_units;
    spry_view texts; /* replacements, each ends at a zero */
} spry_charsmap;

/* Checks the map's sizes; it points into `bytes`. */
spry_status spry_charsmap_init(spry_charsmap *map, spry_view bytes, spry_error *error);

/* Appends `text`, grapheme by grapheme, as tokenizers' Precompiled does. False when memory is short. */
bool spry_charsmap_apply(spry_buffer *out, const spry_charsmap *map, spry_view text);

/* Decodes base64; false for anything else. */
bool spry_base64_decode(spry_buffer *out, spry_view text);

/* The changes of BERT's normalizer: spaces in place of whitespace, control characters removed, spaces around Chinese
 * characters, accents removed, lower case. */

enum {
    SPRY_FOLD_CLEAN = 1,
    SPRY_FOLD_CHINESE = 2, /* spaces around them */
    SPRY_FOLD_ACCENTS = 4, /* NFD without nonspacing marks */
    SPRY_FOLD_CASE = 8,
};

typedef enum spry_change {
    SPRY_CHANGE_FORM,    /* converts to a normal form */
    SPRY_CHANGE_PREPEND, /* puts `to` before non-empty text */
    SPRY_CHANGE_PREFIX,  /* like PREPEND, unless the text already starts with `to` */
    SPRY_CHANGE_REPLACE, /* every `from` becomes `to` */
    SPRY_CHANGE_STRIP,   /* removes whitespace at the ends */
    SPRY_CHANGE_SQUEEZE, /* removes spaces at the ends and joins runs of spaces (SentencePiece's
                          * remove_extra_whitespaces) */
    SPRY_CHANGE_RUNS,    /* replaces runs of two or more spaces by `to` */
    SPRY_CHANGE_WORDS,   /* replaces runs of whitespace by one space, and removes whitespace at the ends */
    SPRY_CHANGE_FOLD,    /* applies BERT's normalizer */
    SPRY_CHANGE_CHARS,   /* applies SentencePiece's precompiled trie */
} spry_change;

typedef struct spry_change_step {
    spry_change change;
    spry_normal_form form;
    spry_view from, to;
    bool left, right; /* STRIP: at which ends */
    bool only_first;  /* PREFIX: only at the beginning of the whole text */
    unsigned folds;   /* FOLD: which changes */
    spry_charsmap chars;
} spry_change_step;

enum { SPRY_CHANGE_STEPS_MAX = 16 };

typedef struct spry_changes {
    spry_change_step steps[SPRY_CHANGE_STEPS_MAX];
    size_t count;
} spry_changes;

/* Adds a step; false when there are too many. */
bool spry_changes_add(spry_changes *changes, spry_change_step step);

/* Applies the steps. The result is `text` itself or is in one of the two buffers, which the caller owns and which have
 * no other contents. `first`: `text` is at the beginning of the whole text. False when memory is short. */
bool spry_changes_apply(spry_view *result, const spry_changes *changes, const spry_unicode *unicode,
                        spry_buffer scratch[2], spry_view text, bool first);

#endif
