/* Choice of the GEMM kernel by rows, outputs, weight type and GPU. The choice does not change the bits of a result. */
#ifndef SPRY_DEVICE_CUDA_CUDA_GEMM_H
#define SPRY_DEVICE_CUDA_CUDA_GEMM_H

#include "device/cuda/cuda_state.h"

/* A kernel, and the rows and tiles of a block; or the number of blocks in `grid`; for gemm_wgmma.cu the number of
 * blocks, or of clusters of `share` blocks. */
typedef struct spry_gemm_launch {
    spry_kernel_id kernel;
    size_t rows, tiles;
    size_t grid;
    size_t blocks, share;
    size_t shared_bytes;
} spry_gemm_launch;

/* Picks the kernel for products whose matrices have this type. */
spry_gemm_launch spry_cuda_pick_gemm(const spry_cuda_device *d, const spry_gemm_args *args, spry_dtype type);

/* A kernel for at most 8 rows with a fused norm, or also with a fused gate, for all columns: tiles, or pairs of tiles
 * of gate and up. Returns false if no such kernel fits into shared memory. */
bool spry_cuda_pick_fused(spry_gemm_launch *launch, const spry_cuda_context *c, const spry_tiles *w, spry_dtype type,
                          bool gate, size_t columns, size_t n_rows);

/* A kernel of gemm_wgmma.cu: groups of 8 rows, consumer warpgroups, blocks per SM, and blocks of a cluster that share
 * K. */
typedef struct spry_wgmma_config {
    size_t groups, warpgroups, blocks, share;
} spry_wgmma_config;

/* The kernel of a config, for a gate and up product if `gate`; SPRY_NO_KERNEL: there is none. wgmma_smem is its dynamic
 * shared memory in bytes. */
spry_kernel_id spry_cuda_wgmma_kernel(spry_dtype type, bool gate, spry_wgmma_config kind);
size_t spry_cuda_wgmma_smem(spry_dtype type, spry_wgmma_config kind);

/* Picks a wgmma kernel; false if the rows are not in the wgmma layout. `gate`: for a gate and up product. */
bool spry_cuda_pick_wgmma(spry_gemm_launch *launch, const spry_cuda_device *d, const spry_gemm_args *args,
                          spry_dtype type, bool gate);

/* Bytes of 8 rows by one unit of 64 inputs in the wgmma layout. */
size_t spry_cuda_act_group_bytes(spry_dtype type);

#endif
