/* A model's tensors under the names the forward pass uses, wherever they came from. Matrices stay in the mapping (or,
 * when a file holds them unaligned, in a copy that is counted); vectors are turned into floats once. */
#ifndef SPRY_MODEL_WEIGHTS_H
#define SPRY_MODEL_WEIGHTS_H

#include "base/buffer.h"
#include "formats/safetensors.h"
#include "model/config.h"

/* What a LoRA adapter adds to a matrix: scale * b * a. */
typedef struct spry_adapter_pair {
    const float *a; /* [rank, n_in] */
    const float *b; /* [rank, n_out]: transposed */
    uint32_t rank;  /* 0: nothing */
    float scale;
} spry_adapter_pair;

/* out = weight * in + bias. Not there: data is NULL. */
typedef struct spry_weight {
    const unsigned char *data; /* [n_out, n_in] */
    spry_dtype type;
    size_t n_out, n_in, row_bytes;
    const float *bias; /* [n_out] or NULL */
    float scale;       /* what products are multiplied by before that; 0: they are not */
    /* Groups of rows as kernels want them, in weights that the CPU has placed (device/cpu/packing.h); NULL: rows as
     * they lie. */
    const unsigned char *packed;
    size_t group_bytes;
    spry_dtype group_type;       /* of the packed groups, if group_bytes is not 0: `type`, or one with its values */
    size_t n_before, n_after;    /* rows of the same matrix around these, which other ranks have */
    struct spry_late_pack *late; /* NULL; or its groups come when steps multiply by it (device/cpu/packing.h) */
    spry_adapter_pair *adapters; /* [adapters of the model], or NULL: none changes it */
} spry_weight;

/* The type whose kernel multiplies it. */
static inline spry_dtype spry_weight_kernel_type(const spry_weight *w)
{
    return w->group_bytes ? w->group_type : w->type;
}

/* Bytes that going through it once reads; `group` is the kernel's (kernels/ops.h). */
static inline double spry_weight_read_bytes(const spry_weight *w, uint32_t group)
{
    return w->group_bytes && group ? (double)w->group_bytes * (double)((w->n_out + group - 1) / group)
                                   : (double)w->n_out * (double)w->row_bytes;
}

/* Gemma 3n: what a layer has beside attention and feed-forward. */
typedef struct spry_side {
    spry_weight laurel_l, laurel_r, router, gate, proj;
    const float *laurel_norm, *router_norm, *post_norm, *correct_scale; /* [n_embd] */
    const float *predict;                                               /* [n_streams * n_streams, n_streams] */
    const float *correct;                                               /* [n_streams, n_streams] */
} spry_side;

typedef struct spry_layer {
    const float *attn_norm, *ffn_norm;           /* [n_embd] or NULL */
    const float *attn_norm_bias, *ffn_norm_bias; /* [n_embd] or NULL */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    const float *attn_post_norm_bias, *ffn_post_norm_bias;
    const float *q_norm, *k_norm; /* [head_dim], or one of these a head; or NULL */
    spry_weight q, k, v, o;
    spry_weight attn_gate; /* [n_heads * head_dim, n_embd]: gates for what attention gives; or absent */
    /* Latent attention: q_a and its norm, where queries come through them; k gives latents and what rope turns, no v.
     * Each head's k_b [n_kv_rank, nope_dim] takes queries into the latents' space, v_b [value_dim, n_kv_rank] takes
     * results out of it; both in floats of some type. */
    spry_weight q_a, *k_b, *v_b;
    const float *q_a_norm, *kv_a_norm;
    spry_weight gate, up, down;                         /* dense feed-forward; absent when there are experts */
    spry_weight router;                                 /* [n_experts, n_embd]; absent when dense */
    spry_weight *expert_gate, *expert_up, *expert_down; /* [n_experts] */
    const float *choice_bias;                           /* [n_experts], added to scores to choose by; or NULL */
    spry_weight shared_gate, shared_up, shared_down;    /* shared experts, or absent */
    spry_weight shared_router;                          /* their gate; absent: the result is added as it is */
    struct spry_side *side;                             /* Gemma 3n's paths beside the block; of Gemma 4 only the
                                                         * layer's input; or NULL */
    /* Gemma 4. Experts beside a dense part: what the router's input is multiplied by, norms before and after experts
     * and after the dense part, [n_embd]; what experts' weights are multiplied by, [n_experts]. A scalar of the layer.
     */
    const float *router_norm, *expert_norm, *expert_post_norm, *dense_post_norm, *expert_scale;
    const float *output_scale;
    spry_weight conv_in, conv_out; /* a short convolution instead of attention: into [B | C | x], and out of it */
    const float *conv, *conv_bias; /* [n_embd, n_conv]; [n_embd] or NULL */
    const float *sinks;            /* [n_heads] or NULL */
    /* A gated delta net instead of attention: queries, keys and values of all heads; gates; beta; fading; out of it. */
    spry_weight delta_qkv[3], delta_gate, delta_b, delta_a, delta_out; /* the first in up to three matrices */
    const float *delta_conv;                                           /* [queries, keys and values, n_conv] */
    const float *delta_conv_bias;                                      /* or NULL */
    const float *delta_skip;                                           /* Mamba-2: [n_delta_heads], D; or NULL */
    const float *delta_dt, *delta_fading;                              /* [n_delta_heads] */
    const float *delta_norm;           /* [delta_value_dim], Mamba-2: [all values]; or NULL */
    spry_weight latent_in, latent_out; /* of what experts take and give, or absent */
} spry_layer;

/* How a tensor of a file is used. */
typedef enum spry_tensor_use {
    SPRY_USE_NONE,   /* not used */
    SPRY_USE_FLOATS, /* a vector, turned into floats */
    SPRY_USE_MATRIX, /* stays where it is */
    SPRY_USE_COPIED, /* a matrix whose rows are not aligned as its type requires */
} spry_tensor_use;

typedef struct spry_weights {
    spry_weight embedding;         /* [n_vocab, n_embd] */
    spry_weight output;            /* the same as embedding when tied */
    const float *output_norm;      /* NULL in encoders */
    const float *output_norm_bias; /* or NULL */
    /* Encoders: rows for positions and for types of tokens, or absent; the norm of all that. */
    spry_weight positions, token_types;
    const float *embedding_norm, *embedding_norm_bias; /* [n_embd] */
    /* Gemma 3n: into and out of the other streams, [n_streams - 1] each [n_embd, n_embd]; what a token gives to each
     * layer, from a table and from its embedding. */
    spry_weight *stream_in, *stream_out, layer_embedding, layer_projection;
    const float *layer_norm; /* [n_layer_embd] */
    spry_layer *layers;
    size_t parameters;
    size_t bytes;             /* of all tensors in use */
    size_t copied_bytes;      /* bytes of tensors that could not stay in the mapping */
    bool several_files;       /* mapped in several places: bytes between tensors may not belong to them */
    unsigned char *uses;      /* [tensors of the files], spry_tensor_use; NULL: not from files */
    unsigned char *quantized; /* NULL, or the memory of all matrices since they were quantised (quantize.h) */
    size_t quantized_bytes;
} spry_weights;

/* Exactly one of gguf and files is given. Sets config->n_vocab and the rope factors that GGUF keeps as tensors. */
spry_status spry_weights_bind(spry_weights *weights, spry_config *config, const spry_gguf *gguf,
                              const spry_safetensors *files, const char *name, spry_arena *arena, spry_error *error);

#endif
