/* A machine's speeds as JSON. */
#ifndef SPRY_APPS_DOCTOR_MACHINE_SPEED_H
#define SPRY_APPS_DOCTOR_MACHINE_SPEED_H

#include <jansson.h>

#include "base/dtype.h"
#include "base/error.h"
#include "spry_tools.h"

/* The object "speeds" of a machine's profile (NULL when memory is short), and its parser: missing keys and values that
 * are not numbers above 0 are refused by name. Missing types are unknown. */
json_t *spry_machine_speed_to_json(const spry_machine_speed *speed);
spry_status spry_machine_speed_from_json(spry_machine_speed *speed, const json_t *json, spry_error *error);

#endif
