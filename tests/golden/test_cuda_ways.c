/* Ways to launch decode steps on a GPU: that none changes a bit, which one is taken given what each takes, and that the
 * choice is stored, found again, and ignored where it is not this GPU's, this model's or not understood. Times are
 * given, so nothing depends on the machine. The GPU is imitated; `test_cuda_ways gpu` uses the first real one, and
 * measures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda/cuda_state.h"
#include "golden/cuda_runner.h"
#include "golden/golden_models.h"
#include "support/cuda_imitation.h"
#include "support/device_rows.h"
#include "support/scratch.h"

static scratch files;

static spry_cuda_device *gpu_of(const model_runner *r)
{
    return (spry_cuda_device *)r->device;
}

static void must(spry_status status, const spry_error *error)
{
    if (status)
        fail_msg("%s", error->message);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

enum { SEQUENCES = 40, LONG_TOKENS = 140, LARGEST_FILE = 8 << 20 };

/* Sequences of so many tokens, whose pages are filled with numbers. */
static void fill_tables(spry_kv_table *tables, model_runner *r, size_t n, size_t tokens)
{
    spry_error error = {0};
    for (size_t i = 0; i < n; i++) {
        must(spry_kv_table_init(&tables[i], tokens, &error), &error);
        must(spry_kv_table_extend(&tables[i], &r->pool, tokens, &error), &error);
        for (size_t e = 0; e < tables[i].n_entries; e++) {
            const spry_kv_mover *m = &r->pool.mover;
            uint16_t *values = m->write_begin(m->self, tables[i].entries[e].page);
            assert_non_null(values);
            for (size_t k = 0; k < r->pool.page_bytes / 2; k++) /* of F16: between 1/8 and 2, or less than 0 */
                values[k] =
                    (uint16_t)(0x3000 + (k * 2654435761u + e * 977 + i * 131) % 0x1000 + (k % 3 ? 0u : 0x8000u));
            assert_true(m->write_end(m->self, tables[i].entries[e].page, true));
            assert_true(m->write_finish(m->self));
        }
    }
}

/* Logits of the last token of every sequence; the caller frees. Three steps: launched, made a graph, and as one. */
static float *decode(model_runner *r, spry_kv_table *tables, size_t n, size_t steps)
{
    spry_error error = {0};
    spry_segment segments[SEQUENCES];
    int32_t ids[SEQUENCES];
    const float *logits = NULL;
    size_t bytes = n * r->model->config.n_vocab * sizeof *logits;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(7 + 11 * i);
        segments[i] = (spry_segment){&tables[i], &ids[i], (uint32_t)tables[i].n_tokens - 1, 1, SPRY_WANT_LAST, {{0}}};
    }
    spry_cuda_graphs_deinit(gpu_of(r));
    for (size_t i = 0; i < steps; i++)
        must(step_run(r->device, segments, n, &error), &error);
    must(spry_device_logits(r->device, &logits, 0, n, &error), &error);
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, logits, bytes);
    return copy;
}

/* Every value of the choices from first to last against those by rule. */
static void compare_model(const char *model, const char *type, size_t n, size_t tokens, spry_cuda_tunable first,
                          spry_cuda_tunable last)
{
    model_runner r;
    spry_kv_table tables[SEQUENCES];
    cuda_runner_open(&r, model, NULL, type, SPRY_F16);
    fill_tables(tables, &r, n, tokens);
    spry_cuda_decode_config *config = &gpu_of(&r)->measured[spry_cuda_step_size_of(n)].config;
    size_t bytes = n * r.model->config.n_vocab * sizeof(float), tried = 0;
    float *by_rule = decode(&r, tables, n, 1);
    assert_false(by_rule[0] != by_rule[0]);
    for (size_t c = first; c <= last; c++)
        for (unsigned value = 1; value <= 8; value++) {
            *config = (spry_cuda_decode_config){0};
            if (!spry_cuda_decode_config_set(config, spry_cuda_tunable_name((spry_cuda_tunable)c), value))
                continue;
            size_t together = imitation.together;
            float *logits = decode(&r, tables, n, c == SPRY_TUNE_LAUNCHES ? 3 : 1);
            if (!cuda_runner_real) /* and that it is what was computed */
                assert_int_equal(imitation.together - together, c == SPRY_TUNE_LAUNCHES && value == 2);
            if (memcmp(logits, by_rule, bytes))
                fail_msg("%s, %zu rows: %s %u changes bits", type, n, spry_cuda_tunable_name((spry_cuda_tunable)c),
                         value);
            free(logits);
            tried++;
        }
    assert_true(tried > 0);
    free(by_rule);
    for (size_t i = 0; i < n; i++)
        spry_kv_table_deinit(&tables[i], &r.pool);
    cuda_runner_close(&r);
}

static void compare_ways(const char *type, size_t n, size_t tokens, spry_cuda_tunable first, spry_cuda_tunable last)
{
    compare_model(TEST_DATA "/models/llama-256", type, n, tokens, first, last);
}

/* The same weights as other heads: half as many of 128, or twice as many of 32. */
static void write_other_heads(scratch *model, bool long_heads)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    static const char *const changes[][3] = {{"\"head_dim\": 64", "\"head_dim\":128", "\"head_dim\": 32"},
                                             {"_heads\": 4", "_heads\": 2", "_heads\": 8"},
                                             {"value_heads\": 2", "value_heads\": 1", "value_heads\": 4"}};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        char from[SCRATCH_PATH];
        snprintf(from, sizeof from, "%s/models/llama-256/%s", TEST_DATA, names[i]);
        FILE *file = fopen(from, "rb");
        assert_non_null(file);
        char *data = malloc(LARGEST_FILE);
        assert_non_null(data);
        size_t size = fread(data, 1, LARGEST_FILE - 1, file);
        assert_true(size > 0 && size < LARGEST_FILE - 1);
        fclose(file);
        data[size] = '\0';
        for (size_t c = 0; i == 0 && c < SPRY_COUNT(changes); c++) {
            char *at = strstr(data, changes[c][0]);
            assert_non_null(at);
            memcpy(at, changes[c][long_heads ? 1 : 2], strlen(changes[c][0]));
        }
        scratch_write(model, names[i], data, size);
        free(data);
    }
}

/* Layers as one kernel: types by themselves and mixed, heads of other sizes, texts of one page and of several, and one
 * that is longer than all blocks take at once. */
static void one_kernel_changes_no_bit(void **state)
{
    (void)state;
    scratch model;
    compare_ways("bf16", 1, LONG_TOKENS, SPRY_TUNE_LAUNCHES, SPRY_TUNE_LAUNCHES);
    compare_ways("f16", 1, 20, SPRY_TUNE_LAUNCHES, SPRY_TUNE_LAUNCHES);
    compare_ways("q8_0", 1, 1, SPRY_TUNE_LAUNCHES, SPRY_TUNE_LAUNCHES);
    compare_ways("q4_k_m", 1, LONG_TOKENS, SPRY_TUNE_LAUNCHES, SPRY_TUNE_LAUNCHES);
    for (int long_heads = 0; long_heads < 2; long_heads++) {
        scratch_init(&model);
        write_other_heads(&model, long_heads);
        compare_model(model.folder, long_heads ? "q4_k_m" : "bf16", 1, 500, SPRY_TUNE_LAUNCHES, SPRY_TUNE_LAUNCHES);
        scratch_deinit(&model);
    }
}

static void no_way_changes_a_bit(void **state)
{
    (void)state;
    compare_ways("q4_0", 1, LONG_TOKENS, SPRY_TUNE_LAUNCHES, SPRY_TUNABLES - 1);
    compare_ways("bf16", 3, LONG_TOKENS, SPRY_TUNE_CLUSTER, SPRY_TUNABLES - 1);
    compare_ways("bf16", SEQUENCES, 1, SPRY_TUNE_WGMMA, SPRY_TUNE_WGMMA);
}

/* Before kernels wait for those before, they store nothing, and nothing depends on what those write: dry runs, and what
 * is loaded ahead. */
static void kernels_wait_before_they_touch_rows(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        size_t n, tokens;
    } cases[] = {{"bf16", 1, LONG_TOKENS}, {"q4_0", 1, 20}, {"bf16", 1, 600}, {"q4_0", 3, LONG_TOKENS}};
    for (size_t i = 0; i < SPRY_COUNT(cases) && !cuda_runner_real; i++) {
        model_runner r;
        spry_kv_table tables[SEQUENCES];
        size_t n = cases[i].n;
        cuda_runner_open(&r, TEST_DATA "/models/llama-256", NULL, cases[i].type, SPRY_F16);
        fill_tables(tables, &r, n, cases[i].tokens);
        float *expected = decode(&r, tables, n, 1);
        imitation.watched = imitation.too_early = 0;
        imitation.watch = true;
        float *logits = decode(&r, tables, n, 1);
        imitation.watch = false;
        assert_true(imitation.watched > 5 * r.model->config.n_layers);
        assert_int_equal(imitation.too_early, 0);
        assert_memory_equal(logits, expected, n * r.model->config.n_vocab * sizeof *logits);
        free(logits);
        free(expected);
        for (size_t k = 0; k < n; k++)
            spry_kv_table_deinit(&tables[k], &r.pool);
        cuda_runner_close(&r);
    }
}

/* True if a kernel was used whose name begins with `name`. */
static bool was_used(const model_runner *r, const char *name)
{
    const spry_cuda_context *c = &gpu_of(r)->context;
    bool used = false;
    for (size_t i = SPRY_NO_KERNEL + 1; i < SPRY_KERNEL_COUNT; i++)
        used = used ||
               (spry_cuda_was_used(c, (spry_kernel_id)i) && !strncmp(spry_cuda_kernel_names[i], name, strlen(name)));
    return used;
}

/* Kernels for what most models have against the one with code for every case, which steps take when pages may be used
 * elsewhere. `heads`: as their names have it; they are normalised with the weights of another norm. */
static void compare_plain(const char *model, const char *type, const char *heads, size_t tokens, const char *pages)
{
    model_runner r;
    spry_kv_table table;
    char name[64];
    cuda_runner_open(&r, model, NULL, type, SPRY_F16);
    r.model->config.interleaved = !strcmp(heads, "pairs");
    for (size_t i = 0; i < r.model->config.n_layers && !strcmp(heads, "norm"); i++) {
        spry_cuda_layer *l = &gpu_of(&r)->model.layers[i];
        l->q_norm = l->attn_norm;
        l->k_norm = l->attn_norm;
    }
    fill_tables(&table, &r, 1, tokens);
    if (!strcmp(pages, "long"))
        assert_true(
            spry_cuda_decode_config_set(&gpu_of(&r)->measured[0].config, spry_cuda_tunable_name(SPRY_TUNE_CLUSTER), 1));
    float *plain = decode(&r, &table, 1, 1);
    snprintf(name, sizeof name, "spry_attend_decode_%s_%s_%s", heads, strcmp(type, "bf16") ? "q8" : "bf16", pages);
    assert_true(was_used(&r, name));
    r.pool.turns.end = 2;
    float *general = decode(&r, &table, 1, 1);
    assert_false(plain[0] != plain[0]);
    if (memcmp(plain, general, r.model->config.n_vocab * sizeof *plain))
        fail_msg("%s changes bits", name);
    r.pool.turns.end = 1;
    free(plain);
    free(general);
    spry_kv_table_deinit(&table, &r.pool);
    cuda_runner_close(&r);
}

static void plain_kernels_change_no_bit(void **state)
{
    (void)state;
    static const char *const heads[] = {"norm", "raw", "pairs"}, *const types[] = {"bf16", "q4_0"};
    scratch model;
    scratch_init(&model);
    write_other_heads(&model, true);
    for (size_t i = 0; i < 2 * SPRY_COUNT(heads); i++)
        for (size_t is_long = 0; is_long < 2; is_long++) {
            const char *folder = (i + is_long) % 2 ? model.folder : TEST_DATA "/models/llama-256";
            compare_plain(folder, types[i % 2], heads[i / 2], 20, "short");
            compare_plain(folder, types[i % 2], heads[i / 2], is_long ? 600 : LONG_TOKENS, "single");
            compare_plain(folder, types[i % 2], heads[i / 2], is_long ? 600 : LONG_TOKENS, "long");
        }
    scratch_deinit(&model);
}

/* ---- less shared memory ------------------------------------------------------------------------------------------ */

/* Prompts and single rows where blocks have 99 KB of shared memory, as those of GeForce cards, against 227 KB. */
static void compare_small(const char *model, const char *type, int compute_major)
{
    enum { COUNT = 42 };
    static const size_t chunks[] = {1, 5, 12, COUNT - 2};
    model_runner r;
    int32_t ids[COUNT];
    char folder[512];
    if (!golden_folder(folder, model))
        return;
    cuda_runner_open(&r, folder, NULL, type, SPRY_F16);
    imitation.sm_count = 2; /* so that outputs are many */
    cuda_runner_reopen(&r);
    size_t n_vocab = r.model->config.n_vocab;
    for (size_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)(i * 37 % n_vocab);
    float *large = runner_logits(&r, ids, COUNT, COUNT);
    imitation.shared_bytes = 99 << 10;
    imitation.compute_major = compute_major;
    cuda_runner_reopen(&r);
    for (size_t i = 0; i < SPRY_COUNT(chunks); i++) {
        float *small = runner_logits(&r, ids, chunks[i] + 2, chunks[i]);
        if (memcmp(small, large, (chunks[i] + 2) * n_vocab * sizeof *large))
            fail_msg("%s, %s: chunks of %zu rows in small blocks change bits", model, type, chunks[i]);
        free(small);
    }
    free(large);
    cuda_runner_close(&r);
}

static void small_blocks_change_no_bit(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "f16", "q8_0", "q6_k", "q5_1"};
    if (cuda_runner_real)
        skip();
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        compare_small("llama-256", types[i], 8);
    compare_small("llama-256", "bf16", 12);
    compare_small("qwen3-moe", "bf16", 8);
    compare_small("qwen3-moe", "f16", 8);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

typedef struct given {
    size_t asked, most; /* times; after most the time is over; 0: never */
    double launches, share_4, gate_8, rows_64;
} given;

static double time_given(void *context, size_t rows, const spry_cuda_decode_config *config)
{
    given *g = context;
    if (g->asked++ == g->most && g->most)
        return 0;
    return 100 * (config->of[SPRY_TUNE_LAUNCHES] ? g->launches : 1) *
           (config->of[SPRY_TUNE_CLUSTER] == 4 ? g->share_4 : 1) *
           (config->of[SPRY_TUNE_GATE_TILES] == 8 ? g->gate_8 : 1) * (rows == 64 ? g->rows_64 : 1);
}

static void the_fastest_way_is_taken(void **state)
{
    (void)state;
    spry_cuda_measured best;
    const spry_cuda_decode_config by_rule = {{0}};
    given g = {.launches = 0.99, .share_4 = 0.8, .gate_8 = 0.5, .rows_64 = 3};
    spry_cuda_choose(&best, 1, time_given, &g);
    assert_int_equal(best.config.of[SPRY_TUNE_LAUNCHES], 0); /* not clearly faster */
    assert_int_equal(best.config.of[SPRY_TUNE_CLUSTER], 4);
    assert_int_equal(best.config.of[SPRY_TUNE_NORM_TILES], 0);
    assert_int_equal(best.config.of[SPRY_TUNE_GATE_TILES], 8);
    assert_float_equal(best.us, 40, 1e-9);
    assert_float_equal(best.rule_us, 100, 1e-9);
    assert_int_equal(g.asked, 1 + 2 + 4 + 2 + 2 + 1);
    g.asked = 0;
    g.launches = 0.5;
    spry_cuda_choose(&best, 64, time_given, &g);
    assert_int_equal(best.config.of[SPRY_TUNE_LAUNCHES], 1);
    assert_int_equal(best.config.of[SPRY_TUNE_GATE_TILES], 0); /* no kernel of so many rows */
    assert_float_equal(best.us, 120, 1e-9);
    assert_int_equal(g.asked, 1 + 1 + 1 + 4 + 1);
    g = (given){.most = 1, .launches = 0.5, .share_4 = 1, .gate_8 = 1, .rows_64 = 1};
    spry_cuda_choose(&best, 1, time_given, &g);
    assert_memory_equal(&best.config, &by_rule, sizeof by_rule);
    assert_float_equal(best.us, 100, 1e-9);
    assert_int_equal(g.asked, 2);
}

/* Everything becomes faster while it is measured: that is not the choice's doing. */
static double time_rising_clocks(void *context, size_t rows, const spry_cuda_decode_config *config)
{
    double *us = context;
    (void)rows;
    (void)config;
    return *us *= 0.9;
}

static void rising_clocks_choose_nothing(void **state)
{
    (void)state;
    spry_cuda_measured best;
    const spry_cuda_decode_config by_rule = {{0}};
    double us = 1000;
    spry_cuda_choose(&best, 1, time_rising_clocks, &us);
    assert_memory_equal(&best.config, &by_rule, sizeof by_rule);
    assert_true(best.us == best.rule_us && best.us > 0);
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

typedef struct said {
    size_t warnings, lines;
    char last[1024];
} said;

static void remember(void *user, int level, const char *sentence)
{
    said *s = user;
    s->lines++;
    s->warnings += level >= SPRY_LOG_WARN;
    if (s->lines == 1 || level >= SPRY_LOG_WARN)
        snprintf(s->last, sizeof s->last, "%s", sentence);
}

/* Opens a model and lets it choose; the figures say how often it measured. */
static said tune(const char *model, spry_dtype kv, const char *profile, given *g, bool chosen)
{
    model_runner r;
    spry_error error = {0};
    said heard = {0};
    const spry_log log = {remember, &heard};
    cuda_runner_open(&r, model, NULL, NULL, kv);
    must(spry_cuda_tune(gpu_of(&r), profile, &log, time_given, g, &error), &error);
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES; i++) {
        const spry_cuda_measured *m = &gpu_of(&r)->measured[i];
        assert_int_equal(m->config.of[SPRY_TUNE_CLUSTER], chosen ? 4 : 0);
        assert_true(m->us > 0);
    }
    cuda_runner_close(&r);
    return heard;
}

#define QWEN3 TEST_DATA "/models/qwen3"

static const given faster = {.launches = 1, .share_4 = 0.5, .gate_8 = 1, .rows_64 = 1},
                   slower = {.launches = 1, .share_4 = 2, .gate_8 = 1, .rows_64 = 1};

static void the_choice_is_stored_and_found(void **state)
{
    (void)state;
    given g = faster;
    char profile[SCRATCH_PATH];
    snprintf(profile, sizeof profile, "%s", scratch_path(&files, "gpu.json"));
    said heard = tune(QWEN3, SPRY_F16, profile, &g, true);
    assert_int_equal(heard.warnings, 0);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.last, "1 row 50.0 us, share 4 (by rule 100.0 us); 8 rows 50.0 us"));
    assert_int_not_equal(g.asked, 0);
    given again = slower; /* it would choose otherwise, if it measured */
    heard = tune(QWEN3, SPRY_F16, profile, &again, true);
    assert_int_equal(again.asked, 0);
    assert_int_equal(heard.warnings, 0);
    assert_non_null(strstr(heard.last, "as measured before"));
    again = slower; /* other pages are another shape, and another model */
    tune(QWEN3, SPRY_F32, profile, &again, false);
    assert_int_not_equal(again.asked, 0);
    again = slower;
    tune(TEST_DATA "/models/qwen2", SPRY_F16, profile, &again, false);
    assert_int_not_equal(again.asked, 0);
    again = slower; /* what was stored first is still there */
    tune(QWEN3, SPRY_F16, profile, &again, true);
    assert_int_equal(again.asked, 0);
}

/* A text with every occurrence of the stored choice changed. */
static void change(const char *path, const char *from, const char *to)
{
    char text[1 << 14];
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    for (; at; at = strstr(at + 1, from))
        memcpy(at, to, strlen(to));
    rewind(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

static void what_is_not_understood_is_measured_anew(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "",
        "no JSON",
        "[]",
        "{\"format\": \"spry-gpu-2\", \"models\": {}}",
        "{\"format\": \"spry-gpu-1\", \"models\": 3}",
    };
    static const char *const changed[][2] = {{"\"share\": 4", "\"share\": 5"}, {"\"share\": 4", "\"shape\": 4"},
                                             {"\"rows\": 8", "\"rows\": 7"},   {"\"us\": 50", "\"us\": -5"},
                                             {"\"us\": 50", "\"us\": \"5"},    {"[\n", "{\n"}};
    char profile[SCRATCH_PATH];
    given g = faster, other;
    for (size_t i = 0; i < SPRY_COUNT(broken) + SPRY_COUNT(changed); i++) {
        size_t k = i - SPRY_COUNT(broken);
        if (i < SPRY_COUNT(broken)) {
            snprintf(profile, sizeof profile, "%s", scratch_write(&files, "broken.json", broken[i], strlen(broken[i])));
        } else {
            scratch_clear(&files);
            snprintf(profile, sizeof profile, "%s", scratch_path(&files, "changed.json"));
            tune(QWEN3, SPRY_F16, profile, &g, true);
            change(profile, changed[k][0], changed[k][1]);
        }
        other = slower;
        said heard = tune(QWEN3, SPRY_F16, profile, &other, false);
        assert_int_not_equal(other.asked, 0);
        assert_int_equal(heard.warnings, 1);
        assert_non_null(strstr(heard.last, "decode steps are measured anew"));
        given third = faster; /* and the file is sound again */
        heard = tune(QWEN3, SPRY_F16, profile, &third, false);
        assert_int_equal(third.asked, 0);
        assert_int_equal(heard.warnings, 0);
    }
}

static void a_profile_that_cannot_be_written_is_said(void **state)
{
    (void)state;
    char profile[SCRATCH_PATH];
    given g = faster;
    scratch_write(&files, "file", "x", 1);
    snprintf(profile, sizeof profile, "%s", scratch_path(&files, "file/gpu.json"));
    said heard = tune(QWEN3, SPRY_F16, profile, &g, true); /* used all the same */
    assert_int_equal(heard.warnings, 1);
    assert_non_null(strstr(heard.last, "will be measured again"));
    assert_non_null(strstr(heard.last, "file"));
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

/* Steps of the device itself are measured, whatever they take: the choice changes nothing that is computed, and leaves
 * no wait or graph behind. */
static void steps_are_measured(void **state)
{
    (void)state;
    model_runner r;
    spry_error error = {0};
    said heard = {0};
    const spry_log log = {remember, &heard};
    spry_kv_table table;
    char profile[SCRATCH_PATH];
    snprintf(profile, sizeof profile, "%s", scratch_path(&files, "measured.json"));
    cuda_runner_open(&r, QWEN3, NULL, NULL, SPRY_F16);
    r.device->limits.max_rows = r.device->limits.max_logits = cuda_runner_real ? 64 : 2; /* 64 fibres take long */
    must(spry_device_tune(r.device, NULL, &log, &error), &error);
    assert_int_equal(heard.lines, 1);
    assert_non_null(strstr(heard.last, "by rule"));
    uint64_t waits = spry_device_waits(r.device);
    must(spry_device_tune(r.device, profile, &log, &error), &error);
    assert_int_equal(heard.warnings, 0);
    assert_true(gpu_of(&r)->measured[0].us > 0);
    assert_int_equal(gpu_of(&r)->measured[1].us > 0, cuda_runner_real);
    assert_int_equal(spry_device_waits(r.device), waits);
    fill_tables(&table, &r, 1, 40);
    float *tuned = decode(&r, &table, 1, 1);
    memset(gpu_of(&r)->measured, 0, sizeof gpu_of(&r)->measured);
    float *by_rule = decode(&r, &table, 1, 1);
    assert_memory_equal(tuned, by_rule, r.model->config.n_vocab * sizeof *tuned);
    free(tuned);
    free(by_rule);
    spry_kv_table_deinit(&table, &r.pool);
    if (cuda_runner_real)
        print_message("%s\n", heard.last);
    cuda_runner_close(&r);
}

/* A GPU that fails meanwhile is a sentence, and nothing is stored. */
static void a_gpu_may_fail_meanwhile(void **state)
{
    (void)state;
    char profile[SCRATCH_PATH];
    if (cuda_runner_real)
        skip();
    scratch_clear(&files);
    for (int fail_at = 1; fail_at <= 40; fail_at += 13) {
        model_runner r;
        spry_error error = {0};
        const spry_log log = {0};
        snprintf(profile, sizeof profile, "%s", scratch_path(&files, "failed.json"));
        cuda_runner_open(&r, QWEN3, NULL, NULL, SPRY_F16);
        r.device->limits.max_logits = 1;
        imitation.fail_at = imitation.calls + 1 + fail_at;
        imitation.fail_with = 700;
        assert_int_equal(spry_device_tune(r.device, profile, &log, &error), SPRY_ERR_DEVICE);
        assert_non_null(strstr(error.message, "the driver is tired"));
        assert_int_equal(scratch_count(&files), 0);
        cuda_runner_close(&r);
    }
}

static int begin(void **state)
{
    (void)state;
    scratch_init(&files);
    return 0;
}

static int end(void **state)
{
    (void)state;
    scratch_deinit(&files);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_changes_a_bit),
        cmocka_unit_test(kernels_wait_before_they_touch_rows),
        cmocka_unit_test(plain_kernels_change_no_bit),
        cmocka_unit_test(small_blocks_change_no_bit),
        cmocka_unit_test(one_kernel_changes_no_bit),
        cmocka_unit_test(the_fastest_way_is_taken),
        cmocka_unit_test(rising_clocks_choose_nothing),
        cmocka_unit_test(the_choice_is_stored_and_found),
        cmocka_unit_test(what_is_not_understood_is_measured_anew),
        cmocka_unit_test(a_profile_that_cannot_be_written_is_said),
        cmocka_unit_test(steps_are_measured),
        cmocka_unit_test(a_gpu_may_fail_meanwhile),
    };
    cuda_runner_real = argc > 1 && !strcmp(argv[1], "gpu");
    return cmocka_run_group_tests(tests, begin, end);
}
