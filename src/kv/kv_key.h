/* The content address of a page: a 128-bit hash of everything that determines its keys and values. A chain starts at a
 * root (model, kernels, KV type, salt); each page's key is computed from its parent's key and its own tokens. */
#ifndef SPRY_KV_KV_KEY_H
#define SPRY_KV_KV_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

typedef struct spry_kv_key {
    uint64_t low, high;
} spry_kv_key;

static inline bool spry_kv_key_equal(spry_kv_key a, spry_kv_key b)
{
    return a.low == b.low && a.high == b.high;
}

/* The root of a chain. Callers with different salts share nothing. */
spry_kv_key spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size);

/* The key of a page after `parent`. A partial page has another key than any full page. */
spry_kv_key spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count);

/* The root of span chains: a span is computed without the text before it. */
spry_kv_key spry_kv_key_span_root(spry_kv_key root);

/* The key after `parent` when an unchanged page of a span follows it. */
spry_kv_key spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page);

/* A rolling hash of the tokens of one page: the hash of the text one token further takes a few operations. Equal
 * hashes are no proof: tokens are compared. */

#define SPRY_KV_CONTENT_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* odd; its powers spread over all bits */

static inline uint64_t spry_kv_content(const int32_t *tokens)
{
    uint64_t hash = 0;
    for (int i = 0; i < SPRY_PAGE_TOKENS; i++)
        hash = hash * SPRY_KV_CONTENT_FACTOR + (uint32_t)tokens[i] + 1;
    return hash;
}

/* The hash of tokens[1] to tokens[SPRY_PAGE_TOKENS], from that of tokens[0] to the one before. */
static inline uint64_t spry_kv_content_roll(uint64_t hash, const int32_t *tokens)
{
    uint64_t power = SPRY_KV_CONTENT_FACTOR; /* FACTOR to the power of SPRY_PAGE_TOKENS */
    for (int n = 1; n < SPRY_PAGE_TOKENS; n *= 2)
        power *= power;
    return hash * SPRY_KV_CONTENT_FACTOR + (uint32_t)tokens[SPRY_PAGE_TOKENS] + 1 -
           ((uint64_t)(uint32_t)tokens[0] + 1) * power;
}

/* A set of page keys, each with a small mark. Open addressing; removal closes the gap, so there are no tombstones. The
 * hash is seeded, so a prepared folder cannot make it slow. */

typedef struct spry_kv_keys {
    struct spry_kv_keys_slot *slots; /* a power of two, at most half full; NULL: none yet */
    size_t capacity, count;
    uint64_t seed;
} spry_kv_keys;

void spry_kv_keys_init(spry_kv_keys *keys);
void spry_kv_keys_deinit(spry_kv_keys *keys);

/* Adds a key with a mark other than 0, or changes the mark of an existing key, which never fails. False when memory is
 * short; then nothing changes. */
bool spry_kv_keys_put(spry_kv_keys *keys, spry_kv_key key, uint8_t mark);

/* The key's mark; 0 when it is not in the set. */
uint8_t spry_kv_keys_find(const spry_kv_keys *keys, spry_kv_key key);

/* Removes a key, if present. */
void spry_kv_keys_remove(spry_kv_keys *keys, spry_kv_key key);

#endif
