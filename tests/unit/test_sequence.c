/* What sessions share and what they keep: whatever was reused, the bits are those of an engine that had computed
 * nothing before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <unistd.h>

#include "base/compiler.h"
#include "engine/sequence.h"
#include "support/device_rows.h"
#include "support/hostile.h"
#include "support/sequence_scene.h"

enum { CONTEXT = 256, COUNT = 200, PAGE = SPRY_PAGE_TOKENS };

static const char model[] = "llama";

/* Evaluates, compares with a cold engine, and says how many tokens were found. */
static size_t reused(spry_session *session, const int32_t *ids, size_t count)
{
    size_t before = scene_hits(session->engine);
    logits warm = scene_eval(session, ids, count, NULL), cold = scene_cold(model, CONTEXT, false, 0, ids, count, NULL);
    scene_same(&warm, &cold);
    return scene_hits(session->engine) - before;
}

static void beginnings_are_shared(void **state)
{
    (void)state;
    int32_t ids[COUNT], other[COUNT];
    fixture_ids(ids, COUNT, 1);
    fixture_ids(other, COUNT, 2);
    spry_engine *engine = scene_engine(model, CONTEXT, 48, 0);
    spry_session *a = fixture_session(engine), *b = fixture_session(engine);
    assert_int_equal(reused(a, ids, COUNT), 0);
    assert_int_equal(reused(b, ids, COUNT), COUNT / PAGE * PAGE); /* the last page is still a's own */
    spry_session_destroy(a);
    assert_int_equal(reused(b, other, COUNT), 0);
    assert_int_equal(reused(b, ids, COUNT), COUNT - 1); /* and now it is not; one row is always computed */
    /* Another text from the middle of a page on. */
    memcpy(other, ids, 100 * sizeof *ids);
    assert_int_equal(reused(b, other, COUNT), 100);
    assert_int_equal(reused(b, other, 101), 100);
    assert_int_equal(reused(b, ids, 1), 0);
    assert_int_equal(reused(b, ids, PAGE), PAGE - 1);
    assert_int_equal(reused(b, ids, PAGE + 1), PAGE);
    spry_session_destroy(b);
    scene_close_engine(engine);
}

static void a_conversation_goes_on(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 3);
    spry_engine *engine = scene_engine(model, CONTEXT, 16, 0);
    spry_session *s = fixture_session(engine);
    size_t held = 0;
    static const size_t counts[] = {5, 6, 40, 64, 65, 150, 170, 120, 119, 200, 200};
    for (size_t i = 0; i < SPRY_COUNT(counts); i++) {
        size_t found = reused(s, ids, counts[i]), most = counts[i] - 1;
        assert_int_equal(found, held < most ? held : most);
        held = held > counts[i] ? held : counts[i];
    }
    /* Its own answer too: decoded rows are as good as prefilled ones. */
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = 50;
    request.max_tokens = 40;
    request.ignore_end = true;
    assert_int_equal(spry_session_generate(s, &result, &request, NULL), SPRY_OK);
    assert_int_equal(result.reused_tokens, 49);
    assert_int_equal(result.generated_tokens, 40);
    int32_t answered[100];
    size_t n;
    const int32_t *tokens = spry_session_tokens(s, &n);
    memcpy(answered, tokens, n * sizeof *tokens);
    answered[n] = 9;
    assert_int_equal(reused(s, answered, n + 1), n);
    tokens = spry_session_tokens(s, &n); /* its own list, as it is */
    assert_int_equal(reused(s, tokens, n), n - 1);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

typedef struct stopper {
    size_t left;
} stopper;

static bool stop_later(void *user, size_t done, size_t total)
{
    stopper *s = user;
    assert_true(done < total);
    return s->left-- > 0;
}

/* Stopped after any number of steps, the next prompt finds what was done and nothing that was not. */
static void stopping_leaves_nothing_wrong(void **state)
{
    (void)state;
    int32_t ids[COUNT], other[COUNT];
    fixture_ids(ids, COUNT, 4);
    fixture_ids(other, COUNT, 5);
    memcpy(other, ids, 90 * sizeof *ids);
    const fragments f = {{{20, 100}, {101, 160}}, 2, 1};
    for (size_t with_spans = 0; with_spans < 2; with_spans++) {
        const fragments *with = with_spans ? &f : NULL;
        logits whole = scene_cold(model, CONTEXT, false, 0, ids, COUNT, with);
        logits plain = scene_cold(model, CONTEXT, false, 0, other, COUNT, NULL);
        spry_engine *engine = scene_engine(model, CONTEXT, 11, 0);
        for (size_t steps = 0; steps < 40; steps++) {
            spry_session *s = fixture_session(engine);
            spry_session_set_salt(s, &steps, sizeof steps); /* nothing from before */
            stopper stop = {steps};
            spry_request request;
            spry_result result;
            spry_request_default(&request);
            request.prompt = ids;
            request.n_prompt = COUNT;
            request.max_tokens = 1;
            request.on_prefill = stop_later;
            request.user = &stop;
            request.spans = f.spans;
            request.n_spans = with_spans ? 2 : 0;
            request.span_repair = f.repair;
            assert_int_equal(spry_session_generate(s, &result, &request, NULL), SPRY_OK);
            bool stopped = result.finish == SPRY_FINISH_CANCELLED;
            assert_true(stopped || steps > COUNT / 11);
            logits got = scene_eval(s, steps % 2 ? ids : other, COUNT, steps % 2 ? with : NULL);
            scene_same(&got, steps % 2 ? &whole : &plain);
            got = scene_eval(s, steps % 2 ? other : ids, COUNT, steps % 2 ? NULL : with);
            scene_same(&got, steps % 2 ? &plain : &whole);
            spry_session_destroy(s);
            if (!stopped)
                break;
        }
        scene_close_engine(engine);
    }
}

/* ---- keeping apart, keeping -------------------------------------------------------------------------------------- */

static void salts_share_nothing(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 6);
    spry_engine *engine = scene_engine(model, CONTEXT, 64, 0);
    spry_session *a = fixture_session(engine), *b = fixture_session(engine);
    spry_session_set_salt(b, "b", 1);
    assert_int_equal(reused(a, ids, COUNT), 0);
    assert_int_equal(reused(b, ids, COUNT), 0);
    spry_session_set_salt(a, "a", 1);
    size_t held;
    spry_session_tokens(a, &held);
    assert_int_equal(held, 0);
    assert_int_equal(reused(a, ids, COUNT), 0);
    spry_session_set_salt(a, NULL, 0);
    assert_int_equal(reused(a, ids, COUNT), COUNT / PAGE * PAGE);
    spry_session_set_salt(a, "b", 1);
    assert_int_equal(reused(a, ids, COUNT), COUNT / PAGE * PAGE);
    const fragments f = {{{10, 150}}, 1, 0};
    spry_kv_figures before, after;
    scene_eval(a, ids, COUNT, &f);
    spry_session_set_salt(a, "c", 1);
    spry_engine_kv_figures(engine, &before);
    scene_eval(a, ids, COUNT, &f); /* fragments neither */
    spry_engine_kv_figures(engine, &after);
    assert_int_equal(after.hit_tokens, before.hit_tokens);
    spry_session_destroy(a);
    spry_session_destroy(b);
    scene_close_engine(engine);
}

static void pinned_text_survives(void **state)
{
    (void)state;
    int32_t ids[COUNT], other[CONTEXT];
    fixture_ids(ids, COUNT, 7);
    spry_engine *engine = scene_engine(model, CONTEXT, 64, CONTEXT / PAGE + 3);
    spry_session *s = fixture_session(engine);
    reused(s, ids, 96);
    size_t pinned;
    assert_int_equal(spry_session_pin(s, &pinned, true), SPRY_OK);
    assert_int_equal(pinned, 96);
    for (uint32_t round = 0; round < 5; round++) {
        fixture_ids(other, CONTEXT, 100 + round);
        other[0] = (int32_t)round + 3;
        scene_eval(s, other, CONTEXT, NULL);
    }
    assert_int_equal(reused(s, ids, 96), 95);
    /* The page that was read for its beginning is not among what it holds now: look at whole pages. */
    assert_int_equal(reused(s, ids, 97), 96);
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    assert_int_equal(figures.pinned_pages, 3);
    assert_int_equal(spry_session_pin(s, &pinned, false), SPRY_OK);
    assert_int_equal(pinned, 96);
    for (uint32_t round = 0; round < 3; round++) {
        fixture_ids(other, CONTEXT, 200 + round);
        other[0] = (int32_t)round + 3;
        scene_eval(s, other, CONTEXT, NULL);
    }
    assert_int_equal(reused(s, ids, 96), 0);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* ---- small pools ------------------------------------------------------------------------------------------------- */

static void too_small_a_pool_is_refused(void **state)
{
    (void)state;
    spry_engine_options options;
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options_default(&options);
    options.context = CONTEXT;
    options.kv_bytes = 1000;
    hostile_expect(spry_engine_open(&engine, TEST_DATA "/models/llama", &options, &error), &error, SPRY_ERR_MEMORY,
                   "kv-bytes of 1000|0 tokens|256|--context");
    assert_null(engine);
}

/* A pool of one window: whatever the session holds, the next prompt gets all of it. */
static void one_window_is_enough_for_one_session(void **state)
{
    (void)state;
    int32_t ids[CONTEXT], other[CONTEXT];
    fixture_ids(ids, CONTEXT, 8);
    fixture_ids(other, CONTEXT, 9);
    other[0] = ids[0] == 5 ? 6 : 5;
    spry_engine *engine = scene_engine(model, CONTEXT, 64, CONTEXT / PAGE);
    spry_session *s = fixture_session(engine);
    assert_int_equal(reused(s, ids, CONTEXT), 0);
    assert_int_equal(reused(s, other, CONTEXT), 0);
    assert_int_equal(reused(s, other, CONTEXT), CONTEXT - 1);
    memcpy(ids, other, 130 * sizeof *ids);
    assert_int_equal(reused(s, ids, CONTEXT), 130);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

/* With a disk as the lower tier: pages that are being written do not block others for long. */
static void pages_on_their_way_to_disk_make_room(void **state)
{
    (void)state;
    int32_t ids[CONTEXT];
    char folder[] = "/tmp/spry-test-XXXXXX";
    spry_engine_options options;
    assert_non_null(mkdtemp(folder));
    spry_engine_options_default(&options);
    options.threads = 1;
    options.context = CONTEXT;
    options.kv_type = "f32";
    options.cache_dir = folder;
    options.kv_bytes = CONTEXT * 768; /* one window */
    spry_engine *engine = fixture_open(model, &options);
    assert_int_equal(engine->pool.n_pages, CONTEXT / PAGE);
    spry_session *s = fixture_session(engine);
    for (uint32_t round = 0; round < 20; round++) {
        fixture_ids(ids, CONTEXT, 300 + round);
        ids[0] = (int32_t)round + 3;
        scene_eval(s, ids, CONTEXT, NULL);
    }
    spry_session_destroy(s);
    scene_close_engine(engine);
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Six sessions that want two windows: each gets what it asked for, or hears that there is no room and is empty. */
static void sessions_compete(void **state)
{
    (void)state;
    enum { SESSIONS = 6, TEXTS = 5, ROUNDS = 300 };
    int32_t texts[TEXTS][CONTEXT];
    logits cold[TEXTS][4];
    static const size_t counts[] = {33, 100, 171, CONTEXT};
    spry_engine *engine = scene_engine(model, CONTEXT, 64, 2 * CONTEXT / PAGE);
    spry_session *sessions[SESSIONS];
    uint64_t random = 5;
    size_t full = 0, fine = 0, tokens = 0;
    for (uint32_t t = 0; t < TEXTS; t++) {
        fixture_ids(texts[t], CONTEXT, t + 20);
        if (t % 2)
            memcpy(texts[t], texts[t - 1], 77 * sizeof **texts);
        for (size_t c = 0; c < SPRY_COUNT(counts); c++)
            cold[t][c] = scene_cold(model, CONTEXT, false, 0, texts[t], counts[c], NULL);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        sessions[i] = fixture_session(engine);
    for (size_t round = 0; round < ROUNDS; round++) {
        spry_error error = {0};
        const float *out;
        size_t i = hostile_random(&random) % SESSIONS, t = hostile_random(&random) % TEXTS;
        size_t c = hostile_random(&random) % SPRY_COUNT(counts), held;
        spry_status status = spry_session_eval(sessions[i], &out, texts[t], counts[c], &error);
        spry_session_tokens(sessions[i], &held);
        if (status) {
            hostile_expect(status, &error, SPRY_ERR_CONTEXT, "KV pool is full|pages of 32 tokens are in use");
            assert_int_equal(held, 0);
            full++;
        } else {
            assert_memory_equal(out, cold[t][c].of, sizeof cold[t][c].of);
            assert_int_equal(held, counts[c]);
            tokens += counts[c];
            fine++;
        }
    }
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    assert_int_equal(figures.hit_tokens + figures.miss_tokens, tokens);
    assert_int_equal(figures.lookups, fine);
    assert_int_equal(figures.pages, 2 * CONTEXT / PAGE);
    assert_true(figures.hit_tokens > 0 && figures.evicted_pages > 0);
    assert_true(full > 5 && fine > 100);
    for (size_t i = 0; i < SESSIONS; i++)
        spry_session_destroy(sessions[i]);
    scene_close_engine(engine);
}

/* ---- gaps, and rows ---------------------------------------------------------------------------------------------- */

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

/* Computes a text and lets go of all of it but one page, which is pinned. */
static void leave_one_page(spry_session *s, const int32_t *ids, size_t count, size_t index)
{
    spry_kv_cache *cache = s->sequence.cache;
    scene_eval(s, ids, count, NULL);
    spry_kv_entry entry = s->sequence.table.entries[index];
    const spry_kv_table one = {.entries = &entry, .n_entries = 1};
    assert_int_equal(spry_kv_cache_pin(cache, &one, true), PAGE);
    spry_sequence_release(&s->sequence);
    assert_false(spry_kv_cache_make_room(cache, cache->pool->n_pages));
    assert_int_equal(cache->figures.pages, 1);
}

/* Only one page from the middle is still known: rows before it are computed, its own are not, and the order holds. */
static void gaps_are_filled(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 10);
    static const uint32_t chunks[] = {1, 7, 40, 200};
    logits *cold = calloc(COUNT, sizeof *cold), *warm = calloc(COUNT, sizeof *warm);
    assert_true(cold && warm);
    for (size_t i = 0; i < SPRY_COUNT(chunks); i++) {
        spry_engine *engine = scene_engine(model, CONTEXT, chunks[i], 0);
        spry_session *s = fixture_session(engine);
        rows r = {cold, 0};
        assert_int_equal(spry_session_eval_rows(s, ids, COUNT, keep_row, &r, NULL), SPRY_OK);
        leave_one_page(s, ids, COUNT, 2);
        size_t before = scene_hits(engine);
        r = (rows){warm, 150};
        assert_int_equal(spry_session_eval_from(s, ids, COUNT, 150, keep_row, &r, NULL), SPRY_OK);
        assert_int_equal(r.next, COUNT);
        assert_int_equal(scene_hits(engine) - before, PAGE);
        assert_memory_equal(cold + 150, warm + 150, 50 * sizeof *cold);
        spry_session_destroy(s);
        spry_engine_close(engine); /* with a page pinned */
    }
    free(cold);
    free(warm);
}

/* One row, as the scheduler would run it. */
static void step(spry_session *s, int32_t id)
{
    spry_segment segments[4];
    size_t n;
    assert_int_equal(spry_sequence_append(&s->sequence, &id, 1, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_pending(&s->sequence), 1);
    assert_int_equal(spry_sequence_fill(&s->sequence, segments, &n, 4, 8, 0, 1, NULL), SPRY_OK);
    assert_true(n == 1 && segments[0].n_rows == 1);
    assert_int_equal(step_run(s->engine->device, segments, n, NULL), SPRY_OK);
    spry_sequence_computed(&s->sequence, 1, 0);
}

/* Rows that were appended, not computed, and taken back leave no trace in what is computed next. */
static void taking_back_before_computing(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 11);
    logits cold = scene_cold(model, CONTEXT, false, 0, ids, 70, NULL);
    spry_engine *engine = scene_engine(model, CONTEXT, 64, 0);
    spry_session *s = fixture_session(engine);
    scene_eval(s, ids, 68, NULL);
    const int32_t wrong[] = {3, 4, 5};
    assert_int_equal(spry_sequence_append(&s->sequence, ids + 68, 1, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_append(&s->sequence, wrong, 3, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_pending(&s->sequence), 4);
    spry_sequence_truncate(&s->sequence, 68);
    assert_int_equal(spry_sequence_pending(&s->sequence), 0);
    step(s, ids[68]);
    step(s, ids[69]);
    assert_memory_equal(step_logits(engine->device, 0, 1), cold.of, sizeof cold.of);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* The same when a piece of the prompt before the gap has been computed and the one after it was not. */
static void taking_back_after_a_gap(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 12);
    logits cold = scene_cold(model, CONTEXT, false, 0, ids, 2 * PAGE + 1, NULL);
    spry_engine *engine = scene_engine(model, CONTEXT, 2 * PAGE, 0);
    spry_session *s = fixture_session(engine);
    leave_one_page(s, ids, COUNT, 2);
    const spry_prompt prompt = {.ids = ids, .count = COUNT, .compute_from = COUNT - 1};
    spry_found found;
    spry_segment segments[4];
    size_t n;
    assert_int_equal(spry_sequence_begin(&s->sequence, &found, &prompt, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_fill(&s->sequence, segments, &n, 4, 2 * PAGE, COUNT, 1, NULL), SPRY_OK);
    assert_true(n == 1 && segments[0].n_rows == 2 * PAGE);
    assert_int_equal(step_run(engine->device, segments, n, NULL), SPRY_OK);
    spry_sequence_computed(&s->sequence, 2 * PAGE, 0);
    spry_sequence_truncate(&s->sequence, 2 * PAGE);
    assert_int_equal(spry_sequence_pending(&s->sequence), 0);
    step(s, ids[2 * PAGE]);
    assert_memory_equal(step_logits(engine->device, 0, 1), cold.of, sizeof cold.of);
    spry_session_destroy(s);
    spry_engine_close(engine); /* with a page pinned */
}

/* Computes rows that the next tokens may take back. */
static void step_drafts(spry_session *s, const int32_t *ids, size_t count)
{
    spry_segment segments[4];
    size_t n;
    assert_int_equal(spry_sequence_append(&s->sequence, ids, count, NULL), SPRY_OK);
    assert_int_equal(spry_sequence_fill(&s->sequence, segments, &n, 4, count, SIZE_MAX, 1, NULL), SPRY_OK);
    assert_int_equal(step_run(s->engine->device, segments, n, NULL), SPRY_OK);
    spry_sequence_computed(&s->sequence, count, count);
    assert_int_equal(spry_sequence_pending(&s->sequence), 0);
}

/* Drafts that fill a page and are refused leave no page in the cache, so that the next token needs no copy. */
static void refused_drafts_are_not_cached(void **state)
{
    (void)state;
    enum { HELD = CONTEXT - 6 };
    int32_t ids[CONTEXT];
    const int32_t wrong[] = {3, 4, 5, 6, 7, 8};
    fixture_ids(ids, CONTEXT, 13);
    logits cold = scene_cold(model, CONTEXT, false, 0, ids, HELD + 1, NULL);
    spry_engine *engine = scene_engine(model, CONTEXT, 64, CONTEXT / PAGE);
    spry_session *s = fixture_session(engine);
    scene_eval(s, ids, HELD, NULL);
    size_t cached = engine->cache.figures.pages;
    assert_int_equal(cached, CONTEXT / PAGE - 1);
    step_drafts(s, wrong, SPRY_COUNT(wrong));
    assert_int_equal(engine->cache.figures.pages, cached);
    spry_sequence_truncate(&s->sequence, HELD);
    step(s, ids[HELD]);
    assert_memory_equal(step_logits(engine->device, 0, 1), cold.of, sizeof cold.of);
    step_drafts(s, ids + HELD + 1, CONTEXT - HELD - 2); /* these stay; their page is cached when it is certain */
    step(s, ids[CONTEXT - 1]);
    assert_int_equal(engine->cache.figures.pages, CONTEXT / PAGE);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* A session resumes with all of a pool, of which the last page is in the cache, too: its next token needs no copy. */
static void resuming_needs_no_page(void **state)
{
    (void)state;
    enum { HELD = CONTEXT - 6 };
    int32_t ids[CONTEXT];
    spry_found found;
    fixture_ids(ids, CONTEXT, 14);
    logits cold = scene_cold(model, CONTEXT, false, 0, ids, HELD + 1, NULL);
    spry_engine *engine = scene_engine(model, CONTEXT, 64, CONTEXT / PAGE);
    spry_session *s = fixture_session(engine);
    scene_eval(s, ids, HELD, NULL);
    spry_sequence_release(&s->sequence);
    const spry_prompt all = {.ids = ids, .count = HELD, .compute_from = HELD};
    assert_int_equal(spry_sequence_begin(&s->sequence, &found, &all, NULL), SPRY_OK);
    assert_int_equal(found.reused, HELD);
    assert_int_equal(engine->pool.n_free, 0);
    step(s, ids[HELD]);
    assert_memory_equal(step_logits(engine->device, 0, 1), cold.of, sizeof cold.of);
    /* A pinned page stays in the cache: there is no page for a copy then. */
    spry_sequence_release(&s->sequence);
    assert_int_equal(spry_sequence_begin(&s->sequence, &found, &all, NULL), SPRY_OK);
    assert_int_equal(spry_kv_cache_pin(&engine->cache, &s->sequence.table, true), HELD);
    assert_int_equal(spry_sequence_append(&s->sequence, ids + HELD, 1, NULL), SPRY_ERR_CONTEXT);
    assert_true(s->sequence.starved);
    assert_int_equal(spry_kv_cache_pin(&engine->cache, &s->sequence.table, false), HELD);
    step(s, ids[HELD]);
    assert_memory_equal(step_logits(engine->device, 0, 1), cold.of, sizeof cold.of);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginnings_are_shared),
        cmocka_unit_test(a_conversation_goes_on),
        cmocka_unit_test(stopping_leaves_nothing_wrong),
        cmocka_unit_test(salts_share_nothing),
        cmocka_unit_test(pinned_text_survives),
        cmocka_unit_test(too_small_a_pool_is_refused),
        cmocka_unit_test(one_window_is_enough_for_one_session),
        cmocka_unit_test(pages_on_their_way_to_disk_make_room),
        cmocka_unit_test(sessions_compete),
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(taking_back_before_computing),
        cmocka_unit_test(taking_back_after_a_gap),
        cmocka_unit_test(refused_drafts_are_not_cached),
        cmocka_unit_test(resuming_needs_no_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
