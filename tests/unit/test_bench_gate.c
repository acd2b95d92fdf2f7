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
    spry_bench_steps steps = spry_bench_steps_of(values, 100);
    near(steps.p50_ms, 50);
    near(steps.p95_ms, 95);
    near(steps.p99_ms, 99);
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

static void test_identity(void **state)
{
    (void)state;
    char words[SPRY_BENCH_DIFFERENCES];
    spry_bench_identity a, b;
    json_t *json = report();
    spry_bench_file_identity(&a, json);
    b = a;
    assert_false(spry_bench_identity_differs(words, &a, &b));
    b.threads = 3;
    b.chunk = 9;
    assert_true(spry_bench_identity_differs(words, &a, &b));
    assert_string_equal(words, "threads is 2 there and 3 here, chunk is 8 there and 9 here");
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),        cmocka_unit_test(test_stat),     cmocka_unit_test(test_figures),
        cmocka_unit_test(test_points_of_a_report), cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
