/* Why a thread should give up what it computes for a request: the client has left, its time is over, or the program
 * ends. Loops whose length the input decides poll it, so that nothing need be passed through all functions between.
 *
 * A thread that serves a request begins with a function that says whether to give up, and ends it when the request is
 * over. Threads without one are never interrupted. */
#ifndef SPRY_BASE_INTERRUPT_H
#define SPRY_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

/* `ended` is asked about every SPRY_INTERRUPT_WORK units of work, on the thread that calls this; once it has returned
 * true it is not asked again. */
void spry_interrupt_begin(bool (*ended)(void *user), void *user);
void spry_interrupt_end(void);

enum { SPRY_INTERRUPT_WORK = 1 << 14 };

/* Whether to give up, after `work` units (each well below a microsecond) since the last call. */
bool spry_interrupted(size_t work);

#endif
