/* Models by name, loaded once, unloaded when memory is needed or when idle. Real models, small ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "engine/engine_state.h"
#include "platform/file.h"
#include "pool/model_load.h"
#include "spry_serve.h"
#include "support/engine_fixture.h"
#include "support/hostile.h"
#include "support/scratch.h"

#define FOLDER TEST_DATA "/models"

static scratch place;
static atomic_uint n_loaded, n_let_go;

static void note_log(void *user, int level, const char *sentence)
{
    (void)user;
    (void)level;
    n_loaded += strstr(sentence, ": loaded in") != NULL;
    n_let_go += strstr(sentence, ": let go") != NULL;
}

/* Of the pool that is started next. */
static spry_engine_options engine_options;
static spry_jobs_options jobs_options;

static spry_pool_options plain_options(const char *folder)
{
    spry_pool_options o;
    spry_pool_options_default(&o);
    spry_engine_options_default(&engine_options);
    spry_jobs_options_default(&jobs_options);
    engine_options.threads = 1;
    engine_options.context = 256;
    engine_options.kv_bytes = (size_t)4 << 20;
    engine_options.log = note_log;
    jobs_options.max_running = 2;
    o.models_dir = folder;
    o.engine = &engine_options;
    o.jobs = &jobs_options;
    o.max_bytes = (size_t)1 << 30;
    n_loaded = n_let_go = 0;
    return o;
}

static spry_model_pool *start(const spry_pool_options *options)
{
    spry_model_pool *pool;
    spry_error error = {0};
    if (spry_model_pool_create(&pool, options, &error))
        fail_msg("%s", error.message);
    return pool;
}

static const spry_pooled *acquire(spry_model_pool *pool, const char *name)
{
    const spry_pooled *model;
    spry_error error = {0};
    if (spry_model_pool_acquire(pool, &model, name, &error))
        fail_msg("%s", error.message);
    return model;
}

static void use(spry_model_pool *pool, const char *name)
{
    spry_model_pool_release(pool, acquire(pool, name));
}

static void expect_refused(spry_model_pool *pool, const char *name, spry_status status, const char *words)
{
    const spry_pooled *model;
    spry_error error = {0};
    hostile_expect(spry_model_pool_acquire(pool, &model, name, &error), &error, status, words);
    assert_null(model);
}

/* ---- what a pool tells ------------------------------------------------------------------------------------------ */

typedef struct asked {
    const char *name;
    spry_pool_info info;
    size_t found, count, stop_at;
} asked;

static bool note_info(void *context, const spry_pool_info *info)
{
    asked *a = context;
    if (a->name && strcmp(info->name, a->name) == 0) {
        a->info = *info;
        a->found++;
    }
    return ++a->count != a->stop_at;
}

static spry_pool_info info_of(spry_model_pool *pool, const char *name)
{
    asked a = {.name = name};
    spry_model_pool_each(pool, note_info, &a);
    assert_int_equal(a.found, 1);
    return a.info;
}

static bool is_loaded(spry_model_pool *pool, const char *name)
{
    return info_of(pool, name).state == SPRY_POOL_LOADED;
}

static void nap(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

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

typedef struct asker {
    spry_model_pool *pool;
    const char *name;
    spry_status status;
    spry_error error;
    const spry_pooled *model;
} asker;

static void *ask(void *argument)
{
    asker *a = argument;
    a->status = spry_model_pool_acquire(a->pool, &a->model, a->name, &a->error);
    return NULL;
}

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
    assert_true(spry_step_cost_ns(&model->engine->steps, 1) > 0 && spry_step_cost_reach(&model->engine->steps) >= 16);
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

/* ---- letting go ------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const char *name)
{
    spry_pool_options options = plain_options(FOLDER);
    spry_model_pool *pool = start(&options);
    use(pool, name);
    size_t bytes = info_of(pool, name).loaded_bytes;
    spry_model_pool_destroy(pool);
    return bytes;
}

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
    for (int i = 0; i < 200 && is_loaded(pool, name); i++)
        nap(10);
    assert_false(is_loaded(pool, name));
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
    for (int i = 0; i < 200 && is_loaded(pool, "llama"); i++)
        nap(10);
    assert_false(is_loaded(pool, "llama"));
    nap(200);
    assert_true(is_loaded(pool, "qwen2") && is_loaded(pool, "qwen3"));
    assert_int_equal(spry_model_pool_pin(pool, "qwen3", false, NULL), SPRY_OK);
    for (int i = 0; i < 200 && is_loaded(pool, "qwen3"); i++)
        nap(10);
    assert_false(is_loaded(pool, "qwen3"));
    spry_model_pool_release(pool, held);
    for (int i = 0; i < 200 && n_let_go < 3; i++)
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
    for (int i = 0; i < 200 && is_loaded(pool, "llama"); i++)
        nap(10);
    assert_false(is_loaded(pool, "llama"));
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

static int set_up(void **state)
{
    (void)state;
    scratch_init(&place);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_deinit(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_one_name_twice),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_bad_entries),
        cmocka_unit_test(test_loaded_once),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_warm),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_least_recent_goes),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_larger_than_estimated),
        cmocka_unit_test(test_unload),
        cmocka_unit_test(test_no_room_for_two),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_many_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
