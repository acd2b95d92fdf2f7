/* Energy in joules, from the counters of processors and GPUs: RAPL through powercap or perf, NVML. Where a counter does
 * not exist, may not be read or is not plausible, there is a message instead of a number.
 *
 * Counters wrap. A thread samples them often enough to see every wrap. A decrease that no wrap explains, an
 * implausible power, or a counter that vanishes or stops ends the measurement with a message.
 *
 * The whole machine is measured, including other processes; on macOS this process only. Memory is part of the
 * processor's energy where it has a counter. */
#ifndef SPRY_PLATFORM_ENERGY_H
#define SPRY_PLATFORM_ENERGY_H

#include <stdbool.h>

#include "base/error.h"

typedef struct spry_energy spry_energy;

typedef struct spry_joules {
    double cpu, gpu;
    bool has_cpu, has_gpu; /* false: not measured; spry_energy_describe gives the reason */
} spry_joules;

/* `root` is prepended to /sys: "" on a real system, a folder in tests (then there is no GPU). Missing counters are not
 * a failure. Returns quickly: a GPU's library is opened in the background, and the first call below waits for it. */
spry_status spry_energy_open(spry_energy **out, const char *root, spry_error *error);
void spry_energy_close(spry_energy *energy);

/* All functions below accept NULL, which measures nothing. */

/* The energy used since the meter was opened. Thread-safe. A counter that never changed is not reported. Takes some
 * milliseconds with a GPU; the other functions do not. */
void spry_energy_read(spry_energy *energy, spry_joules *out);

enum { SPRY_ENERGY_TEXT = 400 };

/* The counters that are read ("RAPL by powercap: package-0, package-1"), or why there are none ("/sys/...: only root
 * may read it; ..."). */
typedef struct spry_energy_facts {
    bool has_cpu, has_gpu;
    char cpu[SPRY_ENERGY_TEXT], gpu[SPRY_ENERGY_TEXT];
} spry_energy_facts;

void spry_energy_describe(spry_energy *energy, spry_energy_facts *facts);

/* Divides the energy among concurrent users: between begin and end, each share gets an equal part of the energy used
 * while it is open; a single share gets all of it. The machine's idle power is included. Thread-safe. A processor's
 * counter changes every millisecond; a GPU's is sampled four times a second, so shorter shares are approximate. A share
 * during which no counter changed is not measured. */
typedef struct spry_energy_share {
    double cpu, gpu;       /* the running sums when the share began */
    bool has_cpu, has_gpu; /* whether they were readable then */
} spry_energy_share;

void spry_energy_begin(spry_energy *energy, spry_energy_share *share);
void spry_energy_end(spry_energy *energy, const spry_energy_share *share, spry_joules *out);

#endif
