/* GGUF files that mix types: every matrix of a layer in another one, among them those without kernels of their own and
 * NVFP4 with its factor. The model gives what it gives with the same values as floats, but for rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/compiler.h"
#include "formats/gguf_writer.h"
#include "golden/golden_models.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "support/must.h"

static void export(const char *path, const char *folder)
{
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    spry_model *model;
    must(spry_recipe_find(&recipe, "f32", &error), &error);
    must(spry_threads_create(&threads, 1, &error), &error);
    const spry_export options = {.recipe = recipe, .threads = threads};
    must(spry_model_open(&model, folder, &error), &error);
    must(spry_model_export(model, path, &options, &error), &error);
    spry_model_close(model);
    spry_threads_destroy(threads);
}

/* ---- recorded blocks --------------------------------------------------------------------------------------------- */

enum { VECTOR_VALUES = 768 };

typedef struct vectors {
    json_t *list;
    unsigned char *data;
} vectors;

static vectors read_vectors(void)
{
    vectors v = {json_load_file(TEST_DATA "/quants/vectors.json", 0, NULL), malloc(1 << 20)};
    FILE *file = fopen(TEST_DATA "/quants/vectors.bin", "rb");
    assert_true(v.list && v.data && file);
    assert_true(fread(v.data, 1, 1 << 20, file) > 1 << 18);
    fclose(file);
    return v;
}

/* Blocks of a type, of which the recorded ones follow each other from a place of their own on. */
static unsigned char *make_blocks(const vectors *v, spry_dtype type, size_t n_values, size_t first)
{
    size_t i, size = 0;
    json_t *item;
    const unsigned char *raw = NULL;
    json_array_foreach(v->list, i, item)
    {
        if (json_integer_value(json_object_get(item, "id")) == (json_int_t)type)
            raw = v->data + json_integer_value(json_object_get(item, "raw_offset"));
    }
    assert_true(raw && spry_dtype_size(&size, type, n_values));
    size_t block = spry_dtype_bytes(type), n = VECTOR_VALUES / spry_dtype_block(type);
    unsigned char *out = malloc(size);
    assert_non_null(out);
    for (size_t at = 0; at < size / block; at++)
        memcpy(out + at * block, raw + (first + at * 5) % n * block, block);
    return out;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const spry_dtype types[] = {SPRY_NVFP4,   SPRY_IQ1_S, SPRY_Q1_0, SPRY_IQ1_M,   SPRY_Q2_0, SPRY_Q4_K,
                                   SPRY_IQ2_XXS, SPRY_Q6_K,  SPRY_Q8_0, SPRY_IQ3_XXS, SPRY_Q5_K};
static const float factor = 0.75f;

static spry_dtype type_of(const spry_tensor *t, size_t index)
{
    bool matrix = t->n_dims == 2 && spry_view_starts(t->name, SPRY_VIEW("blk."));
    return matrix ? types[index % SPRY_COUNT(types)] : t->type;
}

/* The recorded blocks have large values. With small norms before them, scores of attention stay ordinary. */
static void write_small(spry_gguf_writer *writer, const spry_tensor *t)
{
    spry_error error = {0};
    for (size_t i = 0; i < t->bytes / sizeof(float); i++) {
        float value;
        memcpy(&value, t->data + i * sizeof value, sizeof value);
        value /= 256;
        must(spry_gguf_writer_data(writer, &value, sizeof value, &error), &error);
    }
}

/* Writes the model with mixed types, or with the same values as floats. */
static void write_mixed(const char *path, const spry_gguf *from, const vectors *v, bool floats)
{
    spry_error error = {0};
    spry_gguf_writer *writer;
    const spry_ops *ops;
    size_t n = spry_gguf_tensor_count(from);
    char(*names)[64] = calloc(n, sizeof *names);
    assert_non_null(names);
    must(spry_ops_get(&ops, "ref", &error), &error);
    must(spry_gguf_writer_create(&writer, &error), &error);
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++)
        spry_gguf_writer_entry(writer, spry_gguf_entry_at(from, i));
    for (size_t i = 0; i < n; i++) {
        spry_tensor t = *spry_gguf_tensor(from, i);
        spry_dtype type = type_of(&t, i);
        t.type = floats ? t.type : type;
        spry_gguf_writer_tensor(writer, &t);
        snprintf(names[i], 64, "%.*sscale", (int)t.name.size - 6, t.name.data); /* in place of "weight" */
        spry_tensor scale = {.name = spry_view_of(names[i]), .n_dims = 1, .dims = {1, 1, 1, 1}, .type = SPRY_F32};
        if (!floats && type == SPRY_NVFP4)
            spry_gguf_writer_tensor(writer, &scale);
    }
    must(spry_gguf_writer_begin(writer, path, &error), &error);
    for (size_t i = 0; i < n; i++) {
        const spry_tensor *t = spry_gguf_tensor(from, i);
        spry_dtype type = type_of(t, i);
        size_t count = t->dims[0] * t->dims[1], bytes;
        if (type == t->type && spry_view_starts(t->name, SPRY_VIEW("blk."))) { /* a norm */
            write_small(writer, t);
            continue;
        }
        if (type == t->type) {
            must(spry_gguf_writer_data(writer, t->data, t->bytes, &error), &error);
            continue;
        }
        unsigned char *blocks = make_blocks(v, type, count, i);
        float *values = malloc(count * sizeof *values);
        assert_true(values && spry_dtype_size(&bytes, type, count));
        ops->decode[type](values, blocks, count);
        if (type == SPRY_NVFP4)
            ops->scale(values, factor, count);
        must(floats ? spry_gguf_writer_data(writer, values, count * sizeof *values, &error)
                    : spry_gguf_writer_data(writer, blocks, bytes, &error),
             &error);
        if (!floats && type == SPRY_NVFP4)
            must(spry_gguf_writer_data(writer, &factor, sizeof factor, &error), &error);
        free(values);
        free(blocks);
    }
    must(spry_gguf_writer_finish(writer, &error), &error);
    spry_gguf_writer_destroy(writer);
    free(names);
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

enum { COUNT = 24 };

/* With plain kernels only sums are rounded. Integer kernels round activations to 8 bits, whose effect these random
 * weights amplify too much for a bound of single logits: there the signal of a row is at least 30 times its noise. */
static void compare_row(const char *cpu, size_t row, const float *got, const float *wanted, size_t n, double allowed)
{
    double noise = 0, signal = 0;
    for (size_t o = 0; o < n; o++) {
        double off = (double)got[o] - (double)wanted[o];
        if (!strcmp(cpu, "ref") && !(fabs(off) <= allowed))
            fail_msg("row %zu: %g, not %g, allowed %g", row, (double)got[o], (double)wanted[o], allowed);
        noise += off * off;
        signal += (double)wanted[o] * (double)wanted[o];
    }
    if (!(noise * 30 <= signal))
        fail_msg("%s: row %zu: the noise is %g of the signal", cpu, row, noise / signal);
}

static void compare(const char *mixed, const char *floats, const char *cpu)
{
    int32_t ids[COUNT];
    model_runner a, b;
    for (int32_t i = 0; i < COUNT; i++)
        ids[i] = (i * 37 + 5) % 500;
    runner_open(&a, mixed, cpu, SPRY_F32, 2);
    runner_open(&b, floats, "ref", SPRY_F32, 2);
    size_t n_vocab = a.model->config.n_vocab;
    float *got = runner_logits(&a, ids, COUNT, COUNT), *wanted = runner_logits(&b, ids, COUNT, COUNT);
    float *parts = runner_logits(&a, ids, COUNT, 5), *hidden = runner_hidden(&b, ids, COUNT);
    float *weights = malloc(b.model->config.n_embd * sizeof *weights);
    assert_non_null(weights);
    assert_memory_equal(got, parts, COUNT * n_vocab * sizeof *got);
    for (size_t row = 0; row < COUNT; row++)
        compare_row(cpu, row, got + row * n_vocab, wanted + row * n_vocab, n_vocab,
                    4 * logit_bound(&b, hidden, row, weights));
    free(got), free(wanted), free(parts), free(hidden), free(weights);
    runner_close(&a);
    runner_close(&b);
}

static void mixed_files_give_what_their_values_give(void **state)
{
    (void)state;
    char folder[512], plain[] = "/tmp/spry-plain-XXXXXX", mixed[] = "/tmp/spry-mixed-XXXXXX",
                      floats[] = "/tmp/spry-floats-XXXXXX";
    spry_error error = {0};
    spry_gguf *gguf;
    vectors v = read_vectors();
    golden_folder(folder, "llama-256");
    assert_int_equal(close(mkstemp(plain)) + close(mkstemp(mixed)) + close(mkstemp(floats)), 0);
    export(plain, folder);
    must(spry_gguf_open(&gguf, plain, &error), &error);
    write_mixed(mixed, gguf, &v, false);
    write_mixed(floats, gguf, &v, true);
    spry_gguf_close(gguf);
    compare(mixed, floats, "ref");
    compare(mixed, floats, "auto");
    json_decref(v.list);
    free(v.data);
    unlink(plain);
    unlink(mixed);
    unlink(floats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixed_files_give_what_their_values_give)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
