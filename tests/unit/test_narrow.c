/* F16 weights that BF16 has exactly: packed as BF16 where that is faster, with the bits of BF16 weights; a single other
 * value keeps a matrix as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/cpu/packing.h"
#include "kernels/half.h"
#include "kernels/packed.h"
#include "model/gguf_export.h"
#include "support/engine_fixture.h"

static void every_half_is_judged(void **state)
{
    (void)state;
    size_t n_exact = 0;
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
        uint16_t half = (uint16_t)i, value = half;
        uint32_t bits = spry_float_bits(spry_f16_decode(half));
        assert_int_equal(spry_narrow_exact(&half, 1), (bits & 0xffff) == 0);
        if (bits & 0xffff)
            continue;
        spry_narrow(&value, 1);
        assert_int_equal((uint32_t)value << 16, bits);
        n_exact++;
    }
    /* of both signs: zero, 30 exponents and infinities or NaNs with 128 mantissas; of subnormals 1 to 255, and 128 each
     * of the next two powers */
    assert_int_equal(n_exact, 2 * (1 + 31 * 128 + 255 + 128 + 128));
}

/* What BF16 checkpoints become as F16, small values included, is exact. */
static void bf16_checkpoints_stay_exact(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
        float value = spry_bf16_decode((uint16_t)i);
        uint16_t half = spry_f16_encode(value);
        if (value == value) /* no NaN */
            assert_true(spry_narrow_exact(&half, 1));
    }
}

static void one_value_is_found_anywhere(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    unsigned char bytes[2 * COUNT + 1] = {0}; /* at an odd address */
    uint16_t fine = 0x3c08, odd = 0x3c01;
    for (size_t i = 0; i < COUNT; i++)
        memcpy(bytes + 1 + 2 * i, &fine, 2);
    assert_true(spry_narrow_exact(bytes + 1, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(bytes + 1 + 2 * i, &odd, 2);
        assert_false(spry_narrow_exact(bytes + 1, COUNT));
        assert_true(spry_narrow_exact(bytes + 1, i));
        memcpy(bytes + 1 + 2 * i, &fine, 2);
    }
}

/* ---- a matrix ---------------------------------------------------------------------------------------------------- */

enum { OUTPUTS = 37, INPUTS = 131, ROWS = 9 };

typedef struct scene {
    const spry_ops *ops;
    spry_threads *threads;
    uint16_t halves[OUTPUTS][INPUTS], brains[OUTPUTS][INPUTS]; /* the same values as F16 and as BF16 */
    float in[ROWS][INPUTS];
} scene;

static void fill_scene(scene *s, const char *cpu)
{
    spry_error error;
    uint32_t random = 7;
    assert_int_equal(spry_ops_get(&s->ops, cpu, &error), SPRY_OK);
    assert_int_equal(spry_threads_create(&s->threads, 2, &error), SPRY_OK);
    for (size_t i = 0; i < OUTPUTS * INPUTS; i++) {
        random = random * 1664525u + 1013904223u;
        float value = (float)(int32_t)random * (i % 5 ? 0x1p-31f : 0x1p-48f); /* some are subnormal halves */
        uint16_t half = spry_f16_encode(spry_bf16_decode(spry_bf16_encode(value)));
        s->halves[i / INPUTS][i % INPUTS] = half;
        s->brains[i / INPUTS][i % INPUTS] = spry_bf16_encode(spry_f16_decode(half));
    }
    for (size_t i = 0; i < ROWS * INPUTS; i++) {
        random = random * 1664525u + 1013904223u;
        s->in[i / INPUTS][i % INPUTS] = (float)(int32_t)random * 0x1p-31f;
    }
}

static spry_weight weight_of(const uint16_t values[OUTPUTS][INPUTS], spry_dtype type)
{
    return (spry_weight){.data = (const unsigned char *)values[0],
                         .type = type,
                         .n_out = OUTPUTS,
                         .n_in = INPUTS,
                         .row_bytes = sizeof values[0]};
}

/* Packs and multiplies; returns the type of the groups. */
static spry_dtype product(float out[ROWS][OUTPUTS], const scene *s, spry_weight w)
{
    static _Alignas(64) unsigned char groups[(OUTPUTS + SPRY_PACK_MAX_ROWS) * INPUTS * 2];
    size_t bytes;
    assert_true(spry_weight_packed_bytes(&bytes, &w, s->ops) && bytes <= sizeof groups);
    if (bytes)
        spry_weight_pack(&w, groups, s->ops, s->threads, false);
    const spry_matmul m = {.out = out[0],
                           .out_stride = OUTPUTS,
                           .weight = bytes ? groups : w.data,
                           .weight_stride = bytes ? w.group_bytes : w.row_bytes,
                           .act = s->in,
                           .act_stride = sizeof s->in[0],
                           .n_rows = ROWS,
                           .n_in = INPUTS};
    s->ops->matmul[spry_weight_kernel_type(&w)].run(&m, 0, w.n_out);
    return spry_weight_kernel_type(&w);
}

static void check_matrix(const char *cpu)
{
    static scene s;
    static float a[ROWS][OUTPUTS], b[ROWS][OUTPUTS];
    fill_scene(&s, cpu);
    spry_dtype narrow = s.ops->matmul[SPRY_F16].narrow, expected = narrow ? narrow : SPRY_F16;
    assert_int_equal(narrow, s.ops->matmul[SPRY_BF16].bf16 && s.ops->matmul[SPRY_F16].group ? SPRY_BF16 : SPRY_F32);
    if (narrow) {
        assert_int_equal(s.ops->matmul[narrow].group, s.ops->matmul[SPRY_F16].group);
        assert_int_equal(spry_packed_row_bytes(narrow), spry_packed_row_bytes(SPRY_F16));
    }
    assert_int_equal(product(a, &s, weight_of(s.halves, SPRY_F16)), expected);
    assert_int_equal(product(b, &s, weight_of(s.brains, SPRY_BF16)), SPRY_BF16);
    if (narrow)
        assert_memory_equal(a, b, sizeof a);
    s.halves[OUTPUTS - 1][INPUTS - 1] = 0x3c01;
    assert_int_equal(product(b, &s, weight_of(s.halves, SPRY_F16)), SPRY_F16);
    if (narrow)
        assert_memory_not_equal(a, b, sizeof a); /* all inputs count as they are */
    /* Ranks that have other rows of the matrix multiply as the one that has this value. */
    spry_weight part = weight_of(s.halves, SPRY_F16);
    part.n_out = 16;
    assert_int_equal(product(a, &s, part), expected);
    part.n_after = OUTPUTS - 16;
    assert_int_equal(product(a, &s, part), SPRY_F16);
    for (size_t row = 0; row < ROWS; row++)
        assert_memory_equal(a[row], b[row], 16 * sizeof(float));
    part = weight_of(s.halves, SPRY_F16);
    s.halves[OUTPUTS - 1][INPUTS - 1] = 0;
    s.halves[0][0] = 0x3c01;
    part.data += 16 * part.row_bytes;
    part.n_out = OUTPUTS - 16;
    assert_int_equal(product(a, &s, part), expected);
    part.n_before = 16;
    assert_int_equal(product(a, &s, part), SPRY_F16);
    spry_threads_destroy(s.threads);
}

static void a_matrix_has_the_bits_of_bf16(void **state)
{
    (void)state;
    char names[256];
    snprintf(names, sizeof names, "%s", spry_ops_names());
    for (char *rest = names, *cpu; (cpu = strtok_r(rest, ", ", &rest));)
        check_matrix(cpu);
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

enum { PROMPT = 23 };

/* Logits of the model in a folder, written as `type` first. */
static void eval_as(float *out, const char *folder, const char *type, const char *cpu)
{
    char path[] = "/tmp/spry-narrow-XXXXXX";
    spry_error error = {0};
    spry_threads *threads = NULL;
    spry_model *model = NULL;
    spry_export how = {0};
    assert_int_equal(close(mkstemp(path)), 0);
    if (spry_model_open(&model, folder, &error) || spry_recipe_find(&how.recipe, type, &error) ||
        spry_threads_create(&threads, 1, &error))
        fail_msg("%s", error.message);
    how.threads = threads;
    if (spry_model_export(model, path, &how, &error))
        fail_msg("%s", error.message);
    spry_threads_destroy(threads);
    spry_model_close(model);

    spry_engine_options options;
    spry_engine_options_default(&options);
    options.cpu = cpu;
    options.threads = 1;
    spry_engine *e = fixture_open(path, &options);
    spry_session *session = fixture_session(e);
    int32_t ids[PROMPT];
    const float *logits;
    fixture_ids(ids, PROMPT, 5);
    if (spry_session_eval(session, &logits, ids, PROMPT, &error))
        fail_msg("%s", error.message);
    memcpy(out, logits, FIXTURE_VOCAB * sizeof *out);
    spry_session_destroy(session);
    spry_engine_close(e);
    unlink(path);
}

/* Checkpoints of BF16 weights, one with a tied embedding and one with experts. */
static void a_model_has_the_bits_of_bf16(void **state)
{
    (void)state;
    static float a[FIXTURE_VOCAB], b[FIXTURE_VOCAB];
    static const char *const models[] = {"qwen2", "gemma3", "qwen3-moe"};
    const spry_ops *ops;
    spry_error error;
    char names[256];
    snprintf(names, sizeof names, "%s", spry_ops_names());
    for (char *rest = names, *cpu; (cpu = strtok_r(rest, ", ", &rest));)
        for (size_t i = 0; i < SPRY_COUNT(models); i++) {
            assert_int_equal(spry_ops_get(&ops, cpu, &error), SPRY_OK);
            if (!ops->matmul[SPRY_F16].narrow)
                continue;
            char folder[512];
            snprintf(folder, sizeof folder, "%s/models/%s", TEST_DATA, models[i]);
            eval_as(a, folder, "f16", cpu);
            eval_as(b, folder, "bf16", cpu);
            if (memcmp(a, b, sizeof a))
                fail_msg("%s, %s: f16 and bf16 differ", models[i], cpu);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_judged),         cmocka_unit_test(bf16_checkpoints_stay_exact),
        cmocka_unit_test(one_value_is_found_anywhere),  cmocka_unit_test(a_matrix_has_the_bits_of_bf16),
        cmocka_unit_test(a_model_has_the_bits_of_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
