/* GGUF files of DeepSeek as they were made before 2025: the heads' two matrices in one tensor, sizes under other keys.
 * They give the same bits as the newer form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "formats/gguf_writer.h"
#include "golden/golden_file.h"
#include "golden/golden_models.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "support/must.h"

static void export(const char *path, const spry_model *model)
{
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    must(spry_recipe_find(&recipe, "f32", &error), &error);
    must(spry_threads_create(&threads, 1, &error), &error);
    const spry_export options = {.recipe = recipe, .threads = threads};
    must(spry_model_export(model, path, &options, &error), &error);
    spry_threads_destroy(threads);
}

static bool ends(spry_view text, const char *with)
{
    return spry_view_ends(text, spry_view_of(with));
}

static void copy_keys(spry_gguf_writer *writer, const spry_gguf *from, const spry_config *c)
{
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(from, i);
        if (!ends(entry->key, "_mla") && !ends(entry->key, "attention.key_length") &&
            !ends(entry->key, "attention.value_length") && !ends(entry->key, "attention.head_count_kv") &&
            !spry_view_is(entry->key, "general.alignment"))
            spry_gguf_writer_entry(writer, entry);
    }
    spry_gguf_writer_u32(writer, "deepseek2.attention.head_count_kv", c->n_heads);
    spry_gguf_writer_u32(writer, "deepseek2.attention.key_length", c->nope_dim + c->rope_dim);
    spry_gguf_writer_u32(writer, "deepseek2.attention.value_length", c->value_dim);
}

static unsigned long layer_of(const spry_tensor *t)
{
    return strtoul(t->name.data + strlen("blk."), NULL, 10);
}

/* The tensor that an older file has in place of one; false: none. */
static bool older(spry_tensor *out, char name[64], const spry_tensor *t, const spry_config *c)
{
    *out = *t;
    if (ends(t->name, ".attn_v_b.weight"))
        return false;
    if (!ends(t->name, ".attn_k_b.weight"))
        return true;
    snprintf(name, 64, "blk.%lu.attn_kv_b.weight", layer_of(t));
    *out = (spry_tensor){.name = spry_view_of(name), .n_dims = 2, .type = SPRY_F32};
    out->dims[0] = (size_t)c->n_heads * (c->nope_dim + c->value_dim);
    out->dims[1] = c->n_kv_rank;
    out->dims[2] = out->dims[3] = 1;
    return true;
}

/* Keys' rows are columns of the newer form. */
static void write_both(spry_gguf_writer *writer, const spry_layer *l, const spry_config *c)
{
    spry_error error = {0};
    size_t rank = c->n_kv_rank;
    float *row = malloc(rank * sizeof *row);
    assert_non_null(row);
    for (size_t h = 0; h < c->n_heads; h++) {
        const float *keys = (const float *)(const void *)l->k_b[h].data;
        for (size_t o = 0; o < c->nope_dim; o++) {
            for (size_t i = 0; i < rank; i++)
                row[i] = keys[i * c->nope_dim + o];
            must(spry_gguf_writer_data(writer, row, rank * sizeof *row, &error), &error);
        }
        must(spry_gguf_writer_data(writer, l->v_b[h].data, c->value_dim * rank * sizeof *row, &error), &error);
    }
    free(row);
}

static void write_older(const char *path, const char *newer)
{
    spry_error error = {0};
    spry_model *m;
    spry_gguf_writer *writer;
    must(spry_model_open(&m, newer, &error), &error);
    must(spry_gguf_writer_create(&writer, &error), &error);
    size_t n = spry_gguf_tensor_count(m->gguf);
    char(*names)[64] = calloc(n, sizeof *names);
    assert_non_null(names);
    copy_keys(writer, m->gguf, &m->config);
    for (size_t i = 0; i < n; i++) {
        spry_tensor t;
        if (older(&t, names[i], spry_gguf_tensor(m->gguf, i), &m->config))
            spry_gguf_writer_tensor(writer, &t);
    }
    must(spry_gguf_writer_begin(writer, path, &error), &error);
    for (size_t i = 0; i < n; i++) {
        spry_tensor t;
        const spry_tensor *from = spry_gguf_tensor(m->gguf, i);
        if (!older(&t, names[i], from, &m->config))
            continue;
        if (t.data)
            must(spry_gguf_writer_data(writer, t.data, t.bytes, &error), &error);
        else
            write_both(writer, &m->weights.layers[layer_of(from)], &m->config);
    }
    must(spry_gguf_writer_finish(writer, &error), &error);
    spry_gguf_writer_destroy(writer);
    free(names);
    spry_model_close(m);
}

static void test_older_files(void **state)
{
    (void)state;
    static const char *const models[] = {"deepseek-v2", "deepseek-v3"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        char folder[512], newer[] = "/tmp/spry-newer-XXXXXX", path[] = "/tmp/spry-older-XXXXXX";
        if (!golden_folder(folder, models[i]))
            continue;
        spry_error error = {0};
        spry_model *model;
        golden_file golden = {0};
        model_runner first, second;
        assert_int_equal(close(mkstemp(newer)) + close(mkstemp(path)), 0);
        must(spry_model_open(&model, folder, &error), &error);
        export(newer, model);
        spry_model_close(model);
        write_older(path, newer);
        golden_open(&golden, folder);
        const golden_case *c = &golden.cases[0];
        runner_open(&first, newer, "ref", SPRY_F32, 1);
        runner_open(&second, path, "ref", SPRY_F32, 1);
        float *a = runner_logits(&first, c->ids, c->n_ids, 32), *b = runner_logits(&second, c->ids, c->n_ids, 32);
        assert_memory_equal(a, b, c->n_ids * golden.n_vocab * sizeof *a);
        free(a);
        free(b);
        runner_close(&first);
        runner_close(&second);
        golden_close(&golden);
        unlink(newer);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_older_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
