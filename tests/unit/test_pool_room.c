/* Models that are unloaded: when memory is needed, when they are idle, when a caller says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/model_load.h"
#include "support/pool_scene.h"

static void test_least_recent_goes(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = bytes_of("llama") + bytes_of("qwen2") + bytes_of("qwen3") + (1 << 16);
    n_loaded = n_let_go = 0;
    spry_model_pool *pool = start(&options);
    use(pool, "llama");
    use(pool, "qwen2");
    use(pool, "qwen3");
    use(pool, "llama");
    assert_int_equal(n_let_go, 0);
    use(pool, "gemma");
    assert_true(is_loaded(pool, "llama") && is_loaded(pool, "gemma"));
    assert_false(is_loaded(pool, "qwen2"));
    assert_int_equal(spry_model_pool_pin(pool, "llama", true, NULL), SPRY_OK);
    use(pool, "qwen2");
    use(pool, "qwen3");
    use(pool, "gemma3");
    use(pool, "qwen2");
    assert_true(is_loaded(pool, "llama")); /* though it is the oldest */
    spry_model_pool_destroy(pool);
}

static void test_no_room(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = bytes_of("llama") + (1 << 16);
    spry_model_pool *pool = start(&options);
    expect_refused(pool, "llama-256", SPRY_ERR_MEMORY, "llama-256: needs 0.|GB in all");
    const spry_pooled *model = acquire(pool, "llama");
    expect_refused(pool, "qwen2", SPRY_ERR_BUSY, "qwen2: needs 0.|in use or pinned take 0.");
    assert_int_equal(info_of(pool, "qwen2").state, SPRY_POOL_ON_DISK);
    assert_true(info_of(pool, "qwen2").estimated_bytes > 0);
    spry_error error = {0};
    hostile_expect(spry_model_pool_unload(pool, "llama", &error), &error, SPRY_ERR_BUSY, "llama: it is in use");
    spry_model_pool_release(pool, model);
    use(pool, "qwen2");
    assert_false(is_loaded(pool, "llama"));
    assert_int_equal(spry_model_pool_unload(pool, "qwen2", &error), SPRY_OK);
    assert_int_equal(spry_model_pool_unload(pool, "qwen2", &error), SPRY_OK);
    assert_false(is_loaded(pool, "qwen2"));
    hostile_expect(spry_model_pool_unload(pool, "none", &error), &error, SPRY_ERR_FILE, "no model 'none'");
    hostile_expect(spry_model_pool_pin(pool, "../x", true, &error), &error, SPRY_ERR_FILE, "no model");
    spry_model_pool_destroy(pool);
}

static size_t measured_bytes; /* told of the next model; 0: what it really takes */

spry_status __real_spry_loaded_model_measure(size_t *bytes, const spry_loaded_model *loaded, spry_error *error);
spry_status __wrap_spry_loaded_model_measure(size_t *bytes, const spry_loaded_model *loaded, spry_error *error);

spry_status __wrap_spry_loaded_model_measure(size_t *bytes, const spry_loaded_model *loaded, spry_error *error)
{
    spry_status status = __real_spry_loaded_model_measure(bytes, loaded, error);
    *bytes = measured_bytes ? measured_bytes : *bytes;
    return status;
}

/* A model that takes more than was estimated, and more than all may take, leaves no room: less than none is not a lot.
 */
static void test_larger_than_estimated(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = bytes_of("llama") + bytes_of("qwen2");
    spry_model_pool *pool = start(&options);
    measured_bytes = options.max_bytes + 1;
    const spry_pooled *model = acquire(pool, "llama");
    measured_bytes = 0;
    expect_refused(pool, "qwen2", SPRY_ERR_BUSY, "qwen2: needs 0.|in use or pinned take 0.");
    spry_model_pool_release(pool, model);
    use(pool, "qwen2");
    assert_false(is_loaded(pool, "llama"));
    spry_model_pool_destroy(pool);
}

static void wait_until_gone(spry_model_pool *pool, const char *name)
{
    while (is_loaded(pool, name))
        nap(10);
}

/* What cannot go when it is asked to goes when it can. */
static void test_unload(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = bytes_of("llama") + (1 << 16);
    spry_model_pool *pool = start(&options);
    spry_error error = {0};
    assert_int_equal(spry_model_pool_unload(pool, "llama", &error), SPRY_OK);
    assert_int_equal(info_of(pool, "llama").load_ms, 0); /* it was not even loaded */
    const spry_pooled *model = acquire(pool, "llama");
    hostile_expect(spry_model_pool_unload(pool, "llama", &error), &error, SPRY_ERR_BUSY, "llama: it is in use");
    nap(50);
    assert_true(is_loaded(pool, "llama"));
    spry_model_pool_release(pool, model);
    wait_until_gone(pool, "llama");
    assert_int_equal(spry_model_pool_pin(pool, "llama", true, NULL), SPRY_OK);
    use(pool, "llama");
    hostile_expect(spry_model_pool_unload(pool, "llama", &error), &error, SPRY_ERR_BUSY, "llama: it is pinned");
    expect_refused(pool, "qwen2", SPRY_ERR_BUSY, "qwen2: needs 0.|in use or pinned take 0.");
    nap(50);
    assert_true(is_loaded(pool, "llama"));
    assert_int_equal(spry_model_pool_pin(pool, "llama", false, NULL), SPRY_OK);
    wait_until_gone(pool, "llama");
    spry_model_pool_destroy(pool);
}

/* Two who load different models at once do not pass the limit together. */
static void test_no_room_for_two(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = bytes_of("llama") + (1 << 18);
    for (int round = 0; round < 8; round++) {
        spry_model_pool *pool = start(&options);
        asker askers[2] = {{.pool = pool, .name = "llama"}, {.pool = pool, .name = "qwen2"}};
        pthread_t threads[2];
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
        for (size_t i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal((askers[0].status == SPRY_OK) + (askers[1].status == SPRY_OK), 1);
        assert_int_equal((askers[0].status == SPRY_ERR_BUSY) + (askers[1].status == SPRY_ERR_BUSY), 1);
        spry_model_pool_release(pool, askers[0].model);
        spry_model_pool_release(pool, askers[1].model);
        spry_model_pool_destroy(pool);
    }
}

static void test_keep_alive(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.keep_alive_s = 0.15;
    spry_model_pool *pool = start(&options);
    const spry_pooled *held = acquire(pool, "qwen2");
    use(pool, "llama");
    spry_pool_info told = info_of(pool, "llama");
    assert_true(told.expires_s <= 0.15);
    assert_true(info_of(pool, "qwen2").expires_s < 0);
    assert_int_equal(spry_model_pool_pin(pool, "qwen3", true, NULL), SPRY_OK);
    use(pool, "qwen3");
    wait_until_gone(pool, "llama");
    nap(200);
    assert_true(is_loaded(pool, "qwen2") && is_loaded(pool, "qwen3"));
    assert_int_equal(spry_model_pool_pin(pool, "qwen3", false, NULL), SPRY_OK);
    wait_until_gone(pool, "qwen3");
    spry_model_pool_release(pool, held);
    while (n_let_go < 3)
        nap(10);
    assert_int_equal(n_let_go, 3);
    use(pool, "llama"); /* and again */
    spry_model_pool_destroy(pool);
}

/* A model's own time goes before the pool's, until it is let go. */
static void test_keep(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    options.keep_alive_s = 1000;
    spry_model_pool *pool = start(&options);
    use(pool, "qwen3");
    const spry_pooled *held = acquire(pool, "llama");
    spry_model_pool_keep(pool, held, 0);
    assert_true(is_loaded(pool, "llama"));
    spry_model_pool_release(pool, held);
    wait_until_gone(pool, "llama");
    assert_true(info_of(pool, "llama").expires_s < 0);
    use(pool, "llama");
    assert_true(info_of(pool, "llama").expires_s > 900);
    held = acquire(pool, "llama");
    spry_model_pool_keep(pool, held, -1);
    spry_model_pool_release(pool, held);
    assert_true(info_of(pool, "llama").expires_s < 0);
    assert_true(info_of(pool, "qwen3").expires_s > 900);
    assert_int_equal(info_of(pool, "qwen3").work.running, 0);
    assert_true(info_of(pool, "qwen3").work.batch_limit > 0);
    spry_model_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_recent_goes),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_larger_than_estimated),
        cmocka_unit_test(test_unload),
        cmocka_unit_test(test_no_room_for_two),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_keep),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
