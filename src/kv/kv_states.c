/* Recurrent states: who has one, where they are saved, and which of them is dropped for another. */
#include "kv/kv_states.h"

#include <stdlib.h>

enum { ENDS_WEIGHT = 4 /* a text goes on after its end more often than from within */ };

spry_status spry_kv_states_create(spry_kv_pool *pool, spry_error *error)
{
    size_t count = pool->shape.n_states;
    spry_kv_states *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "recurrent states", sizeof *s);
    pool->states = s;
    s->of_page = calloc(pool->n_pages, sizeof *s->of_page);
    s->saved = calloc(count, sizeof *s->saved);
    spry_status status =
        s->of_page && s->saved ? SPRY_OK : spry_fail_memory(error, "recurrent states", count * sizeof *s->saved);
    if (!status)
        status = spry_kv_pool_init_plain(&s->pool, pool->shape.state, count, error);
    if (status)
        spry_kv_states_destroy(pool);
    return status;
}

void spry_kv_states_destroy(spry_kv_pool *pool)
{
    if (!pool->states)
        return;
    spry_kv_pool_deinit(&pool->states->pool);
    free(pool->states->of_page);
    free(pool->states->saved);
    free(pool->states);
    pool->states = NULL;
}

/* ---- saved states ------------------------------------------------------------------------------------------------ */

static void forget(spry_kv_states *s, uint32_t state)
{
    s->of_page[s->saved[state].page] = 0;
    s->saved[state] = (spry_kv_saved){0};
    spry_kv_page_unref(&s->pool, state);
}

void spry_kv_state_drop(spry_kv_pool *pool, uint32_t page)
{
    spry_kv_states *s = pool->states;
    if (s && s->of_page[page])
        forget(s, s->of_page[page] - 1);
}

/* The cost of dropping a saved state: the tokens to be computed again from the state before it in the same text,
 * weighted by how likely that is, which falls with the time since its last use. */
static double value_of(const spry_kv_states *s, uint32_t state)
{
    const spry_kv_saved *own = &s->saved[state];
    uint32_t end = own->position + own->count, before = 0;
    for (size_t i = 0; i < s->pool.n_pages; i++) {
        const spry_kv_saved *other = &s->saved[i];
        uint32_t at = other->position + other->count;
        if (other->saved && other->text == own->text && at < end && at > before)
            before = at;
    }
    return (double)(end - before) * (own->ends ? ENDS_WEIGHT : 1) / (double)(s->clock - own->used + 1);
}

/* The saved state of least value that nothing else references; `but` apart. False: there is none. */
static bool least_valuable(const spry_kv_states *s, uint32_t *least, uint32_t but)
{
    double value = -1;
    for (uint32_t i = 0; i < s->pool.n_pages; i++) {
        if (!s->saved[i].saved || s->pool.references[i] > 1 || i == but)
            continue;
        double own = value_of(s, i);
        if (value < 0 || own < value) {
            value = own;
            *least = i;
        }
    }
    return value >= 0;
}

/* Takes a state, for which a saved one is dropped if there is no free one; never `but`. */
static bool take(spry_kv_states *s, uint32_t *state, uint32_t but)
{
    uint32_t least;
    if (!s->pool.n_free && least_valuable(s, &least, but))
        forget(s, least);
    return spry_kv_page_take(&s->pool, state);
}

bool spry_kv_state_room(const spry_kv_pool *pool)
{
    uint32_t least;
    return !pool->states || pool->states->pool.n_free || least_valuable(pool->states, &least, UINT32_MAX);
}

bool spry_kv_state_find(const spry_kv_pool *pool, size_t *count, uint32_t page)
{
    const spry_kv_states *s = pool->states;
    bool found = s && s->of_page[page];
    *count = found ? s->saved[s->of_page[page] - 1].count : 0;
    return found;
}

void spry_kv_state_move(spry_kv_pool *pool, uint32_t to, uint32_t from)
{
    spry_kv_states *s = pool->states;
    size_t there, here;
    if (!spry_kv_state_find(pool, &here, from) || (spry_kv_state_find(pool, &there, to) && there >= here))
        return;
    spry_kv_state_drop(pool, to);
    s->of_page[to] = s->of_page[from];
    s->of_page[from] = 0;
    s->saved[s->of_page[to] - 1].page = to;
}

void spry_kv_state_clip(spry_kv_pool *pool, uint32_t page, size_t count)
{
    size_t there;
    if (spry_kv_state_find(pool, &there, page) && there > count)
        pool->states->saved[pool->states->of_page[page] - 1].count = (uint32_t)count;
}

/* ---- the states of tables ---------------------------------------------------------------------------------------- */

bool spry_kv_state_take(spry_kv_pool *pool, spry_kv_table *table)
{
    uint32_t state;
    if (!pool->states || table->state)
        return true;
    if (!take(pool->states, &state, UINT32_MAX))
        return false;
    table->state = state + 1;
    table->state_from = table->n_entries ? table->entries[table->n_entries - 1].start : 0;
    return true;
}

void spry_kv_state_copy(spry_kv_pool *pool, spry_kv_table *to, const spry_kv_table *from)
{
    if (!to->state || !from->state)
        return;
    const spry_kv_mover *mover = &pool->states->pool.mover;
    mover->copy(mover->self, to->state - 1, from->state - 1);
    to->state_from = from->state_from;
}

void spry_kv_state_give(spry_kv_pool *pool, spry_kv_table *table)
{
    if (table->state)
        spry_kv_page_unref(&pool->states->pool, table->state - 1);
    table->state = 0;
    table->state_from = 0;
}

/* The entry at which a table's state of its first `n_tokens` can be saved; NULL: none. *there: so much is saved. */
static const spry_kv_entry *entry_for(const spry_kv_pool *pool, const spry_kv_table *table, size_t n_tokens,
                                      bool *there)
{
    size_t count;
    if (!table->state || !n_tokens || n_tokens < table->state_from)
        return NULL;
    const spry_kv_entry *entry = spry_kv_table_find(table, n_tokens - 1);
    *there = spry_kv_state_find(pool, &count, entry->page) && count >= n_tokens - entry->start;
    return entry->start == table->state_from ? entry : NULL;
}

/* A state that is referenced for it becomes that of an entry's page. */
static void record(spry_kv_pool *pool, const spry_kv_table *table, const spry_kv_entry *entry, uint32_t state,
                   size_t n_tokens, bool ends)
{
    spry_kv_states *s = pool->states;
    spry_kv_state_drop(pool, entry->page);
    s->of_page[entry->page] = state + 1;
    s->saved[state] = (spry_kv_saved){.page = entry->page,
                                      .count = (uint32_t)n_tokens - entry->start,
                                      .position = entry->start,
                                      .text = table->marks[0].cached ? table->marks[0].key.low : 0,
                                      .used = ++s->clock,
                                      .ends = ends,
                                      .saved = true};
}

bool spry_kv_state_save(spry_kv_pool *pool, const spry_kv_table *table, size_t n_tokens, bool ends)
{
    uint32_t state;
    bool there;
    const spry_kv_entry *entry = pool->states ? entry_for(pool, table, n_tokens, &there) : NULL;
    if (!entry || there)
        return false;
    spry_kv_state_drop(pool, entry->page); /* the older state has fewer tokens */
    if (!take(pool->states, &state, UINT32_MAX))
        return false;
    const spry_kv_mover *mover = &pool->states->pool.mover;
    mover->copy(mover->self, state, table->state - 1);
    record(pool, table, entry, state, n_tokens, ends);
    return true;
}

void spry_kv_state_leave(spry_kv_pool *pool, spry_kv_table *table)
{
    bool there;
    const spry_kv_entry *entry = pool->states ? entry_for(pool, table, table->n_tokens, &there) : NULL;
    if (!entry)
        return;
    if (!there) {
        record(pool, table, entry, table->state - 1, table->n_tokens, true);
        spry_kv_page_ref(&pool->states->pool, table->state - 1);
    }
    spry_kv_state_give(pool, table);
}

bool spry_kv_state_return(spry_kv_pool *pool, spry_kv_table *table)
{
    size_t count;
    const spry_kv_entry *last = table->n_entries ? &table->entries[table->n_entries - 1] : NULL;
    if (!last || table->state || !spry_kv_state_find(pool, &count, last->page) || count < last->count)
        return false;
    uint32_t state = pool->states->of_page[last->page] - 1;
    if (pool->states->pool.references[state] > 1)
        return false;
    spry_kv_page_ref(&pool->states->pool, state);
    forget(pool->states, state);
    table->state = state + 1;
    table->state_from = last->start;
    return true;
}

bool spry_kv_state_load(spry_kv_pool *pool, spry_kv_table *table, uint32_t page, size_t position)
{
    spry_kv_states *s = pool->states;
    uint32_t saved = s->of_page[page] - 1, state;
    s->saved[saved].used = ++s->clock;
    if (take(s, &state, saved)) {
        s->pool.mover.copy(s->pool.mover.self, state, saved);
    } else { /* no other state can be dropped */
        if (s->pool.references[saved] > 1)
            return false;
        state = saved;
        spry_kv_page_ref(&s->pool, state);
        forget(s, state);
    }
    table->state = state + 1;
    table->state_from = position;
    return true;
}
