/* From words to ids: the vocabulary, the symbols that merging starts with, and the tokenizers without a list of
 * merges. */
#ifndef SPRY_TOKENIZER_SYMBOLS_H
#define SPRY_TOKENIZER_SYMBOLS_H

#include "base/buffer.h"
#include "base/map.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

/* The vocabulary: spelling, kind and score (if any) of each id. Ids run from 0 to size - 1; ids that the file omits
 * have kind UNUSED and an empty spelling. */

enum { SPRY_VOCAB_MAX = 1 << 22 }; /* maximum number of ids; the largest published vocabularies have about 2^18 */

typedef struct spry_vocab {
    spry_view *names;     /* [size] */
    unsigned char *kinds; /* [size], spry_token_kind */
    float *scores;        /* [size], zero if the file has no scores */
    size_t size;
    spry_map by_name;
    char *text; /* memory of the spellings */
    size_t text_used, text_size;
} spry_vocab;

/* Allocates memory for ids below `size` whose spellings have `text_size` bytes. `named` is the number of ids that will
 * be set; a much larger size is refused. */
spry_status spry_vocab_init(spry_vocab *vocab, spry_arena *arena, size_t size, size_t named, size_t text_size,
                            spry_error *error);
void spry_vocab_deinit(spry_vocab *vocab);

/* Sets an id below size. If several ids have one spelling, lookups return the first. False when memory is short. */
bool spry_vocab_set(spry_vocab *vocab, size_t id, spry_view name, spry_token_kind kind);

int32_t spry_vocab_find(const spry_vocab *vocab, spry_view name); /* -1: no token has this spelling */

/* The byte in `<0xNN>`; false when `name` has another form. */
bool spry_vocab_byte(spry_view name, unsigned char *byte);

/* Converts a word to the symbols that merging starts with, and merged symbols to ids.
 *
 * Byte-level BPE starts with one symbol per byte. SentencePiece BPE starts with one per character; a character that is
 * not a token becomes the tokens <0xNN> of its bytes, or else the unknown token. A character that is not a token but
 * occurs inside longer tokens gets a symbol beyond the vocabulary, because merging may produce those tokens. */

#define SPRY_SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct spry_symbols {
    bool by_byte;
    int32_t bytes[256];  /* the token of each byte, -1: none */
    spry_map characters; /* character to symbol; unused if by_byte */
    spry_view *extra;    /* [n_extra] the characters of the symbols beyond the vocabulary */
    size_t n_extra;
    int32_t first_extra;                      /* the vocabulary's size */
    int32_t unknown;                          /* -1: none */
    bool fuse_unknown;                        /* a run of unknown characters becomes one token */
    bool joins_space[128], joins_space_other; /* some token contains this character followed by the space mark */
} spry_symbols;

/* The alphabet of byte-level vocabularies: printable bytes are themselves, the others are mapped to U+0100 and
 * above. Writes the spelling of a byte; returns its length. */
size_t spry_byte_spelling(char out[4], unsigned char byte);

/* Appends the bytes that `name` means in that alphabet; false, with nothing appended, when a character is not in it. */
bool spry_byte_decode(spry_buffer *out, spry_view name);

/* `byte_fallback` allows tokens of kind BYTE. The vocabulary must outlive the symbols. */
spry_status spry_symbols_init(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab, bool by_byte,
                              bool byte_fallback, spry_error *error);
void spry_symbols_deinit(spry_symbols *symbols);

/* The symbol of one character; -1: none. */
int32_t spry_symbols_find(const spry_symbols *symbols, spry_view character);

/* Pushes the symbols of a word; false when memory is short, or interrupted (base/interrupt.h). */
bool spry_symbols_push(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view word);

/* Appends the ids of a word's merged symbols. */
bool spry_symbols_emit(const spry_symbols *symbols, spry_tokens *out, const int32_t *merged, size_t count);

/* The end of a part of the text, from `begin` on, that cannot merge with the text after it. If not by_byte, text is
 * split before a space mark when no token contains the preceding character followed by a space mark. */
size_t spry_symbols_word_end(const spry_symbols *symbols, spry_view text, size_t begin);

/* SentencePiece BPE has no list of merges: two adjacent symbols merge when together they spell a token, the token with
 * the highest score first. This file builds an equivalent table of merges. */

/* Every split of a NORMAL token into two symbols is a merge; its rank is the rank of the token's score, so tokens of
 * equal score have equal rank. */
spry_status spry_spm_merges(spry_merges *merges, spry_arena *arena, const spry_vocab *vocab,
                            const spry_symbols *symbols, spry_error *error);

/* Tokenizers without merges. WordPiece repeatedly takes the longest token with which the rest of a word begins; Unigram
 * finds the tokens with the highest total score. */

typedef enum spry_word_model {
    SPRY_WORDS_MERGED, /* BPE */
    SPRY_WORDS_WORDPIECE,
    SPRY_WORDS_UNIGRAM,
} spry_word_model;

typedef struct spry_wordpiece {
    spry_view prefix; /* prefix of tokens that do not begin a word: "##" */
    size_t most;      /* maximum characters of a word; a longer word is unknown */
    int32_t unknown;
} spry_wordpiece;

/* Appends the tokens of a word, or the unknown token. The caller provides `scratch`. */
bool spry_wordpiece_encode(spry_tokens *out, const spry_vocab *vocab, const spry_wordpiece *rules, spry_buffer *scratch,
                           spry_view word);

typedef struct spry_unigram {
    float unknown_score; /* score of a character that is not a token */
    size_t longest;      /* bytes of the longest token */
} spry_unigram;

spry_unigram spry_unigram_of(const spry_vocab *vocab);

/* Appends a text's tokens. Unknown characters become bytes or the unknown token, as `symbols` says. `scratch` is the
 * caller's. False when memory is short, or interrupted (base/interrupt.h). */
bool spry_unigram_encode(spry_tokens *out, const spry_vocab *vocab, const spry_unigram *rules,
                         const spry_symbols *symbols, spry_buffer *scratch, spry_view text);

#endif
