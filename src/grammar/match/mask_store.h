/* State masks kept: by grammar and vocabulary, and those that took long also by what the state matches, so that the
 * next grammar with the same kind of string finds them. */
#ifndef SPRY_GRAMMAR_MASK_STORE_H
#define SPRY_GRAMMAR_MASK_STORE_H

#include "grammar/match/state_mask.h"

/* One for each vocabulary a grammar is used with. Belongs to the grammar; used under its lock. */
typedef struct spry_mask_store {
    struct spry_mask_store *next;
    uint64_t serial; /* of the vocabulary */
    spry_places places;
    spry_state_mask **masks, **rounds; /* [n_states] NULL: not found out yet */
    uint32_t *bases;                   /* [n_machines] a state whose mask is known and large, + 1; 0: none */
    size_t bytes;                      /* held by masks */
} spry_mask_store;

/* The store of a grammar for a vocabulary, made when it is new. The grammar is locked. */
spry_status spry_mask_store_find(spry_mask_store **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                 spry_error *error);

/* What is known of a state (with `rounds`: of a simple counter's body), found out when it is not. Valid until the next
 * call. */
spry_status spry_mask_store_state(spry_mask_store *store, const spry_state_mask **out, uint32_t state, bool rounds,
                                  const spry_vocabulary *vocabulary, spry_error *error);

/* Finds out about the states that take longest, so that no token waits for it. Fails only when memory is short. */
spry_status spry_mask_store_prepare(spry_grammar *grammar, const spry_vocabulary *vocabulary, spry_error *error);

#endif
