/* What the kernels of layers that keep a state instead of attending are given (kernel_args.h). */
#ifndef SPRY_DEVICE_CUDA_STATE_ARGS_H
#define SPRY_DEVICE_CUDA_STATE_ARGS_H

#include "device/cuda/kernel_args.h"

/* Short convolutions, as cpu/convolution.c has them: B * x of each row into its page, in a second launch C times what
 * the row's token and those before it give. A vector of a token lies in pieces of head_dim values, in the layer's
 * places for keys and values. Blocks of SPRY_PREPARE_THREADS for (SPRY_PREPARE_ROWS rows, piece). */
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

#endif
