/* LoRA adapters on the CUDA device: logits equal the logits of the CPU within the bound of golden models, also of
 * models that are split over both; chunks, graphs and company in a step change no bit, also where rows have different
 * adapters; rows without any have the bits of a model without any. The GPU is imitated (support/cuda_imitation.h);
 * `test_cuda_adapters gpu` uses the first real one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "golden/cuda_runner.h"
#include "golden/golden_file.h"
#include "golden/logit_bound.h"
#include "support/model_adapters.h"

static scratch place;

static int set_up(void **state)
{
    (void)state;
    scratch_init(&place);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
    scratch_deinit(&place);
    return 0;
}

typedef void make_fn(made_adapter *m, const spry_config *config, uint64_t seed);

/* An adapter of a tied output matrix, which is also the embedding. */
static void make_output(made_adapter *m, const spry_config *c, uint64_t seed)
{
    *m = (made_adapter){.seed = seed};
    assert_true(c->tied);
    made_add(m, "lm_head", "output", c->n_vocab, c->n_embd, 4, 0);
}

/* Largest difference of logits, in units of what is allowed to a GPU. */
static double compare(model_runner *r, const float *expected, const float *got, const int32_t *ids, size_t n)
{
    size_t n_vocab = r->model->config.n_vocab;
    float *weights = malloc(r->model->config.n_embd * sizeof *weights), *hidden = runner_hidden(r, ids, n);
    double worst = 0;
    assert_non_null(weights);
    for (size_t row = 0; row < n; row++) {
        double allowed = 2 * logit_bound(r, hidden, row, weights) * cuda_runner_rounding(r);
        for (size_t o = 0; o < n_vocab; o++) {
            double off = fabs((double)expected[row * n_vocab + o] - (double)got[row * n_vocab + o]) / allowed;
            worst = off > worst ? off : worst;
        }
    }
    free(weights);
    free(hidden);
    return worst;
}

static void expect_cpu(model_runner *r, const float *expected, const int32_t *ids, size_t n, const char *label)
{
    float *got = runner_logits(r, ids, n, 16);
    double worst = compare(r, expected, got, ids, n);
    print_message("%-12s %.4f of the largest deviation allowed\n", label, worst);
    if (!(worst <= 1))
        fail_msg("%s: %.1f times what is allowed", label, worst);
    free(got);
}

static void compare_model(const char *model, make_fn *make, bool splits)
{
    golden_file golden = {0};
    model_runner cpu, gpu;
    char folder[SCRATCH_PATH], both[MADE_LIST], lora[MADE_LIST + 8], label[64];
    made_two(&place, model, make, folder, both);
    golden_open(&golden, folder);
    const golden_case *c = &golden.cases[0];
    snprintf(lora, sizeof lora, "%s=-0.5", both);
    runner_open_adapted(&cpu, folder, lora, "ref", 1);
    float *expected = runner_logits(&cpu, c->ids, c->n_ids, c->n_ids);
    cpu.adapters = (spry_adapter_scales){{0}};
    float *plain = runner_logits(&cpu, c->ids, c->n_ids, c->n_ids);
    runner_close(&cpu);
    cuda_runner_open(&gpu, folder, lora, "f32", SPRY_F32);
    assert_true(compare(&gpu, expected, plain, c->ids, c->n_ids) > 1);
    expect_cpu(&gpu, expected, c->ids, c->n_ids, model);
    for (uint32_t layers = 1; splits && layers < gpu.model->config.n_layers; layers++) {
        cuda_runner_split(&gpu, layers, layers % 2 == 0);
        snprintf(label, sizeof label, "%s %u/%u", model, layers, gpu.model->config.n_layers);
        expect_cpu(&gpu, expected, c->ids, c->n_ids, label);
    }
    cuda_runner_close(&gpu);
    free(expected);
    free(plain);
    golden_close(&golden);
}

/* All matrices, fused ones, experts, a tied output. */
static void adapted_models_agree_with_the_cpu(void **state)
{
    (void)state;
    compare_model("llama", made_llama, true);
    compare_model("phi3", made_phi3, false);
    compare_model("qwen2-moe", made_moe, true);
    compare_model("gemma", make_output, false);
}

static void check_bits(const char *model, make_fn *make, spry_dtype kv)
{
    static const size_t chunks[] = {1, 7};
    golden_file golden = {0};
    model_runner r;
    float *alone[ADAPTED_KINDS];
    char folder[SCRATCH_PATH], lora[MADE_LIST];
    made_two(&place, model, make, folder, lora);
    golden_open(&golden, folder);
    const golden_case *c = &golden.cases[golden.n_cases - 1];
    assert_true(c->n_ids >= ADAPTED_ROWS);
    cuda_runner_open(&r, folder, NULL, NULL, kv);
    float *plain = runner_logits(&r, c->ids, ADAPTED_ROWS, ADAPTED_ROWS);
    cuda_runner_close(&r);
    cuda_runner_open(&r, folder, lora, NULL, kv);
    for (size_t i = 0; i < ADAPTED_KINDS; i++) {
        r.adapters = adapted_kinds[i];
        alone[i] = runner_logits(&r, c->ids, ADAPTED_ROWS, ADAPTED_ROWS);
        for (size_t k = 0; k < SPRY_COUNT(chunks); k++) {
            float *parts = runner_logits(&r, c->ids, ADAPTED_ROWS, chunks[k]);
            adapted_same(alone[i], parts, ADAPTED_ROWS * golden.n_vocab, "the chunk size");
            free(parts);
        }
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(alone[i], alone[k], golden.n_vocab * sizeof(float));
    }
    adapted_same(alone[0], plain, ADAPTED_ROWS * golden.n_vocab, "an adapter that is not used");
    adapted_company(&r, alone, c->ids);
    for (size_t i = 0; i < ADAPTED_KINDS; i++)
        free(alone[i]);
    free(plain);
    cuda_runner_close(&r);
    golden_close(&golden);
}

static void chunks_and_company_change_no_bit(void **state)
{
    (void)state;
    check_bits("llama", made_llama, SPRY_F16);
    check_bits("qwen2-moe", made_moe, SPRY_F32);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(adapted_models_agree_with_the_cpu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_and_company_change_no_bit, set_up, tear_down),
    };
    cuda_runner_real = argc > 1 && !strcmp(argv[1], "gpu");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
