/* Shapes of published models (and of a few small ones made for tests), so that speed can be measured, and files be
 * written, without published weights. Sizes and switches are those of the models' own config.json. */
#ifndef SPRY_MODEL_SHAPES_H
#define SPRY_MODEL_SHAPES_H

#include "model/model.h"
#include "spry_tools.h"

typedef struct spry_shape {
    const char *name;
    const char *pattern; /* how its tokenizer cuts text: tokenizer.ggml.pre */
    bool biased;         /* q, k and v have biases, and the output where the architecture has one */
    spry_config
        config;    /* as config.json says it; `sliding` is not filled, the sliding layers' rope only with two ropes */
    bool invented; /* there are no published weights */
} spry_shape;

/* NULL: unknown. */
const spry_shape *spry_shape_find(const char *name);

/* The data of every matrix of such a model: weights that do not exist yet. */
extern const unsigned char spry_unmade[1];

/* A model that has everything but weights and a tokenizer: config, chat template, every tensor's size; matrices point
 * at spry_unmade, norms are ones, biases zeros. It can be planned and exported, not run. Closed as any model. */
spry_status spry_shape_model(spry_model **out, const spry_shape *shape, const char *name, spry_error *error);

#endif
