/* Which kernel multiplies: by the number of rows and outputs, the type of the weights and what the GPU has. Bits do not
 * depend on it. */
#ifndef SPRY_DEVICE_CUDA_PRODUCTS_H
#define SPRY_DEVICE_CUDA_PRODUCTS_H

#include "device/cuda/cuda_state.h"

/* A kernel, and the rows and tiles of a block; or, of gemm_wgmma.cu, so many blocks, or clusters of `share` blocks.
 */
typedef struct spry_gemm_launch {
    char name[SPRY_CUDA_KERNEL_NAME];
    size_t rows, tiles;
    size_t blocks, share;
    unsigned threads;
    size_t shared_bytes;
} spry_gemm_launch;

/* Of products of one type. */
spry_gemm_launch spry_cuda_pick_gemm(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type);

/* Of at most 8 rows that products normalise themselves: "norm" or "gate", with at most so many tiles of a block at a
 * time, of which four at most are on their way. False where a block has no room for any such kernel. */
bool spry_cuda_pick_fused(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_cuda_matrix *w,
                          const char *kind, size_t tiles, size_t n_rows);

/* Tiles that kernels for rows which they normalise take at a time, at most. */
enum { SPRY_FUSED_TILES = 8 };

/* cuda_gemm_wgmma.c. A kernel of gemm_wgmma.cu: groups of rows and teams of a block, blocks that a multiprocessor has
 * room for, and blocks that share inputs. */
typedef struct spry_wgmma_config {
    size_t groups, warpgroups, blocks, share;
} spry_wgmma_config;

/* Its name; of a gate and an `up`, or any product. Its shared memory. */
void spry_cuda_wgmma_name(char name[SPRY_CUDA_KERNEL_NAME], spry_dtype type, bool gate, spry_wgmma_config kind);
size_t spry_cuda_wgmma_smem(spry_dtype type, spry_wgmma_config kind);

/* Of rows in the order of these kernels; false: they are not. `gate`: of a gate and an `up`. */
bool spry_cuda_pick_wgmma(spry_gemm_launch *launch, const spry_cuda_device *d, const spry_gemm_args *args,
                          spry_dtype type, bool gate);

/* A unit of a group of rows in that order. */
size_t spry_cuda_act_group_bytes(spry_dtype type);

#endif
