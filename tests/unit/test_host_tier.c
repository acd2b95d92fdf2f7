/* Engines whose cached pages go to host memory and come back: whatever the way of a page, the logits are those of an
 * engine that had computed nothing before. On the far device; and as cuda_host_tier on the imitated GPU, where work in
 * streams is done as late as events allow, or as early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine/sequence.h"
#include "support/device_rows.h"
#include "support/far/far_device.h"
#include "support/sequence_scene.h"
#ifdef TEST_CUDA
#include "support/cuda_imitation.h"
#define DEVICE "cuda"
#else
#define DEVICE "far"
#endif

/* The pool has room for one prompt and a half. */
enum { CONTEXT = 64, COUNT = 36, PAGE = SPRY_PAGE_TOKENS, POOL = 3, TIER = 32, PROMPTS = 2, ROUNDS = 2 };

static int warnings;

static void listen(void *user, int level, const char *sentence)
{
    (void)user;
    warnings += level == SPRY_LOG_WARN && strstr(sentence, "in host memory");
}

static spry_engine *open_engine(size_t pages, size_t tier)
{
    spry_engine_options options;
    spry_kv_figures figures;
    spry_engine_options_default(&options);
    options.device = DEVICE;
    options.threads = 1;
    options.sessions = 2;
    options.context = CONTEXT;
    options.chunk = 64;
    options.log = listen;
    static size_t page_bytes;
    if (!page_bytes) {
        spry_engine *engine = fixture_open("qwen3", &options);
        spry_engine_kv_figures(engine, &figures);
        page_bytes = figures.page_bytes;
        spry_engine_close(engine);
    }
    options.kv_bytes = pages * page_bytes;
    options.cache_host_bytes = tier * page_bytes;
    warnings = 0;
    return fixture_open("qwen3", &options);
}

static spry_kv_figures figures_of(spry_engine *engine)
{
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    return figures;
}

/* ---- prompts, and what a cold engine makes of them --------------------------------------------------------------- */

static struct {
    int32_t ids[PROMPTS][COUNT];
    logits cold[PROMPTS];
} prompts;

static int make_prompts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        spry_engine *engine = open_engine(POOL, 0);
        spry_session *session = fixture_session(engine);
        fixture_ids(prompts.ids[i], COUNT, 70 + i);
        prompts.cold[i] = scene_eval(session, prompts.ids[i], COUNT, NULL);
        spry_session_destroy(session);
        spry_engine_close(engine);
    }
    return 0;
}

/* Each prompt in its turn, so that each takes the place of the one before. */
static void eval_rounds(spry_engine *engine, size_t rounds)
{
    spry_session *session = fixture_session(engine);
    for (size_t i = 0; i < rounds * PROMPTS; i++) {
        logits got = scene_eval(session, prompts.ids[i % PROMPTS], COUNT, NULL);
        scene_same(&got, &prompts.cold[i % PROMPTS]);
    }
    spry_session_destroy(session);
}

static void pages_go_and_come_back(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(POOL, TIER);
    eval_rounds(engine, 1);
    spry_kv_figures first = figures_of(engine);
    assert_int_equal(first.hit_tokens, 0);
    assert_true(first.host_pages > 0);
    assert_int_equal(first.host_loaded_pages, 0);
    eval_rounds(engine, ROUNDS);
    spry_kv_figures later = figures_of(engine);
    assert_int_equal(later.hit_tokens, ROUNDS * PROMPTS * (COUNT - 1)); /* nothing but the last row */
    assert_true(later.host_loaded_pages >= (ROUNDS * PROMPTS - 1) * (COUNT / PAGE));
    assert_true(later.host_bytes >= later.host_pages * later.page_bytes);
    assert_int_equal(warnings, 0);
    spry_engine_close(engine);
}

/* Two sequences take turns in steps while the pages of others come and go. */
static void steps_go_on_beside_copies(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(2 * POOL, TIER);
    for (size_t round = 0; round < 3; round++) {
        spry_session *sessions[2];
        size_t left = 2, which[2] = {round % PROMPTS, (round + 1) % PROMPTS};
        for (size_t i = 0; i < 2; i++)
            sessions[i] = fixture_session(engine);
        for (size_t step = 0; left; step++) {
            spry_segment segments[8];
            size_t n = 0, rows[2] = {0}, row = 0;
            if (step < 2) { /* the second begins while the first has begun */
                spry_found found;
                const spry_prompt prompt = {.ids = prompts.ids[which[step]], .count = COUNT, .compute_from = COUNT - 1};
                assert_int_equal(spry_sequence_begin(&sessions[step]->sequence, &found, &prompt, NULL), SPRY_OK);
            }
            for (size_t i = 0; i < 2 && i <= step; i++) {
                size_t more;
                assert_int_equal(
                    spry_sequence_fill(&sessions[i]->sequence, segments + n, &more, 4, 17, COUNT - 1, 1, NULL),
                    SPRY_OK);
                for (; more--; n++)
                    rows[i] += segments[n].n_rows;
            }
            const spry_device_step device_step = {.segments = segments, .n_segments = n};
            assert_int_equal(spry_device_submit(engine->device, &device_step, NULL), SPRY_OK);
            size_t idle = figures_of(engine).free_pages + 1; /* pages go while the step is under way */
            spry_kv_cache_make_room(&engine->cache, idle);
            assert_int_equal(spry_device_wait(engine->device, NULL), SPRY_OK);
            for (size_t i = 0; i < 2 && i <= step; i++) {
                spry_sequence_computed(&sessions[i]->sequence, rows[i], 0);
                if (rows[i] && !spry_sequence_pending(&sessions[i]->sequence)) {
                    logits got;
                    memcpy(got.of, step_logits(engine->device, row++, 1), sizeof got.of);
                    scene_same(&got, &prompts.cold[which[i]]);
                    left--;
                }
            }
        }
        for (size_t i = 0; i < 2; i++)
            spry_session_destroy(sessions[i]);
        assert_true(spry_kv_cache_make_room(&engine->cache, engine->pool.n_pages));
    }
    assert_true(figures_of(engine).host_loaded_pages > 0);
    spry_engine_close(engine);
}

#ifndef TEST_CUDA

static void a_small_tier_keeps_what_it_can(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(POOL, 2);
    eval_rounds(engine, ROUNDS);
    spry_kv_figures figures = figures_of(engine);
    assert_true(figures.host_pages <= 2 && figures.host_saved_pages > 2);
    spry_engine_close(engine);
}

/* The device is held: what saves and loads pages does not wait for it. */
static void nothing_waits_for_copies(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(POOL, TIER);
    spry_session *session = fixture_session(engine);
    uint32_t page;
    logits got = scene_eval(session, prompts.ids[0], COUNT, NULL);
    const spry_kv_key root = session->sequence.root;
    spry_session_destroy(session);
    spry_kv_cache *cache = &engine->cache;
    spry_far_device_hold(engine->device, true);
    uint64_t waits = spry_device_waits(engine->device);
    assert_true(spry_kv_cache_make_room(cache, engine->pool.n_pages));
    for (size_t i = 0; i < cache->host.n_slots; i++)
        assert_false(cache->host.copies[i] && engine->pool.mover.saved(engine->pool.mover.self, cache->host.copies[i]));
    assert_true(spry_kv_cache_find(cache, &page, root, prompts.ids[0], PAGE, UINT64_MAX));
    assert_int_equal(spry_device_waits(engine->device), waits);
    spry_far_device_hold(engine->device, false);
    session = fixture_session(engine);
    got = scene_eval(session, prompts.ids[0], COUNT, NULL);
    scene_same(&got, &prompts.cold[0]);
    assert_true(figures_of(engine).host_loaded_pages > 0);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

#else

/* Streams do what they must as late, and all but the first as early, as events allow. */
static void events_order_the_streams(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        imitation.late = true;
        imitation.early = early;
        pages_go_and_come_back(state);
        steps_go_on_beside_copies(state);
        assert_true(cuda_imitation_is_clean());
    }
    imitation.late = imitation.early = false;
}

/* A page is saved while the step that writes it is under way: the copy is of what the step leaves. */
static void a_copy_waits_for_the_steps_before_it(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(POOL, TIER);
    const spry_kv_mover *mover = &engine->pool.mover;
    size_t bytes = engine->pool.page_bytes;
    spry_kv_table table;
    assert_int_equal(spry_kv_table_init(&table, CONTEXT, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(&table, &engine->pool, 1, NULL), SPRY_OK);
    const uint32_t page = table.entries[0].page;
    void *memory = mover->host_allocate(mover->self, bytes), *room = malloc(bytes);
    assert_true(memory && room);
    const spry_segment segment = {&table, prompts.ids[0], 0, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    const spry_device_step step = {.segments = &segment, .n_segments = 1};
    imitation.late = imitation.early = true;
    assert_int_equal(spry_device_submit(engine->device, &step, NULL), SPRY_OK);
    uint64_t copy = mover->save(mover->self, memory, page);
    assert_true(copy && mover->saved(mover->self, copy));
    assert_int_equal(spry_device_wait(engine->device, NULL), SPRY_OK);
    imitation.late = imitation.early = false;
    assert_memory_equal(memory, mover->read(mover->self, page, room), bytes);
    mover->host_free(mover->self, memory);
    free(room);
    spry_kv_table_deinit(&table, &engine->pool);
    spry_engine_close(engine);
    assert_true(cuda_imitation_is_clean());
}

static void pinned_memory_may_be_short(void **state)
{
    (void)state;
    spry_engine *engine = open_engine(POOL, TIER);
    imitation.scarce = figures_of(engine).page_bytes;
    imitation.scarce_left = 1;
    eval_rounds(engine, ROUNDS);
    assert_int_equal(figures_of(engine).host_bytes, figures_of(engine).page_bytes);
    assert_int_equal(warnings, 1);
    imitation.scarce = 0;
    spry_engine_close(engine);
    assert_true(cuda_imitation_is_clean());
}

/* Whatever call fails, answers are right or there is an error, and nothing is left behind. */
static void a_gpu_may_be_lost_between_copies(void **state)
{
    (void)state;
    enum { FAILURE = 700, TIMES = 3 };
    int calls = 0, errors = 0;
    for (int time = 0; time <= TIMES; time++) { /* at first none fails */
        spry_engine *engine = open_engine(POOL, TIER);
        spry_session *session = fixture_session(engine);
        const float *out;
        spry_error error = {0};
        int before = imitation.calls;
        imitation.fail_at = time ? before + calls * time / TIMES : 0;
        imitation.fail_with = FAILURE;
        for (size_t i = 0; i < PROMPTS + 1; i++)
            if (spry_session_eval(session, &out, prompts.ids[i % PROMPTS], COUNT, &error))
                errors++;
            else
                assert_memory_equal(out, &prompts.cold[i % PROMPTS], sizeof prompts.cold[0]);
        calls = time ? calls : imitation.calls - before;
        imitation.fail_at = 0;
        spry_session_destroy(session);
        spry_engine_close(engine);
        assert_true(cuda_imitation_is_clean());
    }
    assert_true(errors > 0);
}

/* The same for each call that the tier makes: of a page that is saved, and of one that is loaded. */
static void a_copy_that_fails_is_a_miss_and_then_an_error(void **state)
{
    (void)state;
    for (int call = 1; call <= 10; call++) { /* five calls a copy */
        spry_engine *engine = open_engine(POOL, TIER);
        spry_session *session = fixture_session(engine);
        const spry_kv_mover *mover = &engine->pool.mover;
        const float *out;
        spry_error error = {0};
        scene_eval(session, prompts.ids[0], 1, NULL);
        void *memory = mover->host_allocate(mover->self, engine->pool.page_bytes);
        imitation.fail_at = imitation.calls + call;
        imitation.fail_with = 700;
        bool saved = mover->save(mover->self, memory, 0);
        bool loaded = mover->load(mover->self, 0, memory);
        assert_int_equal(saved, call > 5);
        assert_false(loaded);
        imitation.fail_at = 0;
        assert_int_equal(spry_session_eval(session, &out, prompts.ids[1], 1, &error), SPRY_ERR_DEVICE);
        mover->host_free(mover->self, memory);
        spry_session_destroy(session);
        spry_engine_close(engine);
        assert_true(cuda_imitation_is_clean());
    }
}

#endif

/* With an argument, only tests of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#ifndef TEST_CUDA
        cmocka_unit_test(pages_go_and_come_back),
        cmocka_unit_test(a_small_tier_keeps_what_it_can),
        cmocka_unit_test(steps_go_on_beside_copies),
        cmocka_unit_test(nothing_waits_for_copies),
#else
        cmocka_unit_test(events_order_the_streams),
        cmocka_unit_test(a_copy_waits_for_the_steps_before_it),
        cmocka_unit_test(pinned_memory_may_be_short),
        cmocka_unit_test(a_gpu_may_be_lost_between_copies),
        cmocka_unit_test(a_copy_that_fails_is_a_miss_and_then_an_error),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, make_prompts, NULL);
}
