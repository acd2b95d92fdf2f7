/* 8-bit floats with one scale, a scale for each output, or for each block: the weights are the floats times the scales,
 * bit for bit; scales of other shapes are refused. */
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

typedef enum form { TENSOR, CHANNEL, COLUMN, BLOCKS, INVERSE_TENSOR, NO_SCALE, ODD } form;

enum { BLOCK = 128 };

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* The scale of an element: powers of two, so that products are exact. */
static float scale_of(form kind, size_t row, size_t column)
{
    size_t number = kind == CHANNEL || kind == COLUMN ? row : kind == BLOCKS ? row / BLOCK * 3 + column / BLOCK : 0;
    return ldexpf(1, -4 - (int)(number % 7));
}

static unsigned char value_of(size_t row, size_t column)
{
    uint64_t seed = row * 7919 + column;
    draw(&seed);
    unsigned char byte = (unsigned char)draw(&seed);
    return (byte & 0x7f) == 0x7f ? 0x3c : byte; /* not a number: another one */
}

static bool put_projection(void *context, made_safetensors *f, const char *name, const spry_tensor *t)
{
    form kind = *(const form *)context;
    size_t n_out = t->dims[0], n_in = t->dims[1];
    if (!strstr(name, "_proj.weight"))
        return false;
    unsigned char *bytes = malloc(n_out * n_in);
    float *scales = malloc(n_out * n_in * sizeof *scales);
    assert_true(bytes && scales);
    for (size_t i = 0; i < n_out * n_in; i++)
        bytes[i] = value_of(i / n_in, i % n_in);
    size_t block = kind == BLOCKS ? BLOCK : 1;
    size_t rows = kind == TENSOR || kind == INVERSE_TENSOR ? 1 : (n_out + block - 1) / block;
    size_t columns = kind == BLOCKS ? (n_in + BLOCK - 1) / BLOCK : kind == ODD ? 3 : 1;
    for (size_t i = 0; i < rows * columns; i++)
        scales[i] = scale_of(kind, i / columns * block, i % columns * block);
    made_safetensors_put(f, name, "", "F8_E4M3", n_out, n_in, bytes, n_out * n_in);
    if (kind != NO_SCALE)
        made_safetensors_put(f, name, kind == INVERSE_TENSOR ? "_scale_inv" : "_scale", "F32", rows,
                             kind == TENSOR || kind == COLUMN ? 0 : columns, scales, rows * columns * sizeof *scales);
    free(bytes);
    free(scales);
    return true;
}

static json_t *floats(void)
{
    return json_pack("{s:s, s:s, s:{s:{s:{s:s, s:i, s:b}}}}", "quant_method", "compressed-tensors", "format",
                     "float-quantized", "config_groups", "group_0", "weights", "type", "float", "num_bits", 8,
                     "symmetric", 1);
}

static void check_matrix(const spry_weight *w, form kind, const spry_ops *ops)
{
    float *row = malloc(w->n_in * sizeof *row);
    assert_non_null(row);
    assert_int_equal(w->type, SPRY_F8);
    for (size_t o = 0; o < w->n_out; o++) {
        ops->decode[w->type](row, w->data + o * w->row_bytes, w->n_in);
        for (size_t i = 0; i < w->n_in; i++) {
            float wanted = spry_e4m3_decode(value_of(o, i)) * scale_of(kind, o, i);
            assert_memory_equal(&row[i], &wanted, sizeof wanted);
        }
    }
    free(row);
}

static void every_form_is_read(void **state)
{
    scratch *s = *state;
    const spry_ops *ops;
    assert_int_equal(spry_ops_get(&ops, "ref", NULL), SPRY_OK);
    for (int i = TENSOR; i <= INVERSE_TENSOR; i++)
        for (int named = 0; named < 2; named++) {
            form kind = (form)i;
            spry_model *model;
            spry_error error = {0};
            made_model(s, "llama", put_projection, &kind, named ? floats() : NULL);
            if (spry_model_open(&model, s->folder, &error))
                fail_msg("form %d: %s", i, error.message);
            for (uint32_t layer = 0; layer < model->config.n_layers; layer++) {
                check_matrix(&model->weights.layers[layer].q, kind, ops);
                check_matrix(&model->weights.layers[layer].down, kind, ops);
            }
            spry_model_close(model);
        }
}

static void other_forms_are_refused(void **state)
{
    scratch *s = *state;
    static const struct {
        form kind;
        const char *words;
    } cases[] = {{NO_SCALE, "weight_scale_inv' is missing"}, {ODD, "weight_scale' has shape"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        form kind = cases[i].kind;
        spry_model *model;
        spry_error error = {0};
        made_model(s, "llama", put_projection, &kind, NULL);
        spry_status status = spry_model_open(&model, s->folder, &error);
        hostile_expect(status, &error, SPRY_ERR_FORMAT, cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, made_model_set_up, made_model_tear_down);
}
