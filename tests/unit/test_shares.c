/* Work finds its worker and changes no bit: long prompts computed by one thread give the same logits as the same rows
 * computed by several, a few at a time, where attention is divided into chunks, while threads are held up at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "device/device.h"
#include "model/model.h"
#include "support/best_ops.h"
#include "support/device_rows.h"

enum { TOKENS = 1200, ROWS = 200, LAST = 20, VOCAB_MAX = 1024 }; /* three chunks of attention */

/* ---- kernels that are held up ------------------------------------------------------------------------------------ */

static const spry_ops *plain;
static atomic_uint calls, joins;

static void hold_up(void)
{
    uint32_t number = atomic_fetch_add(&calls, 1) * 2654435761u >> 24;
    if (number < 8)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * (long)number}, NULL);
    else if (number < 64)
        sched_yield();
}

static void slow_attend(const spry_attend *a, size_t kv_begin, size_t kv_end)
{
    hold_up();
    plain->attend(a, kv_begin, kv_end);
}

static void slow_join(const spry_attend *a, const spry_attend_parts *parts, size_t kv_head)
{
    hold_up();
    atomic_fetch_add(&joins, 1);
    plain->attend_join(a, parts, kv_head);
}

static void slow_product(const spry_matmul *m, size_t begin, size_t end)
{
    hold_up();
    plain->matmul[SPRY_F32].run(m, begin, end);
}

/* The checkpoints are F32. */
static spry_ops slow_ops(void)
{
    spry_ops ops = *plain;
    ops.attend = slow_attend;
    ops.attend_join = slow_join;
    ops.matmul[SPRY_F32].run = slow_product;
    return ops;
}

/* ---- one model --------------------------------------------------------------------------------------------------- */

typedef struct runner {
    spry_threads *threads;
    spry_kv_pool pool;
    spry_device *device;
    spry_kv_table table;
} runner;

static void runner_open(runner *r, spry_model *model, const spry_ops *ops, spry_dtype kv, size_t threads)
{
    spry_kv_shape shape = spry_model_kv_shape(model, kv);
    assert_int_equal(spry_threads_create(&r->threads, threads, NULL), SPRY_OK);
    assert_int_equal(spry_kv_pool_init(&r->pool, &shape, TOKENS / SPRY_PAGE_TOKENS + 1, NULL), SPRY_OK);
    const spry_device_setup setup = {.config = &model->config,
                                     .weights = &model->weights,
                                     .pool = &r->pool,
                                     .ops = ops,
                                     .threads = r->threads,
                                     .limits = {.max_rows = ROWS, .max_logits = ROWS, .session = TOKENS},
                                     .mapped = true};
    assert_int_equal(spry_device_open(&r->device, "cpu", &setup, NULL), SPRY_OK);
    spry_device_attach(r->device, &r->pool);
    assert_int_equal(spry_kv_table_init(&r->table, TOKENS, NULL), SPRY_OK);
}

static void runner_close(runner *r)
{
    spry_kv_table_deinit(&r->table, &r->pool);
    spry_device_close(r->device);
    spry_kv_pool_deinit(&r->pool);
    spry_threads_destroy(r->threads);
}

/* The logits of the last LAST ids; those before are computed in steps of many rows, these in steps of `few`. */
static void run(float *out, runner *r, const int32_t *ids, size_t few, size_t n_vocab)
{
    for (size_t done = 0, rows; done < TOKENS; done += rows) {
        size_t left = TOKENS - done, last = left <= LAST, most = last ? few : ROWS;
        rows = last && left < most ? left : !last && left - LAST < most ? left - LAST : most;
        assert_int_equal(spry_kv_table_extend(&r->table, &r->pool, rows, NULL), SPRY_OK);
        spry_segment segment = {
            &r->table, ids + done, (uint32_t)done, (uint32_t)rows, last ? SPRY_WANT_ALL : SPRY_WANT_NOTHING, {{0}}, 0,
            NULL,      0};
        assert_int_equal(step_run(r->device, &segment, 1, NULL), SPRY_OK);
        if (last)
            memcpy(out + (done + LAST - TOKENS) * n_vocab, step_logits(r->device, 0, rows),
                   rows * n_vocab * sizeof *out);
    }
}

static void check_model(const char *name, spry_dtype kv)
{
    char path[512];
    spry_error error = {0};
    spry_model *model;
    runner r;
    static float expected[LAST * VOCAB_MAX], got[LAST * VOCAB_MAX];
    int32_t ids[TOKENS];
    spry_ops slow = slow_ops();
    snprintf(path, sizeof path, "%s/models/%s", TEST_DATA, name);
    if (spry_model_open(&model, path, &error))
        fail_msg("%s", error.message);
    size_t n_vocab = model->config.n_vocab;
    assert_true(n_vocab <= VOCAB_MAX);
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 8) % n_vocab);
    runner_open(&r, model, plain, kv, 1);
    run(expected, &r, ids, LAST, n_vocab);
    runner_close(&r);
    static const struct {
        size_t threads, few;
    } ways[] = {{4, 1}, {2, 3}};
    for (size_t i = 0; i < SPRY_COUNT(ways); i++) {
        atomic_store(&joins, 0);
        runner_open(&r, model, &slow, kv, ways[i].threads);
        run(got, &r, ids, ways[i].few, n_vocab);
        runner_close(&r);
        assert_true(atomic_load(&joins) > 0);
        if (memcmp(expected, got, LAST * n_vocab * sizeof *got))
            fail_msg("%s, kv %s: %zu threads, %zu rows a step changed bits", name, spry_dtype_name(kv), ways[i].threads,
                     ways[i].few);
    }
    spry_model_close(model);
}

static void every_table(const char *name)
{
    char names[128], *rest = names;
    snprintf(names, sizeof names, "%s", spry_ops_names());
    for (char *cpu; (cpu = strsep(&rest, ", "));)
        if (*cpu) {
            assert_int_equal(spry_ops_get(&plain, cpu, NULL), SPRY_OK);
            check_model(name, SPRY_F16);
            check_model(name, SPRY_Q8_0);
        }
}

static void deep_contexts_have_the_same_bits(void **state)
{
    (void)state;
    every_table("qwen3");
}

/* A window: of most chunks a row sees nothing. */
static void windows_have_the_same_bits(void **state)
{
    (void)state;
    every_table("mistral-swa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_contexts_have_the_same_bits),
        cmocka_unit_test(windows_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
