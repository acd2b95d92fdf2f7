/* Bottlenecks of this machine and how to remove them. The rules are a table; each depends on facts that were read or
 * measured, never on the machine directly. */
#ifndef SPRY_APPS_DOCTOR_FINDINGS_H
#define SPRY_APPS_DOCTOR_FINDINGS_H

#include "doctor/machine_speed.h"
#include "platform/energy.h"
#include "platform/gpu.h"
#include "platform/hardware.h"

typedef struct spry_finding_facts {
    const spry_hardware *hardware;
    const spry_gpus *gpus;
    const spry_energy_facts *energy;
    const spry_machine_speed *speed;
} spry_finding_facts;

enum { SPRY_FINDINGS_MAX = 24, SPRY_FINDING_TEXT = 320 };

typedef struct spry_finding {
    bool warns; /* false: for information */
    char what[SPRY_FINDING_TEXT], fix[SPRY_FINDING_TEXT];
} spry_finding;

/* Whether the load of other programs (spry_hardware's load) is too high to measure; an unknown load is not. */
bool spry_findings_busy(double load, uint32_t processors);

/* Warnings first. Returns the number of findings. */
size_t spry_findings_make(spry_finding findings[SPRY_FINDINGS_MAX], const spry_finding_facts *facts);

#endif
