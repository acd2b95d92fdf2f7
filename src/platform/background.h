/* Background threads, and timed waits on conditions. */
#ifndef SPRY_PLATFORM_BACKGROUND_H
#define SPRY_PLATFORM_BACKGROUND_H

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"

/* Starts a thread with all signals blocked: signals go to the program's own threads. `who` names the thread in error
 * messages: "the scheduler". */
spry_status spry_background_start(pthread_t *thread, void *(*run)(void *), void *context, const char *who,
                                  spry_error *error);

/* Initialises a condition for timed waits on the monotonic clock. */
void spry_background_condition(pthread_cond_t *condition);

/* Waits until the condition is signalled; false when `ns` nanoseconds have passed. */
bool spry_background_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns);

#endif
