/* The cache of pages, case by case: what is found, what stays, what goes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/hostile.h"
#include "support/kv_scene.h"

enum { PAGE = SPRY_PAGE_TOKENS, LONG = 8 * PAGE };

static void count_up(int32_t *tokens, size_t count, int32_t first)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = first + (int32_t)i;
}

/* Pages of these tokens that are found one after the other, from the beginning. */
static size_t found_pages(kv_scene *s, const int32_t *tokens, size_t n_pages)
{
    spry_kv_key parent = s->root;
    size_t i = 0;
    for (uint32_t page; i < n_pages && spry_kv_cache_find(&s->cache, &page, parent, tokens + i * PAGE, PAGE, s->now);
         i++)
        parent = spry_kv_key_page(parent, tokens + i * PAGE, PAGE);
    return i;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void keys_of_every_kind_differ(void **state)
{
    (void)state;
    const spry_kv_key f = {1, 2}, zero = {0, 0};
    int32_t tokens[PAGE] = {0};
    spry_kv_key keys[PAGE + 9];
    size_t n = 0;
    keys[n++] = spry_kv_key_root(f, NULL, 0);
    keys[n++] = spry_kv_key_root(f, "", 1);
    keys[n++] = spry_kv_key_root(f, "a", 1);
    keys[n++] = spry_kv_key_root(f, "ab", 2);
    keys[n++] = spry_kv_key_root(zero, "a", 1);
    keys[n++] = spry_kv_key_span_root(keys[0]);
    keys[n++] = spry_kv_key_link(keys[0], keys[1]);
    keys[n++] = spry_kv_key_link(keys[1], keys[0]);
    for (size_t count = 1; count <= PAGE; count++) /* the same token, one more each time */
        keys[n++] = spry_kv_key_page(keys[0], tokens, count);
    tokens[PAGE - 1] = 1;
    keys[n++] = spry_kv_key_page(keys[0], tokens, PAGE);
    assert_int_equal(n, SPRY_COUNT(keys));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(spry_kv_key_equal(keys[i], keys[k]));
    assert_true(spry_kv_key_equal(keys[2], spry_kv_key_root(f, "a", 1)));
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static void beginnings_are_found(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[70], other[70];
    uint32_t page, first;
    count_up(tokens, 70, 1);
    scene_open(&s, 8, NULL);
    scene_learn(&s, tokens, 70, &first);
    assert_int_equal(found_pages(&s, tokens, 2), 2);
    spry_kv_key second = spry_kv_key_page(s.root, tokens, PAGE), third = spry_kv_key_page(second, tokens + PAGE, PAGE);
    /* The last page has 6 tokens: found whole, and by its beginnings, but never as more than it is. */
    assert_true(spry_kv_cache_find(&s.cache, &page, third, tokens + 64, 6, s.now));
    assert_false(spry_kv_cache_find(&s.cache, &page, third, tokens + 64, 5, s.now));
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, third, tokens + 64, 4, s.now), 4);
    memcpy(other, tokens, sizeof other);
    other[69] = -1;
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, third, other + 64, 6, s.now), 5);
    other[40] = -1;
    assert_false(spry_kv_cache_find(&s.cache, &page, second, other + PAGE, PAGE, s.now));
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, second, other + PAGE, PAGE, s.now), 8);
    other[0] = -1;
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, s.root, other, PAGE, s.now), 0);
    /* The same text after another root is another text. */
    assert_false(spry_kv_cache_find(&s.cache, &page, spry_kv_key_root(s.root, "salt", 4), tokens, PAGE, s.now));
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, (spry_kv_key){0, 0}, tokens, PAGE, s.now), 0);
    scene_close(&s);
}

static void the_longest_of_several(void **state)
{
    (void)state;
    kv_scene s;
    int32_t texts[3][PAGE], wanted[PAGE];
    uint32_t pages[3], page = 0;
    scene_open(&s, 8, NULL);
    count_up(wanted, PAGE, 1);
    for (size_t i = 0; i < 3; i++) {
        count_up(texts[i], PAGE, 1);
        texts[i][(const size_t[]){9, 25, 17}[i]] = -1;
        scene_learn(&s, texts[i], PAGE, &pages[i]);
    }
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, s.root, wanted, PAGE, s.now), 25);
    assert_int_equal(page, pages[1]);
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, s.root, wanted, 20, s.now), 20);
    assert_int_equal(page, pages[1]);
    scene_close(&s);
}

/* ---- making known ------------------------------------------------------------------------------------------------ */

static void only_what_is_computed_and_whole_becomes_known(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 8, NULL);
    scene_extend(&s, &t, 100);
    for (size_t computed = 0; computed <= 100; computed += 10) {
        spry_kv_cache_publish(&s.cache, &t, s.root, tokens, computed, s.now);
        assert_int_equal(s.cache.figures.pages, computed / PAGE);
    }
    spry_kv_table_close(&t);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 99, s.now);
    assert_int_equal(s.cache.figures.pages, 3);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 100, s.now);
    assert_int_equal(s.cache.figures.pages, 4);
    /* The next tokens follow the 4 tokens of a closed page. */
    scene_extend(&s, &t, PAGE);
    assert_int_equal(t.entries[4].start, 100);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 100 + PAGE, s.now);
    uint32_t page;
    assert_true(spry_kv_cache_find(&s.cache, &page, t.marks[3].key, tokens + 100, PAGE, s.now));
    assert_int_equal(page, t.entries[4].page);
    assert_int_equal(found_pages(&s, tokens, 8), 3);
    scene_release(&s, &t, tokens);
    scene_close(&s);
}

static void the_same_computed_twice_is_kept_once(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_kv_table a = {0}, b = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 8, NULL);
    scene_extend(&s, &a, 80);
    scene_extend(&s, &b, 70);
    spry_kv_cache_publish(&s.cache, &a, s.root, tokens, 80, s.now);
    assert_int_equal(s.pool.n_free, 2);
    spry_kv_cache_publish(&s.cache, &b, s.root, tokens, 70, s.now);
    assert_int_equal(s.pool.n_free, 4);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(a.entries[i].page, b.entries[i].page);
        assert_int_equal(s.pool.references[a.entries[i].page], 3);
    }
    assert_int_equal(s.cache.figures.inserted, 2);
    scene_release(&s, &b, tokens); /* 6 tokens of the third page */
    assert_int_equal(s.cache.figures.pages, 3);
    scene_release(&s, &a, tokens); /* and 16 of it: the shorter one is of no more use */
    assert_int_equal(s.cache.figures.pages, 3);
    assert_int_equal(s.pool.n_free, 5);
    scene_close(&s);
}

/* A shorter page that is pinned is not replaced. */
static void a_shorter_page_in_use_stays(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[PAGE];
    uint32_t page;
    spry_kv_table t = {0};
    count_up(tokens, PAGE, 1);
    scene_open(&s, 4, NULL);
    scene_learn(&s, tokens, 10, &page);
    assert_int_equal(spry_kv_table_init(&t, 64, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_append(&t, &s.pool, page, 10, 0, &(spry_kv_mark){0}, NULL), SPRY_OK);
    scene_learn(&s, tokens, 20, NULL);
    assert_int_equal(s.cache.figures.pages, 2);
    assert_true(spry_kv_cache_knows(&s.cache, page));
    /* It is a view of the longer one's beginning no more than before; to go on, it copies. */
    scene_extend(&s, &t, 1);
    assert_int_not_equal(t.entries[0].page, page);
    scene_release(&s, &t, tokens);
    scene_close(&s);
}

/* The first tokens of a known page, held by a table that ends there: nothing new, and never known as something else. */
static void a_view_of_a_longer_page_is_not_inserted(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[PAGE];
    uint32_t page, found;
    spry_kv_table t = {0};
    count_up(tokens, PAGE, 1);
    scene_open(&s, 4, NULL);
    scene_learn(&s, tokens, PAGE, &page);
    assert_int_equal(spry_kv_table_init(&t, 64, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_append(&t, &s.pool, page, 20, 0, &(spry_kv_mark){0}, NULL), SPRY_OK);
    scene_release(&s, &t, tokens);
    assert_int_equal(s.cache.figures.inserted, 1);
    assert_int_equal(s.pool.references[page], 1);
    assert_false(spry_kv_cache_find(&s.cache, &found, s.root, tokens, 20, s.now));
    assert_true(spry_kv_cache_find(&s.cache, &found, s.root, tokens, PAGE, s.now));
    scene_close(&s);
}

/* A table that was cut in a known page holds less than the page's key says, until it goes on in a copy. */
static void cutting_forgets_the_key(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG], other[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    count_up(other, LONG, 1);
    other[40] = -1;
    scene_open(&s, 8, NULL);
    scene_extend(&s, &t, 64);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 64, s.now);
    uint32_t second = t.entries[1].page;
    spry_kv_table_truncate(&t, &s.pool, 40);
    assert_false(t.marks[1].cached);
    scene_extend(&s, &t, 24);
    assert_int_not_equal(t.entries[1].page, second);
    spry_kv_cache_publish(&s.cache, &t, s.root, other, 64, s.now);
    assert_int_equal(found_pages(&s, tokens, 2), 2);
    assert_int_equal(found_pages(&s, other, 2), 2);
    scene_release(&s, &t, other);
    scene_close(&s);
}

/* A known page of fewer tokens that a table goes on in is no longer what its key says. */
static void going_on_forgets_the_key(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[PAGE];
    uint32_t page;
    spry_kv_table t = {0};
    count_up(tokens, PAGE, 1);
    scene_open(&s, 4, NULL);
    scene_learn(&s, tokens, 10, &page);
    const spry_kv_mark mark = {.key = spry_kv_key_page(s.root, tokens, 10), .cached = true};
    assert_int_equal(spry_kv_table_init(&t, 64, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_append(&t, &s.pool, page, 10, 0, &mark, NULL), SPRY_OK);
    scene_extend(&s, &t, PAGE - 10);
    assert_false(t.marks[0].cached);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, PAGE, s.now);
    assert_int_equal(found_pages(&s, tokens, 1), 1);
    scene_release(&s, &t, tokens);
    scene_close(&s);
}

/* Pages used at other positions are not shared, and neither are the pages after them. */
static void moved_pages_are_not_made_known(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    size_t dropped;
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 8, NULL);
    scene_extend(&s, &t, 4 * PAGE);
    assert_int_equal(spry_kv_table_slide(&t, &s.pool, 1, 1, 0, &dropped, NULL), SPRY_OK);
    assert_int_equal(dropped, PAGE);
    scene_extend(&s, &t, PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, t.n_tokens, s.now);
    assert_int_equal(s.cache.figures.pages, 1);
    scene_release(&s, &t, tokens);
    assert_int_equal(s.cache.figures.pages, 1);
    scene_close(&s);
}

/* ---- what goes, and when ----------------------------------------------------------------------------------------- */

/* Leaves go first: a page whose parent is gone cannot be found. */
static void what_others_build_on_goes_last(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG], other[LONG];
    count_up(tokens, LONG, 1);
    count_up(other, LONG, 1000);
    scene_open(&s, 8, NULL);
    scene_learn(&s, tokens, 4 * PAGE, NULL);
    scene_learn(&s, other, 4 * PAGE, NULL);
    assert_int_equal(found_pages(&s, other, 2), 2); /* used last: its first two pages */
    for (size_t gone = 1; gone <= 4; gone++) {
        assert_true(spry_kv_cache_make_room(&s.cache, gone));
        assert_int_equal(s.pool.n_free, gone);
    }
    assert_int_equal(found_pages(&s, tokens, 4), 0);
    assert_int_equal(found_pages(&s, other, 4), 4);
    assert_int_equal(s.cache.figures.evicted, 4);
    scene_close(&s);
    scene_open(&s, 8, NULL);
    scene_learn(&s, tokens, 4 * PAGE, NULL);
    assert_true(spry_kv_cache_make_room(&s.cache, 7));
    assert_int_equal(found_pages(&s, tokens, 4), 1);
    scene_close(&s);
}

static void time_makes_pages_go(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 8, &(spry_kv_cache_options){.max_bytes = SIZE_MAX, .ttl_ns = 100});
    scene_learn(&s, tokens, 2 * PAGE, NULL);
    spry_kv_cache_tidy(&s.cache, s.now);       /* a clock that does not move */
    spry_kv_cache_tidy(&s.cache, 0);           /* goes back */
    spry_kv_cache_tidy(&s.cache, s.now + 100); /* and is not late yet */
    assert_int_equal(s.cache.figures.pages, 2);
    s.now += 60;
    assert_int_equal(found_pages(&s, tokens, 1), 1); /* used again */
    spry_kv_cache_tidy(&s.cache, s.now + 41);
    assert_int_equal(s.cache.figures.pages, 1);
    assert_int_equal(s.cache.figures.expired, 1);
    scene_extend(&s, &t, PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, PAGE, s.now);
    spry_kv_cache_tidy(&s.cache, UINT64_MAX); /* in use, it has all the time */
    assert_int_equal(s.cache.figures.pages, 1);
    scene_release(&s, &t, tokens);
    spry_kv_cache_tidy(&s.cache, UINT64_MAX);
    assert_int_equal(s.cache.figures.pages, 0);
    assert_int_equal(s.pool.n_free, 8);
    scene_close(&s);
}

static void bytes_are_limited(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 8, NULL);
    for (size_t most = 4; most + 1 > 0; most--) {
        scene_learn(&s, tokens, 4 * PAGE, NULL);
        s.cache.options.max_bytes = most * s.pool.page_bytes + s.pool.page_bytes - 1; /* part of a page is no page */
        spry_kv_cache_tidy(&s.cache, s.now);
        assert_int_equal(s.cache.figures.pages, most);
        assert_int_equal(found_pages(&s, tokens, 4), most);
    }
    s.cache.options.max_bytes = 0;
    scene_extend(&s, &t, 2 * PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 2 * PAGE, s.now);
    spry_kv_cache_tidy(&s.cache, s.now);
    assert_int_equal(s.cache.figures.pages, 2); /* in use */
    scene_release(&s, &t, tokens);
    spry_kv_cache_tidy(&s.cache, s.now);
    assert_int_equal(s.pool.n_free, 8);
    scene_close(&s);
}

/* The newest pages stay, pages in use do not count as cached ones that must go, and the memory of the rest returns. */
static void an_idle_cache_shrinks(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG], other[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    count_up(other, LONG, 1000);
    scene_open(&s, 8, NULL);
    scene_learn(&s, tokens, 3 * PAGE, NULL);
    scene_learn(&s, other, 3 * PAGE, NULL);
    assert_int_equal(s.pool.n_held, 6);
    spry_kv_cache_shrink(&s.cache, 4, s.now);
    assert_int_equal(s.cache.figures.evicted, 2);
    assert_int_equal(s.pool.n_held, 4);
    assert_int_equal(found_pages(&s, other, 3), 3);
    assert_int_equal(found_pages(&s, tokens, 3), 1);
    scene_extend(&s, &t, 2 * PAGE);
    spry_kv_cache_shrink(&s.cache, 0, s.now);
    assert_int_equal(s.cache.figures.pages, 0);
    assert_int_equal(s.pool.n_held, 2); /* in use */
    scene_release(&s, &t, tokens);
    scene_close(&s);
}

static void pinned_pages_stay(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_kv_table t = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 4, &(spry_kv_cache_options){.max_bytes = 0, .ttl_ns = 1});
    scene_extend(&s, &t, 70);
    assert_int_equal(spry_kv_cache_pin(&s.cache, &t, true), 0); /* nothing of it is known yet */
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 70, s.now);
    spry_kv_table_close(&t);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 70, s.now);
    assert_int_equal(spry_kv_cache_pin(&s.cache, &t, true), 70); /* the last page has 6 */
    assert_int_equal(spry_kv_cache_pin(&s.cache, &t, true), 70);
    spry_kv_table same = t;
    spry_kv_entry entries[3];
    memcpy(entries, t.entries, sizeof entries);
    same.entries = entries;
    scene_release(&s, &t, tokens);
    for (int unpinned = 0; unpinned < 2; unpinned++) {
        spry_kv_cache_tidy(&s.cache, UINT64_MAX);
        assert_false(spry_kv_cache_make_room(&s.cache, 2));
        assert_int_equal(s.cache.figures.pages, 3);
        assert_int_equal(spry_kv_cache_pin(&s.cache, &same, false), 70);
    }
    assert_int_equal(spry_kv_cache_pin(&s.cache, &same, false), 0);
    assert_true(spry_kv_cache_make_room(&s.cache, 4));
    scene_close(&s);
}

static void a_full_pool_says_so(void **state)
{
    (void)state;
    kv_scene s;
    int32_t tokens[LONG];
    spry_error error = {0};
    spry_kv_table t = {0}, more = {0};
    count_up(tokens, LONG, 1);
    scene_open(&s, 4, NULL);
    scene_extend(&s, &t, 3 * PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, tokens, 3 * PAGE, s.now);
    assert_true(spry_kv_cache_make_room(&s.cache, 1));
    assert_false(spry_kv_cache_make_room(&s.cache, 2));
    assert_int_equal(spry_kv_table_init(&more, 4096, NULL), SPRY_OK);
    hostile_expect(spry_kv_table_extend(&more, &s.pool, PAGE + 1, &error), &error, SPRY_ERR_CONTEXT, "full|3 of 4");
    assert_int_equal(more.n_tokens, 0);
    scene_release(&s, &t, tokens);
    assert_false(spry_kv_cache_make_room(&s.cache, 5)); /* more than there are */
    assert_true(spry_kv_cache_make_room(&s.cache, 2));
    spry_kv_table_deinit(&more, &s.pool);
    scene_close(&s);
}

/* ---- distances --------------------------------------------------------------------------------------------------- */

static void distances_run_out(void **state)
{
    (void)state;
    kv_scene s;
    spry_kv_table t, moved = {0};
    spry_error error = {0};
    size_t dropped;
    scene_open(&s, 6, NULL);
    scene_extend(&s, &moved, 4 * PAGE);
    assert_int_equal(spry_kv_table_init(&t, 4096, NULL), SPRY_OK);
    const spry_kv_mark mark = {.closed = true, .foreign = true};
    for (size_t i = 1; i < SPRY_KV_TURNS_MAX; i++) /* each one token, further and further away */
        assert_int_equal(spry_kv_table_append(&t, &s.pool, 0, 1, 2 * i + 4000, &mark, NULL), SPRY_OK);
    hostile_expect(spry_kv_table_append(&t, &s.pool, 0, 1, 0, &mark, &error), &error, SPRY_ERR_CONTEXT, "1024");
    assert_int_equal(t.n_tokens, SPRY_KV_TURNS_MAX - 1);
    assert_int_equal(s.pool.references[0], SPRY_KV_TURNS_MAX);
    hostile_expect(spry_kv_table_slide(&moved, &s.pool, 1, 1, 0, &dropped, &error), &error, SPRY_ERR_CONTEXT, "1024");
    assert_int_equal(moved.n_entries, 4);
    /* The last three entries of the first table move to distances that are there; those before do not. */
    for (uint32_t i = 1; i < SPRY_KV_TURNS_MAX; i++)
        assert_int_equal(s.pool.turns.references[i], 1);
    spry_kv_table_truncate(&t, &s.pool, 500);
    assert_int_equal(spry_kv_table_slide(&moved, &s.pool, 1, 1, 0, &dropped, NULL), SPRY_OK);
    for (size_t i = 1; i < 3; i++)
        assert_int_equal(s.pool.turns.deltas[moved.entries[i].turn], -PAGE);
    assert_int_equal(s.pool.turns.references[moved.entries[1].turn], 2);
    spry_kv_table_deinit(&t, &s.pool);
    spry_kv_table_deinit(&moved, &s.pool);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_every_kind_differ),
        cmocka_unit_test(beginnings_are_found),
        cmocka_unit_test(the_longest_of_several),
        cmocka_unit_test(only_what_is_computed_and_whole_becomes_known),
        cmocka_unit_test(the_same_computed_twice_is_kept_once),
        cmocka_unit_test(a_shorter_page_in_use_stays),
        cmocka_unit_test(a_view_of_a_longer_page_is_not_inserted),
        cmocka_unit_test(cutting_forgets_the_key),
        cmocka_unit_test(going_on_forgets_the_key),
        cmocka_unit_test(moved_pages_are_not_made_known),
        cmocka_unit_test(what_others_build_on_goes_last),
        cmocka_unit_test(time_makes_pages_go),
        cmocka_unit_test(bytes_are_limited),
        cmocka_unit_test(an_idle_cache_shrinks),
        cmocka_unit_test(pinned_pages_stay),
        cmocka_unit_test(a_full_pool_says_so),
        cmocka_unit_test(distances_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
