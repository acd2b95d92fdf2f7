/* Edits of tables. The only copy of keys and values is copy-on-write of a last page that is shared. */
#include "kv/kv_table.h"

#include <stdlib.h>
#include <string.h>

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error)
{
    size_t capacity = max_tokens / SPRY_PAGE_TOKENS + 1;
    *table = (spry_kv_table){.capacity = capacity, .max_tokens = max_tokens};
    if (max_tokens > UINT32_MAX) /* what an entry's start can say */
        return spry_fail(error, SPRY_ERR_MEMORY, "a KV table of %zu tokens is larger than any memory", max_tokens);
    table->entries = calloc(capacity, sizeof *table->entries);
    return table->entries ? SPRY_OK : spry_fail_memory(error, "a KV table", capacity * sizeof *table->entries);
}

void spry_kv_table_deinit(spry_kv_table *table, spry_kv_pool *pool)
{
    if (table->entries)
        spry_kv_table_truncate(table, pool, 0);
    free(table->entries);
    *table = (spry_kv_table){0};
}

/* Tokens that still fit the last page. */
static size_t room_in_last(const spry_kv_table *table)
{
    return table->n_entries ? SPRY_PAGE_TOKENS - table->entries[table->n_entries - 1].count : 0;
}

/* Whether the last page is somebody else's too, so that writing to it takes a copy. */
static bool last_is_shared(const spry_kv_table *table, const spry_kv_pool *pool)
{
    return pool->references[table->entries[table->n_entries - 1].page] > 1;
}

static size_t pages_needed(const spry_kv_table *table, const spry_kv_pool *pool, size_t count)
{
    size_t room = room_in_last(table), copies = count && room && last_is_shared(table, pool);
    return copies + (count > room ? (count - room + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS : 0);
}

static uint32_t take(spry_kv_pool *pool)
{
    uint32_t page = 0;
    spry_kv_page_take(pool, &page); /* extend has seen that there are enough */
    return page;
}

static void copy_last(spry_kv_table *table, spry_kv_pool *pool)
{
    spry_kv_entry *last = &table->entries[table->n_entries - 1];
    uint32_t copy = take(pool);
    memcpy(spry_kv_page(pool, copy), spry_kv_page(pool, last->page), pool->page_bytes);
    spry_kv_page_unref(pool, last->page);
    last->page = copy;
}

spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error)
{
    if (count > table->max_tokens - table->n_tokens)
        return spry_fail(error, SPRY_ERR_CONTEXT, "%zu tokens do not fit a context of %zu", table->n_tokens + count,
                         table->max_tokens);
    if (pages_needed(table, pool, count) > pool->n_free)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the KV pool is full: %zu of %zu pages of %d tokens are in use",
                         pool->n_pages - pool->n_free, pool->n_pages, SPRY_PAGE_TOKENS);
    if (count && room_in_last(table) && last_is_shared(table, pool))
        copy_last(table, pool);
    while (count) {
        if (!room_in_last(table))
            table->entries[table->n_entries++] =
                (spry_kv_entry){.page = take(pool), .start = (uint32_t)table->n_tokens};
        size_t room = room_in_last(table), part = count < room ? count : room;
        table->entries[table->n_entries - 1].count += (uint32_t)part;
        table->n_tokens += part;
        count -= part;
    }
    return SPRY_OK;
}

void spry_kv_table_truncate(spry_kv_table *table, spry_kv_pool *pool, size_t n_tokens)
{
    while (table->n_entries && table->entries[table->n_entries - 1].start >= n_tokens)
        spry_kv_page_unref(pool, table->entries[--table->n_entries].page);
    if (n_tokens < table->n_tokens) {
        table->n_tokens = n_tokens;
        if (table->n_entries) {
            spry_kv_entry *last = &table->entries[table->n_entries - 1];
            last->count = (uint32_t)(n_tokens - last->start);
        }
    }
}

void spry_kv_table_share(spry_kv_table *table, const spry_kv_table *from, spry_kv_pool *pool, size_t n_tokens)
{
    for (size_t i = 0; i < from->n_entries && from->entries[i].start < n_tokens; i++) {
        spry_kv_entry entry = from->entries[i];
        if (entry.start + entry.count > n_tokens)
            entry.count = (uint32_t)(n_tokens - entry.start);
        spry_kv_page_ref(pool, entry.page);
        table->entries[table->n_entries++] = entry;
        table->n_tokens += entry.count;
    }
}

const spry_kv_entry *spry_kv_table_find(const spry_kv_table *table, size_t position)
{
    size_t low = 0, high = table->n_entries - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (table->entries[middle].start <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return &table->entries[low];
}
