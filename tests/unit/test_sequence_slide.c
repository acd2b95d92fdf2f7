/* Sliding: conversations longer than the window. When it slides, and what is left, depends on the tokens alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/device_rows.h"
#include "support/hostile.h"
#include "support/sequence_scene.h"

enum { COUNT = 420, PAGE = SPRY_PAGE_TOKENS };

static const char *const models[] = {"llama", "gemma3", "llama3-rope"};
static const size_t keeps[] = {0, 1, 40};
static const uint32_t windows[] = {128, 100}; /* of whole pages, and not */

static spry_session *sliding(spry_engine *engine, size_t keep)
{
    spry_session *s = fixture_session(engine);
    spry_session_set_slide(s, true, keep);
    return s;
}

/* Three windows and more: whole, in chunks of any size, in parts, token by token. */
static void check_window(const char *model, uint32_t window, size_t keep, const int32_t *ids)
{
    static const uint32_t chunks[] = {1, 7, 64};
    logits cold[COUNT];
    for (size_t n = 60; n <= COUNT; n += 60)
        cold[n - 1] = scene_cold(model, window, true, keep, ids, n, NULL);
    for (size_t i = 0; i < SPRY_COUNT(chunks); i++) {
        spry_engine *engine = scene_engine(model, window, chunks[i], 0);
        spry_session *s = sliding(engine, keep);
        logits got = scene_eval(s, ids, COUNT, NULL);
        scene_same(&got, &cold[COUNT - 1]);
        got = scene_eval(s, ids, COUNT - 120, NULL); /* back to before it last slid, on a warm cache */
        scene_same(&got, &cold[COUNT - 121]);
        for (size_t n = COUNT - 119; n <= COUNT; n += 17)
            scene_eval(s, ids, n, NULL);
        got = scene_eval(s, ids, COUNT, NULL);
        scene_same(&got, &cold[COUNT - 1]);
        spry_session *other = sliding(engine, keep);
        for (size_t n = 6; n <= COUNT; n += 6) {
            got = scene_eval(other, ids, n, NULL);
            if (n % 60 == 0)
                scene_same(&got, &cold[n - 1]);
        }
        spry_session_destroy(s);
        spry_session_destroy(other);
        scene_close_engine(engine);
    }
}

static void test_chunks_and_parts_change_nothing(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 31);
    for (size_t m = 0; m < SPRY_COUNT(models); m++)
        for (size_t k = 0; k < SPRY_COUNT(keeps); k++)
            check_window(models[m], windows[(m + k) % 2], keeps[k], ids);
}

static spry_result answer(spry_session *s, const int32_t *ids, size_t count, uint32_t max_tokens)
{
    spry_request request;
    spry_result result;
    spry_error error = {0};
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = count;
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    if (spry_session_generate(s, &result, &request, &error))
        fail_msg("%s", error.message);
    return result;
}

/* An answer longer than the window: the same tokens whatever the chunk, memory that does not grow, and what comes of it
 * is what a cold engine makes of the same tokens. */
static void test_answers_go_on(void **state)
{
    (void)state;
    enum { PROMPT = 50, ANSWER = 400, WINDOW = 100 };
    int32_t ids[PROMPT], first[PROMPT + ANSWER];
    fixture_ids(ids, PROMPT, 32);
    for (uint32_t chunk = 1; chunk < 100; chunk = chunk * 6 + 3) {
        spry_engine *engine = scene_engine("llama", WINDOW, chunk, 2 * (WINDOW / PAGE + 1));
        spry_session *s = sliding(engine, 10);
        spry_result result = answer(s, ids, PROMPT, ANSWER);
        assert_int_equal(result.finish, SPRY_FINISH_LENGTH);
        assert_int_equal(result.generated_tokens, ANSWER);
        size_t n;
        const int32_t *tokens = spry_session_tokens(s, &n);
        assert_int_equal(n, PROMPT + ANSWER - 1); /* the last one is drawn, not computed */
        if (chunk == 1)
            memcpy(first, tokens, n * sizeof *tokens);
        assert_memory_equal(first, tokens, n * sizeof *tokens);
        first[n] = 5;
        logits cold = scene_cold("llama", WINDOW, true, 10, first, n + 1, NULL),
               warm = scene_eval(s, first, n + 1, NULL);
        scene_same(&cold, &warm);
        assert_true(s->sequence.table.n_tokens <= WINDOW && s->sequence.n_dropped + WINDOW > n);
        assert_true(s->sequence.table.n_entries <= WINDOW / PAGE + 3);
        assert_true(engine->pool.turns.end <= 12); /* few distances differ at a time */
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* The first tokens stay what and where they were. */
static void test_the_head_is_kept(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 33);
    for (size_t k = 0; k < SPRY_COUNT(keeps); k++) {
        spry_engine *engine = scene_engine("llama", 128, 64, 0);
        spry_session *s = sliding(engine, keeps[k]);
        scene_eval(s, ids, COUNT, NULL);
        const spry_kv_table *t = &s->sequence.table;
        size_t kept = (keeps[k] + PAGE - 1) / PAGE;
        for (size_t i = 0; i < t->n_entries; i++)
            assert_true((t->entries[i].turn == 0) == (i < kept || !t->marks[i].foreign));
        assert_true(t->entries[kept].turn != 0);
        /* Slid pages are not shared: only pages from before that are known, each at its own place. */
        for (size_t i = kept; i < t->n_entries; i++)
            assert_false(t->marks[i].cached);
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* Pages that slid are not found by others. */
static void test_what_slid_is_not_shared(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 34);
    spry_engine *engine = scene_engine("llama", 128, 64, 0);
    spry_session *s = sliding(engine, 32);
    scene_eval(s, ids, COUNT, NULL);
    spry_session *other = sliding(engine, 32);
    /* The head and the tokens that follow it now, as a text of its own. */
    int32_t window[128];
    size_t n = s->sequence.table.n_tokens;
    memcpy(window, ids, 32 * sizeof *ids);
    memcpy(window + 32, s->sequence.tokens + s->sequence.n_dropped + 32, (n - 32) * sizeof *ids);
    size_t before = scene_hits(engine);
    logits warm = scene_eval(other, window, n, NULL), cold = scene_cold("llama", 128, false, 0, window, n, NULL);
    scene_same(&warm, &cold);
    assert_int_equal(scene_hits(engine) - before, 32);
    spry_session_destroy(s);
    before = scene_hits(engine);
    warm = scene_eval(other, window, n, NULL);
    scene_same(&warm, &cold);
    assert_int_equal(scene_hits(engine) - before, n - 1);
    spry_session_destroy(other);
    scene_close_engine(engine);
}

static void test_what_cannot_slide(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    const float *out;
    spry_error error = {0};
    fixture_ids(ids, COUNT, 35);
    spry_engine *engine = scene_engine("llama", 128, 64, 0);
    spry_session *s = fixture_session(engine);
    hostile_expect(spry_session_eval(s, &out, ids, COUNT, &error), &error, SPRY_ERR_CONTEXT, "420 tokens|holds 128");
    assert_int_equal(answer(s, ids, 100, 0).finish, SPRY_FINISH_CONTEXT);
    static const size_t too_large[] = {97, 128, 1000, SIZE_MAX};
    for (size_t i = 0; i < SPRY_COUNT(too_large); i++) {
        spry_session_set_slide(s, true, too_large[i]);
        hostile_expect(spry_session_eval(s, &out, ids, COUNT, &error), &error, SPRY_ERR_CONTEXT,
                       "context of 128 tokens is full|leaves nothing to slide");
        logits cold = scene_cold("llama", 128, false, 0, ids, 128, NULL), got = scene_eval(s, ids, 128, NULL);
        scene_same(&cold, &got);
    }
    const spry_span span = {10, 80};
    spry_session_set_slide(s, true, 0);
    hostile_expect(spry_session_eval_spans(s, &out, ids, COUNT, &span, 1, 0, &error), &error, SPRY_ERR_CONTEXT,
                   "420 tokens|holds 128|fragments");
    const fragments plain = {{span}, 1, SPRY_REPAIR_ALL}; /* they are text like any other */
    logits cold = scene_cold("llama", 128, true, 0, ids, COUNT, NULL), got = scene_eval(s, ids, COUNT, &plain);
    scene_same(&cold, &got);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* What was slid in another way is no beginning of what is asked for now. */
static void test_another_past_is_not_gone_on_with(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 36);
    logits cold[2];
    for (size_t keep = 0; keep < 2; keep++)
        cold[keep] = scene_cold("llama", 128, true, keep * 40, ids, COUNT, NULL);
    assert_true(memcmp(&cold[0], &cold[1], sizeof *cold));
    spry_engine *engine = scene_engine("llama", 128, 64, 0);
    spry_session *s = sliding(engine, 40);
    scene_eval(s, ids, 300, NULL);
    spry_session_set_slide(s, true, 0);
    logits got = scene_eval(s, ids, COUNT, NULL);
    scene_same(&got, &cold[0]);
    /* It began with a fragment, slid while it answered, and now is asked about the same tokens without one. */
    spry_session_set_salt(s, "x", 1);
    const fragments f = {{{10, 100}}, 1, 0};
    scene_eval(s, ids, 120, &f);
    for (size_t i = 120; i < 300; i++) {
        spry_segment segment;
        size_t n;
        assert_int_equal(spry_sequence_append(&s->sequence, ids + i, 1, NULL), SPRY_OK);
        assert_int_equal(spry_sequence_fill(&s->sequence, &segment, &n, 1, 1, SIZE_MAX, 1, NULL), SPRY_OK);
        assert_int_equal(step_run(engine->device, &segment, n, NULL), SPRY_OK);
        spry_sequence_computed(&s->sequence, 1, 0);
    }
    assert_true(s->sequence.n_dropped > 0);
    got = scene_eval(s, ids, COUNT, NULL);
    scene_same(&got, &cold[0]);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

typedef struct rows {
    logits *all;
    size_t next;
} rows;

static bool keep_row(void *user, size_t index, const float *values)
{
    rows *r = user;
    assert_int_equal(index, r->next++);
    memcpy(r->all[index].of, values, sizeof r->all[index].of);
    return true;
}

static void test_rows_of_all_that_went_by(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    logits *whole = calloc(COUNT, sizeof *whole), *parts = calloc(COUNT, sizeof *parts);
    assert_true(whole && parts);
    fixture_ids(ids, COUNT, 37);
    spry_engine *engine = scene_engine("llama", 100, 40, 0);
    spry_session *s = sliding(engine, 5);
    rows r = {whole, 0};
    assert_int_equal(spry_session_eval_rows(s, ids, COUNT, keep_row, &r, NULL), SPRY_OK);
    assert_int_equal(r.next, COUNT);
    for (size_t n = 35; n <= COUNT; n += 35) {
        r = (rows){parts, n - 35};
        assert_int_equal(spry_session_eval_from(s, ids, n, n - 35, keep_row, &r, NULL), SPRY_OK);
        assert_int_equal(r.next, n);
    }
    assert_memory_equal(whole, parts, COUNT * sizeof *whole);
    logits cold = scene_cold("llama", 100, true, 5, ids, COUNT, NULL);
    scene_same(&cold, &whole[COUNT - 1]);
    spry_session_destroy(s);
    scene_close_engine(engine);
    free(whole);
    free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_and_parts_change_nothing),
        cmocka_unit_test(test_answers_go_on),
        cmocka_unit_test(test_the_head_is_kept),
        cmocka_unit_test(test_what_slid_is_not_shared),
        cmocka_unit_test(test_what_cannot_slide),
        cmocka_unit_test(test_another_past_is_not_gone_on_with),
        cmocka_unit_test(test_rows_of_all_that_went_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
