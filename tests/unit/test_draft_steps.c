/* Costs of steps with drafts relative to plain ones, on a machine whose speed changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "draft/draft_steps.h"

/* The cost of a step relative to that of one row. */
static double times(const spry_draft_steps *steps, size_t rows)
{
    return spry_draft_steps_cost(steps, rows) / spry_draft_steps_cost(steps, 1);
}

/* A plain step of `before`, `count` steps of 3 rows of `ns`, a plain step of `after`. */
static void measure(spry_draft_steps *steps, uint64_t before, size_t count, uint64_t ns, uint64_t after)
{
    spry_draft_steps_measure(steps, 1, true, before);
    for (size_t i = 0; i < count; i++)
        spry_draft_steps_measure(steps, 3, false, ns);
    spry_draft_steps_measure(steps, 1, true, after);
}

static void test_pace(void **state)
{
    (void)state;
    spry_draft_steps steps;
    spry_draft_steps_init(&steps);
    assert_true(spry_draft_steps_cost(&steps, 1) == 0 && spry_draft_steps_units(&steps, 5) == 0);
    spry_draft_steps_measure(&steps, 0, true, 5); /* no step */
    assert_true(spry_draft_steps_cost(&steps, 1) == 0);
    for (int i = 0; i < 20; i++) { /* the machine is three times as slow every other time: all figures agree */
        uint64_t slow = i % 2 ? 3 : 1;
        measure(&steps, 1000 * slow, 2, 1500 * slow, 1000 * slow);
        assert_true(fabs(times(&steps, 3) - 1.5) < 0.01);
        assert_true(fabs(spry_draft_steps_units(&steps, 500 * slow) - 0.5 * spry_draft_steps_cost(&steps, 1)) < 1e-6);
    }
    assert_int_equal(steps.n_compared, 20);
    for (int i = 0; i < 20; i++) /* it changes between the plain steps: nothing is learned */
        measure(&steps, 1000, 8, 6000, 3000);
    assert_int_equal(steps.n_compared, 20);
    assert_true(fabs(times(&steps, 3) - 1.5) < 0.01);
    measure(&steps, 1000, SPRY_DRAFT_STEPS_HELD + 1, 6000, 1000); /* too far apart */
    assert_int_equal(steps.n_compared, 20);
    for (int i = 0; i < 20; i++) /* a lasting change */
        measure(&steps, 1000, 8, 2000, 1000);
    assert_true(fabs(times(&steps, 3) - 2) < 0.01);
}

/* What plain steps cost is kept, however many others are measured. */
static void test_plain_is_kept(void **state)
{
    (void)state;
    spry_draft_steps steps;
    spry_draft_steps_init(&steps);
    for (int i = 0; i < 1000; i++)
        measure(&steps, 1000, 8, 1500, 1000);
    assert_true(fabs(times(&steps, 3) - 1.5) < 0.01);
    assert_true(fabs(spry_draft_steps_cost(&steps, 1) - 1) < 1e-3);
}

/* A prompt first, as when a model warms up; then more sequences. */
static void test_other_plain_steps(void **state)
{
    (void)state;
    spry_draft_steps steps;
    spry_draft_steps_init(&steps);
    spry_draft_steps_measure(&steps, 32, false, 8000);
    spry_draft_steps_measure(&steps, 1, true, 1000);
    assert_true(times(&steps, 32) > 2);
    measure(&steps, 1000, 2, 1400, 1000);
    assert_true(fabs(times(&steps, 3) - 1.4) < 0.1);
    for (int i = 0; i < 2 * SPRY_DRAFT_STEPS_HELD; i++) /* four sequences from now on */
        spry_draft_steps_measure(&steps, 4, true, 3000);
    for (int i = 0; i < 20; i++) {
        spry_draft_steps_measure(&steps, 6, false, 4500);
        spry_draft_steps_measure(&steps, 4, true, 3000);
    }
    assert_true(fabs(spry_draft_steps_cost(&steps, 6) / spry_draft_steps_cost(&steps, 4) - 1.5) < 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_plain_is_kept),
        cmocka_unit_test(test_other_plain_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
