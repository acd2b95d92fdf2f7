#include "grammar/match/mask_share.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match/state_mask.h"

enum { SHARED_MAX = 64 };

struct spry_mask_share {
    pthread_mutex_t lock;
    spry_mask_key keys[SHARED_MAX];
    spry_state_mask *masks[SHARED_MAX];
    unsigned next; /* index to replace next */
};

spry_mask_share *spry_mask_share_create(void)
{
    spry_mask_share *share = calloc(1, sizeof *share);
    if (share)
        pthread_mutex_init(&share->lock, NULL);
    return share;
}

void spry_mask_share_destroy(spry_mask_share *share)
{
    if (!share)
        return;
    for (unsigned i = 0; i < SHARED_MAX; i++)
        spry_state_mask_unref(share->masks[i]);
    pthread_mutex_destroy(&share->lock);
    free(share);
}

spry_state_mask *spry_mask_share_get(spry_mask_share *share, const spry_mask_key *key)
{
    spry_state_mask *found = NULL;
    pthread_mutex_lock(&share->lock);
    for (unsigned i = 0; i < SHARED_MAX && !found; i++)
        if (share->masks[i] && memcmp(&share->keys[i], key, sizeof *key) == 0)
            found = share->masks[i];
    if (found)
        atomic_fetch_add(&found->references, 1);
    pthread_mutex_unlock(&share->lock);
    return found;
}

void spry_mask_share_put(spry_mask_share *share, const spry_mask_key *key, spry_state_mask *mask)
{
    pthread_mutex_lock(&share->lock);
    unsigned at = share->next++ % SHARED_MAX;
    spry_state_mask_unref(share->masks[at]);
    atomic_fetch_add(&mask->references, 1);
    share->masks[at] = mask;
    share->keys[at] = *key;
    pthread_mutex_unlock(&share->lock);
}
