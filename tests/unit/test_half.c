/* kernels/half.h against the definitions of the two types, over all their values and all the ties between them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "kernels/half.h"

/* What the bits of a finite half mean. */
static double half_value(unsigned bits)
{
    int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

static void f16_decodes_every_value(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        float got = spry_f16_decode((uint16_t)bits);
        assert_int_equal(signbit(got) != 0, bits >> 15);
        if ((bits & 0x7c00) != 0x7c00)
            assert_true((double)got == half_value(bits));
        else if (bits & 0x3ff)
            assert_true(isnan(got));
        else
            assert_true(isinf(got));
    }
}

static void f16_encodes_its_own_values_exactly(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        uint16_t back = spry_f16_encode(spry_f16_decode((uint16_t)bits));
        if ((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff)) {
            assert_int_equal(back & 0xfe00, (bits & 0x8000) | 0x7e00); /* a quiet NaN of the same sign */
            continue;
        }
        assert_int_equal(back, bits);
    }
}

/* Between two neighbours: the middle goes to the even one, anything off it to the nearer. Beyond the largest half the
 * neighbour is infinity, as if it were 65536. */
static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        float middle = (float)((half_value(bits) + half_value(bits + 1)) / 2);
        if (bits == 0x7bff)
            middle = 65520;
        for (unsigned sign = 0; sign < 2; sign++) {
            float value = sign ? -middle : middle;
            unsigned up = (bits + 1) | sign << 15, down = bits | sign << 15;
            assert_int_equal(spry_f16_encode(value), bits % 2 ? up : down);
            assert_int_equal(spry_f16_encode(nextafterf(value, 0)), down);
            assert_int_equal(spry_f16_encode(nextafterf(value, sign ? -INFINITY : INFINITY)), up);
        }
    }
}

static void f16_keeps_what_is_special(void **state)
{
    (void)state;
    assert_int_equal(spry_f16_encode(0.0f), 0);
    assert_int_equal(spry_f16_encode(-0.0f), 0x8000);
    assert_int_equal(spry_f16_encode(0x1p-149f), 0);
    assert_int_equal(spry_f16_encode(-0x1p-149f), 0x8000);
    assert_int_equal(spry_f16_encode(3e38f), 0x7c00);
    assert_int_equal(spry_f16_encode(INFINITY), 0x7c00);
    assert_int_equal(spry_f16_encode(-INFINITY), 0xfc00);
    assert_true(isnan(spry_f16_decode(spry_f16_encode(NAN))));
    /* A NaN whose payload is below the bits that a half keeps must not turn into infinity. */
    assert_true(isnan(spry_f16_decode(spry_f16_encode(spry_float_of_bits(0x7f800001)))));
}

static void bf16_is_the_upper_half_of_a_float(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        float value = spry_bf16_decode((uint16_t)bits);
        assert_int_equal(spry_float_bits(value), bits << 16);
        if (!isnan(value))
            assert_int_equal(spry_bf16_encode(value), bits);
        else
            assert_int_equal(spry_bf16_encode(value), bits | 0x40);
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7f80) == 0x7f80)
            continue;
        uint32_t middle = (uint32_t)bits << 16 | 0x8000;
        assert_int_equal(spry_bf16_encode(spry_float_of_bits(middle)), bits % 2 ? bits + 1 : bits);
        assert_int_equal(spry_bf16_encode(spry_float_of_bits(middle - 1)), bits);
        assert_int_equal(spry_bf16_encode(spry_float_of_bits(middle + 1)), bits + 1);
    }
    assert_int_equal(spry_bf16_encode(3.4e38f), 0x7f80);
    assert_true(isnan(spry_bf16_decode(spry_bf16_encode(spry_float_of_bits(0x7f800001)))));
    assert_true(isnan(spry_bf16_decode(spry_bf16_encode(spry_float_of_bits(0xffffffff)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_decodes_every_value),           cmocka_unit_test(f16_encodes_its_own_values_exactly),
        cmocka_unit_test(f16_rounds_to_nearest_even),        cmocka_unit_test(f16_keeps_what_is_special),
        cmocka_unit_test(bf16_is_the_upper_half_of_a_float), cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
