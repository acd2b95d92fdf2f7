/* Joules, from the counters that processors and GPUs keep: RAPL through powercap or perf, NVML. Where there is no
 * counter, or it may not be read, or it does what no counter may do, there is a sentence instead of a number.
 *
 * Counters wrap. The meter has a thread that looks often enough to see every wrap; a step back that no wrap explains,
 * more watts than any machine draws, a counter that is gone or stands still ends the measuring with a sentence.
 *
 * All of the machine is measured, whoever uses it. The memory is in the processor's joules where it has a counter. */
#ifndef SPRY_PLATFORM_ENERGY_H
#define SPRY_PLATFORM_ENERGY_H

#include <stdbool.h>

#include "base/error.h"

typedef struct spry_energy spry_energy;

typedef struct spry_joules {
    double cpu, gpu;
    bool has_cpu, has_gpu; /* false: not measured; spry_energy_describe says why */
} spry_joules;

/* `root` goes before /sys: "" on a real system, a folder that imitates one in tests, which has no GPU. What cannot be
 * measured is no failure. Quick: a GPU's library, which takes its time, is opened meanwhile, and the first call of
 * those below waits for it. */
spry_status spry_energy_open(spry_energy **out, const char *root, spry_error *error);
void spry_energy_close(spry_energy *energy);

/* A NULL meter measures nothing, everywhere below. */

/* All that was used since it was opened. From any thread. Nothing is claimed of a counter that never moved. With a GPU
 * it takes some milliseconds; the others here do not. */
void spry_energy_read(spry_energy *energy, spry_joules *out);

enum { SPRY_ENERGY_TEXT = 400 };

/* What is read ("RAPL by powercap: package-0, package-1"), or why nothing is ("/sys/...: only root may read it; ...").
 */
typedef struct spry_energy_facts {
    bool has_cpu, has_gpu;
    char cpu[SPRY_ENERGY_TEXT], gpu[SPRY_ENERGY_TEXT];
} spry_energy_facts;

void spry_energy_describe(spry_energy *energy, spry_energy_facts *facts);

/* Several share a machine: between begin and end each has an equal part of what is used while so many are under way;
 * alone it has all of it. The machine's idle power is in it. From any thread. A processor's counter moves every
 * millisecond; a GPU's is looked at four times a second, and what takes less than some of these is counted roughly.
 * What no step fell into is not measured. */
typedef struct spry_energy_share {
    double cpu, gpu;       /* the shares' running sums when it began */
    bool has_cpu, has_gpu; /* whether they could be read then */
} spry_energy_share;

void spry_energy_begin(spry_energy *energy, spry_energy_share *share);
void spry_energy_end(spry_energy *energy, const spry_energy_share *share, spry_joules *out);

#endif
