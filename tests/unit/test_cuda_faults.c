/* What goes wrong with a GPU: none there, too old, too small, calls that fail while a model is placed or a step runs,
 * work that never ends. Each is a sentence and leaves nothing behind. The GPU is imitated (support/cuda_imitation.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_state.h"
#include "model/model.h"
#include "support/cuda_imitation.h"

enum { TOKENS = 64, FAILURE = 700, EVERY = 5 };

static spry_model *model;
static spry_kv_pool pool;
static spry_device_setup setup;

static int open_model(void **state)
{
    (void)state;
    spry_error error = {0};
    const spry_ops *ops;
    spry_threads *threads;
    assert_int_equal(spry_model_open(&model, TEST_DATA "/models/qwen3", &error), SPRY_OK);
    assert_int_equal(spry_ops_get(&ops, "ref", &error), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, &error), SPRY_OK);
    spry_kv_shape shape = spry_model_kv_shape(model, SPRY_F16);
    shape.n_states = 2;
    assert_int_equal(spry_kv_pool_init(&pool, &shape, TOKENS / SPRY_PAGE_TOKENS, &error), SPRY_OK);
    setup = (spry_device_setup){.config = &model->config,
                                .weights = &model->weights,
                                .pool = &pool,
                                .ops = ops,
                                .threads = threads,
                                .limits = {16, 16, TOKENS, 0, 0}};
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    spry_threads_destroy(setup.threads);
    spry_kv_pool_deinit(&pool);
    spry_model_close(model);
    return 0;
}

static spry_status open_gpu(spry_device **device, int index, spry_error *error)
{
    spry_cuda driver = cuda_imitation_driver();
    return spry_cuda_device_open(device, &driver, cuda_imitation_images, index, &setup, error);
}

static void refused(spry_status expected, const char *words, int index)
{
    spry_error error = {0};
    spry_device *device;
    assert_int_equal(open_gpu(&device, index, &error), expected);
    assert_null(device);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    assert_true(cuda_imitation_is_clean());
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    cuda_imitation_reset();
    imitation.devices = 0;
    refused(SPRY_ERR_INPUT, "there is no GPU 0: the driver has 0", 0);
    cuda_imitation_reset();
    refused(SPRY_ERR_INPUT, "there is no GPU 3: the driver has 1", 3);
    cuda_imitation_reset();
    imitation.compute_major = 7;
    refused(SPRY_ERR_UNSUPPORTED, "compute capability 7", 0);
    cuda_imitation_reset();
    imitation.free_bytes = 1 << 20;
    refused(SPRY_ERR_MEMORY, "Imitated GPU 0 has 1 MB free", 0);
}

static void names_of_gpus_are_checked(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    assert_int_equal(spry_device_open(&device, "cuda:first", &setup, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "selects the GPU"));
    assert_int_equal(spry_device_open(&device, "cuda:99999999999999999999", &setup, &error), SPRY_ERR_INPUT);
    const void *const none[] = {NULL};
    spry_cuda driver = cuda_imitation_driver();
    cuda_imitation_reset();
    assert_int_equal(spry_cuda_device_open(&device, &driver, none, 0, &setup, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no GPU kernels are installed"));
    assert_true(cuda_imitation_is_clean());
    const void *const foreign[] = {cuda_imitation_foreign, NULL};
    assert_int_equal(spry_cuda_device_open(&device, &driver, foreign, 0, &setup, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no kernels for Imitated GPU 0"));
    assert_true(cuda_imitation_is_clean());
}

static void every_call_may_fail_while_opening(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    int calls = imitation.calls;
    spry_device_close(device);
    assert_true(cuda_imitation_is_clean());
    for (int fail_at = 1; fail_at <= calls; fail_at += fail_at < 40 ? 1 : EVERY) {
        cuda_imitation_reset();
        imitation.fail_at = fail_at;
        imitation.fail_with = FAILURE;
        spry_status status = open_gpu(&device, 0, &error);
        if (status == SPRY_OK) /* asking for free memory may fail: then nothing is checked before */
            spry_device_close(device);
        else
            assert_non_null(strstr(error.message, "the driver is tired"));
        assert_true(cuda_imitation_is_clean());
    }
}

static void memory_may_run_out_in_mid_load(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    size_t failed = 0;
    for (int fail_at = 1; fail_at < 40; fail_at++) {
        cuda_imitation_reset();
        imitation.fail_at = fail_at;
        imitation.fail_with = SPRY_CUDA_OUT_OF_MEMORY;
        spry_status status = open_gpu(&device, 0, &error);
        if (status == SPRY_OK)
            spry_device_close(device);
        failed += status == SPRY_ERR_MEMORY && strstr(error.message, "are not free");
        assert_true(cuda_imitation_is_clean());
    }
    assert_true(failed > 3);
}

/* One step of three rows on a new device. */
static spry_status run_step(spry_device *device, spry_error *error)
{
    static const int32_t ids[] = {1, 2, 3};
    spry_kv_table table;
    assert_int_equal(spry_kv_table_init(&table, TOKENS, error), SPRY_OK);
    spry_device_attach(device, &pool);
    assert_int_equal(spry_kv_table_extend(&table, &pool, 3, error), SPRY_OK);
    spry_segment segment = {&table, ids, 0, 3, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    spry_sampling settings;
    spry_sampling_default(&settings);
    spry_draw draw = {.settings = &settings, .u = 0.5}, *draws[] = {&draw};
    const spry_device_step step = {&segment, 1, draws, 1, NULL};
    spry_status status = spry_device_submit(device, &step, error);
    if (!status)
        status = spry_device_wait(device, error);
    spry_kv_table_deinit(&table, &pool);
    return status;
}

static void every_call_may_fail_in_a_step(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    assert_int_equal(run_step(device, &error), SPRY_OK);
    int before = imitation.calls;
    assert_int_equal(run_step(device, &error), SPRY_OK); /* captured */
    assert_int_equal(run_step(device, &error), SPRY_OK); /* as a graph */
    int calls = imitation.calls - before;
    spry_device_close(device);
    for (int fail_at = 1; fail_at <= calls; fail_at += EVERY) {
        cuda_imitation_reset();
        assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
        assert_int_equal(run_step(device, &error), SPRY_OK);
        imitation.fail_at = imitation.calls + fail_at;
        imitation.fail_with = FAILURE;
        spry_status status = run_step(device, &error);
        if (!status)
            status = run_step(device, &error);
        assert_int_equal(status, SPRY_ERR_DEVICE);
        assert_non_null(strstr(error.message, "the driver is tired"));
        assert_int_equal(run_step(device, &error), SPRY_ERR_DEVICE); /* a lost GPU stays lost */
        spry_device_close(device);
        assert_true(cuda_imitation_is_clean());
    }
}

enum { CHAIN = 6, PAIR = 2 };

/* Two sequences of CHAIN steps; each step is submitted after the previous one, or when the previous one was read.
 * What the draws gave is in `tokens`. */
static spry_status run_chain(spry_device *device, int32_t tokens[CHAIN][PAIR], bool after, spry_error *error)
{
    static const int32_t ids[] = {1, 2, 3};
    static const uint32_t drawn[PAIR] = {0, 1};
    spry_kv_table tables[PAIR];
    spry_segment segments[PAIR];
    spry_sampling settings;
    spry_draw draws[2][PAIR], *lists[2][PAIR];
    spry_status status = SPRY_OK;
    spry_sampling_default(&settings);
    settings.temperature = 1;
    spry_device_attach(device, &pool);
    for (size_t i = 0; i < PAIR; i++)
        assert_int_equal(spry_kv_table_init(&tables[i], TOKENS, error), SPRY_OK);
    for (size_t at = 0; !status && at < CHAIN; at++) {
        spry_draw *here = draws[at % 2], *before = draws[!(at % 2)];
        for (uint32_t i = 0; i < PAIR; i++) {
            uint32_t first = (uint32_t)tables[i].n_tokens, n = at ? 1 : 2 + i;
            assert_int_equal(spry_kv_table_extend(&tables[i], &pool, n, error), SPRY_OK);
            segments[i] =
                (spry_segment){&tables[i], at ? tokens[at - 1] + i : ids, first, n, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
            here[i] = (spry_draw){.row = i, .settings = &settings, .u = (double)(3 * at + i) / (3 * CHAIN + PAIR)};
            lists[at % 2][i] = &here[i];
        }
        const spry_device_step step = {segments, PAIR, lists[at % 2], PAIR, NULL};
        if (after && at) {
            status = spry_device_submit_after(device, &step, drawn, error);
            memset(segments, 0, sizeof segments); /* they were read */
        } else {
            status = spry_device_submit(device, &step, error);
        }
        if (!status && (!after || at))
            status = spry_device_wait(device, error); /* for this step, or for the one before it */
        for (size_t i = 0; !status && i < PAIR && (!after || at); i++)
            tokens[after ? at - 1 : at][i] = (after ? before : here)[i].token;
    }
    if (!status && after)
        status = spry_device_wait(device, error);
    for (size_t i = 0; i < PAIR; i++) {
        tokens[CHAIN - 1][i] = draws[(CHAIN - 1) % 2][i].token;
        spry_kv_table_deinit(&tables[i], &pool);
    }
    return status;
}

/* The GPU takes its own tokens, while nothing of a step is done before its end is waited for. */
static void steps_go_after_each_other(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    int32_t one_by_one[CHAIN][PAIR], ahead[CHAIN][PAIR];
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    assert_int_equal(run_chain(device, one_by_one, false, &error), SPRY_OK);
    imitation.late = true;
    assert_int_equal(run_chain(device, ahead, true, &error), SPRY_OK);
    assert_memory_equal(ahead, one_by_one, sizeof ahead);
    assert_int_not_equal(ahead[1][0], ahead[2][0]);
    int before = imitation.calls;
    assert_int_equal(run_chain(device, ahead, true, &error), SPRY_OK); /* as graphs */
    assert_memory_equal(ahead, one_by_one, sizeof ahead);
    int calls = imitation.calls - before;
    spry_device_close(device);
    assert_true(cuda_imitation_is_clean());
    for (int fail_at = 1; fail_at <= calls; fail_at += 3) {
        cuda_imitation_reset();
        assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
        imitation.fail_at = imitation.calls + fail_at;
        imitation.fail_with = FAILURE;
        assert_int_equal(run_chain(device, ahead, true, &error), SPRY_ERR_DEVICE);
        spry_device_close(device);
        assert_true(cuda_imitation_is_clean());
    }
}

/* Times of ops are measured by the events between them, on the GPU's clock; a watched step is waited for once, and
 * gives what an unwatched one gives. */
static void ops_are_timed_by_events(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    spry_op_watch *watch = calloc(1, sizeof *watch);
    int32_t plain[CHAIN][PAIR], watched[CHAIN][PAIR];
    assert_non_null(watch);
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    assert_int_equal(run_chain(device, plain, false, &error), SPRY_OK);
    uint64_t before = spry_device_waits(device);
    assert_true(before >= CHAIN);
    spry_device_set_watch(device, watch);
    size_t launches = imitation.launches;
    assert_int_equal(run_step(device, &error), SPRY_OK);
    launches = imitation.launches - launches;
    assert_int_equal(spry_device_waits(device), before + 1);
    uint64_t gpu_ns = spry_device_sampling_ns(device);
    assert_int_not_equal(gpu_ns, 0);
    for (size_t op = 0; op < SPRY_OP_COUNT; op++)
        for (size_t type = 0; type < SPRY_DTYPE_COUNT; type++) {
            gpu_ns += watch->ops[SPRY_PLACE_GPU][op][type].ns;
            assert_int_equal(watch->ops[SPRY_PLACE_CPU][op][type].calls, 0);
        }
    assert_int_not_equal(watch->ops[SPRY_PLACE_HOST][SPRY_OP_LAYOUT][SPRY_F32].ns, 0);
    assert_int_equal(gpu_ns, (uint64_t)((double)launches * IMITATED_LAUNCH_MS * 1e6));
    const spry_op_figures *attend = &watch->ops[SPRY_PLACE_GPU][SPRY_OP_ATTEND][SPRY_F16];
    uint32_t layers = model->config.n_layers;
    assert_int_equal(attend->calls, layers);
    assert_int_equal(attend->bytes, 3 * pool.page_bytes / SPRY_PAGE_TOKENS);
    assert_int_equal(attend->products, (1 + 2 + 3) * 2 * model->config.n_heads * model->config.head_dim * layers);
    assert_int_equal(run_chain(device, watched, true, &error), SPRY_OK); /* one after the other */
    assert_memory_equal(watched, plain, sizeof plain);
    assert_int_equal(attend->calls, (1 + CHAIN) * layers);
    spry_device_set_watch(device, NULL);
    assert_int_equal(run_step(device, &error), SPRY_OK);
    assert_int_equal(attend->calls, (1 + CHAIN) * layers);
    spry_device_close(device);
    assert_true(cuda_imitation_is_clean());
    free(watch);
}

/* Memory that a step wants besides fails this step alone. */
static void a_step_without_memory_fails_alone(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    int before = imitation.calls, failed = 0;
    assert_int_equal(run_step(device, &error), SPRY_OK);
    int calls = imitation.calls - before;
    spry_device_close(device);
    for (int fail_at = 1; fail_at <= calls; fail_at++) {
        cuda_imitation_reset();
        assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
        imitation.fail_at = imitation.calls + fail_at;
        imitation.fail_with = SPRY_CUDA_OUT_OF_MEMORY;
        imitation.fail_memory = true;
        spry_status status = run_step(device, &error);
        if (status) {
            assert_int_equal(status, SPRY_ERR_MEMORY);
            assert_non_null(strstr(error.message, "are not free"));
            failed++;
        }
        assert_int_equal(run_step(device, &error), SPRY_OK);
        spry_device_close(device);
        assert_true(cuda_imitation_is_clean());
    }
    assert_int_equal(failed, 4); /* what draws are sent with and what they give, on both sides */
}

static void work_that_never_ends_is_given_up(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    cuda_imitation_reset();
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    ((spry_cuda_device *)device)->context.timeout_ms = 5;
    imitation.hangs = true;
    assert_int_equal(run_step(device, &error), SPRY_ERR_DEVICE);
    assert_non_null(strstr(error.message, "no end after"));
    spry_device_close(device);
    assert_true(cuda_imitation_is_clean());
}

/* Pages of a restored prefix are sent one after the other, with one wait for all of them. */
static void many_pages_are_written_with_one_wait(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_device *device;
    unsigned char *room = malloc(pool.page_bytes);
    assert_non_null(room);
    cuda_imitation_reset();
    setup.restores = true;
    assert_int_equal(open_gpu(&device, 0, &error), SPRY_OK);
    const spry_kv_mover m = spry_device_mover(device);
    assert_int_equal(m.max_writes, pool.n_pages);
    size_t before = imitation.waits;
    for (uint32_t page = 0; page < pool.n_pages; page++)
        memset(m.write_begin(m.self, page), (int)page + 1, pool.page_bytes);
    assert_null(m.write_begin(m.self, 0));
    for (uint32_t page = 0; page < pool.n_pages; page++)
        assert_true(m.write_end(m.self, page, page != 1)); /* one is abandoned */
    assert_true(m.write_finish(m.self));
    assert_int_equal(imitation.waits, before + 1);
    for (uint32_t page = 0; page < pool.n_pages; page++)
        assert_int_equal(*(const unsigned char *)m.read(m.self, page, room), page == 1 ? 0xff : page + 1);
    assert_non_null(m.write_begin(m.self, 0)); /* there is room again */
    assert_true(m.write_end(m.self, 0, true));
    imitation.fail_at = imitation.calls + 2;
    imitation.fail_with = FAILURE;
    assert_false(m.write_finish(m.self));
    spry_device_close(device);
    assert_true(cuda_imitation_is_clean());
    setup.restores = false;
    free(room);
}

static void remember_warning(void *user, int level, const char *sentence)
{
    if (level == SPRY_LOG_WARN && strstr(sentence, "the CPU computes instead"))
        ++*(int *)user;
}

/* An engine goes on with the CPU and says so. */
static void without_a_gpu_the_cpu_computes(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine;
    spry_engine_options options;
    int warnings = 0;
    if (spry_device_total("cuda")) {
        print_message("SKIPPED without_a_gpu_the_cpu_computes: this machine has a GPU\n");
        skip();
    }
    spry_engine_options_default(&options);
    options.device = "cuda:0";
    options.log = remember_warning;
    options.log_user = &warnings;
    assert_int_equal(spry_engine_open(&engine, TEST_DATA "/models/qwen3", &options, &error), SPRY_OK);
    assert_int_equal(warnings, 1);
    spry_engine_close(engine);
}

/* With an argument, only tests of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(names_of_gpus_are_checked),
        cmocka_unit_test(every_call_may_fail_while_opening),
        cmocka_unit_test(memory_may_run_out_in_mid_load),
        cmocka_unit_test(every_call_may_fail_in_a_step),
        cmocka_unit_test(work_that_never_ends_is_given_up),
        cmocka_unit_test(without_a_gpu_the_cpu_computes),
        cmocka_unit_test(a_step_without_memory_fails_alone),
        cmocka_unit_test(many_pages_are_written_with_one_wait),
        cmocka_unit_test(steps_go_after_each_other),
        cmocka_unit_test(ops_are_timed_by_events),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, open_model, close_model);
}
