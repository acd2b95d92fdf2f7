/* What was computed before: an index of pages by content, over the pool they live in. A page is found by the key of
 * everything up to it, and then compared token by token, so neither a collision nor a bug can hand out another text's.
 *
 * The index holds one reference to each of its pages. Pages that nobody else holds are kept until memory, the byte
 * limit or their age asks for them, least recently used first. With a disk tier behind it, full pages go there as they
 * come and are read back when that is cheaper than computing them. One thread owns a cache, its pool and its tables. */
#ifndef SPRY_KV_KV_CACHE_H
#define SPRY_KV_KV_CACHE_H

#include "kv/kv_disk.h"
#include "kv/kv_table.h"

typedef struct spry_kv_cache_options {
    size_t max_bytes;   /* of the pages it knows; those in use stay all the same */
    uint64_t ttl_ns;    /* unused for so long, a page goes; 0: never */
    spry_kv_disk *disk; /* NULL: none; borrowed */
} spry_kv_cache_options;

typedef struct spry_kv_cache_figures {
    uint64_t lookups;                         /* prompts */
    uint64_t hit_tokens, miss_tokens;         /* of prompts: found, or to be computed */
    uint64_t restored_tokens;                 /* of the found ones: read from disk */
    uint64_t restore_ns;                      /* what that took */
    uint64_t span_tokens, repaired_tokens;    /* of fragments: used as they were, computed again in place */
    uint64_t inserted, evicted, expired;      /* pages */
    uint64_t pages, unused_pages, page_bytes; /* now: in the index; only there; size of one */
    uint64_t pinned_pages;                    /* never taken away */
} spry_kv_cache_figures;

typedef struct spry_kv_node spry_kv_node;

typedef struct spry_kv_cache {
    spry_kv_pool *pool;
    spry_kv_cache_options options;
    spry_kv_node *nodes;           /* [n_pages of the pool] */
    uint32_t *by_key, *by_parent;  /* [n_buckets]: first page of a chain */
    size_t n_buckets;              /* a power of two */
    uint32_t newest, oldest;       /* of all pages by their last use */
    double compute_ns, restore_ns; /* of a token, measured */
    spry_kv_cache_figures figures;
} spry_kv_cache;

/* Borrows the pool. */
spry_status spry_kv_cache_init(spry_kv_cache *cache, spry_kv_pool *pool, const spry_kv_cache_options *options,
                               spry_error *error);
/* Lets go of every page, also of those on their way to disk. */
void spry_kv_cache_deinit(spry_kv_cache *cache);

/* A full page (count SPRY_PAGE_TOKENS), or a closed one of fewer tokens, behind `parent`: in memory, or restored when
 * that is cheaper than computing it. False: not there. The page is the caller's to reference before the next call. */
bool spry_kv_cache_find(spry_kv_cache *cache, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                        uint64_t now_ns);

/* Of the pages behind `parent` the one that begins with the most of these tokens; returns how many, 0 when none. */
size_t spry_kv_cache_longest(spry_kv_cache *cache, uint32_t *page, spry_kv_key parent, const int32_t *tokens,
                             size_t count, uint64_t now_ns);

/* Makes known what a table has computed: entries that are full or closed and end at or before `n_tokens`. `tokens`:
 * what the table holds, from its beginning; `root`: where its chain begins. A table's page that is known already is let
 * go for the known one. */
void spry_kv_cache_publish(spry_kv_cache *cache, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           size_t n_tokens, uint64_t now_ns);

/* Empties a table. What it computed is made known first, a last page that is not full too. */
void spry_kv_cache_release(spry_kv_cache *cache, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           uint64_t now_ns);

/* Lets pages go until the pool has `n_pages` free ones; false when it cannot. */
bool spry_kv_cache_make_room(spry_kv_cache *cache, size_t n_pages);

/* Lets pages go that are past their time or over the byte limit, and takes back those that reached the disk. */
void spry_kv_cache_tidy(spry_kv_cache *cache, uint64_t now_ns);

/* Pinned pages stay until they are unpinned as often. Returns how many tokens of the table are in pages that the cache
 * knows. */
size_t spry_kv_cache_pin(spry_kv_cache *cache, const spry_kv_table *table, bool pin);

/* Says that computing `rows` tokens of prompts took so long. */
void spry_kv_cache_computed(spry_kv_cache *cache, size_t rows, uint64_t ns);

void spry_kv_cache_describe(const spry_kv_cache *cache, spry_kv_cache_figures *figures);

/* Whether the page is in the index. */
bool spry_kv_cache_knows(const spry_kv_cache *cache, uint32_t page);

#endif
