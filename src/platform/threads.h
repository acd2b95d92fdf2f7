/* A pool of workers that run one function together. Work is split statically by worker index and count, so no result
 * depends on timing. */
#ifndef SPRY_PLATFORM_THREADS_H
#define SPRY_PLATFORM_THREADS_H

#include <stddef.h>

#include "base/error.h"

typedef struct spry_threads spry_threads;

typedef void (*spry_threads_fn)(void *context, size_t worker, size_t n_workers);

/* Creates `count` workers (at most 1,024), including the caller's thread; 0: spry_threads_usable. */
spry_status spry_threads_create(spry_threads **out, size_t count, spry_error *error);
void spry_threads_destroy(spry_threads *threads);
size_t spry_threads_count(const spry_threads *threads);

/* Runs fn on every worker and returns when all are done. One caller at a time. */
void spry_threads_run(spry_threads *threads, spry_threads_fn fn, void *context);

/* Processors available to this process (affinity and cgroup limit), at least 1. */
size_t spry_threads_usable(void);

/* The range [*begin, *end) of `total` items for `worker`, in multiples of `grain`. */
static inline void spry_threads_part(size_t *begin, size_t *end, size_t total, size_t grain, size_t worker,
                                     size_t n_workers)
{
    size_t units = (total + grain - 1) / grain;
    size_t from = units * worker / n_workers * grain, to = units * (worker + 1) / n_workers * grain;
    *begin = from < total ? from : total;
    *end = to < total ? to : total;
}

#endif
