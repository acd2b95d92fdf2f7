/* Checkpoints of 8-bit floats with scales for blocks: products equal the products of the same floats, whatever kernels
 * multiply, and what is not a number stays none. */
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
#include "support/made_safetensors.h"

enum { ROWS = 96, COLUMNS = 32, IDS = 40 }; /* of a scale; tokens */

typedef struct wanted {
    bool floats;          /* the same numbers as F32 */
    const char *not_ours; /* NULL, or a matrix with a byte that is not a number */
    uint64_t seed;
} wanted;

static uint32_t draw(wanted *w)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33);
}

static bool put(void *context, made_safetensors *f, const char *name, const spry_tensor *t)
{
    wanted *w = context;
    size_t n_out = t->dims[0], n_in = t->n_dims > 1 ? t->dims[1] : 0, columns = (n_in + COLUMNS - 1) / COLUMNS;
    size_t n_scales = (n_out + ROWS - 1) / ROWS * columns;
    if (!strstr(name, "_proj.weight"))
        return false;
    uint8_t *q = malloc(n_out * n_in);
    float *scales = malloc(n_scales * sizeof *scales), *floats = malloc(n_out * n_in * sizeof *floats);
    assert_true(q && scales && floats);
    for (size_t i = 0; i < n_scales; i++)
        scales[i] = 0x1p-12f + (float)(draw(w) % 1000) * 0x1p-20f;
    for (size_t i = 0; i < n_out * n_in; i++) {
        q[i] = (uint8_t)draw(w);
        q[i] = (q[i] & 0x7f) == 0x7f ? 0 : q[i];
        floats[i] = spry_e4m3_decode(q[i]) * scales[i / n_in / ROWS * columns + i % n_in / COLUMNS];
    }
    if (w->not_ours && strstr(name, w->not_ours))
        q[n_out * n_in / 2] = 0xff;
    if (w->floats) {
        made_safetensors_put(f, name, "", "F32", n_out, n_in, floats, n_out * n_in * sizeof *floats);
    } else {
        made_safetensors_put(f, name, "", "F8_E4M3", n_out, n_in, q, n_out * n_in);
        made_safetensors_put(f, name, "_scale_inv", "F32", n_scales / columns, columns, scales,
                             n_scales * sizeof *scales);
    }
    free(q);
    free(scales);
    free(floats);
    return true;
}

static void fill(scratch *s, wanted w)
{
    json_t *how =
        json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "fmt", "e4m3", "weight_block_size", ROWS, COLUMNS);
    made_model(s, "llama", put, &w, w.floats ? NULL : how);
    if (w.floats)
        json_decref(how);
}

/* Logits of all tokens in steps of `step`. *rounding: the share that sums in another order may be off by, a unit in the
 * last place for each term of the longest sum of each product. */
static float *logits_of(const char *folder, const char *kernels, size_t step, size_t *n, double *rounding)
{
    model_runner r;
    int32_t ids[IDS];
    for (int32_t i = 0; i < IDS; i++)
        ids[i] = i * 7 % 97;
    runner_open(&r, folder, kernels, SPRY_F32, 1);
    *n = IDS * (size_t)r.model->config.n_vocab;
    *rounding = (7.0 * r.model->config.n_layers + 1) * r.model->config.n_ff * 0x1p-24;
    float *logits = runner_logits(&r, ids, IDS, step);
    runner_close(&r);
    return logits;
}

static void models_run_like_their_floats(void **state)
{
    scratch *s = *state, other;
    size_t n;
    double rounding;
    scratch_init(&other);
    fill(s, (wanted){.seed = 1});
    fill(&other, (wanted){.floats = true, .seed = 1});
    static const char *const kernels[] = {"auto", "ref"};
    for (size_t k = 0; k < SPRY_COUNT(kernels); k++) {
        float *a = logits_of(s->folder, kernels[k], IDS, &n, &rounding),
              *b = logits_of(other.folder, kernels[k], IDS, &n, &rounding);
        float *single = logits_of(s->folder, kernels[k], 1, &n, &rounding);
        double apart = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
            size = fmax(size, fabs((double)b[i]));
        }
        assert_true(size > 0);
        if (!(apart <= size * rounding))
            fail_msg("%s: logits are %g apart of %g", kernels[k], apart, size);
        assert_memory_equal(a, single, n * sizeof *a); /* a row is the same in every step */
        free(a);
        free(b);
        free(single);
    }
    scratch_deinit(&other);
}

static void what_is_not_a_number_stays_none(void **state)
{
    scratch *s = *state;
    size_t n;
    double rounding;
    fill(s, (wanted){.not_ours = "layers.1.mlp.down_proj", .seed = 1});
    static const char *const kernels[] = {"auto", "ref"};
    for (size_t k = 0; k < SPRY_COUNT(kernels); k++) {
        float *logits = logits_of(s->folder, kernels[k], IDS, &n, &rounding);
        assert_true(isnan(logits[0]));
        free(logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_run_like_their_floats),
        cmocka_unit_test(what_is_not_a_number_stays_none),
    };
    return cmocka_run_group_tests(tests, made_model_set_up, made_model_tear_down);
}
