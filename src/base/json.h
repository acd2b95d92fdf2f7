/* JSON from outside, as an object: duplicate keys are refused, "\u0000" in strings is not. Checkpoints hold integers
 * that no machine word can (a model_max_length of 10^30): then, and only then, all numbers are read as reals. */
#ifndef SPRY_BASE_JSON_H
#define SPRY_BASE_JSON_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

/* *out is the caller's, to json_decref. The sentence names no file: put one before it with spry_fail_prefix. */
spry_status spry_json_object(json_t **out, spry_view text, spry_error *error);

#endif
