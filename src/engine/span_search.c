/* A window of one page moves over the text, its hash with it; where a cached page has the same tokens, the pages that
 * follow it in its chain are compared with the text that follows. */
#include "engine/span_search.h"

#include <stdlib.h>

#include "kv/kv_content.h"
#include "platform/clock.h"

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
