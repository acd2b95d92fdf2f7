/* LoRA adapters of random numbers, made for one test: a list of pairs of matrices, and files of it in both forms.
 * Include after cmocka.h. */
#ifndef SPRY_TESTS_MADE_ADAPTER_H
#define SPRY_TESTS_MADE_ADAPTER_H

#include <jansson.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "formats/gguf_writer.h"
#include "support/scratch.h"

enum { MADE_PAIRS = 256 };

typedef struct made_pair {
    char hf[128], gguf[64]; /* what it changes */
    size_t n_out, n_in, rank;
    size_t head;  /* not 0: GGUF files hold rows of heads of this size in another order */
    float *a, *b; /* [rank, n_in], [n_out, rank] */
} made_pair;

typedef struct made_adapter {
    made_pair pairs[MADE_PAIRS];
    size_t count;
    uint64_t seed;
} made_adapter;

static inline float made_number(made_adapter *m)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(m->seed >> 40) / (float)(1 << 23) - 1;
}

static inline float *made_numbers(made_adapter *m, size_t n, float size)
{
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = made_number(m) * size;
    return out;
}

static inline made_pair *made_add(made_adapter *m, const char *hf, const char *gguf, size_t n_out, size_t n_in,
                                  size_t rank, size_t head)
{
    assert_true(m->count < MADE_PAIRS);
    made_pair *p = &m->pairs[m->count++];
    *p = (made_pair){.n_out = n_out, .n_in = n_in, .rank = rank, .head = head};
    snprintf(p->hf, sizeof p->hf, "%s", hf);
    snprintf(p->gguf, sizeof p->gguf, "%s", gguf);
    p->a = made_numbers(m, rank * n_in, 0.3f);
    p->b = made_numbers(m, n_out * rank, 0.3f);
    return p;
}

static inline void made_deinit(made_adapter *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->pairs[i].a);
        free(m->pairs[i].b);
    }
    *m = (made_adapter){.seed = m->seed};
}

/* ---- Hugging Face ----------------------------------------------------------------------------------------------- */

static inline void made_put(spry_buffer *data, json_t *head, const char *name, size_t rows, size_t columns,
                            const float *values)
{
    json_int_t begin = (json_int_t)data->size;
    assert_true(spry_buffer_append(data, values, rows * columns * sizeof *values));
    json_object_set_new(head, name,
                        json_pack("{s:s, s:[I, I], s:[I, I]}", "dtype", "F32", "shape", (json_int_t)rows,
                                  (json_int_t)columns, "data_offsets", begin, (json_int_t)data->size));
}

/* A folder; `settings` replaces members of its adapter_config.json, and is taken. */
static inline const char *made_folder(scratch *s, const char *name, const made_adapter *m, json_t *settings)
{
    char file[SCRATCH_PATH];
    spry_buffer data;
    json_t *head = json_object(), *config = json_pack("{s:s, s:i, s:i}", "peft_type", "LORA", "r", 4, "lora_alpha", 8);
    spry_buffer_init(&data, 1 << 26);
    for (size_t i = 0; i < m->count; i++) {
        const made_pair *p = &m->pairs[i];
        char tensor[192];
        snprintf(tensor, sizeof tensor, "base_model.model.%s.lora_A.weight", p->hf);
        if (p->a)
            made_put(&data, head, tensor, p->rank, p->n_in, p->a);
        snprintf(tensor, sizeof tensor, "base_model.model.%s.lora_B.weight", p->hf);
        if (p->b)
            made_put(&data, head, tensor, p->n_out, p->rank, p->b);
    }
    if (settings)
        json_object_update(config, settings);
    json_decref(settings);
    mkdir(scratch_path(s, name), 0700);
    snprintf(file, sizeof file, "%s/adapter_config.json", name);
    assert_int_equal(json_dump_file(config, scratch_path(s, file), 0), 0);
    char *text = json_dumps(head, JSON_COMPACT);
    uint64_t size = strlen(text);
    spry_buffer whole;
    spry_buffer_init(&whole, 1 << 26);
    spry_buffer_append(&whole, &size, sizeof size);
    spry_buffer_append(&whole, text, size);
    assert_true(data.size ? spry_buffer_append(&whole, data.data, data.size) : true);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
    scratch_write(s, file, whole.data, whole.size);
    spry_buffer_deinit(&data);
    spry_buffer_deinit(&whole);
    free(text);
    json_decref(head);
    json_decref(config);
    return scratch_path(s, name);
}

static inline void made_remove_folder(scratch *s, const char *name)
{
    char file[SCRATCH_PATH];
    snprintf(file, sizeof file, "%s/adapter_config.json", name);
    unlink(scratch_path(s, file));
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", name);
    unlink(scratch_path(s, file));
    rmdir(scratch_path(s, name));
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* Row `row` of a GGUF file: llama.cpp's converter sees heads as [2, size / 2] rows and swaps these two. */
static inline size_t made_gguf_row(const made_pair *p, size_t row)
{
    if (!p->head)
        return row;
    size_t half = p->head / 2, in_head = row % p->head;
    return row - in_head + in_head % 2 * half + in_head / 2;
}

static inline void made_list(spry_gguf_writer *w, const char *name, size_t rows, size_t columns)
{
    const spry_tensor t = {.name = spry_view_of(name), .type = SPRY_F32, .n_dims = 2, .dims = {rows, columns, 1, 1}};
    spry_gguf_writer_tensor(w, &t);
}

static inline const char *made_gguf(scratch *s, const char *name, const made_adapter *m, const char *arch, float alpha)
{
    spry_gguf_writer *w;
    spry_error error = {0};
    static char names[2 * MADE_PAIRS][96];
    assert_int_equal(spry_gguf_writer_create(&w, &error), SPRY_OK);
    spry_gguf_writer_string(w, "general.architecture", spry_view_of(arch));
    spry_gguf_writer_string(w, "general.type", SPRY_VIEW("adapter"));
    spry_gguf_writer_string(w, "adapter.type", SPRY_VIEW("lora"));
    spry_gguf_writer_f32(w, "adapter.lora.alpha", alpha);
    for (size_t i = 0; i < m->count; i++) {
        const made_pair *p = &m->pairs[i];
        snprintf(names[2 * i], sizeof *names, "%s.weight.lora_a", p->gguf);
        snprintf(names[2 * i + 1], sizeof *names, "%s.weight.lora_b", p->gguf);
        made_list(w, names[2 * i], p->rank, p->n_in);
        made_list(w, names[2 * i + 1], p->n_out, p->rank);
    }
    assert_int_equal(spry_gguf_writer_begin(w, scratch_path(s, name), &error), SPRY_OK);
    for (size_t i = 0; i < m->count; i++) {
        const made_pair *p = &m->pairs[i];
        spry_gguf_writer_data(w, p->a, p->rank * p->n_in * sizeof *p->a, &error);
        for (size_t row = 0; row < p->n_out; row++)
            spry_gguf_writer_data(w, p->b + made_gguf_row(p, row) * p->rank, p->rank * sizeof *p->b, &error);
    }
    assert_int_equal(spry_gguf_writer_finish(w, &error), SPRY_OK);
    spry_gguf_writer_destroy(w);
    return scratch_path(s, name);
}

#endif
