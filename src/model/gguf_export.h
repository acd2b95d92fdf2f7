/* Writes a model as GGUF: from a Hugging Face folder or another GGUF file, with its matrices in a given type. Names and
 * layout are those of llama.cpp's converter. */
#ifndef SPRY_MODEL_GGUF_EXPORT_H
#define SPRY_MODEL_GGUF_EXPORT_H

#include "base/error.h"
#include "model/model.h"
#include "model/quantize.h"
#include "platform/threads.h"

typedef struct spry_export {
    const spry_recipe *recipe; /* which type each tensor gets */
    bool merges;               /* the model's adapters, by their own scales, become part of its matrices */
    const char *title;         /* general.name; NULL: the model's own, or its folder's */
    spry_threads *threads;
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_export;

/* Atomic: the file appears under its name only when it is complete. */
spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error);

/* Checkpoints of llama2.c: a header of seven numbers, then all weights as floats. Its vocabulary follows in the same
 * file, or lies beside it in tokenizer.bin. */

/* Whether a file can be one: its size is what its header says, with or without a vocabulary. */
bool spry_llama2c_is(const char *path);

/* Writes it as GGUF, in floats; layouts agree, so no value changes. */
spry_status spry_llama2c_to_gguf(const char *out, const char *path, spry_error *error);

#endif
