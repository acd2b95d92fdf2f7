/* Parses untrusted JSON whose top level is an object. Duplicate keys are refused; "\u0000" in strings is allowed.
 * Checkpoints contain integers beyond 64 bits (a model_max_length of 10^30): only then all numbers are read as
 * reals. */
#ifndef SPRY_BASE_JSON_H
#define SPRY_BASE_JSON_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

/* The caller releases *out with json_decref. The message names no file: add one with spry_fail_prefix. */
spry_status spry_json_object(json_t **out, spry_view text, spry_error *error);

#endif
