/* Tokenizers without merges. WordPiece takes the longest token that a word begins with, again and again; Unigram the
 * tokens of the highest total score. */
#ifndef SPRY_TOKENIZER_WORD_MODELS_H
#define SPRY_TOKENIZER_WORD_MODELS_H

#include "tokenizer/symbols.h"

typedef enum spry_word_model {
    SPRY_WORDS_MERGED, /* BPE */
    SPRY_WORDS_WORDPIECE,
    SPRY_WORDS_UNIGRAM,
} spry_word_model;

typedef struct spry_wordpiece {
    spry_view prefix; /* of tokens that are no beginnings: "##" */
    size_t most;      /* characters of a word; longer ones are unknown */
    int32_t unknown;
} spry_wordpiece;

/* Appends a word's tokens, or the unknown one. `scratch` is the caller's. */
bool spry_wordpiece_encode(spry_tokens *out, const spry_vocab *vocab, const spry_wordpiece *rules, spry_buffer *scratch,
                           spry_view word);

typedef struct spry_unigram {
    float unknown_score; /* of a character that is no token */
    size_t longest;      /* bytes of a token */
} spry_unigram;

spry_unigram spry_unigram_of(const spry_vocab *vocab);

/* Appends a text's tokens. Unknown characters become bytes or the unknown token, as `symbols` says. `scratch` is the
 * caller's. */
bool spry_unigram_encode(spry_tokens *out, const spry_vocab *vocab, const spry_unigram *rules,
                         const spry_symbols *symbols, spry_buffer *scratch, spry_view text);

#endif
