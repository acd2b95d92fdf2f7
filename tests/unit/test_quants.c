/* Decoding against recorded results of every type, bit for bit; encoding against bounds that follow from each block's
 * range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/encode_bound.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/ops.h"
#include "support/large_encode_bound.h"

enum { VALUES = SPRY_BLOCK_LARGE, ENCODED_MAX = VALUES * 4 /* bytes, of floats */, BLOCKS = 200 };

static const spry_dtype large_types[] = {SPRY_Q4_K, SPRY_Q5_K, SPRY_Q6_K};
static const spry_dtype block_types[] = {SPRY_Q4_0, SPRY_Q4_1, SPRY_Q5_0, SPRY_Q5_1, SPRY_Q8_0,
                                         SPRY_Q4_K, SPRY_Q5_K, SPRY_Q6_K, SPRY_MXFP4};
static const spry_dtype written_types[] = {SPRY_F32,  SPRY_F16,  SPRY_BF16, SPRY_Q4_0, SPRY_Q4_1, SPRY_Q5_0,
                                           SPRY_Q5_1, SPRY_Q8_0, SPRY_Q4_K, SPRY_Q5_K, SPRY_Q6_K, SPRY_MXFP4};

static const spry_ops *ref_ops(void)
{
    const spry_ops *ops = NULL;
    assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
    return ops;
}

/* ---- recorded vectors ------------------------------------------------------------------------------------------- */

static unsigned char *read_file(size_t *size, const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long end = ftell(file);
    assert_true(end > 0);
    rewind(file);
    *size = (size_t)end;
    unsigned char *data = malloc(*size);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static size_t field(const json_t *vector, const char *name)
{
    const json_t *value = json_object_get(vector, name);
    assert_true(json_is_integer(value));
    return (size_t)json_integer_value(value);
}

/* Decodes one vector from an even and from an odd address. */
static void compare_vector(const json_t *vector, const unsigned char *data, size_t size)
{
    const char *name = json_string_value(json_object_get(vector, "type"));
    spry_dtype type;
    assert_non_null(name);
    assert_true(spry_dtype_find(&type, spry_view_of(name)));
    assert_int_equal(type, field(vector, "id"));
    assert_int_equal(spry_dtype_block(type), field(vector, "block"));
    assert_int_equal(spry_dtype_bytes(type), field(vector, "block_bytes"));

    size_t n = field(vector, "elements"), raw = field(vector, "raw_offset"), raw_bytes = field(vector, "raw_bytes");
    size_t expected = field(vector, "f32_offset"), bytes;
    assert_true(spry_dtype_size(&bytes, type, n));
    assert_int_equal(bytes, raw_bytes);
    assert_true(raw + raw_bytes <= size && expected + n * sizeof(float) <= size);
    for (size_t shift = 0; shift < 2; shift++) {
        unsigned char *copy = malloc(raw_bytes + shift);
        float *out = malloc(n * sizeof *out);
        assert_true(copy && out);
        memcpy(copy + shift, data + raw, raw_bytes);
        ref_ops()->decode[type](out, copy + shift, n);
        for (size_t i = 0; i < n; i++)
            if (memcmp(out + i, data + expected + i * sizeof(float), sizeof(float)))
                fail_msg("%s: value %zu is %a", name, i, (double)out[i]);
        free(copy);
        free(out);
    }
}

static void every_recorded_vector_decodes_to_the_same_bits(void **state)
{
    (void)state;
    size_t size, n_types = 0;
    unsigned char *data = read_file(&size, TEST_DATA "/quants/vectors.bin");
    json_error_t error;
    json_t *vectors = json_load_file(TEST_DATA "/quants/vectors.json", 0, &error);
    assert_non_null(vectors);
    for (size_t i = 0; i < json_array_size(vectors); i++, n_types++)
        compare_vector(json_array_get(vectors, i), data, size);
    assert_int_equal(n_types, 27);
    json_decref(vectors);
    free(data);
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

static uint32_t random_state;

static float uniform(void) /* [-1, 1) */
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) * 0x1p-23f - 1;
}

typedef enum block_kind { EVEN, OUTLIER, ONE_SIDED, FAR_FROM_ZERO, TWO_VALUES, BLOCK_KINDS } block_kind;

static void random_block(float values[VALUES], block_kind kind, float size)
{
    for (int i = 0; i < VALUES; i++) {
        float u = uniform();
        switch (kind) {
        case ONE_SIDED: u = fabsf(u); break;
        case FAR_FROM_ZERO: u += 10; break;
        case TWO_VALUES: u = u > 0 ? 1 : -1; break;
        default: break;
        }
        values[i] = size * u;
    }
    for (size_t i = 0; kind == OUTLIER && i < VALUES; i += SPRY_BLOCK_SMALL)
        values[i + (random_state >> 8) % SPRY_BLOCK_SMALL] = size * 20 * uniform();
}

/* Encodes a block, or eight small ones, and decodes it. */
static void round_trip(float back[VALUES], spry_dtype type, const float values[VALUES])
{
    unsigned char encoded[ENCODED_MAX];
    ref_ops()->encode[type](encoded, values, VALUES);
    ref_ops()->decode[type](back, encoded, VALUES);
}

static void compare_with_bound(spry_dtype type, const float values[VALUES], const float back[VALUES])
{
    size_t block = spry_dtype_block(type);
    for (size_t i = 0; i < VALUES; i += block) {
        double error = 0;
        double bound = (block == VALUES ? large_encode_bound : encode_bound)(type, values + i);
        for (size_t k = i; k < i + block; k++)
            error += pow((double)back[k] - (double)values[k], 2);
        if (!(error <= bound))
            fail_msg("%s: squared error %g where %g is allowed", spry_dtype_name(type), error, bound);
    }
}

static void errors_stay_within_the_range_of_the_block(void **state)
{
    (void)state;
    random_state = 1;
    for (size_t t = 0; t < SPRY_COUNT(written_types); t++)
        for (int b = 0; b < BLOCKS; b++) {
            float values[VALUES], back[VALUES];
            random_block(values, (block_kind)(b % BLOCK_KINDS), ldexpf(1, b % 45 - 34));
            round_trip(back, written_types[t], values);
            compare_with_bound(written_types[t], values, back);
        }
}

/* ---- searches against plain choices ----------------------------------------------------------------------------- */

/* Values like weights: many small ones, few large. */
static void ordinary_block(float values[VALUES])
{
    for (int i = 0; i < VALUES; i++)
        values[i] = uniform() + uniform() + uniform() + uniform();
}

static double squared_error(const float back[VALUES], const float values[VALUES])
{
    double error = 0;
    for (int i = 0; i < VALUES; i++)
        error += pow((double)back[i] - (double)values[i], 2);
    return error;
}

static double encoded_error(spry_dtype type, const float values[VALUES])
{
    float back[VALUES];
    round_trip(back, type, values);
    return squared_error(back, values);
}

/* The squared error of a block of 32 with the scale that its extremes give. */
static double plain_small_error(spry_dtype type, const float *values)
{
    float min = values[0], max = values[0];
    for (int i = 1; i < SPRY_BLOCK_SMALL; i++) {
        min = fminf(min, values[i]);
        max = fmaxf(max, values[i]);
    }
    double half = type == SPRY_Q4_0 ? 8 : 16, error = 0;
    bool symmetric = type == SPRY_Q4_0 || type == SPRY_Q5_0;
    double extreme = (double)(-min > max ? min : max);
    double scale = symmetric ? extreme / -half : (double)(max - min) / (type == SPRY_Q4_1 ? 15 : 31);
    for (int i = 0; i < SPRY_BLOCK_SMALL; i++) {
        double level =
            symmetric ? fmin(rint((double)values[i] / scale), half - 1) : rint((double)(values[i] - min) / scale);
        error += pow(level * scale + (symmetric ? 0 : (double)min) - (double)values[i], 2);
    }
    return error;
}

/* The same for a block of 256: each part's scale and minimum by its extremes, then the nearest multiples. */
static double plain_large_error(spry_dtype type, const float values[VALUES])
{
    large_shape shape = large_shape_of(type);
    size_t n = VALUES / shape.parts;
    double scales[LARGE_PARTS_MAX], mins[LARGE_PARTS_MAX], scale = 0, min = 0, error = 0;
    for (size_t p = 0; p < shape.parts; p++) {
        large_plain_part(&scales[p], &mins[p], shape, values + p * n);
        scale = fmax(scale, scales[p] / shape.multiples);
        min = fmax(min, mins[p] / shape.multiples);
    }
    for (size_t i = 0; i < VALUES; i++) {
        double part_scale = rint(scales[i / n] / scale) * scale, part_min = min > 0 ? rint(mins[i / n] / min) * min : 0;
        double lowest = shape.has_min ? 0 : -shape.levels, highest = shape.has_min ? shape.levels : shape.levels - 1;
        double level = fmax(fmin(rint(((double)values[i] + part_min) / part_scale), highest), lowest);
        error += pow(level * part_scale - part_min - (double)values[i], 2);
    }
    return error;
}

/* Root mean squares over ordinary blocks are printed, for they are what the search is for. */
static void the_search_beats_the_plain_scale(void **state)
{
    (void)state;
    random_state = 2;
    for (size_t t = 0; t < SPRY_COUNT(block_types); t++) {
        spry_dtype type = block_types[t];
        if (type == SPRY_Q8_0 || type == SPRY_MXFP4) /* no search, or one between two scales */
            continue;
        double searched = 0, plain = 0, squares = 0;
        for (int b = 0; b < BLOCKS; b++) {
            float values[VALUES], zeros[VALUES] = {0};
            ordinary_block(values);
            searched += encoded_error(type, values);
            squares += squared_error(zeros, values);
            if (spry_dtype_block(type) == VALUES)
                plain += plain_large_error(type, values);
            for (size_t i = 0; spry_dtype_block(type) < VALUES && i < VALUES; i += SPRY_BLOCK_SMALL)
                plain += plain_small_error(type, values + i);
        }
        print_message("%s, %.4f bits a value: error %.5f of the values' size, plain %.5f\n", spry_dtype_name(type),
                      8.0 * (double)spry_dtype_bytes(type) / (double)spry_dtype_block(type), sqrt(searched / squares),
                      sqrt(plain / squares));
        assert_true(searched < 0.97 * plain);
    }
}

/* Large blocks cost as many bits as small ones without a minimum, or fewer, and must give more for them. */
static void large_blocks_beat_small_ones_of_their_size(void **state)
{
    (void)state;
    static const struct {
        spry_dtype large, small;
    } pairs[] = {{SPRY_Q4_K, SPRY_Q4_0}, {SPRY_Q5_K, SPRY_Q5_0}};
    random_state = 6;
    for (size_t k = 0; k < SPRY_COUNT(pairs); k++) {
        size_t large_bytes, small_bytes;
        assert_true(spry_dtype_size(&large_bytes, pairs[k].large, VALUES));
        assert_true(spry_dtype_size(&small_bytes, pairs[k].small, VALUES));
        assert_int_equal(large_bytes, small_bytes);
        double large = 0, small = 0;
        for (int b = 0; b < BLOCKS; b++) {
            float values[VALUES];
            ordinary_block(values);
            large += encoded_error(pairs[k].large, values);
            small += encoded_error(pairs[k].small, values);
        }
        assert_true(large < 0.9 * small);
    }
}

/* Parts that need very different scales each get their own; a part of nothing but one negative value is all minimum. */
static void parts_of_a_large_block_keep_their_own_scale(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(large_types); t++) {
        float values[VALUES], back[VALUES];
        size_t n = VALUES / large_shape_of(large_types[t]).parts;
        random_state = 7;
        for (size_t i = 0; i < VALUES; i++)
            values[i] = i / n == 0 ? uniform() : i / n == 1 ? 0 : i / n == 2 ? -0.5f : uniform() / 16;
        round_trip(back, large_types[t], values);
        for (size_t i = 0; i < VALUES; i++) {
            double size = i / n == 0 ? 1 : i / n == 1 ? 0 : i / n == 2 ? 0.5 : 1.0 / 16;
            assert_true(fabs((double)back[i] - (double)values[i]) <= 0.15 * size);
        }
    }
}

/* What a large block holds, when its parts use all of their levels, is a fixed point but for rounding. */
static void levels_of_a_large_block_are_found_again(void **state)
{
    (void)state;
    for (size_t t = 0; t < SPRY_COUNT(large_types); t++) {
        large_shape shape = large_shape_of(large_types[t]);
        size_t n = VALUES / shape.parts;
        float values[VALUES], back[VALUES];
        for (size_t i = 0; i < VALUES; i++) {
            float level = (float)((i % n) * (size_t)shape.levels / (n - 1)), multiple = (float)(40 + i / n);
            values[i] =
                0x1p-10f * multiple * (shape.has_min ? level : -level) - (shape.has_min ? 0x1p-8f * multiple : 0);
        }
        round_trip(back, large_types[t], values);
        for (size_t i = 0; i < VALUES; i++)
            assert_true(fabsf(back[i] - values[i]) <= 0x1p-10f * 63 * 0.25f);
    }
}

/* ---- properties ------------------------------------------------------------------------------------------------- */

/* What a Q8_0 block holds is encoded to the same values again, whenever the scale is a normal half. */
static void q8_0_is_idempotent(void **state)
{
    (void)state;
    random_state = 3;
    for (int b = 0; b < BLOCKS; b++) {
        float values[VALUES], once[VALUES], twice[VALUES];
        random_block(values, (block_kind)(b % BLOCK_KINDS), ldexpf(1, b % 24 - 4));
        round_trip(once, SPRY_Q8_0, values);
        round_trip(twice, SPRY_Q8_0, once);
        assert_memory_equal(once, twice, sizeof once);
    }
}

/* What an MXFP4 block holds is encoded to the same bytes again: its values are exact. */
static void mxfp4_is_idempotent(void **state)
{
    (void)state;
    random_state = 5;
    for (int b = 0; b < BLOCKS; b++) {
        float values[VALUES], once[VALUES], twice[VALUES];
        random_block(values, (block_kind)(b % BLOCK_KINDS), ldexpf(1, b % 45 - 34));
        round_trip(once, SPRY_MXFP4, values);
        round_trip(twice, SPRY_MXFP4, once);
        assert_memory_equal(once, twice, sizeof once);
    }
}

static void encoding_is_deterministic_and_blocks_are_independent(void **state)
{
    (void)state;
    random_state = 4;
    for (size_t t = 0; t < SPRY_COUNT(written_types); t++) {
        spry_dtype type = written_types[t];
        float values[3 * VALUES];
        for (int b = 0; b < 3; b++)
            random_block(values + b * VALUES, (block_kind)b, 1);
        unsigned char all[3 * ENCODED_MAX], one[ENCODED_MAX];
        size_t bytes;
        assert_true(spry_dtype_size(&bytes, type, VALUES));
        ref_ops()->encode[type](all, values, 3 * VALUES);
        for (size_t b = 0; b < 3; b++) {
            ref_ops()->encode[type](one, values + b * VALUES, VALUES);
            assert_memory_equal(one, all + b * bytes, bytes);
        }
    }
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    const float zeros[VALUES] = {0};
    for (size_t t = 0; t < SPRY_COUNT(written_types); t++) {
        float back[VALUES];
        round_trip(back, written_types[t], zeros);
        for (int i = 0; i < VALUES; i++)
            assert_true(back[i] == 0);
    }
}

/* In a block a NaN counts as 0 and the rest is encoded as if it had been one. */
static void nan_in_a_block_becomes_zero(void **state)
{
    (void)state;
    random_state = 5;
    for (size_t t = 0; t < SPRY_COUNT(block_types); t++) {
        float values[VALUES], with_zero[VALUES], back[VALUES], expected[VALUES];
        random_block(values, EVEN, 1);
        memcpy(with_zero, values, sizeof values);
        values[7] = NAN;
        values[31] = -NAN;
        with_zero[7] = with_zero[31] = 0;
        round_trip(back, block_types[t], values);
        round_trip(expected, block_types[t], with_zero);
        assert_memory_equal(back, expected, sizeof back);
    }
}

/* Infinities and numbers beyond the reach of the scale become finite, of the right sign, and as large as they can. */
static void what_is_too_large_saturates(void **state)
{
    (void)state;
    const float reach[] = {[SPRY_Q4_0] = 7 * 65504.0f,  [SPRY_Q5_0] = 15 * 65504.0f, [SPRY_Q8_0] = 127 * 65504.0f,
                           [SPRY_Q4_1] = 65504,         [SPRY_Q5_1] = 65504,         [SPRY_Q4_K] = 63 * 65504.0f,
                           [SPRY_Q5_K] = 63 * 65504.0f, [SPRY_Q6_K] = 0x1.fp22f,     [SPRY_MXFP4] = 0x1p23f};
    const float large[] = {INFINITY, 3.4e38f};
    for (size_t t = 0; t < SPRY_COUNT(block_types); t++)
        for (size_t k = 0; k < SPRY_COUNT(large); k++) {
            float values[VALUES] = {1, 2, -3, large[k], -large[k]}, back[VALUES];
            round_trip(back, block_types[t], values);
            for (int i = 0; i < VALUES; i++)
                assert_true(isfinite(back[i]));
            assert_true(back[3] >= reach[block_types[t]]);
            assert_true(back[4] <= -reach[block_types[t]]);
        }
}

static void plain_types_keep_nan_and_infinity(void **state)
{
    (void)state;
    const float values[VALUES] = {NAN, INFINITY, -INFINITY, 3.4e38f};
    for (size_t t = 0; t < 3; t++) {
        float back[VALUES];
        round_trip(back, written_types[t], values);
        assert_true(isnan(back[0]));
        assert_true(isinf(back[1]) && back[1] > 0);
        assert_true(isinf(back[2]) && back[2] < 0);
        assert_int_equal(isinf(back[3]) != 0, written_types[t] != SPRY_F32);
    }
}

/* The value furthest from zero sits on the lowest level, so that its sign is kept exactly in the scale. */
static void symmetric_types_put_the_extreme_on_the_long_side(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        float values[VALUES], back[VALUES];
        for (int i = 0; i < VALUES; i++)
            values[i] = (float)(sign * (i % 16 - 7)); /* -7 .. 8, all levels of a scale of -1 (or 1) */
        round_trip(back, SPRY_Q4_0, values);
        for (int i = 0; i < VALUES; i++)
            assert_true(back[i] == values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_vector_decodes_to_the_same_bits),
        cmocka_unit_test(errors_stay_within_the_range_of_the_block),
        cmocka_unit_test(the_search_beats_the_plain_scale),
        cmocka_unit_test(large_blocks_beat_small_ones_of_their_size),
        cmocka_unit_test(parts_of_a_large_block_keep_their_own_scale),
        cmocka_unit_test(levels_of_a_large_block_are_found_again),
        cmocka_unit_test(q8_0_is_idempotent),
        cmocka_unit_test(mxfp4_is_idempotent),
        cmocka_unit_test(encoding_is_deterministic_and_blocks_are_independent),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(nan_in_a_block_becomes_zero),
        cmocka_unit_test(what_is_too_large_saturates),
        cmocka_unit_test(plain_types_keep_nan_and_infinity),
        cmocka_unit_test(symmetric_types_put_the_extreme_on_the_long_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
