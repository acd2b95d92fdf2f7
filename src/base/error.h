/* Filling a caller-owned spry_error: one sentence, and the status handed back so that `return spry_fail(...)` reads
 * well. */
#ifndef SPRY_BASE_ERROR_H
#define SPRY_BASE_ERROR_H

#include "base/compiler.h"
#include "spry.h"

/* Writes the sentence (cut to fit, unprintable bytes replaced by '?') and returns `status`. `error` may be NULL. */
spry_status spry_fail(spry_error *error, spry_status status, const char *format, ...) SPRY_PRINTF(3, 4);

/* The sentence for a failed allocation of `bytes` for `what`. */
spry_status spry_fail_memory(spry_error *error, const char *what, size_t bytes);

/* Puts "prefix: " before the sentence already in `error`; returns its status. */
spry_status spry_fail_prefix(spry_error *error, spry_status status, const char *prefix);

#endif
