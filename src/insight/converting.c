/* Writing GGUF files: of models, of models in a larger shape, and of shapes with random weights. */
#include "base/sized.h"
#include "insight/model_file.h"
#include "model/gguf_export.h"
#include "model/shapes.h"
#include "model/widen.h"
#include "platform/file.h"

void spry_convert_options_default_sized(spry_convert_options *options, size_t size)
{
    const spry_convert_options own = {.type = "q4_0"};
    spry_sized_default(options, size, &own, sizeof own);
}

bool spry_shape_published(const char *name)
{
    const spry_shape *shape = spry_shape_find(name);
    return shape && !shape->invented;
}

/* The options, their recipe and their threads, which the caller destroys also after a failure. */
static spry_status prepare(spry_convert_options *own, const spry_recipe **recipe, spry_threads **threads,
                           const spry_convert_options *theirs, spry_error *error)
{
    *threads = NULL;
    spry_convert_options_default(own);
    spry_status status = spry_sized_read(own, sizeof *own, theirs, "spry_convert_options", error);
    if (!status)
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
