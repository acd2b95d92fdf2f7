/* Cached state masks: by grammar and vocabulary, and expensive ones also by the language of the state, so that another
 * grammar with the same kind of string reuses them. */
#ifndef SPRY_GRAMMAR_MASK_STORE_H
#define SPRY_GRAMMAR_MASK_STORE_H

#include "grammar/match/state_mask.h"
#include "grammar/match/whole_masks.h"

/* One for each vocabulary a grammar is used with. Owned by the grammar and protected by its lock. */
typedef struct spry_mask_store {
    struct spry_mask_store *next;
    uint64_t serial; /* of the vocabulary */
    spry_places places;
    spry_state_mask **masks, **rounds; /* [n_states] NULL: not computed yet */
    spry_slice_facts facts;
    spry_whole_masks whole;
    size_t bytes; /* used by masks */
} spry_mask_store;

/* The store of a grammar for a vocabulary, created if it is new. Call with the grammar locked. */
spry_status spry_mask_store_find(spry_mask_store **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                 spry_error *error);

/* The mask of a state (with `rounds`: of a simple counter's body), computed if it is not cached. Valid until the next
 * call. */
spry_status spry_mask_store_state(spry_mask_store *store, const spry_state_mask **out, uint32_t state, bool rounds,
                                  const spry_vocabulary *vocabulary, spry_error *error);

#endif
