/* A model's tensors under the names that the forward pass uses, whatever file they come from. Matrices stay in the
 * mapped file (or, if a file has them unaligned, in a copy, which is counted); vectors are converted to floats once. */
#ifndef SPRY_MODEL_WEIGHTS_H
#define SPRY_MODEL_WEIGHTS_H

#include "base/buffer.h"
#include "formats/safetensors.h"
#include "model/config.h"

/* What a LoRA adapter adds to a matrix: scale * b * a. */
typedef struct spry_adapter_pair {
    const float *a; /* [rank, n_in] */
    const float *b; /* [rank, n_out], transposed */
    uint32_t rank;  /* 0: the adapter does not change the matrix */
    float scale;
} spry_adapter_pair;

/* The range of a matrix's inputs and of its outputs; values outside become the nearest value inside. */
typedef struct spry_limits {
    float in_min, in_max, out_min, out_max;
} spry_limits;

/* out = weight * in + bias. data is NULL: the model has no such matrix. */
typedef struct spry_weight {
    const unsigned char *data; /* [n_out, n_in] */
    spry_dtype type;
    size_t n_out, n_in, row_bytes;
    const float *bias;         /* [n_out] or NULL */
    float scale;               /* factor of the product, before the bias is added; 0: none */
    const spry_limits *limits; /* NULL: none */
    /* Groups of rows as the kernels read them, if the CPU device has packed the weight (device/cpu/packing.h); NULL:
     * rows in file layout. */
    const unsigned char *packed;
    size_t group_bytes;
    spry_dtype group_type;       /* type of the packed groups, if group_bytes is not 0: `type`, or another type that
                                  * represents the same values */
    size_t n_before, n_after;    /* rows of the same matrix before and after these, which other ranks have */
    struct spry_late_pack *late; /* NULL; or groups that are packed when a step first multiplies by them
                                  * (device/cpu/packing.h) */
    spry_adapter_pair *adapters; /* [adapters of the model]; NULL: no adapter changes the matrix */
    struct spry_weight *low;     /* NULL; or two matrices: low[1] * (low[0] * in) is added to the product */
} spry_weight;

/* The type of the kernel that multiplies by this weight. */
static inline spry_dtype spry_weight_kernel_type(const spry_weight *w)
{
    return w->group_bytes ? w->group_type : w->type;
}

/* Bytes that one product reads from memory; `group`: the kernel's group size (kernels/ops.h). */
static inline double spry_weight_read_bytes(const spry_weight *w, uint32_t group)
{
    return w->group_bytes && group ? (double)w->group_bytes * (double)((w->n_out + group - 1) / group)
                                   : (double)w->n_out * (double)w->row_bytes;
}

/* Gemma 3n: what a layer has in addition to attention and feed-forward. */
typedef struct spry_side {
    spry_weight laurel_l, laurel_r, router, gate, proj;
    const float *laurel_norm, *router_norm, *post_norm, *correct_scale; /* [n_embd] */
    const float *predict;                                               /* [n_streams * n_streams, n_streams] */
    const float *correct;                                               /* [n_streams, n_streams] */
} spry_side;

/* Hyper-connections: products of the streams, and what makes weights of them. */
typedef struct spry_hyper {
    spry_weight mix;           /* [n_hyper * (2 + n_hyper), n_hyper * n_embd]; at the end [n_hyper, ...] */
    const float *base, *scale; /* [outputs of mix], [3]; at the end [1] */
} spry_hyper;

typedef struct spry_layer {
    const float *attn_norm, *ffn_norm;           /* [n_embd] or NULL */
    const float *attn_norm_bias, *ffn_norm_bias; /* [n_embd] or NULL */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    const float *attn_post_norm_bias, *ffn_post_norm_bias;
    const float *q_norm, *k_norm; /* [head_dim], or one such vector per head; or NULL */
    spry_weight q, k, v, o;
    spry_weight attn_gate; /* [n_heads * head_dim, n_embd]: gates for attention's result; or absent */
    /* Multi-head latent attention. q_a and its norm: queries are projected through them, if present. k gives latents
     * and the part that RoPE rotates; there is no v. k_b [n_kv_rank, nope_dim] of each head projects queries to the
     * space of the latents, v_b [value_dim, n_kv_rank] projects results back; both have some float type. */
    spry_weight q_a, *k_b, *v_b;
    const float *q_a_norm, *kv_a_norm;
    /* The indexer of latent attention, or absent: queries from the latents of queries, one key, and a weight for each
     * of its heads from the row; the norm of keys. */
    spry_weight index_q, index_k, index_weights;
    const float *index_k_norm, *index_k_norm_bias; /* [index_dim] */
    /* DeepSeek V4: what entries join, gates, what a token's place adds to gates, and the norm of entries; the same for
     * the entries of the indexer; output matrices of groups of heads, [n_out_groups]; experts of each token, [n_vocab,
     * n_experts_used], or NULL. */
    spry_weight join_values, join_gates, index_join_values, index_join_gates, *out_groups;
    const float *join_added, *join_norm, *index_join_added;
    const int32_t *token_experts;
    spry_hyper attn_hyper, ffn_hyper;
    spry_weight gate, up, down;                         /* dense feed-forward; absent if there are experts */
    spry_weight router;                                 /* [n_experts, n_embd]; absent in dense layers */
    spry_weight *expert_gate, *expert_up, *expert_down; /* [n_experts] */
    const float *choice_bias;                           /* [n_experts], added to the scores for the selection; or
                                                         * NULL */
    spry_weight shared_gate, shared_up, shared_down;    /* shared experts, or absent */
    spry_weight shared_router;                          /* gate of the shared experts; absent: their result is added
                                                         * without a factor */
    struct spry_side *side;                             /* additional parts of Gemma 3n's layers (of Gemma 4 only the
                                                         * layer's input); or NULL */
    /* Gemma 4. Experts in addition to a dense part: factor of the router's input, norms before and after the experts
     * and after the dense part, [n_embd]; factors of the experts' weights, [n_experts]. output_scale: scalar of the
     * layer. */
    const float *router_norm, *expert_norm, *expert_post_norm, *dense_post_norm, *expert_scale;
    const float *output_scale;
    spry_weight conv_in, conv_out; /* a short convolution in place of attention: projections to [B | C | x], and from
                                    * its result */
    const float *conv, *conv_bias; /* [n_embd, n_conv]; [n_embd] or NULL */
    const float *sinks;            /* [n_heads] or NULL */
    /* A gated delta net in place of attention: projections to queries, keys and values of all heads, to the gates, to
     * beta and to decay; and from its result. */
    spry_weight delta_qkv[3], delta_gate, delta_b, delta_a, delta_out; /* delta_qkv: up to three matrices */
    const float *delta_conv;                                           /* [queries, keys and values, n_conv] */
    const float *delta_conv_bias;                                      /* or NULL */
    const float *delta_skip;                                           /* Mamba-2: [n_delta_heads], D; or NULL */
    const float *delta_dt, *delta_fading;                              /* [n_delta_heads] */
    const float *delta_norm;               /* [delta_value_dim], Mamba-2: [all values]; or NULL */
    const float *attn_scales, *ffn_scales; /* [n_embd]: factors of the results of attention and of feed-forward; NULL */
    /* Zamba2: a block of attention and feed-forward before the recurrent part: the norm of its input, [2 * n_embd], and
     * the projection of its result. */
    const float *block_norm;
    spry_weight block_out;
    spry_weight latent_in, latent_out; /* projections of the experts' inputs and results, or absent */
} spry_layer;

/* How a tensor of a file is used. */
typedef enum spry_tensor_use {
    SPRY_USE_NONE,   /* not used */
    SPRY_USE_FLOATS, /* a vector, turned into floats */
    SPRY_USE_MATRIX, /* a matrix, used in place */
    SPRY_USE_COPIED, /* a matrix that is copied, because its rows are not aligned as its type requires */
} spry_tensor_use;

typedef struct spry_weights {
    spry_weight embedding;         /* [n_vocab, n_embd] */
    spry_weight output;            /* the same as embedding when tied */
    const float *output_norm;      /* NULL in encoders */
    const float *output_norm_bias; /* or NULL */
    /* Encoders: tables of positions and of token types, or absent; the norm of the sum. */
    spry_weight positions, token_types;
    const float *embedding_norm, *embedding_norm_bias; /* [n_embd] */
    /* Gemma 3n: projections to and from the other streams, [n_streams - 1] of [n_embd, n_embd]; the input that a token
     * gives to each layer, from a table and from its embedding. */
    spry_weight *stream_in, *stream_out, layer_embedding, layer_projection;
    const float *layer_norm; /* [n_layer_embd] */
    /* A head that drafts (draft_head.h): x = draft_in * [norm(embedding) | norm(hidden state)], both of [n_embd];
     * absent in models. */
    spry_weight draft_in; /* [n_embd, 2 * n_embd] */
    const float *draft_embedding_norm, *draft_hidden_norm;
    spry_hyper hyper; /* hyper-connections after the last layer */
    spry_layer *layers;
    size_t parameters;
    size_t bytes;             /* bytes of all tensors in use */
    size_t copied_bytes;      /* bytes of tensors that could not stay in the mapping */
    bool several_files;       /* the files are mapped in several places: bytes between two tensors may belong to
                               * something else */
    unsigned char *uses;      /* [tensors of the files], spry_tensor_use; NULL: the weights are not from files */
    unsigned char *quantized; /* NULL, or the memory of all matrices after quantising (quantize.h) */
    size_t quantized_bytes;
} spry_weights;

/* Exactly one of gguf and files is not NULL. Sets config->n_vocab, and the RoPE factors that GGUF stores as tensors. */
spry_status spry_weights_bind(spry_weights *weights, spry_config *config, const spry_gguf *gguf,
                              const spry_safetensors *files, const char *name, spry_arena *arena, spry_error *error);

/* Binds a head that drafts for a model, whose config (draft_head.h) says so. The embedding and the output matrix are
 * the model's. *found becomes false, and nothing else happens, if the files have none. */
spry_status spry_weights_bind_head(bool *found, spry_weights *head, spry_config *config, const spry_weights *model,
                                   uint32_t first_layer, const spry_gguf *gguf, const spry_safetensors *files,
                                   const char *name, spry_arena *arena, spry_error *error);

#endif
