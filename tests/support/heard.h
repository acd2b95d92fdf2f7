/* Callbacks of an answer that note everything they get. Include after cmocka.h. */
#ifndef SPRY_TESTS_HEARD_H
#define SPRY_TESTS_HEARD_H

#include <string.h>

#include "base/utf8.h"
#include "support/engine_fixture.h"

enum { HEARD_TEXT = 1 << 16 };

/* What callbacks saw, and when they say stop. */
typedef struct heard {
    char text[HEARD_TEXT];
    size_t size, pieces, stop_at_piece; /* 0: never */
    int32_t ids[FIXTURE_CONTEXT];
    spry_logprob_entry tokens[FIXTURE_CONTEXT];
    spry_logprob_entry top[FIXTURE_CONTEXT][SPRY_TOP_LOGPROBS_MAX];
    size_t n_ids, n_top, stop_at_token;
    size_t prefill_calls, prefill_done, stop_at_prefill;
    void (*at_token)(size_t n);
} heard;

static inline bool heard_text(void *user, const char *text, size_t size)
{
    heard *h = user;
    assert_true(size > 0 && spry_utf8_valid((spry_view){text, size})); /* whole characters */
    assert_true(h->size + size < HEARD_TEXT);
    memcpy(h->text + h->size, text, size);
    h->size += size;
    return ++h->pieces != h->stop_at_piece;
}

static inline bool heard_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    heard *h = user;
    assert_true(h->n_ids < FIXTURE_CONTEXT && n_top <= SPRY_TOP_LOGPROBS_MAX);
    h->ids[h->n_ids] = token.id;
    h->tokens[h->n_ids] = token;
    memcpy(h->top[h->n_ids], top, n_top * sizeof *top);
    h->n_top = n_top;
    h->n_ids++;
    if (h->at_token)
        h->at_token(h->n_ids);
    return h->n_ids != h->stop_at_token;
}

static inline bool heard_prefill(void *user, size_t done, size_t total)
{
    heard *h = user;
    assert_true(done < total && (!h->prefill_calls || done > h->prefill_done));
    h->prefill_done = done;
    return ++h->prefill_calls != h->stop_at_prefill;
}

#endif
