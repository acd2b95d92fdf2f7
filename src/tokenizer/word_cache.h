/* Words of the current text with their ids. Most words are short and repeated; a lookup here is cheaper than in the
 * vocabulary. Direct-mapped: a new word replaces an older one. Bytes are compared as little-endian numbers. */
#ifndef SPRY_TOKENIZER_WORD_CACHE_H
#define SPRY_TOKENIZER_WORD_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/view.h"

enum { SPRY_CACHED_BYTES = 16, SPRY_CACHED_IDS = 3 };

typedef struct spry_cached_word {
    uint64_t low, high; /* the bytes, padded with zeros */
    uint8_t size, count;
    int32_t ids[SPRY_CACHED_IDS];
} spry_cached_word;

typedef struct spry_word_cache {
    spry_cached_word *slots; /* NULL: no caching */
    unsigned shift;          /* 64 - log2 of the number of slots */
} spry_word_cache;

/* A cache for a text of this size; none for short texts or when memory is short. */
static inline void spry_word_cache_init(spry_word_cache *cache, size_t text_size)
{
    *cache = (spry_word_cache){0};
    if (text_size < 256)
        return;
    unsigned bits = 7;
    while (bits < 13 && (size_t)1 << (bits + 3) < text_size)
        bits++;
    cache->slots = calloc((size_t)1 << bits, sizeof *cache->slots);
    cache->shift = 64 - bits;
}

static inline void spry_word_cache_deinit(spry_word_cache *cache)
{
    free(cache->slots);
}

/* The slot for a word of 1 to SPRY_CACHED_BYTES bytes; *key is the slot's contents if it holds the word. `limit` is the
 * end of readable memory. */
static inline spry_cached_word *spry_word_cache_slot(const spry_word_cache *cache, spry_view word, const char *limit,
                                                     spry_cached_word *key)
{
    unsigned char bytes[SPRY_CACHED_BYTES] = {0};
    const char *from = word.data;
    if ((size_t)(limit - word.data) < SPRY_CACHED_BYTES) {
        memcpy(bytes, word.data, word.size);
        from = (const char *)bytes;
    }
    memcpy(&key->low, from, 8);
    memcpy(&key->high, from + 8, 8);
    if (word.size < 8) {
        key->low &= ((uint64_t)1 << (8 * word.size)) - 1;
        key->high = 0;
    } else if (word.size < 16) {
        key->high &= ((uint64_t)1 << (8 * (word.size - 8))) - 1;
    }
    key->size = (uint8_t)word.size;
    uint64_t hash = (key->low ^ (key->high << 7 | key->high >> 57)) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 29) * 0xD6E8FEB86659FD93u;
    return &cache->slots[hash >> cache->shift];
}

static inline bool spry_cached_word_is(const spry_cached_word *slot, const spry_cached_word *key)
{
    return slot->low == key->low && slot->high == key->high && slot->size == key->size;
}

#endif
