/* Fragments of a prompt that are reused after other text. */
#include "engine/spans.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "kv/kv_key.h"
#include "platform/clock.h"

/* ---- pages recomputed in place ----------------------------------------------------------------------------------- */

/* Measured (docs/SPANS.md): predictions depend most on the end of the fragments, directly before the text that follows
 * them, and on the first page of the fragment that is only partly recomputed, whose first tokens draw attention that in
 * the whole prompt goes elsewhere. So what may be recomputed for all fragments together is spent from the end. */

enum { MODES = SPRY_REPAIR_FIRST | SPRY_REPAIR_SPREAD };

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
static size_t take_pages(size_t *left, const spry_span *span)
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

static spry_span_choice choose_tail(const spry_prompt *p, const spry_span *span, size_t tokens)
{
    const spry_span *first = span, *last = span, *end = p->spans + p->n_spans - 1;
    size_t taken = 0, n = page_count(span), left;
    while (first > p->spans && together(first - 1, first))
        first--;
    while (last < end && together(last, last + 1))
        last++;
    left = tokens * (size_t)(last - first + 1);
    for (; last >= span; last--)
        taken = take_pages(&left, last);
    if (taken == n)
        return (spry_span_choice){.tail = 0};
    return (spry_span_choice){.head = taken ? 1 : 0, .tail = taken ? n - taken + 1 : n};
}

spry_span_choice spry_span_choose(const spry_prompt *p, const spry_span *span)
{
    size_t asked = p->repair & ~(size_t)MODES, tokens = asked < p->count ? asked : p->count, n = page_count(span);
    size_t pages = (tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS;
    if (p->repair & SPRY_REPAIR_FIRST)
        return (spry_span_choice){.head = pages, .tail = n};
    if (p->repair & SPRY_REPAIR_SPREAD)
        return (spry_span_choice){.tail = n, .step = pages ? (n + pages - 1) / pages : 0};
    return choose_tail(p, span, tokens);
}

double spry_span_divergence(size_t spans, size_t repaired, size_t prompt)
{
    /* share of the spans that is recomputed, divergence where nearly all of the prompt is spans: docs/SPANS.md */
    static const double measured[][2] = {{0, 0.050},     {0.11, 0.026}, {0.13, 0.0135},
                                         {0.15, 0.0066}, {0.2, 0.0014}, {1, 0}};
    double share = spans ? (double)repaired / (double)(spans + repaired) : 1;
    size_t i = 1;
    while (i + 1 < SPRY_COUNT(measured) && measured[i][0] < share)
        i++;
    const double *a = measured[i - 1], *b = measured[i];
    double all = a[1] + (b[1] - a[1]) * (share - a[0]) / (b[0] - a[0]);
    return prompt ? all * (double)(spans + repaired) / (double)prompt : 0;
}

/* ---- search in cached pages -------------------------------------------------------------------------------------- */

/* A window of one page moves over the text, its hash with it; where a cached page has the same tokens, the pages that
 * follow it in its chain are compared with the text that follows. */

static spry_status runs_init(spry_span_runs *runs, size_t n_pages, spry_error *error)
{
    *runs = (spry_span_runs){0};
    runs->spans = calloc(n_pages + 1, sizeof *runs->spans);
    runs->pages = calloc(n_pages + 1, sizeof *runs->pages);
    if (runs->spans && runs->pages)
        return SPRY_OK;
    free(runs->spans);
    free(runs->pages);
    return spry_fail_memory(error, "fragments", n_pages * sizeof *runs->spans);
}

void spry_span_runs_deinit(spry_span_runs *runs, spry_kv_cache *cache)
{
    for (size_t i = 0; i < runs->n_pages; i++)
        spry_kv_page_unref(cache->pool, runs->pages[i]);
    free(runs->spans);
    free(runs->pages);
}

/* Pages of the longest run at the beginning of this text; too short ones are let go. */
static size_t take_run(spry_span_runs *runs, const spry_sequence *s, uint64_t content, const int32_t *tokens,
                       size_t count)
{
    const spry_kv_key roots[] = {s->root, spry_kv_key_span_root(s->root)}; /* of text, of declared fragments */
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

spry_status spry_span_search(spry_span_runs *runs, const spry_sequence *s, const int32_t *ids, size_t from, size_t to,
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
