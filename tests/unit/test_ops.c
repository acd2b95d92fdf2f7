/* The choice of a table, and that the reference table is complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "kernels/ops.h"

static const spry_ops *get(const char *mask)
{
    const spry_ops *ops = NULL;
    spry_error error;
    assert_int_equal(spry_ops_get(&ops, mask, &error), SPRY_OK);
    assert_non_null(ops);
    return ops;
}

static void masks_name_tables(void **state)
{
    (void)state;
    assert_string_equal(get("ref")->name, "ref");
    assert_non_null(strstr(spry_ops_names(), get("auto")->name));
    assert_int_equal(strncmp(spry_ops_names(), "ref", 3), 0);
}

static void an_unknown_mask_lists_the_known_ones(void **state)
{
    (void)state;
    const char *const wrong[] = {"", "re", "reff", "REF", "ref, ref", "mmx"};
    for (size_t i = 0; i < SPRY_COUNT(wrong); i++) {
        const spry_ops *ops = NULL;
        spry_error error;
        assert_int_equal(spry_ops_get(&ops, wrong[i], &error), SPRY_ERR_INPUT);
        assert_null(ops);
        assert_non_null(strstr(error.message, wrong[i]));
        assert_non_null(strstr(error.message, spry_ops_names()));
        assert_int_equal(spry_ops_get(&ops, wrong[i], NULL), SPRY_ERR_INPUT);
    }
}

static void ref_has_every_op_for_every_type(void **state)
{
    (void)state;
    const spry_ops *ops = get("ref");
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        bool known = spry_dtype_known(id);
        assert_int_equal(ops->decode[id] != NULL, known);
        assert_int_equal(ops->matmul[id].run != NULL, known);
        if (known)
            assert_int_equal(ops->matmul[id].act, SPRY_F32);
    }
    const spry_dtype written[] = {SPRY_F32, SPRY_F16, SPRY_BF16, SPRY_Q4_0, SPRY_Q4_1, SPRY_Q5_0, SPRY_Q5_1, SPRY_Q8_0};
    for (size_t i = 0; i < SPRY_COUNT(written); i++)
        assert_non_null(ops->encode[written[i]]);
    for (size_t i = 0; i < SPRY_GATE_COUNT; i++)
        assert_non_null(ops->gate[i]);
    assert_true(ops->rms_norm && ops->rope && ops->attend && ops->add && ops->add_scaled && ops->scale &&
                ops->softcap && ops->softmax);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_name_tables),
        cmocka_unit_test(an_unknown_mask_lists_the_known_ones),
        cmocka_unit_test(ref_has_every_op_for_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
