/* Models as files, and their tokenizers alone. */
#include "insight/model_file.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "insight/prediction.h"
#include "model/gguf_export.h"
#include "model/model.h"
#include "model/shapes.h"
#include "platform/file.h"

const char *spry_model_file_name(const spry_model_file *file)
{
    return file->name ? file->name : file->path ? file->path : "a model in memory";
}

bool spry_model_file_is_gguf(const spry_model_file *file)
{
    if (file->data)
        return true;
    if (spry_path_is_folder(file->path))
        return false;
    spry_mapping mapping;
    if (spry_view_ends(spry_view_of(file->path), SPRY_VIEW(".gguf")))
        return true;
    if (spry_mapping_open(&mapping, file->path, NULL) != SPRY_OK)
        return false;
    bool is = mapping.size >= 4 && memcmp(mapping.data, "GGUF", 4) == 0;
    spry_mapping_close(&mapping);
    return is;
}

spry_status spry_model_file_gguf(spry_gguf **out, const spry_model_file *file, spry_error *error)
{
    if (file->data)
        return spry_gguf_open_memory(out, file->data, file->size, spry_model_file_name(file), error);
    return spry_gguf_open(out, file->path, error);
}

spry_status spry_model_file_open(spry_model **out, const spry_model_file *file, spry_error *error)
{
    if (file->data)
        return spry_model_open_memory(out, file->data, file->size, spry_model_file_name(file), error);
    return spry_model_open(out, file->path, error);
}

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

spry_status spry_checkpoint_read(spry_checkpoint *checkpoint, const spry_model_file *file, const char *kv_type,
                                 spry_error *error)
{
    spry_model *model = NULL;
    spry_dtype type;
    *checkpoint = (spry_checkpoint){.size = offsetof(spry_checkpoint, reserved)};
    if (strcmp(kv_type, "auto") == 0)
        type = SPRY_F16;
    else if (!spry_dtype_find(&type, spry_view_of(kv_type)))
        return spry_fail(error, SPRY_ERR_INPUT, "kv-type '%.40s' is not known", kv_type);
    const char *name = file->data ? spry_model_file_name(file) : file->path;
    spry_status status = spry_model_open_sizes(&model, name, file->data, file->size, error);
    if (!status) {
        const spry_config *c = &model->config;
        bool longer = c->rope.long_factors && c->rope.original_context < c->n_context;
        spry_kv_shape shape = spry_model_kv_shape(model, type);
        checkpoint->architecture = c->arch->name;
        checkpoint->vocabulary = c->n_vocab;
        checkpoint->context = longer ? c->rope.original_context : c->n_context;
        checkpoint->main_type = spry_work_main_type(model);
        if (!spry_kv_token_bytes(&checkpoint->kv_token_bytes, &shape))
            checkpoint->kv_token_bytes = 0;
    }
    spry_model_close(model);
    return status;
}

spry_status spry_checkpoint_fingerprint(char text[SPRY_FINGERPRINT_TEXT], const spry_model_file *file,
                                        uint32_t n_threads, spry_error *error)
{
    spry_threads *threads = NULL;
    spry_model *model = NULL;
    spry_status status = spry_threads_create(&threads, n_threads, error);
    if (!status)
        status = spry_model_file_open(&model, file, error);
    spry_kv_key key = {0};
    if (!status)
        status = spry_model_fingerprint(&key, model, threads, error);
    if (!status)
        snprintf(text, SPRY_FINGERPRINT_TEXT, "%016llx%016llx", (unsigned long long)key.high,
                 (unsigned long long)key.low);
    spry_model_close(model);
    spry_threads_destroy(threads);
    return status;
}

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */

spry_status spry_tokenizer_load(spry_tokenizer **out, const spry_model_file *file, spry_error *error)
{
    *out = NULL;
    if (!spry_model_file_is_gguf(file))
        return spry_tokenizer_open(out, file->path, error);
    spry_gguf *gguf = NULL;
    spry_status status = spry_model_file_gguf(&gguf, file, error);
    if (status == SPRY_OK)
        status = spry_tokenizer_from_gguf(out, gguf, error);
    spry_gguf_close(gguf);
    return status;
}

void spry_tokenizer_free(spry_tokenizer *tokenizer)
{
    spry_tokenizer_destroy(tokenizer);
}

size_t spry_tokenizer_count(const spry_tokenizer *tokenizer)
{
    return spry_tokenizer_size(tokenizer);
}

spry_status spry_tokenizer_ids(const spry_tokenizer *tokenizer, int32_t **ids, size_t *count, const char *text,
                               size_t size, bool special, bool whole, spry_error *error)
{
    unsigned flags = (special ? SPRY_ENCODE_SPECIAL : 0u) | (whole ? SPRY_ENCODE_BOS_EOS : 0u);
    spry_tokens tokens = {0};
    spry_status status = spry_tokenizer_encode(tokenizer, &tokens, (spry_view){text, size}, NULL, 0, flags, error);
    if (status != SPRY_OK)
        spry_tokens_deinit(&tokens);
    *ids = tokens.ids;
    *count = tokens.count;
    return status;
}

spry_status spry_tokenizer_text(const spry_tokenizer *tokenizer, char **text, size_t *size, const int32_t *ids,
                                size_t count, bool special, spry_error *error)
{
    spry_buffer buffer;
    spry_buffer_init(&buffer, SIZE_MAX / 2);
    spry_status status = spry_tokenizer_decode(tokenizer, &buffer, ids, count, special, error);
    if (status != SPRY_OK)
        spry_buffer_deinit(&buffer);
    *text = buffer.data;
    *size = buffer.size;
    return status;
}

/* ---- writing GGUF files ------------------------------------------------------------------------------------------ */

void spry_convert_options_default_sized(spry_convert_options *options, size_t size)
{
    const spry_convert_options own = {0};
    spry_sized_default(options, size, &own, sizeof own);
}

bool spry_shape_published(const char *name)
{
    const spry_shape *shape = spry_shape_find(name);
    return shape && !shape->invented;
}

/* The options, their recipe (NULL: the model's own) and their threads, which the caller destroys also after a failure.
 */
static spry_status prepare(spry_convert_options *own, const spry_recipe **recipe, spry_threads **threads,
                           const spry_convert_options *theirs, spry_error *error)
{
    *threads = NULL;
    spry_convert_options_default(own);
    spry_status status = spry_sized_read(own, sizeof *own, theirs, "spry_convert_options", error);
    if (!status && own->type)
        status = spry_recipe_find(recipe, own->type, error);
    return status ? status : spry_threads_create(threads, own->threads, error);
}

/* Opens the model; a checkpoint of llama2.c by way of a GGUF file that the caller deletes. */
static spry_status open_source(spry_model **out, spry_temporary *made, const spry_model_file *file, spry_error *error)
{
    if (file->data || !spry_llama2c_is(file->path))
        return spry_model_file_open(out, file, error);
    spry_status status = spry_temporary_init(made, "checkpoint.gguf", error);
    if (!status)
        status = spry_llama2c_to_gguf(made->path, file->path, error);
    if (!status)
        status = spry_temporary_hide(made, error);
    return status ? status : spry_model_open(out, made->path, error);
}

/* The recipe that keeps every value of the model's matrices. */
static spry_status own_recipe(const spry_recipe **recipe, const spry_model *model, spry_error *error)
{
    spry_dtype stored = spry_work_main_type(model);
    const char *name = stored == SPRY_F32 ? "f32" : stored == SPRY_F16 ? "f16" : stored == SPRY_BF16 ? "bf16" : NULL;
    if (!name)
        return spry_fail(error, SPRY_ERR_INPUT, "the matrices are %s: say which type to write, for example --type q8_0",
                         spry_dtype_name(stored));
    return spry_recipe_find(recipe, name, error);
}

spry_status spry_convert(const char *path, const spry_model_file *file, const spry_convert_options *theirs,
                         spry_error *error)
{
    spry_convert_options options;
    spry_model *model = NULL;
    spry_export job = {0};
    spry_temporary made = {.file = -1};
    spry_status status = prepare(&options, &job.recipe, &job.threads, theirs, error);
    if (!status)
        status = open_source(&model, &made, file, error);
    if (!status && !job.recipe)
        status = own_recipe(&job.recipe, model, error);
    if (!status && options.lora)
        status = spry_model_add_adapters(model, options.lora, error);
    if (!status) {
        job.merges = options.lora;
        job.title = options.name || !made.path ? options.name : spry_model_file_name(file);
        job.progress = options.progress;
        job.user = options.user;
        status = spry_model_export(model, path, &job, error);
    }
    spry_threads_destroy(job.threads);
    spry_model_close(model);
    spry_temporary_deinit(&made);
    return status;
}

spry_status spry_convert_random(const char *path, const char *shape, const spry_convert_options *theirs,
                                spry_error *error)
{
    spry_convert_options options;
    spry_random_model job = {.shape = spry_shape_find(shape)};
    if (!job.shape)
        return spry_fail(error, SPRY_ERR_INPUT, "shape '%.40s' is not known", shape);
    spry_status status = prepare(&options, &job.recipe, &job.threads, theirs, error);
    if (!status) {
        job.name = options.name ? options.name : shape;
        job.progress = options.progress;
        job.user = options.user;
        status = spry_random_model_write(path, &job, error);
    }
    spry_threads_destroy(job.threads);
    return status;
}

spry_status spry_convert_widened(const char *path, const spry_model_file *file, const char *shape,
                                 const spry_convert_options *theirs, spry_error *error)
{
    spry_convert_options options;
    spry_model *model = NULL;
    spry_widen job = {.shape = spry_shape_find(shape)};
    if (!job.shape)
        return spry_fail(error, SPRY_ERR_INPUT, "shape '%.40s' is not known", shape);
    spry_convert_options_default(&options);
    spry_status status = spry_sized_read(&options, sizeof options, theirs, "spry_convert_options", error);
    if (!status)
        status = spry_model_file_open(&model, file, error);
    if (!status) {
        job.name = options.name ? options.name : shape;
        job.progress = options.progress;
        job.user = options.user;
        status = spry_model_widen(model, path, &job, error);
    }
    spry_model_close(model);
    return status;
}
