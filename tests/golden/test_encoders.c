/* Encoders against transformers: ids, and every number of the last hidden states; from a folder and from the GGUF file
 * that we write. Threads, company and the engine's way of batching change no bit of an embedding. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/compiler.h"
#include "golden/golden_models.h"
#include "golden/golden_texts.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "spry.h"
#include "support/device_rows.h"
#include "support/model_folder.h"

/* The bound is that of a logit (logit_bound.h), of the largest number of the row. */
static void compare(const char *folder, const char *path, const char *label, const char *cpu)
{
    golden_texts g;
    model_runner r;
    double worst = 0, allowed_there = 1;
    texts_open(&g, folder);
    runner_open(&r, path, cpu, SPRY_F32, 2);
    assert_int_equal(g.width, r.model->config.n_embd);
    for (size_t i = 0; i < g.n; i++) {
        const text_case *c = &g.cases[i];
        float *hidden = runner_hidden(&r, c->ids, c->n_ids);
        for (size_t row = 0; row < c->n_rows; row++) {
            double largest = 0;
            for (size_t k = 0; k < g.width; k++)
                largest = fmax(largest, fabs((double)c->rows[row * g.width + k]));
            double allowed = (double)FLT_EPSILON / 2 * logit_rounding_steps(&r.model->config, c->n_ids) * largest;
            for (size_t k = 0; k < g.width; k++) {
                double off = fabs((double)hidden[row * g.width + k] - (double)c->rows[row * g.width + k]);
                if (!(off <= allowed))
                    fail_msg("%s: text %zu, row %zu, value %zu: off by %g, allowed %g", label, i, row, k, off, allowed);
                if (off / allowed > worst / allowed_there) {
                    worst = off;
                    allowed_there = allowed;
                }
            }
        }
        free(hidden);
    }
    print_message("%-22s %-6s largest deviation of a hidden state %.2e, allowed %.2e\n", label, cpu, worst,
                  allowed_there);
    runner_close(&r);
    texts_close(&g);
}

static void each_table(void (*fn)(const char *folder, const char *cpu))
{
    char folder[512], names[128];
    for (size_t i = 0; i < TEXT_ENCODERS; i++) {
        char *rest = names;
        snprintf(names, sizeof names, "%s", spry_ops_names());
        assert_true(golden_folder(folder, text_encoders[i]));
        for (char *name; (name = strsep(&rest, ", "));)
            if (*name)
                fn(folder, name);
    }
}

static void compare_folder(const char *folder, const char *cpu)
{
    compare(folder, folder, strrchr(folder, '/') + 1, cpu);
}

static void test_folders(void **state)
{
    (void)state;
    each_table(compare_folder);
}

static void convert(char path[], const char *folder)
{
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    spry_model *model;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(spry_recipe_find(&recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    const spry_export options = {.recipe = recipe, .threads = threads};
    if (spry_model_open(&model, folder, &error) || spry_model_export(model, path, &options, &error))
        fail_msg("%s", error.message);
    spry_model_close(model);
    spry_threads_destroy(threads);
}

static void compare_converted(const char *folder, const char *cpu)
{
    char path[] = "/tmp/spry-encoder-XXXXXX", label[64];
    convert(path, folder);
    snprintf(label, sizeof label, "%s (converted)", strrchr(folder, '/') + 1);
    compare(folder, path, label, cpu);
    unlink(path);
}

static void test_converted(void **state)
{
    (void)state;
    each_table(compare_converted);
}

/* ---- the tokenizer -------------------------------------------------------------------------------------------------
 */

static void check_ids(const char *path, const golden_texts *g)
{
    spry_error error = {0};
    spry_model *model;
    if (spry_model_open(&model, path, &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < g->n; i++) {
        const text_case *c = &g->cases[i];
        spry_tokens ids = {0};
        assert_int_equal(spry_tokenizer_encode(model->tokenizer, &ids, spry_view_of(c->prompt), NULL, 0,
                                               SPRY_ENCODE_BOS_EOS, &error),
                         SPRY_OK);
        bool cut = ids.count > c->n_ids && c->n_rows < c->n_ids; /* the reference cuts long texts */
        assert_true(ids.count == c->n_ids || cut);
        assert_memory_equal(ids.ids, c->ids, (cut ? c->n_ids - 1 : c->n_ids) * sizeof *ids.ids);
        spry_tokens_deinit(&ids);
    }
    spry_model_close(model);
}

static void test_ids(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXT_ENCODERS; i++) {
        char folder[512], path[] = "/tmp/spry-encoder-XXXXXX";
        golden_texts g;
        assert_true(golden_folder(folder, text_encoders[i]));
        texts_open(&g, folder);
        check_ids(folder, &g);
        convert(path, folder);
        check_ids(path, &g);
        unlink(path);
        texts_close(&g);
    }
}

/* ---- invariance ----------------------------------------------------------------------------------------------------
 */

static void company_of(const char *folder, const char *cpu)
{
    static const spry_dtype types[] = {SPRY_F32, SPRY_F16};
    golden_texts g;
    texts_open(&g, folder);
    for (size_t t = 0; t < SPRY_COUNT(types); t++)
        for (size_t threads = 1; threads <= 3; threads++) {
            model_runner r;
            spry_error error = {0};
            spry_kv_table tables[MAX_TEXTS];
            spry_segment segments[MAX_TEXTS];
            runner_open(&r, folder, cpu, types[t], threads);
            for (size_t i = 0; i < g.n; i++) {
                const text_case *c = &g.cases[i];
                assert_int_equal(spry_kv_table_init(&tables[i], RUNNER_TOKENS, &error), SPRY_OK);
                assert_int_equal(spry_kv_table_extend(&tables[i], &r.pool, c->n_ids, &error), SPRY_OK);
                segments[i] =
                    (spry_segment){&tables[i], c->ids, 0, (uint32_t)c->n_ids, SPRY_WANT_HIDDEN, {{0}}, 0, NULL, 0};
            }
            if (step_run(r.device, segments, g.n, &error))
                fail_msg("%s", error.message);
            for (size_t i = 0, row = 0; i < g.n; row += g.cases[i++].n_ids) {
                size_t n = g.cases[i].n_ids * g.width;
                float *together = malloc(n * sizeof *together);
                assert_non_null(together);
                memcpy(together, step_hidden(r.device, row, g.cases[i].n_ids), n * sizeof *together);
                if (i + 1 == g.n || i == 0) { /* the step's rows are gone once another one runs */
                    model_runner alone;
                    runner_open(&alone, folder, cpu, types[t], 1);
                    float *rows = runner_hidden(&alone, g.cases[i].ids, g.cases[i].n_ids);
                    assert_memory_equal(rows, together, n * sizeof *rows);
                    free(rows);
                    runner_close(&alone);
                }
                free(together);
            }
            for (size_t i = 0; i < g.n; i++)
                spry_kv_table_deinit(&tables[i], &r.pool);
            runner_close(&r);
        }
    texts_close(&g);
}

static void test_company_changes_nothing(void **state)
{
    (void)state;
    each_table(company_of);
}

/* Part of a text, and logits, are refused. */
static void test_refused_steps(void **state)
{
    (void)state;
    char folder[512];
    model_runner r;
    spry_error error = {0};
    spry_kv_table table;
    const int32_t ids[8] = {2, 5, 6, 7, 8, 9, 10, 3};
    assert_true(golden_folder(folder, "bert"));
    runner_open(&r, folder, "ref", SPRY_F32, 1);
    assert_int_equal(spry_kv_table_init(&table, RUNNER_TOKENS, &error), SPRY_OK);
    assert_int_equal(spry_kv_table_extend(&table, &r.pool, 8, &error), SPRY_OK);
    spry_segment part = {&table, ids, 0, 4, SPRY_WANT_HIDDEN, {{0}}, 0, NULL, 0},
                 logits = {&table, ids, 0, 8, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
    assert_int_equal(step_run(r.device, &part, 1, &error), SPRY_ERR_CONTEXT);
    assert_int_equal(step_run(r.device, &logits, 1, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "embeddings"));
    spry_kv_table_deinit(&table, &r.pool);
    runner_close(&r);
}

/* ---- Gemma 3 in both directions
 * ---------------------------------------------------------------------------------------- */

enum { LONG = 200, WINDOW = 32 };

/* Hidden states of the first layer's reach: a token that no layer lets a row see changes nothing, any other does. */
static void check_reach(model_runner *r, int32_t *ids)
{
    size_t width = r->model->config.n_embd;
    float *before = runner_hidden(r, ids, LONG);
    for (size_t at = 0; at < LONG; at += 50) {
        ids[at] += 1;
        float *after = runner_hidden(r, ids, LONG);
        for (size_t row = 0; row < LONG; row++) {
            size_t distance = row > at ? row - at : at - row;
            bool same = !memcmp(before + row * width, after + row * width, width * sizeof *before);
            if (same != (distance > WINDOW / 2))
                fail_msg("row %zu %s token %zu", row, same ? "does not see" : "sees", at);
        }
        free(after);
        ids[at] -= 1;
    }
    free(before);
}

/* One layer that slides: half of the window is on each side. The same bits from the GGUF file that we write. */
static void test_gemma_sees_both_sides(void **state)
{
    (void)state;
    scratch s;
    char path[] = "/tmp/spry-encoder-XXXXXX";
    int32_t ids[LONG];
    model_runner first, second;
    scratch_init(&s);
    model_folder_gemma_encoder(&s, WINDOW);
    for (size_t i = 0; i < LONG; i++)
        ids[i] = (int32_t)(10 + i * 7 % 200);
    runner_open(&first, s.folder, "ref", SPRY_F32, 1);
    assert_string_equal(first.model->config.arch->gguf, "gemma-embedding");
    check_reach(&first, ids);
    convert(path, s.folder);
    runner_open(&second, path, "ref", SPRY_F32, 1);
    assert_int_equal(second.model->config.window, first.model->config.window);
    float *a = runner_hidden(&first, ids, LONG), *b = runner_hidden(&second, ids, LONG);
    assert_memory_equal(a, b, LONG * first.model->config.n_embd * sizeof *a);
    free(a);
    free(b);
    runner_close(&first);
    runner_close(&second);
    unlink(path);
    scratch_deinit(&s);
}

/* ---- through the engine ---------------------------------------------------------------------------------------------
 */

enum { JOBS = 24 };

static void test_engine(void **state)
{
    (void)state;
    char folder[512];
    golden_texts g;
    spry_engine *engine;
    spry_session *session;
    spry_engine_options o;
    spry_error error = {0};
    assert_true(golden_folder(folder, "bert"));
    texts_open(&g, folder);
    spry_engine_options_default(&o);
    o.sessions = 9;
    o.kv_type = "f32";
    if (spry_engine_open(&engine, folder, &o, &error))
        fail_msg("%s", error.message);
    assert_int_equal(spry_session_create(&session, engine, &error), SPRY_OK);
    float *alone = calloc(g.n * g.width, sizeof *alone);
    assert_non_null(alone);
    for (size_t i = 0; i < g.n; i++) {
        const text_case *c = &g.cases[i];
        if (spry_session_embed(session, alone + i * g.width, c->ids, c->n_ids, &error))
            fail_msg("%s", error.message);
        double sum = 0, square = 0, product = 0; /* the mean of the recorded rows has the same direction */
        for (size_t k = 0; k < g.width; k++) {
            double mean = 0;
            for (size_t row = 0; row < c->n_ids; row++)
                mean += (double)c->rows[row * g.width + k];
            square += mean * mean;
            product += mean * (double)alone[i * g.width + k];
            sum += (double)alone[i * g.width + k] * (double)alone[i * g.width + k];
        }
        assert_true(fabs(sum - 1) < 1e-6 && product / sqrt(square) > 1 - 1e-6);
    }
    spry_jobs_options jobs;
    spry_jobs_options_default(&jobs);
    jobs.max_running = 8;
    jobs.max_waiting = JOBS;
    assert_int_equal(spry_engine_set_jobs(engine, &jobs, &error), SPRY_OK);
    spry_job *list[JOBS];
    for (size_t i = 0; i < JOBS; i++) { /* more rows than a step has, long texts between short ones */
        const text_case *c = &g.cases[i % g.n];
        assert_int_equal(spry_job_create_embedding(&list[i], engine, c->ids, c->n_ids, NULL, &error), SPRY_OK);
        assert_int_equal(spry_job_submit(list[i], &error), SPRY_OK);
    }
    for (size_t i = 0; i < JOBS; i++) {
        if (spry_job_wait(list[i], 60000, &error))
            fail_msg("%s", error.message);
        assert_memory_equal(spry_job_embedding(list[i]), alone + i % g.n * g.width, g.width * sizeof *alone);
        spry_job_free(list[i]);
    }
    spry_kv_figures figures;
    spry_engine_kv_figures(engine, &figures);
    assert_int_equal(figures.inserted_pages, 0); /* what rows of a text know of it is not for other texts */
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = g.cases[0].ids;
    request.n_prompt = g.cases[0].n_ids;
    assert_int_equal(spry_session_generate(session, &result, &request, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "embeddings"));
    const float *logits;
    assert_int_equal(spry_session_eval(session, &logits, g.cases[0].ids, g.cases[0].n_ids, &error),
                     SPRY_ERR_UNSUPPORTED);
    free(alone);
    spry_session_destroy(session);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    texts_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),       cmocka_unit_test(test_converted),
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_refused_steps), cmocka_unit_test(test_gemma_sees_both_sides),
        cmocka_unit_test(test_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
