/* A matcher from the inside. */
#ifndef SPRY_GRAMMAR_MATCHER_H
#define SPRY_GRAMMAR_MATCHER_H

#include "grammar/match/stacks.h"

struct spry_matcher {
    spry_grammar *grammar;
    const spry_vocabulary *vocabulary;
    spry_places places;
    uint32_t set;      /* where the text stands */
    uint32_t *history; /* [n_history] where it stood before each token */
    size_t n_history, history_room;
    size_t collect_at;        /* bytes of places at which those of no interest are dropped */
    uint32_t *mask, *scratch; /* [n_words] of the vocabulary */
    uint32_t *path;           /* sets on the way down the trie */
};

/* Drops places that are no longer of interest when there are many. Numbers of sets change. */
spry_status spry_matcher_keep_bounded(spry_matcher *matcher, spry_error *error);

#endif
