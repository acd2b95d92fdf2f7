/* Names of tensors. Inside the program a tensor has the name that is usual in GGUF files; one table, and a list of
 * exceptions in each architecture, give the names in files. */
#ifndef SPRY_MODEL_TENSOR_NAMES_H
#define SPRY_MODEL_TENSOR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"
#include "model/weights.h"

enum { SPRY_TENSOR_NAME_MAX = 160 };

/* Writes "blk.7.attn_q.weight" for `ours` "attn_q". */
void spry_tensor_gguf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, uint32_t layer, const char *ours,
                           const char *suffix);

/* Writes "model.layers.7.self_attn.q_proj.weight", with `prefix` "model.". `expert` is used if each expert has a
 * tensor. False when Hugging Face files have no such tensor. */
bool spry_tensor_hf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, const char *prefix, uint32_t layer,
                         const char *ours, uint32_t expert, const char *suffix);

/* A walk over all matrices by which rows of a model are multiplied, with the tensor that contains each. The additional
 * matrices of Gemma 3n (spry_side), and k_b and v_b of latent attention, are left out. */

typedef struct spry_matrix {
    spry_weight *weight;
    const char *ours; /* our name of the tensor; the last one is "output", which belongs to no layer */
    uint32_t layer;
    uint32_t expert;  /* number of the expert, if GGUF files stack the matrices of all experts */
    bool stacked;     /* the file has all experts in one tensor */
    bool heads;       /* rows of q or k, which GGUF files of some architectures permute */
    size_t first_row; /* index of the matrix's first row in the tensor */
    size_t n_rows;    /* number of rows of the whole tensor */
} spry_matrix;

/* Calls `visit` for each matrix that exists. */
void spry_matrices_each(spry_weights *weights, const spry_config *config,
                        void (*visit)(void *context, const spry_matrix *matrix), void *context);

/* Size of heads if GGUF files of this architecture permute the rows of q and k; 0: they do not. */
size_t spry_matrix_head(const spry_config *config, const spry_matrix *matrix);

#endif
