/* What tests see of the driver over Vulkan (vulkan_device.h). */
#ifndef SPRY_DEVICE_VULKAN_VULKAN_DRIVER_H
#define SPRY_DEVICE_VULKAN_VULKAN_DRIVER_H

#include "device/vulkan/vulkan_gpu.h"

/* A usable device, NULL past the last one; GPUs before CPUs. Valid after spry_vulkan_driver_open. */
const spry_vk_facts *spry_vulkan_facts(size_t i);

/* The open device `i`, NULL: it is not open. */
spry_vk_gpu *spry_vulkan_gpu(size_t i);

/* Forgets the library, so that the next call loads it again; no device may be open. */
void spry_vulkan_driver_reset(void);

#endif
