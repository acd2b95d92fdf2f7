/* An imitated driver: the "GPU" uses the host's memory, runs the kernels that were compiled for the host (cuda_host.h),
 * and calls fail on request. New memory is filled with NaNs. */
#ifndef TESTS_CUDA_IMITATION_H
#define TESTS_CUDA_IMITATION_H

#include <stdbool.h>
#include <stddef.h>

#include "platform/cuda_driver.h"

#define IMITATED_LAUNCH_MS 0.0625 /* a power of two: sums are exact */

typedef struct cuda_imitation {
    int devices, compute_major, sm_count;
    size_t free_bytes;   /* of the GPU's memory */
    size_t shared_bytes; /* of a block */
    size_t scarce;       /* a size of host memory that can be allocated only scarce_left times more */
    size_t scarce_left;
    bool hangs;       /* work never ends */
    bool late;        /* work of a stream is done when the stream is waited for, not before */
    bool early;       /* with `late`: streams other than the first work as soon as they need not wait */
    int calls;        /* so far */
    int fail_at;      /* number of the call that fails, counted from 1; 0: none */
    int fail_with;    /* its result */
    bool fail_memory; /* only if it is one for memory */
    /* What is held. */
    int contexts, modules, streams, graphs, events;
    size_t allocations, host_allocations;
    size_t launches;
    size_t waits;     /* how often the host waited for a stream, or queried an event */
    bool watch;       /* every launch is watched until it waits for earlier kernels; see cuda_imitation.c */
    size_t watched;   /* number of watched launches */
    size_t too_early; /* watched launches that stored something before they waited, or did not wait */
    double ms;        /* the GPU's clock: each launch takes IMITATED_LAUNCH_MS */
} cuda_imitation;

extern cuda_imitation imitation;

/* Starts again with one GPU that has enough of everything. */
void cuda_imitation_reset(void);

/* True if nothing is held. */
bool cuda_imitation_is_clean(void);

spry_cuda cuda_imitation_driver(void);

/* The size of an allocation. */
size_t cuda_imitation_bytes(spry_cuda_memory memory);

/* Empty images: the imitation finds kernels by name. One image is for another GPU. */
extern const void *const cuda_imitation_images[];
extern const char cuda_imitation_foreign[];

#endif
