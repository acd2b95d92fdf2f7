/* The processor that a thread of a pool runs on. When another program takes it in the middle of a block, the rest of
 * the pool would wait for that program's time slice, milliseconds, although processors are free: kernels move such a
 * thread only at their next balancing. A waiting thread therefore moves it to a processor that has no work.
 *
 * A thread that is to be moved must be working: `held` is set first, then `working` is checked; the thread itself
 * clears `working` first, then checks `held`. Both are sequentially consistent, so one side sees the other, and a held
 * thread waits for the mutex before it goes on: it is neither moved nor gone while its place is in use. */
#ifndef SPRY_PLATFORM_THREAD_PLACE_H
#define SPRY_PLATFORM_THREAD_PLACE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPRY_PLACE_ALIGNMENT = 64 };

typedef struct spry_thread_place {
    _Alignas(SPRY_PLACE_ALIGNMENT) atomic_bool working; /* in blocks of a run */
    atomic_bool held;
    atomic_int cpu; /* where its last run began */
    pthread_t thread;
    /* under the mutex */
    bool moved;
    bool returns;   /* to `cpu`, when its blocks are done */
    cpu_set_t mask; /* that it had before */
    uint64_t ran_ns;
} spry_thread_place;

/* This thread begins to take blocks. */
void spry_place_begin(spry_thread_place *place);

/* It has no block left. */
static inline void spry_place_end(spry_thread_place *place)
{
    atomic_store(&place->working, false);
}

/* After spry_place_end, when no other thread waits for this one: undoes a move. */
void spry_place_undo(spry_thread_place *place, pthread_mutex_t *mutex);

/* Under the mutex: keeps a thread that is working where it is and reads its processor time; false: it is not working.
 */
bool spry_place_hold(spry_thread_place *place);

/* Under the mutex, for a thread that is held: whether it has been working for the last elapsed_ns without a processor.
 */
bool spry_place_is_stuck(const spry_thread_place *place, uint64_t elapsed_ns);

/* Under the mutex: moves a thread that is held. */
void spry_place_move(spry_thread_place *place, int cpu, bool returns);

/* Under the mutex, for a thread that was held and not moved. */
void spry_place_release(spry_thread_place *place);

/* Moves this thread, which may go elsewhere afterwards. Returns when it runs there. */
void spry_place_go(int cpu);

#endif
