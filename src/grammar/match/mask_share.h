/* State masks by the language of the state; one table per vocabulary. Different schemas often contain the same
 * kinds of strings. Thread-safe. */
#ifndef SPRY_GRAMMAR_MASK_SHARE_H
#define SPRY_GRAMMAR_MASK_SHARE_H

#include <stdint.h>

struct spry_state_mask;

typedef struct spry_mask_key {
    uint64_t words[3];
} spry_mask_key;

typedef struct spry_mask_share spry_mask_share;

spry_mask_share *spry_mask_share_create(void); /* NULL when memory is short */
void spry_mask_share_destroy(spry_mask_share *share);

/* A reference to a mask, or NULL. */
struct spry_state_mask *spry_mask_share_get(spry_mask_share *share, const spry_mask_key *key);

/* Stores a reference; may replace other masks. */
void spry_mask_share_put(spry_mask_share *share, const spry_mask_key *key, struct spry_state_mask *mask);

#endif
