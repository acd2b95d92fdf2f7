/* Converts a word to the symbols that merging starts with, and merged symbols to ids.
 *
 * Byte-level BPE starts with one symbol per byte. SentencePiece BPE starts with one per character; a character that is
 * not a token becomes the tokens <0xNN> of its bytes, or else the unknown token. A character that is not a token but
 * occurs inside longer tokens gets a symbol beyond the vocabulary, because merging may produce those tokens. */
#ifndef SPRY_TOKENIZER_SYMBOLS_H
#define SPRY_TOKENIZER_SYMBOLS_H

#include "tokenizer/bpe.h"
#include "tokenizer/vocab.h"

#define SPRY_SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct spry_symbols {
    bool by_byte;
    int32_t bytes[256];  /* the token of a byte, -1: none */
    spry_map characters; /* character to symbol; unused if by_byte */
    spry_view *extra;    /* [n_extra] the characters of the symbols beyond the vocabulary */
    size_t n_extra;
    int32_t first_extra;                      /* the vocabulary's size */
    int32_t unknown;                          /* -1: none */
    bool fuse_unknown;                        /* a run of unknown characters is one token */
    bool joins_space[128], joins_space_other; /* whether any token has this character followed by the space mark */
} spry_symbols;

/* The alphabet of byte-level vocabularies: printable bytes stand for themselves, the others are mapped to U+0100 and
 * above. Writes the spelling of a byte; returns its length. */
size_t spry_byte_spelling(char out[4], unsigned char byte);

/* Appends the bytes that `name` spells in that alphabet; false (and nothing appended) when a character is not in it. */
bool spry_byte_decode(spry_buffer *out, spry_view name);

/* `byte_fallback` allows tokens of kind BYTE. The vocabulary must outlive the symbols. */
spry_status spry_symbols_init(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab, bool by_byte,
                              bool byte_fallback, spry_error *error);
void spry_symbols_deinit(spry_symbols *symbols);

/* The symbol of one character; -1: none. */
int32_t spry_symbols_find(const spry_symbols *symbols, spry_view character);

/* Pushes the symbols of a word; false when memory is short. */
bool spry_symbols_push(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view word);

/* Appends the ids of a word's merged symbols. */
bool spry_symbols_emit(const spry_symbols *symbols, spry_tokens *out, const int32_t *merged, size_t count);

/* The end of the part at `begin` that cannot merge with following text. If not by_byte, the text is split before a
 * space mark when no token contains the preceding character followed by one. */
size_t spry_symbols_word_end(const spry_symbols *symbols, spry_view text, size_t begin);

#endif
