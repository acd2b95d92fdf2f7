/* Properties of this machine as the operating system reports them: processor, caches, memory, and system settings that
 * affect speed. Reading them measures nothing and needs no privileges.
 *
 * Every path is read below a root: "" on a real system, a folder in tests. Values that are missing, unreadable or
 * implausible are unknown, for which each field has a value; they are never an error. */
#ifndef SPRY_PLATFORM_HARDWARE_H
#define SPRY_PLATFORM_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Processor features that kernels need. A feature that the operating system has to enable is reported only if it did.
 */

typedef enum spry_cpu_feature {
    SPRY_CPU_AVX2 = 1 << 0,     /* AVX2, FMA and F16C */
    SPRY_CPU_AVX512 = 1 << 1,   /* F, BW, DQ and VL */
    SPRY_CPU_VNNI = 1 << 2,     /* VNNI of AVX-512 */
    SPRY_CPU_AMX = 1 << 3,      /* tiles, products of int8 and of bfloat16 */
    SPRY_CPU_BF16 = 1 << 5,     /* products of bfloat16, of AVX-512 */
    SPRY_CPU_AVXVNNI = 1 << 8,  /* VNNI without AVX-512 */
    SPRY_CPU_VBMI = 1 << 9,     /* permutations of bytes, of AVX-512, with GFNI */
    SPRY_CPU_DOTPROD = 1 << 4,  /* 64-bit ARM: dot products of bytes */
    SPRY_CPU_I8MM = 1 << 6,     /* products of matrices of bytes */
    SPRY_CPU_ARM_BF16 = 1 << 7, /* matrix products of bfloat16 */
} spry_cpu_feature;

/* All features of this machine. Tiles (AMX) are requested of the operating system for the whole process. */
uint32_t spry_cpu_features(void);

/* The processor's name, for reports. */

enum { SPRY_PROCESSOR_NAME_MAX = 96 };

/* "AMD EPYC 9654"; the architecture ("aarch64") where the name is unknown. Printable ASCII, single spaces. */
void spry_processor_name(char out[SPRY_PROCESSOR_NAME_MAX]);

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
    uint32_t cores;                       /* physical; 0: unknown */
    uint32_t processors;                  /* online; 0: unknown */
    uint32_t usable;                      /* usable by this process (affinity and control groups); 0: unknown */
    uint32_t cgroup_cpus;                 /* limit of the control groups; 0: none */
    const char *sets[SPRY_HARDWARE_SETS]; /* relevant instruction sets: "avx2", "avx512vnni" */
    size_t n_sets;
    spry_hardware_cache caches[SPRY_HARDWARE_CACHES]; /* caches of the first processor */
    size_t n_caches;
    char governor[SPRY_HARDWARE_WORD]; /* frequency governor; "": unknown or none */
    uint32_t numa_nodes;               /* 0: unknown */
    spry_known virtual_machine;
    double load;                         /* load average of the last minute; below 0: unknown */
    char huge_pages[SPRY_HARDWARE_WORD]; /* transparent huge pages: "always", "madvise", "never"; "": unknown */
    size_t memory_bytes;                 /* memory of the machine; 0: unknown */
    size_t usable_bytes;                 /* usable by this process; 0: unknown */
    size_t available_bytes;              /* available without swapping or evicting; 0: unknown */
    size_t swap_bytes, swap_used_bytes;
} spry_hardware;

void spry_hardware_read(spry_hardware *hardware, const char *root);

/* Whether it has an instruction set, named as in `sets`. */
bool spry_hardware_has(const spry_hardware *hardware, const char *set);

enum { SPRY_MACHINE_ID = 17 };

/* Sixteen hexadecimal digits that identify a machine configuration: measurements with different ids are not comparable.
 * Memory counts in whole GiB, rounded, because kernels reserve slightly different amounts. */
void spry_machine_id(char out[SPRY_MACHINE_ID], const char *cpu, uint32_t threads, const char *kernels, size_t memory);

#endif
