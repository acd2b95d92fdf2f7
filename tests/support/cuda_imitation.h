/* A driver that is none: memory of the "GPU" is the host's, kernels are those compiled for the host (cuda_host.h), and
 * calls fail when they are told to. New memory is filled with NaNs. */
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
    size_t scarce;       /* size of host memory that can be allocated only so many times more: */
    size_t scarce_left;
    bool hangs;       /* work never ends */
    bool late;        /* what goes into a stream is done when its end is waited for, and not before */
    bool early;       /* with `late`: but in other streams than the first it is done as soon as they need not wait */
    int calls;        /* so far */
    int fail_at;      /* number of the call that fails, counted from 1; 0: none */
    int fail_with;    /* its result */
    bool fail_memory; /* only if it is one for memory */
    /* What is held. */
    int contexts, modules, streams, graphs, events;
    size_t allocations, host_allocations;
    size_t launches;
    size_t together;  /* of them, those whose blocks run at once */
    size_t waits;     /* times the host waited for the stream, or asked whether an event is done */
    bool watch;       /* every launch is watched until it waits for those before: see cuda_imitation.c */
    size_t watched;   /* launches */
    size_t too_early; /* of them, those that stored something before, or did not wait */
    double ms;        /* the GPU's clock: each launch takes IMITATED_LAUNCH_MS */
} cuda_imitation;

extern cuda_imitation imitation;

/* Starts anew, with one GPU that has enough of everything. */
void cuda_imitation_reset(void);

/* Whether nothing is held. */
bool cuda_imitation_is_clean(void);

spry_cuda cuda_imitation_driver(void);

/* The size of what was allocated. */
size_t cuda_imitation_bytes(spry_cuda_memory memory);

/* Images of no kernels: the imitation finds all of them by name. One is for another GPU. */
extern const void *const cuda_imitation_images[];
extern const char cuda_imitation_foreign[];

#endif
