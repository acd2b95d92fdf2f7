/* A drafter's context is as large as its own limit allows; it needs no memory beyond that. */
#include "run/drafter.h"

#include <string.h>

#include "cli/bundled.h"

static spry_status open_model(spry_drafter_model *d, spry_engine *engine, const char *model,
                              const spry_model_flags *model_flags, const spry_engine_flags *engine_flags,
                              spry_error *error)
{
    spry_engine_options options = engine_flags->options;
    options.context = 0;
    options.sessions = 1;
    options.threads = 1; /* it uses the engine's threads */
    options.kv_bytes = 0;
    options.cache_dir = NULL;
    options.chat_template = NULL;
    options.lora = NULL;
    options.log = NULL;
    spry_status status = spry_model_source_find(&d->source, model, model_flags->models_folder, error);
    if (status == SPRY_OK)
        status = spry_model_source_engine(&d->engine, &d->source, &options, error);
    if (status == SPRY_OK)
        status = spry_engine_set_drafter(engine, d->engine, error);
    return status;
}

spry_status spry_drafter_open(spry_drafter_model *d, spry_engine *engine, const spry_model_source *source,
                              const char *draft, const spry_model_flags *model_flags,
                              const spry_engine_flags *engine_flags, spry_error *error)
{
    *d = (spry_drafter_model){.how = SPRY_DRAFT_AUTO};
    if (strcmp(draft, "none") == 0)
        d->how = SPRY_DRAFT_NONE;
    else if (strcmp(draft, "lookup") == 0)
        d->how = SPRY_DRAFT_LOOKUP;
    else if (strcmp(draft, "auto") != 0)
        return open_model(d, engine, draft, model_flags, engine_flags, error);
    else if (source->data == spry_bundled_tales_begin)
        return open_model(d, engine, SPRY_BUNDLED_DRAFTER, model_flags, engine_flags, error);
    return SPRY_OK;
}

void spry_drafter_close(spry_drafter_model *d)
{
    spry_engine_close(d->engine);
    spry_model_source_deinit(&d->source);
    *d = (spry_drafter_model){0};
}
