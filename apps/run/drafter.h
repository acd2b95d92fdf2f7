/* Opens the drafter given by --draft. */
#ifndef SPRY_APPS_DRAFTER_H
#define SPRY_APPS_DRAFTER_H

#include "cli/common_options.h"

typedef struct spry_drafter_model {
    spry_engine *engine; /* NULL: no draft model */
    spry_model_source source;
    spry_speculation how;
} spry_drafter_model;

/* Opens the drafter for the engine opened from `source`. "auto" selects the bundled drafter for the bundled model. */
spry_status spry_drafter_open(spry_drafter_model *drafter, spry_engine *engine, const spry_model_source *source,
                              const char *draft, const spry_model_flags *model_flags,
                              const spry_engine_flags *engine_flags, spry_error *error);

/* Call after the engine it drafts for is closed. */
void spry_drafter_close(spry_drafter_model *drafter);

#endif
