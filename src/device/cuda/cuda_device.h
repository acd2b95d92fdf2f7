/* The device "cuda", or "cuda:N" for GPU number N: one NVIDIA GPU, its driver loaded at run time. */
#ifndef SPRY_DEVICE_CUDA_CUDA_DEVICE_H
#define SPRY_DEVICE_CUDA_CUDA_DEVICE_H

#include "device/device.h"
#include "platform/cuda_driver.h"

/* Opens it on a driver that is loaded already, with these images of kernels (ending with NULL). The driver's library,
 * if it has one, is closed with the device, or on failure. */
spry_status spry_cuda_device_open(spry_device **out, const spry_cuda *driver, const void *const *images, int index,
                                  const spry_device_setup *setup, spry_error *error);

#endif
