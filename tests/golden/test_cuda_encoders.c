/* Encoders on the CUDA device: every number of the last hidden states against the recorded ones; company in a step
 * changes no bit; rows that see both sides through a window against the CPU. The GPU is imitated
 * (support/cuda_imitation.h); `test_cuda_encoders gpu` uses the first real one. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/cuda_runner.h"
#include "golden/golden_models.h"
#include "golden/golden_texts.h"
#include "golden/logit_bound.h"
#include "support/device_rows.h"
#include "support/model_folder.h"

/* Rows of hidden states against those that were expected: the bound is that of a logit, of the largest number of the
 * row. */
static double compare(const model_runner *r, const float *expected, const float *got, size_t n_rows, double rounding)
{
    size_t width = r->model->config.n_embd;
    double worst = 0;
    for (size_t row = 0; row < n_rows; row++) {
        double largest = 0;
        for (size_t k = 0; k < width; k++)
            largest = fmax(largest, fabs((double)expected[row * width + k]));
        double allowed = (double)FLT_EPSILON / 2 * logit_rounding_steps(&r->model->config, n_rows) * largest * rounding;
        for (size_t k = 0; k < width; k++) {
            double off = fabs((double)got[row * width + k] - (double)expected[row * width + k]) / allowed;
            worst = off <= worst ? worst : off;
        }
    }
    return worst;
}

static void hidden_states_agree_with_recorded_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < GPU_ENCODERS; i++) {
        char folder[512];
        golden_texts g;
        model_runner r;
        double worst = 0;
        assert_true(golden_folder(folder, text_encoders[i]));
        texts_open(&g, folder);
        cuda_runner_open(&r, folder, NULL, NULL, SPRY_F32);
        assert_int_equal(g.width, r.model->config.n_embd);
        for (size_t k = 0; k < g.n; k++) {
            const text_case *c = &g.cases[k];
            float *hidden = runner_hidden(&r, c->ids, c->n_ids);
            double off = compare(&r, c->rows, hidden, c->n_ids, cuda_runner_rounding(&r));
            if (!(off <= 1))
                fail_msg("%s, text %zu: %g times what is allowed", text_encoders[i], k, off);
            worst = off > worst ? off : worst;
            free(hidden);
        }
        print_message("%-12s %.4f of the largest deviation allowed\n", text_encoders[i], worst);
        cuda_runner_close(&r);
        texts_close(&g);
    }
}

/* All texts in one step. */
static void run_together(model_runner *r, float *out, const golden_texts *g)
{
    spry_error error = {0};
    spry_kv_table tables[MAX_TEXTS];
    spry_segment segments[MAX_TEXTS];
    size_t rows = 0;
    for (size_t i = 0; i < g->n; i++) {
        const text_case *c = &g->cases[i];
        assert_int_equal(spry_kv_table_init(&tables[i], RUNNER_TOKENS, &error), SPRY_OK);
        assert_int_equal(spry_kv_table_extend(&tables[i], &r->pool, c->n_ids, &error), SPRY_OK);
        segments[i] = (spry_segment){&tables[i], c->ids, 0, (uint32_t)c->n_ids, SPRY_WANT_HIDDEN, {{0}}, 0, NULL, 0};
        rows += c->n_ids;
    }
    if (step_run(r->device, segments, g->n, &error))
        fail_msg("%s", error.message);
    memcpy(out, step_hidden(r->device, 0, rows), rows * g->width * sizeof *out);
    for (size_t i = 0; i < g->n; i++)
        spry_kv_table_deinit(&tables[i], &r->pool);
}

static void check_company(const char *model, spry_dtype kv)
{
    char folder[512];
    golden_texts g;
    model_runner r;
    size_t rows = 0;
    assert_true(golden_folder(folder, model));
    texts_open(&g, folder);
    cuda_runner_open(&r, folder, NULL, NULL, kv);
    for (size_t i = 0; i < g.n; i++)
        rows += g.cases[i].n_ids;
    float *together = malloc(rows * g.width * sizeof *together), *at = together;
    assert_non_null(together);
    run_together(&r, together, &g);
    for (size_t i = 0; i < g.n; at += g.cases[i++].n_ids * g.width)
        for (int again = 0; again < 3;
             again++) { /* of few rows the second is captured as a graph, which the third runs */
            float *alone = runner_hidden(&r, g.cases[i].ids, g.cases[i].n_ids);
            if (memcmp(alone, at, g.cases[i].n_ids * g.width * sizeof *alone))
                fail_msg("%s: company changes bits of text %zu", model, i);
            free(alone);
        }
    free(together);
    cuda_runner_close(&r);
    texts_close(&g);
}

static void company_changes_no_bit(void **state)
{
    (void)state;
    check_company("bert", SPRY_F16);
    check_company("xlm-roberta", SPRY_F32);
    check_company("nomic-bert", SPRY_F16);
}

enum { LONG = 200, WINDOW = 32 };

/* By F32 pages within the bound; by F16 pages, with matrix instructions, a row sees the same tokens. */
static void windows_reach_to_both_sides(void **state)
{
    (void)state;
    scratch s;
    int32_t ids[LONG];
    model_runner cpu, gpu;
    scratch_init(&s);
    model_folder_gemma_encoder(&s, WINDOW);
    for (size_t i = 0; i < LONG; i++)
        ids[i] = (int32_t)(10 + i * 7 % 200);
    runner_open_on(&cpu, "cpu", s.folder, "ref", SPRY_F32, 1);
    cuda_runner_open(&gpu, s.folder, NULL, NULL, SPRY_F32);
    float *expected = runner_hidden(&cpu, ids, LONG), *got = runner_hidden(&gpu, ids, LONG);
    double off = compare(&gpu, expected, got, LONG, cuda_runner_rounding(&gpu));
    if (!(off <= 1))
        fail_msg("%g times what is allowed", off);
    free(expected);
    free(got);
    runner_close(&cpu);
    cuda_runner_close(&gpu);
    cuda_runner_open(&gpu, s.folder, NULL, NULL, SPRY_F16);
    size_t width = gpu.model->config.n_embd, at = LONG / 2;
    float *before = runner_hidden(&gpu, ids, LONG);
    ids[at] += 1;
    float *after = runner_hidden(&gpu, ids, LONG);
    for (size_t row = 0; row < LONG; row++) {
        size_t distance = row > at ? row - at : at - row;
        bool same = !memcmp(before + row * width, after + row * width, width * sizeof *before);
        if (same != (distance > WINDOW / 2))
            fail_msg("row %zu %s token %zu", row, same ? "does not see" : "sees", at);
    }
    free(before);
    free(after);
    cuda_runner_close(&gpu);
    scratch_deinit(&s);
}

/* In cross-encoders tokens after the first separator may have the second type. */
static void second_types_are_those_of_the_cpu(void **state)
{
    (void)state;
    enum { COUNT = 20, SEPARATOR = 9, ID = 5 };
    char folder[512];
    int32_t ids[COUNT];
    model_runner cpu, gpu;
    assert_true(golden_folder(folder, "reranker-bert"));
    runner_open_on(&cpu, "cpu", folder, "ref", SPRY_F32, 1);
    cuda_runner_open(&gpu, folder, NULL, "f32", SPRY_F32);
    assert_true(cpu.model->weights.token_types.n_out > 1);
    cpu.model->config.second_type = gpu.model->config.second_type = ID + 1;
    for (int32_t i = 0; i < COUNT; i++)
        ids[i] = i == SEPARATOR || i == COUNT - 1 ? ID : 20 + i;
    float *expected = runner_hidden(&cpu, ids, COUNT), *got = runner_hidden(&gpu, ids, COUNT);
    double off = compare(&gpu, expected, got, COUNT, cuda_runner_rounding(&gpu));
    if (!(off <= 1))
        fail_msg("%g times what is allowed", off);
    gpu.model->config.second_type = 0;
    float *alike = runner_hidden(&gpu, ids, COUNT);
    assert_true(compare(&gpu, expected, alike, COUNT, cuda_runner_rounding(&gpu)) > 1);
    free(expected);
    free(got);
    free(alike);
    runner_close(&cpu);
    cuda_runner_close(&gpu);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states_agree_with_recorded_ones),
        cmocka_unit_test(company_changes_no_bit),
        cmocka_unit_test(windows_reach_to_both_sides),
        cmocka_unit_test(second_types_are_those_of_the_cpu),
    };
    cuda_runner_real = argc > 1 && !strcmp(argv[1], "gpu");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
