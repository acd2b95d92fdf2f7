/* Finding pages, making them known, letting them go. */
#include <stdlib.h>
#include <string.h>

#include "kv/kv_cache_state.h"
#include "platform/clock.h"

enum {
    SCAN_MAX = 1024,  /* pages after one parent that a search for the longest prefix examines */
    RUN_SCAN_MAX = 8, /* chains with the same tokens that are compared */
    COLLECT = 64,     /* tickets collected from the disk tier at a time */
    SMOOTHING = 8,    /* weight of earlier measurements */
    FORGETTING = 256, /* decay of a slow restore */
    RESTORED = 64,    /* pages restored at a time */
    AHEAD = 64,       /* pages evicted to host memory before they are needed, and */
    AHEAD_SHARE = 32, /* at most one in so many of all */
};

spry_status spry_kv_cache_init(spry_kv_cache *cache, spry_kv_pool *pool, const spry_kv_cache_options *options,
                               spry_error *error)
{
    *cache =
        (spry_kv_cache){.pool = pool, .options = *options, .n_buckets = 16, .list = {SPRY_KV_NO_NODE, SPRY_KV_NO_NODE}};
    bool host = spry_kv_host_init(cache);
    size_t n_nodes = pool->n_pages + cache->host.n_slots;
    while (cache->n_buckets < n_nodes)
        cache->n_buckets *= 2;
    cache->nodes = calloc(n_nodes, sizeof *cache->nodes);
    cache->by_key = malloc(cache->n_buckets * sizeof *cache->by_key);
    cache->by_parent = malloc(cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        cache->by_content = malloc(cache->n_buckets * sizeof *cache->by_content);
    if (!host || !cache->nodes || !cache->by_key || !cache->by_parent || (options->contents && !cache->by_content)) {
        spry_kv_cache_deinit(cache);
        return spry_fail_memory(error, "the index of KV pages", n_nodes * sizeof *cache->nodes);
    }
    memset(cache->by_key, 0xff, cache->n_buckets * sizeof *cache->by_key); /* SPRY_KV_NO_NODE */
    memset(cache->by_parent, 0xff, cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        memset(cache->by_content, 0xff, cache->n_buckets * sizeof *cache->by_content);
    cache->figures.page_bytes = pool->page_bytes;
    return SPRY_OK;
}

static void let_go(spry_kv_cache *c, uint32_t node)
{
    spry_kv_node_remove(c, node);
    if (spry_kv_in_host(c, node))
        spry_kv_host_give(c, node);
    else
        spry_kv_page_unref(c->pool, node);
}

/* Collects what reached the disk; false when there was nothing. */
static bool collect(spry_kv_cache *c, bool wait)
{
    uint32_t tickets[COLLECT];
    size_t n = c->options.disk ? spry_kv_disk_collect(c->options.disk, tickets, COLLECT, wait) : 0;
    for (size_t i = 0; i < n; i++)
        if (spry_kv_in_host(c, tickets[i]))
            spry_kv_host_give(c, tickets[i]);
        else
            spry_kv_page_unref(c->pool, tickets[i]);
    return n > 0;
}

void spry_kv_cache_deinit(spry_kv_cache *c)
{
    while (collect(c, true)) {
    }
    while (c->nodes && c->list.oldest != SPRY_KV_NO_NODE)
        let_go(c, c->list.oldest);
    spry_kv_host_deinit(c);
    free(c->nodes);
    free(c->by_key);
    free(c->by_parent);
    free(c->by_content);
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
    if (!spry_kv_host_save(c, page))
        let_go(c, page);
    c->figures.evicted++;
}

/* Evicts the oldest pages until `n_pages` are free; false when it cannot. */
static bool evict_oldest(spry_kv_cache *c, size_t n_pages)
{
    for (uint32_t page = c->list.oldest, newer; page != SPRY_KV_NO_NODE && c->pool->n_free < n_pages; page = newer) {
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

bool spry_kv_cache_make_room_for(spry_kv_cache *c, const spry_kv_table *table, size_t count)
{
    if (spry_kv_cache_make_room(c, spry_kv_table_pages_needed(table, c->pool, count)))
        return true;
    uint32_t last = table->n_entries ? table->entries[table->n_entries - 1].page : SPRY_KV_NO_NODE;
    if (last == SPRY_KV_NO_NODE || !c->nodes[last].count || c->nodes[last].pins || c->pool->references[last] != 2)
        return false;
    let_go(c, last);
    c->figures.evicted++;
    return spry_kv_cache_make_room(c, spry_kv_table_pages_needed(table, c->pool, count));
}

/* Evicts pages that are expired, and the oldest ones while there are more than `most`. */
static void evict(spry_kv_cache *c, size_t most, uint64_t now_ns)
{
    while (collect(c, false)) {
    }
    spry_kv_host_expire(c, now_ns);
    for (uint32_t page = c->list.oldest; page != SPRY_KV_NO_NODE;) {
        const spry_kv_node *n = &c->nodes[page];
        bool old = c->options.ttl_ns && now_ns > n->used_ns && now_ns - n->used_ns > c->options.ttl_ns;
        bool over = c->figures.pages > most;
        if (!old && !over)
            break;
        uint32_t newer = n->newer;
        if (idle(c, page) && old) {
            let_go(c, page);
            c->figures.expired++;
        } else if (idle(c, page)) {
            evict_page(c, page);
        }
        page = newer;
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
    spry_kv_host_shrink(c, slots < c->host.n_slots ? slots : c->host.n_slots);
    spry_kv_pool_release(c->pool);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* A node's page in the pool, used now; SPRY_KV_NO_NODE where it could not be copied back to it. */
static uint32_t use(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    if (node != SPRY_KV_NO_NODE && spry_kv_in_host(c, node))
        node = spry_kv_host_load(c, node, now_ns);
    if (node != SPRY_KV_NO_NODE)
        spry_kv_node_touch(c, node, now_ns);
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
    void *bytes[RESTORED];
    bool right[RESTORED];
    size_t n;
} batch;

/* Takes a page for the bytes of `wanted`; false when there is no room. */
static bool add_wanted(spry_kv_cache *c, batch *b, const spry_kv_disk_page *wanted)
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
        spry_kv_disk_load_some(c->options.disk, b->right + at, b->wanted + at, b->bytes + at, n);
        for (size_t i = at; i < at + n; i++)
            fine = mover->write_end(mover->self, b->pages[i], b->right[i]) && fine;
    }
    fine = mover->write_finish(mover->self) && fine;
    for (size_t i = 0; i < b->n; i++) {
        const spry_kv_disk_page *w = &b->wanted[i];
        if (b->right[i] && fine) {
            spry_kv_node_insert(c, b->pages[i], w->key, w->parent, w->tokens, SPRY_PAGE_TOKENS, now_ns);
            restored++;
        } else {
            spry_kv_page_unref(c->pool, b->pages[i]);
        }
    }
    b->n = 0;
    if (!restored)
        return;
    uint64_t took = spry_clock_ns() - start;
    double ns = (double)took / (double)(restored * SPRY_PAGE_TOKENS);
    c->figures.restore_ns += took;
    c->restore_ns += c->restore_ns > 0 ? (ns - c->restore_ns) / SMOOTHING : ns;
    c->figures.restored_tokens += restored * SPRY_PAGE_TOKENS;
}

void spry_kv_cache_restore(spry_kv_cache *c, spry_kv_key parent, const int32_t *tokens, size_t count, uint64_t now_ns)
{
    batch b = {.n = 0};
    size_t most = c->pool->mover.max_writes < RESTORED ? c->pool->mover.max_writes : RESTORED;
    if (!c->options.disk)
        return;
    for (; count >= SPRY_PAGE_TOKENS; tokens += SPRY_PAGE_TOKENS, count -= SPRY_PAGE_TOKENS) {
        spry_kv_disk_page wanted = {spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS), parent, tokens};
        uint32_t page = spry_kv_node_find(c, wanted.key, parent, tokens, SPRY_PAGE_TOKENS);
        parent = wanted.key;
        if (page != SPRY_KV_NO_NODE)
            spry_kv_node_touch(c, page, now_ns); /* making room evicts others */
        else if (spry_kv_disk_has(c->options.disk, wanted.key) && restores(c) && !add_wanted(c, &b, &wanted))
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
    *page = use(c, spry_kv_node_find(c, spry_kv_key_page(parent, tokens, count), parent, tokens, count), now_ns);
    return *page != SPRY_KV_NO_NODE;
}

size_t spry_kv_cache_longest(spry_kv_cache *c, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                             uint64_t now_ns)
{
    size_t best = 0, left = SCAN_MAX;
    for (uint32_t at = *spry_kv_bucket(c, c->by_parent, parent); at != SPRY_KV_NO_NODE && left--;
         at = c->nodes[at].next_by_parent) {
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
    return best && *page != SPRY_KV_NO_NODE ? best : 0;
}

/* The page that continues a chain with these tokens. */
static uint32_t next_in_chain(const spry_kv_cache *c, uint32_t page, const int32_t *tokens)
{
    spry_kv_key parent = c->nodes[page].key;
    return spry_kv_node_find(c, spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS), parent, tokens, SPRY_PAGE_TOKENS);
}

static size_t chain_length(const spry_kv_cache *c, uint32_t page, const int32_t *tokens, size_t count)
{
    size_t length = 0;
    while (page != SPRY_KV_NO_NODE && ++length < count / SPRY_PAGE_TOKENS)
        page = next_in_chain(c, page, tokens + length * SPRY_PAGE_TOKENS);
    return length;
}

size_t spry_kv_cache_run(spry_kv_cache *c, uint32_t *pages, spry_kv_key root, uint64_t content, const int32_t *tokens,
                         size_t count, uint64_t now_ns)
{
    size_t best = 0, left = RUN_SCAN_MAX;
    uint32_t start = SPRY_KV_NO_NODE;
    for (uint32_t at = *spry_kv_content_bucket(c, content); at != SPRY_KV_NO_NODE && left;
         at = c->nodes[at].next_by_content) {
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
        if (pages[i] == SPRY_KV_NO_NODE)
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
    if (c->options.disk && n->count == SPRY_PAGE_TOKENS && spry_kv_disk_store(c->options.disk, &out, NULL, page))
        spry_kv_page_ref(c->pool, page); /* until it is collected */
}

/* Removes a page whose tokens are a proper prefix of these, after the same parent: it is no longer needed. */
static void drop_shorter(spry_kv_cache *c, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    size_t left = SCAN_MAX;
    for (uint32_t at = *spry_kv_bucket(c, c->by_parent, parent); at != SPRY_KV_NO_NODE && left--;) {
        const spry_kv_node *n = &c->nodes[at];
        uint32_t next = n->next_by_parent;
        if (n->count < count && (spry_kv_in_host(c, at) || idle(c, at)) && spry_kv_key_equal(n->parent, parent) &&
            !memcmp(n->tokens, tokens, n->count * sizeof *tokens))
            let_go(c, at);
        at = next;
    }
}

static void publish_entry(spry_kv_cache *c, spry_kv_entry *entry, spry_kv_mark *mark, spry_kv_key parent,
                          spry_kv_key root, const int32_t *tokens, uint64_t now_ns)
{
    uint32_t known = spry_kv_node_find(c, mark->key, parent, tokens, entry->count);
    if (known != SPRY_KV_NO_NODE && spry_kv_in_host(c, known)) { /* it was computed again, for lack of room */
        let_go(c, known);
        known = SPRY_KV_NO_NODE;
    }
    if (known == SPRY_KV_NO_NODE && c->nodes[entry->page].count) /* a prefix of a cached page with more tokens */
        return;
    if (known == SPRY_KV_NO_NODE) {
        spry_kv_node_insert(c, entry->page, mark->key, parent, tokens, entry->count, now_ns);
        spry_kv_page_ref(c->pool, entry->page);
        spry_kv_node_index_content(c, entry->page, root, entry->start);
        drop_shorter(c, parent, tokens, entry->count);
        send_to_disk(c, entry->page);
    } else if (known != entry->page) {
        spry_kv_page_ref(c->pool, known);
        spry_kv_page_unref(c->pool, entry->page);
        entry->page = known;
    }
    mark->cached = true;
}

static void publish(spry_kv_cache *c, spry_kv_table *table, spry_kv_key root, const int32_t *tokens, size_t n_tokens,
                    bool last, uint64_t now_ns)
{
    spry_kv_key parent = root;
    for (size_t i = 0; i < table->n_entries; parent = table->marks[i++].key) {
        spry_kv_entry *entry = &table->entries[i];
        spry_kv_mark *mark = &table->marks[i];
        bool whole = entry->count == SPRY_PAGE_TOKENS || mark->closed || (last && i == table->n_entries - 1);
        if (mark->cached)
            continue;
        if (mark->foreign || !whole || (size_t)entry->start + entry->count > n_tokens)
            return;
        mark->key = spry_kv_key_page(parent, tokens + entry->start, entry->count);
        publish_entry(c, entry, mark, parent, root, tokens + entry->start, now_ns);
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
    for (size_t i = table->n_entries; i-- > 0;) /* pages that others depend on count as used last */
        if (c->nodes[table->entries[i].page].count)
            spry_kv_node_touch(c, table->entries[i].page, now_ns);
    spry_kv_table_truncate(table, c->pool, 0);
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
    for (uint32_t page = c->list.oldest; page != SPRY_KV_NO_NODE; page = c->nodes[page].newer) {
        figures->unused_pages += c->pool->references[page] == 1;
        figures->pinned_pages += c->nodes[page].pins > 0;
    }
}

bool spry_kv_cache_knows(const spry_kv_cache *c, uint32_t page)
{
    return c->nodes[page].count > 0;
}
