/* How the table of a prompt is laid out page by page from cached, allocated and recomputed pages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/sequence.h"
#include "kv/kv_key.h"
#include "kv/kv_states.h"
#include "platform/clock.h"

/* ---- pages recomputed in place ----------------------------------------------------------------------------------- */

/* Measured (docs/SPANS.md): predictions depend most on the end of the fragments, directly before the text that follows
 * them, and on the first page of the fragment that is only partly recomputed, whose first tokens draw attention that in
 * the whole prompt goes elsewhere. So what may be recomputed for all fragments together is spent from the end. */

/* Which pages of a fragment are recomputed in place. The choice depends on the places of the prompt's spans and on the
 * repair alone, never on what is cached; and for the spans of one place not on spans that follow later text, so that a
 * conversation that goes on finds what it has computed. */
typedef struct span_choice {
    size_t head; /* pages before this page, */
    size_t tail; /* this page and all later pages, */
    size_t step; /* every page with this distance is recomputed, too; 0: only head and tail */
} span_choice;

static bool is_chosen(const span_choice *choice, size_t page)
{
    return page < choice->head || page >= choice->tail || (choice->step && page % choice->step == 0);
}

enum { MODES = SPRY_REPAIR_FIRST | SPRY_REPAIR_SPREAD | SPRY_REPAIR_BOUND };

static size_t page_count(const spry_span *span)
{
    return (span->end - span->begin + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
}

/* Whether two neighbouring spans have less than a page of other text between them. */
static bool together(const spry_span *span, const spry_span *next)
{
    return next->begin - span->end < SPRY_PAGE_TOKENS;
}

/* Pages of a span, the last ones, for at most `*left` tokens, of which they are taken: a page counts if a
 * quarter of it fits. */
static size_t take_last_pages(size_t *left, const spry_span *span)
{
    const size_t n = page_count(span);
    size_t taken = 0;
    for (; taken < n && *left; taken++) {
        size_t tokens = taken ? SPRY_PAGE_TOKENS : span->end - span->begin - (n - 1) * SPRY_PAGE_TOKENS;
        if (taken && *left < tokens / 4)
            *left = 0;
        if (!*left)
            break;
        *left -= tokens < *left ? tokens : *left;
    }
    return taken;
}

/* Tokens of neighbouring spans that are recomputed: an average asked for, or what the bound of the divergence takes; a
 * page of which less than a quarter fits is left out, so a quarter more. */
static size_t tokens_to_spend(const spry_prompt *p, const spry_span *first, const spry_span *last, bool start_token)
{
    const size_t asked = p->repair & ~(size_t)MODES, n_spans = (size_t)(last - first + 1);
    size_t all = 0;
    if (!(p->repair & SPRY_REPAIR_BOUND))
        return (asked < p->count ? asked : p->count) * n_spans;
    for (const spry_span *span = first; span <= last; span++)
        all += span->end - span->begin;
    double share = spry_span_share((double)asked / 1000, start_token);
    return share > 0 ? (size_t)ceil(share * (double)all) + SPRY_PAGE_TOKENS / 4 : 0;
}

static span_choice choose_tail(const spry_prompt *p, const spry_span *span, bool start_token)
{
    const spry_span *first = span, *last = span, *end = p->spans + p->n_spans - 1;
    size_t taken = 0, n = page_count(span), left;
    while (first > p->spans && together(first - 1, first))
        first--;
    while (last < end && together(last, last + 1))
        last++;
    left = tokens_to_spend(p, first, last, start_token);
    for (; last >= span; last--)
        taken = take_last_pages(&left, last);
    if (taken == n)
        return (span_choice){.tail = 0};
    return (span_choice){.head = taken ? 1 : 0, .tail = taken ? n - taken + 1 : n};
}

static span_choice span_choose(const spry_prompt *p, const spry_span *span, bool start_token)
{
    size_t asked = p->repair & ~(size_t)MODES, tokens = asked < p->count ? asked : p->count, n = page_count(span);
    size_t pages = (tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    if (p->repair & SPRY_REPAIR_FIRST)
        return (span_choice){.head = pages, .tail = n};
    if (p->repair & SPRY_REPAIR_SPREAD)
        return (span_choice){.tail = n, .step = pages ? (n + pages - 1) / pages : 0};
    return choose_tail(p, span, start_token);
}

/* Share of the spans that is recomputed, divergence where nearly all of the prompt is spans: docs/SPANS.md. Without a
 * start token (the bundled model), and with one (TinyLlama-1.1B). */
enum { MEASURED = 7 };
static const double measured[2][MEASURED][2] = {
    {{0, 0.050}, {0.11, 0.026}, {0.13, 0.0135}, {0.15, 0.0066}, {0.2, 0.0014}, {0.6, 0.0007}, {1, 0}},
    {{0, 0.225}, {0.17, 0.166}, {0.3, 0.124}, {0.46, 0.063}, {0.61, 0.032}, {0.76, 0.0065}, {1, 0}},
};

static double between(double at, const double *a, const double *b, size_t from, size_t to)
{
    return a[to] + (b[to] - a[to]) * (at - a[from]) / (b[from] - a[from]);
}

double spry_span_divergence(size_t spans, size_t repaired, size_t prompt, bool start_token)
{
    const double(*m)[2] = measured[start_token];
    double share = spans ? (double)repaired / (double)(spans + repaired) : 1;
    size_t i = 1;
    while (i + 1 < MEASURED && m[i][0] < share)
        i++;
    return prompt ? between(share, m[i - 1], m[i], 0, 1) * (double)(spans + repaired) / (double)prompt : 0;
}

double spry_span_share(double bound, bool start_token)
{
    const double(*m)[2] = measured[start_token];
    size_t i = 1;
    if (bound >= m[0][1])
        return 0;
    while (i + 1 < MEASURED && m[i][1] > bound)
        i++;
    return between(bound, m[i - 1], m[i], 1, 0);
}

/* ---- search in cached pages -------------------------------------------------------------------------------------- */

/* A window of one page moves over the text, its hash with it; where a cached page has the same tokens, the pages that
 * follow it in its chain are compared with the text that follows. */

/* Runs of whole pages in a prompt, each page referenced. */
typedef struct span_runs {
    spry_span *spans; /* ascending */
    uint32_t *pages;  /* pages of all runs, in order */
    size_t n_spans, n_pages;
} span_runs;

static spry_status runs_init(span_runs *runs, size_t n_pages, spry_error *error)
{
    *runs = (span_runs){0};
    runs->spans = calloc(n_pages + 1, sizeof *runs->spans);
    runs->pages = calloc(n_pages + 1, sizeof *runs->pages);
    if (runs->spans && runs->pages)
        return SPRY_OK;
    free(runs->spans);
    free(runs->pages);
    return spry_fail_memory(error, "fragments", n_pages * sizeof *runs->spans);
}

static void span_runs_deinit(span_runs *runs, spry_kv_cache *cache)
{
    for (size_t i = 0; i < runs->n_pages; i++)
        spry_kv_page_unref(cache->pool, runs->pages[i]);
    free(runs->spans);
    free(runs->pages);
}

/* Pages of the longest run at the beginning of this text; runs that are too short are released. */
static size_t take_run(span_runs *runs, const spry_sequence *s, uint64_t content, const int32_t *tokens, size_t count)
{
    const spry_kv_key roots[] = {s->root, spry_kv_key_span_root(s->root)}; /* text, declared fragments */
    uint32_t *pages = runs->pages + runs->n_pages;
    for (size_t i = 0; i < SPRY_COUNT(roots); i++) {
        size_t n = spry_kv_cache_run(s->cache, pages, roots[i], content, tokens, count, spry_clock_ns());
        if (n >= s->span_pages)
            return n;
        while (n)
            spry_kv_page_unref(s->cache->pool, pages[--n]);
    }
    return 0;
}

/* Finds runs of at least the sequence's span_pages in ids [from, to). */
static spry_status span_search(span_runs *runs, const spry_sequence *s, const int32_t *ids, size_t from, size_t to,
                               spry_error *error)
{
    const size_t least = (size_t)s->span_pages * SPRY_PAGE_TOKENS;
    spry_status status = runs_init(runs, to / SPRY_PAGE_TOKENS, error);
    bool rolled = false;
    uint64_t content = 0;
    for (size_t at = from; !status && at + least <= to;) {
        content = rolled ? spry_kv_content_roll(content, ids + at - 1) : spry_kv_content(ids + at);
        size_t n = take_run(runs, s, content, ids + at, to - at);
        rolled = !n;
        if (n) {
            runs->spans[runs->n_spans++] = (spry_span){at, at + n * SPRY_PAGE_TOKENS};
            runs->n_pages += n;
        }
        at += n ? n * SPRY_PAGE_TOKENS : 1;
    }
    return status;
}

/* ---- layout of a prompt ------------------------------------------------------------------------------------------ */

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

/* Restores pages of the table's next tokens up to `end` from disk, so that they are found. */
static void restore(const lane *l, size_t end)
{
    size_t at = l->table->n_tokens;
    end = end < l->compute_from ? end : l->compute_from;
    if (end > at)
        spry_kv_cache_restore(l->sequence->cache, l->parent, l->tokens + at, end - at, l->now_ns);
}

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

/* A picture, from pages of its own. Cached pages are used if all of them are there. */
static spry_status lay_picture(lane *l, const spry_picture *picture)
{
    size_t begin = l->table->n_tokens, end = begin + picture->n_rows;
    lane own = *l;
    bool cached = end <= l->compute_from;
    restore(l, end);
    for (size_t at = begin, count; cached && at < end; at += count) {
        uint32_t page;
        count = end - at < SPRY_PAGE_TOKENS ? end - at : SPRY_PAGE_TOKENS;
        cached = spry_kv_cache_find(l->sequence->cache, &page, own.parent, l->tokens + at, count, l->now_ns);
        own.parent = spry_kv_key_page(own.parent, l->tokens + at, count);
    }
    own.parent = l->parent;
    own.compute_from = cached ? l->compute_from : begin;
    spry_status status = SPRY_OK;
    while (!status && l->table->n_tokens < end) {
        size_t left = end - l->table->n_tokens;
        status = lay_page(&own, left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS, left <= SPRY_PAGE_TOKENS);
    }
    l->parent = own.parent;
    return status;
}

/* Plain text up to `end`. */
static spry_status lay_text(lane *l, size_t end, bool closes)
{
    spry_status status = SPRY_OK;
    restore(l, end);
    while (!status && l->table->n_tokens < end) {
        size_t left = end - l->table->n_tokens, count = left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS;
        status = lay_page(l, count, closes && count == left);
    }
    return status;
}

/* Appends a page that was computed after other text, at `position`; `key`: its own. */
static spry_status link_page(lane *l, uint32_t page, size_t count, size_t position, spry_kv_key key)
{
    l->parent = spry_kv_key_link(l->parent, key);
    const spry_kv_mark mark = {.key = l->parent, .cached = true, .closed = true, .foreign = true};
    return spry_kv_table_append(l->table, l->sequence->cache->pool, page, count, position, &mark, l->error);
}

/* The tokens of a span's table: the start token, if texts have one, then the span. */
static const int32_t *add_span_text(spry_sequence *s, const int32_t *tokens, size_t count)
{
    int32_t *text = s->span_texts + s->n_span_texts;
    const size_t start = s->span_start >= 0;
    text[0] = s->span_start;
    memcpy(text + start, tokens, count * sizeof *text);
    s->n_span_texts += start + count;
    return text;
}

/* The first `to` tokens of a span of `count`: chosen pages are computed in place, the others alone and linked. The
 * start token before them has a page of its own, which is not linked: models give the first token of a text much
 * attention, and in the whole prompt that token is another one. */
static spry_status lay_pages(lane *l, const span_choice *choice, const int32_t *tokens, size_t count, size_t to)
{
    spry_sequence *s = l->sequence;
    const size_t start = s->span_start >= 0;
    size_t n_work = s->n_work, alone = (to + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS, page = 0;
    while (alone && is_chosen(choice, alone - 1))
        alone--;
    spry_kv_table *table = &s->spans[s->n_spans++];
    spry_status status = spry_kv_table_init(table, start + count, l->error);
    lane span = *l;
    span.table = table;
    span.tokens = add_span_text(s, tokens, count);
    span.root = span.parent = spry_kv_key_span_root(s->root);
    span.compute_from = start + count;
    span.needed_at = l->table->n_tokens;
    if (!status && start && alone)
        status = lay_page(&span, start, true);
    if (!status)
        restore(&span, start + (alone * SPRY_PAGE_TOKENS < count ? alone * SPRY_PAGE_TOKENS : count));
    for (size_t at = 0; !status && at < to; at += SPRY_PAGE_TOKENS, page++) {
        size_t left = count - at, part = left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS;
        span.needed_at = l->table->n_tokens;
        if (page < alone)
            status = lay_page(&span, part, true);
        if (!status && is_chosen(choice, page))
            status = lay_text(l, l->table->n_tokens + part, true);
        else if (!status)
            status = link_page(l, table->entries[start + page].page, part, start + at, span.parent);
    }
    if (n_work == s->n_work) /* nothing to compute: the links reference what they need */
        spry_kv_table_deinit(&s->spans[--s->n_spans], s->cache->pool);
    return status;
}

/* Tokens of a span's first `to` that are computed in place. */
static size_t count_chosen(const span_choice *choice, size_t to)
{
    size_t chosen = 0;
    for (size_t at = 0; at < to; at += SPRY_PAGE_TOKENS)
        if (is_chosen(choice, at / SPRY_PAGE_TOKENS))
            chosen += to - at < SPRY_PAGE_TOKENS ? to - at : SPRY_PAGE_TOKENS;
    return chosen;
}

/* A fragment. The last page of a prompt is always computed in place. */
static spry_status lay_span(lane *l, spry_found *found, const spry_prompt *p, const spry_span *span)
{
    const span_choice choice = span_choose(p, span, l->sequence->span_start >= 0);
    size_t count = span->end - span->begin, to = count;
    if (span->end == p->count)
        to = (count - 1) / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS;
    size_t repaired = count_chosen(&choice, to);
    spry_status status = lay_pages(l, &choice, p->ids + span->begin, count, to);
    found->repaired += repaired + (count - to);
    found->spans += to - repaired;
    return status ? status : lay_text(l, span->end, span->end < p->count);
}

static bool has_fragments(const spry_sequence *s, const spry_prompt *p)
{
    return p->n_spans && p->repair != SPRY_REPAIR_ALL && !s->fixed && !p->n_pictures;
}

/* A run of cached pages that was found by its tokens. */
static spry_status lay_run(lane *l, spry_found *found, const spry_prompt *p, const spry_span *run,
                           const uint32_t *pages)
{
    const span_choice choice = span_choose(p, run, l->sequence->span_start >= 0);
    const size_t n_pages = (run->end - run->begin) / SPRY_PAGE_TOKENS;
    spry_status status = lay_text(l, run->begin, true);
    for (size_t i = 0; !status && i < n_pages; i++) {
        size_t position;
        spry_kv_key key = spry_kv_cache_origin(l->sequence->cache, &position, pages[i]);
        bool chosen = is_chosen(&choice, i);
        status = chosen ? lay_text(l, l->table->n_tokens + SPRY_PAGE_TOKENS, true)
                        : link_page(l, pages[i], SPRY_PAGE_TOKENS, position, key);
        *(chosen ? &found->repaired : &found->spans) += SPRY_PAGE_TOKENS;
    }
    return status;
}

/* Text of which parts are cached after other text: what is cached as a prefix, then the longest runs of pages. */
static spry_status lay_known(lane *l, spry_found *found, const spry_prompt *p, size_t count)
{
    spry_kv_cache *cache = l->sequence->cache;
    span_runs runs;
    uint32_t page;
    spry_status status = SPRY_OK;
    restore(l, l->compute_from);
    while (!status && l->table->n_tokens + SPRY_PAGE_TOKENS <= l->compute_from &&
           spry_kv_cache_find(cache, &page, l->parent, l->tokens + l->table->n_tokens, SPRY_PAGE_TOKENS, l->now_ns))
        status = lay_page(l, SPRY_PAGE_TOKENS, false);
    if (status || (status = span_search(&runs, l->sequence, p->ids, l->table->n_tokens, l->compute_from, l->error)))
        return status;
    spry_prompt with = *p;
    with.spans = runs.spans;
    with.n_spans = runs.n_spans;
    for (size_t i = 0, at = 0; !status && i < runs.n_spans; i++) {
        status = lay_run(l, found, &with, &runs.spans[i], runs.pages + at);
        at += (runs.spans[i].end - runs.spans[i].begin) / SPRY_PAGE_TOKENS;
    }
    span_runs_deinit(&runs, cache);
    return status ? status : lay_text(l, count, false);
}

/* Whether fragments are looked for where none are declared. */
static bool searches(const spry_sequence *s, const spry_prompt *p)
{
    return s->span_pages && !s->fixed && !p->n_spans && !p->n_pictures && p->repair != SPRY_REPAIR_ALL &&
           p->count <= s->table.max_tokens;
}

static spry_status lay_prompt(lane *l, spry_found *found, const spry_prompt *p, size_t count)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && has_fragments(l->sequence, p) && i < p->n_spans; i++) {
        status = lay_text(l, p->spans[i].begin, true);
        if (!status)
            status = lay_span(l, found, p, &p->spans[i]);
    }
    for (size_t i = 0; !status && i < l->sequence->n_pictures; i++) {
        spry_held_picture *held = &l->sequence->pictures[i];
        if (spry_placed_end(&held->placed) > count)
            break;
        status = lay_text(l, held->placed.at, true);
        held->position = (int64_t)held->placed.at;
        if (!status)
            status = lay_picture(l, held->placed.picture);
    }
    return status ? status : lay_text(l, count, false);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

static spry_status check_pictures(const spry_prompt *p, spry_error *error)
{
    size_t end = 0;
    for (size_t i = 0; i < p->n_pictures; end = spry_placed_end(&p->pictures[i++]))
        if (p->pictures[i].at < end || p->pictures[i].at > p->count ||
            p->pictures[i].picture->n_rows > p->count - p->pictures[i].at || !p->pictures[i].picture->n_rows)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "picture %zu, %u rows from token %zu on, is empty, out of order or outside the prompt of "
                             "%zu",
                             i + 1, p->pictures[i].picture->n_rows, p->pictures[i].at, p->count);
    return SPRY_OK;
}

static spry_status check_prompt(const spry_sequence *s, const spry_prompt *p, spry_error *error)
{
    size_t end = 0;
    if (p->count > s->table.max_tokens && !s->slides)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the prompt has %zu tokens, the context holds %zu", p->count,
                         s->table.max_tokens);
    if (p->count > s->table.max_tokens && has_fragments(s, p))
        return spry_fail(error, SPRY_ERR_CONTEXT,
                         "the prompt has %zu tokens, the context holds %zu; with fragments in it nothing can slide",
                         p->count, s->table.max_tokens);
    for (size_t i = 0; i < p->n_spans; end = p->spans[i++].end)
        if (p->spans[i].begin < end || p->spans[i].end <= p->spans[i].begin || p->spans[i].end > p->count)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "fragment %zu, tokens %zu to %zu, is empty, out of order or outside the prompt of %zu",
                             i + 1, p->spans[i].begin, p->spans[i].end, p->count);
    return check_pictures(p, error);
}

/* Tokens at the beginning that are the same with the same pictures, of which none is cut. */
static size_t same_tokens(const spry_sequence *s, const spry_prompt *p)
{
    size_t same = 0, most = p->compute_from < s->n_tokens ? p->compute_from : s->n_tokens;
    while (same < most && s->tokens[same] == p->ids[same])
        same++;
    for (size_t i = 0; i < s->n_pictures || i < p->n_pictures; i++) {
        const spry_placed *a = i < s->n_pictures ? &s->pictures[i].placed : NULL;
        const spry_placed *b = i < p->n_pictures ? &p->pictures[i] : NULL;
        size_t at = !a ? b->at : !b || a->at < b->at ? a->at : b->at;
        bool equal = a && b && a->at == b->at && spry_kv_key_equal(a->picture->hash, b->picture->hash);
        if (at < same && (!equal || spry_placed_end(a) > same))
            return at;
    }
    return same;
}

/* Whether a sequence that has slid can continue with this prompt with the same result as from the beginning. `pictures`
 * are the prompt's. */
static bool goes_on(spry_sequence *s, const spry_prompt *p, spry_held_picture *pictures)
{
    size_t same = same_tokens(s, p);
    if (!s->n_dropped || s->fragments || has_fragments(s, p) || same < s->slid_at || s->slid_keep != s->keep)
        return false;
    if (s->cache->pool->states && (!s->table.state || same - s->n_dropped < s->table.state_from))
        return false;
    for (size_t i = 0; i < s->n_pictures && spry_placed_end(&s->pictures[i].placed) <= same; i++)
        pictures[i].position = s->pictures[i].position;
    spry_sequence_set_pictures(s, pictures, p->n_pictures);
    spry_sequence_truncate(s, same);
    s->rest = p->ids + same;
    s->n_rest = p->count - same + p->n_more;
    return true;
}

/* Tokens that are laid out at once: as many as fit, and no part of a picture. */
static size_t count_laid_out(const spry_sequence *s, const spry_prompt *p)
{
    size_t count = p->count < s->table.max_tokens ? p->count : s->table.max_tokens;
    for (size_t i = 0; i < p->n_pictures; i++)
        if (p->pictures[i].at < count && spry_placed_end(&p->pictures[i]) > count)
            count = p->pictures[i].at;
    return count;
}

/* Whether a picture is both before and after this token of a prompt. */
static bool cuts_picture(const spry_prompt *p, size_t at)
{
    for (size_t i = 0; i < p->n_pictures; i++)
        if (p->pictures[i].at < at && at < spry_placed_end(&p->pictures[i]))
            return true;
    return false;
}

/* Tokens of the next page of a prompt of `count` tokens: pictures begin and end pages. *closes: its last one does. */
static size_t next_page(const spry_prompt *p, size_t at, size_t count, bool *closes)
{
    size_t n = count - at < SPRY_PAGE_TOKENS ? count - at : SPRY_PAGE_TOKENS;
    *closes = false;
    for (size_t i = 0; i < p->n_pictures; i++) {
        const size_t borders[] = {p->pictures[i].at, spry_placed_end(&p->pictures[i])};
        for (size_t k = 0; k < SPRY_COUNT(borders); k++)
            if (borders[k] > at && borders[k] - at <= n) {
                n = borders[k] - at;
                *closes = true;
            }
    }
    return n;
}

/* Gives the table the saved state after which least of the first `count` tokens is left to compute, where cached pages
 * have all before it. *from: the tokens before it; 0: there is none. */
static spry_status resume(spry_sequence *s, size_t *from, const lane *l, const spry_prompt *p, size_t count)
{
    spry_kv_key parent = l->parent;
    spry_kv_key on_disk = parent; /* the parent of the page after which the state is on disk */
    uint32_t best = 0, page;
    size_t position = 0, same;
    bool disk = false;
    *from = 0;
    for (size_t at = 0, n; at < count; at += n) {
        bool closes;
        n = next_page(p, at, count, &closes);
        if (spry_kv_cache_resume(s->cache, &page, &same, parent, l->tokens + at, n) && at + same > *from &&
            !cuts_picture(p, at + same)) {
            *from = at + same;
            position = at;
            best = page;
            disk = false;
        }
        if ((n < SPRY_PAGE_TOKENS && !closes) || !spry_kv_cache_has(s->cache, parent, l->tokens + at, n))
            break;
        if (n == SPRY_PAGE_TOKENS && at + n > *from && spry_kv_cache_has_state(s->cache, parent, l->tokens + at) &&
            !cuts_picture(p, at + n)) {
            *from = at + n;
            on_disk = parent;
            disk = true;
        }
        parent = spry_kv_key_page(parent, l->tokens + at, n);
    }
    if (!*from)
        return SPRY_OK;
    bool room = spry_kv_cache_make_state_room(s->cache, &s->table);
    if (room && disk) {
        const int32_t *tokens = l->tokens + *from - SPRY_PAGE_TOKENS;
        *from = spry_kv_cache_restore_state(s->cache, &s->table, *from, on_disk, tokens) ? *from : 0;
        return SPRY_OK;
    }
    if (room && spry_kv_state_load(s->cache->pool, &s->table, best, position))
        return SPRY_OK;
    s->starved = true;
    return spry_fail(l->error, SPRY_ERR_CONTEXT, "all recurrent states are in use");
}

/* A prompt of a model with recurrent states: pages are reused as far as a saved state goes. */
static spry_status lay_resumed(lane *l, spry_found *found, const spry_prompt *p, size_t count)
{
    spry_sequence *s = l->sequence;
    const lane fresh = *l;
    for (size_t from, most = l->compute_from, got;; most = got) {
        *l = fresh;
        spry_status status = resume(s, &from, l, p, most);
        l->compute_from = from;
        if (!status)
            status = lay_prompt(l, found, p, count);
        got = s->n_work ? s->work[0].first : s->table.n_tokens;
        if (status || got == from)
            return status;
        spry_sequence_forget(s); /* not all pages could be restored: an earlier state */
        *found = (spry_found){0};
    }
}

/* The pictures of a prompt, none of which is in the table yet. */
static spry_status hold_pictures(spry_held_picture **out, const spry_prompt *p, spry_error *error)
{
    *out = p->n_pictures ? calloc(p->n_pictures, sizeof **out) : NULL;
    if (p->n_pictures && !*out)
        return spry_fail_memory(error, "the pictures of a prompt", p->n_pictures * sizeof **out);
    for (size_t i = 0; i < p->n_pictures; i++)
        (*out)[i] = (spry_held_picture){{p->pictures[i].at, spry_picture_ref(p->pictures[i].picture)}, SPRY_SLID_OUT};
    return SPRY_OK;
}

static spry_status make_contents(spry_sequence *s, const int32_t *ids, size_t count, spry_error *error)
{
    s->contents = malloc(s->table.max_tokens * sizeof *s->contents);
    if (!s->contents)
        return spry_fail_memory(error, "the contents of a sequence", s->table.max_tokens * sizeof *s->contents);
    memcpy(s->contents, ids, count * sizeof *ids);
    for (size_t i = 0; i < s->n_pictures; i++) {
        const spry_placed *placed = &s->pictures[i].placed;
        for (uint32_t row = 0; spry_placed_end(placed) <= count && row < placed->picture->n_rows; row++)
            s->contents[placed->at + row] = spry_picture_content(placed->picture, row);
    }
    return SPRY_OK;
}

enum { STOP_TOKENS = 256 }; /* at least, from one end of a fragment to the next one where a state is saved */

/* Where fragments end that the prompt declares: other prompts may have the same text up to there. */
static spry_status note_stops(spry_sequence *s, const spry_prompt *p, spry_error *error)
{
    free(s->stops);
    s->stops = NULL;
    s->n_stops = 0;
    if (!s->cache->pool->states || !p->n_spans)
        return SPRY_OK;
    s->stops = calloc(p->n_spans, sizeof *s->stops);
    if (!s->stops)
        return spry_fail_memory(error, "ends of fragments", p->n_spans * sizeof *s->stops);
    for (size_t i = 0, last = 0; i < p->n_spans; i++)
        if (p->spans[i].end >= last + STOP_TOKENS)
            s->stops[s->n_stops++] = last = p->spans[i].end;
    return SPRY_OK;
}

/* Room for the tables of a prompt's spans and for their texts. */
static spry_status make_spans(spry_sequence *s, const spry_prompt *p, spry_error *error)
{
    size_t n_tokens = p->n_spans; /* start tokens */
    for (size_t i = 0; i < p->n_spans; i++)
        n_tokens += p->spans[i].end - p->spans[i].begin;
    free(s->spans);
    free(s->span_texts);
    s->spans = p->n_spans ? calloc(p->n_spans, sizeof *s->spans) : NULL;
    s->span_texts = p->n_spans ? calloc(n_tokens, sizeof *s->span_texts) : NULL;
    s->n_span_texts = 0;
    if (p->n_spans && (!s->spans || !s->span_texts))
        return spry_fail_memory(error, "fragments", p->n_spans * sizeof *s->spans + n_tokens * sizeof *s->span_texts);
    return SPRY_OK;
}

static spry_status lay_out(spry_sequence *s, spry_found *found, const spry_prompt *p, spry_error *error)
{
    size_t count = count_laid_out(s, p);
    spry_status status = s->n_pictures ? make_contents(s, p->ids, count, error) : SPRY_OK;
    if (!status)
        status = make_spans(s, p, error);
    if (!status)
        status = note_stops(s, p, error);
    lane own = {.sequence = s,
                .table = &s->table,
                .tokens = s->contents ? s->contents : p->ids,
                .root = s->root,
                .parent = s->root,
                .compute_from = p->compute_from < count ? p->compute_from : count,
                .now_ns = spry_clock_ns(),
                .error = error};
    const lane fresh = own;
    bool searched = searches(s, p);
    if (!status && searched && lay_known(&own, found, p, count)) { /* pages or offsets ran out: as plain text */
        spry_sequence_forget(s);
        own = fresh;
        *found = (spry_found){0};
        searched = false;
    }
    if (!status && !searched)
        status = s->cache->pool->states ? lay_resumed(&own, found, p, count) : lay_prompt(&own, found, p, count);
    if (status)
        return status;
    s->prompting = true;
    memmove(s->tokens, p->ids, count * sizeof *p->ids); /* the two arrays may overlap */
    s->n_tokens = count;
    s->fragments = has_fragments(s, p) || found->spans;
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
    spry_held_picture *pictures = NULL;
    spry_status status = check_prompt(s, p, error);
    if (!status)
        status = hold_pictures(&pictures, p, error);
    if (status)
        return status; /* the sequence is unchanged */
    spry_sequence_stop(s);
    spry_kv_cache_expire(s->cache, start); /* the lookup uses what it finds */
    if (!goes_on(s, p, pictures)) {
        spry_sequence_release(s); /* its usable pages are found again in the cache; the rest is evicted when needed */
        spry_sequence_set_pictures(s, pictures, p->n_pictures);
        status = lay_out(s, found, p, error);
    }
    if (status) {
        spry_sequence_forget(s);
        spry_sequence_set_pictures(s, NULL, 0);
        s->n_tokens = s->n_dropped = s->slid_at = 0;
        return status;
    }
    size_t pending = spry_sequence_pending(s) - p->n_more;
    found->reused = pending < p->count ? p->count - pending : 0;
    found->divergence = spry_span_divergence(found->spans, found->repaired, p->count, s->span_start >= 0);
    /* A restored page need not be reused: the figure counts reused tokens only. */
    const size_t restored = (size_t)(s->cache->figures.restored_tokens - before.restored_tokens);
    found->restored = restored < found->reused ? restored : found->reused;
    found->restore_ns = s->cache->figures.restore_ns - before.restore_ns;
    spry_kv_cache_figures *figures = &s->cache->figures;
    spry_kv_cache_count(s->cache, s->root, p->ids, p->count, found->reused);
    figures->span_tokens += found->spans;
    figures->repaired_tokens += found->repaired;
    spry_kv_cache_tidy(s->cache, start);
    found->lookup_ns = spry_clock_ns() - start;
    return SPRY_OK;
}
