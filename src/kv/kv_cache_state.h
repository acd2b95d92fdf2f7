/* What the files of the cache share. A node is a page of the pool, by its number, or behind those a page in host
 * memory: evicting a page to host memory, and copying it back, move what is known about it from one node to another,
 * at the same places in its chains. */
#ifndef SPRY_KV_KV_CACHE_STATE_H
#define SPRY_KV_KV_CACHE_STATE_H

#include "kv/kv_cache.h"

#define SPRY_KV_NO_NODE UINT32_MAX

struct spry_kv_node {
    spry_kv_key key, parent;
    int32_t tokens[SPRY_PAGE_TOKENS];
    uint32_t count; /* tokens; 0: it is not in the index */
    uint32_t pins;
    uint32_t next_by_key, next_by_parent, next_by_content;
    uint32_t position; /* of its first token, when it was computed */
    spry_kv_key root;  /* of its chain */
    uint64_t content;
    bool by_content; /* it is found by its tokens */
    uint32_t newer, older;
    uint64_t used_ns;
};

static inline bool spry_kv_in_host(const spry_kv_cache *cache, uint32_t node)
{
    return node >= cache->pool->n_pages;
}

/* ---- kv_cache_index.c: chains and lists -------------------------------------------------------------------------- */

static inline uint32_t *spry_kv_bucket(const spry_kv_cache *cache, uint32_t *table, spry_kv_key key)
{
    return &table[key.low & (cache->n_buckets - 1)];
}

static inline uint32_t *spry_kv_content_bucket(const spry_kv_cache *cache, uint64_t content)
{
    return &cache->by_content[content >> 32 & (cache->n_buckets - 1)];
}

/* The node with this key and these tokens, or SPRY_KV_NO_NODE. */
uint32_t spry_kv_node_find(const spry_kv_cache *cache, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                           size_t count);

/* Adds a page to the index. */
void spry_kv_node_insert(spry_kv_cache *cache, uint32_t page, spry_kv_key key, spry_kv_key parent,
                         const int32_t *tokens, size_t count, uint64_t now_ns);

/* Makes a full page known by its tokens, where the cache wants that. */
void spry_kv_node_index_content(spry_kv_cache *cache, uint32_t page, spry_kv_key root, uint32_t position);

void spry_kv_node_remove(spry_kv_cache *cache, uint32_t node);

/* `to` takes the place of `from`, which leaves the index, and is the newest of its list. */
void spry_kv_node_move(spry_kv_cache *cache, uint32_t to, uint32_t from);

void spry_kv_node_unlist(spry_kv_cache *cache, uint32_t node);
void spry_kv_node_list(spry_kv_cache *cache, uint32_t node, uint64_t now_ns);
void spry_kv_node_touch(spry_kv_cache *cache, uint32_t node, uint64_t now_ns);

/* ---- kv_cache_host.c: the tier of host memory -------------------------------------------------------------------- */

/* Counts its slots, and allocates what it knows about them. False when memory is short. */
bool spry_kv_host_init(spry_kv_cache *cache);
void spry_kv_host_deinit(spry_kv_cache *cache);

/* Starts to copy a cached page that is not in use to host memory, and frees it; false, with nothing changed, when there
 * is no tier or no room in it. */
bool spry_kv_host_save(spry_kv_cache *cache, uint32_t page);

/* Starts to copy a page back to the pool and returns it there. SPRY_KV_NO_NODE: there is no room, or the device failed.
 */
uint32_t spry_kv_host_load(spry_kv_cache *cache, uint32_t node, uint64_t now_ns);

/* The memory of a node that is not in the index is free. */
void spry_kv_host_give(spry_kv_cache *cache, uint32_t node);

/* Removes pages that were not used for longer than the cache's limit. */
void spry_kv_host_expire(spry_kv_cache *cache, uint64_t now_ns);

/* Returns memory to the system until `n_slots` have some, of the pages that were used least recently. */
void spry_kv_host_shrink(spry_kv_cache *cache, size_t n_slots);

#endif
