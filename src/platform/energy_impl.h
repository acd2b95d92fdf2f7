/* Inside the energy meter: counters that are trusted only as far as physics goes, sources that hold several of them,
 * and the system they are read from, which tests replace. */
#ifndef SPRY_PLATFORM_ENERGY_IMPL_H
#define SPRY_PLATFORM_ENERGY_IMPL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "platform/energy.h"

/* ---- small files of /sys ----------------------------------------------------------------------------------------- */

enum { SPRY_SYSFS_TEXT = 128 };

/* False when the path does not fit. */
bool spry_sysfs_path(char out[PATH_MAX], const char *format, ...) SPRY_PRINTF(2, 3);

/* The one line of a file, without its end. 0 or an error number: EINVAL when it is not one whole short line. */
int spry_sysfs_text(char out[SPRY_SYSFS_TEXT], const char *path);
/* EINVAL also when it is no number. */
int spry_sysfs_u64(uint64_t *out, const char *path);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

enum { SPRY_ENERGY_NAME = 96, SPRY_ENERGY_COUNTERS = 64 };

typedef struct spry_energy_counter {
    char name[SPRY_ENERGY_NAME]; /* "package-0" */
    double joules;               /* that one count stands for */
    uint64_t range;              /* its largest value, behind which it starts again; 0: it never does */
    bool optional;               /* one that never moves is left out, and nothing ends for it */

    bool left_out, moved;
    uint64_t value, seen_ns, moved_ns;
} spry_energy_counter;

/* The largest watts that are believed, and the range in joules that is needed for a look a second to see each wrap. */
#define SPRY_ENERGY_WATTS_MOST  4000.0
#define SPRY_ENERGY_RANGE_LEAST 16000.0

/* The first value. */
void spry_energy_counter_start(spry_energy_counter *counter, uint64_t value, uint64_t now_ns);

/* A later value; *joules is what was used since the one before. Fails with the sentence that ends the measuring. */
spry_status spry_energy_counter_take(spry_energy_counter *counter, double *joules, uint64_t value, uint64_t now_ns,
                                     spry_error *why);

/* ---- sources ----------------------------------------------------------------------------------------------------- */

typedef struct spry_energy_kind {
    const char *name; /* "RAPL by powercap" */
    spry_status (*read)(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why);
    void (*close)(void *context);
} spry_energy_kind;

typedef struct spry_energy_source {
    const spry_energy_kind *kind; /* NULL: nothing is measured, for the reason in `why` */
    void *context;
    spry_energy_counter counters[SPRY_ENERGY_COUNTERS];
    size_t count;
    uint64_t look_ns; /* how often it has to be looked at */
    spry_error why;

    double used;   /* joules since it was opened */
    double shared; /* joules that one share of all has had since then */
} spry_energy_source;

enum { SPRY_ENERGY_LOOK_NS = 1000000000 };

/* What the counters say at one moment. */
typedef struct spry_energy_readings {
    uint64_t values[SPRY_ENERGY_COUNTERS], now_ns;
    spry_error why; /* SPRY_OK where all could be read */
} spry_energy_readings;

/* A counter more, to be filled in by the caller; its index is what kind->read is asked for. NULL: no room. */
spry_energy_counter *spry_energy_source_add(spry_energy_source *source);

/* A look is a read, which may take milliseconds, and a take: that adds what was used since the last one, an equal part
 * of it for each of `shares`. When a counter fails the source is closed and says why. */
void spry_energy_source_read(const spry_energy_source *source, spry_energy_readings *out, uint64_t now_ns);
void spry_energy_source_take(spry_energy_source *source, const spry_energy_readings *readings, size_t shares);

/* Whether every counter has moved. */
bool spry_energy_source_moved(const spry_energy_source *source);

void spry_energy_source_close(spry_energy_source *source);
void spry_energy_source_describe(const spry_energy_source *source, char out[SPRY_ENERGY_TEXT]);

/* ---- NVML, as far as it is used ---------------------------------------------------------------------------------- */

enum { SPRY_NVML_OK = 0, SPRY_NVML_NOT_SUPPORTED = 3 };

typedef struct spry_nvml {
    void *library; /* what dlopen gave; NULL in tests */
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
    /* A descriptor that gives 8 bytes a read, or -1 and errno. */
    int (*perf_open)(uint32_t type, uint64_t config, unsigned cpu);
    spry_status (*nvml_load)(spry_nvml *nvml, spry_error *why);
} spry_energy_system;

int spry_energy_perf_open(uint32_t type, uint64_t config, unsigned cpu);
spry_status spry_nvml_load(spry_nvml *nvml, spry_error *why);

/* Each fills a zeroed source, or leaves it without a kind and with the sentence: SPRY_ERR_UNSUPPORTED when there is no
 * such thing here, another status when there is but it cannot be used. */
spry_status spry_energy_open_powercap(spry_energy_source *source, const spry_energy_system *system);
spry_status spry_energy_open_perf(spry_energy_source *source, const spry_energy_system *system);
spry_status spry_energy_open_nvml(spry_energy_source *source, const spry_energy_system *system);

/* spry_energy_open for a system of one's own. Without a thread a look is taken by each call and by nobody else, and
 * none waits. */
spry_status spry_energy_open_on(spry_energy **out, const spry_energy_system *system, bool thread, spry_error *error);

#endif
