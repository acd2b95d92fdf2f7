/* Whisper models on the host's processors. A step runs in submit, in the caller's thread and the workers. The far
 * device is built on it. */
#ifndef SPRY_DEVICE_CPU_CPU_WHISPER_H
#define SPRY_DEVICE_CPU_CPU_WHISPER_H

#include "device/cpu/cpu_device.h"
#include "device/whisper_device.h"

/* `all`: steps read no weight outside the device's own memory, *region. */
spry_status spry_cpu_whisper_create(spry_whisper_device **out, spry_cpu_region *region, const spry_whisper_setup *setup,
                                    bool all, spry_error *error);

spry_status spry_cpu_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error);

#endif
