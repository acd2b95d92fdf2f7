/* Everything that can be said about a model, as one JSON object. `spry inspect` prints that object, or text made of it.
 *
 *   {"model", "path", "format", "file_bytes", "architecture", "runs", "problem", "parameters", "shape", "tokenizer",
 *    "chat_template", "memory", "types", "layout", "metadata", "tensors"}
 *
 * What is not known is left out: a file of an unknown architecture has no shape and no memory, but a problem. */
#ifndef SPRY_APPS_INSPECT_MODEL_H
#define SPRY_APPS_INSPECT_MODEL_H

#include <jansson.h>

#include "cli/model_source.h"

/* `context`: tokens to compute memory for; 0: the model's own limit, at most 8192. Fails only when the weights' files
 * cannot be read at all. */
spry_status spry_inspect_model(json_t **out, const spry_model_source *source, uint32_t context, bool tensors,
                               spry_error *error);

#endif
