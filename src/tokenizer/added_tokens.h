/* Tokens that are matched in the text as they are spelled, before any pattern: control tokens and those a model's
 * makers added. Matching is leftmost, then longest, among the tokens allowed at that place. */
#ifndef SPRY_TOKENIZER_ADDED_TOKENS_H
#define SPRY_TOKENIZER_ADDED_TOKENS_H

#include "base/arena.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

typedef struct spry_added_token {
    spry_view text;
    int32_t id;
    bool special;        /* matched only on request */
    bool lstrip, rstrip; /* takes the white space beside it along */
    bool single_word;    /* not inside a word */
    bool normalized;     /* matched in the normalised text */
} spry_added_token;

enum { SPRY_ADDED_BYTES_MAX = 512 }; /* of one token; bounds the work at each place of the text */

/* A trie: children of a node are a list. */
typedef struct spry_added_tokens {
    spry_added_token *tokens;
    size_t count;
    struct spry_added_node *nodes;
    size_t n_nodes;
    uint32_t roots[256]; /* node by first byte, 0: none */
    bool starts[2][256]; /* may a token start with this byte; [1]: control tokens counted too */
} spry_added_tokens;

/* Keeps the tokens whose `normalized` is as given. Their texts must outlive it. */
spry_status spry_added_tokens_init(spry_added_tokens *added, spry_arena *arena, const spry_added_token *tokens,
                                   size_t count, bool normalized, spry_error *error);

/* Where control tokens may be matched. */
typedef struct spry_added_filter {
    bool special;
    const spry_text_range *literal; /* ascending; a control token that touches one is text */
    size_t n_literal;
} spry_added_filter;

typedef struct spry_added_match {
    size_t begin, end; /* with the stripped white space */
    int32_t id;
} spry_added_match;

/* The first match at or after `from`; white space before `from` is never taken along. */
bool spry_added_tokens_next(const spry_added_tokens *added, const spry_unicode *unicode, spry_view text, size_t from,
                            const spry_added_filter *filter, spry_added_match *match);

#endif
