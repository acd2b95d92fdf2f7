/* From a word to the symbols merging starts with, and back to ids.
 *
 * Byte-level BPE starts with one symbol a byte. SentencePiece BPE starts with one a character; a character that is no
 * token becomes its bytes' tokens <0xNN>, or else the unknown token. A character that is no token itself but occurs
 * inside longer tokens gets a symbol beyond the vocabulary, because merging may still reach those tokens. */
#ifndef SPRY_TOKENIZER_SYMBOLS_H
#define SPRY_TOKENIZER_SYMBOLS_H

#include "tokenizer/bpe.h"
#include "tokenizer/vocab.h"

#define SPRY_SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct spry_symbols {
    bool by_byte;
    int32_t bytes[256];  /* the token of a byte, -1: none */
    spry_map characters; /* to symbols; only where not by_byte */
    spry_view *extra;    /* [n_extra] the characters of the symbols beyond the vocabulary */
    size_t n_extra;
    int32_t first_extra;                      /* the vocabulary's size */
    int32_t unknown;                          /* -1: none */
    bool fuse_unknown;                        /* a run of unknown characters is one token */
    bool joins_space[128], joins_space_other; /* does any token have the space mark behind this character? */
} spry_symbols;

/* The alphabet that byte-level vocabularies spell bytes in: printable bytes stand for themselves, the others are moved
 * to U+0100 and up. Writes the spelling of a byte; returns its length. */
size_t spry_byte_spelling(char out[4], unsigned char byte);

/* Appends the bytes that `name` spells in that alphabet; false (and nothing appended) when a character is not of it. */
bool spry_byte_decode(spry_buffer *out, spry_view name);

/* `byte_fallback` admits the tokens of kind BYTE. The vocabulary must outlive the symbols. */
spry_status spry_symbols_init(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab, bool by_byte,
                              bool byte_fallback, spry_error *error);
void spry_symbols_deinit(spry_symbols *symbols);

/* The symbol of one character; -1: none. */
int32_t spry_symbols_find(const spry_symbols *symbols, spry_view character);

/* Pushes the symbols of a word; false when memory is short. */
bool spry_symbols_push(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view word);

/* Appends the ids of a word's merged symbols. */
bool spry_symbols_emit(const spry_symbols *symbols, spry_tokens *out, const int32_t *merged, size_t count);

/* The end of the part at `begin` that nothing behind it can merge with. Where not by_byte, and where no token has a
 * space mark behind the character that stands before one, text falls apart there into words. */
size_t spry_symbols_word_end(const spry_symbols *symbols, spry_view text, size_t begin);

#endif
