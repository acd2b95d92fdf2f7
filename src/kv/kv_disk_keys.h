/* A set of page keys, each with a small mark. Open addressing; removal closes the gap, so there are no tombstones. The
 * hash is seeded, so a prepared folder cannot make it slow. */
#ifndef SPRY_KV_KV_DISK_KEYS_H
#define SPRY_KV_KV_DISK_KEYS_H

#include "kv/kv_key.h"

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
