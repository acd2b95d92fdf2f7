/* 128-bit keys by XXH3. Every kind of key has its own seed, so that kinds cannot collide by construction. */
#include "kv/kv_key.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/map.h"
#include "base/number.h"
#include "kernels/ops.h"
#include "platform/clock.h"

enum { SEED_ROOT = 1, SEED_PAGE, SEED_SPAN, SEED_LINK };

static spry_kv_key hash(const void *data, size_t size, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, size, seed);
    return (spry_kv_key){h.low64, h.high64};
}

spry_kv_key spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size)
{
    spry_kv_key parts[2] = {fingerprint, hash(salt_size ? salt : "", salt_size, SEED_ROOT)};
    return hash(parts, sizeof parts, SEED_ROOT);
}

spry_kv_key spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count)
{
    unsigned char text[sizeof parent + SPRY_PAGE_TOKENS * sizeof *tokens];
    memcpy(text, &parent, sizeof parent);
    memcpy(text + sizeof parent, tokens, count * sizeof *tokens);
    return hash(text, sizeof parent + count * sizeof *tokens, SEED_PAGE);
}

spry_kv_key spry_kv_key_span_root(spry_kv_key root)
{
    return hash(&root, sizeof root, SEED_SPAN);
}

spry_kv_key spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page)
{
    spry_kv_key parts[2] = {parent, span_page};
    return hash(parts, sizeof parts, SEED_LINK);
}

/* ---- sets of keys ------------------------------------------------------------------------------------------------ */

/* Linear probing. Every key is in the run of occupied slots that begins at its home slot: removal moves later keys of
 * the run back where that keeps this true. */

enum { FIRST_CAPACITY = 1024 };

struct spry_kv_keys_slot {
    spry_kv_key key;
    uint8_t mark; /* 0: free */
};

typedef struct spry_kv_keys_slot slot;

void spry_kv_keys_init(spry_kv_keys *keys)
{
    *keys = (spry_kv_keys){.seed = spry_entropy()};
}

void spry_kv_keys_deinit(spry_kv_keys *keys)
{
    free(keys->slots);
    *keys = (spry_kv_keys){0};
}

static size_t home_of(const spry_kv_keys *keys, spry_kv_key key)
{
    return (size_t)spry_hash_bytes(&key, sizeof key, keys->seed) & (keys->capacity - 1);
}

/* The slot of the key, or the free slot for it. */
static slot *find_slot(const spry_kv_keys *keys, spry_kv_key key)
{
    size_t at = home_of(keys, key);
    while (keys->slots[at].mark && !spry_kv_key_equal(keys->slots[at].key, key))
        at = (at + 1) & (keys->capacity - 1);
    return &keys->slots[at];
}

static bool grow(spry_kv_keys *keys)
{
    spry_kv_keys larger = *keys;
    larger.capacity = FIRST_CAPACITY;
    if (keys->capacity && !spry_checked_mul(&larger.capacity, keys->capacity, 2))
        return false;
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < keys->capacity; i++)
        if (keys->slots[i].mark)
            *find_slot(&larger, keys->slots[i].key) = keys->slots[i];
    free(keys->slots);
    *keys = larger;
    return true;
}

bool spry_kv_keys_put(spry_kv_keys *keys, spry_kv_key key, uint8_t mark)
{
    slot *found = keys->slots ? find_slot(keys, key) : NULL;
    if (found && found->mark) {
        found->mark = mark;
        return true;
    }
    if (keys->count >= keys->capacity / 2 && !grow(keys))
        return false;
    *find_slot(keys, key) = (slot){key, mark};
    keys->count++;
    return true;
}

uint8_t spry_kv_keys_find(const spry_kv_keys *keys, spry_kv_key key)
{
    return keys->slots ? find_slot(keys, key)->mark : 0;
}

void spry_kv_keys_remove(spry_kv_keys *keys, spry_kv_key key)
{
    slot *found = keys->slots ? find_slot(keys, key) : NULL;
    if (!found || !found->mark)
        return;
    size_t mask = keys->capacity - 1, gap = (size_t)(found - keys->slots);
    for (size_t at = (gap + 1) & mask; keys->slots[at].mark; at = (at + 1) & mask) {
        /* It may move back unless its home is after the gap, cyclically. */
        if (((at - home_of(keys, keys->slots[at].key)) & mask) >= ((at - gap) & mask)) {
            keys->slots[gap] = keys->slots[at];
            gap = at;
        }
    }
    keys->slots[gap].mark = 0;
    keys->count--;
}
