/* What a scheduler decides by figures alone: how many answers together, how many rows of prompts beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "sched/batch_choice.h"

/* Steps of a machine on which `size` rows take so long, until nothing is tried any more; what is settled on. */
static uint32_t settle(spry_batch_choice *choice, double (*ns)(uint32_t size), size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        uint32_t size = spry_batch_choice_limit(choice), width = spry_batch_choice_width(choice);
        size = width < size ? width : size;
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
static double a_little_each_time(uint32_t size)
{
    return 1e6 * size * (size == 1 ? 1 : 0.97);
}
static double best_at_eight(uint32_t size)
{
    return size <= 8 ? 1e6 : 1e6 * size; /* pages run short beyond it */
}

static double worse_before_better(uint32_t size)
{
    return size == 2 ? 3e6 : size == 4 ? 4.2e6 : 1e6 + 1e5 * size; /* a kernel for eight rows and more */
}
static double falls_apart(uint32_t size)
{
    return size <= 2 ? 1e6 : 1e6 * size * size;
}

static double a_twelfth_each(uint32_t size)
{
    return 1e6 * pow(1.08, log2(size));
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        double (*ns)(uint32_t size);
        uint32_t most, expected;
    } cases[] = {{all_the_same, 16, 16},  {all_the_same, 6, 6},          {all_the_same, 1, 1},
                 {in_proportion, 16, 16}, {free_up_to_four, 16, 4},      {a_little_each_time, 16, 16},
                 {best_at_eight, 16, 8},  {worse_before_better, 16, 16}, {worse_before_better, 4, 4},
                 {falls_apart, 16, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spry_batch_choice choice;
        spry_batch_choice_init(&choice, cases[i].most, SPRY_POLICY_THROUGHPUT);
        assert_int_equal(settle(&choice, cases[i].ns, SPRY_BATCH_WAIT - 1), cases[i].most); /* short runs try nothing */
        assert_int_equal(settle(&choice, cases[i].ns, 1000), cases[i].expected);
    }
}

/* The first steps are of one answer; others join as the policy's rule allows. */
static void test_rules(void **state)
{
    (void)state;
    static const struct {
        double (*ns)(uint32_t size);
        uint32_t interactive, offline;
    } cases[] = {{all_the_same, 16, 16}, {in_proportion, 1, 1}, {free_up_to_four, 4, 4},
                 {best_at_eight, 8, 8},  {falls_apart, 2, 2},   {a_twelfth_each, 2, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spry_batch_choice choice;
        spry_batch_choice_init(&choice, 16, SPRY_POLICY_INTERACTIVE);
        assert_int_equal(spry_batch_choice_limit(&choice), 1);
        assert_int_equal(settle(&choice, cases[i].ns, 1000), cases[i].interactive);
        spry_batch_choice_init(&choice, 16, SPRY_POLICY_OFFLINE);
        assert_int_equal(settle(&choice, cases[i].ns, 1000), cases[i].offline);
    }
}

/* A step in twenty that takes ten times as long is not in the p95; more are. */
static void test_rule_is_of_the_p95(void **state)
{
    (void)state;
    for (size_t slow = 0; slow < 5; slow++) {
        spry_batch_choice choice;
        spry_batch_choice_init(&choice, 2, SPRY_POLICY_INTERACTIVE);
        for (size_t i = 0; i < 2 * SPRY_BATCH_STEPS; i++) {
            uint32_t size = i < SPRY_BATCH_STEPS ? 1 : 2;
            spry_batch_choice_measure(&choice, size, size,
                                      size == 2 && i % SPRY_BATCH_STEPS < slow ? 10000000 : 1000000);
        }
        assert_int_equal(spry_batch_choice_limit(&choice), slow <= 1 ? 2 : 1);
    }
}

/* ---- a long queue ------------------------------------------------------------------------------------------------ */

/* Answers on one machine, of 40 to 80 tokens each: as many run as the limit allows, and more begin where some ended.
 * What they give in `steps` steps, a second. `bound`: how many run at most; 0: as the choice says. */
static double tokens_per_second(spry_batch_choice *choice, uint32_t bound, double (*ns)(uint32_t size), size_t steps,
                                size_t *drained)
{
    uint32_t left[16] = {0}, running = 0, seed = 7, highest = 0;
    double tokens = 0, time = 0;
    *drained = 0;
    for (size_t i = 0; i < steps; i++) {
        uint32_t limit = bound ? bound : spry_batch_choice_limit(choice);
        for (; running < limit; running++)
            left[running] = 40 + (seed = seed * 1103515245 + 12345) % 41;
        highest = running > highest ? running : highest;
        *drained += running < highest;
        tokens += running;
        time += ns(running);
        if (choice)
            spry_batch_choice_measure(choice, running, running, (uint64_t)ns(running));
        for (uint32_t k = 0; k < running;)
            if (--left[k])
                k++;
            else
                left[k] = left[--running];
    }
    return tokens / time * 1e9;
}

/* The policy auto never gives less than a plain limit does, and drains nothing unless fewer were measured to be faster:
 * here smaller sizes ran before the queue grew long. */
static void test_long_queue(void **state)
{
    (void)state;
    static double (*const machines[])(uint32_t) = {all_the_same, in_proportion, free_up_to_four, a_little_each_time,
                                                   best_at_eight};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++)
        for (uint32_t most = 1; most <= 16; most++)
            for (uint32_t before = 0; before <= 16; before += 4) {
                spry_batch_choice choice;
                size_t drained, never;
                spry_batch_choice_init(&choice, most, SPRY_POLICY_AUTO);
                for (uint32_t size = 1; size <= before && size <= most; size++)
                    for (size_t i = 0; i < SPRY_BATCH_STEPS; i++)
                        spry_batch_choice_measure(&choice, size, size, (uint64_t)machines[m](size));
                if (before < most)
                    assert_int_equal(spry_batch_choice_limit(&choice), most);
                double plain = tokens_per_second(NULL, most, machines[m], 5000, &never);
                double now = tokens_per_second(&choice, 0, machines[m], 5000, &drained);
                assert_true(now >= plain * 0.999);
                if (machines[m] == all_the_same || !before)
                    assert_int_equal(drained, 0);
            }
}

/* Where fewer are faster, and that was seen, fewer are taken; larger sizes are tried again by adding. */
static void test_fewer_are_faster(void **state)
{
    (void)state;
    spry_batch_choice choice;
    size_t drained;
    spry_batch_choice_init(&choice, 16, SPRY_POLICY_AUTO);
    for (size_t i = 0; i < SPRY_BATCH_STEPS; i++)
        spry_batch_choice_measure(&choice, 8, 8, (uint64_t)best_at_eight(8));
    assert_int_equal(spry_batch_choice_limit(&choice), 16); /* not measured yet */
    assert_true(tokens_per_second(&choice, 0, best_at_eight, 1000, &drained) >
                2 * tokens_per_second(NULL, 16, best_at_eight, 1000, &drained));
    assert_int_equal(spry_batch_choice_limit(&choice), 8);
    assert_int_equal(settle(&choice, all_the_same, SPRY_BATCH_AGAIN + SPRY_BATCH_STEPS + 1), 16);
}

/* Offline takes the most tokens a second, and its trials cost less than a tenth of a long run. */
static void test_offline_gives_the_most(void **state)
{
    (void)state;
    static double (*const machines[])(uint32_t) = {all_the_same,       in_proportion, free_up_to_four,
                                                   a_little_each_time, best_at_eight, worse_before_better,
                                                   falls_apart};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        spry_batch_choice choice;
        double most = 0, tokens = 0, time = 0;
        spry_batch_choice_init(&choice, 64, SPRY_POLICY_THROUGHPUT);
        uint32_t chosen = settle(&choice, machines[m], 1000);
        for (uint32_t size = 1; size <= 64; size *= 2)
            most = size / machines[m](size) > most ? size / machines[m](size) : most;
        assert_true(SPRY_BATCH_GAIN * chosen / machines[m](chosen) > most);
        spry_batch_choice_init(&choice, 64, SPRY_POLICY_THROUGHPUT);
        for (size_t i = 0; i < 3000; i++) {
            uint32_t size = spry_batch_choice_width(&choice);
            tokens += size;
            time += machines[m](size);
            spry_batch_choice_measure(&choice, size, size, (uint64_t)machines[m](size));
        }
        if (machines[m] != falls_apart) /* there the first steps, of 64, take most of the time */
            assert_true(tokens / time > 0.9 * (64 / machines[m](64)));
    }
}

/* Where one answer takes as long as many, no size but 1 is tried. */
static void test_tries_only_what_can_win(void **state)
{
    (void)state;
    spry_batch_choice choice;
    size_t trials = 0;
    spry_batch_choice_init(&choice, 16, SPRY_POLICY_THROUGHPUT);
    for (size_t i = 0; i < 2000; i++) {
        uint32_t size = spry_batch_choice_width(&choice);
        assert_true(size == 16 || size == 1);
        trials += size == 1;
        spry_batch_choice_measure(&choice, size, size, (uint64_t)all_the_same(size));
    }
    assert_int_equal(trials, SPRY_BATCH_STEPS);
}

static void test_tries_again(void **state)
{
    (void)state;
    spry_batch_choice choice;
    spry_batch_choice_init(&choice, 16, SPRY_POLICY_THROUGHPUT);
    assert_int_equal(settle(&choice, all_the_same, 1000), 16);
    assert_int_equal(settle(&choice, best_at_eight, 500), 8); /* 16 is measured all the time */
    assert_int_equal(settle(&choice, all_the_same, 500), 8);  /* but no longer */
    assert_int_equal(settle(&choice, all_the_same, SPRY_BATCH_AGAIN + 500), 16);
}

static void test_says_why(void **state)
{
    (void)state;
    char why[160];
    spry_batch_choice choice;
    spry_batch_choice_init(&choice, 4, SPRY_POLICY_THROUGHPUT);
    assert_int_equal(spry_batch_choice_explain(&choice, why, sizeof why), 4);
    assert_string_equal(why, "throughput: trying 4 together, 0 of 32 steps measured");
    settle(&choice, all_the_same, 100);
    spry_batch_choice_explain(&choice, why, sizeof why);
    assert_non_null(strstr(why, "4 together give 3984.1 tokens/s"));
    assert_non_null(strstr(why, "are the most"));
    settle(&choice, all_the_same, 500);
    spry_batch_choice_explain(&choice, why, sizeof why);
    assert_string_equal(why, "throughput: 4 together give 3984.1 tokens/s, p95 1.00 ms; 1 gave 999.0, 1.00 ms");
    spry_batch_choice_init(&choice, 4, SPRY_POLICY_THROUGHPUT);
    settle(&choice, falls_apart, 1000);
    spry_batch_choice_explain(&choice, why, sizeof why);
    assert_string_equal(why, "throughput: 2 together give 2000.0 tokens/s, p95 1.00 ms; 4 gave 250.0, 16.00 ms");
}

/* ---- rows of prompts -------------------------------------------------------------------------------------------- */

/* Rows for one prompt at the beginning of its text, beside answers whose attention costs nothing. */
static size_t budget(const spry_step_time *time, size_t answers, size_t most, double stall_ns)
{
    return spry_prefill_budget(time, &(spry_step_load){answers, 0}, &(spry_prompts){1, 0}, most, stall_ns);
}

static void test_budget(void **state)
{
    (void)state;
    spry_step_time time;
    spry_step_time_init(&time);
    assert_int_equal(budget(&time, 0, 100, 0), 100); /* the queue is empty */
    assert_int_equal(budget(&time, 3, 0, 1e9), 0);
    assert_int_equal(budget(&time, 3, 100, 1e9), 1); /* nothing is known */
    for (size_t round = 0; round < 8; round++)
        for (size_t rows = 1; rows <= 128; rows += rows < 8 ? 1 : 8)
            spry_step_time_measure(&time, &(spry_step_load){rows, 0}, 0, 1000000 + 100000 * rows);
    assert_int_equal(budget(&time, 4, 124, 0), 1);
    assert_int_equal(budget(&time, 4, 124, 1e9), 124);
    size_t last = 0;
    for (double stall = 0; stall < 12e6; stall += 1e6) {
        size_t rows = budget(&time, 4, 124, stall);
        assert_true(rows >= last && (rows == 1 || (double)rows * 100000 <= stall * 1.02 + 1));
        assert_true(rows == 124 || (double)(rows + 1) * 100000 > stall * 0.9);
        last = rows;
    }
}

/* Far beyond what was measured it goes in doublings. */
static void test_budget_reach(void **state)
{
    (void)state;
    spry_step_time time;
    spry_step_time_init(&time);
    spry_step_time_measure(&time, &(spry_step_load){4, 0}, 0, 1000000);
    assert_int_equal(budget(&time, 4, 124, 1e12), 4);
    spry_step_time_measure(&time, &(spry_step_load){8, 0}, 0, 1000000);
    assert_int_equal(budget(&time, 4, 124, 1e12), 12);
}

/* A machine on which a row costs 1 ms beside 10 ms for the weights, and attention 1 us for each position and row. */
static uint64_t products_ns(size_t rows)
{
    return 10000000 + 1000000 * (uint64_t)rows;
}

static uint64_t attention_ns(double sight)
{
    return (uint64_t)(sight * 1000);
}

/* A prompt of 4,000 tokens is read beside four answers at depth 500. However deep it is, a step never lasts longer than
 * allowed once a few were measured; and no less of the prompt is taken than fits. */
static void test_budget_at_depth(void **state)
{
    (void)state;
    spry_step_time time;
    spry_step_time_init(&time);
    const spry_step_load answers = {4, 4 * spry_step_sight(1, 500)};
    uint64_t attention = attention_ns(answers.sight), alone = products_ns(4) + attention;
    for (size_t i = 0; i < 4; i++)
        spry_step_time_measure(&time, &answers, attention, alone);
    size_t depth = 0, steps = 0, shallow = 0, rows = 0;
    for (; depth < 4000; depth += rows, steps++) {
        rows = spry_prefill_budget(&time, &answers, &(spry_prompts){1, depth}, 512, 0.75 * (double)alone);
        const spry_step_load load = {4 + rows, answers.sight + spry_step_sight(rows, depth + rows)};
        attention = attention_ns(load.sight);
        uint64_t ns = products_ns(load.rows) + attention;
        assert_true(rows == 1 || steps < 8 || (double)ns <= 1.9 * (double)alone);
        spry_step_time_measure(&time, &load, attention, ns);
        shallow = rows > shallow ? rows : shallow;
    }
    assert_true(shallow >= 10);         /* 15 ms more */
    assert_true(rows >= 1 && rows < 4); /* each costs 5 ms here, and the first as much as three */
    /* Two prompts read the tokens before each of them. */
    size_t one = spry_prefill_budget(&time, &answers, &(spry_prompts){1, 500}, 512, 15e6);
    size_t two = spry_prefill_budget(&time, &answers, &(spry_prompts){2, 2000}, 512, 15e6);
    assert_true(two < one && one <= 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_rule_is_of_the_p95),
        cmocka_unit_test(test_long_queue),
        cmocka_unit_test(test_fewer_are_faster),
        cmocka_unit_test(test_offline_gives_the_most),
        cmocka_unit_test(test_tries_only_what_can_win),
        cmocka_unit_test(test_tries_again),
        cmocka_unit_test(test_says_why),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_reach),
        cmocka_unit_test(test_budget_at_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
