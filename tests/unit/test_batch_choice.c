/* What a scheduler decides by figures alone: how many answers together, how many rows of prompts beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "sched/batch_choice.h"
#include "sched/prefill_budget.h"

/* Steps of a machine on which `size` rows take so long, until nothing is tried any more; what is settled on. */
static uint32_t settle(spry_batch_choice *choice, double (*ns)(uint32_t size), size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        uint32_t size = spry_batch_choice_limit(choice);
        spry_batch_choice_measure(choice, size, size, (uint64_t)ns(size));
    }
    return spry_batch_choice_limit(choice);
}

static double all_the_same(uint32_t size)
{
    return 1e6 + 1e3 * size;
}
static double in_proportion(uint32_t size)
{
    return 1e6 * size;
}
static double free_up_to_four(uint32_t size)
{
    return size <= 4 ? 1e6 : 1e6 * size;
}
static double a_tenth_each_time(uint32_t size)
{
    return 1e6 * (size == 1 ? 1 : 1.11);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        double (*ns)(uint32_t size);
        uint32_t most, expected;
    } cases[] = {{all_the_same, 16, 16}, {all_the_same, 6, 4},     {all_the_same, 1, 1},
                 {in_proportion, 16, 1}, {free_up_to_four, 16, 4}, {a_tenth_each_time, 16, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spry_batch_choice choice;
        spry_batch_choice_init(&choice, cases[i].most);
        assert_int_equal(spry_batch_choice_limit(&choice), 1);
        assert_int_equal(settle(&choice, cases[i].ns, 1000), cases[i].expected);
    }
}

/* A few slow steps count: the 95th percentile must not grow either. */
static void test_slow_steps(void **state)
{
    (void)state;
    spry_batch_choice choice;
    spry_batch_choice_init(&choice, 16);
    for (uint32_t i = 0; i < SPRY_BATCH_STEPS; i++) {
        spry_batch_choice_measure(&choice, 1, 1, 1000000);
        spry_batch_choice_measure(&choice, 2, 2, i % 10 ? 1000000 : 3000000);
        spry_batch_choice_measure(&choice, 3, 3, 1); /* not a size */
    }
    assert_int_equal(spry_batch_choice_limit(&choice), 1);
}

static void test_tries_again(void **state)
{
    (void)state;
    spry_batch_choice choice;
    spry_batch_choice_init(&choice, 16);
    assert_int_equal(settle(&choice, in_proportion, 200), 1);
    assert_int_equal(settle(&choice, free_up_to_four, 500), 1); /* not yet */
    assert_int_equal(settle(&choice, free_up_to_four, SPRY_BATCH_AGAIN), 4);
}

static void test_says_why(void **state)
{
    (void)state;
    char why[160];
    spry_batch_choice choice;
    spry_batch_choice_init(&choice, 4);
    assert_int_equal(spry_batch_choice_explain(&choice, why, sizeof why), 1);
    assert_string_equal(why, "offline: trying 1 together, 0 of 32 steps measured");
    settle(&choice, in_proportion, 100);
    spry_batch_choice_explain(&choice, why, sizeof why);
    assert_string_equal(why, "offline: 1 together give 1000.0 tokens/s at 1.00 ms a step (p95); 2 gave 1000.0 at 2.00");
    spry_batch_choice_init(&choice, 4);
    settle(&choice, all_the_same, 500);
    spry_batch_choice_explain(&choice, why, sizeof why);
    assert_non_null(strstr(why, "4 together give 3984.1 tokens/s"));
    assert_non_null(strstr(why, "are the most"));
}

/* ---- rows of prompts -------------------------------------------------------------------------------------------- */

static void test_budget(void **state)
{
    (void)state;
    spry_step_cost cost;
    spry_step_cost_init(&cost);
    assert_int_equal(spry_prefill_budget(&cost, 0, 100, 0), 100); /* nobody waits */
    assert_int_equal(spry_prefill_budget(&cost, 3, 0, 1e9), 0);
    assert_int_equal(spry_prefill_budget(&cost, 3, 100, 1e9), 1); /* nothing is known */
    for (size_t round = 0; round < 8; round++)
        for (size_t rows = 1; rows <= 128; rows += rows < 8 ? 1 : 8)
            spry_step_cost_measure(&cost, rows, 1000000 + 100000 * rows);
    assert_int_equal(spry_prefill_budget(&cost, 4, 124, 0), 1);
    assert_int_equal(spry_prefill_budget(&cost, 4, 124, 1e9), 124);
    size_t last = 0;
    for (double stall = 0; stall < 12e6; stall += 1e6) {
        size_t rows = spry_prefill_budget(&cost, 4, 124, stall);
        assert_true(rows >= last && (rows == 1 || (double)rows * 100000 <= stall * 1.02 + 1));
        assert_true(rows == 124 || (double)(rows + 1) * 100000 > stall * 0.9);
        last = rows;
    }
}

/* Far beyond what was measured it goes in doublings. */
static void test_budget_reach(void **state)
{
    (void)state;
    spry_step_cost cost;
    spry_step_cost_init(&cost);
    spry_step_cost_measure(&cost, 4, 1000000);
    assert_int_equal(spry_prefill_budget(&cost, 4, 124, 1e12), 4);
    spry_step_cost_measure(&cost, 8, 1000000);
    assert_int_equal(spry_prefill_budget(&cost, 4, 124, 1e12), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_slow_steps), cmocka_unit_test(test_tries_again),
        cmocka_unit_test(test_says_why), cmocka_unit_test(test_budget),     cmocka_unit_test(test_budget_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
