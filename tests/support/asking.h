/* Asking a fixture for answers, with callbacks that note everything they get. Include after cmocka.h. */
#ifndef SPRY_TESTS_ASKING_H
#define SPRY_TESTS_ASKING_H

#include <string.h>

#include "base/compiler.h"
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

static spry_engine *engine;
static spry_session *session;
static int32_t prompt[20];

static heard got;

static inline spry_request ask(uint32_t max_tokens)
{
    spry_request request;
    spry_request_default(&request);
    request.prompt = prompt;
    request.n_prompt = SPRY_COUNT(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.on_text = heard_text;
    request.on_token = heard_token;
    request.user = &got;
    request.ignore_end = true;
    memset(&got, 0, sizeof got);
    return request;
}

static inline spry_result answer(const spry_request *request)
{
    spry_result result;
    spry_error error = {0};
    memset(&result, 0xab, sizeof result);
    if (spry_session_generate(session, &result, request, &error))
        fail_msg("%s", error.message);
    got.text[got.size] = 0;
    assert_int_equal(result.prompt_tokens, request->n_prompt);
    assert_true(result.prefill_ms >= 0 && result.first_token_ms >= 0 && result.decode_ms >= 0);
    assert_true(result.total_ms >= result.prefill_ms);
    return result;
}

/* The text of ids with what is not UTF-8 replaced, as a stream gives it. */
static inline void expect_text(const int32_t *ids, size_t count, bool special)
{
    char raw[HEARD_TEXT];
    size_t size;
    spry_buffer whole;
    spry_buffer_init(&whole, HEARD_TEXT);
    assert_int_equal(spry_engine_detokenize(engine, raw, sizeof raw, &size, ids, count, special, NULL), SPRY_OK);
    spry_utf8_append_valid(&whole, (spry_view){raw, size});
    assert_int_equal(got.size, whole.size);
    assert_memory_equal(got.text, spry_buffer_view(&whole).data, whole.size);
    spry_buffer_deinit(&whole);
}

static inline int asking_set_up(void **state)
{
    (void)state;
    engine = fixture_open("llama", NULL);
    session = fixture_session(engine);
    fixture_ids(prompt, SPRY_COUNT(prompt), 77);
    return 0;
}

static inline int asking_tear_down(void **state)
{
    (void)state;
    spry_session_destroy(session);
    spry_engine_close(engine);
    return 0;
}

#endif
