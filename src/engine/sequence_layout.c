/* Lays out a prompt page by page: cached pages are shared, others allocated and recorded as work. */
#include <stdlib.h>
#include <string.h>

#include "engine/sequence_state.h"
#include "platform/clock.h"

/* A table being laid out: the sequence's own, or a span's. */
typedef struct lane {
    spry_sequence *sequence;
    spry_kv_table *table;
    const int32_t *tokens;
    spry_kv_key root, parent; /* parent: key of everything in the table so far */
    size_t compute_from;      /* cached pages are used up to here */
    size_t needed_at;
    uint64_t now_ns;
    spry_error *error;
} lane;

/* The number of the page's tokens that are cached; they are appended. */
static spry_status reuse(lane *l, size_t *reused, size_t count, bool closes)
{
    size_t position = l->table->n_tokens, usable = l->compute_from > position ? l->compute_from - position : 0;
    const int32_t *tokens = l->tokens + position;
    spry_kv_cache *cache = l->sequence->cache;
    spry_kv_mark mark = {.closed = closes};
    uint32_t page;
    usable = usable < count ? usable : count;
    *reused = 0;
    if (usable == count && (count == SPRY_PAGE_TOKENS || closes) &&
        spry_kv_cache_find(cache, &page, l->parent, tokens, count, l->now_ns)) {
        *reused = count;
        mark.key = spry_kv_key_page(l->parent, tokens, count);
        mark.cached = true;
    } else if (usable && !closes) {
        *reused = spry_kv_cache_longest(cache, &page, l->parent, tokens, usable, l->now_ns);
    }
    return *reused ? spry_kv_table_append(l->table, cache->pool, page, *reused, position, &mark, l->error) : SPRY_OK;
}

/* The next page, of up to SPRY_PAGE_TOKENS tokens. `closes`: the following text begins a new page. */
static spry_status lay_page(lane *l, size_t count, bool closes)
{
    size_t position = l->table->n_tokens, reused;
    spry_status status = reuse(l, &reused, count, closes);
    if (!status && reused < count)
        status = spry_sequence_take_pages(l->sequence, l->table, count - reused, l->error);
    if (!status && reused < count)
        status = spry_sequence_add_work(
            l->sequence, &(spry_work){l->table, l->tokens, l->root, position + reused, position + count, l->needed_at},
            l->error);
    if (closes)
        spry_kv_table_close(l->table);
    l->parent = spry_kv_key_page(l->parent, l->tokens + position, count);
    return status;
}

/* Plain text up to `end`. */
static spry_status lay_text(lane *l, size_t end, bool closes)
{
    spry_status status = SPRY_OK;
    while (!status && l->table->n_tokens < end) {
        size_t left = end - l->table->n_tokens, count = left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS;
        status = lay_page(l, count, closes && count == left);
    }
    return status;
}

/* Appends the last page of a span's table. */
static spry_status link_page(lane *l, const lane *span)
{
    const spry_kv_entry *entry = &span->table->entries[span->table->n_entries - 1];
    l->parent = spry_kv_key_link(l->parent, span->parent);
    const spry_kv_mark mark = {.key = l->parent, .cached = true, .closed = true, .foreign = true};
    return spry_kv_table_append(l->table, l->sequence->cache->pool, entry->page, entry->count, entry->start, &mark,
                                l->error);
}

/* Pages [from, to) of a span, in tokens of it, computed separately. */
static spry_status lay_links(lane *l, const int32_t *tokens, size_t count, size_t from, size_t to)
{
    spry_sequence *s = l->sequence;
    spry_kv_table *table = &s->spans[s->n_spans++];
    size_t n_work = s->n_work;
    spry_status status = spry_kv_table_init(table, count, l->error);
    lane span = *l;
    span.table = table;
    span.tokens = tokens;
    span.root = span.parent = spry_kv_key_span_root(s->root);
    span.compute_from = count;
    span.needed_at = l->table->n_tokens;
    while (!status && table->n_tokens < to) {
        size_t start = table->n_tokens, left = count - start, part = left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS;
        status = lay_page(&span, part, true);
        if (!status && start >= from)
            status = link_page(l, &span);
    }
    if (n_work == s->n_work) /* nothing to compute: the links reference what they need */
        spry_kv_table_deinit(&s->spans[--s->n_spans], s->cache->pool);
    return status;
}

static size_t whole_pages(size_t tokens)
{
    return tokens > SIZE_MAX - SPRY_PAGE_TOKENS ? tokens
                                                : (tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
}

/* A fragment: its first pages in place, the rest linked. The last page of a prompt is always computed in place. */
static spry_status lay_span(lane *l, spry_found *found, const spry_prompt *p, const spry_span *span)
{
    size_t count = span->end - span->begin, repair = whole_pages(p->repair), to = count;
    if (span->end == p->count)
        to = (count - 1) / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
    repair = repair < to ? repair : to;
    spry_status status = lay_text(l, span->begin + repair, true);
    if (!status && repair < to)
        status = lay_links(l, p->ids + span->begin, count, repair, to);
    found->repaired += repair + (count - to);
    found->spans += to - repair;
    return status ? status : lay_text(l, span->end, span->end < p->count);
}

static bool has_fragments(const spry_prompt *p)
{
    return p->n_spans && p->repair != SPRY_REPAIR_ALL;
}

static spry_status lay_prompt(lane *l, spry_found *found, const spry_prompt *p, size_t count)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && has_fragments(p) && i < p->n_spans; i++) {
        status = lay_text(l, p->spans[i].begin, true);
        if (!status)
            status = lay_span(l, found, p, &p->spans[i]);
    }
    return status ? status : lay_text(l, count, false);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static spry_status check_prompt(const spry_sequence *s, const spry_prompt *p, spry_error *error)
{
    size_t end = 0;
    if (p->count > s->table.max_tokens && !s->slides)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the prompt has %zu tokens, the context holds %zu", p->count,
                         s->table.max_tokens);
    if (p->count > s->table.max_tokens && has_fragments(p))
        return spry_fail(error, SPRY_ERR_CONTEXT,
                         "the prompt has %zu tokens, the context holds %zu; with fragments in it nothing can slide",
                         p->count, s->table.max_tokens);
    for (size_t i = 0; i < p->n_spans; end = p->spans[i++].end)
        if (p->spans[i].begin < end || p->spans[i].end <= p->spans[i].begin || p->spans[i].end > p->count)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "fragment %zu, tokens %zu to %zu, is empty, out of order or outside the prompt of %zu",
                             i + 1, p->spans[i].begin, p->spans[i].end, p->count);
    return SPRY_OK;
}

/* Whether a sequence that has slid can continue with this prompt with the same result as from the beginning. */
static bool goes_on(spry_sequence *s, const spry_prompt *p)
{
    size_t same = 0, most = p->compute_from < s->n_tokens ? p->compute_from : s->n_tokens;
    while (same < most && s->tokens[same] == p->ids[same])
        same++;
    if (!s->n_dropped || s->fragments || has_fragments(p) || same < s->slid_at || s->slid_keep != s->keep)
        return false;
    spry_sequence_truncate(s, same);
    s->rest = p->ids + same;
    s->n_rest = p->count - same + p->n_more;
    return true;
}

static spry_status lay_out(spry_sequence *s, spry_found *found, const spry_prompt *p, spry_error *error)
{
    size_t count = p->count < s->table.max_tokens ? p->count : s->table.max_tokens;
    spry_status status = SPRY_OK;
    free(s->spans);
    s->spans = p->n_spans ? calloc(p->n_spans, sizeof *s->spans) : NULL;
    if (p->n_spans && !s->spans)
        status = spry_fail_memory(error, "fragments", p->n_spans * sizeof *s->spans);
    lane own = {.sequence = s,
                .table = &s->table,
                .tokens = p->ids,
                .root = s->root,
                .parent = s->root,
                .compute_from = p->compute_from < count ? p->compute_from : count,
                .now_ns = spry_clock_ns(),
                .error = error};
    if (!status)
        status = lay_prompt(&own, found, p, count);
    if (status)
        return status;
    memmove(s->tokens, p->ids, count * sizeof *p->ids); /* they may overlap */
    s->n_tokens = count;
    s->fragments = has_fragments(p);
    s->rest = p->ids + count;
    s->n_rest = p->count - count + p->n_more;
    return SPRY_OK;
}

spry_status spry_sequence_begin(spry_sequence *s, spry_found *found, const spry_prompt *p, spry_error *error)
{
    const spry_kv_cache_figures before = s->cache->figures;
    uint64_t start = spry_clock_ns();
    *found = (spry_found){0};
    s->starved = false;
    spry_status status = check_prompt(s, p, error);
    if (status)
        return status; /* the sequence is unchanged */
    spry_sequence_stop(s);
    if (!goes_on(s, p)) {
        spry_sequence_release(s); /* its usable pages are found again in the cache; the rest is evicted when needed */
        status = lay_out(s, found, p, error);
    }
    if (status) {
        spry_sequence_forget_work(s);
        spry_kv_table_truncate(&s->table, s->cache->pool, 0);
        s->n_tokens = s->n_dropped = s->slid_at = 0;
        return status;
    }
    size_t pending = spry_sequence_pending(s) - p->n_more;
    found->reused = pending < p->count ? p->count - pending : 0;
    found->restored = (size_t)(s->cache->figures.restored_tokens - before.restored_tokens);
    found->restore_ns = s->cache->figures.restore_ns - before.restore_ns;
    spry_kv_cache_figures *figures = &s->cache->figures;
    figures->lookups++;
    figures->hit_tokens += found->reused;
    figures->miss_tokens += p->count - found->reused;
    figures->span_tokens += found->spans;
    figures->repaired_tokens += found->repaired;
    spry_kv_cache_tidy(s->cache, start);
    found->lookup_ns = spry_clock_ns() - start;
    return SPRY_OK;
}
