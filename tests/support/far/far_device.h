/* A device as strict as one on the other side of a bus: the CPU's kernels in a thread of their own, with memory that
 * only this thread can reach. Its weights, pages and working memory (logits among them) are mapped without any access
 * except while it works, so a caller that follows a pointer into the device, or reads a result before wait, faults.
 * Submit returns before the step has run.
 *
 * A program that is linked with these files knows the device by the name "far". */
#ifndef SPRY_TESTS_FAR_DEVICE_H
#define SPRY_TESTS_FAR_DEVICE_H

#include <pthread.h>
#include <sys/mman.h>

#include "device/cpu/cpu_device.h"

extern const spry_device_kind spry_device_kind_far;

/* Closes memory of spry_memory_map to every access, which then ends the process, or opens it again. */
static inline void far_protect(void *memory, size_t bytes, bool open)
{
    mprotect(memory, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* The CPU device inside, which owns the memory. */
const spry_cpu_device *spry_far_device_inside(const spry_device *device);

/* While it is held, its thread begins no further call. */
void spry_far_device_hold(spry_device *device, bool hold);

/* Whisper models on it, and the memory that only its thread reaches. */
spry_status spry_far_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error);
spry_cpu_region spry_far_whisper_region(const spry_whisper_device *device);

/* ---- its thread: calls that it makes in order, with the device's memory open only meanwhile ---------------------- */

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

/* Starts and finishes a call, which can be on its caller's stack. */
void spry_far_queue_call(spry_far_queue *queue, spry_far_call *call);

/* While the queue is held, no other call begins. */
void spry_far_queue_hold(spry_far_queue *queue, bool hold);

#endif
