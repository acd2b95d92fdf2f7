/* The part of a mask that depends on the state alone.
 *
 * From a state, without knowledge of the stack, a token is accepted, is refused, or matches up to a point where the
 * machine of the state may be complete and the stack decides about the rest. Accepted tokens are stored as bits; for
 * the last kind only the *exits* are stored, the trie nodes where the machine may be complete: the nodes below are
 * walked later with the actual stack. Most tokens are of the first two kinds.
 *
 * A counted part (at most 40 characters) would be complete at every character. If its rounds are unambiguous
 * (spry_counter.simple), a second form is stored: the walk continues from round to round, and every token and exit has
 * the number of rounds it takes part in. */
#ifndef SPRY_GRAMMAR_STATE_MASK_H
#define SPRY_GRAMMAR_STATE_MASK_H

#include "grammar/match/stacks.h"
#include "grammar/match/vocabulary.h"

typedef struct spry_exit {
    uint32_t node;
    uint16_t rounds; /* complete rounds */
    bool turns;      /* a token continues here with a byte that no round begins with */
} spry_exit;

typedef struct spry_state_mask {
    atomic_uint references;
    uint32_t *bits; /* [n_words] accepted tokens; NULL: few, in `ids` */
    int32_t *ids;   /* few tokens; or with rounds all of them, sorted by rounds */
    spry_exit *exits;
    uint32_t n_ids, n_exits;
    uint32_t *first; /* with rounds: [most + 2] the tokens of i rounds begin at first[i]; NULL: without */
    uint32_t most;
    uint64_t starts[4]; /* the bytes a round begins with */
    size_t bytes;       /* of memory */
} spry_state_mask;

/* Computes the mask of a state; NULL when memory is short or places->failed. `places` belongs to the grammar. `base`,
 * if not NULL, is the mask of the state `base_state`: the trie is walked only where the two states differ. */
spry_state_mask *spry_state_mask_find(spry_places *places, const spry_vocabulary *vocabulary, uint32_t state,
                                      const spry_state_mask *base, uint32_t base_state);

/* Computes the mask with rounds, for a state of the body of a simple counter. */
spry_state_mask *spry_state_mask_rounds(const spry_grammar *grammar, const spry_vocabulary *vocabulary, uint32_t state);

void spry_state_mask_unref(spry_state_mask *mask);

/* Adds the tokens with at most `rounds` rounds. `scratch` is as large as `bits`. */
void spry_state_mask_add_rounds(const spry_state_mask *mask, uint32_t *bits, uint32_t *scratch, size_t n_words,
                                uint32_t rounds);

/* Walks the trie nodes [begin, end), children of a node of depth `base` and everything below them, from a set. Sets the
 * bits of matching tokens. `path` has room for one set per byte of the longest token, plus one. */
void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base);

#endif
