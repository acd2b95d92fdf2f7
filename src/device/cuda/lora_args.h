/* What the kernels of LoRA adapters are given (kernel_args.h). */
#ifndef SPRY_DEVICE_CUDA_ADAPT_ARGS_H
#define SPRY_DEVICE_CUDA_ADAPT_ARGS_H

#include "device/cuda/kernel_args.h"

/* What an adapter adds to a matrix: scale * b * a. */
typedef struct spry_lora_pair {
    SPRY_AT(const float) a; /* [rank, n_in] */
    SPRY_AT(const float) b; /* [rank, n_out] */
    uint32_t rank;          /* 0: nothing */
    float scale;
} spry_lora_pair;

/* Rows and threads of a block, and matrices of one launch. Rows of a block belong to one expert. */
enum { SPRY_LORA_ROWS = 8, SPRY_LORA_THREADS = 256, SPRY_LORA_PARTS = 3 };

typedef struct spry_lora_part {
    SPRY_AT(const spry_lora_pair) pairs; /* [experts or one, n_adapters]; NULL: none */
    SPRY_AT(float) out;
    uint32_t n_out, stride; /* of out, in floats */
} spry_lora_part;

/* out[row] += scale * b * (a * in[row]) of every adapter that the row goes through. First spry_lora_shrink, blocks of
 * (SPRY_LORA_THREADS / 32 ranks, SPRY_LORA_ROWS rows, part), then spry_lora_expand, of (SPRY_LORA_THREADS outputs, the
 * same). */
typedef struct spry_lora_args {
    spry_lora_part parts[SPRY_LORA_PARTS];
    SPRY_AT(const float) in;        /* [n_rows, n_in] */
    SPRY_AT(float) shrunk;          /* [parts, n_rows, n_ranks]: a * in, the ranks of one adapter behind another's */
    SPRY_AT(const float) scales;    /* [rows of the step, n_adapters]; 0: the row does not go through it */
    SPRY_AT(const int32_t) source;  /* NULL, or for each row its number in the step, negative: none */
    SPRY_AT(const int32_t) experts; /* NULL, or for each group of `expert_rows` rows its expert, negative: none */
    uint32_t expert_rows;
    uint32_t n_rows, n_in, n_adapters, n_ranks;
} spry_lora_args;

#endif
