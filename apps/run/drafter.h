/* Whom --draft means, opened and set to work. */
#ifndef SPRY_APPS_DRAFTER_H
#define SPRY_APPS_DRAFTER_H

#include "cli/common_options.h"

typedef struct spry_drafter_model {
    spry_engine *engine; /* NULL: no model drafts */
    spry_model_source source;
    spry_speculation how;
} spry_drafter_model;

/* For the engine opened from `source`. "auto" takes the bundled drafter for the bundled model. */
spry_status spry_drafter_open(spry_drafter_model *drafter, spry_engine *engine, const spry_model_source *source,
                              const char *draft, const spry_model_flags *model_flags,
                              const spry_engine_flags *engine_flags, spry_error *error);

/* After the engine it drafts for was closed. */
void spry_drafter_close(spry_drafter_model *drafter);

#endif
