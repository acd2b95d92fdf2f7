/* Internals of a vocabulary: for each slice a trie of the tokens' bytes, with nodes in depth-first order. A
 * node's first child is the next node; `skip` is the next node outside its subtree. So a walk skips a prefix in one
 * step, and the tokens of a subtree are one run. */
#ifndef SPRY_GRAMMAR_MATCH_VOCABULARY_H
#define SPRY_GRAMMAR_MATCH_VOCABULARY_H

#include <stdint.h>

#include "grammar/compile/program.h"
#include "grammar/grammar.h"

/* Slices of a vocabulary: groups of tokens that many states accept as a whole, such as all words, or all text without
 * quotes. A state that accepts every text of a slice's language accepts all of its tokens; that is decided on the
 * automata alone, so the trie is walked only for the remaining tokens. */

enum {
    SPRY_SLICE_LOWER,     /* [a-z]{1,8} */
    SPRY_SLICE_WORD,      /* [0-9A-Za-z]{1,8} */
    SPRY_SLICE_LONG_WORD, /* [0-9A-Za-z]+ */
    SPRY_SLICE_PROSE,     /* whole characters, not '"', '\', control characters or line ends; blanks one at a time */
    SPRY_SLICE_SPACED,    /* the same text, but it begins with a blank */
    SPRY_SLICE_REST,      /* everything else; never accepted as a whole */
    SPRY_SLICES,
};

/* What is known about pairs of a state and a slice, for one grammar: whether the state accepts the slice. */
typedef struct spry_slice_facts {
    unsigned char **of_machine; /* [n_machines] NULL: nothing known; [n_states][pairs] */
    uint32_t n_machines;
    uint32_t *waiting; /* pairs under examination */
    size_t waiting_room;
    size_t bytes; /* bytes of memory used */
} spry_slice_facts;

bool spry_slice_facts_init(spry_slice_facts *facts, const spry_grammar *grammar);
void spry_slice_facts_deinit(spry_slice_facts *facts);

/* The number of slices, from the first, that a state accepts as a whole. (The languages are ordered: a state that
 * accepts one slice accepts all slices before it.) Slices that are too expensive to decide are left out. */
unsigned spry_slices_accepted(spry_slice_facts *facts, const spry_grammar *grammar, uint32_t state);

/* A cache of state masks by the language of the state; one for each vocabulary. Different schemas often contain the
 * same kinds of strings. Thread-safe. */

struct spry_state_mask;

typedef struct spry_mask_key {
    uint64_t words[3];
} spry_mask_key;

typedef struct spry_mask_share spry_mask_share;

spry_mask_share *spry_mask_share_create(void); /* NULL when memory is short */
void spry_mask_share_destroy(spry_mask_share *share);

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
    uint32_t longest;    /* bytes of the slice's longest token */
    uint32_t roots[256]; /* the first node of each byte, or SPRY_NO_NODE */
    uint32_t *bits;      /* [n_words] the tokens of this slice and of the slices before it; NULL for SPRY_SLICE_REST */
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
    uint32_t *ends;   /* [n_words] bits of the ids that end an answer */
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
