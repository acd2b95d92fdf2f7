/* Models by name, loaded once, used by many. Real models, small ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "platform/file.h"
#include "support/pool_scene.h"

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, scratch_path(&place, name)), 0);
}

static void copy_model(const char *name)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, 64 << 20);
    assert_int_equal(spry_file_read(&bytes, FOLDER "/llama/model-f32.gguf", NULL), SPRY_OK);
    scratch_write(&place, name, bytes.data, bytes.size);
    spry_buffer_deinit(&bytes);
}

static void test_names(void **state)
{
    (void)state;
    copy_model("tiny.gguf");
    link_to("tiny.gguf", "alias.gguf");
    link_to(FOLDER "/llama/model-f32.gguf", "outside.gguf");
    link_to(FOLDER "/llama", "folder");
    link_to("..", "up");
    scratch_write(&place, "notes.txt", "x", 1);
    scratch_write(&place, ".hidden.gguf", "x", 1);
    assert_int_equal(mkdir(scratch_path(&place, "empty"), 0700), 0);
    spry_pool_options options = plain_options(place.folder);
    spry_model_pool *pool = start(&options);
    const spry_pooled *a = acquire(pool, "tiny"), *b = acquire(pool, "tiny.gguf"), *c = acquire(pool, "alias");
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_string_equal(a->name, "tiny");
    assert_int_equal(info_of(pool, "tiny").users, 2);
    static const char *const wrong[] = {
        "outside", "outside.gguf", "folder", "up",    "up/tiny",        "notes.txt",    "notes",
        "../tiny", "./tiny",       "..",     ".",     ".hidden",        "empty",        "",
        "nothing", "/etc/passwd",  "tiny/",  ".gguf", "tiny.gguf.gguf", FOLDER "/llama"};
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++)
        expect_refused(pool, wrong[i], SPRY_ERR_FILE, "there is no model");
    char absolute[SCRATCH_PATH], longest[4000];
    snprintf(absolute, sizeof absolute, "%s", scratch_path(&place, "tiny.gguf"));
    expect_refused(pool, absolute, SPRY_ERR_FILE, "there is no model");
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    expect_refused(pool, longest, SPRY_ERR_FILE, "there is no model|127 bytes");
    expect_refused(pool, NULL, SPRY_ERR_FILE, "no model was named");
    asked all = {0};
    spry_model_pool_each(pool, note_info, &all);
    assert_int_equal(all.count, 2); /* tiny and alias */
    all = (asked){.stop_at = 1};
    spry_model_pool_each(pool, note_info, &all);
    assert_int_equal(all.count, 1);
    spry_model_pool_release(pool, a);
    spry_model_pool_release(pool, b);
    spry_model_pool_release(pool, c);
    spry_model_pool_release(pool, NULL);
    spry_model_pool_destroy(pool);
    spry_model_pool_destroy(NULL);
    scratch_clear(&place);
}

/* A file and a folder of one name are both there, and told apart. */
static void test_one_name_twice(void **state)
{
    (void)state;
    char from[SCRATCH_PATH], to[SCRATCH_PATH];
    copy_model("twin.gguf");
    assert_int_equal(mkdir(scratch_path(&place, "twin"), 0700), 0);
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        snprintf(from, sizeof from, FOLDER "/llama/%s", files[i]);
        snprintf(to, sizeof to, "%.900s/twin/%s", place.folder, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    spry_pool_options options = plain_options(place.folder);
    spry_model_pool *pool = start(&options);
    use(pool, "twin");
    use(pool, "twin.gguf");
    assert_int_equal(n_loaded, 2);
    spry_pool_info folder = info_of(pool, "twin"), file = info_of(pool, "twin.gguf");
    assert_non_null(strstr(file.path, "twin.gguf"));
    assert_null(strstr(folder.path, "gguf"));
    assert_true(file.file_bytes > 700000 && folder.file_bytes > 700000 && file.modified > 1600000000);
    spry_model_pool_destroy(pool);
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        snprintf(to, sizeof to, "%.900s/twin/%s", place.folder, files[i]);
        assert_int_equal(remove(to), 0);
    }
    scratch_clear(&place);
}

static void test_entries(void **state)
{
    (void)state;
    spry_buffer bytes;
    spry_buffer_init(&bytes, 64 << 20);
    assert_int_equal(spry_file_read(&bytes, FOLDER "/llama/model-f32.gguf", NULL), SPRY_OK);
    const spry_pool_entry entries[] = {
        {.name = "first", .path = FOLDER "/llama-256", .drafter = "small", .pinned = true},
        {.name = "small", .alias = "tiny", .data = bytes.data, .size = bytes.size},
        {.name = "qwen3", .path = FOLDER "/qwen2"}, /* before the folder's own */
    };
    spry_pool_options options = plain_options(FOLDER);
    options.entries = entries;
    options.n_entries = SPRY_COUNT(entries);
    spry_model_pool *pool = start(&options);
    const spry_pooled *first = acquire(pool, NULL), *small = acquire(pool, "tiny"), *qwen = acquire(pool, "qwen3");
    assert_string_equal(first->name, "first");
    assert_string_equal(small->name, "small");
    assert_non_null(first->engine->drafter);
    assert_null(small->engine->drafter);
    spry_engine_info info;
    spry_engine_describe(qwen->engine, &info);
    assert_string_equal(info.architecture, "Qwen2");
    spry_pool_info told = info_of(pool, "small");
    assert_true(told.path[0] == 0 && told.file_bytes == bytes.size && told.state == SPRY_POOL_LOADED);
    told = info_of(pool, "first");
    assert_true(told.pinned && told.users == 1 && told.load_ms > 0 && told.expires_s < 0);
    spry_model_pool_release(pool, first);
    spry_model_pool_release(pool, small);
    spry_model_pool_release(pool, qwen);
    spry_model_pool_destroy(pool);
    spry_buffer_deinit(&bytes);
}

static void test_bad_entries(void **state)
{
    (void)state;
    const spry_pool_entry twice[] = {{.name = "a", .path = "x"}, {.name = "a", .path = "y"}};
    const spry_pool_entry nameless[] = {{.path = "x"}}, nowhere[] = {{.name = "a"}};
    const spry_pool_entry alone[] = {{.name = "a", .path = "x", .drafter = "a"}};
    const struct {
        const spry_pool_entry *entries;
        size_t n;
        const char *words;
    } cases[] = {{twice, 2, "two models are called 'a'"},
                 {nameless, 1, "model 1"},
                 {nowhere, 1, "model 1"},
                 {alone, 1, "its drafter 'a'"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_pool_options options = plain_options(NULL);
        spry_model_pool *pool;
        spry_error error = {0};
        options.entries = cases[i].entries;
        options.n_entries = cases[i].n;
        hostile_expect(spry_model_pool_create(&pool, &options, &error), &error, SPRY_ERR_INPUT, cases[i].words);
    }
    spry_pool_options options = plain_options(NULL);
    spry_pool_entry strange = {.name = "a", .path = "x", .reserved = {[6] = true}};
    spry_model_pool *pool;
    spry_error error = {0};
    options.entries = &strange;
    options.n_entries = 1;
    hostile_expect(spry_model_pool_create(&pool, &options, &error), &error, SPRY_ERR_INPUT, "reserved of model 1");
    options.n_entries = 0;
    jobs_options.size = 1;
    hostile_expect(spry_model_pool_create(&pool, &options, &error), &error, SPRY_ERR_INPUT, "spry_jobs_options");
    engine_options.size = 0;
    hostile_expect(spry_model_pool_create(&pool, &options, &error), &error, SPRY_ERR_INPUT, "spry_engine_options");
    options.size = 0;
    hostile_expect(spry_model_pool_create(&pool, &options, &error), &error, SPRY_ERR_INPUT, "spry_pool_options");
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

static void ask_at_once(spry_model_pool *pool, asker *askers, size_t count, const char *name)
{
    pthread_t threads[16];
    for (size_t i = 0; i < count; i++) {
        askers[i] = (asker){.pool = pool, .name = name};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void test_loaded_once(void **state)
{
    (void)state;
    asker askers[8];
    spry_pool_options options = plain_options(FOLDER);
    spry_model_pool *pool = start(&options);
    ask_at_once(pool, askers, 8, "llama-256");
    assert_int_equal(n_loaded, 1);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(askers[i].status, SPRY_OK);
        assert_ptr_equal(askers[i].model, askers[0].model);
        spry_model_pool_release(pool, askers[i].model);
    }
    ask_at_once(pool, askers, 8, "nothing");
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(askers[i].status, SPRY_ERR_FILE);
    spry_model_pool_destroy(pool);
}

static void test_bad_files(void **state)
{
    (void)state;
    asker askers[4];
    copy_model("good.gguf");
    copy_model("gone.gguf");
    scratch_write(&place, "bad.gguf", "GGUF, but not really one", 24);
    spry_pool_options options = plain_options(place.folder);
    spry_model_pool *pool = start(&options);
    assert_int_equal(info_of(pool, "gone").state, SPRY_POOL_ON_DISK);
    assert_int_equal(remove(scratch_path(&place, "gone.gguf")), 0);
    expect_refused(pool, "gone", SPRY_ERR_FILE, "gone");
    ask_at_once(pool, askers, 4, "bad");
    for (size_t i = 0; i < 4; i++) {
        hostile_expect(askers[i].status, &askers[i].error, askers[i].error.status, "bad.gguf");
        assert_true(askers[i].status != SPRY_OK);
    }
    copy_model("bad.gguf"); /* it can be mended */
    use(pool, "bad");
    const spry_pooled *good = acquire(pool, "good");
    assert_int_equal(remove(scratch_path(&place, "good.gguf")), 0);
    const spry_pooled *again = acquire(pool, "good"); /* as long as it is loaded */
    assert_ptr_equal(good, again);
    spry_model_pool_release(pool, good);
    spry_model_pool_release(pool, again);
    assert_int_equal(spry_model_pool_unload(pool, "good", NULL), SPRY_OK);
    expect_refused(pool, "good", SPRY_ERR_FILE, "there is no model 'good'");
    spry_model_pool_destroy(pool);
    scratch_clear(&place);
}

/* Nothing of the warming up stays but what steps cost. */
static void test_warm(void **state)
{
    (void)state;
    spry_pool_options options = plain_options(FOLDER);
    spry_model_pool *pool = start(&options);
    const spry_pooled *model = acquire(pool, "qwen3");
    spry_kv_figures f;
    spry_engine_kv_figures(model->engine, &f);
    assert_int_equal(f.free_pages, f.pages);
    assert_int_equal(f.lookups + f.cached_pages, 0);
    assert_true(spry_draft_steps_cost(&model->engine->steps, 1) > 0 &&
                spry_step_cost_reach(&model->engine->steps.cost) >= 16);
    spry_model_pool_release(pool, model);
    spry_model_pool_destroy(pool);
}

/* What was reckoned before is what it takes. */
static void test_estimates(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "llama-256", "mixtral", "gemma2", "qwen3-moe", "phi3"};
    static const char *const types[] = {NULL, "q8_0", "q4_0"};
    for (size_t t = 0; t < SPRY_COUNT(types); t++) {
        spry_pool_options options = plain_options(FOLDER);
        engine_options.quantize = types[t];
        engine_options.context = 0;
        engine_options.kv_bytes = t == 1 ? 0 : (size_t)4 << 20;
        options.max_bytes = (size_t)1 << 40;
        spry_model_pool *pool = start(&options);
        for (size_t i = 0; i < SPRY_COUNT(models); i++) {
            const spry_pooled *model = acquire(pool, models[i]);
            spry_pool_info told = info_of(pool, models[i]);
            const spry_engine *e = model->engine;
            spry_device_memory memory;
            assert_true(spry_device_measure(e->device, &memory));
            size_t really = e->pool.n_pages * e->pool.page_bytes + memory.weights;
            assert_true(told.loaded_bytes > really);
            double ratio = (double)told.estimated_bytes / (double)told.loaded_bytes;
            if (ratio < 0.95 || ratio > 1.05)
                fail_msg("%s: %zu bytes estimated, %zu measured", models[i], told.estimated_bytes, told.loaded_bytes);
            spry_model_pool_release(pool, model);
        }
        spry_model_pool_destroy(pool);
    }
}

/* ---- many at once ----------------------------------------------------------------------------------------------- */

static void *use_many(void *argument)
{
    static const char *const models[] = {"llama", "qwen2", "qwen3", "gemma"};
    spry_model_pool *pool = argument;
    static atomic_uint number;
    uint32_t random = ++number * 7919u;
    for (int i = 0; i < 12; i++) {
        const spry_pooled *model;
        spry_error error;
        random = random * 1664525u + 1013904223u;
        const char *name = models[(random >> 16) % SPRY_COUNT(models)];
        spry_status status = spry_model_pool_acquire(pool, &model, name, &error);
        assert_true(status == SPRY_OK || status == SPRY_ERR_BUSY);
        if (!status) {
            int32_t ids[8];
            size_t count;
            assert_string_equal(model->name, name);
            assert_int_equal(spry_engine_tokenize(model->engine, ids, 8, &count, "a b", 3, false, NULL), SPRY_OK);
        }
        if (i % 4 == 3)
            spry_model_pool_unload(pool, name, NULL);
        spry_model_pool_release(pool, status ? NULL : model);
    }
    return NULL;
}

static void test_many_at_once(void **state)
{
    (void)state;
    pthread_t threads[6];
    spry_pool_options options = plain_options(FOLDER);
    options.max_bytes = 2 * bytes_of("llama") + (1 << 18);
    options.keep_alive_s = 0.005;
    spry_model_pool *pool = start(&options);
    for (size_t i = 0; i < SPRY_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_many, pool), 0);
    for (size_t i = 0; i < SPRY_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    use(pool, "llama");
    assert_int_equal(info_of(pool, "llama").users, 0);
    spry_model_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_one_name_twice), cmocka_unit_test(test_entries),
        cmocka_unit_test(test_bad_entries), cmocka_unit_test(test_loaded_once),    cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_warm),        cmocka_unit_test(test_estimates),      cmocka_unit_test(test_many_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
