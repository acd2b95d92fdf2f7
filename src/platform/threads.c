/* A run: the caller stores the job and opens a new epoch; workers that see it enter, take blocks until none is left,
 * and leave. The caller does the same, then closes the epoch and waits for those inside. `state` holds all of it in one
 * word, so a worker that comes late cannot enter a run that is closed, and the job does not change under one inside.
 * Every wait first spins for tens of microseconds, because the steps of a forward pass follow each other that closely,
 * then sleeps.
 *
 * No wake-up is lost: a waiter first announces itself (`sleepers`, `caller_sleeps`), then checks its condition, both
 * under the mutex; the other side first changes the condition, then checks for announced waiters. All four accesses
 * are sequentially consistent, so at least one side sees the other, and the mutex orders the signal after the start of
 * the wait.
 *
 * Before a thread sleeps, it checks whether the threads it waits for are running. */
#include "platform/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/interrupt.h"
#include "platform/clock.h"
#include "platform/os.h"
#include "platform/system_file.h"

/* ---- the processor of a thread ----------------------------------------------------------------------------------- */

/* The processor that a thread of a pool runs on. When another program takes it in the middle of a block, the rest of
 * the pool would wait for that program's time slice, milliseconds, although processors are free: kernels move such a
 * thread only at their next balancing. A waiting thread therefore moves it to a processor that has no work.
 *
 * A thread that is to be moved must be working: `held` is set first, then `working` is checked; the thread itself
 * clears `working` first, then checks `held`. Both are sequentially consistent, so one side sees the other, and a held
 * thread waits for the mutex before it goes on: it is neither moved nor gone while its place is in use. */

enum { SPRY_PLACE_ALIGNMENT = 64 };

typedef struct spry_thread_place {
    _Alignas(SPRY_PLACE_ALIGNMENT) atomic_bool working; /* the worker computes blocks of a run */
    atomic_bool held;
    atomic_int cpu; /* processor on which its last run began */
    pthread_t thread;
    /* under the mutex */
    bool moved;
    bool returns;            /* the worker moves back to `cpu` when its blocks are done */
    spry_processor_set mask; /* processors that the thread could use before */
    uint64_t ran_ns;
} spry_thread_place;

/* It has no block left. */
static inline void spry_place_end(spry_thread_place *place)
{
    atomic_store(&place->working, false);
}

/* Under the mutex, for a thread that was held and not moved. */
static void place_release(spry_thread_place *place);

/* This thread begins to take blocks. */
static void place_begin(spry_thread_place *place)
{
    atomic_store_explicit(&place->cpu, spry_os_processor(), memory_order_relaxed);
    atomic_store(&place->working, true);
}

static bool is_valid(int cpu)
{
    return cpu >= 0 && cpu < SPRY_PROCESSOR_SET_MAX;
}

/* After spry_place_end, when no other thread waits for this one: undoes a move. */
static void place_undo(spry_thread_place *place, pthread_mutex_t *mutex)
{
    if (!atomic_load(&place->held))
        return;
    pthread_mutex_lock(mutex);
    bool moved = place->moved, returns = place->returns;
    spry_processor_set mask = place->mask;
    place_release(place);
    pthread_mutex_unlock(mutex);
    if (moved && returns)
        spry_os_bind(pthread_self(), atomic_load(&place->cpu));
    if (moved)
        spry_os_set_affinity(pthread_self(), &mask);
}

/* Under the mutex: keeps a thread that is working where it is and reads its processor time; false: it is not working.
 */
static bool place_hold(spry_thread_place *place)
{
    if (atomic_load(&place->held)) /* the thread was moved and has not moved back yet */
        return false;
    atomic_store(&place->held, true);
    if (!atomic_load(&place->working)) {
        atomic_store(&place->held, false);
        return false;
    }
    place->ran_ns = spry_os_thread_ns(place->thread);
    return true;
}

/* Under the mutex, for a thread that is held: whether it has been working for the last elapsed_ns without a processor.
 */
static bool place_is_stuck(const spry_thread_place *place, uint64_t elapsed_ns)
{
    return atomic_load(&place->working) && place->ran_ns &&
           spry_os_thread_ns(place->thread) - place->ran_ns < elapsed_ns / 4;
}

/* Under the mutex: moves a thread that is held. */
static void place_move(spry_thread_place *place, int cpu, bool returns)
{
    if (!is_valid(cpu) || !is_valid(atomic_load(&place->cpu)) || !spry_os_affinity(&place->mask, place->thread))
        return;
    place->moved = true;
    place->returns = returns;
    spry_os_bind(place->thread, cpu);
}

static void place_release(spry_thread_place *place)
{
    place->moved = false;
    atomic_store(&place->held, false);
}

/* Moves this thread, which may go elsewhere afterwards. Returns when it runs there. */
static void place_go(int cpu)
{
    spry_processor_set mask;
    if (!is_valid(cpu) || !spry_os_affinity(&mask, pthread_self()))
        return;
    spry_os_bind(pthread_self(), cpu);
    spry_os_set_affinity(pthread_self(), &mask);
}

/* ---- background threads ------------------------------------------------------------------------------------------ */

enum { SECOND = 1000000000 };

spry_status spry_background_start(pthread_t *thread, void *(*run)(void *), void *context, const char *who,
                                  spry_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure ? spry_fail(error, SPRY_ERR_MEMORY, "%s's thread could not be started: %s", who, strerror(failure))
                   : SPRY_OK;
}

void spry_background_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
#if !defined(__APPLE__) /* whose relative waits do not depend on the time of day */
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool spry_background_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns)
{
#if defined(__APPLE__)
    const struct timespec span = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    return pthread_cond_timedwait_relative_np(condition, lock, &span) == 0;
#else
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t fraction = (uint64_t)until.tv_nsec + ns % SECOND;
    until.tv_sec += (time_t)(ns / SECOND + fraction / SECOND);
    until.tv_nsec = (long)(fraction % SECOND);
    return pthread_cond_timedwait(condition, lock, &until) == 0;
#endif
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

enum {
    CACHE_LINE = 64,
    WORKERS_MAX = 1024,
    SPIN_NS = 12500, /* time to spin, multiplied by the workers, because the last of many arrives later */
    SPIN_NS_MAX = 200000,
    PAUSES_PER_POLL = 16, /* between two reads of the clock */
    STUCK_NS = 25000,     /* a thread that got no processor for so long is moved to another */
    SHARES = 4,           /* a block is this part of what is left for each worker: the last ones are short */
};

/* `state`: the epoch, whether workers may enter, and how many are inside. */
enum { STATE_INSIDE = 0x7fff, STATE_OPEN = 0x8000, STATE_EPOCH = 0x10000 };

typedef struct worker {
    spry_thread_place place;
    struct spry_threads *pool;
    pthread_t thread;
} worker;

struct spry_threads {
    size_t count;
    bool spins; /* false with more workers than processors: the awaited thread may need the waiter's processor */
    uint64_t spin_ns;
    worker *workers; /* entry 0 is the caller's thread: only its place is used */

    spry_threads_block_fn fn; /* the job; NULL: the workers exit */
    void *context;
    size_t total, grain;

    pthread_mutex_t moving; /* guards the places */
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    atomic_size_t sleepers;
    atomic_bool caller_sleeps;

    /* Both are written while other threads spin on them: each has its own cache line. */
    _Alignas(CACHE_LINE) atomic_uint_fast64_t state;
    _Alignas(CACHE_LINE) atomic_size_t next; /* the first item that no worker has taken */
};

/* What waits end with. */
static bool new_epoch(const spry_threads *threads, uint64_t epoch)
{
    return atomic_load(&threads->state) / STATE_EPOCH != epoch;
}

static bool all_left(const spry_threads *threads, uint64_t unused)
{
    (void)unused;
    return !(atomic_load(&threads->state) & STATE_INSIDE);
}

static bool caller_waits(const spry_threads *threads, uint64_t unused)
{
    (void)unused;
    return !atomic_load(&threads->workers[0].place.working);
}

/* Whether the condition became true before the time limit. */
SPRY_INLINE bool spin_until(const spry_threads *threads, bool (*condition)(const spry_threads *, uint64_t),
                            uint64_t value, uint64_t limit_ns)
{
    if (!threads->spins)
        return condition(threads, value);
    uint64_t start = spry_clock_ns();
    do {
        for (int i = 0; i < PAUSES_PER_POLL; i++) {
            if (condition(threads, value))
                return true;
            SPRY_PAUSE();
        }
    } while (spry_clock_ns() - start < limit_ns);
    return false;
}

/* Where the caller holds a block and gets no processor, it takes this worker's, and this worker the caller's. */
static void help_caller(spry_threads *threads)
{
    spry_thread_place *caller = &threads->workers[0].place;
    if (!threads->spins || !atomic_load(&caller->working) || pthread_mutex_trylock(&threads->moving))
        return;
    int here = spry_os_processor(), there = here;
    if (place_hold(caller)) {
        uint64_t start = spry_clock_ns();
        spin_until(threads, caller_waits, 0, STUCK_NS);
        there = atomic_load(&caller->cpu);
        if (place_is_stuck(caller, spry_clock_ns() - start))
            place_move(caller, here, false);
        if (!caller->moved) {
            there = here;
            place_release(caller);
        }
    }
    pthread_mutex_unlock(&threads->moving);
    if (there != here)
        place_go(there);
}

/* The processor of the next thread from *i on that has no block left: the caller, then workers, then the caller again.
 */
static int next_free_cpu(const spry_threads *threads, size_t *i)
{
    while (*i < threads->count && atomic_load(&threads->workers[*i].place.working))
        ++*i;
    size_t found = (*i)++;
    return found && found < threads->count ? atomic_load(&threads->workers[found].place.cpu) : spry_os_processor();
}

/* Workers that hold blocks and get no processor take the processors of threads that have no block left. */
static void help_workers(spry_threads *threads)
{
    size_t n_held = 0, from = 0;
    if (!threads->spins)
        return;
    pthread_mutex_lock(&threads->moving);
    for (size_t i = 1; i < threads->count; i++)
        n_held += place_hold(&threads->workers[i].place);
    uint64_t start = spry_clock_ns();
    if (n_held)
        spin_until(threads, all_left, 0, STUCK_NS);
    uint64_t elapsed = spry_clock_ns() - start;
    for (size_t i = 1; n_held && i < threads->count; i++) {
        spry_thread_place *place = &threads->workers[i].place;
        if (!atomic_load(&place->held) || place->moved)
            continue;
        if (place_is_stuck(place, elapsed))
            place_move(place, next_free_cpu(threads, &from), true);
        if (!place->moved)
            place_release(place);
    }
    pthread_mutex_unlock(&threads->moving);
}

static void wait_for_epoch_after(spry_threads *threads, uint64_t epoch)
{
    if (spin_until(threads, new_epoch, epoch, threads->spin_ns))
        return;
    help_caller(threads);
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->sleepers, 1);
    while (!new_epoch(threads, epoch))
        pthread_cond_wait(&threads->wake, &threads->mutex);
    atomic_fetch_sub(&threads->sleepers, 1);
    pthread_mutex_unlock(&threads->mutex);
}

/* Enters the run of the current epoch unless it is closed; *epoch becomes the current one. */
static bool enter(spry_threads *threads, uint64_t *epoch)
{
    uint_fast64_t state = atomic_load(&threads->state);
    do {
        *epoch = state / STATE_EPOCH;
        if (!(state & STATE_OPEN))
            return false;
    } while (!atomic_compare_exchange_weak(&threads->state, &state, state + 1));
    return true;
}

static void leave(spry_threads *threads)
{
    uint64_t state = atomic_fetch_sub(&threads->state, 1);
    if ((state & STATE_INSIDE) != 1 || !atomic_load(&threads->caller_sleeps))
        return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_signal(&threads->done);
    pthread_mutex_unlock(&threads->mutex);
}

static bool take(size_t *begin, size_t *end, spry_threads *threads)
{
    *begin = atomic_load(&threads->next);
    do {
        if (*begin >= threads->total)
            return false;
        size_t left = threads->total - *begin, size = left / (SHARES * threads->count) / threads->grain;
        size = (size ? size : 1) * threads->grain;
        *end = *begin + (size < left ? size : left);
    } while (!atomic_compare_exchange_weak(&threads->next, begin, *end));
    return true;
}

static void work(spry_threads *threads, spry_thread_place *place)
{
    size_t begin, end;
    place_begin(place);
    while (take(&begin, &end, threads))
        threads->fn(threads->context, begin, end);
    spry_place_end(place);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    spry_threads *threads = self->pool;
    self->place.thread = pthread_self();
    spry_os_begin_worker();
    for (uint64_t epoch = 0;;) {
        wait_for_epoch_after(threads, epoch);
        if (!enter(threads, &epoch))
            continue;
        bool ends = !threads->fn;
        if (!ends)
            work(threads, &self->place);
        leave(threads);
        if (ends)
            return NULL;
        place_undo(&self->place, &threads->moving);
    }
}

/* Opens the next epoch. */
static void announce(spry_threads *threads, spry_threads_block_fn fn, void *context, size_t total, size_t grain)
{
    threads->fn = fn;
    threads->context = context;
    threads->total = total;
    threads->grain = grain;
    atomic_store(&threads->next, 0);
    uint64_t epoch = atomic_load(&threads->state) / STATE_EPOCH + 1;
    atomic_store(&threads->state, epoch * STATE_EPOCH | STATE_OPEN);
    if (!atomic_load(&threads->sleepers))
        return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->mutex);
}

/* Closes the epoch and waits for the workers inside. */
static void wait_until_done(spry_threads *threads)
{
    atomic_fetch_and(&threads->state, ~(uint64_t)STATE_OPEN);
    if (spin_until(threads, all_left, 0, threads->spin_ns))
        return;
    help_workers(threads);
    pthread_mutex_lock(&threads->mutex);
    /* Not a plain store: some ARM emulators (QEMU 7) reorder the load below before it. */
    atomic_exchange(&threads->caller_sleeps, true);
    while (!all_left(threads, 0))
        pthread_cond_wait(&threads->done, &threads->mutex);
    atomic_store(&threads->caller_sleeps, false);
    pthread_mutex_unlock(&threads->mutex);
}

void spry_threads_share(spry_threads *threads, spry_threads_block_fn fn, void *context, size_t total, size_t grain)
{
    if (threads->count == 1 || total <= grain) {
        if (total)
            fn(context, 0, total);
        return;
    }
    spry_thread_place *place = &threads->workers[0].place;
    place->thread = pthread_self();
    announce(threads, fn, context, total, grain);
    work(threads, place);
    wait_until_done(threads);
    place_undo(place, &threads->moving);
}

typedef struct parts_job {
    spry_threads_fn fn;
    void *context;
    size_t n_parts;
} parts_job;

static void run_parts(void *context, size_t begin, size_t end)
{
    const parts_job *job = context;
    for (size_t part = begin; part < end; part++)
        job->fn(job->context, part, job->n_parts);
}

void spry_threads_run(spry_threads *threads, spry_threads_fn fn, void *context)
{
    parts_job job = {fn, context, threads->count};
    spry_threads_share(threads, run_parts, &job, threads->count, 1);
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
        self->pool = threads;
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
    worker *workers = aligned_alloc(SPRY_PLACE_ALIGNMENT, count * sizeof *workers);
    if (!threads || !workers) {
        free(threads);
        free(workers);
        return spry_fail_memory(error, "the thread pool", sizeof *threads + count * sizeof *workers);
    }
    memset(workers, 0, count * sizeof *workers);
    uint64_t spin_ns = count * SPIN_NS < SPIN_NS_MAX ? count * SPIN_NS : SPIN_NS_MAX;
    *threads = (spry_threads){.count = count, .spins = count <= usable, .spin_ns = spin_ns, .workers = workers};
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_mutex_init(&threads->moving, NULL);
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
    announce(threads, NULL, NULL, 0, 1); /* stays open: every worker enters it */
    for (size_t i = 1; i < threads->count; i++)
        pthread_join(threads->workers[i].thread, NULL);
    pthread_cond_destroy(&threads->done);
    pthread_cond_destroy(&threads->wake);
    pthread_mutex_destroy(&threads->moving);
    pthread_mutex_destroy(&threads->mutex);
    free(threads->workers);
    free(threads);
}

size_t spry_threads_count(const spry_threads *threads)
{
    return threads->count;
}

bool spry_lock_patiently(pthread_mutex_t *lock)
{
    const struct timespec nap = {.tv_nsec = SPRY_LOCK_NAP_NS};
    while (pthread_mutex_trylock(lock) != 0) {
        if (spry_interrupted(SPRY_INTERRUPT_WORK))
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

size_t spry_threads_usable(void)
{
    size_t count = spry_os_processors();
    spry_cgroup_limits limits;
    spry_cgroup_read(&limits, "");
    return limits.cpus < count ? limits.cpus : count;
}
