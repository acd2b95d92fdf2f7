/* The choice of a table, that the reference table is complete, and that what every table asks of its callers is to be
 * had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "kernels/ops.h"
#include "kernels/packed.h"

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
        assert_false(ops->matmul[id].integer);
        assert_int_equal(ops->matmul[id].group, 0);
    }
    const spry_dtype written[] = {SPRY_F32, SPRY_F16, SPRY_BF16, SPRY_Q4_0, SPRY_Q4_1, SPRY_Q5_0, SPRY_Q5_1, SPRY_Q8_0};
    for (size_t i = 0; i < SPRY_COUNT(written); i++)
        assert_non_null(ops->encode[written[i]]);
    for (size_t i = 0; i < SPRY_GATE_COUNT; i++)
        assert_non_null(ops->gate[i]);
    assert_true(ops->encode_act && ops->rms_norm && ops->layer_norm && ops->rope && ops->attend && ops->add &&
                ops->add_scaled && ops->scale && ops->softcap && ops->softmax);
}

static void check_completeness(const spry_ops *ops)
{
    const spry_ops *ref = get("ref");
    for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
        const spry_matmul_kernel *kernel = &ops->matmul[id];
        assert_int_equal(ops->decode[id] != NULL, ref->decode[id] != NULL);
        assert_int_equal(ops->encode[id] != NULL, ref->encode[id] != NULL);
        assert_int_equal(kernel->run != NULL, ref->matmul[id].run != NULL);
        if (kernel->integer) /* activations come in whole blocks */
            assert_int_equal(spry_dtype_block((spry_dtype)id) % SPRY_ACT_BLOCK, 0);
        if (kernel->group) {
            assert_true(kernel->group <= SPRY_PACK_MAX_ROWS && kernel->group % 2 == 0);
            assert_true(spry_packed_row_bytes((spry_dtype)id) > 0);
        }
    }
    for (size_t i = 0; i < SPRY_GATE_COUNT; i++)
        assert_non_null(ops->gate[i]);
    assert_true(ops->encode_act && ops->rms_norm && ops->layer_norm && ops->rope && ops->attend && ops->add &&
                ops->add_scaled && ops->scale && ops->softcap && ops->softmax);
}

static void what_tables_ask_for_is_to_be_had(void **state)
{
    (void)state;
    const char *const names[] = {"ref", "avx2", "avx512bw", "avxvnni", "avx512", "avx512bf16", "amx", "neon"};
    size_t n_found = 0;
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        const spry_ops *ops = NULL;
        if (spry_ops_get(&ops, names[i], NULL))
            continue;
        assert_string_equal(ops->name, names[i]);
        check_completeness(ops);
        n_found++;
    }
    assert_true(n_found >= 1);
    check_completeness(get("auto"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_name_tables),
        cmocka_unit_test(an_unknown_mask_lists_the_known_ones),
        cmocka_unit_test(ref_has_every_op_for_every_type),
        cmocka_unit_test(what_tables_ask_for_is_to_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
