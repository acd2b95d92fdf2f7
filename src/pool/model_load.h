/* Opens a model to be ready for answers: its engine, and a smaller model that drafts for it, if any. Both are warmed
 * up, so that the first request is as fast as the second. */
#ifndef SPRY_POOL_MODEL_LOAD_H
#define SPRY_POOL_MODEL_LOAD_H

#include "spry.h"

/* Where a model is. */
typedef struct spry_model_place {
    const char *path; /* path; with `data` only its name in messages */
    const void *data;
    size_t size;
} spry_model_place;

typedef struct spry_loaded_model {
    spry_engine *engine, *drafter; /* NULL: no draft model */
} spry_loaded_model;

/* Estimates the bytes it will need; `drafter` may be NULL. */
spry_status spry_loaded_model_estimate(size_t *bytes, const spry_model_place *model, const spry_model_place *drafter,
                                       const spry_engine_options *engine, spry_error *error);

spry_status spry_loaded_model_open(spry_loaded_model *loaded, const spry_model_place *model,
                                   const spry_model_place *drafter, const spry_engine_options *engine,
                                   const spry_jobs_options *sched, spry_error *error);
void spry_loaded_model_close(spry_loaded_model *loaded);

/* Measures the bytes it needs. */
spry_status spry_loaded_model_measure(size_t *bytes, const spry_loaded_model *loaded, spry_error *error);

#endif
