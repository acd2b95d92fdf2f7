/* A model split over two devices: at every border the same bits as on one, pages in two parts, fewer layers where
 * memory is short. The far device replaces a GPU, which test_cuda_models splits off, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/split/split_device.h"
#include "engine/engine_state.h"
#include "golden/golden_models.h"
#include "golden/model_runner.h"
#include "support/far/far_device.h"
#include "support/hostile.h"
#include "support/model_adapters.h"

enum { COUNT = 45, CHUNK = 7 };

static void make_ids(int32_t *ids, size_t count, size_t n_vocab)
{
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)((i * 37 + 5) % n_vocab);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void compare(const char *model, const char *folder, const char *lora, const char *device, uint32_t layers,
                    const int32_t *ids, const float *logits, const float *hidden)
{
    model_runner r;
    runner_open_split(&r, device, layers, folder, lora, SPRY_F16);
    size_t n_vocab = r.model->config.n_vocab, n_embd = r.model->config.n_embd;
    assert_int_equal(spry_device_layers(r.device), layers);
    for (size_t chunk = CHUNK; logits && chunk <= COUNT; chunk += COUNT - CHUNK) {
        float *parts = runner_logits(&r, ids, COUNT, chunk);
        if (memcmp(parts, logits, COUNT * n_vocab * sizeof *parts))
            fail_msg("%s on %s, %u layers on the second, chunks of %zu: other logits", model, device, layers, chunk);
        free(parts);
    }
    float *rows = runner_hidden(&r, ids, COUNT);
    if (memcmp(rows, hidden, COUNT * n_embd * sizeof *rows))
        fail_msg("%s on %s, %u layers on the second: other hidden states", model, device, layers);
    free(rows);
    runner_close(&r);
}

static void every_border_gives_the_same_bits(void **state)
{
    (void)state;
    char folder[512];
    int32_t ids[COUNT];
    size_t split = 0;
    for (const char *const *model = golden_models; *model; model++) {
        model_runner whole;
        spry_error error = {0};
        if (!golden_folder(folder, *model))
            continue;
        runner_open_split(&whole, "cpu", 0, folder, NULL, SPRY_F16);
        uint32_t n = whole.model->config.n_layers;
        make_ids(ids, COUNT, whole.model->config.n_vocab);
        if (spry_split_check(&whole.model->config, &error)) {
            print_message("%-12s left out: %s\n", *model, error.message);
            runner_close(&whole);
            continue;
        }
        bool encoder = whole.model->config.bidirectional;
        float *logits = encoder ? NULL : runner_logits(&whole, ids, COUNT, COUNT);
        float *hidden = runner_hidden(&whole, ids, COUNT);
        for (uint32_t layers = 0; layers <= n; layers++) {
            compare(*model, folder, NULL, "cpu+far", layers, ids, logits, hidden);
            split++;
        }
        compare(*model, folder, NULL, "far+cpu", n / 2, ids, logits, hidden);
        runner_close(&whole);
        free(logits);
        free(hidden);
    }
    assert_true(split > 0);
}

/* Rows go through the adapters of both parts. */
static void adapters_are_split(void **state)
{
    (void)state;
    scratch place;
    model_runner whole;
    int32_t ids[COUNT];
    char folder[SCRATCH_PATH], both[MADE_LIST], lora[MADE_LIST + 8];
    scratch_init(&place);
    made_two(&place, "llama", made_llama, folder, both);
    snprintf(lora, sizeof lora, "%s=-0.5", both);
    runner_open_split(&whole, "cpu", 0, folder, lora, SPRY_F16);
    make_ids(ids, COUNT, whole.model->config.n_vocab);
    float *logits = runner_logits(&whole, ids, COUNT, COUNT), *hidden = runner_hidden(&whole, ids, COUNT);
    for (uint32_t layers = 0; layers <= whole.model->config.n_layers; layers++)
        compare("llama", folder, lora, "cpu+far", layers, ids, logits, hidden);
    runner_close(&whole);
    free(logits);
    free(hidden);
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
    scratch_deinit(&place);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Bytes of whole pages go in and come out, more at once than the far device takes. */
static void pages_are_in_two_parts(void **state)
{
    (void)state;
    char folder[512];
    model_runner r;
    if (!golden_folder(folder, "qwen3"))
        skip();
    runner_open_split(&r, "cpu+far", 1, folder, NULL, SPRY_F16);
    const spry_kv_mover *m = &r.pool.mover;
    size_t bytes = r.pool.page_bytes, n = m->max_writes < r.pool.n_pages ? m->max_writes : r.pool.n_pages;
    unsigned char *room = malloc(bytes);
    assert_true(room && n > 8);
    for (uint32_t page = 0; page < n; page++) {
        unsigned char *to = m->write_begin(m->self, page);
        for (size_t i = 0; i < bytes; i++)
            to[i] = (unsigned char)(i * 7 + page);
        assert_true(m->write_end(m->self, page, page != 2));
    }
    assert_true(m->write_finish(m->self));
    m->copy(m->self, 2, 5);
    for (uint32_t page = 0; page < n; page++) {
        const unsigned char *got = m->read(m->self, page, room);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(got[i], (unsigned char)(i * 7 + (page == 2 ? 5 : page)));
    }
    m->release(m->self, 0, 1);
    free(room);
    runner_close(&r);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint32_t most_layers; /* that the small device opens with */
static size_t free_bytes;
static char said[512];
static size_t warnings;

static spry_status open_small(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    *out = NULL;
    if (setup->config->n_layers > most_layers)
        return spry_fail(error, SPRY_ERR_MEMORY, "small: placing weights: its memory is not free");
    return spry_device_kind_far.open(out, piece, setup, error);
}

static size_t available(const char *piece)
{
    (void)piece;
    return free_bytes;
}

static void listen(void *user, int level, const char *sentence)
{
    (void)user;
    warnings += level == SPRY_LOG_WARN;
    snprintf(said, sizeof said, "%s", sentence);
}

static uint32_t open_with(uint32_t layers)
{
    char folder[512];
    model_runner r;
    spry_error error = {0};
    spry_device_kind small = spry_device_kind_far;
    small.open = open_small;
    small.available = available;
    const spry_split_side sides[] = {{&spry_device_kind_cpu, "", "cpu"}, {&small, "", "small"}};
    warnings = 0;
    assert_true(golden_folder(folder, "qwen3"));
    runner_open_split(&r, "cpu", 0, folder, NULL, SPRY_F16);
    spry_device_close(r.device);
    const spry_device_setup setup = {.config = &r.model->config,
                                     .weights = &r.model->weights,
                                     .pool = &r.pool,
                                     .ops = r.ops,
                                     .threads = r.threads,
                                     .limits = {16, 16, 64, 0, 0},
                                     .mapped = true,
                                     .layers = layers,
                                     .log = {listen, NULL}};
    assert_int_equal(spry_split_open(&r.device, sides, &setup, &error), SPRY_OK);
    uint32_t opened = spry_device_layers(r.device);
    runner_close(&r);
    return opened;
}

static void short_memory_takes_fewer_layers(void **state)
{
    (void)state;
    char folder[512];
    if (!golden_folder(folder, "qwen3"))
        skip();
    most_layers = 1000;
    free_bytes = 0; /* not known */
    uint32_t all = open_with(SPRY_LAYERS_AUTO);
    assert_true(all > 1 && !warnings);
    assert_int_equal(open_with(100000), all);
    most_layers = 1; /* memory is gone in mid-load */
    assert_int_equal(open_with(all), 1);
    assert_int_equal(warnings, all - 1);
    assert_non_null(strstr(said, "1 and the output on small"));
    most_layers = 0;
    assert_int_equal(open_with(SPRY_LAYERS_AUTO), 0);
    assert_int_equal(warnings, all);
    most_layers = 1000;
    free_bytes = 1; /* none fits: nothing is tried */
    assert_int_equal(open_with(SPRY_LAYERS_AUTO), 0);
    assert_int_equal(warnings, 0);
    uint32_t before = 0;
    for (free_bytes = 1 << 16; before < all; free_bytes += 1 << 14) { /* more memory, more layers, one by one at most */
        uint32_t now = open_with(SPRY_LAYERS_AUTO);
        assert_true(now >= before && warnings == 0);
        before = now;
    }
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static spry_engine *open_engine(const char *device, const char *layers, const char *cache_dir)
{
    spry_engine_options options;
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options_default(&options);
    options.device = device;
    options.gpu_layers = layers;
    options.cache_dir = cache_dir;
    options.context = 256;
    if (spry_engine_open(&engine, TEST_DATA "/models/qwen3", &options, &error))
        fail_msg("%s", error.message);
    return engine;
}

static void engines_say_what_went_where(void **state)
{
    (void)state;
    static const struct {
        const char *device, *layers, *text;
    } cases[] = {{"cpu", NULL, "cpu"},         {"far", NULL, "far"},
                 {"far", "all", "far"},        {"far", "0", "cpu"},
                 {"cpu", "0", "cpu"},          {"far", "1", "cpu+far, 1 of "},
                 {"far", "auto", "cpu+far, "}, {"cpu+far", "1", "cpu+far, 1 of "}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_engine *e = open_engine(cases[i].device, cases[i].layers, NULL);
        spry_engine_info info;
        spry_engine_describe(e, &info);
        if (strncmp(info.device, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("'%s' does not begin with '%s'", info.device, cases[i].text);
        assert_int_equal(spry_engine_close(e), SPRY_OK);
    }
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *device, *layers, *words;
    } cases[] = {{"far", "many", "a number of layers, auto or all"},
                 {"far", "-1", "a number of layers"},
                 {"far", "99999999999999999999999", "a number of layers"},
                 {"cpu", "3", "the device is the CPU"},
                 {"cpu+tpu", "1", "'tpu' is not known"},
                 {"cpu+far+far", "1", "two devices at most"},
                 {"far:1", "1", "there is one, far"},
                 {"+", NULL, "is not known"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_engine_options options;
        spry_engine *engine;
        spry_error error = {0};
        spry_engine_options_default(&options);
        options.device = cases[i].device;
        options.gpu_layers = cases[i].layers;
        spry_status status = spry_engine_open(&engine, TEST_DATA "/models/qwen3", &options, &error);
        hostile_expect(status, &error, SPRY_ERR_INPUT, cases[i].words);
    }
}

/* Logits after 130 tokens, which come back from disk after a restart; other splits have pages of their own. */
static void pages_on_disk_belong_to_a_split(void **state)
{
    (void)state;
    enum { TOKENS = 130 };
    static const struct {
        const char *layers;
        uint64_t restored;
    } cases[] = {{"1", 0}, {"1", 128}, {"0", 0}, {"1", 128}, {"all", 128}}; /* of far and CPU they are alike */
    scratch place;
    int32_t ids[TOKENS];
    float *expected = NULL;
    scratch_init(&place);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_engine *e = open_engine("far", cases[i].layers, place.folder);
        spry_session *session;
        spry_error error = {0};
        const float *logits;
        spry_kv_figures figures;
        size_t bytes = e->model->config.n_vocab * sizeof *logits;
        make_ids(ids, TOKENS, e->model->config.n_vocab);
        assert_int_equal(spry_session_create(&session, e, &error), SPRY_OK);
        assert_int_equal(spry_session_eval(session, &logits, ids, TOKENS, &error), SPRY_OK);
        spry_engine_kv_figures(e, &figures);
        if (figures.restored_tokens != cases[i].restored)
            fail_msg("case %zu: %zu tokens restored", i, (size_t)figures.restored_tokens);
        if (!expected)
            expected = memcpy(malloc(bytes), logits, bytes);
        assert_memory_equal(logits, expected, bytes);
        spry_session_destroy(session);
        assert_int_equal(spry_engine_close(e), SPRY_OK);
    }
    free(expected);
    scratch_deinit(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_border_gives_the_same_bits), cmocka_unit_test(adapters_are_split),
        cmocka_unit_test(pages_are_in_two_parts),           cmocka_unit_test(short_memory_takes_fewer_layers),
        cmocka_unit_test(engines_say_what_went_where),      cmocka_unit_test(wrong_settings_are_refused),
        cmocka_unit_test(pages_on_disk_belong_to_a_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
