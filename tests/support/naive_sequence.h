/* What a sequence must hold, without pages that are shared and without a cache: built from its tokens, every time. A
 * row holds a number made from its token, its position and what the row before it holds. Include after cmocka.h. */
#ifndef SPRY_TESTS_NAIVE_SEQUENCE_H
#define SPRY_TESTS_NAIVE_SEQUENCE_H

#include <string.h>

#include "kernels/ops.h"
#include "support/hostile.h"

enum {
    PAGE = SPRY_PAGE_TOKENS,
    WINDOW = 200,   /* not whole pages */
    HISTORY = 4000, /* tokens of a sequence that slides on and on */
    MAX_SPANS = 4,
};

static inline uint64_t mix(uint64_t token, uint64_t position, uint64_t before, int32_t distance)
{
    uint64_t state = token * 1000003 + position * 7919 + (uint64_t)(uint32_t)distance * 31 + before * 3;
    return hostile_random(&state);
}

typedef struct chunk {
    size_t start, count;
    bool closed, foreign;
} chunk;

/* What a sequence must hold. */
typedef struct naive {
    uint64_t value[WINDOW];
    int32_t distance[WINDOW];
    bool linked[WINDOW]; /* as computed on its own */
    chunk chunks[WINDOW];
    size_t n, n_chunks, dropped;
} naive;

static inline void put(naive *v, uint64_t value, int32_t distance, bool foreign)
{
    chunk *last = v->n_chunks ? &v->chunks[v->n_chunks - 1] : NULL;
    if (!last || last->closed || last->count == PAGE) {
        last = &v->chunks[v->n_chunks++];
        *last = (chunk){.start = v->n, .foreign = foreign};
    }
    last->count++;
    v->distance[v->n] = distance;
    v->linked[v->n] = foreign;
    v->value[v->n++] = value;
}

static inline void put_text(naive *v, int32_t token)
{
    uint64_t before = v->n ? v->value[v->n - 1] : 0;
    put(v, mix((uint64_t)token, v->n, before, v->n ? v->distance[v->n - 1] : 0), 0, false);
}

static inline void naive_close(naive *v)
{
    if (v->n_chunks)
        v->chunks[v->n_chunks - 1].closed = true;
}

static inline void naive_slide(naive *v, size_t keep_tokens)
{
    size_t keep = 0;
    while (keep < v->n_chunks && v->chunks[keep].start < keep_tokens)
        keep++;
    assert_true(keep + 2 <= v->n_chunks);
    size_t drop = (v->n_chunks - keep + 7) / 8, from = v->chunks[keep].start,
           gone = v->chunks[keep + drop].start - from;
    memmove(v->value + from, v->value + from + gone, (v->n - from - gone) * sizeof *v->value);
    memmove(v->distance + from, v->distance + from + gone, (v->n - from - gone) * sizeof *v->distance);
    memmove(v->linked + from, v->linked + from + gone, (v->n - from - gone) * sizeof *v->linked);
    memmove(v->chunks + keep, v->chunks + keep + drop, (v->n_chunks - keep - drop) * sizeof *v->chunks);
    v->n -= gone;
    v->n_chunks -= drop;
    v->dropped += gone;
    for (size_t i = keep; i < v->n_chunks; i++)
        v->chunks[i] = (chunk){v->chunks[i].start - gone, v->chunks[i].count, true, true};
    for (size_t i = from; i < v->n; i++)
        v->distance[i] -= (int32_t)gone;
}

static inline void naive_truncate(naive *v, size_t n)
{
    while (v->n_chunks && v->chunks[v->n_chunks - 1].start >= n)
        v->n_chunks--;
    if (v->n_chunks) {
        chunk *last = &v->chunks[v->n_chunks - 1];
        if (last->start + last->count > n)
            *last = (chunk){last->start, n - last->start, last->foreign, last->foreign};
    }
    v->n = n;
}

/* Fragment tokens [from, to) as they are computed on their own. */
static inline void put_links(naive *v, const int32_t *tokens, size_t from, size_t to)
{
    uint64_t value = 0;
    for (size_t j = 0; j < to; j++) {
        value = mix((uint64_t)tokens[j], j, value, 0);
        if (j < from)
            continue;
        if (j % PAGE == 0)
            naive_close(v);
        put(v, value, (int32_t)v->n - (int32_t)j, true);
    }
    naive_close(v);
}

typedef struct text {
    int32_t ids[HISTORY];
    size_t count; /* of the prompt */
    spry_span spans[MAX_SPANS];
    size_t n_spans, repair;
} text;

static inline void put_texts(naive *v, const int32_t *ids, size_t end, bool closes)
{
    while (v->n < end)
        put_text(v, ids[v->n]);
    if (closes)
        naive_close(v);
}

/* A prompt, then what was appended, up to `n` tokens of both; `dropped` says whether it slid at the very end. */
static inline void naive_build(naive *v, const text *t, size_t n, size_t keep, size_t dropped)
{
    size_t head = t->count < WINDOW ? t->count : WINDOW;
    *v = (naive){0};
    for (size_t i = 0; t->repair != SPRY_REPAIR_ALL && i < t->n_spans; i++) {
        size_t begin = t->spans[i].begin, end = t->spans[i].end, count = end - begin, to = count;
        size_t repair = ((t->repair & ~SPRY_REPAIR_FIRST) + PAGE - 1) / PAGE * PAGE; /* 0, or of the first pages */
        if (end == t->count)
            to = (count - 1) / PAGE * PAGE;
        repair = repair < to ? repair : to;
        put_texts(v, t->ids, begin, true);
        put_texts(v, t->ids, begin + repair, true);
        if (repair < to)
            put_links(v, t->ids + begin, repair, to);
        put_texts(v, t->ids, end, end < t->count);
    }
    put_texts(v, t->ids, head, false);
    if (n < head)
        naive_truncate(v, n);
    for (size_t i = head; i < n; i++) {
        if (v->n == WINDOW)
            naive_slide(v, keep);
        put_text(v, t->ids[i]);
    }
    if (v->dropped != dropped)
        naive_slide(v, keep);
    assert_int_equal(v->dropped, dropped);
}

#endif
