/* Internals of the energy meter: counters with plausibility checks, sources with several counters, and the system they
 * are read from, which tests replace. */
#ifndef SPRY_PLATFORM_ENERGY_IMPL_H
#define SPRY_PLATFORM_ENERGY_IMPL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "platform/energy.h"

/* ---- small files of /sys ----------------------------------------------------------------------------------------- */

enum { SPRY_SYSFS_TEXT = 128 };

/* Reads the only line of a file, without its newline. Returns 0 or an error number: EINVAL when the file is not one
 * complete short line. */
int spry_sysfs_text(char out[SPRY_SYSFS_TEXT], const char *path);
/* Like spry_sysfs_text; EINVAL also when the text is not a number. */
int spry_sysfs_u64(uint64_t *out, const char *path);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

enum { SPRY_ENERGY_NAME = 96, SPRY_ENERGY_COUNTERS = 64 };

typedef struct spry_energy_counter {
    char name[SPRY_ENERGY_NAME]; /* "package-0" */
    double joules;               /* joules per count */
    uint64_t range;              /* largest value, after which it wraps to 0; 0: never wraps */
    bool optional;               /* if it never changes, it is left out and the measurement continues */

    bool left_out, moved;
    uint64_t value, seen_ns, moved_ns;
} spry_energy_counter;

/* The largest plausible power, and the range in joules needed for one sample per second to see each wrap. */
#define SPRY_ENERGY_WATTS_MOST  4000.0
#define SPRY_ENERGY_RANGE_LEAST 16000.0

/* Records the first value. */
void spry_energy_counter_start(spry_energy_counter *counter, uint64_t value, uint64_t now_ns);

/* Records a later value; *joules is the energy used since the previous one. Fails with the message that ends the
 * measurement. */
spry_status spry_energy_counter_take(spry_energy_counter *counter, double *joules, uint64_t value, uint64_t now_ns,
                                     spry_error *why);

/* ---- sources ----------------------------------------------------------------------------------------------------- */

typedef struct spry_energy_kind {
    const char *name; /* "RAPL by powercap" */
    spry_status (*read)(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why);
    void (*close)(void *context);
} spry_energy_kind;

typedef struct spry_energy_source {
    const spry_energy_kind *kind; /* NULL: not measured, for the reason in `why` */
    void *context;
    spry_energy_counter counters[SPRY_ENERGY_COUNTERS];
    size_t count;
    uint64_t sample_ns; /* required sampling interval */
    spry_error why;

    double used;   /* joules since it was opened */
    double shared; /* joules per open share since then */
} spry_energy_source;

enum { SPRY_ENERGY_SAMPLE_NS = 1000000000 };

/* The values of all counters at one moment. */
typedef struct spry_energy_readings {
    uint64_t values[SPRY_ENERGY_COUNTERS], now_ns;
    spry_error why; /* SPRY_OK when all were readable */
} spry_energy_readings;

/* Adds a counter, which the caller fills in; its index is passed to kind->read. NULL: no room. */
spry_energy_counter *spry_energy_source_add(spry_energy_source *source);

void spry_energy_source_close(spry_energy_source *source);

/* ---- NVML, as far as it is used ---------------------------------------------------------------------------------- */

enum { SPRY_NVML_OK = 0, SPRY_NVML_NOT_SUPPORTED = 3 };

typedef struct spry_nvml {
    void *library; /* handle of dlopen; NULL in tests */
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int result);
    int (*device_count)(unsigned *count);
    int (*device_handle)(unsigned index, void **device);
    int (*device_name)(void *device, char *name, unsigned size);
    int (*device_energy)(void *device, unsigned long long *millijoules);
    int (*device_power)(void *device, unsigned *milliwatts);
} spry_nvml;

/* ---- the system -------------------------------------------------------------------------------------------------- */

typedef struct spry_energy_system {
    const char *root;
    uint64_t (*clock)(void);
    /* Opens a counter: a descriptor that returns 8 bytes per read, or -1 and errno. */
    int (*perf_open)(uint32_t type, uint64_t config, unsigned cpu);
    spry_status (*nvml_load)(spry_nvml *nvml, spry_error *why);
} spry_energy_system;

int spry_energy_perf_open(uint32_t type, uint64_t config, unsigned cpu);
spry_status spry_nvml_load(spry_nvml *nvml, spry_error *why);

/* Each fills a zeroed source, or leaves it without a kind and with a message: SPRY_ERR_UNSUPPORTED when the machine has
 * no such counters, another status when they cannot be used. */
spry_status spry_energy_open_powercap(spry_energy_source *source, const spry_energy_system *system);
spry_status spry_energy_open_perf(spry_energy_source *source, const spry_energy_system *system);
spry_status spry_energy_open_nvml(spry_energy_source *source, const spry_energy_system *system);

/* spry_energy_open on a given system. Without a thread each call samples by itself and never waits. */
spry_status spry_energy_open_on(spry_energy **out, const spry_energy_system *system, bool thread, spry_error *error);

#endif
