/* The kernels for Vulkan: an image (SPIR-V of one GLSL file) with values of its specialisation constants. They have the
 * names and arguments of the CUDA kernels (cuda/kernel_list.h), and a layout of weights and sums of their own
 * (kernels/weights.glsl). */
#ifndef SPRY_DEVICE_VULKAN_VULKAN_KERNELS_H
#define SPRY_DEVICE_VULKAN_VULKAN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* What a device must offer: threads and shared memory of a workgroup. */
enum { SPRY_VULKAN_THREADS = 256, SPRY_VULKAN_SHARED_BYTES = 32 << 10 };

enum { SPRY_VULKAN_CONSTANTS = 12 };

typedef struct spry_vulkan_kernel {
    const char *name;
    const uint32_t *image, *image_end;
    uint32_t args_bytes;
    uint32_t constants[SPRY_VULKAN_CONSTANTS]; /* constant_id 0, 1, ...; the last one is of the device */
} spry_vulkan_kernel;

extern const spry_vulkan_kernel spry_vulkan_kernels[];
extern const size_t spry_vulkan_n_kernels;

#endif
