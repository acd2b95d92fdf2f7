/* Vulkan as a device. It is the CUDA device's host side (steps, weights, pages, draws) over another driver and other
 * kernels; this header is what the two sides know of each other. Vulkan's own headers are only needed to build the
 * driver: without them, or without glslc, vulkan_absent.c takes its place. */
#ifndef SPRY_DEVICE_VULKAN_VULKAN_DEVICE_H
#define SPRY_DEVICE_VULKAN_VULKAN_DEVICE_H

#include "device/cuda/cuda_gemm.h"
#include "platform/cuda_driver.h"

/* The table of driver functions over Vulkan, which is loaded when this is first called. */
spry_status spry_vulkan_driver_open(spry_cuda *driver, spry_error *error);

/* One image, so that the device finds kernels. */
extern const void *const spry_vulkan_images[];

/* Whether device `index` is a CPU that imitates a GPU, which "auto" does not select. */
bool spry_vulkan_is_cpu(int index);
bool spry_vulkan_is_portable(int index); /* a driver over another interface, such as MoltenVK */

/* The kernel for a product, and the attention kernels; see spry_cuda_pick_gemm and spry_cuda_attention_of. */
spry_gemm_launch spry_vulkan_pick_gemm(const spry_gemm_args *args, spry_dtype type);
spry_cuda_attention spry_vulkan_attention_of(uint32_t head_dim, spry_dtype type);

#endif
