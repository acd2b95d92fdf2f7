/* The arithmetic of `spry bench`: percentiles, and reports as lists of figures. The program's own tests compare files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/bench_gate.h"

static void near(double a, double b)
{
    assert_true(a > b - 1e-9 && a < b + 1e-9);
}

static void test_percentiles(void **state)
{
    (void)state;
    double values[100];
    for (size_t i = 0; i < 100; i++)
        values[i] = (double)((i * 37) % 100 + 1); /* 1 to 100 in some order */
    json_t *steps = spry_bench_percentiles_json(values, 100, "_ms");
    near(spry_bench_number(steps, "p50_ms"), 50);
    near(spry_bench_number(steps, "p95_ms"), 95);
    near(spry_bench_number(steps, "p99_ms"), 99);
    json_decref(steps);
    near(spry_bench_percentile(values, 100, 0), 1);
    near(spry_bench_percentile(values, 100, 100), 100);
    near(spry_bench_percentile(values, 1, 95), 1);
    near(spry_bench_percentile(values, 2, 50), 1);
    near(spry_bench_percentile(values, 2, 51), 2);
    near(spry_bench_percentile(values, 32, 95), 31); /* as the scheduler judges 32 steps */
}

static void test_stat(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 2, 3}, one[] = {7};
    spry_bench_stat stat = spry_bench_stat_of(odd, 3);
    near(stat.median, 2);
    near(stat.least, 1);
    near(stat.most, 3);
    near(spry_bench_stat_of(even, 4).median, 2.5);
    near(spry_bench_stat_of(one, 1).median, 7);
}

static const char report_text[] =
    "{\"machine\": {\"id\": \"a\", \"cpu\": \"x\", \"kernels\": \"ref\", \"threads\": 2}, \"model\": \"m\", "
    "\"model_id\": \"f\", \"settings\": {\"chunk\": 8, \"tokens\": 4, \"kv_type\": \"f16\"}, \"peak_rss_bytes\": 9, "
    "\"peak_rss_batch_bytes\": 11, "
    "\"prefill\": [{\"tokens\": 5, \"tps\": 50, \"ops\": ["
    "{\"op\": \"qkv\", \"ms\": 1, \"share\": 0.1, \"gb_s\": 1, \"multiply_g_s\": 10}, "
    "{\"op\": \"qkv\", \"ms\": 3, \"share\": 0.3, \"gb_s\": 1, \"multiply_g_s\": 20}, "
    "{\"op\": \"norm\", \"ms\": 6, \"share\": 0.6, \"gb_s\": 0, \"multiply_g_s\": 0}]}], "
    "\"decode\": [{\"depth\": 0, \"batch\": 2, \"tps\": 7, \"p95_ms\": 3}, {\"depth\": 0, \"batch\": 2, \"tps\": 8, "
    "\"p95_ms\": 4}, {\"depth\": 6.0, \"batch\": 1.0, \"tps\": 9, \"p95_ms\": 5}], "
    "\"ttft\": {\"prompt_tokens\": 8, \"cold_ms\": 100, \"warm_ms\": 10}, \"memory\": null}";

static json_t *report(void)
{
    json_t *json = json_loads(report_text, 0, NULL);
    assert_non_null(json);
    return json;
}

static double figure(const spry_bench_figures *figures, const char *what)
{
    const spry_bench_figure *found = spry_bench_figures_find(figures, what);
    assert_non_null(found);
    return found->value;
}

static void test_figures(void **state)
{
    (void)state;
    spry_bench_figures figures;
    json_t *json = report();
    spry_bench_figures_init(&figures, json);
    assert_false(figures.failed);
    near(figure(&figures, "first token, cold"), 100);
    near(figure(&figures, "prefill 5"), 50);
    near(figure(&figures, "decode 0 x 2"), 7); /* the first of two alike */
    near(figure(&figures, "decode 6 x 1, p95 of steps"), 5);
    near(figure(&figures, "memory, one sequence"), 9);
    near(figure(&figures, "memory, peak"), 11);
    assert_null(spry_bench_figures_find(&figures, "memory")); /* was not measured */
    near(figure(&figures, "prefill 5, time in kernels"), 0.4);
    near(figure(&figures, "prefill 5, qkv"), (1 * 10 + 3 * 20) / 4.0); /* both types together */
    near(spry_bench_figures_find(&figures, "prefill 5, qkv")->op_share, 0.4);
    assert_null(spry_bench_figures_find(&figures, "prefill 5, norm"));
    assert_null(spry_bench_figures_find(&figures, "prefill 5, down"));
    assert_true(spry_bench_figures_find(&figures, "decode 6 x 1, p95 of steps")->less_is_better);
    assert_false(spry_bench_figures_find(&figures, "prefill 5")->less_is_better);
    spry_bench_figures_deinit(&figures);
    json_decref(json);
}

static void test_points_of_a_report(void **state)
{
    (void)state;
    spry_bench_list prefill = {.count = 0}, depth = {{6}, 1}, batch = {.count = 0};
    json_t *json = report();
    spry_bench_file_lists(&prefill, &depth, &batch, json);
    assert_int_equal(prefill.count, 1);
    assert_int_equal(prefill.values[0], 5);
    assert_int_equal(depth.count, 2);
    assert_int_equal(depth.values[1], 0); /* 6 was there already */
    assert_int_equal(batch.count, 2);
    spry_bench_file_lists(NULL, &depth, NULL, json);
    assert_int_equal(depth.count, 2);
    for (uint32_t i = 0; i < SPRY_BENCH_LIST_MAX; i++)
        assert_true(spry_bench_list_add(&batch, i));
    assert_true(spry_bench_list_add(&batch, 0));
    assert_false(spry_bench_list_add(&batch, SPRY_BENCH_LIST_MAX));
    assert_true(spry_bench_list_add(NULL, 1));
    json_decref(json);
}

static void test_differences(void **state)
{
    (void)state;
    char words[SPRY_BENCH_DIFFERENCES];
    json_t *a = report(), *b = report();
    assert_false(spry_bench_differs(words, a, b));
    json_object_set_new(json_object_get(b, "machine"), "threads", json_integer(3));
    json_object_set_new(json_object_get(b, "settings"), "chunk", json_integer(9));
    json_object_set_new(b, "mix", json_string("chat"));
    assert_true(spry_bench_differs(words, a, b));
    assert_string_equal(words, "threads is 2 there and 3 here, chunk is 8 there and 9 here, the mix is '' there and "
                               "'chat' here");
    json_decref(a);
    json_decref(b);
}

/* Every kind of measurement except points lists its figures. */
static void test_listed_figures(void **state)
{
    (void)state;
    static const char text[] =
        "{\"figures\": [{\"what\": \"lookup\", \"unit\": \"us\", \"better\": \"less\", \"value\": 7}, "
        "{\"what\": \"drafts refused, p50\", \"unit\": \"share\", \"better\": \"less\", \"value\": 0}]}";
    const spry_bench_gate_rules rules = {.max_drop = 0.1};
    spry_bench_figures figures;
    spry_error error;
    json_t *before = json_loads(text, 0, NULL), *now = json_loads(text, 0, NULL), *gate = NULL;
    spry_bench_figures_init(&figures, before);
    assert_int_equal(figures.count, 2);
    near(figure(&figures, "lookup"), 7);
    assert_int_equal(spry_bench_figures_find(&figures, "lookup")->unit, SPRY_BENCH_US);
    near(figure(&figures, "drafts refused, p50"), 0); /* 0 is a measurement */
    spry_bench_figures_deinit(&figures);
    json_t *refused = json_array_get(json_object_get(now, "figures"), 1);
    const struct {
        double refused;
        bool passed;
    } cases[] = {{0, true}, {0.09, true}, {0.2, false}}; /* a share that was 0 changes by itself */
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(refused, "value", json_real(cases[i].refused));
        assert_int_equal(spry_bench_gate(&gate, before, now, &rules, "base.json", "", &error), SPRY_OK);
        assert_int_equal(json_is_true(json_object_get(gate, "passed")), cases[i].passed);
        json_decref(gate);
    }
    json_decref(before);
    json_decref(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_stat),
        cmocka_unit_test(test_figures),     cmocka_unit_test(test_points_of_a_report),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_listed_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
