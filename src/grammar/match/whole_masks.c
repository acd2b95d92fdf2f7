#include "grammar/match/whole_masks.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/match/vocabulary.h"

enum {
    IDS_MAX = 1024,      /* a mask of fewer tokens is stored as their ids */
    BYTES_MAX = 4 << 20, /* of one store; when exceeded all are removed */
};

static size_t slot_of(spry_digest key)
{
    return (size_t)key.words[0] & (SPRY_WHOLE_MASKS - 1);
}

bool spry_whole_masks_get(const spry_whole_masks *masks, uint32_t *bits, size_t n_words, spry_digest key)
{
    const spry_whole_mask *there = &masks->slots[slot_of(key)];
    if (!there->words || there->key.words[0] != key.words[0] || there->key.words[1] != key.words[1])
        return false;
    if (!there->sparse) {
        memcpy(bits, there->words, n_words * sizeof *bits);
        return true;
    }
    memset(bits, 0, n_words * sizeof *bits);
    for (uint32_t i = 0; i < there->n_words; i++)
        spry_bit_set(bits, there->words[i]);
    return true;
}

static void clear(spry_whole_masks *masks, spry_whole_mask *slot)
{
    masks->bytes -= slot->n_words * sizeof *slot->words;
    free(slot->words);
    *slot = (spry_whole_mask){0};
}

void spry_whole_masks_clear(spry_whole_masks *masks)
{
    for (size_t i = 0; i < SPRY_WHOLE_MASKS; i++)
        clear(masks, &masks->slots[i]);
}

/* Lists the set bits; returns their number, or IDS_MAX + 1 when there are more. */
static uint32_t list_ids(uint32_t ids[IDS_MAX], const uint32_t *bits, size_t n_words)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n_words; i++)
        for (uint32_t bit = 0; bit < 32 && bits[i] >> bit; bit++)
            if (bits[i] >> bit & 1) {
                if (count == IDS_MAX)
                    return IDS_MAX + 1;
                ids[count++] = i * 32 + bit;
            }
    return count;
}

void spry_whole_masks_put(spry_whole_masks *masks, const uint32_t *bits, size_t n_words, spry_digest key)
{
    uint32_t ids[IDS_MAX], count = list_ids(ids, bits, n_words);
    bool sparse = count <= IDS_MAX && count < n_words;
    spry_whole_mask made = {.key = key, .n_words = sparse ? count : (uint32_t)n_words, .sparse = sparse};
    size_t bytes = made.n_words * sizeof *made.words;
    made.words = malloc(bytes + 1);
    if (!made.words)
        return;
    memcpy(made.words, sparse ? ids : bits, bytes);
    if (masks->bytes + bytes > BYTES_MAX)
        spry_whole_masks_clear(masks);
    spry_whole_mask *slot = &masks->slots[slot_of(key)];
    clear(masks, slot);
    *slot = made;
    masks->bytes += bytes;
}
