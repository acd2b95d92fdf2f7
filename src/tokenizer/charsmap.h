/* SentencePiece's precompiled normalisation: a double-array trie of spellings, and what each of them becomes. */
#ifndef SPRY_TOKENIZER_CHARSMAP_H
#define SPRY_TOKENIZER_CHARSMAP_H

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_charsmap {
    const unsigned char *units; /* [n_units] little-endian 32-bit numbers, at any address */
    size_t n_units;
    spry_view texts; /* each up to a zero */
} spry_charsmap;

/* Checks the map's sizes; it points into `bytes`. */
spry_status spry_charsmap_init(spry_charsmap *map, spry_view bytes, spry_error *error);

/* Appends `text`, grapheme by grapheme, as tokenizers' Precompiled does. False when memory is short. */
bool spry_charsmap_apply(spry_buffer *out, const spry_charsmap *map, spry_view text);

/* Decodes base64; false for anything else. */
bool spry_base64_decode(spry_buffer *out, spry_view text);

#endif
