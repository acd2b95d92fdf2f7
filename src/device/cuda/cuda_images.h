/* The kernels as nvcc compiled them, one image for each file of kernels/, linked into the program. Where it was built
 * without nvcc there are none. */
#ifndef SPRY_DEVICE_CUDA_CUDA_IMAGES_H
#define SPRY_DEVICE_CUDA_CUDA_IMAGES_H

#include <stddef.h>

/* Ends with NULL. */
extern const void *const spry_cuda_images[];

#endif
