/* Threads that work in the background, and waiting in them for something or some time. */
#ifndef SPRY_PLATFORM_BACKGROUND_H
#define SPRY_PLATFORM_BACKGROUND_H

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"

/* Starts a thread that no signal is delivered to: those belong to the program's own. `who` is for the sentence: "the
 * scheduler". */
spry_status spry_background_start(pthread_t *thread, void *(*run)(void *), void *context, const char *who,
                                  spry_error *error);

/* A condition that can be waited on for some time, whatever becomes of the clock on the wall. */
void spry_background_condition(pthread_cond_t *condition);

/* Until it is signalled, or so many nanoseconds are over: then false. */
bool spry_background_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns);

#endif
