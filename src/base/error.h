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

/* The library never prints: it passes messages to the callback given when the engine is opened. */

typedef struct spry_log {
    void (*write)(void *user, int level, const char *sentence); /* NULL: no messages */
    void *user;
} spry_log;

void spry_log_write(const spry_log *log, int level, const char *format, ...) SPRY_PRINTF(3, 4);

/* Structs that grow from version to version. Their first member is `size_t size`, which says how many bytes the
 * caller's version has. New members are added at the end, as whole words: padding at the end is never reused. */

/* Writes the defaults `own` to a program's struct of `size` bytes, and never more: an older program has fewer than
 * own_size, a newer one more, which become zero. */
void spry_sized_default(void *theirs, size_t size, const void *own, size_t own_size);

/* Copies a struct that a program filled over `own`, which holds the defaults and has `own_size` bytes. A smaller struct
 * leaves the defaults of the members it does not have; a larger one is accepted when all its further bytes are zero.
 * `what` names the struct in the sentence. */
spry_status spry_sized_read(void *own, size_t own_size, const void *theirs, const char *what, spry_error *error);

/* Whether all bytes are zero, as reserved ones must be. */
bool spry_sized_zero(const void *bytes, size_t count);

#endif
