/* What the kernels of layers that keep a state instead of attending are given (kernel_args.h). */
#ifndef SPRY_DEVICE_CUDA_STATE_ARGS_H
#define SPRY_DEVICE_CUDA_STATE_ARGS_H

#include "device/cuda/kernel_args.h"

/* Short convolutions, as cpu/convolution.c has them: B * x of each row into its page, in a second launch C times what
 * the row's token and those before it give. A vector of a token lies in pieces of head_dim values, in the layer's
 * places for keys and values. Blocks of SPRY_ROPE_KV_THREADS for (SPRY_ROPE_KV_ROWS rows, piece). */
typedef struct spry_conv_args {
    SPRY_AT(float) out;          /* [rows, n] */
    SPRY_AT(const float) in;     /* [rows, 3 * n]: B | C | x */
    SPRY_AT(const float) weight; /* [n, reach]: the row's own token last */
    SPRY_AT(const float) bias;   /* NULL, or [n] */
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const spry_step_entry) entries;
    spry_kv_pages kv;     /* of the layer's first place */
    uint64_t place_bytes; /* from one place of a page to the next */
    uint32_t n_rows, n, reach;
} spry_conv_args;

/* Gated delta nets, as cpu/delta.c has them: what rows give into their pages, a block of SPRY_DELTA_STORE_THREADS for a
 * row; in a second launch states go on over the rows and answer them, blocks of SPRY_DELTA_THREADS for
 * (SPRY_DELTA_COLUMNS columns, head, segment). */
enum { SPRY_DELTA_STORE_THREADS = 256, SPRY_DELTA_THREADS = 128, SPRY_DELTA_COLUMNS = 32 };

typedef struct spry_delta_args {
    SPRY_AT(float) out;          /* [rows, n_heads, value_dim] */
    SPRY_AT(const float) mixed;  /* [rows, n_mixed]: queries and keys of n_keys heads, values of n_heads */
    SPRY_AT(const float) ba;     /* [rows, n_keys, 2, n_heads / n_keys]: beta and fading before their functions */
    SPRY_AT(const float) weight; /* [n_mixed, reach] */
    SPRY_AT(const float) dt;     /* [n_heads] */
    SPRY_AT(const float) fading; /* [n_heads] */
    SPRY_AT(const spry_step_row) rows;
    SPRY_AT(const spry_step_entry) entries;
    SPRY_AT(const spry_row_range) segments; /* rows of one sequence each */
    SPRY_AT(unsigned char) pages;           /* of page 0: where the layer's floats begin */
    uint64_t page_bytes;
    uint32_t n_heads, n_keys, key_dim, value_dim, n_mixed, reach;
} spry_delta_args;

/* Attention with a gate beside each query: queries out of `raw` into x, or x times the sigmoids of the gates. Blocks of
 * SPRY_DELTA_THREADS for (row, head). */
typedef struct spry_head_gates_args {
    SPRY_AT(float) x;         /* [rows, heads, n] */
    SPRY_AT(const float) raw; /* [rows, heads, 2, n]: query, gate */
    uint32_t n;
} spry_head_gates_args;

#endif
