/* What of a mask depends on a state alone.
 *
 * From a state, with nothing known of the stack below it, a token is taken whole, or it does not fit, or it fits up to
 * a place where the machine the walk began in may be complete and the stack below decides about the rest. The first are
 * kept as bits; of the last only the *exits* are kept, the trie nodes at which the machine may be complete: what lies
 * below such a node is to be walked with the stack at hand. Most tokens are of the first two kinds, whatever the state.
 *
 * A counted part (at most 40 characters) would be complete at every character. If its rounds are easily told apart
 * (spry_counter.simple), a second form is kept: the walk goes on from round to round, and every token and exit is kept
 * with the number of rounds it takes part in. */
#ifndef SPRY_GRAMMAR_STATE_MASK_H
#define SPRY_GRAMMAR_STATE_MASK_H

#include "grammar/match/stacks.h"
#include "grammar/match/vocabulary.h"

typedef struct spry_exit {
    uint32_t node;
    uint16_t rounds; /* complete ones */
    bool turns;      /* a token goes on here with a byte that no round begins with */
} spry_exit;

typedef struct spry_state_mask {
    atomic_uint references;
    uint32_t *bits; /* [n_words] tokens taken whole; NULL: few, in `ids` */
    int32_t *ids;   /* few tokens, or with rounds all of them, by rounds */
    spry_exit *exits;
    uint32_t n_ids, n_exits;
    uint32_t *first; /* with rounds: [most + 2] the tokens of i rounds begin at first[i]; NULL: without */
    uint32_t most;
    uint64_t starts[4]; /* the bytes a round begins with */
    size_t bytes;       /* of memory */
} spry_state_mask;

/* Finds out about a state; NULL when memory is short or places->failed. `places` is any of the grammar. `base`, if not
 * NULL, is what is known of the state `base_state`: only where the two go different ways the trie is walked. */
spry_state_mask *spry_state_mask_find(spry_places *places, const spry_vocabulary *vocabulary, uint32_t state,
                                      const spry_state_mask *base, uint32_t base_state);

/* The same with rounds, for a state of the body of a simple counter. */
spry_state_mask *spry_state_mask_rounds(const spry_grammar *grammar, const spry_vocabulary *vocabulary, uint32_t state);

void spry_state_mask_unref(spry_state_mask *mask);

/* Adds the tokens that take part in at most `rounds` rounds. `scratch` is as large as `bits`. */
void spry_state_mask_add_rounds(const spry_state_mask *mask, uint32_t *bits, uint32_t *scratch, size_t n_words,
                                uint32_t rounds);

/* Walks the trie's nodes [begin, end), children of a node of depth `base` and all below them, from a set. Sets the bits
 * of tokens that fit. `path` has room for a set for each byte of the longest token and one more. */
void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base);

#endif
