/* What holds this machine back, and how to change it: lasting bottlenecks, what slows it down at present, and servers
 * that run on it. The rules are tables; each depends on facts that were read or measured, never on the machine
 * directly. */
#ifndef SPRY_APPS_DOCTOR_FINDINGS_H
#define SPRY_APPS_DOCTOR_FINDINGS_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"
#include "platform/energy.h"
#include "platform/gpu.h"
#include "platform/hardware.h"
#include "platform/machine_state.h"
#include "spry_tools.h"

/* ---- chip_family.c: figures of a family of chips ----------------------------------------------------------------- */

/* Compares a machine with what was measured on its family of chips. The families are data: apps/doctor/chips.json,
 * which is linked in. */

enum { SPRY_CHIP_TEXT = 192 };

typedef struct spry_chip {
    char family[SPRY_CHIP_TEXT];       /* "": no figures of such a chip are known */
    char source[SPRY_CHIP_TEXT];       /* how and where the family's figures were measured */
    uint32_t threads;                  /* threads of the measurement; 0 for a GPU */
    double read_gb_s, multiply_g_s;    /* measured; 0: not */
    double read_share, multiply_share; /* this machine's speed by that of its family; 0: not known */
} spry_chip;

typedef struct spry_chips {
    spry_chip processor, gpu;
} spry_chips;

/* Finds the families of the processor and of the first GPU in the text of chips.json, and compares. Products grow with
 * the number of threads; reading does up to the number of threads that was measured. */
spry_status spry_chips_compare(spry_chips *chips, spry_view families, const spry_hardware *hardware,
                               const spry_machine_speed *speed, const spry_gpus *gpus, spry_error *error);

extern const unsigned char spry_bundled_chips_begin[], spry_bundled_chips_end[]; /* apps/doctor/chips.json */

/* ---- findings.c: what holds it back for good --------------------------------------------------------------------- */

typedef struct spry_finding_facts {
    const spry_hardware *hardware;
    const spry_gpus *gpus;
    const spry_energy_facts *energy;
    const spry_machine_speed *speed;
    const spry_chips *chips;
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

/* ---- at present ------------------------------------------------------------------------------------------------- */

/* What holds the machine back at present: heat, power, quotas, memory, other programs. Two states of the machine are
 * compared, of which the earlier one is needed for counters only. */
enum { SPRY_SLOWDOWNS_MAX = 8, SPRY_SLOWDOWN_TEXT = 200 };

typedef struct spry_slowdown {
    char what[SPRY_SLOWDOWN_TEXT];
    const char *fix;
} spry_slowdown;

/* Returns the number of slowdowns; unknown values cause none. */
size_t spry_slowdowns_make(spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX], const spry_machine_state *before,
                           const spry_machine_state *now);

/* Every field of `now` under its name, null where it is unknown; `slowed_by`: sentences. NULL when memory is short. */
json_t *spry_machine_state_json(const spry_machine_state *before, const spry_machine_state *now);

/* ---- servers ---------------------------------------------------------------------------------------------------- */

/* Servers (`spry serve`) that run on this machine, as far as /proc shows them. */
enum { SPRY_RUNNING_SERVERS_MAX = 8 };

typedef struct spry_running_server {
    uint64_t process;
    size_t resident_bytes; /* 0: unknown */
} spry_running_server;

/* Returns the number of servers, at most SPRY_RUNNING_SERVERS_MAX. `root` is prepended to /proc: "" on a real system, a
 * folder in tests. */
size_t spry_running_servers_find(spry_running_server servers[SPRY_RUNNING_SERVERS_MAX], const char *root);

#endif
