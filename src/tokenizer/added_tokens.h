/* Tokens matched literally in the text, before any pattern: control tokens and added tokens. The leftmost, then longest
 * match among the tokens allowed at that place wins. */
#ifndef SPRY_TOKENIZER_ADDED_TOKENS_H
#define SPRY_TOKENIZER_ADDED_TOKENS_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

typedef struct spry_added_token {
    spry_view text;
    int32_t id;
    bool special;        /* matched only on request */
    bool lstrip, rstrip; /* includes adjacent whitespace */
    bool single_word;    /* not inside a word */
    bool normalized;     /* matched in the normalised text */
} spry_added_token;

enum { SPRY_ADDED_BYTES_MAX = 512 }; /* bounds the work at each place of the text */

/* A trie: children of a node are a list. */
typedef struct spry_added_tokens {
    spry_added_token *tokens;
    size_t count;
    struct spry_added_node *nodes;
    size_t n_nodes;
    uint32_t roots[256]; /* node by first byte, 0: none */
    bool starts[2][256]; /* whether a token may start with this byte; [1]: including control tokens */
} spry_added_tokens;

/* Stores the tokens whose `normalized` equals the argument. Their texts must outlive it. */
spry_status spry_added_tokens_init(spry_added_tokens *added, spry_arena *arena, const spry_added_token *tokens,
                                   size_t count, bool normalized, spry_error *error);

/* Where control tokens may be matched. */
typedef struct spry_added_filter {
    bool special;
    const spry_text_range *literal; /* ascending; a control token that overlaps one is ordinary text */
    size_t n_literal;
} spry_added_filter;

typedef struct spry_added_match {
    size_t begin, end; /* including the stripped whitespace */
    int32_t id;
} spry_added_match;

/* The first match at or after `from`; whitespace before `from` is never included. */
bool spry_added_tokens_next(const spry_added_tokens *added, const spry_unicode *unicode, spry_view text, size_t from,
                            const spry_added_filter *filter, spry_added_match *match);

#endif
