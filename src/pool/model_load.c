#include "pool/model_load.h"

#include "base/error.h"
#include "base/number.h"
#include "engine/engine_state.h"
#include "spry_tools.h"

/* Sets a drafter's options. Its context is as large as its own limit allows; it serves one answer at a time and needs
 * no more KV memory than that. */
static spry_status drafter_options(spry_engine_options *options, const spry_model_place *drafter,
                                   const spry_engine_options *engine, spry_error *error)
{
    spry_engine_needs needs;
    *options = *engine;
    options->context = 0;
    options->sessions = 1;
    options->threads = 1; /* the drafter uses the engine's threads */
    options->kv_bytes = 0;
    options->cache_dir = NULL;
    options->quantize = NULL;
    options->lora = NULL;
    options->mmproj = "";
    options->chat_template = NULL;
    options->draft_head = NULL;
    spry_status status = spry_engine_estimate(&needs, drafter->path, drafter->data, drafter->size, options, error);
    options->kv_bytes = needs.kv_full;
    return status;
}

static spry_status open_engine(spry_engine **out, const spry_model_place *place, const spry_engine_options *options,
                               spry_error *error)
{
    return place->data ? spry_engine_open_memory(out, place->data, place->size, place->path, options, error)
                       : spry_engine_open(out, place->path, options, error);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

spry_status spry_loaded_model_estimate(size_t *bytes, const spry_model_place *model, const spry_model_place *drafter,
                                       const spry_engine_options *engine, spry_error *error)
{
    spry_engine_needs needs, more = {0};
    spry_engine_options small;
    spry_status status = spry_engine_estimate(&needs, model->path, model->data, model->size, engine, error);
    if (!status && drafter)
        status = drafter_options(&small, drafter, engine, error);
    if (!status && drafter)
        status = spry_engine_estimate(&more, drafter->path, drafter->data, drafter->size, &small, error);
    if (!status && !spry_checked_add(bytes, needs.whole, more.whole))
        status = spry_fail(error, SPRY_ERR_MEMORY, "%s: needs more than any memory", model->path);
    return status;
}

spry_status spry_loaded_model_measure(size_t *bytes, const spry_loaded_model *loaded, spry_error *error)
{
    spry_engine_needs needs, more = {0};
    spry_status status = spry_engine_measure(&needs, loaded->engine, error);
    if (!status && loaded->drafter)
        status = spry_engine_measure(&more, loaded->drafter, error);
    *bytes = status ? 0 : needs.whole + more.whole;
    return status;
}

static spry_status add_drafter(spry_loaded_model *loaded, const spry_model_place *drafter,
                               const spry_engine_options *engine, spry_error *error)
{
    spry_engine_options options;
    spry_status status = drafter_options(&options, drafter, engine, error);
    if (!status)
        status = open_engine(&loaded->drafter, drafter, &options, error);
    if (!status)
        status = spry_engine_set_drafter(loaded->engine, loaded->drafter, error);
    return status ? status : spry_engine_warm_up(loaded->drafter, error);
}

spry_status spry_loaded_model_open(spry_loaded_model *loaded, const spry_model_place *model,
                                   const spry_model_place *drafter, const spry_engine_options *engine,
                                   const spry_jobs_options *sched, spry_error *error)
{
    *loaded = (spry_loaded_model){0};
    spry_status status = open_engine(&loaded->engine, model, engine, error);
    if (!status && drafter)
        status = add_drafter(loaded, drafter, engine, error);
    if (!status)
        status = spry_engine_warm_up(loaded->engine, error);
    if (!status)
        status = spry_engine_set_jobs(loaded->engine, sched, error);
    if (status)
        spry_loaded_model_close(loaded);
    return status;
}

void spry_loaded_model_close(spry_loaded_model *loaded)
{
    spry_engine_close(loaded->engine); /* close the engine first, because the drafter uses its threads */
    spry_engine_close(loaded->drafter);
    *loaded = (spry_loaded_model){0};
}
