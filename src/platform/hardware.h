/* What this machine is made of, as far as Linux tells anybody: processor, caches, memory, and the settings of the
 * system that make a model fast or slow. Reading it measures nothing and needs no rights.
 *
 * Every path is read below a root: "" on a real system, a folder that imitates one in tests. What is absent, cannot be
 * read or makes no sense is unknown, which each field has a value for, and never an error. */
#ifndef SPRY_PLATFORM_HARDWARE_H
#define SPRY_PLATFORM_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/processor.h"

enum { SPRY_HARDWARE_CACHES = 8, SPRY_HARDWARE_SETS = 32, SPRY_HARDWARE_WORD = 24 };

typedef struct spry_hardware_cache {
    uint32_t level;
    char kind[SPRY_HARDWARE_WORD]; /* "data", "instruction", "unified" */
    size_t bytes;
    uint32_t shared_by; /* processors; 0: unknown */
} spry_hardware_cache;

typedef enum spry_known { SPRY_UNKNOWN, SPRY_NO, SPRY_YES } spry_known;

typedef struct spry_hardware {
    char cpu[SPRY_PROCESSOR_NAME_MAX];
    uint32_t cores;                       /* that stand for themselves; 0: unknown */
    uint32_t processors;                  /* that are switched on; 0: unknown */
    uint32_t usable;                      /* by this process: affinity and control groups; 0: unknown */
    uint32_t cgroup_cpus;                 /* the control groups' limit; 0: none */
    const char *sets[SPRY_HARDWARE_SETS]; /* instruction sets that matter here: "avx2", "avx512vnni" */
    size_t n_sets;
    spry_hardware_cache caches[SPRY_HARDWARE_CACHES]; /* as the first processor sees them */
    size_t n_caches;
    char governor[SPRY_HARDWARE_WORD]; /* of its frequency; "": unknown, or none */
    uint32_t numa_nodes;               /* 0: unknown */
    spry_known virtual_machine;
    double load; /* processors that were busy in the last minute, on average; below 0: unknown */
    char huge_pages[SPRY_HARDWARE_WORD]; /* transparent ones: "always", "madvise", "never"; "": unknown */
    size_t memory_bytes;                 /* of the machine; 0: unknown */
    size_t usable_bytes;                 /* by this process; 0: unknown */
    size_t available_bytes;              /* without pushing anything out; 0: unknown */
    size_t swap_bytes, swap_used_bytes;
} spry_hardware;

void spry_hardware_read(spry_hardware *hardware, const char *root);

/* Whether it has an instruction set, by the name it has in `sets`. */
bool spry_hardware_has(const spry_hardware *hardware, const char *set);

enum { SPRY_MACHINE_ID = 17 };

/* Sixteen hexadecimal digits that name a machine as a model meets it: figures of two machines with different ids are
 * not comparable. Memory counts in whole GiB, rounded, because kernels take a little more or less for themselves. */
void spry_machine_id(char out[SPRY_MACHINE_ID], const char *cpu, uint32_t threads, const char *kernels, size_t memory);

#endif
