/* A pool of workers that run one function together. Blocks of work are handed out from a counter: a worker that is
 * slow, or whose processor is busy, takes fewer, and one that has not begun when the last block is taken is not waited
 * for. Which worker computes a block must change no result. */
#ifndef SPRY_PLATFORM_THREADS_H
#define SPRY_PLATFORM_THREADS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct spry_threads spry_threads;

/* Items [begin, end). */
typedef void (*spry_threads_block_fn)(void *context, size_t begin, size_t end);

/* Part `part` of n_parts, see spry_threads_part. */
typedef void (*spry_threads_fn)(void *context, size_t part, size_t n_parts);

/* Creates `count` workers (at most 1,024), including the caller's thread; 0: spry_threads_usable. */
spry_status spry_threads_create(spry_threads **out, size_t count, spry_error *error);
void spry_threads_destroy(spry_threads *threads);
size_t spry_threads_count(const spry_threads *threads);

/* Runs fn over all `total` items in blocks of multiples of `grain`, large ones first, and returns when all are done.
 * One caller at a time. */
void spry_threads_share(spry_threads *threads, spry_threads_block_fn fn, void *context, size_t total, size_t grain);

/* Runs fn for as many parts as there are workers and returns when all are done. A worker may run several. */
void spry_threads_run(spry_threads *threads, spry_threads_fn fn, void *context);

/* Waits for a lock, at which it looks every SPRY_LOCK_NAP_NS. False, and the lock is not held: the request of this
 * thread is over (base/interrupt.h). */
enum { SPRY_LOCK_NAP_NS = 10000000 };
bool spry_lock_patiently(pthread_mutex_t *lock);

/* Processors available to this process (affinity and cgroup limit), at least 1. */
size_t spry_threads_usable(void);

/* The range [*begin, *end) of `total` items for a part, in multiples of `grain`. */
static inline void spry_threads_part(size_t *begin, size_t *end, size_t total, size_t grain, size_t part,
                                     size_t n_parts)
{
    size_t units = (total + grain - 1) / grain;
    size_t from = units * part / n_parts * grain, to = units * (part + 1) / n_parts * grain;
    *begin = from < total ? from : total;
    *end = to < total ? to : total;
}

/* Background threads, and timed waits on conditions. */

/* Starts a thread with all signals blocked: signals go to the program's own threads. `who` names the thread in error
 * messages: "the scheduler". */
spry_status spry_background_start(pthread_t *thread, void *(*run)(void *), void *context, const char *who,
                                  spry_error *error);

/* Initialises a condition for timed waits on the monotonic clock. */
void spry_background_condition(pthread_cond_t *condition);

/* Waits until the condition is signalled; false when `ns` nanoseconds have passed. */
bool spry_background_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns);

#endif
