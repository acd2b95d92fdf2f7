/* The bundled models: what the unquantised checkpoints give was recorded with transformers; the bundled 4-bit files
 * must stay near it, and the checkpoints themselves, where they lie beside the project, must equal it.
 *
 * test_tales [TEST] runs one of the two. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "kernels/ops.h"
#include "platform/file.h"
#include "spry.h"

typedef struct tales {
    json_t *golden;
    spry_engine *engine;
    spry_session *session;
} tales;

static json_t *read_golden(const char *path)
{
    spry_buffer text;
    json_t *json = NULL;
    spry_error error = {0};
    spry_buffer_init(&text, 1 << 20);
    if (spry_file_read(&text, path, &error) || spry_json_object(&json, spry_buffer_view(&text), &error))
        fail_msg("%s", error.message);
    spry_buffer_deinit(&text);
    return json;
}

static void tales_open(tales *t, const char *model, const char *golden, const char *kv_type, const char *cpu)
{
    spry_error error = {0};
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.kv_type = kv_type;
    options.cpu = cpu;
    t->golden = read_golden(golden);
    if (spry_engine_open(&t->engine, model, &options, &error) || spry_session_create(&t->session, t->engine, &error))
        fail_msg("%s", error.message);
}

static void tales_close(tales *t)
{
    spry_session_destroy(t->session);
    spry_engine_close(t->engine);
    json_decref(t->golden);
}

static int32_t *ids_of(const json_t *list, size_t *count)
{
    *count = json_array_size(list);
    int32_t *ids = malloc(*count * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

typedef struct likelihood {
    const int32_t *ids;
    size_t n_ids, n_vocab, counted;
    double sum;
} likelihood;

static bool add_row(void *user, size_t index, const float *logits)
{
    likelihood *l = user;
    if (index + 1 == l->n_ids)
        return true;
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < l->n_vocab; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (size_t i = 0; i < l->n_vocab; i++)
        sum += exp((double)logits[i] - largest);
    l->sum += largest + log(sum) - (double)logits[l->ids[index + 1]];
    l->counted++;
    return true;
}

/* Mean negative log likelihood of the recorded text. */
static double mean_nll(tales *t, double *golden)
{
    spry_error error = {0};
    spry_engine_info info;
    const json_t *text = json_object_get(t->golden, "perplexity");
    likelihood l = {0};
    int32_t *ids = ids_of(json_object_get(text, "ids"), &l.n_ids);
    spry_engine_describe(t->engine, &info);
    l.ids = ids;
    l.n_vocab = info.vocabulary;
    if (spry_session_eval_rows(t->session, ids, l.n_ids, add_row, &l, &error))
        fail_msg("%s", error.message);
    free(ids);
    *golden = json_number_value(json_object_get(text, "nll_mean"));
    return l.sum / (double)l.counted;
}

/* The rendered prompts of the golden file must come out of our template and tokenizer, id by id. */
static void check_prompts(tales *t)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(t->golden, "cases"), i, item)
    {
        int32_t ids[512];
        size_t count, expected_count;
        spry_message message = {"user", json_string_value(json_object_get(item, "user"))};
        int32_t *expected = ids_of(json_object_get(item, "ids"), &expected_count);
        assert_int_equal(spry_engine_chat(t->engine, ids, 512, &count, &message, 1, NULL), SPRY_OK);
        assert_int_equal(count, expected_count);
        assert_memory_equal(ids, expected, count * sizeof *ids);
        free(expected);
    }
}

static void check_bundled(const char *name)
{
    char model[512], golden[512];
    tales t;
    double recorded;
    snprintf(model, sizeof model, "%s/%s.gguf", MODELS_DIR, name);
    snprintf(golden, sizeof golden, "%s/tales/%s.json", TEST_DATA, name);
    tales_open(&t, model, golden, "f16", "auto");
    check_prompts(&t);
    double nll = mean_nll(&t, &recorded);
    print_message("%s: perplexity %.3f, unquantised %.3f (%+.2f %%)\n", name, exp(nll), exp(recorded),
                  100 * (exp(nll - recorded) - 1));
    assert_true(fabs(nll - recorded) < 0.06);
    tales_close(&t);
}

static void test_bundled(void **state)
{
    (void)state;
    check_bundled("Spry-Tales-29M");
    check_bundled("Spry-Tales-Draft-4M");
}

/* Greedy tokens of the unquantised model, wherever the recorded margin is clear of rounding. */
static void check_greedy(tales *t)
{
    size_t i, differing = 0, total = 0;
    const json_t *item;
    json_array_foreach(json_object_get(t->golden, "cases"), i, item)
    {
        size_t n_ids, n_greedy;
        int32_t *prompt = ids_of(json_object_get(item, "ids"), &n_ids);
        int32_t *greedy = ids_of(json_object_get(item, "greedy"), &n_greedy);
        const json_t *margins = json_object_get(item, "greedy_margin");
        int32_t *ids = malloc((n_ids + n_greedy) * sizeof *ids);
        assert_non_null(ids);
        memcpy(ids, prompt, n_ids * sizeof *ids);
        for (size_t g = 0; g < n_greedy; g++, total++) {
            const float *logits;
            size_t best = 0;
            spry_engine_info info;
            spry_engine_describe(t->engine, &info);
            assert_int_equal(spry_session_eval(t->session, &logits, ids, n_ids + g, NULL), SPRY_OK);
            for (size_t v = 1; v < info.vocabulary; v++)
                if (logits[v] > logits[best])
                    best = v;
            double margin = json_number_value(json_array_get(margins, g));
            if ((int32_t)best != greedy[g]) {
                differing++;
                assert_true(margin < 1e-3);
            }
            ids[n_ids + g] = greedy[g];
        }
        free(prompt);
        free(greedy);
        free(ids);
    }
    print_message("greedy: %zu of %zu tokens equal\n", total - differing, total);
}

/* A table of kernels that do not round activations to BF16, as weights are. */
static const char *float_kernels(void)
{
    const spry_ops *ops;
    spry_error error;
    assert_int_equal(spry_ops_get(&ops, "auto", &error), SPRY_OK);
    return !ops->matmul[SPRY_BF16].bf16 ? "auto" : strcmp(ops->name, "bf16") == 0 ? "i8mm" : "avx512";
}

static void test_checkpoint(void **state)
{
    (void)state;
    static const char *const names[] = {"tales", "tales-draft"};
    for (size_t i = 0; i < 2; i++) {
        char folder[512], golden[600];
        double recorded;
        tales t;
        snprintf(folder, sizeof folder, "%s/../model/%s", PUBLIC_DATA, names[i]);
        if (!spry_path_is_folder(folder)) {
            print_message("SKIPPED test_checkpoint: ../shared/model/%s is not there\n", names[i]);
            skip();
        }
        snprintf(golden, sizeof golden, "%s/golden.json", folder);
        tales_open(&t, folder, golden, "f32", "auto");
        assert_true(fabs(mean_nll(&t, &recorded) - recorded) < 2e-3);
        tales_close(&t);
        tales_open(&t, folder, golden, "f32", float_kernels());
        check_prompts(&t);
        double nll = mean_nll(&t, &recorded);
        print_message("%s: mean NLL %.6f, recorded %.6f\n", names[i], nll, recorded);
        assert_true(fabs(nll - recorded) < 1e-4);
        check_greedy(&t);
        tales_close(&t);
    }
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bundled), cmocka_unit_test(test_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
