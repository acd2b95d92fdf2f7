/* The cache: finds pages, adds computed ones, evicts them, also to host memory. A node is a page of the pool, by its
 * number, or, with the numbers after those, a page in host memory. Evicting a page to host memory and copying it
 * back move its key, its tokens and its places in all chains from one node to another. */
#include "kv/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "kv/kv_key.h"
#include "kv/kv_states.h"
#include "platform/clock.h"

#define NO_NODE UINT32_MAX

struct spry_kv_node {
    spry_kv_key key, parent;
    int32_t tokens[SPRY_PAGE_TOKENS];
    uint32_t count; /* tokens; 0: it is not in the index */
    uint32_t pins;
    uint32_t next_by_key, next_by_parent, next_by_content;
    uint32_t position; /* position of the page's first token when the page was computed */
    spry_kv_key root;  /* root of the chain of keys */
    uint64_t content;
    bool by_content; /* the page is found by its tokens, at any position */
    uint32_t newer, older;
    uint64_t used_ns;
};

static bool in_host(const spry_kv_cache *cache, uint32_t node)
{
    return node >= cache->pool->n_pages;
}

static uint32_t *bucket_of(const spry_kv_cache *cache, uint32_t *table, spry_kv_key key)
{
    return &table[key.low & (cache->n_buckets - 1)];
}

static uint32_t *content_bucket(const spry_kv_cache *cache, uint64_t content)
{
    return &cache->by_content[content >> 32 & (cache->n_buckets - 1)];
}

/* Chained hash tables (by key, by parent, by content) and lists by last use, all threaded through one array of nodes.
 */

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static spry_kv_list *list_of(spry_kv_cache *c, uint32_t node)
{
    return in_host(c, node) ? &c->host.list : &c->list;
}

static void node_unlist(spry_kv_cache *c, uint32_t node)
{
    const spry_kv_node *n = &c->nodes[node];
    spry_kv_list *list = list_of(c, node);
    *(n->newer == NO_NODE ? &list->newest : &c->nodes[n->newer].older) = n->older;
    *(n->older == NO_NODE ? &list->oldest : &c->nodes[n->older].newer) = n->newer;
}

static void node_list(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[node];
    spry_kv_list *list = list_of(c, node);
    n->used_ns = now_ns;
    n->newer = NO_NODE;
    n->older = list->newest;
    *(list->newest == NO_NODE ? &list->oldest : &c->nodes[list->newest].newer) = node;
    list->newest = node;
}

static void node_touch(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    node_unlist(c, node);
    node_list(c, node, now_ns);
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* What points to a node in each of its chains. */
static uint32_t *link_by_key(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = bucket_of(c, c->by_key, c->nodes[node].key);
    while (*at != node)
        at = &c->nodes[*at].next_by_key;
    return at;
}

static uint32_t *link_by_parent(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = bucket_of(c, c->by_parent, c->nodes[node].parent);
    while (*at != node)
        at = &c->nodes[*at].next_by_parent;
    return at;
}

static uint32_t *link_by_content(const spry_kv_cache *c, uint32_t node)
{
    uint32_t *at = content_bucket(c, c->nodes[node].content);
    while (*at != node)
        at = &c->nodes[*at].next_by_content;
    return at;
}

static uint64_t *count_of(spry_kv_cache *c, uint32_t node)
{
    return in_host(c, node) ? &c->figures.host_pages : &c->figures.pages;
}

static void node_remove(spry_kv_cache *c, uint32_t node)
{
    spry_kv_node *n = &c->nodes[node];
    *link_by_key(c, node) = n->next_by_key;
    *link_by_parent(c, node) = n->next_by_parent;
    if (n->by_content)
        *link_by_content(c, node) = n->next_by_content;
    node_unlist(c, node);
    n->count = 0;
    --*count_of(c, node);
}

/* `to` takes the place of `from`, which leaves the index, and is the newest of its list. */
static void node_move(spry_kv_cache *c, uint32_t to, uint32_t from)
{
    *link_by_key(c, from) = to;
    *link_by_parent(c, from) = to;
    if (c->nodes[from].by_content)
        *link_by_content(c, from) = to;
    node_unlist(c, from);
    c->nodes[to] = c->nodes[from];
    c->nodes[from].count = 0;
    node_list(c, to, c->nodes[to].used_ns);
    --*count_of(c, from);
    ++*count_of(c, to);
}

/* Adds a page to the index. */
static void node_insert(spry_kv_cache *c, uint32_t page, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                        size_t count, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[page];
    *n = (spry_kv_node){.key = key, .parent = parent, .count = (uint32_t)count};
    memcpy(n->tokens, tokens, count * sizeof *tokens);
    uint32_t *first = bucket_of(c, c->by_key, key);
    n->next_by_key = *first;
    *first = page;
    first = bucket_of(c, c->by_parent, parent);
    n->next_by_parent = *first;
    *first = page;
    node_list(c, page, now_ns);
    c->figures.pages++;
    c->figures.inserted++;
}

/* Adds a full page to the index by content, if the cache has one. */
static void node_index_content(spry_kv_cache *c, uint32_t page, spry_kv_key root, uint32_t position)
{
    spry_kv_node *n = &c->nodes[page];
    if (!c->by_content || n->count != SPRY_PAGE_TOKENS)
        return;
    n->content = spry_kv_content(n->tokens);
    n->root = root;
    n->position = position;
    n->by_content = true;
    uint32_t *first = content_bucket(c, n->content);
    n->next_by_content = *first;
    *first = page;
}

static bool holds(const spry_kv_node *n, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    return n->count == count && spry_kv_key_equal(n->parent, parent) &&
           !memcmp(n->tokens, tokens, count * sizeof *tokens);
}

/* The node with this key and these tokens, or NO_NODE. */
static uint32_t node_find(const spry_kv_cache *c, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                          size_t count)
{
    uint32_t node = *bucket_of(c, c->by_key, key);
    while (node != NO_NODE &&
           !(spry_kv_key_equal(c->nodes[node].key, key) && holds(&c->nodes[node], parent, tokens, count)))
        node = c->nodes[node].next_by_key;
    return node;
}

/* ---- host memory ------------------------------------------------------------------------------------------------- */

/* The tier of host memory. A copy is only started here: the device makes it in the order of its steps, and a slot or a
 * page can be used for the next copy at once. Bytes are read on the host in one case, when a page leaves for the disk.
 */

static uint32_t node_of(const spry_kv_cache *c, uint32_t slot)
{
    return (uint32_t)c->pool->n_pages + slot;
}

static uint32_t slot_of(const spry_kv_cache *c, uint32_t node)
{
    return node - (uint32_t)c->pool->n_pages;
}

/* Counts its slots, and allocates what it knows about them. False when memory is short. */
static bool host_init(spry_kv_cache *c)
{
    spry_kv_host *h = &c->host;
    size_t most = NO_NODE - 1 - c->pool->n_pages; /* nodes that can be numbered */
    h->list = (spry_kv_list){NO_NODE, NO_NODE};
    h->n_slots = c->pool->mover.save ? c->options.host_bytes / c->pool->page_bytes : 0;
    h->n_slots = h->n_slots < most ? h->n_slots : most;
    if (!h->n_slots)
        return true;
    h->bytes = calloc(h->n_slots, sizeof *h->bytes);
    h->copies = calloc(h->n_slots, sizeof *h->copies);
    h->free = calloc(h->n_slots, sizeof *h->free);
    if (!h->bytes || !h->copies || !h->free)
        return false;
    for (size_t i = h->n_slots; i-- > 0;)
        h->free[h->n_free++] = (uint32_t)i;
    return true;
}

static void free_memory(spry_kv_cache *c, size_t slot)
{
    const spry_kv_mover *mover = &c->pool->mover;
    mover->host_free(mover->self, c->host.bytes[slot]);
    c->host.bytes[slot] = NULL;
    c->figures.host_held--;
}

static void host_deinit(spry_kv_cache *c)
{
    for (size_t i = 0; c->host.bytes && i < c->host.n_slots; i++)
        if (c->host.bytes[i])
            free_memory(c, i);
    free(c->host.bytes);
    free(c->host.copies);
    free(c->host.free);
}

/* The memory of a node that is not in the index is free. */
static void host_give(spry_kv_cache *c, uint32_t node)
{
    c->host.free[c->host.n_free++] = slot_of(c, node);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* Removes the page that was used least recently; its slot is free, unless the disk tier needs the bytes: it has most
 * pages already, from when they were computed, but skips some when it is busy. */
static void drop_oldest(spry_kv_cache *c)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t node = c->host.list.oldest, slot = slot_of(c, node);
    const spry_kv_node *n = &c->nodes[node];
    const spry_kv_disk_page out = {n->key, n->parent, n->tokens};
    bool lent = c->options.disk && n->count == SPRY_PAGE_TOKENS && mover->saved(mover->self, c->host.copies[slot]) &&
                spry_kv_disk_store(c->options.disk, &out, c->host.bytes[slot], node);
    node_remove(c, node);
    if (!lent) /* a lent page becomes free when the disk tier returns it */
        host_give(c, node);
}

/* Allocates memory for a slot; what cannot be allocated once is not asked for again. */
static bool allocate(spry_kv_cache *c, uint32_t slot)
{
    const spry_kv_mover *mover = &c->pool->mover;
    spry_kv_host *h = &c->host;
    if (!h->bytes[slot] && !h->full) {
        h->bytes[slot] = mover->host_allocate(mover->self, c->pool->page_bytes);
        h->full = !h->bytes[slot];
        c->figures.host_held += !h->full;
        if (h->full && !h->told)
            spry_log_write(&c->options.log, SPRY_LOG_WARN,
                           "cached pages in host memory: %.1f MB of %.1f MB, the system has no more for copies",
                           (double)(c->figures.host_held * c->pool->page_bytes) / 1e6,
                           (double)(h->n_slots * c->pool->page_bytes) / 1e6);
        h->told = h->told || h->full;
    }
    return h->bytes[slot];
}

/* A free slot with memory, which least recently used pages are removed for. */
static bool take_slot(spry_kv_cache *c, uint32_t *slot)
{
    spry_kv_host *h = &c->host;
    for (;;) {
        if (h->n_free && allocate(c, h->free[h->n_free - 1])) {
            *slot = h->free[--h->n_free];
            return true;
        }
        if (h->list.oldest == NO_NODE)
            return false;
        drop_oldest(c);
    }
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Starts to copy a cached page that is not in use to host memory, and frees it; false, with nothing changed, when there
 * is no tier or no room in it. */
static bool host_save(spry_kv_cache *c, uint32_t page)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t slot;
    if (!c->host.n_slots || !take_slot(c, &slot))
        return false;
    uint64_t copy = mover->save(mover->self, c->host.bytes[slot], page);
    if (!copy) {
        host_give(c, node_of(c, slot));
        return false;
    }
    c->host.copies[slot] = copy;
    node_move(c, node_of(c, slot), page);
    spry_kv_page_unref_copied(c->pool, page);
    c->figures.host_saved++;
    return true;
}

/* Starts to copy a page back to the pool and returns it there. NO_NODE: there is no room, or the device failed.
 */
static uint32_t host_load(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t page = NO_NODE;
    node_unlist(c, node); /* making room must not remove this node */
    bool room = spry_kv_cache_make_room(c, 1) && spry_kv_page_take(c->pool, &page);
    node_list(c, node, now_ns);
    if (!room)
        return NO_NODE;
    if (!mover->load(mover->self, page, c->host.bytes[slot_of(c, node)])) {
        spry_kv_page_unref(c->pool, page);
        return NO_NODE;
    }
    node_move(c, page, node);
    host_give(c, node);
    c->figures.host_loaded++;
    return page;
}

/* ---- less -------------------------------------------------------------------------------------------------------- */

/* Removes pages that were not used for longer than the cache's limit. */
static void host_expire(spry_kv_cache *c, uint64_t now_ns)
{
    uint32_t *oldest = &c->host.list.oldest;
    while (c->options.ttl_ns && *oldest != NO_NODE && now_ns > c->nodes[*oldest].used_ns &&
           now_ns - c->nodes[*oldest].used_ns > c->options.ttl_ns) {
        uint32_t node = *oldest;
        node_remove(c, node);
        host_give(c, node);
        c->figures.expired++;
    }
}

/* Returns memory to the system until `n_slots` have some, of the pages that were used least recently. */
static void host_shrink(spry_kv_cache *c, size_t n_slots)
{
    spry_kv_host *h = &c->host;
    while (c->figures.host_pages > n_slots)
        drop_oldest(c);
    size_t bare = 0; /* those without memory go to the beginning of the list */
    for (size_t i = 0; i < h->n_free; i++) {
        uint32_t slot = h->free[i];
        if (h->bytes[slot] && c->figures.host_held > n_slots)
            free_memory(c, slot);
        if (!h->bytes[slot]) {
            h->free[i] = h->free[bare];
            h->free[bare++] = slot;
        }
    }
    h->full = false;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

enum {
    SCAN_MAX = 1024,  /* pages after one parent that a search for the longest prefix examines */
    RUN_SCAN_MAX = 8, /* chains with the same tokens that are compared */
    COLLECT = 64,     /* tickets collected from the disk tier at a time */
    SMOOTHING = 8,    /* weight of earlier measurements */
    FORGETTING = 256, /* decay of a slow restore */
    RESTORED = 64,    /* pages restored at a time */
    AHEAD = 64,       /* pages evicted to host memory before they are needed, and */
    AHEAD_SHARE = 32, /* at most one page in this number of pages */
};

spry_status spry_kv_cache_init(spry_kv_cache *cache, spry_kv_pool *pool, const spry_kv_cache_options *options,
                               spry_error *error)
{
    *cache = (spry_kv_cache){.pool = pool, .options = *options, .n_buckets = 16, .list = {NO_NODE, NO_NODE}};
    bool host = host_init(cache);
    size_t n_nodes = pool->n_pages + cache->host.n_slots;
    while (cache->n_buckets < n_nodes)
        cache->n_buckets *= 2;
    cache->nodes = calloc(n_nodes, sizeof *cache->nodes);
    cache->by_key = malloc(cache->n_buckets * sizeof *cache->by_key);
    cache->by_parent = malloc(cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        cache->by_content = malloc(cache->n_buckets * sizeof *cache->by_content);
    cache->seen = calloc(SPRY_KV_SEEN, sizeof *cache->seen);
    if (!host || !cache->seen || !cache->nodes || !cache->by_key || !cache->by_parent ||
        (options->contents && !cache->by_content)) {
        spry_kv_cache_deinit(cache);
        return spry_fail_memory(error, "the index of KV pages", n_nodes * sizeof *cache->nodes);
    }
    memset(cache->by_key, 0xff, cache->n_buckets * sizeof *cache->by_key); /* NO_NODE */
    memset(cache->by_parent, 0xff, cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        memset(cache->by_content, 0xff, cache->n_buckets * sizeof *cache->by_content);
    cache->figures.page_bytes = pool->page_bytes;
    return SPRY_OK;
}

static void let_go(spry_kv_cache *c, uint32_t node)
{
    node_remove(c, node);
    if (in_host(c, node))
        host_give(c, node);
    else
        spry_kv_page_unref(c->pool, node);
}

/* Collects what reached the disk; false when there was nothing. */
static bool collect(spry_kv_cache *c, bool wait)
{
    uint32_t tickets[COLLECT];
    size_t n = c->options.disk ? spry_kv_disk_collect(c->options.disk, tickets, COLLECT, wait) : 0;
    for (size_t i = 0; i < n; i++)
        if (in_host(c, tickets[i]))
            host_give(c, tickets[i]);
        else
            spry_kv_page_unref(c->pool, tickets[i]);
    return n > 0;
}

/* The same for states. */
static bool collect_states(spry_kv_cache *c, bool wait)
{
    spry_kv_disk *disk = c->options.state_disk;
    uint32_t tickets[COLLECT];
    size_t n = disk && c->pool->states ? spry_kv_disk_collect(disk, tickets, COLLECT, wait) : 0;
    for (size_t i = 0; i < n; i++)
        spry_kv_page_unref(&c->pool->states->pool, tickets[i]);
    return n > 0;
}

void spry_kv_cache_deinit(spry_kv_cache *c)
{
    while (collect(c, true)) {
    }
    while (collect_states(c, true)) {
    }
    while (c->nodes && c->list.oldest != NO_NODE)
        let_go(c, c->list.oldest);
    host_deinit(c);
    free(c->nodes);
    free(c->by_key);
    free(c->by_parent);
    free(c->by_content);
    free(c->seen);
    *c = (spry_kv_cache){0};
}

/* ---- letting pages go -------------------------------------------------------------------------------------------- */

/* Whether only the cache references the page and it is not pinned. */
static bool idle(const spry_kv_cache *c, uint32_t page)
{
    return c->pool->references[page] == 1 && !c->nodes[page].pins;
}

/* Lets go of an idle page for others; it goes to host memory where there is room. */
static void evict_page(spry_kv_cache *c, uint32_t page)
{
    if (!host_save(c, page))
        let_go(c, page);
    c->figures.evicted++;
}

/* Evicts the oldest pages until `n_pages` are free; false when it cannot. */
static bool evict_oldest(spry_kv_cache *c, size_t n_pages)
{
    for (uint32_t page = c->list.oldest, newer; page != NO_NODE && c->pool->n_free < n_pages; page = newer) {
        newer = c->nodes[page].newer;
        if (idle(c, page))
            evict_page(c, page);
    }
    return c->pool->n_free >= n_pages;
}

/* Free pages beyond those that are needed now, while there is a tier for evicted ones. */
static size_t pages_ahead(const spry_kv_cache *c)
{
    size_t share = c->pool->n_pages / AHEAD_SHARE;
    return !c->host.n_slots ? 0 : share < AHEAD ? share : AHEAD;
}

bool spry_kv_cache_make_room(spry_kv_cache *c, size_t n_pages)
{
    while (!evict_oldest(c, n_pages))
        if (!collect(c, true)) /* pages waiting for the disk may be idle afterwards */
            return false;
    evict_oldest(c, n_pages + pages_ahead(c));
    return true;
}

bool spry_kv_cache_make_state_room(spry_kv_cache *c, const spry_kv_table *table)
{
    while (!table->state && !spry_kv_state_room(c->pool))
        if (!collect_states(c, true))
            return false;
    return true;
}

bool spry_kv_cache_make_room_for(spry_kv_cache *c, const spry_kv_table *table, size_t count)
{
    if (!spry_kv_cache_make_state_room(c, table))
        return false;
    if (spry_kv_cache_make_room(c, spry_kv_table_pages_needed(table, c->pool, count)))
        return true;
    uint32_t last = table->n_entries ? table->entries[table->n_entries - 1].page : NO_NODE;
    if (last == NO_NODE || !c->nodes[last].count || c->nodes[last].pins || c->pool->references[last] != 2)
        return false;
    let_go(c, last);
    c->figures.evicted++;
    return spry_kv_cache_make_room(c, spry_kv_table_pages_needed(table, c->pool, count));
}

void spry_kv_cache_expire(spry_kv_cache *c, uint64_t now_ns)
{
    const uint64_t ttl = c->options.ttl_ns;
    host_expire(c, now_ns);
    for (uint32_t page = c->list.oldest, newer; ttl && page != NO_NODE; page = newer) {
        const spry_kv_node *n = &c->nodes[page];
        if (now_ns <= n->used_ns || now_ns - n->used_ns <= ttl)
            break;
        newer = n->newer;
        if (idle(c, page)) {
            let_go(c, page);
            c->figures.expired++;
        }
    }
}

/* Evicts pages that are expired, and the oldest ones while there are more than `most`. */
static void evict(spry_kv_cache *c, size_t most, uint64_t now_ns)
{
    while (collect(c, false)) {
    }
    while (collect_states(c, false)) {
    }
    spry_kv_cache_expire(c, now_ns);
    for (uint32_t page = c->list.oldest, newer; page != NO_NODE && c->figures.pages > most; page = newer) {
        newer = c->nodes[page].newer;
        if (idle(c, page))
            evict_page(c, page);
    }
}

void spry_kv_cache_tidy(spry_kv_cache *c, uint64_t now_ns)
{
    evict(c, c->options.max_bytes / c->pool->page_bytes, now_ns);
}

void spry_kv_cache_shrink(spry_kv_cache *c, size_t n_pages, uint64_t now_ns)
{
    size_t most = c->options.max_bytes / c->pool->page_bytes;
    size_t slots = c->host.n_slots * n_pages / c->pool->n_pages;
    evict(c, n_pages < most && c->pool->mover.release ? n_pages : most, now_ns);
    host_shrink(c, slots < c->host.n_slots ? slots : c->host.n_slots);
    spry_kv_pool_release(c->pool);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* A node's page in the pool, used now; NO_NODE where it could not be copied back to it. */
static uint32_t use(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    if (node != NO_NODE && in_host(c, node))
        node = host_load(c, node, now_ns);
    if (node != NO_NODE)
        node_touch(c, node, now_ns);
    return node;
}

/* Whether restoring a page pays. */
static bool restores(spry_kv_cache *c)
{
    if (c->compute_ns <= 0 || c->restore_ns <= c->compute_ns)
        return true;
    c->restore_ns -= c->restore_ns / FORGETTING; /* decays, so restoring is retried later */
    return false;
}

/* Pages that are restored together: they are read a few at a time, and each is on its way to the device while the next
 * ones are read. */
typedef struct batch {
    spry_kv_disk_page wanted[RESTORED];
    uint32_t pages[RESTORED];
    size_t counts[RESTORED];
    void *bytes[RESTORED];
    bool right[RESTORED];
    size_t n;
} batch;

/* Takes a page for the bytes of `wanted`; false when there is no room. */
static bool add_wanted(spry_kv_cache *c, batch *b, const spry_kv_disk_page *wanted, size_t count)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t page;
    if (!spry_kv_cache_make_room(c, 1) || !spry_kv_page_take(c->pool, &page))
        return false;
    void *bytes = mover->write_begin(mover->self, page);
    if (!bytes) {
        spry_kv_page_unref(c->pool, page);
        return false;
    }
    b->wanted[b->n] = *wanted;
    b->counts[b->n] = count;
    b->bytes[b->n] = bytes;
    b->pages[b->n++] = page;
    return true;
}

static void restore(spry_kv_cache *c, batch *b, uint64_t now_ns)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint64_t start = spry_clock_ns();
    size_t restored = 0;
    bool fine = true;
    for (size_t at = 0, n; at < b->n; at += n) {
        n = b->n - at < SPRY_KV_DISK_LOADS ? b->n - at : SPRY_KV_DISK_LOADS;
        spry_kv_disk_load(c->options.disk, b->right + at, b->wanted + at, b->bytes + at, n);
        for (size_t i = at; i < at + n; i++)
            fine = mover->write_end(mover->self, b->pages[i], b->right[i]) && fine;
    }
    fine = mover->write_finish(mover->self) && fine;
    for (size_t i = 0; i < b->n; i++) {
        const spry_kv_disk_page *w = &b->wanted[i];
        if (b->right[i] && fine) {
            node_insert(c, b->pages[i], w->key, w->parent, w->tokens, b->counts[i], now_ns);
            restored += b->counts[i];
        } else {
            spry_kv_page_unref(c->pool, b->pages[i]);
        }
    }
    b->n = 0;
    if (!restored)
        return;
    uint64_t took = spry_clock_ns() - start;
    double ns = (double)took / (double)restored;
    c->figures.restore_ns += took;
    c->restore_ns += c->restore_ns > 0 ? (ns - c->restore_ns) / SMOOTHING : ns;
    c->figures.restored_tokens += restored;
}

/* Whether a page is kept on disk: a full one, or the last one of a picture, which is closed. */
static bool is_kept(const int32_t *tokens, size_t count)
{
    return count == SPRY_PAGE_TOKENS || tokens[count - 1] < 0;
}

void spry_kv_cache_restore(spry_kv_cache *c, spry_kv_key parent, const int32_t *tokens, size_t count, uint64_t now_ns)
{
    batch b = {.n = 0};
    size_t most = c->pool->mover.max_writes < RESTORED ? c->pool->mover.max_writes : RESTORED;
    int32_t last[SPRY_PAGE_TOKENS] = {0};
    if (!c->options.disk)
        return;
    for (size_t n; count; tokens += n, count -= n) {
        n = count < SPRY_PAGE_TOKENS ? count : SPRY_PAGE_TOKENS;
        if (!is_kept(tokens, n))
            break;
        if (n < SPRY_PAGE_TOKENS)
            memcpy(last, tokens, n * sizeof *last);
        spry_kv_disk_page wanted = {spry_kv_key_page(parent, tokens, n), parent, n < SPRY_PAGE_TOKENS ? last : tokens};
        uint32_t page = node_find(c, wanted.key, parent, tokens, n);
        parent = wanted.key;
        if (page != NO_NODE)
            node_touch(c, page, now_ns); /* making room evicts others */
        else if (spry_kv_disk_has(c->options.disk, wanted.key) && restores(c) && !add_wanted(c, &b, &wanted, n))
            break;
        if (b.n == most)
            restore(c, &b, now_ns);
    }
    if (b.n)
        restore(c, &b, now_ns);
}

bool spry_kv_cache_find(spry_kv_cache *c, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                        uint64_t now_ns)
{
    *page = use(c, node_find(c, spry_kv_key_page(parent, tokens, count), parent, tokens, count), now_ns);
    return *page != NO_NODE;
}

size_t spry_kv_cache_longest(spry_kv_cache *c, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                             uint64_t now_ns)
{
    size_t best = 0, left = SCAN_MAX;
    for (uint32_t at = *bucket_of(c, c->by_parent, parent); at != NO_NODE && left--; at = c->nodes[at].next_by_parent) {
        const spry_kv_node *n = &c->nodes[at];
        size_t same = 0;
        if (!spry_kv_key_equal(n->parent, parent))
            continue;
        while (same < count && same < n->count && n->tokens[same] == tokens[same])
            same++;
        if (same > best) {
            best = same;
            *page = at;
        }
    }
    if (best)
        *page = use(c, *page, now_ns);
    return best && *page != NO_NODE ? best : 0;
}

bool spry_kv_cache_has(const spry_kv_cache *c, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    spry_kv_key key = spry_kv_key_page(parent, tokens, count);
    return node_find(c, key, parent, tokens, count) != NO_NODE ||
           (c->options.disk && is_kept(tokens, count) && spry_kv_disk_has(c->options.disk, key));
}

bool spry_kv_cache_resume(const spry_kv_cache *c, uint32_t *page, size_t *same, spry_kv_key parent,
                          const int32_t *tokens, size_t count)
{
    size_t left = SCAN_MAX;
    bool found = false;
    for (uint32_t at = *bucket_of(c, c->by_parent, parent); at != NO_NODE && left--; at = c->nodes[at].next_by_parent) {
        const spry_kv_node *n = &c->nodes[at];
        size_t most, alike = 0;
        if (in_host(c, at) || !spry_kv_key_equal(n->parent, parent) || !spry_kv_state_find(c->pool, &most, at))
            continue;
        most = most < n->count ? most : n->count;
        most = most < count ? most : count;
        while (alike < most && n->tokens[alike] == tokens[alike])
            alike++;
        if (!found || alike > *same) {
            found = true;
            *same = alike;
            *page = at;
        }
    }
    return found;
}

void spry_kv_cache_store_state(spry_kv_cache *c, const spry_kv_table *table, size_t entry, const int32_t *tokens)
{
    if (!c->options.state_disk || !entry || !c->pool->states->of_page[table->entries[entry].page])
        return;
    const spry_kv_entry *before = &table->entries[entry - 1];
    if (!c->nodes[before->page].count || !table->marks[entry - 1].cached || before->count < SPRY_PAGE_TOKENS)
        return;
    const spry_kv_disk_page out = {table->marks[entry - 1].key, c->nodes[before->page].parent, tokens + before->start};
    uint32_t state = c->pool->states->of_page[table->entries[entry].page] - 1;
    if (spry_kv_disk_store(c->options.state_disk, &out, NULL, state))
        spry_kv_page_ref(&c->pool->states->pool, state); /* until it is collected */
}

bool spry_kv_cache_has_state(const spry_kv_cache *c, spry_kv_key parent, const int32_t *tokens)
{
    return c->options.state_disk &&
           spry_kv_disk_has(c->options.state_disk, spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS));
}

bool spry_kv_cache_restore_state(spry_kv_cache *c, spry_kv_table *table, size_t position, spry_kv_key parent,
                                 const int32_t *tokens)
{
    const spry_kv_disk_page wanted = {spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS), parent, tokens};
    uint64_t start = spry_clock_ns();
    if (!spry_kv_cache_make_state_room(c, table) || !spry_kv_state_take(c->pool, table))
        return false;
    const spry_kv_mover *mover = &c->pool->states->pool.mover;
    void *bytes = mover->write_begin(mover->self, table->state - 1);
    bool right = false;
    if (bytes) {
        spry_kv_disk_load(c->options.state_disk, &right, &wanted, &bytes, 1);
        right = mover->write_end(mover->self, table->state - 1, right) && right;
        right = mover->write_finish(mover->self) && right;
    }
    if (right)
        table->state_from = position;
    else
        spry_kv_state_give(c->pool, table);
    c->figures.restore_ns += spry_clock_ns() - start;
    return right;
}

/* The page that continues a chain with these tokens. */
static uint32_t next_in_chain(const spry_kv_cache *c, uint32_t page, const int32_t *tokens)
{
    spry_kv_key parent = c->nodes[page].key;
    return node_find(c, spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS), parent, tokens, SPRY_PAGE_TOKENS);
}

static size_t chain_length(const spry_kv_cache *c, uint32_t page, const int32_t *tokens, size_t count)
{
    size_t length = 0;
    while (page != NO_NODE && ++length < count / SPRY_PAGE_TOKENS)
        page = next_in_chain(c, page, tokens + length * SPRY_PAGE_TOKENS);
    return length;
}

size_t spry_kv_cache_run(spry_kv_cache *c, uint32_t *pages, spry_kv_key root, uint64_t content, const int32_t *tokens,
                         size_t count, uint64_t now_ns)
{
    size_t best = 0, left = RUN_SCAN_MAX;
    uint32_t start = NO_NODE;
    for (uint32_t at = *content_bucket(c, content); at != NO_NODE && left; at = c->nodes[at].next_by_content) {
        const spry_kv_node *n = &c->nodes[at];
        if (n->content != content || !spry_kv_key_equal(n->root, root) ||
            memcmp(n->tokens, tokens, sizeof n->tokens) != 0)
            continue;
        left--;
        size_t length = chain_length(c, at, tokens, count);
        if (length >= best) { /* later in the list: older */
            best = length;
            start = at;
        }
    }
    for (size_t i = 0; i < best; i++) {
        pages[i] = use(c, i ? next_in_chain(c, pages[i - 1], tokens + i * SPRY_PAGE_TOKENS) : start, now_ns);
        if (pages[i] == NO_NODE)
            return i;
        spry_kv_page_ref(c->pool, pages[i]);
    }
    return best;
}

spry_kv_key spry_kv_cache_origin(const spry_kv_cache *c, size_t *position, uint32_t page)
{
    *position = c->nodes[page].position;
    return c->nodes[page].key;
}

/* ---- making known ------------------------------------------------------------------------------------------------ */

static void send_to_disk(spry_kv_cache *c, uint32_t page)
{
    const spry_kv_node *n = &c->nodes[page];
    const spry_kv_disk_page out = {n->key, n->parent, n->tokens};
    if (c->options.disk && is_kept(n->tokens, n->count) && spry_kv_disk_store(c->options.disk, &out, NULL, page))
        spry_kv_page_ref(c->pool, page); /* until it is collected */
}

/* Removes a page whose tokens are a proper prefix of the tokens of `page`, after the same parent: it is no longer
 * needed. */
static void drop_shorter(spry_kv_cache *c, uint32_t page, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    size_t left = SCAN_MAX;
    for (uint32_t at = *bucket_of(c, c->by_parent, parent); at != NO_NODE && left--;) {
        const spry_kv_node *n = &c->nodes[at];
        uint32_t next = n->next_by_parent;
        if (n->count < count && (in_host(c, at) || idle(c, at)) && spry_kv_key_equal(n->parent, parent) &&
            !memcmp(n->tokens, tokens, n->count * sizeof *tokens)) {
            if (!in_host(c, at))
                spry_kv_state_move(c->pool, page, at);
            let_go(c, at);
        }
        at = next;
    }
}

static void publish_entry(spry_kv_cache *c, spry_kv_entry *entry, spry_kv_mark *mark, spry_kv_key parent,
                          const spry_kv_key *root, const int32_t *tokens, uint64_t now_ns)
{
    uint32_t known = node_find(c, mark->key, parent, tokens, entry->count);
    if (known != NO_NODE && in_host(c, known)) { /* computed again: there was no room to load it */
        let_go(c, known);
        known = NO_NODE;
    }
    if (known == NO_NODE && c->nodes[entry->page].count) /* a prefix of a cached page with more tokens */
        return;
    if (known == NO_NODE) {
        node_insert(c, entry->page, mark->key, parent, tokens, entry->count, now_ns);
        spry_kv_page_ref(c->pool, entry->page);
        if (root)
            node_index_content(c, entry->page, *root, entry->start);
        drop_shorter(c, entry->page, parent, tokens, entry->count);
        send_to_disk(c, entry->page);
    } else if (known != entry->page) {
        spry_kv_page_ref(c->pool, known);
        spry_kv_state_move(c->pool, known, entry->page);
        spry_kv_page_unref(c->pool, entry->page);
        entry->page = known;
    }
    mark->cached = true;
}

static void publish(spry_kv_cache *c, spry_kv_table *table, spry_kv_key root, const int32_t *tokens, size_t n_tokens,
                    bool last, uint64_t now_ns)
{
    spry_kv_key parent = root;
    bool movable = true; /* rope's positions are those of the table: no picture comes before */
    for (size_t i = 0; i < table->n_entries; parent = table->marks[i++].key) {
        spry_kv_entry *entry = &table->entries[i];
        spry_kv_mark *mark = &table->marks[i];
        movable = movable && tokens[entry->start] >= 0;
        bool whole = entry->count == SPRY_PAGE_TOKENS || mark->closed || (last && i == table->n_entries - 1);
        if (mark->cached)
            continue;
        if (mark->foreign || !whole || (size_t)entry->start + entry->count > n_tokens)
            return;
        mark->key = spry_kv_key_page(parent, tokens + entry->start, entry->count);
        publish_entry(c, entry, mark, parent, movable ? &root : NULL, tokens + entry->start, now_ns);
        if (!mark->cached)
            return;
    }
}

void spry_kv_cache_publish(spry_kv_cache *c, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           size_t n_tokens, uint64_t now_ns)
{
    publish(c, table, root, tokens, n_tokens, false, now_ns);
}

void spry_kv_cache_release(spry_kv_cache *c, spry_kv_table *table, spry_kv_key root, const int32_t *tokens,
                           uint64_t now_ns)
{
    publish(c, table, root, tokens, table->n_tokens, true, now_ns);
    if (table->n_entries && c->nodes[table->entries[table->n_entries - 1].page].count) {
        spry_kv_state_leave(c->pool, table);
        spry_kv_cache_store_state(c, table, table->n_entries - 1, tokens);
    }
    for (size_t i = table->n_entries; i-- > 0;) /* pages that others depend on count as used last */
        if (c->nodes[table->entries[i].page].count)
            node_touch(c, table->entries[i].page, now_ns);
    spry_kv_table_truncate(table, c->pool, 0);
}

void spry_kv_cache_count(spry_kv_cache *c, spry_kv_key root, const int32_t *tokens, size_t count, size_t reused)
{
    c->figures.lookups++;
    c->figures.hit_tokens += reused;
    c->figures.miss_tokens += count - reused;
    if (count < SPRY_PAGE_TOKENS)
        return;
    const spry_kv_key first = spry_kv_key_page(root, tokens, SPRY_PAGE_TOKENS);
    uint64_t *seen = &c->seen[first.low % SPRY_KV_SEEN];
    c->figures.known += *seen == first.high;
    c->figures.found += *seen == first.high && reused;
    *seen = first.high;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

size_t spry_kv_cache_pin(spry_kv_cache *c, const spry_kv_table *table, bool pin)
{
    size_t pinned = 0;
    for (size_t i = 0; i < table->n_entries; i++) {
        spry_kv_node *n = &c->nodes[table->entries[i].page];
        if (!n->count || (!pin && !n->pins))
            continue;
        n->pins = pin ? n->pins + 1 : n->pins - 1;
        pinned += table->entries[i].count;
    }
    return pinned;
}

void spry_kv_cache_computed(spry_kv_cache *c, size_t rows, uint64_t ns)
{
    double one = rows ? (double)ns / (double)rows : c->compute_ns;
    c->compute_ns += c->compute_ns > 0 ? (one - c->compute_ns) / SMOOTHING : one;
}

void spry_kv_cache_describe(const spry_kv_cache *c, spry_kv_cache_figures *figures)
{
    *figures = c->figures;
    figures->unused_pages = figures->pinned_pages = 0;
    for (uint32_t page = c->list.oldest; page != NO_NODE; page = c->nodes[page].newer) {
        figures->unused_pages += c->pool->references[page] == 1;
        figures->pinned_pages += c->nodes[page].pins > 0;
    }
}

bool spry_kv_cache_knows(const spry_kv_cache *c, uint32_t page)
{
    return c->nodes[page].count > 0;
}
