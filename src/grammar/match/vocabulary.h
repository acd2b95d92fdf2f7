/* Internals of a vocabulary: for each slice (slices.h) a trie of the tokens' bytes, with nodes in depth-first order. A
 * node's first child is the next node; `skip` is the next node outside its subtree. So a walk skips a prefix in one
 * step, and the tokens of a subtree are one run. */
#ifndef SPRY_GRAMMAR_VOCABULARY_H
#define SPRY_GRAMMAR_VOCABULARY_H

#include "grammar/grammar.h"
#include "grammar/match/mask_share.h"
#include "grammar/match/slices.h"

typedef struct spry_trie_node {
    uint32_t skip;        /* the next node that is not below this one */
    uint32_t first_token; /* index into `order`: tokens that end here, then those that end below */
    uint16_t depth;       /* bytes from the root, at least 1 */
    unsigned char byte;
} spry_trie_node;

#define SPRY_NO_NODE UINT32_MAX

typedef struct spry_trie {
    uint32_t begin, end; /* nodes */
    uint32_t n_tokens;
    uint32_t longest;    /* bytes of its longest token */
    uint32_t roots[256]; /* the first node of each byte, or SPRY_NO_NODE */
    uint32_t *bits;      /* [n_words] its tokens and those of the slices before it; NULL for SPRY_SLICE_REST */
} spry_trie;

struct spry_vocabulary {
    uint64_t serial; /* unique in the process */
    size_t n_ids, n_words;
    spry_trie_node *nodes; /* [n_nodes + 1]; the last is an end mark */
    uint32_t n_nodes;
    spry_trie tries[SPRY_SLICES];
    int32_t *order; /* tokens sorted by slice, then by their bytes */
    uint32_t n_tokens;
    spry_view *texts; /* [n_ids] empty: never allowed as text */
    char *bytes;      /* memory of the texts */
    uint32_t *ends;   /* [n_words] end-of-answer ids */
    uint32_t longest; /* bytes of the longest token */
    bool marks;       /* some control tokens are text */
    spry_mask_share *share;
};

enum { SPRY_TOKEN_BYTES_MAX = 1 << 14 }; /* longer tokens are never allowed */

static inline void spry_bit_set(uint32_t *bits, uint32_t index)
{
    bits[index / 32] |= (uint32_t)1 << index % 32;
}

static inline bool spry_bit_get(const uint32_t *bits, uint32_t index)
{
    return bits[index / 32] >> index % 32 & 1;
}

#endif
