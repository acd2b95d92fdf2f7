/* The tier of host memory below the pool: pages that are evicted stay in the index, keep their bytes and come back. The
 * device here copies late: nothing moves before it has to, as on a GPU whose copies are behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kv/kv_key.h"
#include "support/disk_pages.h"
#include "support/kv_scene.h"

enum { PAGE = SPRY_PAGE_TOKENS, PAGES = 4, COPIES = 64 };

/* What the device was asked for, in order, and how much of it is done. */
static struct {
    struct {
        unsigned char *to;
        const unsigned char *from;
    } copies[COPIES];
    size_t n, done;
    size_t allocated, limit; /* pieces of memory: held, and that may be held at once */
    bool lost;               /* copies fail */
    spry_kv_pool *pool;
} device;

static void *allocate(void *self, size_t bytes)
{
    (void)self;
    if (device.allocated == device.limit)
        return NULL;
    device.allocated++;
    return malloc(bytes);
}

static void catch_up(void)
{
    for (; device.done < device.n; device.done++)
        memcpy(device.copies[device.done].to, device.copies[device.done].from, device.pool->page_bytes);
}

static void release(void *self, void *memory)
{
    (void)self;
    catch_up();
    device.allocated--;
    free(memory);
}

static uint64_t start(void *to, const void *from)
{
    if (device.lost)
        return 0;
    assert_true(device.n < COPIES);
    device.copies[device.n].to = to;
    device.copies[device.n].from = from;
    return ++device.n;
}

static uint64_t save(void *self, void *to, uint32_t page)
{
    return start(to, spry_host_page(self, page));
}

static bool load(void *self, uint32_t page, const void *from)
{
    return start(spry_host_page(self, page), from);
}

static bool saved(void *self, uint64_t copy)
{
    (void)self;
    return copy <= device.done;
}

/* A cache over PAGES pages with a tier of n pages. */
static void open_scene(kv_scene *s, size_t slots, spry_kv_cache_options options)
{
    scene_open(s, PAGES, NULL);
    spry_kv_cache_deinit(&s->cache);
    memset(&device, 0, sizeof device);
    device.limit = SIZE_MAX;
    device.pool = &s->pool;
    s->pool.mover.host_allocate = allocate;
    s->pool.mover.host_free = release;
    s->pool.mover.save = save;
    s->pool.mover.load = load;
    s->pool.mover.saved = saved;
    options.max_bytes = SIZE_MAX;
    options.host_bytes = slots * s->pool.page_bytes;
    assert_int_equal(spry_kv_cache_init(&s->cache, &s->pool, &options, NULL), SPRY_OK);
}

static void close_scene(kv_scene *s)
{
    scene_close(s);
    assert_int_equal(device.allocated, 0);
}

static void make_tokens(int32_t *tokens, size_t count, int32_t first)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = first + (int32_t)i;
}

static int stamp_of(int32_t token)
{
    return token * 7 & 0xff;
}

/* A sequence writes its pages, each with bytes that follow from its first token. */
static void learn(kv_scene *s, const int32_t *tokens, size_t count)
{
    spry_kv_table t = {0};
    assert_true(spry_kv_cache_make_room(&s->cache, (count + PAGE - 1) / PAGE));
    scene_extend(s, &t, count);
    catch_up(); /* the pages that are written were copied before */
    for (size_t i = 0; i < t.n_entries; i++)
        memset(pool_page(&s->pool, t.entries[i].page), stamp_of(tokens[i * PAGE]), s->pool.page_bytes);
    scene_release(s, &t, tokens);
}

static void evict_all(kv_scene *s)
{
    assert_true(spry_kv_cache_make_room(&s->cache, PAGES));
    assert_int_equal(s->cache.figures.pages, 0);
}

/* How many of the first pages of a text are found, with their bytes. */
static size_t found(kv_scene *s, const int32_t *tokens, size_t count)
{
    spry_kv_key parent = s->root;
    size_t n = 0;
    for (uint32_t page; n < count && spry_kv_cache_find(&s->cache, &page, parent, tokens, PAGE, ++s->now); n++) {
        assert_true(page < s->pool.n_pages);
        catch_up();
        const unsigned char *bytes = pool_page(&s->pool, page);
        for (size_t i = 0; i < s->pool.page_bytes; i++)
            assert_int_equal(bytes[i], stamp_of(*tokens));
        parent = spry_kv_key_page(parent, tokens, PAGE);
        tokens += PAGE;
    }
    return n;
}

static void evicted_pages_come_back(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[3 * PAGE + 5], b[4 * PAGE];
    make_tokens(a, 3 * PAGE + 5, 100);
    make_tokens(b, 4 * PAGE, 5000);
    open_scene(&s, 8, (spry_kv_cache_options){0});
    learn(&s, a, 3 * PAGE + 5); /* the last page has five tokens */
    learn(&s, b, 4 * PAGE);     /* which takes the place of all */
    assert_int_equal(s.cache.figures.host_pages, 4);
    assert_int_equal(s.cache.figures.evicted, 4);
    assert_int_equal(found(&s, a, 3), 3);
    assert_int_equal(s.cache.figures.host_loaded, 3);
    assert_int_equal(s.cache.figures.host_pages, 4); /* the short one, and three of b */
    spry_kv_key parent = s.root;
    for (size_t i = 0; i < 3; i++)
        parent = spry_kv_key_page(parent, a + i * PAGE, PAGE);
    uint32_t page;
    assert_int_equal(spry_kv_cache_longest(&s.cache, &page, parent, a + 3 * PAGE, 4, ++s.now), 4);
    assert_true(page < PAGES);
    catch_up();
    assert_int_equal(*pool_page(&s.pool, page), stamp_of(a[3 * PAGE]));
    assert_int_equal(found(&s, b, 4), 4);
    close_scene(&s);
}

static void a_full_tier_drops_the_oldest(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[2 * PAGE], b[2 * PAGE];
    make_tokens(a, 2 * PAGE, 100);
    make_tokens(b, 2 * PAGE, 5000);
    open_scene(&s, 3, (spry_kv_cache_options){0});
    learn(&s, a, 2 * PAGE);
    learn(&s, b, 2 * PAGE);
    evict_all(&s);
    assert_int_equal(s.cache.figures.host_pages, 3);
    assert_int_equal(device.allocated, 3);
    assert_int_equal(found(&s, b, 2), 2);
    assert_int_equal(found(&s, a, 2), 1); /* of a text the end goes first */
    close_scene(&s);
}

static void a_slot_is_used_again_while_it_is_copied(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[PAGE], b[PAGE];
    uint32_t page;
    make_tokens(a, PAGE, 100);
    make_tokens(b, PAGE, 5000);
    open_scene(&s, 1, (spry_kv_cache_options){0});
    learn(&s, a, PAGE);
    evict_all(&s);
    learn(&s, b, PAGE);
    assert_true(spry_kv_cache_find(&s.cache, &page, s.root, a, PAGE, ++s.now)); /* its slot is free, */
    spry_kv_page_ref(&s.pool, page);
    assert_true(spry_kv_cache_make_room(&s.cache, PAGES - 1)); /* and b's, both on their way */
    assert_int_equal(s.cache.figures.host_pages, 1);
    spry_kv_page_unref(&s.pool, page);
    assert_int_equal(found(&s, a, 1), 1);
    assert_int_equal(found(&s, b, 1), 1);
    close_scene(&s);
}

static void listen(void *user, int level, const char *sentence)
{
    *(int *)user += level == SPRY_LOG_WARN && strstr(sentence, "no more");
}

static void memory_that_is_refused_leaves_a_smaller_tier(void **state)
{
    (void)state;
    for (size_t limit = 0; limit < 3; limit++) {
        kv_scene s;
        int32_t a[4 * PAGE];
        int warnings = 0;
        make_tokens(a, 4 * PAGE, 100);
        open_scene(&s, 8, (spry_kv_cache_options){.log = {listen, &warnings}});
        device.limit = limit;
        for (int i = 0; i < 2; i++) {
            learn(&s, a, 4 * PAGE);
            evict_all(&s);
        }
        assert_int_equal(s.cache.figures.host_pages, limit);
        assert_int_equal(s.cache.figures.host_held, limit);
        assert_int_equal(found(&s, a, 4), limit);
        assert_int_equal(warnings, 1);
        close_scene(&s);
    }
}

static void copies_that_fail_are_misses(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[2 * PAGE];
    make_tokens(a, 2 * PAGE, 100);
    open_scene(&s, 4, (spry_kv_cache_options){0});
    learn(&s, a, 2 * PAGE);
    evict_all(&s);
    device.lost = true;
    assert_int_equal(found(&s, a, 2), 0);
    assert_int_equal(s.pool.n_free, PAGES);
    device.lost = false;
    assert_int_equal(found(&s, a, 2), 2);
    device.lost = true;
    evict_all(&s);
    assert_int_equal(s.cache.figures.host_pages, 0);
    assert_int_equal(found(&s, a, 2), 0);
    close_scene(&s);
}

static void a_page_that_is_computed_again_replaces_its_copy(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[PAGE];
    make_tokens(a, PAGE, 100);
    open_scene(&s, 4, (spry_kv_cache_options){0});
    learn(&s, a, 20); /* the beginning of the page */
    evict_all(&s);
    learn(&s, a, PAGE);
    assert_int_equal(s.cache.figures.host_pages, 0); /* no longer needed */
    evict_all(&s);
    learn(&s, a, PAGE);
    assert_int_equal(s.cache.figures.host_pages, 0);
    assert_int_equal(s.cache.figures.pages, 1);
    assert_int_equal(found(&s, a, 1), 1);
    assert_int_equal(s.cache.figures.host_loaded, 0);
    close_scene(&s);
}

static void runs_are_found_in_host_memory(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[3 * PAGE];
    uint32_t pages[3];
    make_tokens(a, 3 * PAGE, 100);
    open_scene(&s, 4, (spry_kv_cache_options){.contents = true});
    learn(&s, a, 3 * PAGE);
    evict_all(&s);
    size_t n =
        spry_kv_cache_run(&s.cache, pages, s.root, spry_kv_content(a + PAGE), a + PAGE, (size_t)2 * PAGE, ++s.now);
    assert_int_equal(n, 2);
    catch_up();
    for (size_t i = 0, position; i < n; i++) {
        spry_kv_cache_origin(&s.cache, &position, pages[i]);
        assert_int_equal(position, (i + 1) * PAGE);
        assert_int_equal(*pool_page(&s.pool, pages[i]), stamp_of(a[(i + 1) * PAGE]));
        spry_kv_page_unref(&s.pool, pages[i]);
    }
    close_scene(&s);
}

static void old_pages_expire_and_memory_returns(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[4 * PAGE];
    make_tokens(a, 4 * PAGE, 100);
    open_scene(&s, 4, (spry_kv_cache_options){.ttl_ns = 1000});
    learn(&s, a, 4 * PAGE);
    evict_all(&s);
    assert_int_equal(device.allocated, 4);
    spry_kv_cache_shrink(&s.cache, PAGES / 2, s.now);
    assert_int_equal(device.allocated, 2);
    assert_int_equal(found(&s, a, 4), 2);
    evict_all(&s);
    spry_kv_cache_tidy(&s.cache, s.now + 5000);
    assert_int_equal(s.cache.figures.host_pages, 0);
    assert_int_equal(s.cache.figures.expired, 2);
    assert_int_equal(found(&s, a, 4), 0);
    learn(&s, a, 4 * PAGE); /* and it grows again */
    evict_all(&s);
    assert_int_equal(device.allocated, 4);
    close_scene(&s);
}

/* Pages that the disk has not, because it was busy when they were computed, go there when the tier is full. */
static void a_full_tier_writes_to_disk(void **state)
{
    (void)state;
    kv_scene s;
    int32_t a[2 * PAGE], b[2 * PAGE];
    scratch folder;
    disk_talk said = {0};
    make_tokens(a, 2 * PAGE, 100);
    make_tokens(b, 2 * PAGE, 5000);
    scratch_init(&folder);
    open_scene(&s, 2, (spry_kv_cache_options){0});
    spry_kv_disk_options options = disk_options(folder.folder, &said);
    options.page_bytes = s.pool.page_bytes;
    options.mover = &s.pool.mover;
    learn(&s, a, 2 * PAGE);
    evict_all(&s);
    catch_up();
    s.cache.options.disk = disk_open(&options);
    learn(&s, b, 2 * PAGE);
    evict_all(&s);
    while (s.cache.host.n_free + s.cache.figures.host_pages < 2) /* what the disk has borrowed comes back */
        spry_kv_cache_tidy(&s.cache, s.now);
    spry_kv_key first = spry_kv_key_page(s.root, a, PAGE);
    assert_true(spry_kv_disk_has(s.cache.options.disk, first));
    assert_true(spry_kv_disk_has(s.cache.options.disk, spry_kv_key_page(first, a + PAGE, PAGE)));
    spry_kv_cache_restore(&s.cache, s.root, a, 2 * PAGE, ++s.now);
    assert_int_equal(s.cache.figures.restored_tokens, 2 * PAGE);
    assert_int_equal(found(&s, a, 2), 2);
    spry_kv_disk *disk = s.cache.options.disk;
    close_scene(&s);
    spry_kv_disk_close(disk);
    scratch_deinit(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicted_pages_come_back),
        cmocka_unit_test(a_full_tier_drops_the_oldest),
        cmocka_unit_test(a_slot_is_used_again_while_it_is_copied),
        cmocka_unit_test(memory_that_is_refused_leaves_a_smaller_tier),
        cmocka_unit_test(copies_that_fail_are_misses),
        cmocka_unit_test(a_page_that_is_computed_again_replaces_its_copy),
        cmocka_unit_test(runs_are_found_in_host_memory),
        cmocka_unit_test(old_pages_expire_and_memory_returns),
        cmocka_unit_test(a_full_tier_writes_to_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
