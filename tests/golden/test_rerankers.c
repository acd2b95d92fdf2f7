/* Cross-encoders and models of embeddings against transformers and sentence-transformers: the ids of pairs, the number
 * a pair gets, and whole embeddings; from a folder, and cross-encoders also from the GGUF file that we write. */
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

#include "golden/golden_models.h"
#include "model/gguf_export.h"
#include "spry.h"
#include "spry_serve.h"

static json_t *read_golden(const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "%s/golden.json", folder);
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(golden);
    return golden;
}

static void open_engine(spry_engine **engine, spry_session **session, const char *path, const char *cpu)
{
    spry_engine_options o;
    spry_error error = {0};
    spry_engine_options_default(&o);
    o.kv_type = "f32";
    o.cpu = cpu;
    if (spry_engine_open(engine, path, &o, &error) || spry_session_create(session, *engine, &error))
        fail_msg("%s: %s", path, error.message);
}

static size_t read_ids(int32_t *ids, size_t most, const json_t *list)
{
    size_t n = json_array_size(list);
    assert_true(n && n <= most);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

enum { IDS = 512 };

static void compare_pairs(const char *folder, const char *path, const char *cpu)
{
    json_t *golden = read_golden(folder), *pair;
    const json_t *cases = json_object_get(golden, "cases");
    spry_engine *engine;
    spry_session *session;
    spry_error error = {0};
    size_t i;
    open_engine(&engine, &session, path, cpu);
    assert_true(spry_engine_ranks(engine));
    json_array_foreach(cases, i, pair)
    {
        int32_t expected[IDS], ids[IDS];
        float logit = NAN;
        size_t count = 0, n = read_ids(expected, IDS, json_object_get(pair, "ids"));
        const char *query = json_string_value(json_object_get(pair, "query"));
        const char *document = json_string_value(json_object_get(pair, "document"));
        assert_int_equal(spry_engine_tokenize_pair(engine, NULL, 0, &count, query, document, &error), SPRY_OK);
        bool cut = count > n; /* the reference cuts long pairs; the number is that of the pair as it was cut */
        assert_true(count == n || (cut && strlen(document) > 500));
        assert_int_equal(spry_engine_tokenize_pair(engine, ids, IDS, &count, query, document, &error), SPRY_OK);
        assert_memory_equal(ids, expected, (cut ? n - 1 : n) * sizeof *ids);
        memcpy(ids, expected, n * sizeof *ids);
        if (spry_session_embed(session, &logit, ids, n, &error))
            fail_msg("%s: %s", path, error.message);
        /* Hidden states have a root mean square near 1 after their last norm; a sum of their size rounds by about
         * sqrt(n) steps of eps in each of the layers' products. With BF16 activations a step is 2^-9. */
        double step = strcmp(cpu, "ref") && strcmp(cpu, "avx512") && strcmp(cpu, "avx2") ? 0x1p-9 : FLT_EPSILON;
        double allowed = 64 * step * sqrt(64),
               off = fabs((double)logit - json_number_value(json_object_get(pair, "logit")));
        if (!(off <= allowed))
            fail_msg("%s: pair %zu: off by %g, allowed %g", path, i, off, allowed);
    }
    spry_session_destroy(session);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    json_decref(golden);
}

static const char *const rerankers[] = {"reranker-bert", "reranker-xlmr", "reranker-modernbert"};

static void test_pairs(void **state)
{
    (void)state;
    char folder[512];
    for (size_t i = 0; i < SPRY_COUNT(rerankers); i++) {
        golden_folder(folder, rerankers[i]);
        compare_pairs(folder, folder, "ref");
        compare_pairs(folder, folder, "auto");
    }
}

static void test_converted(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(rerankers); i++) {
        char path[] = "/tmp/spry-reranker-XXXXXX", folder[512];
        spry_error error = {0};
        const spry_recipe *recipe;
        spry_threads *threads;
        spry_model *model;
        int file = mkstemp(path);
        assert_true(file >= 0);
        close(file);
        golden_folder(folder, rerankers[i]);
        assert_int_equal(spry_recipe_find(&recipe, "f32", NULL), SPRY_OK);
        assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
        const spry_export options = {.recipe = recipe, .threads = threads};
        if (spry_model_open(&model, folder, &error) || spry_model_export(model, path, &options, &error))
            fail_msg("%s", error.message);
        spry_model_close(model);
        spry_threads_destroy(threads);
        compare_pairs(folder, path, "ref");
        unlink(path);
    }
}

static void test_embeddings(void **state)
{
    (void)state;
    static const char *const models[] = {"embed-bert", "embed-qwen3"};
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        char folder[512], path[600];
        golden_folder(folder, models[m]);
        json_t *golden = read_golden(folder), *text;
        spry_engine *engine;
        spry_session *session;
        spry_engine_info info;
        spry_error error = {0};
        size_t i;
        open_engine(&engine, &session, folder, "ref");
        assert_false(spry_engine_ranks(engine));
        spry_engine_describe(engine, &info);
        float *vector = calloc(2 * info.embedding, sizeof *vector), *expected = vector + info.embedding;
        assert_non_null(vector);
        snprintf(path, sizeof path, "%s/golden.f32", folder);
        FILE *values = fopen(path, "rb");
        assert_non_null(values);
        json_array_foreach(json_object_get(golden, "cases"), i, text)
        {
            int32_t ids[IDS];
            size_t n = read_ids(ids, IDS, json_object_get(text, "ids"));
            assert_int_equal(fread(expected, sizeof *expected, info.embedding, values), info.embedding);
            if (spry_session_embed(session, vector, ids, n, &error))
                fail_msg("%s: %s", folder, error.message);
            for (size_t k = 0; k < info.embedding; k++)
                if (!(fabs((double)vector[k] - (double)expected[k]) <= 64 * (double)FLT_EPSILON))
                    fail_msg("%s: text %zu, value %zu: %g, not %g", folder, i, k, (double)vector[k],
                             (double)expected[k]);
        }
        fclose(values);
        free(vector);
        spry_session_destroy(session);
        assert_int_equal(spry_engine_close(engine), SPRY_OK);
        json_decref(golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_converted),
        cmocka_unit_test(test_embeddings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
