#include "platform/thread_place.h"

#include <time.h>

void spry_place_begin(spry_thread_place *place)
{
    atomic_store_explicit(&place->cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store(&place->working, true);
}

/* Processor time of the thread; 0 where it cannot be read. */
static uint64_t processor_ns(pthread_t thread)
{
    clockid_t clock;
    struct timespec time;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &time))
        return 0;
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void stay_on(pthread_t thread, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

static bool is_valid(int cpu)
{
    return cpu >= 0 && cpu < CPU_SETSIZE;
}

void spry_place_undo(spry_thread_place *place, pthread_mutex_t *mutex)
{
    if (!atomic_load(&place->held))
        return;
    pthread_mutex_lock(mutex);
    bool moved = place->moved, returns = place->returns;
    cpu_set_t mask = place->mask;
    spry_place_release(place);
    pthread_mutex_unlock(mutex);
    if (moved && returns)
        stay_on(pthread_self(), atomic_load(&place->cpu));
    if (moved)
        pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
}

bool spry_place_hold(spry_thread_place *place)
{
    if (atomic_load(&place->held)) /* it was moved, and has not undone it yet */
        return false;
    atomic_store(&place->held, true);
    if (!atomic_load(&place->working)) {
        atomic_store(&place->held, false);
        return false;
    }
    place->ran_ns = processor_ns(place->thread);
    return true;
}

bool spry_place_is_stuck(const spry_thread_place *place, uint64_t elapsed_ns)
{
    return atomic_load(&place->working) && place->ran_ns &&
           processor_ns(place->thread) - place->ran_ns < elapsed_ns / 4;
}

void spry_place_move(spry_thread_place *place, int cpu, bool returns)
{
    if (!is_valid(cpu) || !is_valid(atomic_load(&place->cpu)) ||
        pthread_getaffinity_np(place->thread, sizeof place->mask, &place->mask))
        return;
    place->moved = true;
    place->returns = returns;
    stay_on(place->thread, cpu);
}

void spry_place_release(spry_thread_place *place)
{
    place->moved = false;
    atomic_store(&place->held, false);
}

void spry_place_go(int cpu)
{
    cpu_set_t mask;
    if (!is_valid(cpu) || pthread_getaffinity_np(pthread_self(), sizeof mask, &mask))
        return;
    stay_on(pthread_self(), cpu);
    pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
}
