/* Shapes of published models (and of a few small ones made for tests), so that speed can be measured, and files be
 * written, without published weights. Sizes and switches come from the models' own config.json. */
#ifndef SPRY_MODEL_SHAPES_H
#define SPRY_MODEL_SHAPES_H

#include "model/model.h"
#include "model/quantize.h"
#include "platform/threads.h"
#include "spry_tools.h"

typedef struct spry_shape {
    const char *name;
    const char *pattern; /* how its tokenizer splits text: tokenizer.ggml.pre */
    bool biased;         /* q, k and v have biases, and the output projection if its architecture has one */
    spry_config
        config;    /* as config.json says; `sliding` is not filled in, and RoPE of sliding layers only with two RoPEs */
    bool invented; /* there are no published weights */
    const char *kinds; /* NULL, or what each layer is: M recurrent, * attention, E feed-forward only */
} spry_shape;

/* NULL: the shape is unknown. */
const spry_shape *spry_shape_find(const char *name);

/* The address that all matrices of such a model have, because there are no weights. */
extern const unsigned char spry_unmade[1];

/* Creates a model that has everything but weights and a tokenizer: config, chat template, every tensor's size; matrices
 * point to spry_unmade, norms are ones, biases zeros. It can be planned and exported, but not run. Closed like any
 * model. */
spry_status spry_shape_model(spry_model **out, const spry_shape *shape, const char *name, spry_error *error);

/* A GGUF file of a model's shape with random weights; it has the size and speed of the real one. */

typedef struct spry_random_model {
    const spry_shape *shape;
    const spry_recipe *recipe; /* the type of each tensor */
    const char *name;          /* general.name */
    spry_threads *threads;
    /* Called with the bytes written so far; false stops, with SPRY_ERR_CANCELLED. May be NULL. */
    bool (*progress)(void *user, size_t done, size_t total);
    void *user;
} spry_random_model;

/* Writes the file; the same bytes on every machine and with any number of threads. Weights have a mean of 0 and a
 * variance of 1 / n_in, so activations stay near 1 in every layer. Memory use does not grow with the model. The file
 * appears when it is complete. */
spry_status spry_random_model_write(const char *path, const spry_random_model *job, spry_error *error);

#endif
