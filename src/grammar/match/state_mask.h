/* The part of a mask that depends on the state alone.
 *
 * From a state, without knowledge of the stack, a token is accepted, is refused, or matches up to a point where the
 * machine of the state may be complete and the stack decides about the rest. Accepted tokens are stored: whole slices
 * of the vocabulary as a number, others as a list or as bits. For tokens that need the stack the *exits* are stored,
 * the trie nodes after which the machine may be complete: the walk continues there with the actual stack, but only at
 * exits whose byte can follow. Most tokens are accepted or refused by the state alone.
 *
 * A counted part (at most 40 characters) would be complete at every character. If its rounds are unambiguous
 * (spry_counter.simple), a second form is stored: the walk continues from round to round (a round is one repetition of
 * the counted part), and the number of rounds is stored for every token and exit. In a text with a limited number of
 * units every unit is a round, and the units that must follow a token to complete the text count, too. */
#ifndef SPRY_GRAMMAR_STATE_MASK_H
#define SPRY_GRAMMAR_STATE_MASK_H

#include "grammar/match/stacks.h"
#include "grammar/match/vocabulary.h"

enum { SPRY_NODES_A_WORK = 4 }; /* trie nodes that take about as long to visit as one unit of other work */

typedef struct spry_exit {
    uint32_t node;   /* the trie node after it; not all tokens at and below it are accepted by the machine alone */
    uint32_t next;   /* index of the first exit with another byte */
    uint16_t rounds; /* number of complete rounds before it */
    unsigned char byte;
} spry_exit;

typedef struct spry_state_mask {
    atomic_uint references;
    uint32_t longest; /* bytes of the longest token that is accepted or may be, up to an exit */
    unsigned slices;  /* number of slices, from the first, of which all tokens are accepted */
    uint32_t *bits;   /* [n_words] further accepted tokens; NULL: there are few, in `ids` */
    int32_t *ids;     /* ids of accepted tokens if there are few; with rounds ids of all, sorted by rounds */
    spry_exit *exits; /* sorted by byte */
    uint32_t n_ids, n_exits;
    uint32_t *first; /* with rounds: [most + 2] ids with i rounds begin at index first[i]; NULL: without rounds */
    uint32_t most;
    uint64_t starts[4]; /* the bytes with which a round may begin */
    size_t bytes;       /* memory of the mask */
} spry_state_mask;

/* Computes the mask of a state; NULL when memory is short or places->failed. `places` belongs to the grammar. */
spry_state_mask *spry_state_mask_find(spry_places *places, spry_slice_facts *facts, const spry_vocabulary *vocabulary,
                                      uint32_t state);

/* Computes the mask with rounds, for a state of the body of a simple counter or of a limited text. */
spry_state_mask *spry_state_mask_rounds(const spry_grammar *grammar, const spry_vocabulary *vocabulary, uint32_t state);

void spry_state_mask_unref(spry_state_mask *mask);

/* Adds the accepted tokens with at most `rounds` rounds. `scratch` is as large as `bits`. */
void spry_state_mask_add_rounds(const spry_state_mask *mask, uint32_t *bits, uint32_t *scratch, size_t n_words,
                                uint32_t rounds);

/* Adds the accepted tokens of a mask without rounds. */
void spry_state_mask_add(const spry_state_mask *mask, uint32_t *bits, const spry_vocabulary *vocabulary);

/* Walks the trie nodes [begin, end), which are children of a node of depth `base`, and everything below them, beginning
 * with a set. Sets the bits of matching tokens. `path` has space for one set per byte of the longest token, plus
 * one. */
void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base);

/* Does the same for all tokens of the vocabulary. */
void spry_walk_tries(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                     uint32_t set);

#endif
