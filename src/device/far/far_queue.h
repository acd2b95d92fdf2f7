/* The thread of a far device: calls that it makes in order, with the device's memory open only meanwhile. */
#ifndef SPRY_DEVICE_FAR_FAR_QUEUE_H
#define SPRY_DEVICE_FAR_FAR_QUEUE_H

#include <pthread.h>

#include "base/error.h"

typedef struct spry_far_call {
    void (*run)(void *device, struct spry_far_call *call);
    struct spry_far_call *next;
    bool done;
} spry_far_call;

typedef struct spry_far_queue {
    void *device;
    void (*open_memory)(void *device, bool open);
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    spry_far_call *first, **last;
    bool held, stopping;
    uint64_t waits; /* for calls, by any thread; under the lock */
} spry_far_queue;

/* Closes the device's memory and starts the thread. */
spry_status spry_far_queue_open(spry_far_queue *queue, void *device, void (*open_memory)(void *device, bool open),
                                spry_error *error);

/* Makes the calls that were started, and ends the thread. */
void spry_far_queue_close(spry_far_queue *queue);

/* A call must stay where it is until it is finished. */
void spry_far_queue_start(spry_far_queue *queue, spry_far_call *call);
void spry_far_queue_finish(spry_far_queue *queue, const spry_far_call *call);

/* Whether it is finished. */
bool spry_far_queue_is_done(spry_far_queue *queue, const spry_far_call *call);

/* How often a thread waited for a call. */
uint64_t spry_far_queue_waits(spry_far_queue *queue);

/* Both: the call can lie on its caller's stack. */
void spry_far_queue_call(spry_far_queue *queue, spry_far_call *call);

/* No other call begins until the queue is let go. */
void spry_far_queue_hold(spry_far_queue *queue, bool hold);

#endif
