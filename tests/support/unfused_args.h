/* The arguments of the kernels of unfused.cu. */
#ifndef SPRY_TESTS_UNFUSED_ARGS_H
#define SPRY_TESTS_UNFUSED_ARGS_H

#include "device/cuda/kernel_args.h"

enum { UNFUSED_TILE = 128, UNFUSED_DEPTH = 64, UNFUSED_HEAD = 128, UNFUSED_THREADS = 256 };
enum {
    unfused_scores_threads = UNFUSED_THREADS,
    unfused_softmax_threads = UNFUSED_THREADS,
    unfused_values_threads = UNFUSED_THREADS
};

/* Halves, heads of UNFUSED_HEAD values; n tokens, a multiple of UNFUSED_TILE. */
typedef struct unfused_args {
    SPRY_AT(const uint16_t) q; /* [heads, n, head] */
    SPRY_AT(const uint16_t) k; /* [key heads, n, head] */
    SPRY_AT(const uint16_t) v;
    SPRY_AT(uint16_t) scores; /* [heads, n, n] */
    SPRY_AT(float) out;       /* [n, heads, head] */
    uint32_t n, n_heads, n_kv_heads;
    float scale;
} unfused_args;

#endif
