/* Work on hostile input in a forked child with no rights (sandbox.h is for programs, which need some): it can compute,
 * allocate memory and write its result. It has no files, no network and no other processes, and ends after a limit of
 * time. What it does wrong ends the child alone. */
#ifndef SPRY_PLATFORM_ISOLATED_H
#define SPRY_PLATFORM_ISOLATED_H

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_isolated spry_isolated;

/* Writes to the parent; false when it no longer reads. */
typedef bool (*spry_isolated_write)(void *self, const void *data, size_t size);

/* What runs in the child. It must not use locks that other threads may hold, except those of malloc. */
typedef void (*spry_isolated_work)(void *context, spry_isolated_write write, void *self);

/* Starts a child that may take `seconds` of processor time, and for which reads may wait three times as long. */
spry_status spry_isolated_start(spry_isolated **out, spry_isolated_work work, void *context, unsigned seconds,
                                spry_error *error);

/* What the child has written, at most `size` bytes; 0 at its end, and where spry_isolated_end will fail: a wait took
 * too long, or the request of this thread is over (base/interrupt.h). */
size_t spry_isolated_read(spry_isolated *child, void *data, size_t size);

/* Frees the child, which is killed if its end was not read. Fails unless it ended by returning. */
spry_status spry_isolated_end(spry_isolated *child, spry_error *error);

/* All three: appends what the child writes to `out`, whose maximum counts. */
spry_status spry_isolated_run(spry_buffer *out, spry_isolated_work work, void *context, unsigned seconds,
                              spry_error *error);

#endif
