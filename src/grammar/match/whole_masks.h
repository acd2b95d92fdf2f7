/* Whole masks of places in a text, by the content of the place: its states and everything below them, such as the
 * members seen in an object. So the keys of an object are walked once for a grammar, not once for an answer. */
#ifndef SPRY_GRAMMAR_WHOLE_MASKS_H
#define SPRY_GRAMMAR_WHOLE_MASKS_H

#include "grammar/match/stacks.h"

enum { SPRY_WHOLE_MASKS = 256 }; /* a power of two */

typedef struct spry_whole_mask {
    spry_digest key;
    uint32_t *words; /* bits, or few ids; NULL: free */
    uint32_t n_words;
    bool sparse;
} spry_whole_mask;

/* Part of a mask store, protected as it is. */
typedef struct spry_whole_masks {
    spry_whole_mask slots[SPRY_WHOLE_MASKS];
    size_t bytes;
} spry_whole_masks;

/* Copies a mask of n_words to `bits`; false: it is not there. */
bool spry_whole_masks_get(const spry_whole_masks *masks, uint32_t *bits, size_t n_words, spry_digest key);
/* Stores a copy, if there is memory; may replace others. */
void spry_whole_masks_put(spry_whole_masks *masks, const uint32_t *bits, size_t n_words, spry_digest key);
void spry_whole_masks_clear(spry_whole_masks *masks);

#endif
