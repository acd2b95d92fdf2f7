/* The state of the machine at one moment: what may slow a computation down while it runs. Reading takes well under a
 * millisecond on most machines, measures nothing and needs no privileges.
 *
 * Every path is read below a root: "" on a real system, a folder in tests. Values that are missing, unreadable or
 * implausible are NAN; they are never an error. */
#ifndef SPRY_PLATFORM_MACHINE_STATE_H
#define SPRY_PLATFORM_MACHINE_STATE_H

#include <stddef.h>

typedef struct spry_machine_state {
    double temperature_c;               /* the hottest sensor of the processor */
    double frequency_mhz, highest_mhz;  /* means over the processors: now; the highest the hardware has */
    double throttles;                   /* how often the hardware reduced its speed because of heat, since it started */
    double quota_ms;                    /* how long control groups stopped this process, since they were made */
    double battery_percent, on_battery; /* charge; 1: discharging, 0: plugged in */
    double memory_pressure, memory_full; /* percent of the last 10 s in which some, all tasks waited for memory, */
    double cpu_pressure, disk_pressure;  /* some for a processor, some for a disk */
    double load, processors;             /* load average of the last minute; processors that are online */
    double resident_bytes;               /* memory of this process */
    double thermal_level;                /* how far the system slows processors because of heat: 0 (not) to 4 */
    double gpu_busy;                     /* percent of the time the busiest GPU ran kernels (gpu.h) */
} spry_machine_state;

/* The fields under their names, for traces, metrics and JSON. */
typedef struct spry_machine_field {
    const char *name, *help;
    size_t offset;
    int counts; /* 1: it only grows */
} spry_machine_field;

enum { SPRY_MACHINE_FIELDS = 16 };
extern const spry_machine_field spry_machine_fields[SPRY_MACHINE_FIELDS];

double spry_machine_field_value(const spry_machine_state *state, const spry_machine_field *field);

void spry_machine_state_read(spry_machine_state *state, const char *root);

#endif
