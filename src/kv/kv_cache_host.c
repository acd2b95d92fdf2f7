/* The tier of host memory. A copy is only started here: the device makes it in the order of its steps, and a slot or a
 * page can be used for the next copy at once. Bytes are read on the host in one case, when a page leaves for the disk.
 */
#include <stdlib.h>
#include <string.h>

#include "kv/kv_cache_state.h"

static uint32_t node_of(const spry_kv_cache *c, uint32_t slot)
{
    return (uint32_t)c->pool->n_pages + slot;
}

static uint32_t slot_of(const spry_kv_cache *c, uint32_t node)
{
    return node - (uint32_t)c->pool->n_pages;
}

bool spry_kv_host_init(spry_kv_cache *c)
{
    spry_kv_host *h = &c->host;
    size_t most = SPRY_KV_NO_NODE - 1 - c->pool->n_pages; /* that can be numbered */
    h->list = (spry_kv_list){SPRY_KV_NO_NODE, SPRY_KV_NO_NODE};
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

void spry_kv_host_deinit(spry_kv_cache *c)
{
    for (size_t i = 0; c->host.bytes && i < c->host.n_slots; i++)
        if (c->host.bytes[i])
            free_memory(c, i);
    free(c->host.bytes);
    free(c->host.copies);
    free(c->host.free);
}

void spry_kv_host_give(spry_kv_cache *c, uint32_t node)
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
    spry_kv_node_remove(c, node);
    if (!lent) /* else it is free when it is collected */
        spry_kv_host_give(c, node);
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
        if (h->list.oldest == SPRY_KV_NO_NODE)
            return false;
        drop_oldest(c);
    }
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

bool spry_kv_host_save(spry_kv_cache *c, uint32_t page)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t slot;
    if (!c->host.n_slots || !take_slot(c, &slot))
        return false;
    uint64_t copy = mover->save(mover->self, c->host.bytes[slot], page);
    if (!copy) {
        spry_kv_host_give(c, node_of(c, slot));
        return false;
    }
    c->host.copies[slot] = copy;
    spry_kv_node_move(c, node_of(c, slot), page);
    spry_kv_page_unref_copied(c->pool, page);
    c->figures.host_saved++;
    return true;
}

uint32_t spry_kv_host_load(spry_kv_cache *c, uint32_t node, uint64_t now_ns)
{
    const spry_kv_mover *mover = &c->pool->mover;
    uint32_t page = SPRY_KV_NO_NODE;
    spry_kv_node_unlist(c, node); /* making room removes others */
    bool room = spry_kv_cache_make_room(c, 1) && spry_kv_page_take(c->pool, &page);
    spry_kv_node_list(c, node, now_ns);
    if (!room)
        return SPRY_KV_NO_NODE;
    if (!mover->load(mover->self, page, c->host.bytes[slot_of(c, node)])) {
        spry_kv_page_unref(c->pool, page);
        return SPRY_KV_NO_NODE;
    }
    spry_kv_node_move(c, page, node);
    spry_kv_host_give(c, node);
    c->figures.host_loaded++;
    return page;
}

/* ---- less -------------------------------------------------------------------------------------------------------- */

void spry_kv_host_expire(spry_kv_cache *c, uint64_t now_ns)
{
    uint32_t *oldest = &c->host.list.oldest;
    while (c->options.ttl_ns && *oldest != SPRY_KV_NO_NODE && now_ns > c->nodes[*oldest].used_ns &&
           now_ns - c->nodes[*oldest].used_ns > c->options.ttl_ns) {
        uint32_t node = *oldest;
        spry_kv_node_remove(c, node);
        spry_kv_host_give(c, node);
        c->figures.expired++;
    }
}

void spry_kv_host_shrink(spry_kv_cache *c, size_t n_slots)
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
