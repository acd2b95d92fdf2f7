/* The choice of a table, that the reference table is complete, that what every table asks of its callers is to be had,
 * and which tables give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/half.h"
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
    const char *const names[] = {"ref", "avx2", "avx512bw", "avxvnni", "avx512", "avx512bf16",
                                 "amx", "neon", "dotprod",  "i8mm",    "bf16"};
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

enum { SAME_ROWS = 37, SAME_IN = 512, SAME_OUT = 24 };

/* The product of weights and rows that depend on the type alone. */
static void integer_product(float out[SAME_ROWS][SAME_OUT], const spry_ops *ops, spry_dtype type)
{
    static float in[SAME_ROWS][SAME_IN];
    static spry_act_block act[SAME_ROWS][SAME_IN / SPRY_ACT_BLOCK];
    static unsigned char file[SAME_OUT][4 * SAME_IN], groups[SPRY_PACK_MAX_ROWS * 4 * SAME_IN * 3];
    uint32_t random = type + 1u;
    for (size_t i = 0; i < sizeof file; i++) {
        random = random * 1664525u + 1013904223u;
        ((unsigned char *)file)[i] = (unsigned char)(random >> 24 & 0xbf); /* no half is infinite */
    }
    for (size_t i = 0; i < SAME_ROWS * SAME_IN; i++) {
        random = random * 1664525u + 1013904223u;
        in[i / SAME_IN][i % SAME_IN] = (float)(random >> 8) * 0x1p-23f - 1;
    }
    for (size_t row = 0; row < SAME_ROWS; row++)
        ops->encode_act(act[row], in[row], SAME_IN);
    size_t rows = ops->matmul[type].group,
           bytes = SAME_IN / spry_dtype_block(type) * spry_packed_row_bytes(type) * rows;
    assert_true((SAME_OUT + rows - 1) / rows * bytes <= sizeof groups);
    for (size_t o = 0; o < SAME_OUT; o += rows)
        spry_pack_group(type, groups + o / rows * bytes, file[o], sizeof file[0], SAME_IN,
                        SAME_OUT - o < rows ? SAME_OUT - o : rows, rows);
    const spry_matmul m = {.out = out[0],
                           .out_stride = SAME_OUT,
                           .weight = groups,
                           .weight_stride = bytes,
                           .act = act,
                           .act_stride = sizeof act[0],
                           .n_rows = SAME_ROWS,
                           .n_in = SAME_IN};
    ops->matmul[type].run(&m, 0, SAME_OUT);
}

/* Instructions that are exact in integers, between the same roundings. */
static void tables_with_other_instructions_give_the_same_bits(void **state)
{
    (void)state;
    const char *const pairs[][2] = {{"avx2", "avxvnni"}, {"avx512bw", "avx512"}, {"avx512", "avx512bf16"},
                                    {"avx512", "amx"},   {"neon", "dotprod"},    {"dotprod", "i8mm"}};
    static float one[SAME_ROWS][SAME_OUT], two[SAME_ROWS][SAME_OUT];
    for (size_t i = 0; i < SPRY_COUNT(pairs); i++) {
        const spry_ops *first, *second;
        if (spry_ops_get(&first, pairs[i][0], NULL) || spry_ops_get(&second, pairs[i][1], NULL))
            continue;
        for (unsigned id = 0; id < SPRY_DTYPE_COUNT; id++) {
            if (!spry_dtype_known(id) || !second->matmul[id].integer || !second->matmul[id].group)
                continue;
            integer_product(one, first, (spry_dtype)id);
            integer_product(two, second, (spry_dtype)id);
            if (memcmp(one, two, sizeof one) != 0)
                fail_msg("%s: %s and %s differ", spry_dtype_name((spry_dtype)id), pairs[i][0], pairs[i][1]);
        }
    }
}

/* ---- products that round activations to BF16 --------------------------------------------------------------------- */

enum {
    LONG_IN = 4201,
    LONG_STRIDE = 4256, /* of halves */
    LONG_OUT = 40,
    LONG_ROWS = 135
}; /* more than kernels encode at a time; the last group is short */

typedef struct long_product {
    float in[LONG_ROWS][LONG_IN];
    uint16_t weights[LONG_OUT][LONG_IN];
    unsigned char groups[(LONG_OUT + SPRY_PACK_MAX_ROWS) * LONG_IN * 2];
    uint16_t halves[LONG_ROWS][LONG_STRIDE];
    float out[LONG_ROWS][LONG_OUT], alone[LONG_ROWS][LONG_OUT];
} long_product;

static void run_long(float *out, const long_product *p, const spry_matmul_kernel *kernel, size_t row, size_t n,
                     bool halves)
{
    const spry_matmul m = {.out = out,
                           .out_stride = LONG_OUT,
                           .weight = p->groups,
                           .weight_stride = (size_t)kernel->group * LONG_IN * 2,
                           .act = p->in[row],
                           .act_stride = sizeof p->in[0],
                           .n_rows = n,
                           .n_in = LONG_IN,
                           .halves = halves ? p->halves[row] : NULL,
                           .halves_stride = LONG_STRIDE};
    kernel->run(&m, 0, LONG_OUT);
}

static void check_long(long_product *p, const spry_matmul_kernel *kernel)
{
    static const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 11, 12, 16, 96, 97, 128, 129, LONG_ROWS};
    for (size_t o = 0; o < LONG_OUT; o += kernel->group)
        spry_pack_group(SPRY_BF16, p->groups + o * LONG_IN * 2, p->weights[o], sizeof p->weights[0], LONG_IN,
                        LONG_OUT - o < kernel->group ? LONG_OUT - o : kernel->group, kernel->group);
    for (size_t row = 0; row < LONG_ROWS; row++) {
        run_long(p->alone[row], p, kernel, row, 1, false);
        if (kernel->halve)
            kernel->halve(p->halves[row], p->in[row], LONG_IN);
    }
    for (size_t i = 0; i < SPRY_COUNT(rows); i++)
        for (int halves = 0; halves <= (kernel->halve != NULL); halves++) {
            memset(p->out, 0xff, sizeof p->out);
            run_long(p->out[0], p, kernel, 0, rows[i], halves);
            assert_memory_equal(p->out, p->alone, rows[i] * sizeof p->out[0]);
        }
}

/* Bits depend neither on the number of rows nor on who rounds activations, some of which are subnormal. */
static void long_products_have_one_order(void **state)
{
    (void)state;
    long_product *p = calloc(1, sizeof *p);
    uint32_t random = 3;
    char names[256];
    assert_non_null(p);
    assert_int_equal(spry_halves_stride(LONG_IN), LONG_STRIDE);
    for (size_t i = 0; i < LONG_ROWS * LONG_IN; i++) {
        random = random * 1664525u + 1013904223u;
        p->in[i / LONG_IN][i % LONG_IN] = (float)(int32_t)random * 0x1p-31f * (i % 7 ? 1 : 0x1p-127f);
    }
    for (size_t i = 0; i < LONG_OUT * LONG_IN; i++) {
        random = random * 1664525u + 1013904223u;
        p->weights[i / LONG_IN][i % LONG_IN] = spry_bf16_encode((float)(int32_t)random * 0x1p-31f);
    }
    snprintf(names, sizeof names, "%s", spry_ops_names());
    for (char *rest = names, *cpu; (cpu = strtok_r(rest, ", ", &rest));) {
        const spry_matmul_kernel *kernel = &get(cpu)->matmul[SPRY_BF16];
        if (kernel->bf16)
            check_long(p, kernel);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_products_have_one_order),
        cmocka_unit_test(masks_name_tables),
        cmocka_unit_test(an_unknown_mask_lists_the_known_ones),
        cmocka_unit_test(ref_has_every_op_for_every_type),
        cmocka_unit_test(what_tables_ask_for_is_to_be_had),
        cmocka_unit_test(tables_with_other_instructions_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
