/* Model folders made for one test: a fixture's files by symbolic link, some of them rewritten. Include after cmocka.h.
 */
#ifndef SPRY_TESTS_MODEL_FOLDER_H
#define SPRY_TESTS_MODEL_FOLDER_H

#include <errno.h>
#include <jansson.h>

#include "base/buffer.h"
#include "formats/safetensors.h"
#include "support/scratch.h"

/* Every fixture; "llama" first. */
static const char *const model_names[] = {"llama",  "llama-256", "llama3-rope", "mistral-swa", "mixtral",
                                          "qwen2",  "qwen2-moe", "qwen3",       "qwen3-moe",   "gemma",
                                          "gemma2", "gemma3",    "phi3"};

enum { N_MODELS = sizeof model_names / sizeof *model_names };

static inline const char *model_path(char path[SCRATCH_PATH], const char *model, const char *file)
{
    int length = snprintf(path, SCRATCH_PATH, "%s/models/%s%s%s", TEST_DATA, model, *file ? "/" : "", file);
    assert_true(length > 0 && length < SCRATCH_PATH);
    return path;
}

/* Empties the folder, then links every file of a fixture but `except` (may be NULL). */
static inline void model_folder_fill(scratch *s, const char *model, const char *except)
{
    char folder[SCRATCH_PATH], target[SCRATCH_PATH];
    scratch_clear(s);
    DIR *listing = opendir(model_path(folder, model, ""));
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.' && (!except || strcmp(entry->d_name, except) != 0))
            assert_int_equal(symlink(model_path(target, model, entry->d_name), scratch_path(s, entry->d_name)), 0);
    closedir(listing);
}

static inline json_t *model_config(const char *model)
{
    char path[SCRATCH_PATH];
    json_t *json = json_load_file(model_path(path, model, "config.json"), 0, NULL);
    assert_non_null(json);
    return json;
}

static inline void model_folder_json(scratch *s, const char *name, const json_t *json)
{
    assert_true(unlink(scratch_path(s, name)) == 0 || errno == ENOENT);
    assert_int_equal(json_dump_file(json, scratch_path(s, name), JSON_INDENT(1)), 0);
}

/* ---- safetensors ------------------------------------------------------------------------------------------------ */

/* A checkpoint to write: which tensors of `from`, under which names, where their data begins. */
typedef struct tensor_file {
    const spry_safetensors *from;
    /* Whether to take a tensor; may change its name and shape. NULL: all as they are. */
    bool (*take)(void *context, spry_tensor *tensor, char name[SCRATCH_PATH]);
    void *context;
    size_t shift; /* bytes the data is moved off a multiple of 64 */
} tensor_file;

static inline json_t *tensor_entry(const spry_tensor *t, size_t offset)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < t->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype",
                     t->type == SPRY_F32   ? "F32"
                     : t->type == SPRY_F16 ? "F16"
                     : t->type == SPRY_U8  ? "U8"
                                           : "BF16",
                     "shape", shape, "data_offsets", (json_int_t)offset, (json_int_t)(offset + t->bytes));
}

/* Appends the file to `out`; adds name -> file to `index` when that is not NULL. Returns how many tensors were taken.
 */
static inline size_t tensor_file_build(spry_buffer *out, const tensor_file *f, const char *file, json_t *index)
{
    size_t count = spry_safetensors_count(f->from), taken = 0, offset = 0;
    json_t *header = json_object();
    const spry_tensor **used = calloc(count + 1, sizeof *used);
    assert_non_null(used);
    for (size_t i = 0; i < count; i++) {
        spry_tensor t = *spry_safetensors_tensor(f->from, i);
        char name[SCRATCH_PATH];
        snprintf(name, sizeof name, "%.*s", (int)t.name.size, t.name.data);
        if (f->take && !f->take(f->context, &t, name))
            continue;
        used[taken++] = spry_safetensors_tensor(f->from, i);
        json_object_set_new(header, name, tensor_entry(&t, offset));
        offset += t.bytes;
        if (index)
            json_object_set_new(index, name, json_string(file));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    size_t size = strlen(text), padding = (64 - (8 + size) % 64) % 64 + f->shift;
    uint64_t header_size = size + padding;
    spry_buffer_append(out, &header_size, sizeof header_size);
    spry_buffer_append(out, text, size);
    for (size_t i = 0; i < padding; i++)
        spry_buffer_append(out, " ", 1);
    for (size_t i = 0; i < taken; i++)
        spry_buffer_append(out, used[i]->data, used[i]->bytes);
    assert_false(out->failed);
    free(text);
    free(used);
    json_decref(header);
    return taken;
}

static inline size_t tensor_file_write(scratch *s, const char *file, const tensor_file *f, json_t *index)
{
    spry_buffer bytes;
    spry_buffer_init(&bytes, 1 << 26);
    size_t taken = tensor_file_build(&bytes, f, file, index);
    assert_true(unlink(scratch_path(s, file)) == 0 || errno == ENOENT);
    scratch_write(s, file, bytes.data, bytes.size);
    spry_buffer_deinit(&bytes);
    return taken;
}

/* Gemma 3 with one layer, whose rows see both sides through a window of this size. */
static inline void model_folder_gemma_encoder(scratch *s, json_int_t window)
{
    json_t *config = model_config("gemma3");
    json_object_set_new(config, "use_bidirectional_attention", json_true());
    json_object_set_new(config, "num_hidden_layers", json_integer(1));
    json_object_set_new(config, "layer_types", json_pack("[s]", "sliding_attention"));
    json_object_set_new(config, "sliding_window", json_integer(window));
    model_folder_fill(s, "gemma3", NULL);
    model_folder_json(s, "config.json", config);
    json_decref(config);
}

#endif
