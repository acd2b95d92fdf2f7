/* How hidden states become the embedding of a text: which of them count, matrices after that, whether the result has
 * length 1; and texts to be put before what is embedded. Read from sentence-transformers' files (modules.json, its
 * folders, config_sentence_transformers.json) or from GGUF. */
#ifndef SPRY_MODEL_POOLING_H
#define SPRY_MODEL_POOLING_H

#include "base/buffer.h"
#include "base/error.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

/* The numbers are GGUF's. */
typedef enum spry_pool_kind {
    SPRY_POOL_MEAN = 1,
    SPRY_POOL_FIRST = 2,
    SPRY_POOL_LAST = 3,
    SPRY_POOL_RANK = 4 /* in files only: the first row, and a head with one output */
} spry_pool_kind;

enum { SPRY_MAX_DENSE = 4 };

/* out = activation(weight * in + bias) */
typedef struct spry_dense {
    const float *weight, *bias; /* [n_out, n_in], [n_out] or NULL */
    size_t n_out, n_in;
    bool is_tanh; /* else as it is */
} spry_dense;

typedef struct spry_text_prompt {
    const char *name, *text;
} spry_text_prompt;

typedef struct spry_pooling {
    spry_pool_kind kind;
    bool normalise;
    bool second_type; /* of a cross-encoder: the second text has the second type of tokens */
    bool ranks;       /* a cross-encoder: the one number says how well a pair of texts fits */
    size_t width;     /* floats of an embedding */
    spry_dense dense[SPRY_MAX_DENSE];
    size_t n_dense;
    spry_text_prompt *prompts;
    size_t n_prompts;
    const char *default_prompt; /* a text; NULL: none */
} spry_pooling;

/* Without settings: the mean, of length 1. `n_embd`: of the model. Texts and matrices are copied to the arena. */
spry_status spry_pooling_from_folder(spry_pooling *pooling, const char *folder, size_t n_embd, spry_arena *arena,
                                     spry_error *error);
spry_status spry_pooling_from_gguf(spry_pooling *pooling, const spry_gguf *gguf, const char *arch, size_t n_embd,
                                   spry_arena *arena, spry_error *error);

/* The head of a cross-encoder, where the checkpoint of an encoder has one with one output. */
spry_status spry_pooling_from_classifier(spry_pooling *pooling, const spry_safetensors *files, const char *name,
                                         spry_arena *arena, spry_error *error);

/* The keys; the matrices are tensors, see spry_pooling_tensor_name. */
void spry_pooling_to_gguf(const spry_pooling *pooling, spry_gguf_writer *writer, const char *arch);

/* "dense_2.weight" of the first matrix; of cross-encoders "cls.weight" and, of the last, "cls.output.weight". */
void spry_pooling_tensor_name(char name[32], const spry_pooling *pooling, size_t dense, const char *suffix);

/* The text of a prompt; `name` NULL: of the default one. NULL: there is none of that name. */
const char *spry_pooling_prompt(const spry_pooling *pooling, const char *name);

/* The embedding [width] of `count` rows whose sum is given; with FIRST and LAST of that one row. Fails when it is not
 * finite, or memory is short. */
spry_status spry_pooling_finish(const spry_pooling *pooling, float *out, const double *sum, size_t count, size_t n_embd,
                                spry_error *error);

#endif
