/* The part of a mask that depends on the state alone.
 *
 * From a state, without knowledge of the stack, a token is accepted, is refused, or matches up to a point where the
 * machine of the state may be complete and the stack decides about the rest. Accepted tokens are stored: whole slices
 * of the vocabulary as numbers, others as a list or as bits. For the last kind the *exits* are stored, the trie nodes
 * after a place where the machine may be complete: they are walked with the actual stack, those alone whose byte can
 * follow there. Most tokens are of the first two kinds.
 *
 * A counted part (at most 40 characters) would be complete at every character. If its rounds are unambiguous
 * (spry_counter.simple), a second form is stored: the walk continues from round to round, and every token and exit has
 * the number of rounds it takes part in. In a text with a limit every unit is a round, and the units that a complete
 * text needs after a token count, too. */
#ifndef SPRY_GRAMMAR_STATE_MASK_H
#define SPRY_GRAMMAR_STATE_MASK_H

#include "grammar/match/stacks.h"
#include "grammar/match/vocabulary.h"

enum { SPRY_NODES_A_WORK = 4 }; /* tree nodes that take about as long as one other unit of work */

typedef struct spry_exit {
    uint32_t node;   /* not accepted by the machine with all tokens at and below it */
    uint32_t next;   /* index of the first exit with another byte */
    uint16_t rounds; /* complete rounds before it */
    unsigned char byte;
} spry_exit;

typedef struct spry_state_mask {
    atomic_uint references;
    uint32_t longest; /* bytes of the longest token that is not known to be refused, up to an exit */
    unsigned slices;  /* the first slices, of which all tokens are accepted */
    uint32_t *bits;   /* [n_words] further accepted tokens; NULL: few, in `ids` */
    int32_t *ids;     /* few tokens; or with rounds all of them, sorted by rounds */
    spry_exit *exits; /* sorted by byte */
    uint32_t n_ids, n_exits;
    uint32_t *first; /* with rounds: [most + 2] the tokens of i rounds begin at first[i]; NULL: without */
    uint32_t most;
    uint64_t starts[4]; /* the bytes a round begins with */
    size_t bytes;       /* memory of the mask */
} spry_state_mask;

/* Computes the mask of a state; NULL when memory is short or places->failed. `places` belongs to the grammar. */
spry_state_mask *spry_state_mask_find(spry_places *places, spry_slice_facts *facts, const spry_vocabulary *vocabulary,
                                      uint32_t state);

/* Computes the mask with rounds, for a state of the body of a simple counter or of a limited text. */
spry_state_mask *spry_state_mask_rounds(const spry_grammar *grammar, const spry_vocabulary *vocabulary, uint32_t state);

void spry_state_mask_unref(spry_state_mask *mask);

/* Adds the tokens with at most `rounds` rounds. `scratch` is as large as `bits`. */
void spry_state_mask_add_rounds(const spry_state_mask *mask, uint32_t *bits, uint32_t *scratch, size_t n_words,
                                uint32_t rounds);

/* Adds the tokens without rounds. */
void spry_state_mask_add(const spry_state_mask *mask, uint32_t *bits, const spry_vocabulary *vocabulary);

/* Walks the trie nodes [begin, end), children of a node of depth `base` and everything below them, from a set. Sets the
 * bits of matching tokens. `path` has room for one set per byte of the longest token, plus one. */
void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base);

/* Walks the whole vocabulary. */
void spry_walk_tries(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                     uint32_t set);

#endif
