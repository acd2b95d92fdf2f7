/* Internals of a matcher. */
#ifndef SPRY_GRAMMAR_MATCHER_H
#define SPRY_GRAMMAR_MATCHER_H

#include "grammar/match/stacks.h"

struct spry_matcher {
    spry_grammar *grammar;
    const spry_vocabulary *vocabulary;
    spry_places places;
    uint32_t set;      /* current set */
    uint32_t *history; /* [n_history] the set before each token */
    size_t n_history, history_room;
    size_t collect_at;        /* size of places at which unused ones are collected */
    uint32_t *mask, *scratch; /* [n_words] of the vocabulary */
    bool walked;              /* the mask took a walk over tokens */
    uint32_t *path;           /* sets along the current trie path */
};

/* Collects unused places when there are many. Set numbers change. */
spry_status spry_matcher_keep_bounded(spry_matcher *matcher, spry_error *error);

#endif
