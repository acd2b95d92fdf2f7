/* Models with recurrent layers through the engine: what continues after any token has the bits of what is computed from
 * the beginning, whatever was taken back, refused, dropped or declared a fragment before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "golden/golden_models.h"
#include "spry.h"
#include "support/fixed_costs.h"

#ifndef TEST_DEVICE
#define TEST_DEVICE "cpu"
#endif

enum { IDS = 90, ANSWER = 26, CONTEXT = 128 };

static spry_engine *open_engine(const char *path, uint32_t chunk)
{
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options o;
    spry_engine_options_default(&o);
    o.context = CONTEXT;
    o.chunk = chunk;
    o.threads = 2;
    o.sessions = 2;
    o.device = TEST_DEVICE;
    if (spry_engine_open(&engine, path, &o, &error))
        fail_msg("%s", error.message);
    spry_engine_info info = {0};
    spry_engine_describe(engine, &info);
    assert_string_equal(info.device, TEST_DEVICE);
    return engine;
}

/* Words that come again, so that there is something to look up. */
static void fill(int32_t ids[IDS])
{
    for (int i = 0; i < IDS; i++)
        ids[i] = 20 + i % 24 * 13;
}

static spry_session *session_of(spry_engine *engine)
{
    spry_session *session;
    spry_error error = {0};
    if (spry_session_create(&session, engine, &error))
        fail_msg("%s", error.message);
    return session;
}

static void eval(float *out, spry_session *session, const int32_t *ids, size_t n, const spry_span *spans,
                 size_t n_spans)
{
    const float *logits;
    spry_error error = {0};
    if (spry_session_eval_spans(session, &logits, ids, n, spans, n_spans, SPRY_PAGE_TOKENS, &error))
        fail_msg("%s", error.message);
    memcpy(out, logits, 512 * sizeof *out);
}

/* Texts that go back to any token and on from there. */
static void test_taken_back(const char *path)
{
    static const size_t lengths[] = {90, 33, 64, 31, 90, 32, 65, 1, 80};
    int32_t ids[IDS];
    float got[512], cold[512];
    fill(ids);
    spry_engine *engine = open_engine(path, 16);
    spry_session *session = session_of(engine);
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++) {
        spry_engine *fresh = open_engine(path, 128);
        spry_session *other = session_of(fresh);
        ids[lengths[i] - 1] += (int32_t)i % 2; /* the last one differs */
        eval(got, session, ids, lengths[i], NULL, 0);
        eval(cold, other, ids, lengths[i], NULL, 0);
        assert_memory_equal(got, cold, sizeof got);
        fill(ids);
        spry_session_destroy(other);
        assert_int_equal(spry_engine_close(fresh), SPRY_OK);
    }
    spry_session_destroy(session);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
}

typedef struct said {
    int32_t ids[512];
    size_t count;
} said;

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    (void)top;
    (void)n_top;
    said *s = user;
    if (s->count == SPRY_COUNT(s->ids))
        return false;
    s->ids[s->count++] = token.id;
    return true;
}

/* `drafter` NULL: no drafts. */
static said answer_of(const char *path, uint32_t chunk, const char *drafter, bool slide, uint32_t most,
                      spry_result *result)
{
    said s = {0};
    int32_t ids[IDS];
    spry_error error = {0};
    spry_request request;
    fill(ids);
    spry_engine *engine = open_engine(path, chunk), *small = drafter ? open_engine(drafter, chunk) : NULL;
    if (small && spry_engine_set_drafter(engine, small, &error))
        fail_msg("%s", error.message);
    spry_session *session = session_of(engine);
    assert_int_equal(spry_session_set_slide(session, slide, 32), SPRY_OK);
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = IDS;
    request.max_tokens = most;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.speculation = drafter ? SPRY_DRAFT_MODEL : SPRY_DRAFT_NONE;
    request.draft_most = 7;
    request.on_token = on_token;
    request.user = &s;
    if (spry_session_generate(session, result, &request, &error))
        fail_msg("%s", error.message);
    spry_session_destroy(session);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    assert_int_equal(spry_engine_close(small), SPRY_OK);
    return s;
}

static void same_answers(const said *a, const said *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof *a->ids);
}

/* Refused drafts of another model leave nothing behind. */
static void test_drafts(const char *path)
{
    char other[512];
    spry_result result;
    golden_folder(other, "starcoder2"); /* the smallest */
    said plain = answer_of(path, 32, NULL, false, CONTEXT - IDS, &result);
    said drafted = answer_of(path, 32, other, false, CONTEXT - IDS, &result);
    assert_true(result.drafts.drafted > result.drafts.accepted);
    same_answers(&plain, &drafted);
    if (strcmp(strrchr(path, '/'), "/qwen3-next") != 0)
        return;
    golden_folder(other, "qwen3.5"); /* it takes back states itself */
    drafted = answer_of(path, 32, other, false, CONTEXT - IDS, &result);
    assert_true(result.drafts.drafted > result.drafts.accepted);
    same_answers(&plain, &drafted);
}

/* A context that slides gives the same answer whatever the steps are. */
static void test_slides(const char *path)
{
    spry_result result;
    said one = answer_of(path, 128, NULL, true, 2 * ANSWER, &result);
    assert_true(result.dropped_tokens > 0);
    said other = answer_of(path, 5, NULL, true, 2 * ANSWER, &result);
    same_answers(&one, &other);
}

/* Where a state runs through all of the text, a fragment is text like any other. */
static void test_fragments(const char *path)
{
    const spry_span span = {10, 80};
    int32_t ids[IDS];
    float plain[512], with[512];
    fill(ids);
    spry_engine *engine = open_engine(path, 64);
    spry_session *session = session_of(engine), *other = session_of(engine);
    eval(plain, session, ids, IDS, NULL, 0);
    eval(with, other, ids, IDS, &span, 1);
    if (golden_recurs(strrchr(path, '/') + 1))
        assert_memory_equal(plain, with, sizeof plain);
    else
        assert_memory_not_equal(plain, with, sizeof plain);
    spry_session_destroy(session);
    spry_session_destroy(other);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
}

static void each(void (*test)(const char *path))
{
    char path[512];
    golden_folder(path, "lfm2");
    test(path);
    for (size_t i = 0; golden_recurrent[i]; i++)
        if (golden_folder(path, golden_recurrent[i]))
            test(path);
}

static void taken_back(void **state)
{
    (void)state;
    each(test_taken_back);
}

static void drafts(void **state)
{
    (void)state;
    each(test_drafts);
}

static void slides(void **state)
{
    (void)state;
    each(test_slides);
}

static void fragments(void **state)
{
    (void)state;
    each(test_fragments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taken_back), cmocka_unit_test(drafts), cmocka_unit_test(slides),
                                       cmocka_unit_test(fragments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
