/* Measured (docs/SPANS.md): predictions depend most on the end of the fragments, directly before the text that follows
 * them, and on the first page of the fragment that is only partly recomputed, whose first tokens draw attention that in
 * the whole prompt goes elsewhere. So what may be recomputed for all fragments together is spent from the end. */
#include "engine/span_choice.h"

#include "base/compiler.h"

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
