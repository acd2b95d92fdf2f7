/* Prompts for text between two texts, with the fill-in tokens of models that have them. */
#ifndef SPRY_SERVER_FILL_IN_H
#define SPRY_SERVER_FILL_IN_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/view.h"
#include "spry_serve.h"

/* Whether a model has fill-in tokens. */
bool spry_engine_can_fill_in(const spry_engine *engine);

/* Appends the ids. `extra` (NULL: none): a list of {"filename", "text"} that stands before. SPRY_ERR_UNSUPPORTED: the
 * model has no fill-in tokens. */
spry_status spry_prompt_fill_in(spry_tokens *out, const spry_engine *engine, spry_view before, spry_view after,
                                const json_t *extra, spry_error *error);

#endif
