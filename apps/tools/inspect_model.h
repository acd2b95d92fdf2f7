/* The description of a model as one JSON object. `spry inspect` prints that object, or text generated from it.
 *
 *   {"model", "path", "format", "file_bytes", "architecture", "runs", "problem", "parameters", "shape", "tokenizer",
 *    "chat_template", "memory", "types", "layout", "metadata", "tensors"}
 *
 * Unknown values are omitted: a file of an unknown architecture has a problem, but no shape and no memory. */
#ifndef SPRY_APPS_INSPECT_MODEL_H
#define SPRY_APPS_INSPECT_MODEL_H

#include <jansson.h>

#include "cli/model_source.h"

/* `context`: context size for the memory estimate; 0: the model's limit, at most 8192. Fails only when the weight files
 * cannot be read at all. */
spry_status spry_inspect_model(json_t **out, const spry_model_source *source, uint32_t context, bool tensors,
                               spry_error *error);

#endif
