/* Functions shared by the files that bind tensors: finding tensors by name, checking type, shape and alignment. */
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
    const char *name;     /* name of the file, for messages */
    const char *prefix;   /* prefix of Hugging Face names: "model.", or what a larger model puts before it */
    uint32_t first_layer; /* number of the first layer in the file; of heads that drafts */
    const spry_ops *ops;
    spry_arena *arena;
    spry_error *error;
} spry_binder;

enum { OPTIONAL = false, REQUIRED = true };

const spry_tensor *spry_bind_find(const spry_binder *b, const char *name);

/* A layer's tensor by our own name; `expert` is used only if Hugging Face files store experts separately. Its full name
 * is left in `name`. */
const spry_tensor *spry_bind_find_in_layer(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], uint32_t layer,
                                           const char *ours, uint32_t expert, const char *suffix);

spry_status spry_bind_missing(const spry_binder *b, const char *name);
spry_status spry_bind_wrong_shape(const spry_binder *b, const spry_tensor *t, size_t n_out, size_t n_in);

/* Records how a tensor is used. A stacked tensor counts as copied when one of its slices is. */
void spry_bind_use(const spry_binder *b, const spry_tensor *t, spry_tensor_use use);

/* Reads a vector as floats; `add` is added to each. */
spry_status spry_bind_vector(const spry_binder *b, const float **out, const spry_tensor *t, size_t n, float add);

/* Binds a matrix; or slice number `part` of a stacked tensor. */
spry_status spry_bind_matrix(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);
spry_status spry_bind_slice(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in,
                            size_t part);

/* Binds a layer's matrix, with its bias if there is one. */
spry_status spry_bind_linear(const spry_binder *b, spry_weight *out, uint32_t layer, const char *ours, size_t n_out,
                             size_t n_in, bool required);

/* Reads the factor of a layer's NVFP4 matrix, if a GGUF file has one. */
spry_status spry_bind_factor(const spry_binder *b, spry_weight *out, uint32_t layer, const char *ours, uint32_t expert);

/* Rows [begin, begin + count) of a matrix. */
spry_weight spry_weight_rows(const spry_weight *whole, size_t begin, size_t count);

/* Binds all experts of a layer, and the shared ones. */
spry_status spry_bind_moe(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Binds Gemma 3n's residual streams and the inputs for each layer. */
spry_status spry_bind_streams(const spry_binder *b);
spry_status spry_bind_side(const spry_binder *b, spry_layer *l, uint32_t layer);
spry_status spry_bind_layer_inputs(const spry_binder *b);

/* Binds what Gemma 4's layers have in addition to the usual block. */
spry_status spry_bind_beside(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Binds all tensors of a gated delta net. */
spry_status spry_bind_delta(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Binds all tensors of a Mamba-2 layer. */
spry_status spry_bind_mamba(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Binds compressed attention, and the hyper-connections of a layer or, with SPRY_HYPER_END, after the last one. */
enum { SPRY_HYPER_END = UINT32_MAX };
spry_status spry_bind_compressed(const spry_binder *b, spry_layer *l, uint32_t layer);
spry_status spry_bind_hyper(const spry_binder *b, spry_hyper *out, uint32_t layer, bool attention);

/* Binds the experts that follow from the token. */
spry_status spry_bind_token_experts(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Binds the block before a Mamba-2 layer that other layers share. */
spry_status spry_bind_block(const spry_binder *b, spry_layer *l, uint32_t layer);

/* Multiplies a matrix by a factor for its input and one for its output. */
spry_status spry_bind_scale(const spry_binder *b, spry_weight *w, float in, float out);

/* Binds gate and up, with n_ff outputs each, under the first two names; or both as one matrix under the third name, if
 * a file has that. */
spry_status spry_bind_gate_up(const spry_binder *b, spry_weight *gate, spry_weight *up, uint32_t layer,
                              const char *const names[3], size_t n_ff);

/* Binds all tensors of latent attention except the output projection. */
spry_status spry_bind_latent(const spry_binder *b, spry_layer *l, uint32_t layer);

/* weights_repack.c: matrices whose form in the file no kernel can read. They are copied, and count as copies. */

/* Binds 8-bit floats `t` with the scales of their blocks. */
spry_status spry_bind_f8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* Binds 8-bit integers `t` with a scale for each row (.weight_scale), for all rows, or for groups of inputs, as blocks
 * of Q8_0. */
spry_status spry_bind_int8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* Binds a layer's matrix, or an expert's, of 4-bit integers (GPTQ, AWQ) as blocks of Q4_0 if all zero points are 8,
 * otherwise of Q4_1; or one of compressed-tensors (weights_packed.c). *found becomes false, and nothing else happens,
 * if there is no such matrix. */
spry_status spry_bind_int4(const spry_binder *b, bool *found, spry_weight *out, uint32_t layer, const char *ours,
                           uint32_t expert, size_t n_out, size_t n_in);

/* Binds `t`, NAME_packed of compressed-tensors: integers of 4 or 8 bits, which become Q4_0, Q4_1 or Q8_0, or 4-bit
 * floats, which become NVFP4 or MXFP4. */
spry_status spry_bind_packed(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* Binds `t`, bytes of two 4-bit floats each, with the scales NAME_scale of 16 values each and a factor for all. */
spry_status spry_bind_nvfp4(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in);

/* Makes `out` a matrix of a type with memory of its own, for the values of `t`. */
spry_status spry_bind_room(const spry_binder *b, spry_weight *out, unsigned char **room, const spry_tensor *t,
                           spry_dtype type, size_t n_out, size_t n_in);

/* The rows of one expert in a tensor of all experts: rows first, first + step, ..., n_out of n_all. */
typedef struct spry_expert_part {
    size_t expert, first, step, n_out, n_in, n_all;
} spry_expert_part;

/* Binds 4-bit floats in blocks of 32, and their scales: [n_experts, rows, n_in / 32, 16] and [n_experts, rows, n_in /
 * 32]. */
spry_status spry_bind_mxfp4(const spry_binder *b, spry_weight *out, const spry_tensor *blocks,
                            const spry_tensor *scales, const spry_expert_part *part);

/* Binds columns of [n_experts, n_in, columns] as rows. */
spry_status spry_bind_columns(const spry_binder *b, spry_weight *out, const spry_tensor *t,
                              const spry_expert_part *part);

#endif
