/* What the kernel that goes through the layers of a decode step of one row is given (kernels/persistent.cuh): a list of
 * phases, each what otherwise is one launch. */
#ifndef SPRY_DEVICE_CUDA_PHASE_ARGS_H
#define SPRY_DEVICE_CUDA_PHASE_ARGS_H

#include "device/cuda/kernel_args.h"

/* Products as gemv.cuh has them: normalised or gated or as they are, so many tiles of a block at a time;
 * attention. */
typedef enum spry_stage_kind {
    SPRY_STAGE_NORM_2,
    SPRY_STAGE_NORM_4,
    SPRY_STAGE_GATE_4,
    SPRY_STAGE_OUT_1,
    SPRY_STAGE_GEMVS, /* how many these are, for each type */
    SPRY_STAGE_ATTEND = 64,
} spry_stage_kind;

/* Types of weights, in the order of their phases: kind = type * SPRY_STAGE_GEMVS + one of the above. A kernel has
 * some. */
typedef enum spry_stage_type {
    SPRY_STAGE_BF16,
    SPRY_STAGE_F16,
    SPRY_STAGE_Q4_0,
    SPRY_STAGE_Q4_1,
    SPRY_STAGE_Q5_0,
    SPRY_STAGE_Q5_1,
    SPRY_STAGE_Q8_0,
    SPRY_STAGE_Q4_K,
    SPRY_STAGE_Q5_K,
    SPRY_STAGE_Q6_K,
    SPRY_STAGE_TYPES
} spry_stage_type;

typedef struct spry_stage {
    uint32_t kind;
    uint32_t ranks;     /* of attention: blocks that share the pages of a row and key head, a power of two */
    uint32_t unused[2]; /* phases are copied in pieces of 16 bytes */
    union {
        spry_gemm_args product;
        spry_decode_args decode;
    } of;
} spry_stage;

/* Words of a list's counters. Each counter has 32 bytes to itself: of each phase how many blocks are done with it, and
 * of each key head how many have left their partial sums. They only ever grow, by the same number in each launch;
 * `base` is what those of phases were before it. */
enum { SPRY_STAGE_COUNTER = 8, SPRY_STAGE_BLOCK = 2 }; /* PHASE_BLOCK: what a block adds to a phase's counter */

typedef struct spry_persistent_args {
    SPRY_AT(const spry_stage) stages;
    SPRY_AT(uint32_t) counters; /* [n_stages] */
    SPRY_AT(uint32_t) heads;    /* [n_kv_heads] */
    SPRY_AT(uint32_t) base;
    uint32_t n_stages;
} spry_persistent_args;

/* Shared memory: sums of splits, sums of squares, a word; the arguments of two phases; then the rooms of products or
 * attention. */
enum {
    SPRY_STAGE_SPLITS = 0,
    SPRY_STAGE_SQUARES = SPRY_SPLIT_K * 4 * SPRY_TILE_ROWS * 4,
    SPRY_STAGE_WORD = SPRY_STAGE_SQUARES + 64,
    SPRY_STAGE_ARGS = SPRY_STAGE_WORD + 64,
    SPRY_STAGE_ARGS_BYTES = 768,
    SPRY_STAGE_SMEM = SPRY_STAGE_ARGS + 2 * SPRY_STAGE_ARGS_BYTES,
    SPRY_STAGE_WARPS = 16,
};

#endif
