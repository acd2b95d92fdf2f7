/* What the kernels of latent attention are given (kernels/attention_mla.cu). A key is [what rope turns | latents], one
 * for all heads; its latents are the value, too. */
#ifndef SPRY_DEVICE_CUDA_LATENT_ARGS_H
#define SPRY_DEVICE_CUDA_LATENT_ARGS_H

#include "device/cuda/kernel_args.h"

enum {
    SPRY_MLA_QUERIES = 16, /* that a block works on together */
    SPRY_MLA_THREADS = 256,
    SPRY_MLA_KEY_MAX = 640,     /* values of a key, */
    SPRY_MLA_VALUES_MAX = 512,  /* and latents of these */
    SPRY_MLA_SMEM = 19200,      /* bytes of shared memory of a block of attention, */
    SPRY_MLA_QUERY_STRIDE = 20, /* and so many floats for each value of a key */
};

/* Slots of heads: those of a head lie together, `each` of them, so that products take heads as they take experts. A
 * thread for a slot. */
typedef struct spry_mla_slots_args {
    SPRY_AT(int32_t) source; /* [slots]: row * n_heads + head, -1: none */
    SPRY_AT(int32_t) heads;  /* [slots / align] */
    uint32_t n_rows, n_heads, each, align;
} spry_mla_slots_args;

/* Queries become [rope | latents] and are turned, so are keys, whose latents are normalised, and which go to their
 * pages. Blocks of SPRY_ROPE_KV_THREADS for (SPRY_ROPE_KV_ROWS rows, head), the heads of q, then the key. */
typedef struct spry_mla_rope_kv_args {
    SPRY_AT(float) q;           /* [rows, n_heads, key] */
    SPRY_AT(const float) raw;   /* [rows, n_heads, raw_dim]: what rope turns is behind */
    SPRY_AT(const float) taken; /* [slots, n_values]: the rest, in the latents' space */
    SPRY_AT(const float) k;     /* [rows, key]: latents, then what rope turns */
    SPRY_AT(const float) norm;  /* [n_values] */
    SPRY_AT(const float) cosine;
    SPRY_AT(const float) sine; /* [rows, pairs] */
    SPRY_AT(const spry_step_row) rows;
    spry_kv_pages kv; /* head_dim: of a key */
    uint32_t n_rows, n_heads, n_values, raw_dim, each, n_pairs, interleaved;
    float eps;
} spry_mla_rope_kv_args;

/* Grids of (pieces, batches of queries, pages) for few rows, of (runs, batches) for many. */
typedef struct spry_mla_attend_args {
    spry_attend_args attend; /* kv.head_dim: of a value; one page is a chunk */
    uint32_t key_dim;
} spry_mla_attend_args;

/* Slots of n values back into rows [rows, n_heads * n]: a block for a row. */
typedef struct spry_mla_join_args {
    SPRY_AT(float) out;
    SPRY_AT(const float) slots;
    uint32_t n, n_heads, each;
} spry_mla_join_args;

#endif
