#include "grammar/match/mask_share.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match/state_mask.h"

enum {
    SLOTS = 1024,        /* a power of two */
    BYTES_MAX = 1 << 25, /* of all masks; when exceeded all are removed */
};

/* A mask has one slot, which its key determines; a newer one replaces it. */
struct spry_mask_share {
    pthread_mutex_t lock;
    spry_mask_key keys[SLOTS];
    spry_state_mask *masks[SLOTS];
    size_t bytes;
};

spry_mask_share *spry_mask_share_create(void)
{
    spry_mask_share *share = calloc(1, sizeof *share);
    if (share)
        pthread_mutex_init(&share->lock, NULL);
    return share;
}

static void clear(spry_mask_share *share, size_t slot)
{
    if (share->masks[slot])
        share->bytes -= share->masks[slot]->bytes;
    spry_state_mask_unref(share->masks[slot]);
    share->masks[slot] = NULL;
}

void spry_mask_share_destroy(spry_mask_share *share)
{
    if (!share)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        clear(share, i);
    pthread_mutex_destroy(&share->lock);
    free(share);
}

static size_t slot_of(const spry_mask_key *key)
{
    return (size_t)((key->words[0] ^ key->words[2]) * 0x9E3779B97F4A7C15u >> 32) & (SLOTS - 1);
}

spry_state_mask *spry_mask_share_get(spry_mask_share *share, const spry_mask_key *key)
{
    size_t slot = slot_of(key);
    pthread_mutex_lock(&share->lock);
    spry_state_mask *found = share->masks[slot];
    if (found && memcmp(&share->keys[slot], key, sizeof *key) != 0)
        found = NULL;
    if (found)
        atomic_fetch_add(&found->references, 1);
    pthread_mutex_unlock(&share->lock);
    return found;
}

void spry_mask_share_put(spry_mask_share *share, const spry_mask_key *key, spry_state_mask *mask)
{
    size_t slot = slot_of(key);
    pthread_mutex_lock(&share->lock);
    clear(share, slot);
    for (size_t i = 0; share->bytes + mask->bytes > BYTES_MAX && i < SLOTS; i++)
        clear(share, i);
    atomic_fetch_add(&mask->references, 1);
    share->masks[slot] = mask;
    share->keys[slot] = *key;
    share->bytes += mask->bytes;
    pthread_mutex_unlock(&share->lock);
}
