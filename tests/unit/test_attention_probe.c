/* Attention measured fused and unfused computes the same, with every kernel set of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "spry_tools.h"

/* Rounding of keys and values to F16, and of products to BF16 where a set computes with it. */
static const double most = 0.02;

static void test_both_ways_give_the_same(void **state)
{
    static const char *const sets[] = {"ref",        "avx2", "avx512bw", "avxvnni", "avx512",
                                       "avx512bf16", "amx",  "neon",     "auto"};
    static const uint32_t keys[] = {32, 96, 160, 544};
    spry_attention_speed speed;
    spry_error error;
    size_t measured = 0;
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (spry_attention_measure(&speed, sets[i], 2, keys[k], &error)) {
                assert_non_null(strstr(error.message, "there are no kernels named"));
                continue;
            }
            if (speed.difference > most)
                fail_msg("%s, %u keys: %g apart", sets[i], keys[k], speed.difference);
            assert_true(speed.fused_ms > 0 && speed.unfused_ms > 0 && speed.difference > 0);
            measured++;
        }
    assert_true(measured >= 8); /* ref and the best one */
}

static void test_wrong_sizes(void **state)
{
    static const uint32_t wrong[] = {0, 1, 33, SPRY_ATTENTION_KEYS_MAX + SPRY_PAGE_TOKENS, UINT32_MAX};
    spry_attention_speed speed;
    spry_error error;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(spry_attention_measure(&speed, "auto", 1, wrong[i], &error), SPRY_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_give_the_same),
        cmocka_unit_test(test_wrong_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
