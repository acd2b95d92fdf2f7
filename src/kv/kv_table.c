/* Edits of tables. Keys and values are copied only on writes to a shared last page. */
#include "kv/kv_table.h"

#include <stdlib.h>

#include "kv/kv_states.h"

/* Allocates room for entries. */
static bool reserve(spry_kv_table *table, size_t n_entries)
{
    if (n_entries <= table->capacity)
        return true;
    size_t capacity = n_entries + n_entries / 4;
    spry_kv_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (entries)
        table->entries = entries;
    spry_kv_mark *marks = realloc(table->marks, capacity * sizeof *marks);
    if (marks)
        table->marks = marks;
    if (!entries || !marks)
        return false;
    table->capacity = capacity;
    return true;
}

spry_status spry_kv_table_init(spry_kv_table *table, size_t max_tokens, spry_error *error)
{
    *table = (spry_kv_table){.max_tokens = max_tokens};
    if (max_tokens > INT32_MAX) /* the range of an entry's start and of an offset */
        return spry_fail(error, SPRY_ERR_MEMORY, "a KV table of %zu tokens is larger than any memory", max_tokens);
    if (reserve(table, max_tokens / SPRY_PAGE_TOKENS + 1))
        return SPRY_OK;
    free(table->entries);
    free(table->marks);
    *table = (spry_kv_table){0};
    return spry_fail_memory(error, "a KV table", max_tokens);
}

void spry_kv_table_deinit(spry_kv_table *table, spry_kv_pool *pool)
{
    if (table->entries)
        spry_kv_table_truncate(table, pool, 0);
    free(table->entries);
    free(table->marks);
    *table = (spry_kv_table){0};
}

/* Free tokens in the last page. */
static size_t room_in_last(const spry_kv_table *table)
{
    if (!table->n_entries || table->marks[table->n_entries - 1].closed)
        return 0;
    return SPRY_PAGE_TOKENS - table->entries[table->n_entries - 1].count;
}

/* Whether the last page is shared, so that a write requires a copy. */
static bool last_is_shared(const spry_kv_table *table, const spry_kv_pool *pool)
{
    return pool->references[table->entries[table->n_entries - 1].page] > 1;
}

size_t spry_kv_table_pages_needed(const spry_kv_table *table, const spry_kv_pool *pool, size_t count)
{
    size_t room = room_in_last(table), copies = count && room && last_is_shared(table, pool);
    return copies + (count > room ? (count - room + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS : 0);
}

static uint32_t take(spry_kv_pool *pool)
{
    uint32_t page = 0;
    spry_kv_page_take(pool, &page); /* extend has checked that there are enough */
    return page;
}

static void copy_last(spry_kv_table *table, spry_kv_pool *pool)
{
    spry_kv_entry *last = &table->entries[table->n_entries - 1];
    uint32_t copy = take(pool);
    pool->mover.copy(pool->mover.self, copy, last->page);
    spry_kv_page_unref(pool, last->page);
    last->page = copy;
}

static spry_status check_room(const spry_kv_table *table, size_t count, spry_error *error)
{
    if (count > table->max_tokens - table->n_tokens)
        return spry_fail(error, SPRY_ERR_CONTEXT, "%zu tokens do not fit a context of %zu", table->n_tokens + count,
                         table->max_tokens);
    return SPRY_OK;
}

spry_status spry_kv_table_extend(spry_kv_table *table, spry_kv_pool *pool, size_t count, spry_error *error)
{
    spry_status status = check_room(table, count, error);
    if (status)
        return status;
    size_t needed = spry_kv_table_pages_needed(table, pool, count);
    if (needed > pool->n_free)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the KV pool is full: %zu of %zu pages of %d tokens are in use",
                         pool->n_pages - pool->n_free, pool->n_pages, SPRY_PAGE_TOKENS);
    if (!reserve(table, table->n_entries + needed))
        return spry_fail_memory(error, "a KV table", (table->n_entries + needed) * sizeof *table->entries);
    if (count && !spry_kv_state_take(pool, table))
        return spry_fail(error, SPRY_ERR_CONTEXT, "all %zu recurrent states are in use", pool->states->pool.n_pages);
    if (count && room_in_last(table)) {
        if (last_is_shared(table, pool))
            copy_last(table, pool);
        spry_kv_state_clip(pool, table->entries[table->n_entries - 1].page, table->entries[table->n_entries - 1].count);
        table->marks[table->n_entries - 1] = (spry_kv_mark){0};
    }
    while (count) {
        if (!room_in_last(table)) {
            table->marks[table->n_entries] = (spry_kv_mark){0};
            table->entries[table->n_entries++] =
                (spry_kv_entry){.page = take(pool), .start = (uint32_t)table->n_tokens};
        }
        size_t room = room_in_last(table), part = count < room ? count : room;
        table->entries[table->n_entries - 1].count += (uint32_t)part;
        table->n_tokens += part;
        count -= part;
    }
    return SPRY_OK;
}

void spry_kv_table_close(spry_kv_table *table)
{
    if (table->n_entries)
        table->marks[table->n_entries - 1].closed = true;
}

spry_status spry_kv_table_append(spry_kv_table *table, spry_kv_pool *pool, uint32_t page, size_t count, size_t position,
                                 const spry_kv_mark *mark, spry_error *error)
{
    spry_status status = check_room(table, count, error);
    if (status)
        return status;
    int32_t delta = (int32_t)((int64_t)table->n_tokens - (int64_t)position);
    spry_kv_entry entry = {.page = page, .start = (uint32_t)table->n_tokens, .count = (uint32_t)count};
    if (!reserve(table, table->n_entries + 1))
        return spry_fail_memory(error, "a KV table", (table->n_entries + 1) * sizeof entry);
    if (!spry_kv_turn_take(&pool->turns, &entry.turn, delta))
        return spry_fail(error, SPRY_ERR_CONTEXT, "fragments are used at more than %d different distances",
                         SPRY_KV_TURNS_MAX);
    spry_kv_page_ref(pool, page);
    table->marks[table->n_entries] = *mark;
    table->entries[table->n_entries++] = entry;
    table->n_tokens += count;
    return SPRY_OK;
}

static void release(const spry_kv_entry *entry, spry_kv_pool *pool)
{
    spry_kv_turn_release(&pool->turns, entry->turn);
    spry_kv_page_unref(pool, entry->page);
}

void spry_kv_table_truncate(spry_kv_table *table, spry_kv_pool *pool, size_t n_tokens)
{
    if (!n_tokens || n_tokens < table->state_from)
        spry_kv_state_give(pool, table);
    while (table->n_entries && table->entries[table->n_entries - 1].start >= n_tokens)
        release(&table->entries[--table->n_entries], pool);
    if (n_tokens >= table->n_tokens)
        return;
    table->n_tokens = n_tokens;
    if (!table->n_entries)
        return;
    spry_kv_entry *last = &table->entries[table->n_entries - 1];
    spry_kv_mark *mark = &table->marks[table->n_entries - 1];
    if (last->count != n_tokens - last->start)
        *mark = (spry_kv_mark){.closed = mark->foreign, .foreign = mark->foreign}; /* its contents no longer match its
                                                                                    * key */
    last->count = (uint32_t)(n_tokens - last->start);
}

spry_status spry_kv_table_slide(spry_kv_table *table, spry_kv_pool *pool, size_t keep, size_t drop, int32_t shift,
                                size_t *dropped, spry_error *error)
{
    size_t after = keep + drop, gone = 0;
    for (size_t i = keep; i < after; i++)
        gone += table->entries[i].count;
    for (size_t i = after; i < table->n_entries; i++) {
        spry_kv_entry *entry = &table->entries[i];
        uint32_t turn;
        if (!spry_kv_turn_take(&pool->turns, &turn, pool->turns.deltas[entry->turn] - (int32_t)gone - shift)) {
            while (i-- > after)
                spry_kv_turn_release(&pool->turns, table->marks[i].next_turn);
            return spry_fail(error, SPRY_ERR_CONTEXT, "pages are used at more than %d different distances",
                             SPRY_KV_TURNS_MAX);
        }
        table->marks[i].next_turn = turn;
    }
    for (size_t i = keep; i < after; i++)
        release(&table->entries[i], pool);
    for (size_t i = after; i < table->n_entries; i++) {
        spry_kv_entry entry = table->entries[i];
        spry_kv_turn_release(&pool->turns, entry.turn);
        entry.turn = table->marks[i].next_turn;
        entry.start -= (uint32_t)gone;
        table->entries[i - drop] = entry;
        table->marks[i - drop] = (spry_kv_mark){.closed = true, .foreign = true};
    }
    table->n_entries -= drop;
    table->n_tokens -= gone;
    table->state_from -= table->state ? gone : 0; /* the last pages stay */
    *dropped = gone;
    return SPRY_OK;
}

size_t spry_kv_table_returns(const spry_kv_table *table)
{
    size_t room = room_in_last(table);
    return !table->state ? SIZE_MAX : room ? room : SPRY_PAGE_TOKENS;
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
