/* Every architecture against transformers: logits within what float rounding explains, greedy continuations wherever
 * the choice was clearer than that, from safetensors and from GGUF, under every kernel set. And the promise: chunks,
 * batches and threads change no bit.
 *
 * test_models [TABLE [TEST [MODEL]]] runs less of it, for a machine that is slow because it is emulated. */
#include <dirent.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/golden_file.h"
#include "golden/golden_models.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "support/device_rows.h"

static const char *const with_gguf[] = {"gemma3", "llama", "qwen2-moe", "qwen3"};

static const char *folder_of(char path[512], const char *model)
{
    snprintf(path, 512, "%s/models/%s", TEST_DATA, model);
    return path;
}

typedef struct deviation {
    double worst, allowed; /* of the row that came closest to its tolerance */
} deviation;

/* Weights of blocks (experts of gpt-oss) are multiplied by activations of 8 bits where a table has integer kernels:
 * their rounding, relative to that of floats. */
static const spry_matmul_kernel *kernel_of(const model_runner *r)
{
    const spry_layer *l = &r->model->weights.layers[r->model->config.n_layers - 1];
    const spry_weight *up = l->router.data ? &l->expert_up[0] : &l->up;
    return &r->ops->matmul[up->type];
}

/* With BF16 activations a router may choose other experts, and an indexer other keys, which no sum of roundings bounds. */
static double act_rounding(const model_runner *r)
{
    const spry_matmul_kernel *kernel = kernel_of(r);
    const spry_config *c = &r->model->config;
    int choices = (r->model->weights.layers[c->n_layers - 1].router.data != NULL) + (c->index_top > 0);
    return kernel->integer ? 0x1p-8 / 0x1p-24 : kernel->bf16 && choices ? choices * 0x1p-9 / 0x1p-24 : 1;
}

static void compare_case(model_runner *r, const golden_case *c, deviation *d)
{
    size_t n_vocab = r->model->config.n_vocab;
    float *weights = malloc(r->model->config.n_embd * sizeof *weights);
    assert_non_null(weights);
    float *logits = runner_logits(r, c->ids, c->n_ids, c->n_ids), *hidden = runner_hidden(r, c->ids, c->n_ids);
    for (size_t row = 0; row < c->n_rows; row++) {
        size_t at = c->first_row + row;
        double allowed = fmax(logit_bound(r, hidden, at, weights), logit_wobble(r, c->wobble)) * act_rounding(r);
        if (kernel_of(r)->bf16)
            allowed += logit_bound_bf16(r, hidden, at, weights);
        for (size_t o = 0; o < n_vocab; o++) {
            double difference = fabs((double)logits[at * n_vocab + o] - (double)c->logits[row * n_vocab + o]);
            if (!(difference <= allowed))
                fail_msg("%s: row %zu, token %zu: off by %g, allowed %g", r->model->name, at, o, difference, allowed);
            if (difference / allowed >= d->worst / d->allowed)
                *d = (deviation){difference, allowed};
        }
    }
    free(logits);
    free(hidden);
    free(weights);
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Each greedy token must follow from the prompt and the golden tokens before it. Returns how many were too close to
 * tell. */
static size_t compare_greedy(model_runner *r, const golden_case *c, double allowed)
{
    size_t n_vocab = r->model->config.n_vocab, total = c->n_ids + c->n_greedy, unclear = 0;
    int32_t *ids = malloc(total * sizeof *ids);
    assert_non_null(ids);
    memcpy(ids, c->ids, c->n_ids * sizeof *ids);
    memcpy(ids + c->n_ids, c->greedy, c->n_greedy * sizeof *ids);
    float *logits = runner_logits(r, ids, total, 32);
    for (size_t i = 0; i < c->n_greedy; i++) {
        size_t chosen = argmax(logits + (c->n_ids + i - 1) * n_vocab, n_vocab);
        if (c->margins[i] > 2 * allowed)
            assert_int_equal(chosen, c->greedy[i]);
        else
            unclear++;
    }
    free(logits);
    free(ids);
    return unclear;
}

static void compare_model(const char *folder, const char *path, const char *label, const char *cpu)
{
    model_runner r;
    golden_file golden = {0};
    deviation d = {0, 1};
    size_t unclear = 0, tokens = 0;
    golden_open(&golden, folder);
    runner_open(&r, path, cpu, SPRY_F32, 2);
    assert_int_equal(golden.n_vocab, r.model->config.n_vocab);
    for (size_t i = 0; i < golden.n_cases; i++) {
        compare_case(&r, &golden.cases[i], &d);
        unclear += compare_greedy(&r, &golden.cases[i], d.allowed);
        tokens += golden.cases[i].n_greedy;
    }
    assert_true(unclear * 10 < tokens || kernel_of(&r)->integer || kernel_of(&r)->bf16);
    print_message(
        "%-22s %-6s largest logit deviation %.2e, allowed %.2e; greedy %zu/%zu equal, %zu too close to tell\n", label,
        cpu, d.worst, d.allowed, tokens - unclear, tokens, unclear);
    runner_close(&r);
    golden_close(&golden);
}

static const char *only_cpu; /* NULL: all */

/* Calls fn with each kernel set this machine has. */
static void for_each_cpu(void (*fn)(const char *cpu))
{
    char names[128], *rest = names;
    snprintf(names, sizeof names, "%s", only_cpu ? only_cpu : spry_ops_names());
    for (char *name; (name = strsep(&rest, ", "));) {
        const spry_ops *ops;
        if (!*name)
            continue;
        assert_int_equal(spry_ops_get(&ops, name, NULL), SPRY_OK);
        fn(name);
    }
}

static void check_folders(const char *cpu)
{
    char folder[512];
    for (size_t i = 0; golden_models[i]; i++)
        if (golden_folder(folder, golden_models[i]))
            compare_model(folder, folder, golden_models[i], cpu);
}

static void test_safetensors(void **state)
{
    (void)state;
    for_each_cpu(check_folders);
}

static void check_ggufs(const char *cpu)
{
    char folder[512], path[600], label[64];
    for (size_t i = 0; i < SPRY_COUNT(with_gguf); i++) {
        snprintf(path, sizeof path, "%s/model-f32.gguf", folder_of(folder, with_gguf[i]));
        snprintf(label, sizeof label, "%s (gguf)", with_gguf[i]);
        compare_model(folder, path, label, cpu);
    }
}

static void test_gguf(void **state)
{
    (void)state;
    for_each_cpu(check_ggufs);
}

/* Converted by ourselves, under the names and in the layout of llama.cpp's converter. */
static void check_converted(const char *cpu)
{
    char folder[512], path[] = "/tmp/spry-golden-XXXXXX", label[64];
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(spry_recipe_find(&recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    for (size_t i = 0; golden_models[i]; i++) {
        spry_model *model;
        if (!golden_folder(folder, golden_models[i]))
            continue;
        const spry_export options = {.recipe = recipe, .threads = threads};
        if (spry_model_open(&model, folder, &error))
            fail_msg("%s", error.message);
        bool possible = model->config.arch->gguf;
        spry_status status = spry_model_export(model, path, &options, &error);
        spry_model_close(model);
        if (status && possible)
            fail_msg("%s", error.message);
        if (!possible) {
            assert_int_equal(status, SPRY_ERR_UNSUPPORTED);
            continue;
        }
        snprintf(label, sizeof label, "%s (converted)", golden_models[i]);
        compare_model(folder, path, label, cpu);
    }
    spry_threads_destroy(threads);
    unlink(path);
}

static void test_converted(void **state)
{
    (void)state;
    for_each_cpu(check_converted);
}

/* The same checkpoints with the config.json of published ones, of another form. */
static void check_published(const char *cpu)
{
    char folder[512], path[800], file[800], label[64];
    size_t found = 0;
    for (size_t i = 0; golden_models[i]; i++) {
        char place[] = "/tmp/spry-published-XXXXXX";
        const struct dirent *entry;
        snprintf(path, sizeof path, "%s/config_published.json", folder_of(folder, golden_models[i]));
        if (access(path, R_OK) != 0)
            continue;
        assert_non_null(mkdtemp(place));
        DIR *files = opendir(folder);
        assert_non_null(files);
        while ((entry = readdir(files))) {
            bool config = !strcmp(entry->d_name, "config_published.json");
            if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "config.json"))
                continue;
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            snprintf(file, sizeof file, "%s/%s", place, config ? "config.json" : entry->d_name);
            assert_int_equal(symlink(path, file), 0);
        }
        snprintf(label, sizeof label, "%s (published)", golden_models[i]);
        compare_model(folder, place, label, cpu);
        rewinddir(files);
        while ((entry = readdir(files))) {
            snprintf(file, sizeof file, "%s/%s", place, entry->d_name);
            (void)unlink(file);
        }
        closedir(files);
        rmdir(place);
        found++;
    }
    assert_true(found > 0);
}

static void test_published(void **state)
{
    (void)state;
    for_each_cpu(check_published);
}

static void same_bits(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a))
        fail_msg("%s changed bits", what);
}

static const spry_dtype kv_types[] = {SPRY_F32, SPRY_F16, SPRY_Q8_0, SPRY_Q4_0};

/* Keys of blocks need heads of whole blocks; the rotation of q4_0 is for keys and values of attention alone. */
static bool kv_fits(const char *folder, spry_dtype kv)
{
    spry_model *model;
    assert_int_equal(spry_model_open(&model, folder, NULL), SPRY_OK);
    size_t block = spry_dtype_block(kv);
    const spry_kv_shape shape = spry_model_kv_shape(model, kv);
    bool fits = shape.head_dim % block == 0 && (!shape.other.n_layers || shape.other.head_dim % block == 0);
    const spry_arch *arch = model->config.arch;
    if (kv == SPRY_Q4_0 && (arch->latent || arch->compressed || arch->convolutions || arch->attention_free))
        fits = false;
    spry_model_close(model);
    return fits;
}

static void chunks_of_one(const char *folder, const char *cpu, spry_dtype kv)
{
    static const size_t chunks[] = {1, 7, 32};
    golden_file golden = {0};
    model_runner r;
    golden_open(&golden, folder);
    runner_open(&r, folder, cpu, kv, 1);
    for (size_t i = 0; i < golden.n_cases; i++) {
        const golden_case *c = &golden.cases[i];
        float *whole = runner_logits(&r, c->ids, c->n_ids, c->n_ids);
        for (size_t j = 0; j < SPRY_COUNT(chunks); j++) {
            float *parts = runner_logits(&r, c->ids, c->n_ids, chunks[j]);
            same_bits(whole, parts, c->n_ids * golden.n_vocab, "the chunk size");
            free(parts);
        }
        free(whole);
    }
    runner_close(&r);
    golden_close(&golden);
}

static void check_chunks(const char *cpu)
{
    char folder[512];
    for (size_t i = 0; golden_models[i]; i++)
        for (size_t k = 0; k < SPRY_COUNT(kv_types); k++)
            if (golden_folder(folder, golden_models[i]) && kv_fits(folder, kv_types[k]))
                chunks_of_one(folder, cpu, kv_types[k]);
}

static void test_chunks_change_nothing(void **state)
{
    (void)state;
    for_each_cpu(check_chunks);
}

static void check_threads(const char *cpu)
{
    char folder[512];
    for (size_t i = 0; golden_models[i]; i++) {
        golden_file golden = {0};
        float *first = NULL;
        if (!golden_folder(folder, golden_models[i]))
            continue;
        golden_open(&golden, folder);
        const golden_case *c = &golden.cases[golden.n_cases - 1];
        for (size_t threads = 1; threads <= 5; threads++) {
            model_runner r;
            runner_open(&r, folder, cpu, SPRY_F16, threads);
            float *logits = runner_logits(&r, c->ids, c->n_ids, 64);
            if (first)
                same_bits(first, logits, c->n_ids * golden.n_vocab, "the number of threads");
            runner_close(&r);
            if (first)
                free(logits);
            else
                first = logits;
        }
        free(first);
        golden_close(&golden);
    }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    for_each_cpu(check_threads);
}

enum { BATCH = 4 };

/* All golden prompts at once, a few rows of each a step and not the same number, against each alone. */
static void batch_model(const char *folder, const char *cpu)
{
    golden_file golden = {0};
    model_runner r;
    spry_error error = {0};
    spry_kv_table tables[BATCH];
    float *alone[BATCH];
    size_t done[BATCH] = {0}, n = 0, left = 0;
    golden_open(&golden, folder);
    runner_open(&r, folder, cpu, SPRY_F16, 2);
    n = golden.n_cases < BATCH ? golden.n_cases : BATCH;
    for (size_t i = 0; i < n; i++) {
        alone[i] = runner_logits(&r, golden.cases[i].ids, golden.cases[i].n_ids, 32);
        assert_int_equal(spry_kv_table_init(&tables[i], RUNNER_TOKENS, &error), SPRY_OK);
        left += golden.cases[i].n_ids;
    }
    for (size_t step = 0; left; step++) {
        spry_segment segments[BATCH];
        size_t owner[BATCH], n_segments = 0, row = 0;
        for (size_t i = 0; i < n; i++) {
            const golden_case *c = &golden.cases[i];
            size_t rows = 1 + (step * 5 + i * 3) % 9;
            rows = rows < c->n_ids - done[i] ? rows : c->n_ids - done[i];
            if (!rows)
                continue;
            assert_int_equal(spry_kv_table_extend(&tables[i], &r.pool, rows, &error), SPRY_OK);
            owner[n_segments] = i;
            segments[n_segments++] = (spry_segment){
                &tables[i], c->ids + done[i], (uint32_t)done[i], (uint32_t)rows, SPRY_WANT_ALL, {{0}}, 0, NULL, 0};
        }
        assert_int_equal(step_run(r.device, segments, n_segments, &error), SPRY_OK);
        for (size_t s = 0; s < n_segments; s++) {
            size_t i = owner[s], rows = segments[s].n_rows;
            same_bits(alone[i] + done[i] * golden.n_vocab, step_logits(r.device, row, rows), rows * golden.n_vocab,
                      "company in the step");
            row += rows;
            done[i] += rows;
            left -= rows;
        }
    }
    for (size_t i = 0; i < n; i++) {
        free(alone[i]);
        spry_kv_table_deinit(&tables[i], &r.pool);
    }
    runner_close(&r);
    golden_close(&golden);
}

static void check_batches(const char *cpu)
{
    char folder[512];
    for (size_t i = 0; golden_models[i]; i++)
        if (golden_folder(folder, golden_models[i]))
            batch_model(folder, cpu);
}

static void test_company_changes_nothing(void **state)
{
    (void)state;
    for_each_cpu(check_batches);
}

int main(int argc, char **argv)
{
    only_cpu = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL;
    cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
    golden_only = argc > 3 ? argv[3] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_converted),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_chunks_change_nothing),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_company_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
