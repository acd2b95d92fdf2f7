/* Opening models that tools look at: parts of them, without an engine. */
#ifndef SPRY_INSIGHT_MODEL_FILE_H
#define SPRY_INSIGHT_MODEL_FILE_H

#include "model/model.h"
#include "spry_tools.h"

/* The name for messages. */
const char *spry_model_file_name(const spry_model_file *file);

/* Whether it is a GGUF file: in memory, with GGUF's magic number, or named *.gguf. */
bool spry_model_file_is_gguf(const spry_model_file *file);
spry_status spry_model_file_gguf(spry_gguf **out, const spry_model_file *file, spry_error *error);

/* The whole model, as mapped. */
spry_status spry_model_file_open(spry_model **out, const spry_model_file *file, spry_error *error);

#endif
