/* Logits of every row from a position on: computed in parts, they equal the logits of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/engine_fixture.h"
#include "support/hostile.h"

enum { COUNT = 200 };

typedef struct rows {
    float *logits; /* [COUNT, FIXTURE_VOCAB] */
    size_t next;   /* the row that must come now */
    size_t stop;   /* refuse this row */
} rows;

static rows make_rows(void)
{
    rows r = {calloc(COUNT, FIXTURE_VOCAB * sizeof(float)), 0, COUNT};
    assert_non_null(r.logits);
    return r;
}

static bool keep_row(void *user, size_t index, const float *logits)
{
    rows *r = user;
    assert_int_equal(index, r->next++);
    memcpy(r->logits + index * FIXTURE_VOCAB, logits, FIXTURE_VOCAB * sizeof *logits);
    return index != r->stop;
}

static void eval_from(spry_session *session, rows *r, const int32_t *ids, size_t count, size_t first)
{
    spry_error error = {0};
    r->next = first;
    if (spry_session_eval_from(session, ids, count, first, keep_row, r, &error))
        fail_msg("%s", error.message);
    assert_int_equal(r->next, count);
    size_t held;
    assert_memory_equal(spry_session_tokens(session, &held), ids, count * sizeof *ids);
    assert_int_equal(held, count);
}

static void parts_are_those_of_the_whole(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma2", "qwen3-moe"};
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 3);
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        spry_engine *engine = fixture_open(models[m], NULL);
        spry_session *session = fixture_session(engine);
        rows whole = make_rows(), parts = make_rows();
        whole.next = 0;
        assert_int_equal(spry_session_eval_rows(session, ids, COUNT, keep_row, &whole, NULL), SPRY_OK);
        for (size_t begin = 0, size = 1; begin < COUNT; begin += size, size = size % 60 + 7)
            eval_from(session, &parts, ids, begin + size < COUNT ? begin + size : COUNT, begin);
        assert_memory_equal(whole.logits, parts.logits, COUNT * FIXTURE_VOCAB * sizeof(float));
        free(whole.logits);
        free(parts.logits);
        spry_session_destroy(session);
        spry_engine_close(engine);
    }
}

/* What came before is computed when it is not held, and kept only as far as it is the same. */
static void what_is_before_is_found_or_computed(void **state)
{
    (void)state;
    int32_t ids[COUNT], other[COUNT];
    fixture_ids(ids, COUNT, 4);
    memcpy(other, ids, sizeof ids);
    other[90] = ids[90] == 5 ? 6 : 5;
    spry_engine *engine = fixture_open("llama", NULL);
    spry_session *session = fixture_session(engine);
    rows cold = make_rows(), warm = make_rows();
    eval_from(session, &cold, other, COUNT, 0);
    eval_from(session, &warm, ids, COUNT, 150);
    eval_from(session, &cold, ids, COUNT, 0);
    const size_t from = (size_t)150 * FIXTURE_VOCAB, bytes = (size_t)(COUNT - 150) * FIXTURE_VOCAB * sizeof(float);
    assert_memory_equal(cold.logits + from, warm.logits + from, bytes);
    free(cold.logits);
    free(warm.logits);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

static void bad_places_and_a_reader_who_stops(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 5);
    spry_engine *engine = fixture_open("llama", NULL);
    spry_session *session = fixture_session(engine);
    rows r = make_rows();
    spry_error error = {0};
    eval_from(session, &r, ids, 50, 0);
    hostile_expect(spry_session_eval_from(session, ids, 50, 50, keep_row, &r, &error), &error, SPRY_ERR_INPUT,
                   "from 50|50 ids");
    hostile_expect(spry_session_eval_from(session, ids, 0, 0, keep_row, &r, &error), &error, SPRY_ERR_INPUT, "empty");
    ids[60] = -1;
    hostile_expect(spry_session_eval_from(session, ids, 100, 50, keep_row, &r, &error), &error, SPRY_ERR_INPUT, "-1");
    size_t held;
    spry_session_tokens(session, &held);
    assert_int_equal(held, 50);
    ids[60] = 7;
    r.next = 50;
    r.stop = 70;
    hostile_expect(spry_session_eval_from(session, ids, 100, 50, keep_row, &r, &error), &error, SPRY_ERR_CANCELLED,
                   "70 of 100");
    free(r.logits);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(what_is_before_is_found_or_computed),
        cmocka_unit_test(bad_places_and_a_reader_who_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
