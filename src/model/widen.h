/* A model with the sizes of another shape that computes what it computed before, so that a real drafter can be measured
 * with a target that is bound by memory. The weights of the model keep their bytes; everything added is 0:
 *
 *   columns  of the embedding and of every matrix that reads it; the sum of a norm then goes over more values, so norms
 *            are multiplied by sqrt(old / new size), and the epsilon by old / new
 *   heads    whose queries, keys and values are 0, and whose output no column reads. Heads keep their size, and each
 *            key/value head gets as many query heads as in the shape; where these are fewer than before, copies of it
 *            serve the others
 *   layers   behind the others, which add nothing
 *
 * The vocabulary and the context stay. Outputs are equal up to rounding: the epsilon of norms of heads is that of the
 * others, too. */
#ifndef SPRY_MODEL_WIDEN_H
#define SPRY_MODEL_WIDEN_H

#include "model/shapes.h"

typedef struct spry_widen {
    const spry_shape *shape;
    const char *name;                                        /* general.name */
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops; may be NULL */
    void *user;
} spry_widen;

/* Writes a GGUF file of a model that came from one. Llama, Qwen2 and Qwen3 only; a shape that is smaller than the model
 * anywhere is refused. Atomic: the file appears when it is whole. */
spry_status spry_model_widen(const spry_model *model, const char *path, const spry_widen *job, spry_error *error);

#endif
