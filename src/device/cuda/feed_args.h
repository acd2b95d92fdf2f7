/* What the kernel that feeds drawn tokens to the next step is given (kernel_args.h). */
#ifndef SPRY_DEVICE_CUDA_FEED_ARGS_H
#define SPRY_DEVICE_CUDA_FEED_ARGS_H

#include "device/cuda/kernel_args.h"

/* Tokens of rows are what draws of the step before gave, or 0 where they failed: a thread for a row. */
enum { SPRY_FEED_THREADS = 128 };

typedef struct spry_feed_args {
    SPRY_AT(spry_step_row) rows;
    SPRY_AT(const uint32_t) drawn; /* [n_rows] numbers of draws */
    SPRY_AT(const spry_draw_result) results;
    uint32_t n_rows, n_vocab;
} spry_feed_args;

#endif
