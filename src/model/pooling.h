/* How hidden states become the embedding of a text: which rows are used, the matrices after that, whether the result is
 * scaled to length 1; and prompts, texts that are put before the text to be embedded. Read from sentence-transformers'
 * files (modules.json, its folders, config_sentence_transformers.json) or from GGUF. */
#ifndef SPRY_MODEL_POOLING_H
#define SPRY_MODEL_POOLING_H

#include "base/buffer.h"
#include "base/error.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

/* The numbers are those of GGUF. */
typedef enum spry_pool_kind {
    SPRY_POOL_MEAN = 1,
    SPRY_POOL_FIRST = 2,
    SPRY_POOL_LAST = 3,
    SPRY_POOL_RANK = 4 /* only in files: the first row, and a head with one output */
} spry_pool_kind;

enum { SPRY_MAX_DENSE = 4 };

typedef enum spry_dense_act { SPRY_DENSE_PLAIN, SPRY_DENSE_TANH, SPRY_DENSE_GELU } spry_dense_act;

/* out = norm(activation(weight * in + bias)) */
typedef struct spry_dense {
    const float *weight, *bias; /* [n_out, n_in], [n_out] or NULL */
    size_t n_out, n_in;
    spry_dense_act act;
    const float *norm, *norm_bias; /* [n_out] or NULL: a layer norm */
    float norm_eps;
} spry_dense;

typedef struct spry_text_prompt {
    const char *name, *text;
} spry_text_prompt;

typedef struct spry_pooling {
    spry_pool_kind kind;
    bool normalise;
    bool second_type; /* cross-encoders: tokens of the second text have the second type */
    bool ranks;       /* a cross-encoder: its one output says how well the second text fits the first */
    size_t width;     /* floats of an embedding */
    spry_dense dense[SPRY_MAX_DENSE];
    size_t n_dense;
    spry_text_prompt *prompts;
    size_t n_prompts;
    const char *default_prompt; /* text of the default prompt; NULL: none */
} spry_pooling;

/* Without settings in the files: the mean, scaled to length 1. `n_embd`: the model's embedding size. Texts and matrices
 * are copied to the arena. */
spry_status spry_pooling_from_folder(spry_pooling *pooling, const char *folder, size_t n_embd, spry_arena *arena,
                                     spry_error *error);
spry_status spry_pooling_from_gguf(spry_pooling *pooling, const spry_gguf *gguf, const char *arch, size_t n_embd,
                                   float norm_eps, spry_arena *arena, spry_error *error);

/* Reads the head of a cross-encoder, if the checkpoint of an encoder has a head with one output. `norm_eps`: of layer
 * norms. */
spry_status spry_pooling_from_classifier(spry_pooling *pooling, const spry_safetensors *files, const char *name,
                                         float norm_eps, spry_arena *arena, spry_error *error);

/* Writes the keys; the matrices are written as tensors, named by spry_pooling_tensor_name. */
void spry_pooling_to_gguf(const spry_pooling *pooling, spry_gguf_writer *writer, const char *arch);

/* The name of a matrix in GGUF: "dense_2.weight" for the first one; in cross-encoders "cls.weight", and
 * "cls.output.weight" for the last one. The norm after the first one is "cls.norm". */
void spry_pooling_tensor_name(char name[32], const spry_pooling *pooling, size_t dense, const char *suffix);

/* The text of a prompt; `name` NULL: the default prompt. NULL: there is no such prompt. */
const char *spry_pooling_prompt(const spry_pooling *pooling, const char *name);

/* Computes the embedding [width] from the sum of `count` rows, which with FIRST and LAST is that one row. Fails when it
 * is not finite, or memory is short. */
spry_status spry_pooling_finish(const spry_pooling *pooling, float *out, const double *sum, size_t count, size_t n_embd,
                                spry_error *error);

#endif
