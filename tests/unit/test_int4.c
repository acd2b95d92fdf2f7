/* Checkpoints of GPTQ and AWQ: each weight is what their formulas say, packed in 4 bits; and everything that can be
 * wrong with them. The numbers are random, so nothing can be right by accident. */
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

typedef enum form { GPTQ, GPTQ_V2, AWQ } form;
typedef enum fault { NONE, NO_ZEROS, NO_SCALES, SHORT_WEIGHT, ORDER } fault;

/* A made matrix. */
typedef struct matrix {
    char name[96]; /* without suffix */
    size_t n_out, n_in;
    unsigned char *q, *zero; /* [n_out, n_in], [n_out, groups] */
    uint16_t *scale;         /* [n_out, groups] */
} matrix;

static uint64_t seed;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static void make(matrix *m, bool symmetric)
{
    size_t groups = m->n_in / GROUP;
    m->q = malloc(m->n_out * m->n_in);
    m->zero = malloc(m->n_out * groups);
    m->scale = malloc(m->n_out * groups * sizeof *m->scale);
    assert_true(m->q && m->zero && m->scale);
    for (size_t i = 0; i < m->n_out * m->n_in; i++)
        m->q[i] = draw() % 16;
    for (size_t i = 0; i < m->n_out * groups; i++) {
        m->zero[i] = symmetric ? 8 : (unsigned char)(1 + draw() % 15);
        m->scale[i] = (uint16_t)(0x2000 + draw() % 0x800); /* 2^-7 to 2^-5 */
    }
}

/* Eight numbers a word: plain order, or AWQ's. */
static void pack(uint32_t *word, size_t place, unsigned value, bool awq)
{
    static const unsigned order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    *word |= (uint32_t)value << 4 * (awq ? order[place] : place);
}

static void write_matrix(made_safetensors *f, const matrix *m, form kind, fault wrong)
{
    size_t groups = m->n_in / GROUP, words = m->n_out * m->n_in / 8;
    uint32_t *weight = calloc(words, 4), *zeros = calloc(groups * m->n_out / 8, 4), *index = calloc(m->n_in, 4);
    uint16_t *scales = calloc(groups * m->n_out, 2);
    assert_true(weight && zeros && index && scales);
    for (size_t o = 0; o < m->n_out; o++) {
        for (size_t i = 0; i < m->n_in; i++)
            if (kind == AWQ)
                pack(&weight[i * (m->n_out / 8) + o / 8], o % 8, m->q[o * m->n_in + i], true);
            else
                pack(&weight[i / 8 * m->n_out + o], i % 8, m->q[o * m->n_in + i], false);
        for (size_t g = 0; g < groups; g++) {
            pack(&zeros[g * (m->n_out / 8) + o / 8], o % 8, m->zero[o * groups + g] - (kind == GPTQ ? 1u : 0u),
                 kind == AWQ);
            scales[g * m->n_out + o] = m->scale[o * groups + g];
        }
    }
    for (size_t i = 0; i < m->n_in; i++)
        index[i] = (uint32_t)((wrong == ORDER ? m->n_in - 1 - i : i) / GROUP);
    size_t rows = kind == AWQ ? m->n_in : m->n_in / 8, columns = kind == AWQ ? m->n_out / 8 : m->n_out;
    made_safetensors_put(f, m->name, ".qweight", "I32", wrong == SHORT_WEIGHT ? rows - 1 : rows, columns, weight,
                         (words - (wrong == SHORT_WEIGHT ? columns : 0)) * 4);
    if (wrong != NO_ZEROS)
        made_safetensors_put(f, m->name, ".qzeros", "I32", groups, m->n_out / 8, zeros, groups * m->n_out / 8 * 4);
    if (wrong != NO_SCALES)
        made_safetensors_put(f, m->name, ".scales", "F16", groups, m->n_out, scales, groups * m->n_out * 2);
    if (kind != AWQ)
        made_safetensors_put(f, m->name, ".g_idx", "I32", m->n_in, 0, index, m->n_in * 4);
    free(weight);
    free(zeros);
    free(index);
    free(scales);
}

typedef struct stored {
    const matrix *m;
    form kind;
    fault wrong;
} stored;

static bool put_stored(void *context, made_safetensors *f, const char *name, const spry_tensor *t)
{
    const stored *w = context;
    (void)t;
    if (strncmp(name, w->m->name, strlen(w->m->name)) != 0)
        return false;
    write_matrix(f, w->m, w->kind, w->wrong);
    return true;
}

/* The Llama fixture with matrix `at` of the first layer in the given form; its other tensors as they are. */
static void fill(scratch *s, matrix *m, form kind, fault wrong)
{
    stored w = {m, kind, wrong};
    made_model(s, "llama", put_stored, &w,
               json_pack("{s:s, s:i, s:i, s:s}", "quant_method", kind == AWQ ? "awq" : "gptq", "bits", 4, "group_size",
                         GROUP, kind == AWQ ? "version" : "checkpoint_format",
                         kind == AWQ       ? "gemm"
                         : kind == GPTQ_V2 ? "gptq_v2"
                                           : "gptq"));
}

static void unmake(matrix *m)
{
    free(m->q);
    free(m->zero);
    free(m->scale);
}

static matrix down_of_first(void)
{
    char path[SCRATCH_PATH];
    spry_model *model;
    matrix m = {.name = "model.layers.0.mlp.down_proj"};
    assert_int_equal(spry_model_open(&model, model_path(path, "llama", ""), NULL), SPRY_OK);
    m.n_out = model->config.n_embd;
    m.n_in = model->config.n_ff;
    spry_model_close(model);
    assert_int_equal(m.n_in % GROUP, 0);
    return m;
}

static void weights_are_what_the_formulas_say(void **state)
{
    scratch *s = *state;
    for (int kind = GPTQ; kind <= AWQ; kind++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            spry_error error = {0};
            spry_model *model;
            const spry_ops *ops;
            matrix m = down_of_first();
            seed = (uint64_t)kind * 2 + (uint64_t)symmetric;
            make(&m, symmetric);
            fill(s, &m, (form)kind, NONE);
            if (spry_model_open(&model, s->folder, &error))
                fail_msg("%s", error.message);
            const spry_weight *w = &model->weights.layers[0].down;
            assert_int_equal(w->type, symmetric ? SPRY_Q4_0 : SPRY_Q4_1);
            assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
            float *row = malloc(m.n_in * sizeof *row);
            assert_non_null(row);
            for (size_t o = 0; o < m.n_out; o++) {
                ops->decode[w->type](row, w->data + o * w->row_bytes, m.n_in);
                for (size_t i = 0; i < m.n_in; i++) {
                    size_t group = o * (m.n_in / GROUP) + i / GROUP;
                    double scale = (double)spry_f16_decode(m.scale[group]);
                    double wanted = scale * ((double)m.q[o * m.n_in + i] - m.zero[group]);
                    double allowed =
                        symmetric ? 0 : scale * m.zero[group] * 0x1p-10; /* the product is kept in 16 bits */
                    if (fabs((double)row[i] - wanted) > allowed)
                        fail_msg("form %d, [%zu, %zu]: %g, not %g", kind, o, i, (double)row[i], wanted);
                }
            }
            free(row);
            unmake(&m);
            spry_model_close(model);
        }
}

static void faults_are_named(void **state)
{
    scratch *s = *state;
    static const struct {
        form kind;
        fault wrong;
        const char *says;
    } cases[] = {{GPTQ, NO_ZEROS, "qzeros"},
                 {AWQ, NO_SCALES, "scales"},
                 {GPTQ, SHORT_WEIGHT, "qweight"},
                 {AWQ, SHORT_WEIGHT, "qweight"},
                 {GPTQ_V2, ORDER, "desc_act"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_error error = {0};
        spry_model *model;
        matrix m = down_of_first();
        make(&m, true);
        fill(s, &m, cases[i].kind, cases[i].wrong);
        if (!spry_model_open(&model, s->folder, &error) || !strstr(error.message, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, error.message, cases[i].says);
        unmake(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_what_the_formulas_say),
        cmocka_unit_test(faults_are_named),
    };
    return cmocka_run_group_tests(tests, made_model_set_up, made_model_tear_down);
}
