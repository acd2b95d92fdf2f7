/* Names of tensors. Our own names are GGUF's usual ones; the spellings of files are found through one table and
 * the architecture's own list. */
#ifndef SPRY_MODEL_TENSOR_NAMES_H
#define SPRY_MODEL_TENSOR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"
#include "model/weights.h"

enum { SPRY_TENSOR_NAME_MAX = 160 };

/* "blk.7.attn_q.weight" of `ours` "attn_q". */
void spry_tensor_gguf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, uint32_t layer, const char *ours,
                           const char *suffix);

/* "model.layers.7.self_attn.q_proj.weight", with `prefix` "model.". `expert` counts where each has a tensor. False when
 * Hugging Face files have no such tensor. */
bool spry_tensor_hf_name(char name[SPRY_TENSOR_NAME_MAX], const spry_arch *arch, const char *prefix, uint32_t layer,
                         const char *ours, uint32_t expert, const char *suffix);

/* A walk over every matrix that rows of a model are multiplied by, with the tensor it is in. What a layer has beside
 * attention and feed-forward (spry_side) and what latents are made of (k_b, v_b) is left out. */

typedef struct spry_matrix {
    spry_weight *weight;
    const char *ours; /* our name of the tensor (tensor_names.h); "output", of no layer, is the last one */
    uint32_t layer;
    uint32_t expert;  /* its place, where GGUF files stack the matrices of all experts */
    bool stacked;     /* they do so here */
    bool heads;       /* rows of q or k, whose order GGUF files of some architectures change */
    size_t first_row; /* in a tensor of several matrices, which has */
    size_t n_rows;    /* in all */
} spry_matrix;

/* Matrices that are not there are left out. */
void spry_matrices_each(spry_weights *weights, const spry_config *config,
                        void (*visit)(void *context, const spry_matrix *matrix), void *context);

/* Heads' size where GGUF files of this architecture hold rows of q and k in another order; 0: they do not. */
size_t spry_matrix_head(const spry_config *config, const spry_matrix *matrix);

#endif
