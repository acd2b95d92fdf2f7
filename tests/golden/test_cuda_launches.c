/* Launch configs of decode steps: none changes a bit. Which kernels and grids are chosen depends on the GPU's SMs, its
 * shared memory and wgmma, so steps are computed with other values of these. The GPU is imitated; `test_cuda_launches
 * gpu` uses the first real one. */
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
#include "support/must.h"
#include "support/scratch.h"

static spry_cuda_device *gpu_of(const model_runner *r)
{
    return (spry_cuda_device *)r->device;
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

enum { SEQUENCES = 40, LONG_TOKENS = 140, LARGEST_FILE = 8 << 20 };

/* Sequences of the given lengths, whose pages are filled with numbers. */
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
        segments[i] =
            (spry_segment){&tables[i], &ids[i], (uint32_t)tables[i].n_tokens - 1, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
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

/* GPUs with fewer or more SMs, and without wgmma, against this one; also as a graph. */
static void compare_gpus(const char *type, size_t n, size_t tokens)
{
    static const struct {
        size_t sm_count;
        bool wgmma;
    } gpus[] = {{1, true}, {2, true}, {3, false}, {16, true}, {132, true}};
    model_runner r;
    spry_kv_table tables[SEQUENCES];
    cuda_runner_open(&r, TEST_DATA "/models/llama-256", NULL, type, SPRY_F16);
    fill_tables(tables, &r, n, tokens);
    spry_cuda_context *gpu = &gpu_of(&r)->context;
    size_t bytes = n * r.model->config.n_vocab * sizeof(float);
    float *expected = decode(&r, tables, n, 1);
    assert_false(expected[0] != expected[0]);
    for (size_t i = 0; i < SPRY_COUNT(gpus); i++) {
        gpu->sm_count = gpus[i].sm_count;
        gpu->has_wgmma = gpu->has_wgmma && gpus[i].wgmma;
        float *logits = decode(&r, tables, n, n == 1 ? 3 : 1);
        if (memcmp(logits, expected, bytes))
            fail_msg("%s, %zu rows: %zu SMs change bits", type, n, gpus[i].sm_count);
        free(logits);
        gpu->has_wgmma = gpu->sm90_up;
    }
    free(expected);
    for (size_t i = 0; i < n; i++)
        spry_kv_table_deinit(&tables[i], &r.pool);
    cuda_runner_close(&r);
}

static void no_gpu_changes_a_bit(void **state)
{
    (void)state;
    compare_gpus("q4_0", 1, LONG_TOKENS);
    compare_gpus("bf16", 3, LONG_TOKENS);
    compare_gpus("bf16", SEQUENCES, 1);
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
    spry_kv_table tables[3];
    char name[64];
    bool is_long = !strcmp(pages, "long");
    size_t n = is_long ? SPRY_COUNT(tables) : 1;
    cuda_runner_open(&r, model, NULL, type, SPRY_F16);
    r.model->config.interleaved = !strcmp(heads, "pairs");
    for (size_t i = 0; i < r.model->config.n_layers && !strcmp(heads, "norm"); i++) {
        spry_cuda_layer *l = &gpu_of(&r)->model.layers[i];
        l->q_norm = l->attn_norm;
        l->k_norm = l->attn_norm;
    }
    fill_tables(tables, &r, n, tokens);
    gpu_of(&r)->context.sm_count = is_long ? 1 : 132; /* with one SM, one block has all pages of a row */
    float *plain = decode(&r, tables, n, 1);
    snprintf(name, sizeof name, "spry_attend_decode_%s_%s", heads, pages);
    assert_true(was_used(&r, name));
    r.pool.turns.end = 2;
    float *general = decode(&r, tables, n, 1);
    assert_false(plain[0] != plain[0]);
    if (memcmp(plain, general, n * r.model->config.n_vocab * sizeof *plain))
        fail_msg("%s changes bits", name);
    r.pool.turns.end = 1;
    free(plain);
    free(general);
    for (size_t i = 0; i < n; i++)
        spry_kv_table_deinit(&tables[i], &r.pool);
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

/* Prompts and single rows where blocks have 99 KB of shared memory, as on GeForce cards, against 227 KB. */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gpu_changes_a_bit),
        cmocka_unit_test(kernels_wait_before_they_touch_rows),
        cmocka_unit_test(plain_kernels_change_no_bit),
        cmocka_unit_test(small_blocks_change_no_bit),
    };
    cuda_runner_real = argc > 1 && !strcmp(argv[1], "gpu");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
