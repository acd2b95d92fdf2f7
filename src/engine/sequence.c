/* Sequences: the next rows, computed pages, appended and removed tokens, the sliding window. */
#include "engine/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "kv/kv_states.h"
#include "platform/clock.h"

enum { SLIDE_PARTS = 8 }; /* a window slides by this part of it, which limits the number of different offsets */

spry_status spry_sequence_init(spry_sequence *s, spry_kv_cache *cache, spry_kv_key root, size_t max_tokens,
                               spry_error *error)
{
    *s = (spry_sequence){.cache = cache, .root = root, .capacity = max_tokens, .span_start = -1};
    s->tokens = calloc(max_tokens, sizeof *s->tokens);
    if (!s->tokens)
        return spry_fail_memory(error, "a sequence", max_tokens * sizeof *s->tokens);
    return spry_kv_table_init(&s->table, max_tokens, error);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

void spry_sequence_set_pictures(spry_sequence *s, spry_held_picture *pictures, size_t n)
{
    for (size_t i = 0; i < s->n_pictures; i++)
        spry_picture_unref(s->pictures[i].placed.picture);
    free(s->pictures);
    free(s->contents);
    s->pictures = pictures;
    s->n_pictures = n;
    s->contents = NULL;
}

/* What the keys of a table's pages are computed from, so that position p of the table is [p], until it slides. */
static const int32_t *contents_of(const spry_sequence *s, const spry_work *work)
{
    return work->table != &s->table ? work->tokens : s->contents ? s->contents : s->tokens;
}

int32_t spry_sequence_shift(const spry_sequence *s, size_t position)
{
    int32_t shift = 0;
    for (size_t i = 0; i < s->n_pictures; i++) {
        const spry_held_picture *held = &s->pictures[i];
        const spry_picture *p = held->placed.picture;
        if (held->position >= 0 && (size_t)held->position + p->n_rows <= position)
            shift += (int32_t)(spry_picture_extent(p) - p->n_rows);
    }
    return shift;
}

/* The picture at a position of the table, or NULL. *end: where it ends, or where the next one begins, if not later. */
static const spry_held_picture *picture_at(const spry_sequence *s, size_t position, size_t *end)
{
    for (size_t i = 0; i < s->n_pictures; i++) {
        const spry_held_picture *held = &s->pictures[i];
        size_t first = (size_t)held->position, after = first + held->placed.picture->n_rows;
        if (held->position < 0 || after <= position)
            continue;
        size_t border = first <= position ? after : first;
        *end = border < *end ? border : *end;
        if (first <= position)
            return held;
    }
    return NULL;
}

/* Whether a page that begins here continues a picture. */
static bool inside_picture(const spry_sequence *s, size_t position)
{
    size_t end = SIZE_MAX;
    const spry_held_picture *held = picture_at(s, position, &end);
    return held && (size_t)held->position < position;
}

static void drop_spans(spry_sequence *s)
{
    while (s->n_spans)
        spry_kv_table_deinit(&s->spans[--s->n_spans], s->cache->pool);
}

/* Drops all work. */
static void forget_work(spry_sequence *s)
{
    drop_spans(s);
    s->n_work = s->next_work = 0;
    s->n_rest = 0;
}

void spry_sequence_forget(spry_sequence *s)
{
    forget_work(s);
    spry_kv_table_truncate(&s->table, s->cache->pool, 0);
}

void spry_sequence_release(spry_sequence *s)
{
    spry_sequence_stop(s);
    if (!s->n_dropped && !s->unshared && s->table.entries)
        spry_kv_cache_release(s->cache, &s->table, s->root, s->contents ? s->contents : s->tokens, spry_clock_ns());
    else if (s->table.entries)
        spry_kv_table_truncate(&s->table, s->cache->pool, 0);
    spry_sequence_set_pictures(s, NULL, 0);
    s->n_tokens = s->n_dropped = s->slid_at = 0;
}

void spry_sequence_deinit(spry_sequence *s)
{
    if (!s->cache)
        return;
    spry_sequence_release(s);
    spry_kv_table_deinit(&s->table, s->cache->pool);
    free(s->spans);
    free(s->span_texts);
    free(s->stops);
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

/* ---- recurrent states -------------------------------------------------------------------------------------------- */

static bool is_stop(const spry_sequence *s, size_t position)
{
    bool is = false;
    for (size_t i = 0; i < s->n_stops; i++)
        is = is || s->stops[i] == position;
    return is;
}

/* A state is saved when a prompt is computed, where a fragment ends, and where text passes a multiple of
 * SPRY_KV_STATE_TOKENS. */
static void save_state(spry_sequence *s, size_t from, size_t to, bool ends)
{
    const spry_kv_table *t = &s->table;
    ends = ends || is_stop(s, to);
    if (s->n_dropped || !(ends || to / SPRY_KV_STATE_TOKENS > from / SPRY_KV_STATE_TOKENS) ||
        !spry_kv_state_save(s->cache->pool, t, to, ends) || s->unshared)
        return;
    spry_kv_cache_store_state(s->cache, t, (size_t)(spry_kv_table_find(t, to - 1) - t->entries),
                              s->contents ? s->contents : s->tokens);
}

/* Rows of this number end where a state is saved, if not before. */
static size_t rows_to_state(const spry_sequence *s, size_t first, size_t max_rows)
{
    size_t left = SPRY_KV_STATE_TOKENS - first % SPRY_KV_STATE_TOKENS;
    for (size_t i = 0; i < s->n_stops; i++)
        if (s->stops[i] > first && s->stops[i] - first < left)
            left = s->stops[i] - first;
    return s->cache->pool->states && left < max_rows ? left : max_rows;
}

/* The last entry at which a state is saved, of this number of tokens; NULL: none. */
static const spry_kv_entry *last_saved(const spry_sequence *s, size_t *tokens)
{
    const spry_kv_table *t = &s->table;
    for (size_t i = t->n_entries; i-- > 0;)
        if (spry_kv_state_find(s->cache->pool, tokens, t->entries[i].page)) {
            *tokens = *tokens < t->entries[i].count ? *tokens : t->entries[i].count;
            return &t->entries[i];
        }
    *tokens = 0;
    return NULL;
}

/* Where text was taken back further than the table's state reaches: goes back to the last saved state, or the
 * beginning, and what follows is work again. `count` tokens will be appended. */
static spry_status recover_state(spry_sequence *s, size_t count, spry_error *error)
{
    spry_kv_pool *pool = s->cache->pool;
    size_t n = s->table.n_tokens, same;
    if (!pool->states || s->table.state || !n || spry_kv_state_return(pool, &s->table))
        return SPRY_OK;
    if (s->n_dropped || s->n_pictures)
        return spry_fail(error, SPRY_ERR_CONTEXT, "a text that slid, or has pictures, cannot be taken back this far");
    const spry_kv_entry *entry = last_saved(s, &same);
    size_t from = entry ? entry->start + same : 0, pages = (n - from + count) / SPRY_PAGE_TOKENS + 2;
    if (!spry_kv_cache_make_room(s->cache, pages < pool->n_pages ? pages : pool->n_pages) ||
        !spry_kv_cache_make_state_room(s->cache, &s->table) ||
        (from && !spry_kv_state_load(pool, &s->table, entry->page, entry->start))) {
        s->starved = true;
        return spry_fail(error, SPRY_ERR_CONTEXT, "all pages or recurrent states are in use");
    }
    spry_kv_table_truncate(&s->table, pool, from);
    const spry_work work = {.table = &s->table, .root = s->root, .first = from, .end = n, .needed_at = from};
    spry_status status = spry_sequence_take_pages(s, &s->table, n - from, error);
    return status ? status : spry_sequence_add_work(s, &work, error);
}

/* ---- sliding and appending --------------------------------------------------------------------------------------- */

/* Pictures between two positions of the table slide out, and those after them move. */
static void slide_pictures(spry_sequence *s, size_t from, size_t to)
{
    for (size_t i = 0; i < s->n_pictures; i++) {
        int64_t *position = &s->pictures[i].position;
        if (*position >= (int64_t)from)
            *position = *position < (int64_t)to ? SPRY_SLID_OUT : *position - (int64_t)(to - from);
    }
}

static spry_status slide(spry_sequence *s, spry_error *error)
{
    size_t keep = 0, dropped;
    const spry_kv_table *t = &s->table;
    while (keep < t->n_entries && (t->entries[keep].start < s->keep || inside_picture(s, t->entries[keep].start)))
        keep++;
    size_t drop = (t->n_entries - keep + SLIDE_PARTS - 1) / SLIDE_PARTS;
    while (keep + drop < t->n_entries && inside_picture(s, t->entries[keep + drop].start))
        drop++;
    if (keep + drop + 1 > t->n_entries)
        return spry_fail(error, SPRY_ERR_CONTEXT,
                         "the context of %zu tokens is full and keeping %zu of them leaves nothing to slide",
                         t->max_tokens, s->keep);
    size_t from = t->entries[keep].start, to = t->entries[keep + drop].start;
    int32_t shift = spry_sequence_shift(s, to) - spry_sequence_shift(s, from);
    spry_status status = spry_kv_table_slide(&s->table, s->cache->pool, keep, drop, shift, &dropped, error);
    if (!status)
        slide_pictures(s, from, to);
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
    if (!status)
        status = recover_state(s, count, error);
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
    if (s->contents && !s->n_dropped)
        memcpy(s->contents + first, s->tokens + s->n_tokens, count * sizeof *ids);
    s->n_tokens += count;
    return SPRY_OK;
}

/* The number of rows that come next of the rest of a prompt: text up to a picture, or a picture. */
static size_t next_part(const spry_sequence *s, spry_held_picture **picture, size_t max_rows)
{
    size_t part = s->n_rest < max_rows ? s->n_rest : max_rows;
    *picture = NULL;
    for (size_t i = 0; i < s->n_pictures; i++) {
        spry_held_picture *held = &s->pictures[i];
        if (held->placed.at == s->n_tokens) {
            *picture = held;
            return held->placed.picture->n_rows;
        }
        if (held->placed.at > s->n_tokens)
            return held->placed.at - s->n_tokens < part ? held->placed.at - s->n_tokens : part;
    }
    return part;
}

/* For a prompt that is longer than the table: as much as fits, or a whole picture. */
static spry_status append_rest(spry_sequence *s, size_t max_rows, spry_error *error)
{
    spry_held_picture *picture;
    size_t part = next_part(s, &picture, max_rows), needed = picture ? part : 1, room;
    while ((room = s->table.max_tokens - s->table.n_tokens) < needed) { /* the distance determines how much fits */
        spry_status status = slide(s, error);
        if (status)
            return status;
    }
    part = part > room ? room : part;
    if (picture)
        spry_kv_table_close(&s->table);
    size_t position = s->table.n_tokens;
    spry_status status = spry_sequence_append(s, s->rest, part, error);
    if (!status && picture) {
        picture->position = (int64_t)position;
        spry_kv_table_close(&s->table);
    }
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

/* Segments being filled with the next rows. */
typedef struct filling {
    const spry_sequence *sequence;
    spry_segment *segments;
    size_t n, capacity;
    size_t want_from, max_wanted;
} filling;

/* Adds rows [first, end) of a piece of work as one segment. */
static void add_segment(filling *f, const spry_work *work, size_t first, size_t end, spry_want want)
{
    const spry_sequence *s = f->sequence;
    size_t border = end;
    const spry_held_picture *held = work->table == &s->table ? picture_at(s, first, &border) : NULL;
    f->segments[f->n++] = (spry_segment){.table = work->table,
                                         .tokens = tokens_of(s, work) + first,
                                         .first_position = (uint32_t)first,
                                         .n_rows = (uint32_t)(end - first),
                                         .want = want,
                                         .adapters = s->adapters,
                                         .shift = work->table == &s->table ? spry_sequence_shift(s, first) : 0,
                                         .picture = held ? held->placed.picture : NULL,
                                         .picture_row = held ? (uint32_t)(first - (size_t)held->position) : 0};
}

/* Adds rows [first, end) of a piece of work, tokens or rows of one picture, as far as there is room for segments and
 * logits. Returns the first row that was not added. */
static size_t add_rows(filling *f, const spry_work *work, size_t first, size_t end)
{
    const spry_sequence *s = f->sequence;
    bool own = work->table == &s->table;
    size_t wanted = !own || f->want_from >= end + s->n_dropped ? end
                    : f->want_from > first + s->n_dropped      ? f->want_from - s->n_dropped
                                                               : first; /* the first row whose logits are wanted */
    if (end - wanted > f->max_wanted)
        end = wanted + f->max_wanted;
    if (end == wanted + 1) {
        add_segment(f, work, first, end, SPRY_WANT_LAST);
        f->max_wanted--;
        return end;
    }
    if (wanted > first)
        add_segment(f, work, first, wanted, SPRY_WANT_NOTHING);
    if (end > wanted && f->n == f->capacity)
        return wanted;
    if (end > wanted) {
        add_segment(f, work, wanted, end, SPRY_WANT_ALL);
        f->max_wanted -= end - wanted;
    }
    return end;
}

size_t spry_sequence_least_rows(const spry_sequence *s)
{
    spry_held_picture *picture = NULL;
    size_t end = SIZE_MAX;
    const spry_work *work = s->next_work < s->n_work ? &s->work[s->next_work] : NULL;
    const spry_held_picture *held = work && work->table == &s->table ? picture_at(s, work->first, &end) : NULL;
    if (!work && s->n_rest)
        next_part(s, &picture, 1);
    held = held ? held : picture;
    return held && held->placed.picture->two_way ? held->placed.picture->n_rows : 1;
}

spry_status spry_sequence_fill(spry_sequence *s, spry_segment *segments, size_t *n, size_t capacity, size_t max_rows,
                               size_t want_from, size_t max_wanted, spry_error *error)
{
    filling f = {s, segments, 0, capacity, want_from, max_wanted};
    *n = 0;
    if (s->next_work == s->n_work && s->n_rest) {
        spry_status status = append_rest(s, max_rows, error);
        if (status)
            return status;
    }
    bool stopped = false; /* rows are computed in order */
    for (size_t i = s->next_work; !stopped && i < s->n_work; i++) {
        const spry_work *work = &s->work[i];
        for (size_t at = work->first, end, added; !stopped && at < work->end; at = added) {
            end = work->end;
            const spry_held_picture *held = work->table == &s->table ? picture_at(s, at, &end) : NULL;
            bool whole = held && held->placed.picture->two_way;
            if (f.n == capacity || !max_rows || (whole && end - at > max_rows))
                return *n = f.n, SPRY_OK;
            size_t most = work->table == &s->table && !whole ? rows_to_state(s, at, max_rows) : max_rows;
            stopped = most < max_rows && end - at > most;
            end = end - at > most ? at + most : end;
            added = add_rows(&f, work, at, end);
            max_rows -= added - at;
            stopped = stopped || added < end;
        }
    }
    *n = f.n;
    return SPRY_OK;
}

void spry_sequence_computed(spry_sequence *s, size_t n_rows, size_t n_drafts)
{
    uint64_t now = spry_clock_ns();
    size_t decided = s->table.n_tokens - n_drafts;
    while (n_rows) {
        spry_work *work = &s->work[s->next_work];
        size_t left = work->end - work->first, part = n_rows < left ? n_rows : left, from = work->first;
        work->first += part;
        n_rows -= part;
        if (!s->unshared && (work->table != &s->table || !s->n_dropped))
            spry_kv_cache_publish(s->cache, work->table, work->root, contents_of(s, work),
                                  work->table == &s->table && work->first > decided ? decided : work->first, now);
        s->next_work += part == left;
        if (work->table == &s->table && s->cache->pool->states) {
            bool ends = s->prompting && s->next_work == s->n_work && !s->n_rest;
            save_state(s, from, work->first > decided ? decided : work->first, ends);
            s->prompting = s->prompting && !ends;
        }
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
    forget_work(s);
    spry_sequence_truncate(s, kept + s->n_dropped);
    if (!s->n_dropped && !s->n_pictures) /* it rests: the state can be dropped for others, and be recovered */
        spry_kv_state_leave(s->cache->pool, &s->table);
}
