/* The host's processors as a device: weights packed for its kernels, pages in its memory. A step runs in submit, in the
 * caller's thread and the workers. The "far" device of tests is built on it. */
#ifndef SPRY_DEVICE_CPU_CPU_DEVICE_H
#define SPRY_DEVICE_CPU_CPU_DEVICE_H

#include "device/cpu/packing.h"
#include "device/cpu/pass.h"
#include "device/device_impl.h"
#include "device/whisper_device.h"
#include "sampling/candidates.h"

typedef struct spry_cpu_device {
    spry_device device;
    spry_placed_weights placed;
    spry_host_pages pages, states; /* KV pages; recurrent states */
    spry_expert_store experts;
    spry_pass *pass;
    spry_candidates candidates; /* scratch of draws */
} spry_cpu_device;

/* `all`: steps must not read weights outside the device's own memory. `team`: NULL; or config, weights and pool are
 * only this process's share. On failure everything is closed again. */
spry_status spry_cpu_device_init(spry_cpu_device *cpu, const spry_device_setup *setup, bool all, spry_team *team,
                                 spry_error *error);
void spry_cpu_device_deinit(spry_cpu_device *cpu);

/* A region of the device's memory. */
typedef struct spry_cpu_region {
    void *memory;
    size_t bytes;
} spry_cpu_region;
enum { SPRY_CPU_REGIONS = 4 };

/* Its weights, pages, working memory and recurrent states. */
void spry_cpu_device_regions(const spry_cpu_device *cpu, spry_cpu_region regions[SPRY_CPU_REGIONS]);

/* Whisper models on the host's processors. A step runs in submit, in the caller's thread and the workers. The "far"
 * device of tests is built on it. */

/* `all`: steps must not read weights outside the device's own memory, which is *region. */
spry_status spry_cpu_whisper_create(spry_whisper_device **out, spry_cpu_region *region, const spry_whisper_setup *setup,
                                    bool all, spry_error *error);

spry_status spry_cpu_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error);

#endif
