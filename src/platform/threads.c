/* A run: the caller stores the job, then increments `epoch`; each worker sees the new epoch, works, and decrements
 * `pending`; the caller does its own part and waits for zero. Every wait first spins for a few microseconds, because
 * the steps of a forward pass follow each other that closely, then sleeps.
 *
 * No wake-up is lost: a waiter first announces itself (`sleepers`, `caller_sleeps`), then checks its condition, both
 * under the mutex; the other side first changes the condition, then checks for announced waiters. All four accesses
 * are sequentially consistent, so at least one side sees the other, and the mutex orders the signal after the start of
 * the wait. */
#include "platform/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "platform/cgroup.h"
#include "platform/clock.h"

enum {
    CACHE_LINE = 64,
    WORKERS_MAX = 1024,
    SPIN_NS = 20000,
    PAUSES_PER_POLL = 16, /* between two reads of the clock */
};

typedef struct worker {
    struct spry_threads *pool;
    size_t index;
    pthread_t thread;
} worker;

struct spry_threads {
    size_t count;
    bool spins;      /* false with more workers than processors: the awaited thread may need the waiter's processor */
    worker *workers; /* entry 0, the caller's thread, is unused */

    spry_threads_fn fn; /* the job; NULL: the workers exit */
    void *context;

    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    atomic_size_t sleepers;
    atomic_bool caller_sleeps;

    /* Both are written while other threads spin on them: each has its own cache line. */
    _Alignas(CACHE_LINE) atomic_size_t epoch;
    _Alignas(CACHE_LINE) atomic_size_t pending;
};

/* Whether *value became `wanted` before the time limit. */
static bool spin_until(const spry_threads *threads, const atomic_size_t *value, size_t wanted)
{
    if (!threads->spins)
        return atomic_load(value) == wanted;
    uint64_t start = spry_clock_ns();
    do {
        for (int i = 0; i < PAUSES_PER_POLL; i++) {
            if (atomic_load(value) == wanted)
                return true;
            SPRY_PAUSE();
        }
    } while (spry_clock_ns() - start < SPIN_NS);
    return false;
}

static void wait_for_epoch(spry_threads *threads, size_t epoch)
{
    if (spin_until(threads, &threads->epoch, epoch))
        return;
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->sleepers, 1);
    while (atomic_load(&threads->epoch) != epoch)
        pthread_cond_wait(&threads->wake, &threads->mutex);
    atomic_fetch_sub(&threads->sleepers, 1);
    pthread_mutex_unlock(&threads->mutex);
}

static void finish_part(spry_threads *threads)
{
    if (atomic_fetch_sub(&threads->pending, 1) != 1 || !atomic_load(&threads->caller_sleeps))
        return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_signal(&threads->done);
    pthread_mutex_unlock(&threads->mutex);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    spry_threads *threads = self->pool;
    /* The epoch cannot run ahead: the next run starts only after this worker has finished. */
    for (size_t epoch = 1;; epoch++) {
        wait_for_epoch(threads, epoch);
        if (!threads->fn)
            return NULL;
        threads->fn(threads->context, self->index, threads->count);
        finish_part(threads);
    }
}

/* Passes a job to the workers. */
static void announce(spry_threads *threads, spry_threads_fn fn, void *context)
{
    threads->fn = fn;
    threads->context = context;
    atomic_store(&threads->pending, threads->count - 1);
    atomic_fetch_add(&threads->epoch, 1);
    if (!atomic_load(&threads->sleepers))
        return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->mutex);
}

static void wait_until_done(spry_threads *threads)
{
    if (spin_until(threads, &threads->pending, 0))
        return;
    pthread_mutex_lock(&threads->mutex);
    /* Not a plain store: some ARM emulators (QEMU 7) reorder the load below before it. */
    atomic_exchange(&threads->caller_sleeps, true);
    while (atomic_load(&threads->pending))
        pthread_cond_wait(&threads->done, &threads->mutex);
    atomic_store(&threads->caller_sleeps, false);
    pthread_mutex_unlock(&threads->mutex);
}

void spry_threads_run(spry_threads *threads, spry_threads_fn fn, void *context)
{
    if (threads->count == 1) {
        fn(context, 0, 1);
        return;
    }
    announce(threads, fn, context);
    fn(context, 0, threads->count);
    wait_until_done(threads);
}

/* Starts workers 1 .. count - 1. Returns 0 or the error of pthread_create; `count` is then the number started. */
static int start_workers(spry_threads *threads)
{
    /* Signals go to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = 0;
    for (size_t i = 1; i < threads->count && !failure; i++) {
        worker *self = &threads->workers[i];
        *self = (worker){.pool = threads, .index = i};
        failure = pthread_create(&self->thread, NULL, worker_main, self);
        if (failure)
            threads->count = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

spry_status spry_threads_create(spry_threads **out, size_t count, spry_error *error)
{
    *out = NULL;
    size_t usable = spry_threads_usable();
    if (!count)
        count = usable < WORKERS_MAX ? usable : WORKERS_MAX;
    if (count > WORKERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu threads are more than the %d a pool may have", count, WORKERS_MAX);
    spry_threads *threads = aligned_alloc(CACHE_LINE, sizeof *threads);
    worker *workers = calloc(count, sizeof *workers);
    if (!threads || !workers) {
        free(threads);
        free(workers);
        return spry_fail_memory(error, "the thread pool", sizeof *threads + count * sizeof *workers);
    }
    *threads = (spry_threads){.count = count, .spins = count <= usable, .workers = workers};
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_cond_init(&threads->wake, NULL);
    pthread_cond_init(&threads->done, NULL);
    int failure = start_workers(threads);
    if (failure) {
        size_t started = threads->count;
        spry_threads_destroy(threads);
        return spry_fail(error, SPRY_ERR_MEMORY, "only %zu of %zu threads could be started: %s", started, count,
                         strerror(failure));
    }
    *out = threads;
    return SPRY_OK;
}

void spry_threads_destroy(spry_threads *threads)
{
    if (!threads)
        return;
    announce(threads, NULL, NULL);
    for (size_t i = 1; i < threads->count; i++)
        pthread_join(threads->workers[i].thread, NULL);
    pthread_cond_destroy(&threads->done);
    pthread_cond_destroy(&threads->wake);
    pthread_mutex_destroy(&threads->mutex);
    free(threads->workers);
    free(threads);
}

size_t spry_threads_count(const spry_threads *threads)
{
    return threads->count;
}

/* Processors in the affinity mask; all processors when it cannot be read. */
static size_t affinity_count(void)
{
    size_t count = 0;
    for (size_t cpus = CPU_SETSIZE; !count && cpus <= ((size_t)1 << 20); cpus *= 2) {
        /* The kernel refuses a mask shorter than its own: try longer ones. */
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0)
            count = (size_t)CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set);
        CPU_FREE(set);
    }
    if (count)
        return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

size_t spry_threads_usable(void)
{
    size_t count = affinity_count();
    spry_cgroup_limits limits;
    spry_cgroup_read(&limits, "");
    return limits.cpus < count ? limits.cpus : count;
}
