/* What the files that bind tensors share: looking them up by name, checking type, shape and alignment. */
#ifndef SPRY_MODEL_WEIGHTS_BIND_H
#define SPRY_MODEL_WEIGHTS_BIND_H

#include "kernels/ops.h"
#include "model/tensor_names.h"
#include "model/weights.h"

typedef struct spry_binder {
    spry_weights *out;
    spry_config *config;
    const spry_gguf *gguf;
    const spry_safetensors *files;
    const char *name;   /* of the file, for messages */
    const char *prefix; /* of Hugging Face names: "model." or what a larger model puts before it */
    const spry_ops *ops;
    spry_arena *arena;
    spry_error *error;
} spry_binder;

enum { OPTIONAL = false, REQUIRED = true };

const spry_tensor *spry_bind_find(const spry_binder *b, const char *name);

/* A layer's tensor by our own name; `expert` counts only where Hugging Face stores experts apart. Leaves the name in
 * `name`. */
const spry_tensor *spry_bind_find_in_layer(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], uint32_t layer,
                                           const char *ours, uint32_t expert, const char *suffix);

spry_status spry_bind_missing(const spry_binder *b, const char *name);
spry_status spry_bind_wrong_shape(const spry_binder *b, const spry_tensor *t, size_t n_out, size_t n_in);

/* Records what became of a tensor. A stacked tensor is copied when one of its slices is. */
void spry_bind_use(const spry_binder *b, const spry_tensor *t, spry_tensor_use use);

/* A vector as floats, plus `add` on each. */
spry_status spry_bind_vector(const spry_binder *b, const float **out, const spry_tensor *t, size_t n, float add);

/* A matrix; or the `part`-th of equal slices of a stacked one. */
spry_status spry_bind_matrix(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);
spry_status spry_bind_slice(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in,
                            size_t part);

/* A layer's matrix with its bias, where there is one. */
spry_status spry_bind_linear(const spry_binder *b, spry_weight *out, uint32_t layer, const char *ours, size_t n_out,
                             size_t n_in, bool required);

/* Rows [begin, begin + count) of a matrix. */
spry_weight spry_weight_rows(const spry_weight *whole, size_t begin, size_t count);

/* All experts of a layer, and the shared ones. */
spry_status spry_bind_moe(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Gemma 3n's residual streams and inputs by layer. */
spry_status spry_bind_streams(const spry_binder *b);
spry_status spry_bind_side(const spry_binder *b, spry_layer *l, uint32_t layer);
spry_status spry_bind_layer_inputs(const spry_binder *b);

/* What Gemma 4's layers have beside the block. */
spry_status spry_bind_beside(const spry_binder *b, spry_layer *l, uint32_t layer);

/* All tensors of a gated delta net. */
spry_status spry_bind_delta(const spry_binder *b, spry_layer *l, uint32_t layer);

/* All tensors of a Mamba-2 layer. */
spry_status spry_bind_mamba(const spry_binder *b, spry_layer *l, uint32_t layer);

/* What a matrix takes is multiplied by `in`, what it gives by `out`. */
spry_status spry_bind_scale(const spry_binder *b, spry_weight *w, float in, float out);

/* Gate and up, n_ff outputs each, under the first two names; or one above the other under the third, where a file has
 * that. */
spry_status spry_bind_gate_up(const spry_binder *b, spry_weight *gate, spry_weight *up, uint32_t layer,
                              const char *const names[3], size_t n_ff);

/* All tensors of latent attention except the output. */
spry_status spry_bind_latent(const spry_binder *b, spry_layer *l, uint32_t layer);

/* weights_repack.c: matrices that cannot be used as the file has them. They are copied, and counted as copies. */

/* 8-bit floats `t` with the scales of its blocks. */
spry_status spry_bind_f8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* 8-bit numbers `t` with a scale for each row (.weight_scale), for all rows, or for groups of inputs: blocks of Q8_0.
 */
spry_status spry_bind_int8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* A layer's matrix of 4-bit numbers (GPTQ, AWQ): blocks of Q4_0 where all zero points are 8, else of Q4_1. *found:
 * false, and nothing else happens, when there is none. */
spry_status spry_bind_int4(const spry_binder *b, bool *found, spry_weight *out, uint32_t layer, const char *ours,
                           size_t n_out, size_t n_in);

/* The outputs of one expert in a tensor of all experts: first, first + step, ... n_out of n_all. */
typedef struct spry_expert_part {
    size_t expert, first, step, n_out, n_in, n_all;
} spry_expert_part;

/* Rows of 4-bit floats in blocks of 32 and their scales: [n_experts, rows, n_in / 32, 16] and [n_experts, rows,
 * n_in / 32]. */
spry_status spry_bind_mxfp4(const spry_binder *b, spry_weight *out, const spry_tensor *blocks,
                            const spry_tensor *scales, const spry_expert_part *part);

/* Columns of [n_experts, n_in, columns], as rows. */
spry_status spry_bind_columns(const spry_binder *b, spry_weight *out, const spry_tensor *t,
                              const spry_expert_part *part);

#endif
