/* A safetensors file made tensor by tensor, and a fixture with some tensors in another form. Include after cmocka.h. */
#ifndef SPRY_TESTS_MADE_SAFETENSORS_H
#define SPRY_TESTS_MADE_SAFETENSORS_H

#include <jansson.h>
#include <stdint.h>

#include "base/buffer.h"
#include "support/model_folder.h"

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

/* Fills the folder with a fixture. `put` writes a tensor in another form; false: it is written as it is. The
 * configuration gets `quantization`, unless that is NULL. */
static inline void made_model(scratch *s, const char *model,
                              bool (*put)(void *context, made_safetensors *f, const char *name, const spry_tensor *t),
                              void *context, json_t *quantization)
{
    char path[SCRATCH_PATH], name[128];
    spry_error error = {0};
    spry_safetensors *from;
    made_safetensors f;
    made_safetensors_init(&f);
    model_folder_fill(s, model, "model.safetensors");
    if (spry_safetensors_open(&from, model_path(path, model, ""), &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < spry_safetensors_count(from); i++) {
        const spry_tensor *t = spry_safetensors_tensor(from, i);
        snprintf(name, sizeof name, "%.*s", SPRY_VIEW_ARG(t->name));
        if (!put(context, &f, name, t))
            made_safetensors_put(&f, name, "", spry_dtype_name(t->type), t->dims[0], t->n_dims > 1 ? t->dims[1] : 0,
                                 t->data, t->bytes);
    }
    made_safetensors_write(&f, s);
    spry_safetensors_close(from);
    json_t *config = model_config(model);
    if (quantization)
        json_object_set_new(config, "quantization_config", quantization);
    model_folder_json(s, "config.json", config);
    json_decref(config);
}

/* A folder for such models as the state of a group of tests. */
static inline int made_model_set_up(void **state)
{
    static scratch s;
    scratch_init(&s);
    *state = &s;
    return 0;
}

static inline int made_model_tear_down(void **state)
{
    scratch_deinit(*state);
    return 0;
}

#endif
