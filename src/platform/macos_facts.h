/* What macOS reports about the machine, read by name through a function that tests replace: these files compile and are
 * tested on every system. */
#ifndef SPRY_PLATFORM_MACOS_FACTS_H
#define SPRY_PLATFORM_MACOS_FACTS_H

#include "platform/hardware.h"

/* sysctlbyname, as a function with a context. *size: room, then the size of the value. False: no such name. */
typedef struct spry_sysctl {
    bool (*read)(void *context, const char *name, void *value, size_t *size);
    void *context;
} spry_sysctl;

/* A number of 4 or 8 bytes; `otherwise` where there is none. */
uint64_t spry_sysctl_number(const spry_sysctl *sysctl, const char *name, uint64_t otherwise);

/* Processors that share the work of one step: the fast ones, where there are two kinds. */
size_t spry_macos_processors(const spry_sysctl *sysctl);

/* Bits of spry_cpu_feature. */
uint32_t spry_macos_cpu_features(const spry_sysctl *sysctl);

/* Overwrites what is unknown in `hardware`. */
void spry_macos_hardware(spry_hardware *hardware, const spry_sysctl *sysctl);

/* The pages of the machine by state, as host_statistics64 counts them. */
typedef struct spry_macos_pages {
    uint64_t page_bytes, unused, inactive, purgeable, speculative;
} spry_macos_pages;

size_t spry_macos_available(const spry_macos_pages *pages);

/* Nanojoules that this process has used: of the newer counter of proc_pid_rusage, or of the older one where that is 0.
 */
uint64_t spry_macos_nanojoules(uint64_t energy, uint64_t billed_energy);

/* Levels of com.apple.system.thermalpressurelevel: 0 (nominal) to 4 (sleeping); NAN: not one. */
double spry_macos_thermal_level(uint64_t state);

/* kern.memorystatus_vm_pressure_level: 1 normal, 2 warning, 4 critical. */
bool spry_macos_memory_pressure(const spry_sysctl *sysctl);

#endif
