/* Devices through their interface: names, draws, pages, results, and that the far one is really far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "device/device_impl.h"
#include "engine/engine_state.h"
#include "model/arch.h"
#include "model/model.h"
#include "sampling/sampler.h"
#include "support/device_rows.h"
#include "support/engine_fixture.h"
#include "support/far/far_device.h"
#include "support/faults.h"
#include "support/hostile.h"
#include "support/scratch.h"

static const char *const names[] = {"cpu", "far"};

enum { ROWS = 40, VOCAB = FIXTURE_VOCAB };

static spry_engine *open_on(const char *device, const char *model)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.device = device;
    options.threads = 2;
    options.context = 256;
    return fixture_open(model, &options);
}

/* A table of n tokens and a segment over all of it. */
static spry_segment whole(spry_engine *e, spry_kv_table *table, const int32_t *ids, size_t count, spry_want want)
{
    assert_int_equal(spry_kv_table_init(table, 256, NULL), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(table, &e->pool, count, NULL), SPRY_OK);
    return (spry_segment){table, ids, 0, (uint32_t)count, want, {{0}}, 0, NULL, 0};
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void unknown_devices_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
    } cases[] = {{"gpu", "device 'gpu'|not known|cpu|far"},
                 {"", "device ''|not known|cpu|far"},
                 {"cpu0", "cpu0|not known|far"},
                 {"cpu:0", "cpu:0|not known"},
                 {"far:1", "far:1|not known"}};
    char path[512];
    snprintf(path, sizeof path, "%s/models/llama", TEST_DATA);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_engine_options options;
        spry_engine *engine = NULL;
        spry_error error = {0};
        spry_engine_options_default(&options);
        options.device = cases[i].name;
        hostile_expect(spry_engine_open(&engine, path, &options, &error), &error, SPRY_ERR_INPUT, cases[i].words);
        assert_null(engine);
    }
}

/* A device that lacks a part of a model says which, and the engine's CPU computes all of them. */
static void lacking_parts_are_named(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_config config = {
        .arch = &spry_arch_starcoder2, .layer_norm = true, .embedding_scale = 2, .residual_scale = 1, .logit_scale = 1};
    const spry_device_kind *cpu;
    assert_int_equal(spry_device_find(&cpu, "cpu", NULL), SPRY_OK);
    assert_int_equal(spry_device_check(cpu, &config, NULL), SPRY_OK);
    const spry_device_kind plain = {.name = "plain"};
    hostile_expect(spry_device_check(&plain, &config, &error), &error, SPRY_ERR_UNSUPPORTED,
                   "device 'plain'|StarCoder 2|layer norms|multipliers|without a gate");
    config = (spry_config){
        .arch = &spry_arch_llama, .embedding_scale = 1, .residual_scale = 1, .logit_scale = 1, .value_scale = 1};
    assert_int_equal(spry_device_check(&plain, &config, NULL), SPRY_OK);
}

static void a_device_says_what_it_is(void **state)
{
    (void)state;
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine *e = open_on(names[d], "llama");
        assert_string_equal(e->kind->name, names[d]);
        spry_device_memory memory;
        assert_true(spry_device_measure(e->device, &memory));
        spry_engine_close(e);
    }
}

/* ---- the far device ---------------------------------------------------------------------------------------------- */

static void far_memory_is_out_of_reach(void **state)
{
    (void)state;
    int32_t ids[ROWS];
    fixture_ids(ids, ROWS, 5);
    spry_engine *e = open_on("far", "llama"), *near = open_on("cpu", "llama");
    spry_kv_table table;
    spry_segment segment = whole(e, &table, ids, ROWS, SPRY_WANT_LAST);
    assert_int_equal(step_run(e->device, &segment, 1, NULL), SPRY_OK);
    spry_cpu_region regions[SPRY_CPU_REGIONS];
    spry_cpu_device_regions(spry_far_device_inside(e->device), regions);
    for (size_t i = 0; i < SPRY_CPU_REGIONS; i++) {
        if (!regions[i].memory) /* the model has no recurrent states */
            continue;
        assert_true(regions[i].bytes > 0); /* weights are there even where kernels take them as they lie */
        assert_true(faults(regions[i].memory));
        assert_true(faults((const char *)regions[i].memory + regions[i].bytes - 1));
    }
    spry_cpu_device_regions((const spry_cpu_device *)(const void *)near->device, regions);
    assert_false(faults(regions[1].memory));
    spry_kv_table_deinit(&table, &e->pool);
    spry_engine_close(near);
    spry_engine_close(e);
}

/* While the device is stopped, submit has returned, tables and tokens may change, and nothing is computed. */
static void submit_returns_before_the_step(void **state)
{
    (void)state;
    int32_t ids[ROWS], changed[ROWS];
    fixture_ids(ids, ROWS, 6);
    memcpy(changed, ids, sizeof ids);
    spry_engine *e = open_on("far", "llama"), *near = open_on("cpu", "llama");
    spry_kv_table table, same;
    spry_segment segment = whole(e, &table, changed, ROWS, SPRY_WANT_LAST);
    spry_segment expected = whole(near, &same, ids, ROWS, SPRY_WANT_LAST);
    assert_int_equal(step_run(near->device, &expected, 1, NULL), SPRY_OK);
    spry_sampling settings;
    spry_sampling_default(&settings);
    settings.temperature = 0;
    spry_draw draw = {.settings = &settings, .token = -1}, *draws = &draw;
    const spry_device_step step = {.segments = &segment, .n_segments = 1, .draws = &draws, .n_draws = 1};
    spry_far_device_hold(e->device, true);
    assert_int_equal(spry_device_submit(e->device, &step, NULL), SPRY_OK);
    assert_int_equal(draw.token, -1);
    memset(changed, 0, sizeof changed);
    memset(&segment, 0, sizeof segment);
    table.entries[0].page = table.entries[1].page;
    spry_far_device_hold(e->device, false);
    assert_int_equal(spry_device_wait(e->device, NULL), SPRY_OK);
    table.entries[0].page = same.entries[0].page;
    assert_memory_equal(step_logits(e->device, 0, 1), step_logits(near->device, 0, 1), VOCAB * sizeof(float));
    assert_int_not_equal(draw.token, -1);
    spry_kv_table_deinit(&table, &e->pool);
    spry_kv_table_deinit(&same, &near->pool);
    spry_engine_close(near);
    spry_engine_close(e);
}

/* A step whose tokens the step before it draws, while the device is stopped; and what is refused. */
static void a_step_goes_after_another(void **state)
{
    (void)state;
    static const uint32_t first[] = {0}, other[] = {1};
    int32_t ids[ROWS];
    fixture_ids(ids, ROWS, 6);
    spry_engine *e = open_on("far", "llama"), *near = open_on("cpu", "llama");
    spry_kv_table table, same;
    spry_segment segment = whole(e, &table, ids, ROWS, SPRY_WANT_LAST);
    spry_segment expected = whole(near, &same, ids, ROWS, SPRY_WANT_LAST);
    spry_error error = {0};
    spry_sampling settings;
    spry_sampling_default(&settings);
    settings.temperature = 0;
    spry_draw draw = {.settings = &settings, .token = -1}, next = draw, right = draw;
    spry_draw *draws[] = {&draw}, *next_draws[] = {&next}, *right_draws[] = {&right};
    const spry_device_step step = {&segment, 1, draws, 1, NULL}, after = {&segment, 1, next_draws, 1, NULL};
    const spry_device_step right_step = {&expected, 1, right_draws, 1, NULL};
    hostile_expect(spry_device_submit_after(e->device, &after, first, &error), &error, SPRY_ERR_UNSUPPORTED,
                   "after 0 others");
    assert_false(spry_device_goes_ahead(near->device));
    spry_far_device_hold(e->device, true);
    assert_int_equal(spry_device_submit(e->device, &step, NULL), SPRY_OK);
    hostile_expect(spry_device_submit_after(e->device, &after, first, &error), &error, SPRY_ERR_INPUT, "40 rows");
    assert_int_equal(spry_kv_table_extend(&table, &e->pool, 1, NULL), SPRY_OK);
    segment = (spry_segment){&table, NULL, ROWS, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    hostile_expect(spry_device_submit_after(e->device, &after, other, &error), &error, SPRY_ERR_INPUT, "draw 1");
    assert_int_equal(spry_device_submit_after(e->device, &after, first, NULL), SPRY_OK);
    hostile_expect(spry_device_submit_after(e->device, &after, first, &error), &error, SPRY_ERR_UNSUPPORTED,
                   "after 2 others");
    assert_true(draw.token == -1 && next.token == -1);
    spry_far_device_hold(e->device, false);
    assert_int_equal(spry_device_wait(e->device, NULL), SPRY_OK);
    int32_t token = draw.token;
    draw.token = 0; /* as a caller may set it that has read it */
    assert_int_equal(spry_device_wait(e->device, NULL), SPRY_OK);
    assert_int_equal(spry_device_submit(near->device, &right_step, NULL), SPRY_OK);
    assert_int_equal(spry_device_wait(near->device, NULL), SPRY_OK);
    assert_int_equal(token, right.token);
    assert_int_equal(spry_kv_table_extend(&same, &near->pool, 1, NULL), SPRY_OK);
    expected = (spry_segment){&same, &token, ROWS, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    assert_int_equal(spry_device_submit(near->device, &right_step, NULL), SPRY_OK);
    assert_int_equal(spry_device_wait(near->device, NULL), SPRY_OK);
    assert_int_equal(next.token, right.token);
    assert_memory_equal(step_logits(e->device, 0, 1), step_logits(near->device, 0, 1), VOCAB * sizeof(float));
    spry_kv_table_deinit(&table, &e->pool);
    spry_kv_table_deinit(&same, &near->pool);
    spry_engine_close(near);
    spry_engine_close(e);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void rows_that_a_step_did_not_give_are_refused(void **state)
{
    (void)state;
    int32_t ids[ROWS];
    fixture_ids(ids, ROWS, 7);
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine *e = open_on(names[d], "llama");
        spry_kv_table table;
        spry_error error = {0};
        const float *rows;
        spry_segment segment = whole(e, &table, ids, ROWS, SPRY_WANT_LAST);
        hostile_expect(spry_device_logits(e->device, &rows, 0, 1, &error), &error, SPRY_ERR_INPUT, "logits|gave 0");
        assert_int_equal(step_run(e->device, &segment, 1, NULL), SPRY_OK);
        assert_non_null(step_logits(e->device, 0, 1));
        hostile_expect(spry_device_logits(e->device, &rows, 1, 1, &error), &error, SPRY_ERR_INPUT, "logits|gave 1");
        hostile_expect(spry_device_logits(e->device, &rows, SIZE_MAX, 2, &error), &error, SPRY_ERR_INPUT, "logits");
        hostile_expect(spry_device_hidden(e->device, &rows, 0, 1, &error), &error, SPRY_ERR_INPUT, "hidden|gave 0");
        spry_sampling settings;
        spry_sampling_default(&settings);
        spry_draw draw = {.row = 1, .settings = &settings}, *draws = &draw;
        hostile_expect(spry_device_draw(e->device, &draws, 1, &error), &error, SPRY_ERR_INPUT, "draw of row 1");
        segment.n_rows++;
        hostile_expect(step_run(e->device, &segment, 1, &error), &error, SPRY_ERR_CONTEXT, "position 41|of 40");
        spry_kv_table_deinit(&table, &e->pool);
        spry_engine_close(e);
    }
}

/* Settings of every kind; the sampler on the host says what is right. */
static void draws_are_those_of_the_sampler(void **state)
{
    (void)state;
    int32_t ids[ROWS];
    uint32_t mask[VOCAB / 32];
    const spry_logit_bias bias[] = {{17, 3}, {40, -INFINITY}};
    fixture_ids(ids, ROWS, 8);
    for (size_t i = 0; i < SPRY_COUNT(mask); i++)
        mask[i] = 0x5a5a3c3cu << i % 3;
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine *e = open_on(names[d], "qwen3");
        spry_kv_table table;
        spry_sampler *sampler;
        spry_segment segments[2] = {whole(e, &table, ids, ROWS, SPRY_WANT_NOTHING)};
        segments[0].n_rows = ROWS - 8;
        segments[1] = (spry_segment){&table, ids + ROWS - 8, ROWS - 8, 8, SPRY_WANT_ALL, {{0}}, 0, NULL, 0};
        assert_int_equal(spry_sampler_create(&sampler, e->ops, VOCAB, NULL), SPRY_OK);
        for (int kind = 0; kind < 8; kind++) {
            spry_sampling s;
            spry_random random;
            spry_sampling_default(&s);
            s.temperature = kind == 0 ? 0 : 0.5f + (float)kind / 4;
            s.top_k = kind == 2 ? 20 : 0;
            s.top_p = kind == 3 ? 0.7f : 1;
            s.repeat_penalty = kind == 4 ? 1.3f : 1;
            s.typical_p = kind == 5 ? 0.6f : 1;
            s.seed = (uint64_t)kind * 7 + 1;
            s.bias = kind == 6 ? bias : NULL;
            s.n_bias = kind == 6 ? SPRY_COUNT(bias) : 0;
            spry_random_seed(&random, s.seed);
            assert_int_equal(spry_sampler_set(sampler, &s, NULL), SPRY_OK);
            spry_draw draws[8], *list[8];
            for (size_t i = 0; i < 8; i++) {
                list[i] = &draws[i];
                draws[i] = (spry_draw){.row = i, .settings = &s, .history = ids, .n_history = ROWS - 7 + i};
                draws[i].mask = kind == 7 ? mask : NULL;
                draws[i].u = kind ? spry_random_unit(&random) : 0;
                draws[i].wants_logprob = i % 2;
                draws[i].max_top = i % 3 ? 0 : 5;
            }
            /* Half of them go with the step, half are asked for after it. */
            const spry_device_step step = {segments, 2, list, 4, NULL};
            assert_int_equal(spry_device_submit(e->device, &step, NULL), SPRY_OK);
            assert_int_equal(spry_device_wait(e->device, NULL), SPRY_OK);
            assert_int_equal(spry_device_draw(e->device, list + 4, 4, NULL), SPRY_OK);
            for (size_t i = 0; i < 8; i++) {
                const float *logits = step_logits(e->device, i, 1);
                int32_t token;
                assert_int_equal(spry_sampler_draw(sampler, &token, logits, ids, ROWS - 7 + i, draws[i].mask, NULL),
                                 SPRY_OK);
                assert_int_equal(draws[i].status, SPRY_OK);
                assert_int_equal(draws[i].token, token);
                assert_int_equal(draws[i].n_top, draws[i].max_top);
                if (draws[i].wants_logprob)
                    assert_true(draws[i].logprob == spry_logprob(logits, VOCAB, token));
                for (size_t k = 0; k < draws[i].n_top; k++)
                    assert_true(fabs(draws[i].top[k].logprob - spry_logprob(logits, VOCAB, draws[i].top[k].id)) < 1e-9);
            }
        }
        spry_sampler_destroy(sampler);
        spry_kv_table_deinit(&table, &e->pool);
        spry_engine_close(e);
    }
}

/* A draw that nothing can come of fails alone. */
static void a_draw_fails_alone(void **state)
{
    (void)state;
    int32_t ids[ROWS];
    const uint32_t nothing[VOCAB / 32] = {0};
    fixture_ids(ids, ROWS, 9);
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine *e = open_on(names[d], "llama");
        spry_kv_table table;
        spry_segment segment = whole(e, &table, ids, ROWS, SPRY_WANT_LAST);
        spry_sampling s;
        spry_sampling_default(&s);
        spry_draw bad = {.settings = &s, .mask = nothing}, good = {.settings = &s};
        spry_draw *list[] = {&bad, &good};
        const spry_device_step step = {&segment, 1, list, 2, NULL};
        assert_int_equal(spry_device_submit(e->device, &step, NULL), SPRY_OK);
        assert_int_equal(spry_device_wait(e->device, NULL), SPRY_OK);
        hostile_expect(bad.status, &bad.error, SPRY_ERR_INPUT, "no token can be drawn");
        assert_int_equal(good.status, SPRY_OK);
        spry_kv_table_deinit(&table, &e->pool);
        spry_engine_close(e);
    }
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const spry_kv_mover *mover;
    uint32_t page;
    size_t bytes;
    void *room;
    const void *got;
} reader;

static void *read_elsewhere(void *context)
{
    reader *r = context;
    r->got = r->mover->read(r->mover->self, r->page, r->room);
    return NULL;
}

/* Bytes that were written come back, also of a copy, and to another thread; steps use them. */
static void pages_are_read_written_and_copied(void **state)
{
    (void)state;
    int32_t ids[ROWS];
    fixture_ids(ids, ROWS, 10);
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine *e = open_on(names[d], "llama");
        const spry_kv_mover *m = &e->pool.mover;
        spry_kv_table table;
        size_t bytes = e->pool.page_bytes;
        float expected[VOCAB];
        unsigned char *kept = malloc(bytes), *room = malloc(bytes);
        assert_true(kept && room);
        spry_segment all = whole(e, &table, ids, ROWS, SPRY_WANT_LAST), last = all;
        last.first_position = ROWS - 1;
        last.tokens = ids + ROWS - 1;
        last.n_rows = 1;
        assert_int_equal(step_run(e->device, &all, 1, NULL), SPRY_OK);
        memcpy(expected, step_logits(e->device, 0, 1), sizeof expected);

        uint32_t first = table.entries[0].page, copy;
        memcpy(kept, m->read(m->self, first, room), bytes);
        assert_true(spry_kv_page_take(&e->pool, &copy));
        m->copy(m->self, copy, first);
        assert_memory_equal(m->read(m->self, copy, room), kept, bytes);

        void *blank = m->write_begin(m->self, first); /* what a step needs is gone, */
        memset(blank, 0, bytes);
        assert_true(m->write_end(m->self, first, true) && m->write_finish(m->self));
        assert_int_equal(step_run(e->device, &last, 1, NULL), SPRY_OK);
        assert_memory_not_equal(step_logits(e->device, 0, 1), expected, sizeof expected);
        table.entries[0].page = copy; /* but not in the copy */
        assert_int_equal(step_run(e->device, &last, 1, NULL), SPRY_OK);
        assert_memory_equal(step_logits(e->device, 0, 1), expected, sizeof expected);
        table.entries[0].page = first;
        memcpy(m->write_begin(m->self, first), kept, bytes);
        assert_true(m->write_end(m->self, first, true) && m->write_finish(m->self));
        assert_int_equal(step_run(e->device, &last, 1, NULL), SPRY_OK);
        assert_memory_equal(step_logits(e->device, 0, 1), expected, sizeof expected);

        reader r = {m, first, bytes, room, NULL};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, &r), 0);
        assert_int_equal(step_run(e->device, &last, 1, NULL), SPRY_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_memory_equal(r.got, kept, bytes);
        spry_kv_page_unref(&e->pool, copy);
        spry_kv_table_deinit(&table, &e->pool);
        free(kept);
        free(room);
        spry_engine_close(e);
    }
}

/* ---- what pages on disk are named by ----------------------------------------------------------------------------- */

static spry_kv_key fingerprint_of(const spry_engine *e, const char *kernels)
{
    spry_kv_key key;
    assert_int_equal(spry_engine_fingerprint(&key, e, kernels, NULL, NULL), SPRY_OK);
    return key;
}

static void pages_on_disk_carry_the_kernels_revision(void **state)
{
    (void)state;
    scratch place;
    scratch_init(&place);
    spry_kv_key keys[SPRY_COUNT(names)];
    for (size_t d = 0; d < SPRY_COUNT(names); d++) {
        spry_engine_options options;
        char now[64], later[64];
        spry_engine_options_default(&options);
        options.device = names[d];
        options.cache_dir = place.folder;
        spry_engine *e = fixture_open("llama", &options);
        keys[d] = e->fingerprint;
        snprintf(now, sizeof now, "%s revision %d", e->ops->name, SPRY_KERNEL_REVISION);
        snprintf(later, sizeof later, "%s revision %d", e->ops->name, SPRY_KERNEL_REVISION + 1);
        assert_true(spry_kv_key_equal(e->fingerprint, fingerprint_of(e, now)));
        assert_false(spry_kv_key_equal(e->fingerprint, fingerprint_of(e, later)));
        spry_engine_close(e);
    }
    assert_true(spry_kv_key_equal(keys[0], keys[1])); /* the same kernels, the same pages */
    scratch_deinit(&place);
}

static void a_setting_of_the_experts_changes_the_fingerprint(void **state)
{
    (void)state;
    char path[512];
    spry_model *model;
    spry_threads *threads;
    spry_kv_key before, after;
    snprintf(path, sizeof path, "%s/models/qwen3-moe", TEST_DATA);
    assert_int_equal(spry_model_open(&model, path, NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    assert_int_equal(spry_model_fingerprint(&before, model, threads, NULL), SPRY_OK);
    assert_true(before.low || before.high);
    model->config.normalise_experts = !model->config.normalise_experts;
    assert_int_equal(spry_model_fingerprint(&after, model, threads, NULL), SPRY_OK);
    assert_false(spry_kv_key_equal(before, after));
    spry_threads_destroy(threads);
    spry_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_devices_are_refused),
        cmocka_unit_test(lacking_parts_are_named),
        cmocka_unit_test(a_device_says_what_it_is),
        cmocka_unit_test(far_memory_is_out_of_reach),
        cmocka_unit_test(submit_returns_before_the_step),
        cmocka_unit_test(a_step_goes_after_another),
        cmocka_unit_test(rows_that_a_step_did_not_give_are_refused),
        cmocka_unit_test(draws_are_those_of_the_sampler),
        cmocka_unit_test(a_draw_fails_alone),
        cmocka_unit_test(pages_are_read_written_and_copied),
        cmocka_unit_test(pages_on_disk_carry_the_kernels_revision),
        cmocka_unit_test(a_setting_of_the_experts_changes_the_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
