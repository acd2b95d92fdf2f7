/* What holds this machine back, and what to do about it. The rules are a table; each looks at facts that were read or
 * measured, never at the machine itself. */
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
    bool warns; /* false: good to know */
    char what[SPRY_FINDING_TEXT], fix[SPRY_FINDING_TEXT];
} spry_finding;

/* Whether so much other work (spry_hardware's load) is too much to measure beside; what is unknown is not. */
bool spry_findings_busy(double load, uint32_t processors);

/* Warnings first. Returns how many. */
size_t spry_findings_make(spry_finding findings[SPRY_FINDINGS_MAX], const spry_finding_facts *facts);

#endif
