/* Whole models on the CUDA device against transformers' logits and greedy tokens, and the promise that a row's bits
 * depend on its sequence alone: not on chunks, batches or graphs. The GPU is imitated (support/cuda_imitation.h);
 * `test_cuda_models gpu [MODEL...]` uses the first real one, `test_cuda_models vulkan [MODEL...]` the first device of
 * Vulkan, and all of the goldens, or those named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_model.h"
#include "device/device_impl.h"
#include "device/split/split_device.h"
#include "golden/cuda_runner.h"
#include "golden/golden_file.h"
#include "golden/golden_models.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/quantize.h"
#include "support/cuda_imitation.h"
#include "support/device_rows.h"
#include "support/must.h"

static char **chosen_models; /* NULL: all, or the names of some, and NULL */

static bool is_chosen(const char *model)
{
    bool chosen = !chosen_models;
    for (size_t i = 0; chosen_models && chosen_models[i]; i++)
        chosen = chosen || !strcmp(chosen_models[i], model);
    if (!chosen)
        print_message("%-12s left out: not among the models named\n", model);
    return chosen;
}

/* Whether the kind computes everything that the model needs, as CUDA must. */
static bool check_features(const char *model, const char *folder)
{
    spry_error error = {0};
    spry_model *opened;
    char what[256];
    must(spry_model_open(&opened, folder, &error), &error);
    uint32_t missing = spry_config_features(&opened->config) & ~cuda_runner_kind()->features;
    spry_features_describe(what, sizeof what, missing);
    spry_model_close(opened);
    if (missing && !cuda_runner_vulkan)
        fail_msg("%s: no GPU kernels for '%s'", model, what);
    if (missing)
        print_message("%-12s left out: no kernels for %s\n", model, what);
    return !missing;
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void compare_case(model_runner *r, const golden_case *c, const char *label)
{
    size_t n_vocab = r->model->config.n_vocab, total = c->n_ids + c->n_greedy, unclear = 0;
    float *weights = malloc(r->model->config.n_embd * sizeof *weights);
    int32_t *ids = malloc(total * sizeof *ids);
    assert_true(weights && ids);
    memcpy(ids, c->ids, c->n_ids * sizeof *ids);
    memcpy(ids + c->n_ids, c->greedy, c->n_greedy * sizeof *ids);
    float *logits = runner_logits(r, ids, total, total), *hidden = runner_hidden(r, ids, total);
    double worst = 0, allowed = 0;
    for (size_t row = 0; row < c->n_rows; row++) {
        size_t at = c->first_row + row;
        allowed = fmax(logit_bound(r, hidden, at, weights), logit_wobble(r, c->wobble)) * cuda_runner_rounding(r);
        for (size_t o = 0; o < n_vocab; o++) {
            double off = fabs((double)logits[at * n_vocab + o] - (double)c->logits[row * n_vocab + o]);
            worst = off > worst ? off : worst;
            if (!(off <= allowed))
                fail_msg("%s: row %zu, token %zu: off by %g, allowed %g", label, at, o, off, allowed);
        }
    }
    for (size_t i = 0; i < c->n_greedy; i++) {
        size_t chosen = argmax(logits + (c->n_ids + i - 1) * n_vocab, n_vocab);
        if (c->margins[i] > 2 * allowed)
            assert_int_equal(chosen, c->greedy[i]);
        else
            unclear++;
    }
    print_message("%-12s largest logit deviation %.2e, allowed %.2e; greedy %zu/%zu equal, %zu too close to tell\n",
                  label, worst, allowed, c->n_greedy - unclear, c->n_greedy, unclear);
    free(logits);
    free(hidden);
    free(weights);
    free(ids);
}

static void models_agree_with_transformers(void **state)
{
    (void)state;
    char folder[512];
    for (const char *const *model = golden_models; *model; model++) {
        model_runner r;
        golden_file golden = {0};
        if (!is_chosen(*model) || !golden_folder(folder, *model))
            continue;
        if (!check_features(*model, folder))
            continue;
        golden_open(&golden, folder);
        cuda_runner_open(&r, folder, NULL, NULL, SPRY_F32);
        for (size_t k = 0; k < (cuda_runner_real ? golden.n_cases : 1); k++)
            compare_case(&r, &golden.cases[k], *model);
        cuda_runner_close(&r);
        golden_close(&golden);
    }
}

/* Activations that BF16 weights meet lose so much that little is proven about the ops between the products: with F32
 * weights they lose nothing. */
static void floats_agree_with_transformers(void **state)
{
    (void)state;
    static const char *const models[] = {
        "lfm2",      "deepseek-v2", "mistral4",     "afmoe",      "mimo-v2-flash",  "lfm2-moe",
        "llama4",    "cohere2-moe", "gemma4-dense", "gemma4-ple", "gemma4-moe",     "mamba2",
        "phi4-mini", "bamba",       "falcon-h1",    "nemotron-h", "nemotron-h-moe", "glm4-moe-lite"};
    char folder[512];
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        model_runner r;
        golden_file golden = {0};
        if (!is_chosen(models[m]) || !golden_folder(folder, models[m]) || !check_features(models[m], folder))
            continue;
        golden_open(&golden, folder);
        cuda_runner_open(&r, folder, NULL, "f32", SPRY_F32);
        compare_case(&r, &golden.cases[0], models[m]);
        cuda_runner_close(&r);
        golden_close(&golden);
    }
}

/* ---- types that other forms store, and types without kernels ----------------------------------------------------- */

/* Blocks of random bytes; their scales, F16 numbers at these places, are small. */
static const struct odd_type {
    spry_dtype type;
    size_t scales[2];
} odd_types[] = {{SPRY_Q2_K, {80, 82}},  {SPRY_Q3_K, {108, 108}}, {SPRY_IQ4_NL, {0, 0}},  {SPRY_IQ4_XS, {0, 0}},
                 {SPRY_TQ1_0, {52, 52}}, {SPRY_TQ2_0, {64, 64}},  {SPRY_IQ2_XXS, {0, 0}}, {SPRY_IQ2_XS, {0, 0}},
                 {SPRY_IQ2_S, {0, 0}},   {SPRY_IQ3_XXS, {0, 0}},  {SPRY_IQ3_S, {0, 0}},   {SPRY_IQ1_S, {0, 0}},
                 {SPRY_NVFP4, {0, 2}},   {SPRY_Q1_0, {0, 0}}};

/* Blocks of 8-bit floats below 2 whose scales, floats, are small. */
static void make_f8(model_runner *r, spry_weight *w, uint64_t *random)
{
    size_t blocks = w->n_out * w->n_in / spry_dtype_block(SPRY_F8);
    spry_block_f8 *data = spry_arena_alloc(&r->model->arena, blocks, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < blocks * SPRY_COUNT(data->values); i++)
        data[i / SPRY_COUNT(data->values)].values[i % SPRY_COUNT(data->values)] =
            (unsigned char)((*random = *random * 6364136223846793005u + 1442695040888963407u) >> 56) & 0xbf;
    for (size_t i = 0; i < blocks; i++)
        data[i].scale = 0x1p-5f;
    w->data = (const unsigned char *)data;
    w->type = SPRY_F8;
    w->row_bytes = w->n_in / spry_dtype_block(SPRY_F8) * sizeof *data;
}

static void make_odd(model_runner *r, spry_weight *w, const struct odd_type *odd, uint64_t *random)
{
    static const unsigned char small[] = {0x00, 0x14};
    size_t bytes = spry_dtype_bytes(odd->type), blocks = w->n_out * w->n_in / spry_dtype_block(odd->type);
    unsigned char *data = spry_arena_alloc(&r->model->arena, blocks, bytes);
    assert_non_null(data);
    for (size_t i = 0; i < blocks * bytes; i++)
        data[i] = (unsigned char)((*random = *random * 6364136223846793005u + 1442695040888963407u) >> 56);
    for (size_t i = 0; i < blocks; i++)
        for (size_t k = 0; k < SPRY_COUNT(odd->scales); k++)
            memcpy(data + i * bytes + odd->scales[k], small, sizeof small);
    w->data = data;
    w->type = odd->type;
    w->row_bytes = w->n_in / spry_dtype_block(odd->type) * bytes;
}

static void make_floats(model_runner *r, spry_weight *w)
{
    float *floats = spry_arena_alloc(&r->model->arena, w->n_out * w->n_in, sizeof *floats);
    assert_non_null(floats);
    for (size_t row = 0; row < w->n_out; row++)
        r->ops->decode[w->type](floats + row * w->n_in, w->data + row * w->row_bytes, w->n_in);
    w->data = (const unsigned char *)floats;
    w->type = SPRY_F32;
    w->row_bytes = w->n_in * sizeof *floats;
}

/* Every matrix of a layer, in the order of its list. */
typedef enum matrix_change { MAKE_ODD, MAKE_F8, MAKE_FLOATS } matrix_change;
static void each_matrix(model_runner *r, matrix_change change)
{
    uint64_t random = 7;
    for (size_t layer = 0, k = 0; layer < r->model->config.n_layers; layer++) {
        spry_layer *l = &r->model->weights.layers[layer];
        spry_weight *matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t i = 0; i < SPRY_COUNT(matrices); i++, k++)
            if (change == MAKE_ODD)
                make_odd(r, matrices[i], &odd_types[k % SPRY_COUNT(odd_types)], &random);
            else if (change == MAKE_F8)
                make_f8(r, matrices[i], &random);
            else
                make_floats(r, matrices[i]);
    }
}

/* All other quantised types of files are stored in few bits and give what the CPU gives but for rounding; a type that
 * the GPU has no kernels for gives what its values give as F32, bit for bit. */
static void all_types_are_stored(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    static const int32_t ids[COUNT] = {1, 77, 300, 42, 500};
    char folder[512];
    model_runner r;
    spry_error error = {0};
    if (!is_chosen("llama-256") || !golden_folder(folder, "llama-256"))
        return;
    for (size_t i = 0; i < SPRY_COUNT(odd_types); i++)
        assert_int_equal(spry_cuda_stored_type(odd_types[i].type, false), odd_types[i].type);
    assert_int_equal(spry_cuda_stored_type(SPRY_F8, false), SPRY_F32);
    cuda_runner_open(&r, folder, NULL, "f32", SPRY_F32);
    size_t n_vocab = r.model->config.n_vocab, bytes = COUNT * n_vocab * sizeof(float);
    float *before = runner_logits(&r, ids, COUNT, COUNT);
    each_matrix(&r, MAKE_F8);
    cuda_runner_reopen(&r);
    float *f8 = runner_logits(&r, ids, COUNT, COUNT);
    assert_memory_not_equal(f8, before, bytes);
    each_matrix(&r, MAKE_FLOATS);
    cuda_runner_reopen(&r);
    float *floats = runner_logits(&r, ids, COUNT, COUNT);
    assert_memory_equal(f8, floats, bytes);
    spry_device_memory as_floats, packed;
    assert_true(spry_device_measure(r.device, &as_floats));
    each_matrix(&r, MAKE_ODD);
    cuda_runner_reopen(&r);
    assert_true(spry_device_measure(r.device, &packed));
    if (strcmp(cuda_runner_kind()->name, "vulkan"))
        assert_true(packed.weights < as_floats.weights / 2); /* the embedding and the output are as they were */
    float *odd = runner_logits(&r, ids, COUNT, COUNT), *hidden = runner_hidden(&r, ids, COUNT);
    assert_memory_not_equal(odd, floats, bytes);
    const spry_device_setup setup = runner_setup(&r);
    spry_device_close(r.device);
    must(spry_device_open(&r.device, "cpu", &setup, &error), &error);
    spry_device_attach(r.device, &r.pool);
    float *cpu = runner_logits(&r, ids, COUNT, COUNT), *weights = malloc(r.model->config.n_embd * sizeof *weights);
    assert_non_null(weights);
    for (size_t row = 0; row < COUNT; row++) {
        double allowed = logit_bound(&r, hidden, row, weights) * cuda_runner_rounding(&r);
        for (size_t o = row * n_vocab; o < (row + 1) * n_vocab; o++)
            if (!(fabs((double)cpu[o] - (double)odd[o]) <= allowed))
                fail_msg("row %zu: %g on the CPU, %g on the GPU, allowed %g", row, (double)cpu[o], (double)odd[o],
                         allowed);
        assert_int_equal(argmax(cpu + row * n_vocab, n_vocab), argmax(odd + row * n_vocab, n_vocab));
    }
    free(before), free(f8), free(odd), free(floats), free(hidden), free(cpu), free(weights);
    cuda_runner_close(&r);
}

/* ---- a model split over CPU and GPU ------------------------------------------------------------------------------ */

static void splits_agree_with_transformers(void **state)
{
    (void)state;
    static const char *const models[] = {"qwen3", "gemma2", "qwen3-moe", "deepseek-v3", "lfm2"};
    char folder[512], label[64];
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        model_runner r;
        golden_file golden = {0};
        if (!is_chosen(models[m]) || !golden_folder(folder, models[m]) || !check_features(models[m], folder))
            continue;
        golden_open(&golden, folder);
        cuda_runner_open(&r, folder, NULL, NULL, SPRY_F32);
        uint32_t n = r.model->config.n_layers;
        for (uint32_t layers = 1; layers < n; layers++) {
            cuda_runner_split(&r, layers, layers % 2 == 0);
            snprintf(label, sizeof label, "%s %u/%u", models[m], layers, n);
            compare_case(&r, &golden.cases[0], label);
        }
        size_t n_vocab = r.model->config.n_vocab, count = golden.cases[0].n_ids;
        float *whole = runner_logits(&r, golden.cases[0].ids, count, count);
        float *parts = runner_logits(&r, golden.cases[0].ids, count, 3);
        assert_memory_equal(parts, whole, count * n_vocab * sizeof *whole);
        free(whole);
        free(parts);
        cuda_runner_close(&r);
        golden_close(&golden);
    }
}

/* One step with two sequences, as a batch, in logits of their last rows. */
static void run_pair(model_runner *r, float *out, const int32_t *ids, size_t n_first, size_t n_second)
{
    spry_error error = {0};
    spry_kv_table tables[2];
    const float *logits;
    size_t n_vocab = r->model->config.n_vocab, n[2] = {n_first, n_second};
    spry_segment segments[2];
    for (size_t i = 0; i < 2; i++) {
        must(spry_kv_table_init(&tables[i], RUNNER_TOKENS, &error), &error);
        must(spry_kv_table_extend(&tables[i], &r->pool, n[i], &error), &error);
        segments[i] = (spry_segment){&tables[i], ids, 0, (uint32_t)n[i], SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    }
    must(step_run(r->device, segments, 2, &error), &error);
    must(spry_device_logits(r->device, &logits, 0, 2, &error), &error);
    memcpy(out, logits, 2 * n_vocab * sizeof *out);
    for (size_t i = 0; i < 2; i++)
        spry_kv_table_deinit(&tables[i], &r->pool);
}

static void check_invariance(const char *model, spry_dtype kv, size_t count)
{
    char folder[512];
    model_runner r;
    int32_t ids[RUNNER_TOKENS];
    if (!is_chosen(model) || !golden_folder(folder, model) || !check_features(model, folder))
        return;
    cuda_runner_open(&r, folder, NULL, NULL, kv);
    size_t n_vocab = r.model->config.n_vocab, bytes = count * n_vocab * sizeof(float);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)(i * 37 % n_vocab);
    float *whole = runner_logits(&r, ids, count, count), *pair = malloc(2 * n_vocab * sizeof *pair);
    static const size_t chunks[] = {1, 7, 33};
    for (size_t i = 0; i < SPRY_COUNT(chunks); i++) {
        float *parts = runner_logits(&r, ids, count, chunks[i]);
        if (memcmp(whole, parts, bytes))
            fail_msg("%s: chunks of %zu change bits", model, chunks[i]);
        free(parts);
    }
    run_pair(&r, pair, ids, count, count / 2);
    assert_memory_equal(pair, whole + (count - 1) * n_vocab, n_vocab * sizeof(float));
    assert_memory_equal(pair + n_vocab, whole + (count / 2 - 1) * n_vocab, n_vocab * sizeof(float));
    free(whole);
    free(pair);
    cuda_runner_close(&r);
}

static void chunks_and_batches_change_no_bit(void **state)
{
    (void)state;
    check_invariance("qwen3", SPRY_F16, 70);
    check_invariance("llama-256", SPRY_F16, 40);
    check_invariance("mistral-swa", SPRY_Q8_0, 40);
    check_invariance("qwen3-moe", SPRY_F32, 36);
    check_invariance("gpt-oss-mxfp4", SPRY_F16, 40);
    check_invariance("hunyuan", SPRY_F16, 40);
    check_invariance("cohere", SPRY_F32, 40);
    check_invariance("deepseek-v2", SPRY_F32, 34);
    check_invariance("gemma3n", SPRY_F16, 40);
    check_invariance("deepseek-v3", SPRY_F16, 40);
    check_invariance("lfm2", SPRY_F16, 40);
    check_invariance("qwen3-next", SPRY_F16, 70);
    check_invariance("gemma4-moe", SPRY_F16, 40);
    check_invariance("llama4", SPRY_F16, 70);
    check_invariance("nemotron-h-moe", SPRY_F16, 40);
    check_invariance("falcon-h1", SPRY_F32, 70);
}

/* Behind more pages than a chunk has: runs whose chunks are spread over blocks, few rows, and rows that are alone. */
static void deep_rows_have_the_bits_of_a_whole_prompt(void **state)
{
    (void)state;
    static const uint32_t steps[] = {430, 64, 60, 20, 1, 1, 1};
    enum { COUNT = 577 };
    char folder[512];
    model_runner r;
    int32_t ids[COUNT];
    spry_kv_table table;
    spry_error error = {0};
    uint32_t done = 0;
    if (!is_chosen("qwen3") || !golden_folder(folder, "qwen3"))
        return;
    cuda_runner_open(&r, folder, NULL, NULL, SPRY_F16);
    size_t n_vocab = r.model->config.n_vocab;
    for (size_t i = 0; i < COUNT; i++)
        ids[i] = (int32_t)(i * 37 % n_vocab);
    float *whole = runner_logits(&r, ids, COUNT, COUNT);
    must(spry_kv_table_init(&table, RUNNER_TOKENS, &error), &error);
    for (size_t i = 0; i < SPRY_COUNT(steps); done += steps[i++]) {
        const spry_segment rows = {&table, ids + done, done, steps[i], SPRY_WANT_ALL, {{0}}, 0, NULL, 0};
        const float *logits;
        must(spry_kv_table_extend(&table, &r.pool, steps[i], &error), &error);
        must(step_run(r.device, &rows, 1, &error), &error);
        must(spry_device_logits(r.device, &logits, 0, steps[i], &error), &error);
        if (memcmp(logits, whole + done * n_vocab, steps[i] * n_vocab * sizeof *whole))
            fail_msg("a step of %u rows at %u changes bits", steps[i], done);
    }
    spry_kv_table_deinit(&table, &r.pool);
    free(whole);
    cuda_runner_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_agree_with_transformers),
        cmocka_unit_test(floats_agree_with_transformers),
        cmocka_unit_test(all_types_are_stored),
        cmocka_unit_test(splits_agree_with_transformers),
        cmocka_unit_test(chunks_and_batches_change_no_bit),
        cmocka_unit_test(deep_rows_have_the_bits_of_a_whole_prompt),
    };
    if (!cuda_runner_choose(argc, argv))
        return 0;
    chosen_models = argc > 2 ? argv + 2 : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
