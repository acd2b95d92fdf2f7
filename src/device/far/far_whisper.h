/* Whisper models on the far device: see far_device.h. */
#ifndef SPRY_DEVICE_FAR_FAR_WHISPER_H
#define SPRY_DEVICE_FAR_FAR_WHISPER_H

#include "device/cpu/cpu_whisper.h"

spry_status spry_far_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error);

/* The memory that only its thread reaches. For tests. */
spry_cpu_region spry_far_whisper_region(const spry_whisper_device *device);

#endif
