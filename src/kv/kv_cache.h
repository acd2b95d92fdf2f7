/* The cache: an index of computed pages by content, over the pool they live in. A page is found by the key of
 * everything up to it and then compared token by token, so neither a collision nor a bug can return the page of another
 * text.
 *
 * The index holds one reference to each of its pages. Pages without other references stay cached until they are evicted
 * for memory, the byte limit or their age, least recently used first. With a tier of host memory, pages that are
 * evicted for memory or the byte limit are copied there and stay in the index; when one is found, it is copied back to
 * the pool. With a disk tier, full pages are written there and restored when that is cheaper than computing them. One
 * thread owns a cache, its pool and its tables. */
#ifndef SPRY_KV_KV_CACHE_H
#define SPRY_KV_KV_CACHE_H

#include "kv/kv_disk.h"
#include "kv/kv_table.h"

typedef struct spry_kv_cache_options {
    size_t max_bytes;         /* limit for cached pages; pages in use are never evicted */
    uint64_t ttl_ns;          /* pages not used for this long are evicted; 0: never */
    size_t host_bytes;        /* limit for the tier of host memory, where the device has one; 0: none */
    spry_kv_disk *disk;       /* NULL: none; borrowed */
    spry_kv_disk *state_disk; /* disk tier of recurrent states, which are found by the page before them */
    bool contents;            /* pages are also found by their tokens alone: spry_kv_cache_run */
    spry_log log;
} spry_kv_cache_options;

typedef struct spry_kv_cache_figures {
    uint64_t lookups;                         /* prompts */
    uint64_t hit_tokens, miss_tokens;         /* tokens of prompts that were cached, or had to be computed */
    uint64_t known, found;                    /* prompts whose first page was seen before; and was reused */
    uint64_t restored_tokens;                 /* cached tokens that were restored from disk */
    uint64_t restore_ns;                      /* time for that */
    uint64_t span_tokens, repaired_tokens;    /* tokens of fragments: reused unchanged, and recomputed in place */
    uint64_t inserted, evicted, expired;      /* pages */
    uint64_t pages, unused_pages, page_bytes; /* now: in the index; not in use; size of one */
    uint64_t pinned_pages;                    /* never evicted */
    uint64_t host_pages, host_held;           /* now, in host memory: in the index; those that have memory there */
    uint64_t host_saved, host_loaded;         /* pages copied to it, and back */
} spry_kv_cache_figures;

typedef struct spry_kv_node spry_kv_node;

/* Nodes in the order of their last use. */
typedef struct spry_kv_list {
    uint32_t newest, oldest;
} spry_kv_list;

/* The tier of host memory: slots of one page each, whose memory is allocated when it is first needed. */
typedef struct spry_kv_host {
    size_t n_slots;   /* 0: there is no tier */
    void **bytes;     /* [n_slots]; NULL: no memory yet */
    uint64_t *copies; /* [n_slots]: the number of the copy that fills it */
    uint32_t *free;   /* the last n_free are free; those with memory at the end */
    size_t n_free;
    spry_kv_list list;
    bool full; /* memory was short */
    bool told; /* the log says so */
} spry_kv_host;

enum { SPRY_KV_SEEN = 4096 };

typedef struct spry_kv_cache {
    spry_kv_pool *pool;
    spry_kv_cache_options options;
    spry_kv_node *nodes;          /* [n_pages of the pool], then the pages of host memory */
    uint32_t *by_key, *by_parent; /* [n_buckets]: first node of a chain */
    uint32_t *by_content;         /* NULL without `contents` */
    size_t n_buckets;             /* a power of two */
    spry_kv_list list;            /* list of its pages */
    spry_kv_host host;
    double compute_ns, restore_ns; /* per token, measured */
    uint64_t *seen;                /* [SPRY_KV_SEEN]: keys of first pages, by their low bits */
    spry_kv_cache_figures figures;
} spry_kv_cache;

/* Borrows the pool. */
spry_status spry_kv_cache_init(spry_kv_cache *cache, spry_kv_pool *pool, const spry_kv_cache_options *options,
                               spry_error *error);
/* Releases every page, including those being written to disk. */
void spry_kv_cache_deinit(spry_kv_cache *cache);

/* Restores the full pages of these tokens after `parent`, and the last page of a picture that they end with, which are
 * on disk and not in memory, many at once, where that is cheaper than computing them and there is room. */
void spry_kv_cache_restore(spry_kv_cache *cache, spry_kv_key parent, const int32_t *tokens, size_t count,
                           uint64_t now_ns);

/* A full page (count SPRY_PAGE_TOKENS), or a closed one of fewer tokens, after `parent`, in memory. False: not cached.
 * The caller must reference the page before the next call. */
bool spry_kv_cache_find(spry_kv_cache *cache, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                        uint64_t now_ns);

/* Whether the page of these tokens is in memory or on disk. */
bool spry_kv_cache_has(const spry_kv_cache *cache, spry_kv_key parent, const int32_t *tokens, size_t count);

/* Finds the page in memory after `parent` whose saved recurrent state (kv_states.h) has the most of these tokens,
 * perhaps none; false: no page after `parent` has a state. */
bool spry_kv_cache_resume(const spry_kv_cache *cache, uint32_t *page, size_t *same, spry_kv_key parent,
                          const int32_t *tokens, size_t count);

/* Makes room for the recurrent state of a table, which may have one; false when all are in use. */
bool spry_kv_cache_make_state_room(spry_kv_cache *cache, const spry_kv_table *table);

/* Sends the state that is saved at an entry of a table to the disk tier, if there is one and the page before it is
 * full. `tokens`: the table's tokens from its beginning. */
void spry_kv_cache_store_state(spry_kv_cache *cache, const spry_kv_table *table, size_t entry, const int32_t *tokens);

/* Whether the state after the page of these tokens is on disk. */
bool spry_kv_cache_has_state(const spry_kv_cache *cache, spry_kv_key parent, const int32_t *tokens);

/* Gives a table without a state that one, which is for `position`. False: it could not be read, or all are in use. */
bool spry_kv_cache_restore_state(spry_kv_cache *cache, spry_kv_table *table, size_t position, spry_kv_key parent,
                                 const int32_t *tokens);

/* Finds the page after `parent` that has the longest common prefix with these tokens; returns its length, 0 when there
 * is none. */
size_t spry_kv_cache_longest(spry_kv_cache *cache, uint32_t *page, spry_kv_key parent, const int32_t *tokens,
                             size_t count, uint64_t now_ns);

/* The longest chain of full pages with these tokens that were computed under `root`, after any text and at any
 * position; of equally long ones the oldest. `content`: spry_kv_content of the first page. Returns the number of pages,
 * at most count / SPRY_PAGE_TOKENS, and references each. Pages that were restored from disk are not found. */
size_t spry_kv_cache_run(spry_kv_cache *cache, uint32_t *pages, spry_kv_key root, uint64_t content,
                         const int32_t *tokens, size_t count, uint64_t now_ns);

/* The key of a page that such a run has, and where it was computed. */
spry_kv_key spry_kv_cache_origin(const spry_kv_cache *cache, size_t *position, uint32_t page);

/* Adds the computed pages of a table to the cache: entries that are full or closed and end at or before `n_tokens`.
 * `tokens`: the table's tokens from its beginning; `root`: the root of its chain. A page that is already cached is
 * replaced in the table by the cached one. */
void spry_kv_cache_publish(spry_kv_cache *cache, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           size_t n_tokens, uint64_t now_ns);

/* Empties a table. Its computed pages are added to the cache first, including a partial last page. */
void spry_kv_cache_release(spry_kv_cache *cache, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           uint64_t now_ns);

/* Evicts pages until the pool has `n_pages` free ones; false when it cannot. With a tier of host memory it evicts a few
 * more, so that the pages that are taken next were copied before. */
bool spry_kv_cache_make_room(spry_kv_cache *cache, size_t n_pages);

/* Does so for `count` more tokens of a table. Where no page is left for a copy of its last page, which nothing but the
 * cache shares, the cache drops that page, and no copy is needed. */
bool spry_kv_cache_make_room_for(spry_kv_cache *cache, const spry_kv_table *table, size_t count);

/* Counts a prompt of `count` tokens under `root`, of which `reused` were cached. Its first page was seen before if one
 * of the latest prompts, a few thousand, began with the same page. */
void spry_kv_cache_count(spry_kv_cache *cache, spry_kv_key root, const int32_t *tokens, size_t count, size_t reused);

/* Evicts pages that were not used for longer than the time limit. Finding a page uses it, so this comes before. */
void spry_kv_cache_expire(spry_kv_cache *cache, uint64_t now_ns);

/* Evicts pages that are expired or over the byte limit, and collects those that reached the disk. */
void spry_kv_cache_tidy(spry_kv_cache *cache, uint64_t now_ns);

/* Does so down to `n_pages` cached pages, pages in use or pinned apart, where the device can return the memory of free
 * pages to the system, and returns it; of host memory the same share stays. */
void spry_kv_cache_shrink(spry_kv_cache *cache, size_t n_pages, uint64_t now_ns);

/* Pinned pages stay until they are unpinned as often. Returns the number of the table's tokens in cached pages. */
size_t spry_kv_cache_pin(spry_kv_cache *cache, const spry_kv_table *table, bool pin);

/* Records that computing `rows` prompt tokens took `ns`. */
void spry_kv_cache_computed(spry_kv_cache *cache, size_t rows, uint64_t ns);

void spry_kv_cache_describe(const spry_kv_cache *cache, spry_kv_cache_figures *figures);

/* Whether the page is in the index. */
bool spry_kv_cache_knows(const spry_kv_cache *cache, uint32_t page);

#endif
