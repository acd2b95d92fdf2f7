/* The thread pool: every part and every item runs exactly once a run, whether workers were spinning or asleep; a worker
 * that is stuck takes one block, and one that has not begun is not waited for; one without a processor gets another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "platform/threads.h"

enum { WORKERS_TESTED = 8, RUNS_PER_COUNT = 1250, ITEMS = 1003 };

static void sleep_us(long us)
{
    struct timespec pause = {.tv_nsec = us * 1000};
    nanosleep(&pause, NULL);
}

/* ---- summing disjoint ranges ------------------------------------------------------------------------------------ */

/* Plain fields on purpose: that a worker's writes are seen after the run is what the pool promises. */
typedef struct sum_job {
    const uint32_t *items;
    uint64_t sums[WORKERS_TESTED];
    size_t calls[WORKERS_TESTED];
    size_t n_workers_seen[WORKERS_TESTED];
    long slow_worker_us; /* the last part takes that much longer */
} sum_job;

static void sum_part(void *context, size_t worker, size_t n_workers)
{
    sum_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, ITEMS, 8, worker, n_workers);
    uint64_t sum = 0;
    for (size_t i = begin; i < end; i++)
        sum += job->items[i];
    if (job->slow_worker_us && worker == n_workers - 1)
        sleep_us(job->slow_worker_us);
    job->sums[worker] = sum;
    job->calls[worker]++;
    job->n_workers_seen[worker] = n_workers;
}

static void run_and_check(spry_threads *threads, uint32_t *items, size_t n_workers, size_t run, long slow_worker_us)
{
    sum_job job = {.items = items, .slow_worker_us = slow_worker_us};
    uint64_t expected = 0, got = 0;
    for (size_t i = 0; i < ITEMS; i++)
        expected += items[i] = (uint32_t)((i + run) * 2654435761u);
    spry_threads_run(threads, sum_part, &job);
    for (size_t w = 0; w < n_workers; w++) {
        assert_int_equal(job.calls[w], 1);
        assert_int_equal(job.n_workers_seen[w], n_workers);
        got += job.sums[w];
    }
    for (size_t w = n_workers; w < WORKERS_TESTED; w++)
        assert_int_equal(job.calls[w], 0);
    assert_true(got == expected);
}

static void sums_are_right_in_ten_thousand_runs(void **state)
{
    (void)state;
    static uint32_t items[ITEMS];
    for (size_t n = 1; n <= WORKERS_TESTED; n++) {
        spry_threads *threads;
        assert_int_equal(spry_threads_create(&threads, n, NULL), SPRY_OK);
        assert_int_equal(spry_threads_count(threads), n);
        for (size_t run = 0; run < RUNS_PER_COUNT; run++)
            run_and_check(threads, items, n, run, 0);
        spry_threads_destroy(threads);
    }
}

/* Pauses from far below to far above the time a worker spins, so that runs also begin while it falls asleep. */
static void sleeping_workers_wake(void **state)
{
    (void)state;
    static uint32_t items[ITEMS];
    for (size_t n = 2; n <= WORKERS_TESTED; n++) {
        spry_threads *threads;
        assert_int_equal(spry_threads_create(&threads, n, NULL), SPRY_OK);
        for (size_t run = 0; run < 120; run++) {
            sleep_us((long)((run % 12) * (run % 12) * 10));
            run_and_check(threads, items, n, run, 0);
        }
        spry_threads_destroy(threads);
    }
}

static void sleeping_caller_wakes(void **state)
{
    (void)state;
    static uint32_t items[ITEMS];
    for (size_t n = 2; n <= WORKERS_TESTED; n += 3) {
        spry_threads *threads;
        assert_int_equal(spry_threads_create(&threads, n, NULL), SPRY_OK);
        for (size_t run = 0; run < 100; run++)
            run_and_check(threads, items, n, run, 1 + (long)((run % 10) * (run % 10) * 5));
        spry_threads_destroy(threads);
    }
}

static void pools_come_and_go(void **state)
{
    (void)state;
    static uint32_t items[ITEMS];
    for (size_t i = 0; i < 200; i++) {
        spry_threads *threads, *second;
        assert_int_equal(spry_threads_create(&threads, 1 + i % 5, NULL), SPRY_OK);
        assert_int_equal(spry_threads_create(&second, 2, NULL), SPRY_OK);
        if (i % 3 == 0)
            run_and_check(threads, items, 1 + i % 5, i, 0);
        if (i % 4 == 0)
            run_and_check(second, items, 2, i, 0);
        if (i % 7 == 0)
            sleep_us(200);
        spry_threads_destroy(threads);
        spry_threads_destroy(second);
    }
    spry_threads_destroy(NULL);
}

/* ---- threads and whose they are --------------------------------------------------------------------------------- */

static size_t threads_of_process(void)
{
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void one_worker_needs_no_thread(void **state)
{
    (void)state;
    size_t before = threads_of_process();
    spry_threads *threads;
    assert_int_equal(spry_threads_create(&threads, 1, NULL), SPRY_OK);
    assert_int_equal(threads_of_process(), before);
    spry_threads_destroy(threads);
    assert_int_equal(spry_threads_create(&threads, 5, NULL), SPRY_OK);
    assert_int_equal(threads_of_process(), before + 4);
    spry_threads_destroy(threads);
    /* A joined thread may stay listed for a moment while the kernel puts it away. */
    for (int i = 0; i < 1000 && threads_of_process() != before; i++)
        sleep_us(1000);
    assert_int_equal(threads_of_process(), before);
}

typedef struct identity_job {
    pthread_t caller;
    atomic_int blocking[2]; /* parts of other threads, and of the caller, that block the interrupt */
    atomic_int parts;
} identity_job;

static void note_identity(void *context, size_t part, size_t n_parts)
{
    (void)part;
    identity_job *job = context;
    bool own = pthread_equal(job->caller, pthread_self());
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_fetch_add(&job->parts, 1);
    if (sigismember(&mask, SIGINT) == own) /* the caller's signals are open, the workers' are blocked */
        atomic_fetch_add(&job->blocking[own], 1);
    while (atomic_load(&job->parts) < (int)n_parts) /* so that each part has a thread of its own */
        sched_yield();
}

static void workers_leave_signals_to_the_caller(void **state)
{
    (void)state;
    spry_threads *threads;
    identity_job job = {.caller = pthread_self()};
    assert_int_equal(spry_threads_create(&threads, 4, NULL), SPRY_OK);
    spry_threads_run(threads, note_identity, &job);
    spry_threads_destroy(threads);
    assert_int_equal(job.parts, 4);
    assert_int_equal(job.blocking[0], 0);
    assert_int_equal(job.blocking[1], 0);
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

typedef struct block_job {
    pthread_t caller;
    size_t total, grain;
    unsigned char done[ITEMS];
    atomic_size_t n_done, n_slow; /* items, and blocks of the slow side */
    bool slow_caller, slow_workers;
    atomic_bool held; /* a slow thread has its block */
} block_job;

/* A slow thread holds its block until all other items are done, so it can get no second one. */
static void do_block(void *context, size_t begin, size_t end)
{
    block_job *job = context;
    bool own = pthread_equal(job->caller, pthread_self());
    assert_true(begin < end && begin % job->grain == 0 && (end % job->grain == 0 || end == job->total));
    for (size_t i = begin; i < end; i++)
        job->done[i]++;
    if (own ? job->slow_caller : job->slow_workers) {
        atomic_fetch_add(&job->n_slow, 1);
        atomic_store(&job->held, true);
        while (atomic_load(&job->n_done) < job->total - (end - begin))
            sched_yield();
    } else if (job->slow_caller || job->slow_workers) {
        while (!atomic_load(&job->held)) /* the others wait for it to begin, so that the count is certain */
            sched_yield();
    }
    atomic_fetch_add(&job->n_done, end - begin);
}

static void check_blocks(spry_threads *threads, size_t total, size_t grain, bool slow_caller, bool slow_workers)
{
    block_job job = {.caller = pthread_self(), .total = total, .grain = grain, .slow_caller = slow_caller};
    job.slow_workers = slow_workers;
    spry_threads_share(threads, do_block, &job, total, grain);
    for (size_t i = 0; i < ITEMS; i++)
        assert_int_equal(job.done[i], i < total);
    if (slow_caller || slow_workers)
        assert_int_equal(job.n_slow, 1);
}

static void blocks_cover_everything_once(void **state)
{
    (void)state;
    static const size_t totals[] = {0, 1, 2, 7, 8, 31, 33, 255, 1000, ITEMS}, grains[] = {1, 2, 8, 100};
    for (size_t n = 1; n <= WORKERS_TESTED; n += 2) {
        spry_threads *threads;
        assert_int_equal(spry_threads_create(&threads, n, NULL), SPRY_OK);
        for (size_t run = 0; run < 400; run++)
            check_blocks(threads, totals[run % 10], grains[run / 10 % 4], false, false);
        spry_threads_destroy(threads);
    }
}

static void a_slow_thread_takes_one_block(void **state)
{
    (void)state;
    spry_threads *threads;
    assert_int_equal(spry_threads_create(&threads, 2, NULL), SPRY_OK);
    for (size_t run = 0; run < 20; run++) {
        check_blocks(threads, ITEMS, 8, true, false);
        check_blocks(threads, ITEMS, 8, false, true);
    }
    spry_threads_destroy(threads);
}

/* Runs that are over before a worker wakes up: it finds each of them closed. */
static void late_workers_are_not_waited_for(void **state)
{
    (void)state;
    spry_threads *threads;
    assert_int_equal(spry_threads_create(&threads, WORKERS_TESTED, NULL), SPRY_OK);
    for (size_t run = 0; run < 5000; run++) {
        if (run % 500 == 0)
            sleep_us(300);
        check_blocks(threads, 2, 1, false, false);
    }
    spry_threads_destroy(threads);
}

/* ---- threads that get no processor ------------------------------------------------------------------------------- */

typedef struct move_job {
    pthread_t caller, worker;
    bool caller_sleeps;
    atomic_int begun;
    atomic_bool moved; /* the thread that slept was bound to one processor meanwhile */
} move_job;

static bool cannot_bind(const char *test)
{
    bool cannot = strcmp(TEST_PLATFORM, "linux") != 0;
    if (cannot)
        print_message("SKIPPED %s: on the platform " TEST_PLATFORM " threads are not bound to processors\n", test);
    return cannot;
}

static size_t allowed_cpus(pthread_t thread)
{
#ifdef __linux__
    cpu_set_t mask;
    return pthread_getaffinity_np(thread, sizeof mask, &mask) ? 0 : (size_t)CPU_COUNT(&mask);
#else
    (void)thread;
    return 0;
#endif
}

/* One of the two threads sleeps, which looks as if it got no processor, until it is moved or 100 ms have passed. */
static void sleep_in_block(void *context, size_t begin, size_t end)
{
    (void)begin, (void)end;
    move_job *job = context;
    bool own = pthread_equal(job->caller, pthread_self());
    if (!own)
        job->worker = pthread_self();
    atomic_fetch_add(&job->begun, 1);
    while (atomic_load(&job->begun) < 2) /* so that each has a block */
        sched_yield();
    for (int i = 0; own == job->caller_sleeps && i < 100 && !atomic_load(&job->moved); i++) {
        sleep_us(1000);
        if (allowed_cpus(pthread_self()) == 1)
            atomic_store(&job->moved, true);
    }
}

static void sleepers_are_moved_and_return(void **state)
{
    (void)state;
    spry_threads *threads;
    size_t allowed = allowed_cpus(pthread_self());
    if (cannot_bind(__func__))
        skip();
    if (spry_threads_usable() < 2 || allowed < 2) {
        print_message("SKIPPED sleepers_are_moved_and_return: there is one processor\n");
        skip();
    }
    assert_int_equal(spry_threads_create(&threads, 2, NULL), SPRY_OK);
    for (int caller_sleeps = 0; caller_sleeps < 2; caller_sleeps++) {
        move_job job = {.caller = pthread_self(), .caller_sleeps = caller_sleeps};
        for (int run = 0; run < 600 && !job.moved; run++) { /* a busy machine may wake the other thread late */
            job.begun = 0;
            spry_threads_share(threads, sleep_in_block, &job, 2, 1);
            assert_int_equal(allowed_cpus(job.caller), allowed);
        }
        assert_true(job.moved);
        for (int i = 0; i < 60000 && allowed_cpus(job.worker) != allowed; i++) /* workers undo it when they have left */
            sleep_us(1000);
        assert_int_equal(allowed_cpus(job.worker), allowed);
    }
    spry_threads_destroy(threads);
}

static void too_many_are_refused(void **state)
{
    (void)state;
    spry_threads *threads;
    spry_error error;
    assert_int_equal(spry_threads_create(&threads, 1025, &error), SPRY_ERR_INPUT);
    assert_null(threads);
    assert_string_equal(error.message, "1025 threads are more than the 1024 a pool may have");
    assert_int_equal(spry_threads_create(&threads, SIZE_MAX, &error), SPRY_ERR_INPUT);
}

/* ---- how many --------------------------------------------------------------------------------------------------- */

static void zero_means_usable(void **state)
{
    (void)state;
    spry_threads *threads;
    assert_int_equal(spry_threads_create(&threads, 0, NULL), SPRY_OK);
    assert_int_equal(spry_threads_count(threads), spry_threads_usable());
    spry_threads_destroy(threads);
}

static void usable_follows_affinity(void **state)
{
    (void)state;
    if (cannot_bind(__func__))
        skip();
#ifdef __linux__
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) {
        print_message("SKIPPED usable_follows_affinity: there are more processors than the fixed mask holds\n");
        skip();
    }
    size_t usable = spry_threads_usable();
    assert_in_range(usable, 1, (size_t)CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(spry_threads_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(spry_threads_usable(), usable);
#endif
}

/* ---- the split -------------------------------------------------------------------------------------------------- */

static void parts_cover_everything_once(void **state)
{
    (void)state;
    static const size_t totals[] = {0, 1, 2, 7, 8, 31, 32, 33, 255, 1000, 4096, 100003};
    static const size_t grains[] = {1, 2, 8, 32, 100};
    for (size_t t = 0; t < sizeof totals / sizeof *totals; t++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++)
            for (size_t n = 1; n <= 17; n++) {
                size_t reached = 0, smallest = SIZE_MAX, largest = 0;
                for (size_t w = 0; w < n; w++) {
                    size_t begin, end;
                    spry_threads_part(&begin, &end, totals[t], grains[g], w, n);
                    assert_int_equal(begin, reached);
                    assert_true(end >= begin && (begin % grains[g] == 0 || begin == end));
                    size_t units = (end - begin + grains[g] - 1) / grains[g];
                    smallest = units < smallest ? units : smallest;
                    largest = units > largest ? units : largest;
                    reached = end;
                }
                assert_int_equal(reached, totals[t]);
                assert_true(largest - smallest <= 1);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right_in_ten_thousand_runs),
        cmocka_unit_test(sleeping_workers_wake),
        cmocka_unit_test(sleeping_caller_wakes),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(one_worker_needs_no_thread),
        cmocka_unit_test(workers_leave_signals_to_the_caller),
        cmocka_unit_test(blocks_cover_everything_once),
        cmocka_unit_test(a_slow_thread_takes_one_block),
        cmocka_unit_test(late_workers_are_not_waited_for),
        cmocka_unit_test(sleepers_are_moved_and_return),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(zero_means_usable),
        cmocka_unit_test(usable_follows_affinity),
        cmocka_unit_test(parts_cover_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
