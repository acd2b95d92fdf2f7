/* Slices of a vocabulary: groups of tokens that many states accept as a whole, such as all words, or all text without
 * quotes. A state that accepts every text of a slice's language accepts all of its tokens; that is decided on the
 * automata alone, so the trie is walked only for the remaining tokens. */
#ifndef SPRY_GRAMMAR_SLICES_H
#define SPRY_GRAMMAR_SLICES_H

#include "grammar/compile/program.h"

enum {
    SPRY_SLICE_LOWER,     /* [a-z]{1,8} */
    SPRY_SLICE_WORD,      /* [0-9A-Za-z]{1,8} */
    SPRY_SLICE_LONG_WORD, /* [0-9A-Za-z]+ */
    SPRY_SLICE_PROSE,     /* whole characters, not '"', '\', control characters or line ends; blanks one at a time */
    SPRY_SLICE_SPACED,    /* the same, beginning with a blank */
    SPRY_SLICE_REST,      /* everything else; never accepted as a whole */
    SPRY_SLICES,
};

/* The slice of a token. */
unsigned spry_slice_of(spry_view text);

/* Which pairs of a state and a slice are known to be accepted, for one grammar. */
typedef struct spry_slice_facts {
    unsigned char **of_machine; /* [n_machines] NULL: nothing known; [n_states][pairs] */
    uint32_t n_machines;
    uint32_t *waiting; /* pairs under examination */
    size_t waiting_room;
    size_t bytes; /* used */
} spry_slice_facts;

bool spry_slice_facts_init(spry_slice_facts *facts, const spry_grammar *grammar);
void spry_slice_facts_deinit(spry_slice_facts *facts);

/* The number of slices, from the first, whose tokens a state's machine accepts whole from this state. (The languages
 * are ordered: where one is accepted, those before it are, too.) Slices that are too expensive to decide are left
 * out. */
unsigned spry_slices_accepted(spry_slice_facts *facts, const spry_grammar *grammar, uint32_t state);

#endif
