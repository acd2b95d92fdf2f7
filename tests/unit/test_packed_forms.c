/* Checkpoints of compressed-tensors and ModelOpt with packed weights: each value is what the format's formula says; and
 * what can be wrong with them. The numbers are random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/half.h"
#include "model/model.h"
#include "support/hostile.h"
#include "support/made_safetensors.h"

enum { GROUP = 32 };

typedef enum form { INT4, INT4_ZEROS, INT8, NVFP4, MODELOPT, MXFP4, FORMS } form;
typedef enum fault { NONE, NO_SCALE, SHORT_WEIGHT, ORDER, NEGATIVE, NO_FACTOR, BAD_FACTOR } fault;

/* A matrix in its form, and its values. */
typedef struct matrix {
    const char *name;
    form form;
    fault fault;
    size_t n_out, n_in;
    double *values;
    uint64_t random;
} matrix;

static unsigned draw(matrix *m, unsigned below)
{
    return (unsigned)(hostile_random(&m->random) >> 33) % below;
}

static double e2m1(unsigned q)
{
    static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return q & 8 ? -sizes[q & 7] : sizes[q];
}

static double e4m3(unsigned q)
{
    return q >> 3 ? ldexp(8 + (q & 7), (int)(q >> 3) - 10) : ldexp(q, -9);
}

static size_t rows_of(const matrix *m)
{
    return m->n_out - (m->fault == SHORT_WEIGHT);
}

static void put_integers(matrix *m, made_safetensors *f)
{
    unsigned bits = m->form == INT8 ? 8 : 4, middle = 1u << (bits - 1);
    size_t groups = m->n_in / GROUP, in_word = 32 / bits;
    uint32_t *words = calloc(m->n_out * m->n_in / in_word, 4), *zeros = calloc(m->n_out / in_word * groups, 4);
    uint16_t *scales = calloc(m->n_out * groups, 2);
    int32_t *order = calloc(m->n_in, 4);
    assert_true(words && zeros && scales && order);
    for (size_t o = 0; o < m->n_out; o++)
        for (size_t g = 0; g < groups; g++) {
            unsigned zero = m->form == INT4_ZEROS ? 1 + draw(m, 15) : middle;
            uint16_t scale = (uint16_t)(0x2000 + draw(m, 0x800)); /* 2^-7 to 2^-5 */
            zeros[o / in_word * groups + g] |= zero << bits * (o % in_word);
            scales[o * groups + g] = scale;
            for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
                unsigned q = draw(m, 2 * middle);
                words[(o * m->n_in + i) / in_word] |= q << bits * (i % in_word);
                m->values[o * m->n_in + i] = (double)spry_f16_decode(scale) * ((double)q - zero);
            }
        }
    for (size_t i = 0; i < m->n_in; i++)
        order[i] = (int32_t)((m->fault == ORDER ? m->n_in - 1 - i : i) / GROUP);
    made_safetensors_put(f, m->name, ".weight_packed", "I32", rows_of(m), m->n_in / in_word, words,
                         rows_of(m) * m->n_in / in_word * 4);
    if (m->fault != NO_SCALE)
        made_safetensors_put(f, m->name, ".weight_scale", "F16", m->n_out, groups, scales, m->n_out * groups * 2);
    if (m->form == INT4_ZEROS)
        made_safetensors_put(f, m->name, ".weight_zero_point", "I32", m->n_out / in_word, groups, zeros,
                             m->n_out / in_word * groups * 4);
    made_safetensors_put(f, m->name, ".weight_g_idx", "I32", m->n_in, 0, order, m->n_in * 4);
    made_safetensors_put(f, m->name, ".weight_shape", "I64", 2, 0, (int64_t[]){(int64_t)m->n_out, (int64_t)m->n_in},
                         16);
    free(words), free(zeros), free(scales), free(order);
}

static void put_floats(matrix *m, made_safetensors *f)
{
    size_t group = m->form == MXFP4 ? 32 : 16, groups = m->n_in / group;
    unsigned char *pairs = calloc(m->n_out, m->n_in / 2), *scales = calloc(m->n_out, groups);
    const float factor = m->fault == BAD_FACTOR ? 0 : m->form == MODELOPT ? 0.0625f : 16;
    assert_true(pairs && scales);
    for (size_t o = 0; o < m->n_out; o++)
        for (size_t g = 0; g < groups; g++) {
            unsigned char scale = (unsigned char)(m->form == MXFP4 ? 120 + draw(m, 8) : 1 + draw(m, 126));
            double size = m->form == MXFP4 ? ldexp(1, scale - 127) : e4m3(scale) / 16;
            scales[o * groups + g] = m->fault == NEGATIVE ? scale | 128 : scale;
            for (size_t i = g * group; i < (g + 1) * group; i++) {
                unsigned q = draw(m, 16);
                pairs[(o * m->n_in + i) / 2] |= (unsigned char)(q << 4 * (i % 2));
                m->values[o * m->n_in + i] = size * e2m1(q);
            }
        }
    made_safetensors_put(f, m->name, m->form == MODELOPT ? ".weight" : ".weight_packed", "U8", rows_of(m), m->n_in / 2,
                         pairs, rows_of(m) * m->n_in / 2);
    if (m->fault != NO_SCALE)
        made_safetensors_put(f, m->name, ".weight_scale", m->form == MXFP4 ? "U8" : "F8_E4M3", m->n_out, groups, scales,
                             m->n_out * groups);
    if (m->form != MXFP4 && m->fault != NO_FACTOR)
        made_safetensors_put(f, m->name, m->form == MODELOPT ? ".weight_scale_2" : ".weight_global_scale", "F32", 1, 0,
                             &factor, 4);
    free(pairs), free(scales);
}

static bool put_stored(void *context, made_safetensors *f, const char *name, const spry_tensor *t)
{
    matrix *m = context;
    (void)t;
    if (strncmp(name, m->name, strlen(m->name)) != 0)
        return false;
    if (m->form <= INT8)
        put_integers(m, f);
    else
        put_floats(m, f);
    return true;
}

static json_t *compressed(const char *format, const char *type, int bits, bool symmetric)
{
    return json_pack("{s:s, s:s, s:{s:{s:{s:s, s:i, s:b}}}}", "quant_method", "compressed-tensors", "format", format,
                     "config_groups", "group_0", "weights", "type", type, "num_bits", bits, "symmetric", symmetric);
}

static json_t *settings(form kind)
{
    return kind == MODELOPT ? json_pack("{s:s, s:s}", "quant_method", "modelopt", "quant_algo", "NVFP4")
           : kind == NVFP4  ? compressed("nvfp4-pack-quantized", "float", 4, true)
           : kind == MXFP4  ? compressed("mxfp4-pack-quantized", "float", 4, true)
                            : compressed("pack-quantized", "int", kind == INT8 ? 8 : 4, kind != INT4_ZEROS);
}

/* A fixture with one matrix of its first layer in a form. */
static matrix fill(scratch *s, form kind, fault wrong)
{
    char path[SCRATCH_PATH];
    spry_model *model;
    matrix m = {.name = "model.layers.0.mlp.down_proj", .form = kind, .fault = wrong, .random = kind * 7u + 1};
    assert_int_equal(spry_model_open(&model, model_path(path, "llama-256", ""), NULL), SPRY_OK);
    m.n_out = model->config.n_embd;
    m.n_in = model->config.n_ff;
    spry_model_close(model);
    assert_int_equal(m.n_in % 64, 0);
    m.values = calloc(m.n_out * m.n_in, sizeof *m.values);
    assert_non_null(m.values);
    made_model(s, "llama-256", put_stored, &m, settings(kind));
    return m;
}

static void values_are_what_the_formulas_say(void **state)
{
    static const spry_dtype types[] = {SPRY_Q4_0, SPRY_Q4_1, SPRY_Q8_0, SPRY_NVFP4, SPRY_NVFP4, SPRY_MXFP4};
    scratch *s = *state;
    for (int kind = 0; kind < FORMS; kind++) {
        spry_error error = {0};
        spry_model *model;
        const spry_ops *ops;
        matrix m = fill(s, (form)kind, NONE);
        if (spry_model_open(&model, s->folder, &error))
            fail_msg("form %d: %s", kind, error.message);
        const spry_weight *w = &model->weights.layers[0].down;
        assert_int_equal(w->type, types[kind]);
        assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
        float *row = malloc(m.n_in * sizeof *row);
        assert_non_null(row);
        for (size_t o = 0; o < m.n_out; o++) {
            ops->decode[w->type](row, w->data + o * w->row_bytes, m.n_in);
            for (size_t i = 0; i < m.n_in; i++) {
                double got = (double)row[i] * (w->scale != 0 ? (double)w->scale : 1);
                double wanted = m.values[o * m.n_in + i];
                double allowed = kind == INT4_ZEROS ? 0x1p-5 * 15 * 0x1p-10 : 0; /* a minimum is kept in 16 bits */
                if (!(fabs(got - wanted) <= allowed))
                    fail_msg("form %d, [%zu, %zu]: %g, not %g", kind, o, i, got, wanted);
            }
        }
        free(row);
        free(m.values);
        spry_model_close(model);
    }
}

static void faults_are_named(void **state)
{
    scratch *s = *state;
    static const struct {
        form form;
        fault fault;
        const char *says;
    } cases[] = {{INT4, NO_SCALE, "weight_scale' is missing"},
                 {INT8, SHORT_WEIGHT, "weight_packed' has shape"},
                 {INT4, ORDER, "actorder"},
                 {NVFP4, NEGATIVE, "negative"},
                 {MODELOPT, NO_FACTOR, "weight_scale_2' is"},
                 {NVFP4, NO_FACTOR, "weight_global_scale' is"},
                 {NVFP4, BAD_FACTOR, "weight_global_scale' hol"},
                 {MXFP4, SHORT_WEIGHT, "weight_packed' has shape"},
                 {MODELOPT, NO_SCALE, "weight_scale' is missing"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        matrix m = fill(s, cases[i].form, cases[i].fault);
        spry_status status = spry_model_open(&model, s->folder, &error);
        if (!status || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
        free(m.values);
    }
}

static void other_settings_are_refused(void **state)
{
    scratch *s = *state;
    const struct {
        json_t *settings;
        const char *says;
    } cases[] = {{compressed("pack-quantized", "int", 3, true), "num_bits"},
                 {compressed("pack-quantized", "int", 8, false), "not symmetric"},
                 {compressed("nvfp4-pack-quantized", "int", 4, true), "type or num_bits"},
                 {compressed("marlin-24", "int", 4, true), "its format"},
                 {json_pack("{s:s, s:s}", "quant_method", "modelopt", "quant_algo", "W4A8_AWQ"), "W4A8_AWQ"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        matrix m = {.name = "none", .form = INT4};
        made_model(s, "llama-256", put_stored, &m, cases[i].settings);
        if (spry_model_open(&model, s->folder, &error) != SPRY_ERR_UNSUPPORTED || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_what_the_formulas_say),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(other_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, made_model_set_up, made_model_tear_down);
}
