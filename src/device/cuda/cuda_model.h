/* A model's weights in GPU memory: matrices as tiles (kernels/weight_tiles.cuh), vectors as floats, in one allocation,
 * so that a lack of memory is known before anything is copied. */
#ifndef SPRY_DEVICE_CUDA_CUDA_MODEL_H
#define SPRY_DEVICE_CUDA_CUDA_MODEL_H

#include "base/error.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"
#include "model/weights.h"

enum { SPRY_CUDA_CHUNKS = 64 };

/* A matrix, or the matrices of all experts. Absent: type is SPRY_DTYPE_COUNT. */
typedef struct spry_cuda_matrix {
    spry_tiles tiles;
    spry_dtype type;           /* on the GPU */
    spry_cuda_memory bias;     /* 0: none; the biases of experts follow each other */
    double read_bytes;         /* bytes that one product reads */
    spry_cuda_memory pairs;    /* [experts or one, adapters] spry_lora_pair; 0: no adapter changes the matrix */
    size_t pairs_bytes;        /* bytes of one matrix's pairs */
    const spry_limits *limits; /* limits of its inputs and outputs, in the model; NULL: none */

    float scale; /* factor of the product, before the bias is added, which is stored divided by it; 0: none */
    /* For a product that is added to x: the weights of the RMS norm of x that follows (0: no norm follows), and the
     * matrices that read the result of this norm (NULL: fewer). */
    spry_cuda_memory next_norm;
    const struct spry_cuda_matrix *next[SPRY_GEMM_PARTS];
} spry_cuda_matrix;

/* Gemma 3n: the parts of a layer beside attention and feed-forward (spry_side). */
typedef struct spry_cuda_side {
    spry_cuda_matrix laurel_l, laurel_r, router, gate, proj;
    spry_cuda_memory laurel_norm, router_norm, post_norm, correct_scale, predict, correct;
} spry_cuda_side;

typedef struct spry_cuda_layer {
    /* 0: none */
    spry_cuda_memory attn_norm, ffn_norm, attn_post_norm, ffn_post_norm;
    spry_cuda_memory attn_scales, ffn_scales; /* factors of the results of attention and of feed-forward */
    spry_cuda_memory attn_norm_bias, ffn_norm_bias, attn_post_norm_bias, ffn_post_norm_bias;
    spry_cuda_memory q_norm, k_norm; /* if both norms come after RoPE, q_norm is their product */
    spry_cuda_memory sinks, choice_bias, expert_scale;
    spry_cuda_memory conv, conv_bias; /* short convolution: [n_embd, n_conv], [n_embd] */
    spry_cuda_matrix q, k, v;
    spry_cuda_matrix o, state_out; /* output projections of attention, and of what a layer has in its place */
    spry_cuda_matrix attn_gate;
    spry_cuda_matrix conv_in;
    /* gated delta net; see spry_layer */
    spry_cuda_memory delta_conv, delta_conv_bias, delta_skip, delta_dt, delta_fading, delta_norm;
    spry_cuda_matrix delta_qkv[3], delta_gate, delta_b, delta_a;
    spry_cuda_memory q_a_norm, kv_a_norm;
    spry_cuda_matrix q_a, k_b, v_b;  /* MLA; k_b and v_b of all heads */
    spry_cuda_matrix gate, up, down; /* with experts: their matrices one after the other */
    spry_cuda_matrix router;
    spry_cuda_matrix shared_gate, shared_up, shared_down, shared_router;
    spry_cuda_matrix latent_in, latent_out; /* projections of the experts' inputs and results */
    /* Gemma 4: the dense part beside experts and the norms around both; the layer's scalar, 0: none */
    spry_cuda_matrix dense_gate, dense_up, dense_down;
    spry_cuda_memory router_norm, expert_norm, expert_post_norm, dense_post_norm;
    float output_scale;
    spry_cuda_side side;
} spry_cuda_layer;

/* Memory of the host, in whole pages once it is shared; used: a matrix is there. */
typedef struct spry_cuda_range {
    uintptr_t begin, end;
    spry_cuda_memory address;
    bool used;
} spry_cuda_range;

/* Weights that the GPU uses where the host has them (cuda_share.c). */
typedef struct spry_cuda_shared {
    spry_cuda_range *ranges;
    size_t n, capacity, bytes;
    bool lacks; /* memory for the list */
} spry_cuda_shared;

typedef struct spry_cuda_model {
    spry_cuda_memory memory[SPRY_CUDA_CHUNKS]; /* one, or several of the largest size that the driver allocates */
    size_t bytes;                              /* without shared ones */
    spry_cuda_shared shared;
    spry_cuda_matrix embedding, output;
    spry_cuda_memory output_norm, output_norm_bias;
    spry_cuda_matrix positions, token_types; /* only encoders have them */
    spry_cuda_memory embedding_norm, embedding_norm_bias;
    spry_cuda_memory frequencies[2]; /* for full and for sliding layers */
    spry_cuda_memory axes;           /* [pairs]: the coordinate by which RoPE turns a pair; 0: all by time */
    float magnitude[2];
    spry_cuda_matrix stream_in, stream_out; /* Gemma 3n: for all streams but the first */
    spry_cuda_matrix layer_embedding, layer_projection;
    spry_cuda_memory layer_norm;
    spry_cuda_layer *layers; /* [n_layers] */
} spry_cuda_model;

/* Matrix `number` of several. */
spry_cuda_matrix spry_cuda_matrix_of(const spry_cuda_matrix *all, size_t number);

/* The activation format for products with a matrix, and its number of bf16 terms. */
spry_act_format spry_cuda_act_format(spry_dtype placed);
size_t spry_cuda_act_terms(spry_dtype placed);

/* The type in which a matrix is stored: its own, or F32 if there are no kernels for that. `vulkan`: kernels of Vulkan.
 */
spry_dtype spry_cuda_stored_type(spry_dtype type, bool vulkan);

/* Bytes of 16 outputs and 64 inputs in all planes. */
size_t spry_cuda_unit_bytes(spry_dtype placed);

/* Bytes of the whole model and its adapters, in pieces of at most `chunk` bytes that are allocated together; 0: no
 * limit. *largest: NULL, or becomes the size of the largest piece. `vulkan`: for a device of Vulkan. */
size_t spry_cuda_model_bytes(size_t *largest, const spry_config *config, const spry_weights *weights,
                             const spry_step_limits *limits, size_t chunk, bool vulkan);

spry_status spry_cuda_model_init(spry_cuda_model *model, spry_cuda_context *context, const spry_config *config,
                                 const spry_weights *weights, const spry_ops *ops, const spry_step_limits *limits,
                                 spry_log log, spry_error *error);
void spry_cuda_model_deinit(spry_cuda_model *model, spry_cuda_context *context);

/* cuda_share.c: lists weights, shares what was listed, finds the address of shared ones (0: they are not shared), and
 * ends it. */
void spry_cuda_share_list(spry_cuda_shared *shared, const void *bytes, size_t n, bool matrix);
void spry_cuda_share(spry_cuda_shared *shared, spry_cuda_context *context);
spry_cuda_memory spry_cuda_shared_at(const spry_cuda_shared *shared, const void *bytes, size_t n);
void spry_cuda_unshare(spry_cuda_shared *shared, spry_cuda_context *context);

/* Loads weights one after the other: a first pass counts bytes, a second one copies. */
enum { SPRY_CUDA_STAGING = 64 << 20 };

/* Bytes of staging memory: SPRY_CUDA_STAGING, or what the driver allocates at most. */
size_t spry_cuda_staging_bytes(const spry_cuda_context *context);

typedef struct spry_cuda_loader {
    spry_cuda_context *context; /* NULL: counting */
    const spry_config *config;
    const spry_ops *ops;
    size_t n_adapters;             /* maximum adapters of a matrix */
    const spry_cuda_memory *bases; /* destinations of `chunk` bytes each */
    size_t chunk;                  /* nothing crosses a multiple of it; 0: there is one destination */
    spry_cuda_memory staging;      /* staging memory */
    size_t used, largest;          /* bytes so far; the largest piece */
    bool vulkan;                   /* of the types only those with kernels of Vulkan */
    size_t as_floats;              /* matrices of another type that are stored as F32 */
    spry_cuda_shared *list;        /* NULL, or becomes the list of weights that may be shared */
    const spry_cuda_shared *shared;
} spry_cuda_loader;

/* Uploads and repacks a matrix, or uploads a vector. The source is in use until the next spry_cuda_finish. */
spry_cuda_matrix spry_cuda_load_matrix(spry_cuda_loader *placer, const spry_weight *weight);
spry_cuda_memory spry_cuda_load_vector(spry_cuda_loader *placer, const float *values, size_t n);

#endif
