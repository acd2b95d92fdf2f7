/* Edits of tables. The only copy of keys and values is copy-on-write of a last page that is shared. */
#include "kv/kv_table.h"

#include <stdlib.h>
#include <string.h>

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error)
{
    size_t capacity = max_tokens / SPRY_PAGE_TOKENS + 1;
    *table = (spry_kv_table){.capacity = capacity, .max_tokens = max_tokens};
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

/* Makes the last page this table's own before it is written to. */
static bool own_last(spry_kv_table *table, spry_kv_pool *pool)
{
    spry_kv_entry *last = &table->entries[table->n_entries - 1];
    uint32_t copy;
    if (pool->references[last->page] == 1)
        return true;
    if (!spry_kv_page_take(pool, &copy))
        return false;
    memcpy(spry_kv_page(pool, copy), spry_kv_page(pool, last->page), pool->page_bytes);
    spry_kv_page_unref(pool, last->page);
    last->page = copy;
    return true;
}

spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error)
{
    size_t before = table->n_tokens;
    if (count > table->max_tokens - before)
        return spry_fail(error, SPRY_ERR_CONTEXT, "%zu tokens do not fit a context of %zu", before + count,
                         table->max_tokens);
    if (count && before % SPRY_PAGE_TOKENS && !own_last(table, pool))
        goto full;
    for (size_t left = count; left;) {
        spry_kv_entry *last = table->n_entries ? &table->entries[table->n_entries - 1] : NULL;
        if (!last || last->count == SPRY_PAGE_TOKENS) {
            uint32_t page;
            if (!spry_kv_page_take(pool, &page))
                goto full;
            last = &table->entries[table->n_entries++];
            *last = (spry_kv_entry){.page = page, .start = (uint32_t)table->n_tokens};
        }
        size_t room = SPRY_PAGE_TOKENS - last->count, part = left < room ? left : room;
        last->count += (uint32_t)part;
        table->n_tokens += part;
        left -= part;
    }
    return SPRY_OK;
full:
    spry_kv_table_truncate(table, pool, before);
    return spry_fail(error, SPRY_ERR_CONTEXT, "the KV pool is full: all %zu pages of %d tokens are in use",
                     pool->n_pages, SPRY_PAGE_TOKENS);
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
