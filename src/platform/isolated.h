/* Work on hostile input in a forked child with no rights (sandbox.h is for programs, which need some): it can compute,
 * allocate memory and write its result. It has no files, no network and no other processes, and ends after a limit of
 * time. What it does wrong ends the child alone. */
#ifndef SPRY_PLATFORM_ISOLATED_H
#define SPRY_PLATFORM_ISOLATED_H

#include "base/buffer.h"
#include "base/error.h"

/* Writes to the parent; false when it no longer reads. */
typedef bool (*spry_isolated_write)(void *self, const void *data, size_t size);

/* What runs in the child. It must not use locks that other threads may hold, except those of malloc. */
typedef void (*spry_isolated_work)(void *context, spry_isolated_write write, void *self);

/* Appends what the child writes to `out`, whose maximum counts. Fails when the child ends in any way but by returning,
 * after `seconds` of its time, or after three times as many of the clock. */
spry_status spry_isolated_run(spry_buffer *out, spry_isolated_work work, void *context, unsigned seconds,
                              spry_error *error);

#endif
