/* What holds the machine back at present: heat, power, quotas, memory, other programs. The rules are a table over two
 * states of the machine, of which the earlier one is needed for counters only. */
#ifndef SPRY_APPS_DOCTOR_SLOWDOWNS_H
#define SPRY_APPS_DOCTOR_SLOWDOWNS_H

#include <jansson.h>

#include "platform/machine_state.h"

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

#endif
