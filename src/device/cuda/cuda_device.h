/* The device "cuda", or "cuda:N" for GPU number N: one NVIDIA GPU, its driver loaded at run time. */
#ifndef SPRY_DEVICE_CUDA_CUDA_DEVICE_H
#define SPRY_DEVICE_CUDA_CUDA_DEVICE_H

#include "device/device.h"
#include "platform/cuda_driver.h"

/* Opens the device on a loaded driver with these kernel images, which end with NULL. The driver is closed with the
 * device, or on failure. */
spry_status spry_cuda_device_open(spry_device **out, const spry_cuda *driver, const void *const *images, int index,
                                  const spry_device_setup *setup, spry_error *error);

/* The memory that a device reserves, of Vulkan or of CUDA; see spry_device_estimate. */
bool spry_cuda_device_estimate(spry_device_memory *memory, const spry_device_setup *setup, bool vulkan);

/* The compiled kernels, one fatbin for each file of kernels/, which the module spry_cuda contains. Ends with NULL;
 * there are none if the module is not installed. */
const void *const *spry_cuda_images(void);

#endif
