/* A safetensors file made tensor by tensor. Include after cmocka.h. */
#ifndef SPRY_TESTS_MADE_SAFETENSORS_H
#define SPRY_TESTS_MADE_SAFETENSORS_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "support/scratch.h"

typedef struct made_safetensors {
    spry_buffer data;
    json_t *head;
} made_safetensors;

static inline void made_safetensors_init(made_safetensors *f)
{
    f->head = json_object();
    spry_buffer_init(&f->data, SIZE_MAX / 2);
}

/* Adds a tensor `name` + `suffix`; `columns` 0: a vector. */
static inline void made_safetensors_put(made_safetensors *f, const char *name, const char *suffix, const char *type,
                                        size_t rows, size_t columns, const void *data, size_t bytes)
{
    char whole[160];
    json_int_t begin = (json_int_t)f->data.size;
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    json_t *shape =
        columns ? json_pack("[I, I]", (json_int_t)rows, (json_int_t)columns) : json_pack("[I]", (json_int_t)rows);
    assert_true(spry_buffer_append(&f->data, data, bytes));
    json_object_set_new(f->head, whole,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets", begin,
                                  begin + (json_int_t)bytes));
}

/* Writes model.safetensors and frees. */
static inline void made_safetensors_write(made_safetensors *f, scratch *s)
{
    char *head = json_dumps(f->head, JSON_COMPACT);
    uint64_t size = strlen(head);
    spry_buffer all;
    spry_buffer_init(&all, SIZE_MAX / 2);
    spry_buffer_append(&all, &size, sizeof size);
    spry_buffer_append(&all, head, size);
    assert_true(spry_buffer_append(&all, f->data.data, f->data.size));
    scratch_write(s, "model.safetensors", all.data, all.size);
    spry_buffer_deinit(&all);
    spry_buffer_deinit(&f->data);
    json_decref(f->head);
    free(head);
}

#endif
