/* Which type each tensor gets: names, layers that count more, rows that are not whole blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/ops.h"
#include "model/quantize.h"
#include "support/hostile.h"

static const spry_recipe *find(const char *name)
{
    const spry_recipe *recipe = NULL;
    assert_int_equal(spry_recipe_find(&recipe, name, NULL), SPRY_OK);
    return recipe;
}

static void expect_type(const spry_recipe *recipe, const char *tensor, size_t n_in, spry_dtype expected)
{
    spry_dtype type = spry_recipe_type(recipe, spry_view_of(tensor), 8, 2, n_in);
    if (type != expected)
        fail_msg("%s: %s of rows of %zu is %s, not %s", recipe->name, tensor, n_in, spry_dtype_name(type),
                 spry_dtype_name(expected));
}

static void every_name_is_found_and_can_be_written(void **state)
{
    (void)state;
    const spry_ops *ops;
    size_t count = 0;
    assert_int_equal(spry_ops_get(&ops, "auto", NULL), SPRY_OK);
    for (; spry_recipe_names[count]; count++) {
        const spry_recipe *recipe = find(spry_recipe_names[count]);
        assert_string_equal(recipe->name, spry_recipe_names[count]);
        assert_true(ops->encode[recipe->matrices] && ops->encode[recipe->finer] && ops->encode[recipe->embedding]);
    }
    assert_int_equal(count, 12);
    assert_ptr_equal(find("Q4_K_M"), find("q4_k_m"));
}

static void unknown_names_are_refused_with_the_known_ones(void **state)
{
    (void)state;
    static const char *const unknown[] = {"", "q4", "q4_k", "q2_k", "q4_k_m ", "float"};
    const spry_recipe *recipe = NULL;
    spry_error error;
    for (size_t i = 0; i < SPRY_COUNT(unknown); i++)
        hostile_expect(spry_recipe_find(&recipe, unknown[i], &error), &error, SPRY_ERR_INPUT,
                       "known are q4_0, |q4_k_m|q5_k_m|q6_k|, f32");
    assert_null(recipe);
}

static void file_types_are_those_of_llama_cpp(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t id;
    } ids[] = {{"f32", 0},  {"f16", 1},     {"q4_0", 2},    {"q4_1", 3},  {"q8_0", 7},  {"q5_0", 8},
               {"q5_1", 9}, {"q4_k_m", 15}, {"q5_k_m", 17}, {"q6_k", 18}, {"bf16", 32}, {"mxfp4", 38}};
    for (size_t i = 0; i < SPRY_COUNT(ids); i++)
        assert_int_equal(find(ids[i].name)->file_type, ids[i].id);
}

static void mixed_types_follow_the_layer(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        spry_dtype type;
    } mixed[] = {{"q4_k_m", SPRY_Q4_K}, {"q5_k_m", SPRY_Q5_K}};
    static const char *const heavy[] = {"attn_v", "attn_qkv", "ffn_down", "ffn_down_exps", "ffn_down_shexp"};
    static const char *const light[] = {"attn_q", "attn_k", "attn_output", "ffn_up", "ffn_gate", "ffn_up_exps"};
    static const bool counts[8] = {true, false, false, true, false, false, true, true}; /* of 8 layers */
    for (size_t r = 0; r < SPRY_COUNT(mixed); r++)
        for (unsigned layer = 0; layer < 8; layer++) {
            char name[64];
            for (size_t i = 0; i < SPRY_COUNT(heavy); i++) {
                snprintf(name, sizeof name, "blk.%u.%s.weight", layer, heavy[i]);
                expect_type(find(mixed[r].name), name, 512, counts[layer] ? SPRY_Q6_K : mixed[r].type);
            }
            for (size_t i = 0; i < SPRY_COUNT(light); i++) {
                snprintf(name, sizeof name, "blk.%u.%s.weight", layer, light[i]);
                expect_type(find(mixed[r].name), name, 512, mixed[r].type);
            }
        }
}

/* As in gpt-oss: the matrices of feed-forward parts, and those of experts, in 4-bit floats, the rest in 8 bits. */
static void small_floats_are_for_feed_forward_parts(void **state)
{
    (void)state;
    static const char *const small[] = {"ffn_up", "ffn_down", "ffn_gate_exps", "ffn_down_exps"};
    static const char *const others[] = {"attn_q", "attn_v", "attn_output"};
    char name[64];
    for (size_t i = 0; i < SPRY_COUNT(small); i++) {
        snprintf(name, sizeof name, "blk.1.%s.weight", small[i]);
        expect_type(find("mxfp4"), name, 2880, SPRY_MXFP4);
    }
    for (size_t i = 0; i < SPRY_COUNT(others); i++) {
        snprintf(name, sizeof name, "blk.1.%s.weight", others[i]);
        expect_type(find("mxfp4"), name, 2880, SPRY_Q8_0);
    }
    expect_type(find("mxfp4"), "token_embd.weight", 2880, SPRY_Q8_0);
}

/* About half of the layers count, whatever their number. */
static void half_of_the_layers_count(void **state)
{
    (void)state;
    for (uint32_t n_layers = 16; n_layers <= 128; n_layers += 7) {
        uint32_t count = 0;
        for (uint32_t layer = 0; layer < n_layers; layer++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.attn_v.weight", layer);
            count += spry_recipe_type(find("q4_k_m"), spry_view_of(name), n_layers, 2, 256) == SPRY_Q6_K;
        }
        assert_true(count * 100 >= n_layers * 40 && count * 100 <= n_layers * 60);
    }
}

static void embeddings_vectors_and_routers(void **state)
{
    (void)state;
    static const char *const ends[] = {"token_embd.weight", "output.weight"};
    for (size_t i = 0; i < SPRY_COUNT(ends); i++) {
        expect_type(find("q4_k_m"), ends[i], 512, SPRY_Q6_K);
        expect_type(find("q5_k_m"), ends[i], 512, SPRY_Q6_K);
        expect_type(find("q6_k"), ends[i], 512, SPRY_Q6_K);
        expect_type(find("q4_0"), ends[i], 512, SPRY_Q8_0);
        expect_type(find("q5_1"), ends[i], 512, SPRY_Q8_0);
        expect_type(find("bf16"), ends[i], 512, SPRY_BF16);
    }
    for (size_t i = 0; spry_recipe_names[i]; i++) {
        const spry_recipe *recipe = find(spry_recipe_names[i]);
        expect_type(recipe, "blk.3.ffn_gate_inp.weight", 512, SPRY_F32);
        expect_type(recipe, "blk.3.ffn_gate_inp_shexp.weight", 512, SPRY_F32);
        assert_int_equal(spry_recipe_type(recipe, SPRY_VIEW("output_norm.weight"), 8, 1, 512), SPRY_F32);
    }
}

static void rows_that_are_not_whole_blocks_take_a_finer_type(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *tensor;
        spry_dtype by_256, by_32, odd;
    } cases[] = {
        {"q4_k_m", "blk.1.attn_q.weight", SPRY_Q4_K, SPRY_Q5_0, SPRY_F16},
        {"q4_k_m", "blk.0.ffn_down.weight", SPRY_Q6_K, SPRY_Q8_0, SPRY_F16},
        {"q5_k_m", "blk.1.attn_q.weight", SPRY_Q5_K, SPRY_Q5_1, SPRY_F16},
        {"q6_k", "blk.1.attn_q.weight", SPRY_Q6_K, SPRY_Q8_0, SPRY_F16},
        {"q6_k", "token_embd.weight", SPRY_Q6_K, SPRY_Q8_0, SPRY_F16},
        {"q4_0", "blk.1.attn_q.weight", SPRY_Q4_0, SPRY_Q4_0, SPRY_F16},
        {"q8_0", "blk.1.attn_q.weight", SPRY_Q8_0, SPRY_Q8_0, SPRY_F16},
        {"f32", "blk.1.attn_q.weight", SPRY_F32, SPRY_F32, SPRY_F32},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        expect_type(find(cases[i].recipe), cases[i].tensor, 768, cases[i].by_256);
        expect_type(find(cases[i].recipe), cases[i].tensor, 96, cases[i].by_32);
        expect_type(find(cases[i].recipe), cases[i].tensor, 100, cases[i].odd);
    }
}

/* Names that only look like a layer's are matrices like any other. */
static void odd_names_are_plain_matrices(void **state)
{
    (void)state;
    static const char *const odd[] = {"",
                                      "blk.",
                                      "blk..weight",
                                      "blk.weight",
                                      "blk.0.weight",
                                      "blk.x.attn_v.weight",
                                      "attn_v",
                                      "blk.0.attn_v",
                                      "blk.99999999999999999999.attn_v.weight",
                                      "rope.weight",
                                      "blk.-1.ffn_gate_inp.weight"};
    for (size_t i = 0; i < SPRY_COUNT(odd); i++)
        expect_type(find("q4_k_m"), odd[i], 256, SPRY_Q4_K);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_found_and_can_be_written),
        cmocka_unit_test(unknown_names_are_refused_with_the_known_ones),
        cmocka_unit_test(file_types_are_those_of_llama_cpp),
        cmocka_unit_test(mixed_types_follow_the_layer),
        cmocka_unit_test(small_floats_are_for_feed_forward_parts),
        cmocka_unit_test(half_of_the_layers_count),
        cmocka_unit_test(embeddings_vectors_and_routers),
        cmocka_unit_test(rows_that_are_not_whole_blocks_take_a_finer_type),
        cmocka_unit_test(odd_names_are_plain_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
