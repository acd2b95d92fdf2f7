/* The cache under the worst of hashes: this program replaces the functions of kv_key.h by its own, by which all pages
 * after one parent have the same key. Tokens alone must keep them apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/kv_scene.h"

enum { PAGE = SPRY_PAGE_TOKENS, N = 20 };

spry_kv_key __wrap_spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size);
spry_kv_key __wrap_spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count);
spry_kv_key __wrap_spry_kv_key_span_root(spry_kv_key root);
spry_kv_key __wrap_spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page);

spry_kv_key __wrap_spry_kv_key_root(spry_kv_key fingerprint, const void *salt, size_t salt_size)
{
    (void)salt;
    (void)salt_size;
    return fingerprint;
}

spry_kv_key __wrap_spry_kv_key_page(spry_kv_key parent, const int32_t *tokens, size_t count)
{
    (void)tokens;
    (void)count;
    return (spry_kv_key){parent.low, parent.high + 1};
}

spry_kv_key __wrap_spry_kv_key_span_root(spry_kv_key root)
{
    return root;
}

spry_kv_key __wrap_spry_kv_key_link(spry_kv_key parent, spry_kv_key span_page)
{
    (void)span_page;
    return parent;
}

static void tokens_keep_pages_apart(void **state)
{
    (void)state;
    kv_scene s;
    int32_t texts[N][PAGE];
    uint32_t pages[N], found;
    scene_open(&s, N + 1, NULL);
    for (int32_t i = 0; i < N; i++) {
        for (int32_t k = 0; k < PAGE; k++)
            texts[i][k] = k == i ? 100 + i : k;
        scene_learn(&s, texts[i], PAGE, &pages[i]);
    }
    assert_int_equal(s.cache.figures.pages, N);
    for (size_t i = 0; i < N; i++) {
        assert_true(spry_kv_cache_find(&s.cache, &found, s.root, texts[i], PAGE, s.now));
        assert_int_equal(found, pages[i]);
        assert_int_equal(spry_kv_cache_longest(&s.cache, &found, s.root, texts[i], PAGE, s.now), PAGE);
        assert_int_equal(found, pages[i]);
        assert_false(spry_kv_cache_find(&s.cache, &found, s.root, texts[i], PAGE - 1, s.now));
    }
    int32_t other[PAGE];
    memcpy(other, texts[3], sizeof other);
    other[PAGE - 1] = -5;
    assert_false(spry_kv_cache_find(&s.cache, &found, s.root, other, PAGE, s.now));
    assert_false(spry_kv_cache_find(&s.cache, &found, (spry_kv_key){9, 9}, texts[0], PAGE, s.now));
    assert_int_equal(spry_kv_cache_longest(&s.cache, &found, s.root, other, PAGE, s.now), PAGE - 1);
    assert_int_equal(found, pages[3]);
    scene_close(&s);
}

/* A sequence that computes what is known takes the known page, and not its namesake. */
static void publishing_takes_no_namesake(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[PAGE] = {1}, b[PAGE] = {2};
    uint32_t page;
    spry_kv_table t = {0};
    scene_open(&s, 4, NULL);
    scene_learn(&s, a, PAGE, &page);
    scene_extend(&s, &t, PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, b, PAGE, s.now);
    assert_int_not_equal(t.entries[0].page, page);
    assert_int_equal(s.cache.figures.pages, 2);
    scene_release(&s, &t, b);
    scene_extend(&s, &t, PAGE);
    spry_kv_cache_publish(&s.cache, &t, s.root, a, PAGE, s.now);
    assert_int_equal(t.entries[0].page, page);
    assert_int_equal(s.cache.figures.pages, 2);
    scene_release(&s, &t, a);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_keep_pages_apart),
        cmocka_unit_test(publishing_takes_no_namesake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
