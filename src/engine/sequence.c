/* Runs a sequence: next rows, computed pages, appended and removed tokens, the sliding window. */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sequence_state.h"
#include "platform/clock.h"

enum { SLIDE_PARTS = 8 }; /* a window slides by this part of it, which limits the number of different offsets */

spry_status spry_sequence_init(spry_sequence *s, spry_kv_cache *cache, spry_kv_key root, size_t max_tokens,
                               spry_error *error)
{
    *s = (spry_sequence){.cache = cache, .root = root, .capacity = max_tokens};
    s->tokens = calloc(max_tokens, sizeof *s->tokens);
    if (!s->tokens)
        return spry_fail_memory(error, "a sequence", max_tokens * sizeof *s->tokens);
    return spry_kv_table_init(&s->table, max_tokens, error);
}

static void drop_spans(spry_sequence *s)
{
    while (s->n_spans)
        spry_kv_table_deinit(&s->spans[--s->n_spans], s->cache->pool);
}

void spry_sequence_forget_work(spry_sequence *s)
{
    drop_spans(s);
    s->n_work = s->next_work = 0;
    s->n_rest = 0;
}

void spry_sequence_release(spry_sequence *s)
{
    spry_sequence_stop(s);
    if (!s->n_dropped && !s->unshared && s->table.entries)
        spry_kv_cache_release(s->cache, &s->table, s->root, s->tokens, spry_clock_ns());
    else if (s->table.entries)
        spry_kv_table_truncate(&s->table, s->cache->pool, 0);
    s->n_tokens = s->n_dropped = s->slid_at = 0;
}

void spry_sequence_deinit(spry_sequence *s)
{
    if (!s->cache)
        return;
    spry_sequence_release(s);
    spry_kv_table_deinit(&s->table, s->cache->pool);
    free(s->spans);
    free(s->work);
    free(s->tokens);
    *s = (spry_sequence){0};
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

spry_status spry_sequence_add_work(spry_sequence *s, const spry_work *work, spry_error *error)
{
    spry_work *last = s->n_work > s->next_work ? &s->work[s->n_work - 1] : NULL;
    if (last && last->table == work->table && last->end == work->first) {
        last->end = work->end;
        return SPRY_OK;
    }
    if (s->n_work == s->work_capacity) {
        size_t capacity = s->work_capacity * 2 + 8;
        spry_work *grown = realloc(s->work, capacity * sizeof *grown);
        if (!grown)
            return spry_fail_memory(error, "a sequence's work", capacity * sizeof *grown);
        s->work = grown;
        s->work_capacity = capacity;
    }
    s->work[s->n_work++] = *work;
    return SPRY_OK;
}

spry_status spry_sequence_take_pages(spry_sequence *s, spry_kv_table *table, size_t count, spry_error *error)
{
    s->starved = !spry_kv_cache_make_room_for(s->cache, table, count);
    return spry_kv_table_extend(table, s->cache->pool, count, error); /* fails when there is no room */
}

size_t spry_sequence_pending(const spry_sequence *s)
{
    size_t rows = s->n_rest;
    for (size_t i = s->next_work; i < s->n_work; i++)
        rows += s->work[i].end - s->work[i].first;
    return rows;
}

/* ---- sliding and appending --------------------------------------------------------------------------------------- */

static spry_status slide(spry_sequence *s, spry_error *error)
{
    size_t keep = 0, dropped;
    const spry_kv_table *t = &s->table;
    while (keep < t->n_entries && t->entries[keep].start < s->keep)
        keep++;
    if (keep + 2 > t->n_entries)
        return spry_fail(error, SPRY_ERR_CONTEXT,
                         "the context of %zu tokens is full and keeping %zu of them leaves nothing to slide",
                         t->max_tokens, s->keep);
    size_t drop = (t->n_entries - keep + SLIDE_PARTS - 1) / SLIDE_PARTS;
    spry_status status = spry_kv_table_slide(&s->table, s->cache->pool, keep, drop, &dropped, error);
    if (!status) {
        s->n_dropped += dropped;
        s->slid_at = s->n_tokens;
        s->slid_keep = s->keep;
    }
    return status;
}

static spry_status reserve_tokens(spry_sequence *s, size_t count, spry_error *error)
{
    if (count <= s->capacity - s->n_tokens)
        return SPRY_OK;
    size_t capacity = s->n_tokens + count + s->capacity / 2;
    int32_t *tokens = realloc(s->tokens, capacity * sizeof *tokens);
    if (!tokens)
        return spry_fail_memory(error, "a conversation", capacity * sizeof *tokens);
    s->tokens = tokens;
    s->capacity = capacity;
    return SPRY_OK;
}

spry_status spry_sequence_append(spry_sequence *s, const int32_t *ids, size_t count, spry_error *error)
{
    spry_status status = SPRY_OK;
    s->starved = false;
    if (s->slides && s->table.n_tokens == s->table.max_tokens && s->next_work == s->n_work)
        status = slide(s, error);
    size_t first = s->table.n_tokens;
    if (!status)
        status = reserve_tokens(s, count, error);
    if (!status)
        status = spry_sequence_take_pages(s, &s->table, count, error);
    const spry_work work = {
        .table = &s->table, .root = s->root, .first = first, .end = first + count, .needed_at = first};
    if (!status && (status = spry_sequence_add_work(s, &work, error)))
        spry_kv_table_truncate(&s->table, s->cache->pool, first);
    if (status)
        return status;
    memmove(s->tokens + s->n_tokens, ids, count * sizeof *ids);
    s->n_tokens += count;
    return SPRY_OK;
}

/* For a prompt that is longer than the table: as much as fits. */
static spry_status append_rest(spry_sequence *s, size_t max_rows, spry_error *error)
{
    size_t room = s->table.max_tokens - s->table.n_tokens, part = s->n_rest < max_rows ? s->n_rest : max_rows;
    part = room && part > room ? room : part;
    if (!room) { /* it slides first; the distance determines how much fits */
        spry_status status = slide(s, error);
        if (status)
            return status;
        room = s->table.max_tokens - s->table.n_tokens;
        part = part > room ? room : part;
    }
    spry_status status = spry_sequence_append(s, s->rest, part, error);
    if (!status) {
        s->rest += part;
        s->n_rest -= part;
    }
    return status;
}

void spry_sequence_truncate(spry_sequence *s, size_t n_tokens)
{
    size_t kept = n_tokens - s->n_dropped;
    spry_kv_table_truncate(&s->table, s->cache->pool, kept);
    s->n_tokens = n_tokens;
    while (s->n_work > s->next_work && s->work[s->n_work - 1].table == &s->table) {
        spry_work *last = &s->work[s->n_work - 1];
        if (last->first < kept) {
            last->end = last->end < kept ? last->end : kept;
            break;
        }
        s->n_work--;
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The tokens of a piece of work, so that position p of its table is tokens[p]. */
static const int32_t *tokens_of(const spry_sequence *s, const spry_work *work)
{
    return work->table == &s->table ? s->tokens + s->n_dropped : work->tokens;
}

/* Adds rows [first, first + n) of a piece of work as one segment. */
static void add_segment(const spry_sequence *s, spry_segment *segment, const spry_work *work, size_t first, size_t n,
                        spry_want want)
{
    *segment = (spry_segment){work->table, tokens_of(s, work) + first, (uint32_t)first, (uint32_t)n, want, s->adapters};
}

spry_status spry_sequence_fill(spry_sequence *s, spry_segment *segments, size_t *n, size_t capacity, size_t max_rows,
                               size_t want_from, size_t max_wanted, spry_error *error)
{
    size_t rows = 0;
    *n = 0;
    if (s->next_work == s->n_work && s->n_rest) {
        spry_status status = append_rest(s, max_rows, error);
        if (status)
            return status;
    }
    for (size_t i = s->next_work; i < s->n_work && rows < max_rows && *n < capacity; i++) {
        const spry_work *work = &s->work[i];
        size_t first = work->first, left = work->end - first, end;
        left = left < max_rows - rows ? left : max_rows - rows;
        end = first + left;
        bool own = work->table == &s->table;
        size_t wanted = !own || want_from >= end + s->n_dropped ? end
                        : want_from > first + s->n_dropped      ? want_from - s->n_dropped
                                                                : first; /* the first row whose logits are wanted */
        if (end - wanted > max_wanted)
            end = wanted + max_wanted;
        rows += end - first;
        if (end == wanted + 1) {
            add_segment(s, &segments[(*n)++], work, first, end - first, SPRY_WANT_LAST);
            max_wanted--;
        } else {
            if (wanted > first)
                add_segment(s, &segments[(*n)++], work, first, wanted - first, SPRY_WANT_NOTHING);
            if (end > wanted && *n < capacity) {
                add_segment(s, &segments[(*n)++], work, wanted, end - wanted, SPRY_WANT_ALL);
                max_wanted -= end - wanted;
            } else if (end > wanted) {
                rows -= end - wanted;
            }
        }
        if (end < work->first + left) /* rows are computed in order */
            break;
    }
    return SPRY_OK;
}

void spry_sequence_computed(spry_sequence *s, size_t n_rows, size_t n_drafts)
{
    uint64_t now = spry_clock_ns();
    size_t decided = s->table.n_tokens - n_drafts;
    while (n_rows) {
        spry_work *work = &s->work[s->next_work];
        size_t left = work->end - work->first, part = n_rows < left ? n_rows : left;
        work->first += part;
        n_rows -= part;
        if (!s->unshared && (work->table != &s->table || !s->n_dropped))
            spry_kv_cache_publish(s->cache, work->table, work->root, tokens_of(s, work),
                                  work->table == &s->table && work->first > decided ? decided : work->first, now);
        s->next_work += part == left;
    }
    if (s->next_work == s->n_work) {
        drop_spans(s);
        s->n_work = s->next_work = 0;
    }
}

void spry_sequence_stop(spry_sequence *s)
{
    size_t kept = s->table.n_tokens;
    for (size_t i = s->next_work; i < s->n_work; i++) {
        const spry_work *work = &s->work[i];
        size_t at = work->table == &s->table ? work->first : work->needed_at;
        kept = at < kept ? at : kept;
    }
    spry_sequence_forget_work(s);
    spry_sequence_truncate(s, kept + s->n_dropped);
}
