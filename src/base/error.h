/* Fills a caller-owned spry_error with one sentence and returns the status, so that callers can write `return
 * spry_fail(...)`. */
#ifndef SPRY_BASE_ERROR_H
#define SPRY_BASE_ERROR_H

#include "base/compiler.h"
#include "spry.h"

/* Writes the message (truncated to fit, unprintable bytes replaced by '?') and returns `status`. `error` may be
 * NULL. */
spry_status spry_fail(spry_error *error, spry_status status, const char *format, ...) SPRY_PRINTF(3, 4);

/* Writes the message for a failed allocation of `bytes` for `what`. */
spry_status spry_fail_memory(spry_error *error, const char *what, size_t bytes);

/* Puts "prefix: " before the message in `error`; returns its status. */
spry_status spry_fail_prefix(spry_error *error, spry_status status, const char *prefix);

#endif
