/* Writing a model as GGUF: from a Hugging Face folder or from another GGUF file, its matrices in a type of the caller's
 * choice. What comes out is what llama.cpp's own converter would name and lay out. */
#ifndef SPRY_MODEL_GGUF_EXPORT_H
#define SPRY_MODEL_GGUF_EXPORT_H

#include "model/model.h"
#include "platform/threads.h"

typedef struct spry_export {
    spry_dtype matrices;  /* F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1 */
    spry_dtype embedding; /* of the embedding and the output matrix */
    const char *title;    /* general.name; NULL: the model's own, or its folder's */
    spry_threads *threads;
    void (*progress)(void *user, size_t done, size_t total); /* bytes written; may be NULL */
    void *user;
} spry_export;

/* What `--type NAME` means: the matrices' type, and Q8_0 for a 4- or 5-bit model's embedding. */
spry_status spry_export_type(spry_export *options, const char *name, spry_error *error);

/* Atomic: the file appears when it is whole. A matrix whose rows are not whole blocks of the type is written as F16. */
spry_status spry_model_export(const spry_model *model, const char *path, const spry_export *options, spry_error *error);

#endif
