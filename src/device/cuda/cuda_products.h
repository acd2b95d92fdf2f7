/* Which kernel multiplies: by the number of rows and outputs, the type of the weights and what the GPU has. Bits do not
 * depend on it. */
#ifndef SPRY_DEVICE_CUDA_PRODUCTS_H
#define SPRY_DEVICE_CUDA_PRODUCTS_H

#include "device/cuda/cuda_state.h"

/* A kernel, and the rows and tiles of a block. */
typedef struct spry_product_way {
    char name[SPRY_CUDA_KERNEL_NAME];
    size_t rows, tiles;
    size_t share; /* of multiply_cores: blocks that share inputs */
    unsigned threads;
    size_t shared_bytes;
} spry_product_way;

/* Of products of one type; sets where blocks that share inputs put their sums. */
spry_product_way spry_cuda_pick(const spry_cuda_device *d, spry_product_args *args, spry_dtype type);

/* Of at most 8 rows that products normalise themselves: "norm" or "gate", with at most so many tiles of a block at a
 * time, of which four at most are on their way. False where a block has no room for any such kernel. */
bool spry_cuda_pick_rows(spry_product_way *way, const spry_cuda_context *c, const spry_cuda_matrix *w, const char *kind,
                         size_t tiles, size_t n_rows);

/* Of many rows with a gate and an `up` like `w`, in floats. False where there is none, or others are faster. */
bool spry_cuda_pick_gate(spry_product_way *way, const spry_cuda_device *d, const spry_cuda_matrix *w, size_t n_rows);

/* Tiles that kernels for rows which they normalise take at a time, at most. */
enum { SPRY_ROWS_TILES = 8 };

/* A unit of a group of rows, with its scales. */
size_t spry_cuda_group_bytes(spry_dtype type);

#endif
