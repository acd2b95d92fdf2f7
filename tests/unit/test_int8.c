/* Checkpoints of 8-bit whole numbers with scales: the weights are bit for bit what Q8_0 makes of the same floats,
 * models run like those floats, and every form that is not read is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "golden/model_runner.h"
#include "kernels/half.h"
#include "support/hostile.h"
#include "support/made_safetensors.h"

enum { GROUP = 32, IDS = 24 };

typedef enum form {
    CHANNEL,
    COLUMN,
    TENSOR,
    GROUPS,
    FLOATS
} form; /* scales [n, 1], [n], [1], [n, groups]; no scales */
typedef enum fault { NONE, NO_SCALE, SHORT_SCALE, ODD_GROUPS, ZERO_POINTS, ZEROS_OF_ZERO, HUGE_SCALE } fault;

static uint64_t seed;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* Random numbers whose every block of 32 has a largest one, 127 or -127, so that encoding the floats as Q8_0 gives the
 * same numbers; scales that 16 bits hold exactly. */
static void put_matrix(made_safetensors *f, const char *name, size_t n_out, size_t n_in, form kind, fault wrong)
{
    size_t columns = kind == GROUPS ? n_in / GROUP : 1, n_scales = kind == TENSOR ? 1 : n_out * columns;
    int8_t *q = malloc(n_out * n_in);
    float *scales = malloc(n_scales * sizeof *scales), *floats = malloc(n_out * n_in * sizeof *floats);
    assert_true(q && scales && floats);
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = spry_f16_decode((uint16_t)(0x1000 + draw() % 0x400)); /* 2^-11 to 2^-10 */
    for (size_t i = 0; i < n_out * n_in; i++) {
        q[i] = (int8_t)(i % GROUP == 7 ? (draw() % 2 ? 127 : -127) : (int)(draw() % 255) - 127);
        floats[i] = (float)q[i] * scales[kind == TENSOR ? 0 : i / n_in * columns + i % n_in / (n_in / columns)];
    }
    if (wrong == HUGE_SCALE)
        scales[n_scales - 1] = 1e6f;
    if (kind == FLOATS)
        made_safetensors_put(f, name, "", "F32", n_out, n_in, floats, n_out * n_in * sizeof *floats);
    else
        made_safetensors_put(f, name, "", "I8", n_out, n_in, q, n_out * n_in);
    if (wrong == ODD_GROUPS)
        made_safetensors_put(f, name, "_scale", "F32", n_out, 3, floats, n_out * 3 * sizeof *floats);
    else if (kind != FLOATS && wrong != NO_SCALE)
        made_safetensors_put(f, name, "_scale", "F32", n_scales / columns - (wrong == SHORT_SCALE),
                             kind == COLUMN ? 0 : columns, scales,
                             (n_scales - (wrong == SHORT_SCALE)) * sizeof *scales);
    if (wrong == ZERO_POINTS || wrong == ZEROS_OF_ZERO) {
        memset(q, 0, n_out);
        q[n_out - 1] = wrong == ZERO_POINTS;
        made_safetensors_put(f, name, "_zero_point", "I8", n_out, 1, q, n_out);
    }
    free(q);
    free(scales);
    free(floats);
}

typedef struct wanted {
    form kind;
    fault wrong;
} wanted;

static bool put_projection(void *context, made_safetensors *f, const char *name, const spry_tensor *t)
{
    const wanted *w = context;
    if (!strstr(name, "_proj.weight"))
        return false;
    put_matrix(f, name, t->dims[0], t->dims[1], w->kind, w->wrong);
    return true;
}

/* The Llama fixture with every projection of its layers random, in the given form; its other tensors as they are. The
 * same numbers for every form but TENSOR and GROUPS. */
static void fill(scratch *s, form kind, fault wrong, json_t *quantization)
{
    wanted w = {kind, wrong};
    seed = 1;
    made_model(s, "llama", put_projection, &w, quantization);
}

static json_t *compressed(const char *format, const char *type, int bits, bool symmetric)
{
    return json_pack("{s:s, s:s, s:{s:{s:[s], s:{s:s, s:i, s:b, s:s}, s:{s:i, s:s}}}, s:[s]}", "quant_method",
                     "compressed-tensors", "format", format, "config_groups", "group_0", "targets", "Linear", "weights",
                     "type", type, "num_bits", bits, "symmetric", symmetric, "strategy", "channel", "input_activations",
                     "num_bits", 8, "strategy", "token", "ignore", "lm_head");
}

static spry_model *open_model(const scratch *s)
{
    spry_error error = {0};
    spry_model *model;
    if (spry_model_open(&model, s->folder, &error))
        fail_msg("%s", error.message);
    return model;
}

/* ---- what is read ------------------------------------------------------------------------------------------------ */

static void assert_same_blocks(const spry_weight *packed, const spry_weight *floats, const spry_ops *ops)
{
    unsigned char *row = malloc(packed->row_bytes);
    assert_non_null(row);
    assert_int_equal(packed->type, SPRY_Q8_0);
    assert_int_equal(floats->type, SPRY_F32);
    for (size_t o = 0; o < packed->n_out; o++) {
        ops->encode[SPRY_Q8_0](row, (const float *)(const void *)(floats->data + o * floats->row_bytes), packed->n_in);
        assert_memory_equal(row, packed->data + o * packed->row_bytes, packed->row_bytes);
    }
    free(row);
}

static void numbers_stay_as_they_are(void **state)
{
    scratch *s = *state, other;
    const spry_ops *ops;
    assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
    scratch_init(&other);
    fill(&other, FLOATS, NONE, NULL);
    spry_model *floats = open_model(&other);
    for (int kind = CHANNEL; kind <= COLUMN; kind++)
        for (int named = 0; named < 2; named++) {
            fill(s, (form)kind, NONE, named ? compressed("int-quantized", "int", 8, true) : NULL);
            spry_model *model = open_model(s);
            for (uint32_t i = 0; i < model->config.n_layers; i++) {
                const spry_layer *a = &model->weights.layers[i], *b = &floats->weights.layers[i];
                assert_same_blocks(&a->q, &b->q, ops);
                assert_same_blocks(&a->o, &b->o, ops);
                assert_same_blocks(&a->down, &b->down, ops);
            }
            spry_model_close(model);
        }
    spry_model_close(floats);
    scratch_deinit(&other);
}

/* One scale for all, and one for each group of inputs. */
static void scales_of_other_shapes(void **state)
{
    scratch *s = *state;
    for (int kind = TENSOR; kind <= GROUPS; kind++) {
        const spry_ops *ops;
        assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
        fill(s, (form)kind, kind == TENSOR ? ZEROS_OF_ZERO : NONE, NULL);
        spry_model *model = open_model(s);
        const spry_weight *w = &model->weights.layers[1].gate;
        assert_int_equal(w->type, SPRY_Q8_0);
        float *row = malloc(w->n_in * sizeof *row);
        assert_non_null(row);
        size_t different = 0;
        float first = 0;
        for (size_t o = 0; o < w->n_out; o++) {
            ops->decode[SPRY_Q8_0](row, w->data + o * w->row_bytes, w->n_in);
            for (size_t at = 0; at < w->n_in; at += GROUP) {
                float scale = fabsf(row[at + 7]) / 127; /* the largest of each block */
                assert_true(scale > 0x1p-12f && scale < 0x1p-9f);
                first = o || at ? first : scale;
                different += scale != first;
            }
        }
        assert_true(kind == TENSOR ? different == 0 : different > w->n_out);
        free(row);
        spry_model_close(model);
    }
}

/* Numbers that products take in 8 bits are off by at most 1 in 254 of the largest of their block. */
static void models_run_like_their_floats(void **state)
{
    scratch *s = *state, other;
    int32_t ids[IDS];
    for (int32_t i = 0; i < IDS; i++)
        ids[i] = i * 7 % 97;
    scratch_init(&other);
    fill(&other, FLOATS, NONE, NULL);
    fill(s, CHANNEL, NONE, compressed("int-quantized", "int", 8, true));
    static const char *const kernels[] = {"auto", "ref"};
    for (size_t k = 0; k < SPRY_COUNT(kernels); k++) {
        model_runner packed, floats;
        runner_open(&packed, s->folder, kernels[k], SPRY_F16, 1);
        runner_open(&floats, other.folder, kernels[k], SPRY_F16, 1);
        float *a = runner_logits(&packed, ids, IDS, IDS), *b = runner_logits(&floats, ids, IDS, IDS);
        size_t n = IDS * (size_t)packed.model->config.n_vocab;
        double apart = 0, size = 0, steps = 7.0 * packed.model->config.n_layers + 1;
        for (size_t i = 0; i < n; i++) {
            assert_true(isfinite(a[i]));
            apart += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
            size += (double)b[i] * (double)b[i];
        }
        assert_true(size > 0);
        if (sqrt(apart / size) > steps / 254)
            fail_msg("%s: logits are apart by %g of their size, more than %g", kernels[k], sqrt(apart / size),
                     steps / 254);
        free(a);
        free(b);
        runner_close(&packed);
        runner_close(&floats);
    }
    scratch_deinit(&other);
}

/* ---- what is not ------------------------------------------------------------------------------------------------- */

static void faults_are_named(void **state)
{
    scratch *s = *state;
    static const struct {
        form kind;
        fault wrong;
        const char *says;
    } cases[] = {{CHANNEL, NO_SCALE, "weight_scale' is missing"},
                 {CHANNEL, SHORT_SCALE, "weight_scale' has shape"},
                 {GROUPS, ODD_GROUPS, "weight_scale' has shape"},
                 {CHANNEL, ZERO_POINTS, "zero points other than 0"},
                 {CHANNEL, HUGE_SCALE, "has a scale of 1e+06"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        fill(s, cases[i].kind, cases[i].wrong, NULL);
        if (!spry_model_open(&model, s->folder, &error) || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
    }
}

static void other_forms_are_refused(void **state)
{
    scratch *s = *state;
    const struct {
        json_t *config;
        const char *says;
    } cases[] = {
        {compressed("marlin-24", "int", 4, true), "marlin-24"},
        {compressed("float-quantized", "float", 4, true), "num_bits"},
        {compressed("int-quantized", "int", 4, true), "num_bits"},
        {compressed("int-quantized", "float", 8, true), "type or num_bits"},
        {compressed("int-quantized", "int", 8, false), "not symmetric"},
        {json_pack("{s:s}", "quant_method", "compressed-tensors"), "its format"},
        {json_pack("{s:s, s:s, s:{s:s}}", "quant_method", "compressed-tensors", "format", "int-quantized",
                   "sparsity_config", "format", "sparse-24-bitmask"),
         "sparsity_config"},
        {json_pack("{s:s, s:b}", "quant_method", "bitsandbytes", "load_in_8bit", true), "bitsandbytes"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        fill(s, CHANNEL, NONE, cases[i].config);
        if (spry_model_open(&model, s->folder, &error) != SPRY_ERR_UNSUPPORTED || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stay_as_they_are),     cmocka_unit_test(scales_of_other_shapes),
        cmocka_unit_test(models_run_like_their_floats), cmocka_unit_test(faults_are_named),
        cmocka_unit_test(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, made_model_set_up, made_model_tear_down);
}
