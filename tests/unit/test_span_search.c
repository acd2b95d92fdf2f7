/* Text that was cached after other text is found by its tokens, at any offset, without a declaration: only where the
 * engine was opened for it, only under the same salt, and only where the tokens are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine/sequence.h"
#include "kv/kv_key.h"
#include "support/kv_scene.h"
#include "support/sequence_scene.h"

enum { CONTEXT = 512, PAGE = SPRY_PAGE_TOKENS, DOCUMENT = 200 };

/* ---- pages by their tokens --------------------------------------------------------------------------------------- */

static const spry_kv_cache_options with_contents = {.max_bytes = SIZE_MAX, .contents = true};

static void test_hash_rolls(void **state)
{
    (void)state;
    int32_t ids[10 * PAGE];
    fixture_ids(ids, SPRY_COUNT(ids), 5);
    ids[40] = INT32_MAX;
    uint64_t hash = spry_kv_content(ids);
    for (size_t i = 1; i + PAGE <= SPRY_COUNT(ids); i++) {
        hash = spry_kv_content_roll(hash, ids + i - 1);
        assert_int_equal(hash, spry_kv_content(ids + i));
    }
}

static size_t run_length(kv_scene *s, spry_kv_key root, uint64_t content, const int32_t *tokens, size_t count)
{
    uint32_t pages[8];
    size_t n = spry_kv_cache_run(&s->cache, pages, root, content, tokens, count, ++s->now);
    for (size_t i = 0; i < n; i++)
        spry_kv_page_unref(&s->pool, pages[i]);
    return n;
}

static void test_runs(void **state)
{
    (void)state;
    kv_scene s;
    int32_t ids[6 * PAGE], other[6 * PAGE];
    const spry_kv_key stranger = {1, 2};
    fixture_ids(ids, SPRY_COUNT(ids), 5);
    fixture_ids(other, SPRY_COUNT(other), 6);
    scene_open(&s, 16, &with_contents);
    scene_learn(&s, ids, 5 * PAGE + 7, NULL);
    const int32_t *second = ids + PAGE;
    uint64_t content = spry_kv_content(second);
    assert_int_equal(run_length(&s, s.root, content, second, 5 * PAGE), 4); /* the last page is not full */
    assert_int_equal(run_length(&s, s.root, content, second, 3 * PAGE - 1), 2);
    assert_int_equal(run_length(&s, s.root, spry_kv_content(ids + 3), ids + 3, 5 * PAGE), 0);
    assert_int_equal(run_length(&s, stranger, content, second, 5 * PAGE), 0);
    /* A collision: other tokens of the same hash. */
    assert_int_equal(run_length(&s, s.root, content, other, 5 * PAGE), 0);
    /* A run ends where the text does. */
    memcpy(other, second, 3 * PAGE * sizeof *other);
    other[2 * PAGE + 5]++;
    assert_int_equal(run_length(&s, s.root, content, other, 5 * PAGE), 2);
    /* What is evicted is not found. */
    assert_true(spry_kv_cache_make_room(&s.cache, s.pool.n_pages));
    assert_int_equal(run_length(&s, s.root, content, second, 5 * PAGE), 0);
    scene_close(&s);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static spry_engine *open_engine(const char *model, uint32_t span_pages, size_t pages)
{
    spry_engine_options options;
    spry_engine *plain = scene_engine(model, CONTEXT, 64, 0);
    spry_kv_figures figures;
    spry_engine_kv_figures(plain, &figures);
    spry_engine_close(plain);
    spry_engine_options_default(&options);
    options.threads = 1;
    options.sessions = pages ? 1 : 8;
    options.context = CONTEXT;
    options.chunk = 64;
    options.kv_bytes = pages ? pages * figures.page_bytes : 4 << 20;
    options.span_pages = span_pages;
    return fixture_open(model, &options);
}

typedef struct text {
    int32_t ids[CONTEXT];
    size_t count;
} text;

/* A number of tokens, the document from `skip` on, a number of tokens; a seed for each text. */
static text make_text(size_t before, uint32_t seed, size_t skip, size_t after, uint32_t last)
{
    text t = {.count = before};
    int32_t document[DOCUMENT];
    fixture_ids(document, DOCUMENT, 777);
    fixture_ids(t.ids, before, seed);
    memcpy(t.ids + t.count, document + skip, (DOCUMENT - skip) * sizeof *document);
    t.count += DOCUMENT - skip;
    fixture_ids(t.ids + t.count, after, last);
    t.count += after;
    return t;
}

static logits eval(spry_session *s, const text *t, size_t repair)
{
    const fragments none = {.repair = repair};
    return scene_eval(s, t->ids, t->count, &none);
}

static spry_kv_figures figures_of(spry_engine *engine)
{
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    return figures;
}

static void finds_text_anywhere(const char *model)
{
    spry_engine *engine = open_engine(model, 2, 0);
    spry_session *s = fixture_session(engine), *salted = fixture_session(engine);
    const text first = make_text(40, 1, 0, 9, 2), moved = make_text(13, 3, 0, 11, 4);
    spry_session_set_salt(salted, "x", 1);
    eval(s, &first, 0);
    spry_kv_figures before = figures_of(engine);
    assert_int_equal(before.span_tokens, 0);
    eval(salted, &moved, 0);
    assert_int_equal(figures_of(engine).span_tokens, 0);
    before = figures_of(engine);
    logits found = eval(s, &moved, 0);
    spry_kv_figures after = figures_of(engine);
    /* The document begins in the page that ends at 64: 24 of its tokens come before whole pages, and 16 after them. */
    assert_int_equal(after.span_tokens - before.span_tokens, 5 * PAGE);
    assert_int_equal(after.hit_tokens - before.hit_tokens, 5 * PAGE);
    before = after;
    logits again = eval(s, &moved, 0);
    scene_same(&found, &again);
    assert_in_range(figures_of(engine).hit_tokens - before.hit_tokens, moved.count - PAGE, moved.count);
    before = figures_of(engine);
    eval(s, &moved, 2 * PAGE);
    assert_int_equal(figures_of(engine).span_tokens - before.span_tokens, 3 * PAGE);
    /* Nothing known, or all of it to be computed: the bits of an engine that does not look. */
    const text fresh = make_text(50, 8, DOCUMENT - 20, 60, 9);
    logits plain = scene_cold(model, CONTEXT, false, 0, fresh.ids, fresh.count, NULL), got = eval(s, &fresh, 0);
    scene_same(&plain, &got);
    plain = scene_cold(model, CONTEXT, false, 0, moved.ids, moved.count, NULL);
    got = eval(s, &moved, SPRY_REPAIR_ALL);
    scene_same(&plain, &got);
    assert_true(memcmp(&plain, &found, sizeof plain) != 0);
    spry_session_destroy(s);
    spry_session_destroy(salted);
    scene_close_engine(engine);
}

static void test_text_is_found_anywhere(void **state)
{
    (void)state;
    finds_text_anywhere("llama");
    finds_text_anywhere("gemma2");
}

static void test_short_text_is_not(void **state)
{
    (void)state;
    const text first = make_text(40, 1, 0, 9, 2), moved = make_text(13, 3, 0, 11, 4);
    for (uint32_t pages = 0; pages <= 6; pages += 6) { /* not at all; more than there are */
        spry_engine *engine = open_engine("llama", pages, 0);
        spry_session *s = fixture_session(engine);
        eval(s, &first, 0);
        logits plain = scene_cold("llama", CONTEXT, false, 0, moved.ids, moved.count, NULL), got = eval(s, &moved, 0);
        scene_same(&plain, &got);
        assert_int_equal(figures_of(engine).span_tokens, 0);
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* Declared fragments are found too, and a prompt that declares its own is not searched. */
static void test_declared_fragments(void **state)
{
    (void)state;
    spry_engine *engine = open_engine("llama", 2, 0);
    spry_session *s = fixture_session(engine);
    const text first = make_text(40, 1, 0, 9, 2), moved = make_text(13, 3, 0, 11, 4);
    const fragments declared = {.spans = {{40, 40 + DOCUMENT}}, .n_spans = 1};
    scene_eval(s, first.ids, first.count, &declared);
    spry_kv_figures before = figures_of(engine);
    eval(s, &moved, 0);
    assert_int_equal(figures_of(engine).span_tokens - before.span_tokens, DOCUMENT / PAGE * PAGE);
    spry_session_destroy(s);
    scene_close_engine(engine);
}

/* A pool with hardly more room than the prompt: what is found may be evicted, and the prompt is computed all the same.
 */
static void test_little_room(void **state)
{
    (void)state;
    for (size_t pages = 16; pages < 20; pages++) {
        spry_engine *engine = open_engine("llama", 1, pages);
        spry_session *s = fixture_session(engine);
        for (uint32_t i = 0; i < 6; i++) {
            const text t = make_text(7 + 41 * i, i, i, 13, 90 + i);
            eval(s, &t, i % 2 ? 0 : PAGE);
        }
        spry_session_destroy(s);
        scene_close_engine(engine);
    }
}

/* More repair never costs more, nothing reused costs nothing, and a bound is met by the share that it asks for. */
static void test_estimate(void **state)
{
    (void)state;
    for (int start = 0; start < 2; start++) {
        double last = 1;
        for (size_t repaired = 0; repaired <= 1000; repaired += 10) {
            double now = spry_span_divergence(1000 - repaired, repaired, 1000, start);
            assert_true(now >= 0 && now <= last);
            assert_true(spry_span_share(now + 1e-9, start) <= (double)repaired / 1000 + 1e-9);
            last = now;
        }
        assert_true(spry_span_divergence(0, 0, 100, start) == 0 && last == 0);
        assert_true(spry_span_divergence(100, 0, 1000, start) < spry_span_divergence(1000, 0, 1000, start));
        assert_true(spry_span_share(1, start) == 0 && spry_span_share(0, start) == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_rolls),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_text_is_found_anywhere),
        cmocka_unit_test(test_short_text_is_not),
        cmocka_unit_test(test_declared_fragments),
        cmocka_unit_test(test_little_room),
        cmocka_unit_test(test_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
