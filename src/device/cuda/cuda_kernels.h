/* The kernels as the host sees them, made from kernel_list.h: their names and threads, and for each type of weights or
 * KV pages the kernels that there are. */
#ifndef SPRY_DEVICE_CUDA_CUDA_KERNELS_H
#define SPRY_DEVICE_CUDA_CUDA_KERNELS_H

#include "base/dtype.h"
#include "device/cuda/kernel_list.h"

/* By spry_kernel_id. */
extern const char *const spry_cuda_kernel_names[SPRY_KERNEL_COUNT];
extern const uint16_t spry_cuda_kernel_threads[SPRY_KERNEL_COUNT];

/* The kernels for one row (gemv.cuh). */
typedef enum spry_gemv_variant { SPRY_GEMV_NORM, SPRY_GEMV_GATE, SPRY_GEMV_OUT, SPRY_GEMV_VARIANTS } spry_gemv_variant;

/* Variants of the kernels for 2 to 8 rows, by the number of tiles computed at a time. */
typedef enum spry_small_variant {
    SPRY_SMALL_NORM_2,
    SPRY_SMALL_NORM_4,
    SPRY_SMALL_GATE_4,
    SPRY_SMALL_GATE_8,
    SPRY_SMALL_OUT_8,
    SPRY_SMALL_VARIANTS
} spry_small_variant;

/* Variants of the split-K kernel: groups of 8 rows, and tiles, that a block computes. */
typedef enum spry_splitk_variant {
    SPRY_SPLITK_1_1,
    SPRY_SPLITK_2_1,
    SPRY_SPLITK_4_1,
    SPRY_SPLITK_2_2,
    SPRY_SPLITK_4_4,
    SPRY_SPLITK_SMALL, /* one group and one tile, with less shared memory */
    SPRY_SPLITK_VARIANTS
} spry_splitk_variant;

/* Variants of the wgmma kernel: groups of 8 rows, consumer warpgroups, and blocks per SM. */
typedef enum spry_wgmma_variant { SPRY_WGMMA_8_1_2, SPRY_WGMMA_16_2_1, SPRY_WGMMA_VARIANTS } spry_wgmma_variant;

/* A weight type: its activation format, the bytes of a unit in each plane (of the super plane for four units), and its
 * kernels, SPRY_NO_KERNEL where there are none. values = 0: the type is not stored on the GPU. */
typedef struct spry_weight_type {
    spry_act_format format;
    uint32_t values, high, scale, super;
    spry_kernel_id repack, embed;
    spry_kernel_id splitk[SPRY_SPLITK_VARIANTS];
    spry_kernel_id large[2]; /* for many rows: the wide kernel with 1 or 2 tiles per warp; a type without one has its
                              * multistage or plain kernel in both */
    spry_kernel_id tiles;    /* for rows of many experts */
    spry_kernel_id gemv[SPRY_GEMV_VARIANTS], small[SPRY_SMALL_VARIANTS];
    spry_kernel_id wgmma[2][SPRY_WGMMA_VARIANTS]; /* [1]: gate and up */
} spry_weight_type;

extern const spry_weight_type spry_cuda_weight_types[SPRY_DTYPE_COUNT];

/* Kernels of a type of KV pages; split_kv and prefill are indexed by the values of a head that a lane holds: 1, 2, 4,
 * 8, 16. */
typedef struct spry_kv_kernels {
    spry_kernel_id rope_kv, conv_store, convolve, mla_rope_kv, mla_split_kv, mla_prefill;
    spry_kernel_id split_kv[5], prefill[5];
} spry_kv_kernels;

extern const spry_kv_kernels spry_cuda_kv_kernels[SPRY_DTYPE_COUNT];

/* Kernels over F16 pages, by head size / 32: 1, 2, 3, 4 and 8. */
enum { SPRY_HEAD_BLOCKS = 9 };

typedef struct spry_head_kernels {
    spry_kernel_id split_kv, prefill, prefill_wgmma, decode;
} spry_head_kernels;

extern const spry_head_kernels spry_cuda_head_kernels[SPRY_HEAD_BLOCKS];

/* Kernels for heads of 64 and 128 that RoPE rotates fully (attention_decode_fast.cu, rope_kv.cu). */
typedef enum spry_full_heads { SPRY_HEADS_NORM, SPRY_HEADS_RAW, SPRY_HEADS_PAIRS, SPRY_FULL_HEADS } spry_full_heads;
typedef enum spry_fast_pages { SPRY_PAGES_SHORT, SPRY_PAGES_SINGLE, SPRY_PAGES_LONG, SPRY_FAST_PAGES } spry_fast_pages;

typedef struct spry_full_head_kernels {
    spry_kernel_id rope_kv;
    spry_kernel_id decode[SPRY_FAST_PAGES];
} spry_full_head_kernels;

extern const spry_full_head_kernels spry_cuda_full_head_kernels[SPRY_FULL_HEADS][2]; /* [][0]: 64, [][1]: 128 */

#endif
