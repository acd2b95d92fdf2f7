/* A GGUF file of a model's shape with random weights: the same size and speed as the real one. */
#ifndef SPRY_MODEL_RANDOM_MODEL_H
#define SPRY_MODEL_RANDOM_MODEL_H

#include "model/recipe.h"
#include "model/shapes.h"
#include "platform/threads.h"

typedef struct spry_random_model {
    const spry_shape *shape;
    const spry_recipe *recipe; /* which type each tensor gets */
    const char *name;          /* general.name */
    spry_threads *threads;
    /* Bytes written so far; false stops, with SPRY_ERR_CANCELLED. May be NULL. */
    bool (*progress)(void *user, size_t done, size_t total);
    void *user;
} spry_random_model;

/* Writes the file; the same bytes on every machine and with any number of threads. Weights have a mean of 0 and a
 * variance of 1 / n_in, so activations stay near 1 in every layer. Memory use does not grow with the model. Atomic: the
 * file appears when it is whole. */
spry_status spry_random_model_write(const char *path, const spry_random_model *job, spry_error *error);

#endif
