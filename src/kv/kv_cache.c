/* Two chained hash tables (by key, by parent) and an LRU list, all threaded through one node per pool page. */
#include "kv/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "kv/kv_content.h"
#include "platform/clock.h"

#define NO_PAGE UINT32_MAX

enum {
    SCAN_MAX = 1024,  /* pages after one parent that a search for the longest prefix examines */
    RUN_SCAN_MAX = 8, /* chains with the same tokens that are compared */
    COLLECT = 64,     /* tickets collected from the disk tier at a time */
    SMOOTHING = 8,    /* weight of earlier measurements */
    FORGETTING = 256, /* decay of a slow restore */
    RESTORED = 64,    /* pages restored at a time */
};

struct spry_kv_node {
    spry_kv_key key, parent;
    int32_t tokens[SPRY_PAGE_TOKENS];
    uint32_t count; /* tokens; 0: the page is not in the index */
    uint32_t pins;
    uint32_t next_by_key, next_by_parent, next_by_content;
    uint32_t position; /* of its first token, when it was computed */
    spry_kv_key root;  /* of its chain */
    uint64_t content;
    bool by_content; /* it is found by its tokens */
    uint32_t newer, older;
    uint64_t used_ns;
};

spry_status spry_kv_cache_init(spry_kv_cache *cache, spry_kv_pool *pool, const spry_kv_cache_options *options,
                               spry_error *error)
{
    *cache = (spry_kv_cache){.pool = pool, .options = *options, .n_buckets = 16, .newest = NO_PAGE, .oldest = NO_PAGE};
    while (cache->n_buckets < pool->n_pages)
        cache->n_buckets *= 2;
    cache->nodes = calloc(pool->n_pages, sizeof *cache->nodes);
    cache->by_key = malloc(cache->n_buckets * sizeof *cache->by_key);
    cache->by_parent = malloc(cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        cache->by_content = malloc(cache->n_buckets * sizeof *cache->by_content);
    if (!cache->nodes || !cache->by_key || !cache->by_parent || (options->contents && !cache->by_content)) {
        spry_kv_cache_deinit(cache);
        return spry_fail_memory(error, "the index of KV pages", pool->n_pages * sizeof *cache->nodes);
    }
    memset(cache->by_key, 0xff, cache->n_buckets * sizeof *cache->by_key); /* NO_PAGE */
    memset(cache->by_parent, 0xff, cache->n_buckets * sizeof *cache->by_parent);
    if (options->contents)
        memset(cache->by_content, 0xff, cache->n_buckets * sizeof *cache->by_content);
    cache->figures.page_bytes = pool->page_bytes;
    return SPRY_OK;
}

/* ---- the list and the chains ------------------------------------------------------------------------------------- */

static void unlist(spry_kv_cache *c, uint32_t page)
{
    const spry_kv_node *n = &c->nodes[page];
    *(n->newer == NO_PAGE ? &c->newest : &c->nodes[n->newer].older) = n->older;
    *(n->older == NO_PAGE ? &c->oldest : &c->nodes[n->older].newer) = n->newer;
}

static void list_newest(spry_kv_cache *c, uint32_t page, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[page];
    n->used_ns = now_ns;
    n->newer = NO_PAGE;
    n->older = c->newest;
    *(c->newest == NO_PAGE ? &c->oldest : &c->nodes[c->newest].newer) = page;
    c->newest = page;
}

static void touch(spry_kv_cache *c, uint32_t page, uint64_t now_ns)
{
    unlist(c, page);
    list_newest(c, page, now_ns);
}

static uint32_t *bucket(const spry_kv_cache *c, uint32_t *table, spry_kv_key key)
{
    return &table[key.low & (c->n_buckets - 1)];
}

static uint32_t *content_bucket(const spry_kv_cache *c, uint64_t content)
{
    return &c->by_content[content >> 32 & (c->n_buckets - 1)];
}

static void unchain(spry_kv_cache *c, uint32_t page)
{
    const spry_kv_node *n = &c->nodes[page];
    uint32_t *at = bucket(c, c->by_key, n->key);
    while (*at != page)
        at = &c->nodes[*at].next_by_key;
    *at = n->next_by_key;
    at = bucket(c, c->by_parent, n->parent);
    while (*at != page)
        at = &c->nodes[*at].next_by_parent;
    *at = n->next_by_parent;
    if (!n->by_content)
        return;
    at = content_bucket(c, n->content);
    while (*at != page)
        at = &c->nodes[*at].next_by_content;
    *at = n->next_by_content;
}

static void let_go(spry_kv_cache *c, uint32_t page)
{
    unchain(c, page);
    unlist(c, page);
    c->nodes[page].count = 0;
    c->figures.pages--;
    spry_kv_page_unref(c->pool, page);
}

static void insert(spry_kv_cache *c, uint32_t page, spry_kv_key key, spry_kv_key parent, const int32_t *tokens,
                   size_t count, uint64_t now_ns)
{
    spry_kv_node *n = &c->nodes[page];
    *n = (spry_kv_node){.key = key, .parent = parent, .count = (uint32_t)count};
    memcpy(n->tokens, tokens, count * sizeof *tokens);
    uint32_t *first = bucket(c, c->by_key, key);
    n->next_by_key = *first;
    *first = page;
    first = bucket(c, c->by_parent, parent);
    n->next_by_parent = *first;
    *first = page;
    list_newest(c, page, now_ns);
    spry_kv_page_ref(c->pool, page);
    c->figures.pages++;
    c->figures.inserted++;
}

/* Makes a full page known by its tokens. */
static void index_content(spry_kv_cache *c, uint32_t page, spry_kv_key root, uint32_t position)
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

/* Collects pages that reached the disk; false when there were none. */
static bool collect(spry_kv_cache *c, bool wait)
{
    uint32_t tickets[COLLECT];
    size_t n = c->options.disk ? spry_kv_disk_collect(c->options.disk, tickets, COLLECT, wait) : 0;
    for (size_t i = 0; i < n; i++)
        spry_kv_page_unref(c->pool, tickets[i]);
    return n > 0;
}

void spry_kv_cache_deinit(spry_kv_cache *c)
{
    while (collect(c, true)) {
    }
    while (c->nodes && c->oldest != NO_PAGE)
        let_go(c, c->oldest);
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

bool spry_kv_cache_make_room(spry_kv_cache *c, size_t n_pages)
{
    uint32_t page = c->oldest;
    while (c->pool->n_free < n_pages) {
        if (page == NO_PAGE) {
            if (!collect(c, true)) /* pages waiting for the disk may be idle afterwards */
                return false;
            page = c->oldest;
            continue;
        }
        uint32_t newer = c->nodes[page].newer;
        if (idle(c, page)) {
            let_go(c, page);
            c->figures.evicted++;
        }
        page = newer;
    }
    return true;
}

bool spry_kv_cache_make_room_for(spry_kv_cache *c, const spry_kv_table *table, size_t count)
{
    if (spry_kv_cache_make_room(c, spry_kv_table_pages_needed(table, c->pool, count)))
        return true;
    uint32_t last = table->n_entries ? table->entries[table->n_entries - 1].page : NO_PAGE;
    if (last == NO_PAGE || !c->nodes[last].count || c->nodes[last].pins || c->pool->references[last] != 2)
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
    for (uint32_t page = c->oldest; page != NO_PAGE;) {
        const spry_kv_node *n = &c->nodes[page];
        bool old = c->options.ttl_ns && now_ns > n->used_ns && now_ns - n->used_ns > c->options.ttl_ns;
        bool over = c->figures.pages > most;
        if (!old && !over)
            break;
        uint32_t newer = n->newer;
        if (idle(c, page)) {
            let_go(c, page);
            *(old ? &c->figures.expired : &c->figures.evicted) += 1;
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
    evict(c, n_pages < most ? n_pages : most, now_ns);
    spry_kv_pool_release(c->pool);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool holds(const spry_kv_node *n, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    return n->count == count && spry_kv_key_equal(n->parent, parent) &&
           !memcmp(n->tokens, tokens, count * sizeof *tokens);
}

static uint32_t lookup(const spry_kv_cache *c, spry_kv_key key, spry_kv_key parent, const int32_t *tokens, size_t count)
{
    uint32_t page = *bucket(c, c->by_key, key);
    while (page != NO_PAGE &&
           !(spry_kv_key_equal(c->nodes[page].key, key) && holds(&c->nodes[page], parent, tokens, count)))
        page = c->nodes[page].next_by_key;
    return page;
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
            insert(c, b->pages[i], w->key, w->parent, w->tokens, SPRY_PAGE_TOKENS, now_ns);
            restored++;
        }
        spry_kv_page_unref(c->pool, b->pages[i]);
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
        uint32_t page = lookup(c, wanted.key, parent, tokens, SPRY_PAGE_TOKENS);
        parent = wanted.key;
        if (page != NO_PAGE)
            touch(c, page, now_ns); /* making room evicts others */
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
    *page = lookup(c, spry_kv_key_page(parent, tokens, count), parent, tokens, count);
    if (*page != NO_PAGE)
        touch(c, *page, now_ns);
    return *page != NO_PAGE;
}

size_t spry_kv_cache_longest(spry_kv_cache *c, uint32_t *page, spry_kv_key parent, const int32_t *tokens, size_t count,
                             uint64_t now_ns)
{
    size_t best = 0, left = SCAN_MAX;
    for (uint32_t at = *bucket(c, c->by_parent, parent); at != NO_PAGE && left--; at = c->nodes[at].next_by_parent) {
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
        touch(c, *page, now_ns);
    return best;
}

/* The page that continues a chain with these tokens. */
static uint32_t next_in_chain(const spry_kv_cache *c, uint32_t page, const int32_t *tokens)
{
    spry_kv_key parent = c->nodes[page].key;
    return lookup(c, spry_kv_key_page(parent, tokens, SPRY_PAGE_TOKENS), parent, tokens, SPRY_PAGE_TOKENS);
}

static size_t chain_length(const spry_kv_cache *c, uint32_t page, const int32_t *tokens, size_t count)
{
    size_t length = 0;
    while (page != NO_PAGE && ++length < count / SPRY_PAGE_TOKENS)
        page = next_in_chain(c, page, tokens + length * SPRY_PAGE_TOKENS);
    return length;
}

size_t spry_kv_cache_run(spry_kv_cache *c, uint32_t *pages, spry_kv_key root, uint64_t content, const int32_t *tokens,
                         size_t count, uint64_t now_ns)
{
    size_t best = 0, left = RUN_SCAN_MAX;
    uint32_t start = NO_PAGE;
    for (uint32_t at = *content_bucket(c, content); at != NO_PAGE && left; at = c->nodes[at].next_by_content) {
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
        pages[i] = i ? next_in_chain(c, pages[i - 1], tokens + i * SPRY_PAGE_TOKENS) : start;
        touch(c, pages[i], now_ns);
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
    for (uint32_t at = *bucket(c, c->by_parent, parent); at != NO_PAGE && left--;) {
        const spry_kv_node *n = &c->nodes[at];
        uint32_t next = n->next_by_parent;
        if (n->count < count && idle(c, at) && spry_kv_key_equal(n->parent, parent) &&
            !memcmp(n->tokens, tokens, n->count * sizeof *tokens))
            let_go(c, at);
        at = next;
    }
}

static void publish_entry(spry_kv_cache *c, spry_kv_entry *entry, spry_kv_mark *mark, spry_kv_key parent,
                          spry_kv_key root, const int32_t *tokens, uint64_t now_ns)
{
    uint32_t known = lookup(c, mark->key, parent, tokens, entry->count);
    if (known == NO_PAGE && c->nodes[entry->page].count) /* a prefix of a cached page with more tokens */
        return;
    if (known == NO_PAGE) {
        insert(c, entry->page, mark->key, parent, tokens, entry->count, now_ns);
        index_content(c, entry->page, root, entry->start);
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
            touch(c, table->entries[i].page, now_ns);
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
    for (uint32_t page = c->oldest; page != NO_PAGE; page = c->nodes[page].newer) {
        figures->unused_pages += c->pool->references[page] == 1;
        figures->pinned_pages += c->nodes[page].pins > 0;
    }
}

bool spry_kv_cache_knows(const spry_kv_cache *c, uint32_t page)
{
    return c->nodes[page].count > 0;
}
