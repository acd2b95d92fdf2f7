/* Whisper models on a GPU (device/whisper_device.h). */
#ifndef SPRY_DEVICE_CUDA_CUDA_WHISPER_H
#define SPRY_DEVICE_CUDA_CUDA_WHISPER_H

#include "device/whisper_device.h"
#include "platform/cuda_driver.h"

/* As spry_cuda_device_open. */
spry_status spry_cuda_whisper_open(spry_whisper_device **out, const spry_cuda *driver, const void *const *images,
                                   int index, const spry_whisper_setup *setup, spry_error *error);

#endif
