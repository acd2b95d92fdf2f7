/* A GPU in use: its context, kernels, stream and memory. Calls that fail are remembered, the first of them, and from
 * then on nothing more is asked of the driver; the caller checks spry_cuda_fault once, at the end. */
#ifndef SPRY_DEVICE_CUDA_CUDA_CONTEXT_H
#define SPRY_DEVICE_CUDA_CUDA_CONTEXT_H

#include "base/dtype.h"
#include "device/cuda/kernel_args.h"
#include "platform/cuda_driver.h"

enum { SPRY_CUDA_MODULES_MAX = 40, SPRY_CUDA_NAME = 96, SPRY_CUDA_KERNEL_NAME = 64 };

/* A kernel that was asked for before. */
typedef struct spry_cuda_function {
    char name[SPRY_CUDA_KERNEL_NAME];
    void *function;
} spry_cuda_function;

enum { SPRY_CUDA_FUNCTIONS = 256 }; /* more than there are kernels; a power of two */

typedef struct spry_cuda_context {
    const spry_cuda *cuda; /* borrowed */
    int device;
    void *context, *stream;
    void *mark; /* an event */
    void *modules[SPRY_CUDA_MODULES_MAX];
    size_t n_modules;
    spry_cuda_function functions[SPRY_CUDA_FUNCTIONS]; /* by the hash of their name */
    char name[SPRY_CUDA_NAME];
    bool sm90_up;        /* kernels may begin while those before them end, and blocks form clusters */
    bool has_wgmma;      /* it has matrix instructions of four warps */
    size_t sm_count;     /* multiprocessors */
    size_t shared_bytes; /* shared memory of a block, at most */
    uint32_t timeout_ms; /* a step that takes longer is a fault */
    uint64_t waits;      /* times the host waited for it */
    void (*record)(void *to, const char *kernel, size_t shared_bytes, const void *arguments); /* NULL: none */
    void *record_to;
    int fault; /* the first result that was not 0 */
    const char *fault_call;
    size_t fault_bytes; /* that could not be allocated */
} spry_cuda_context;

/* `index`: which GPU. `images` ends with NULL. On failure nothing is held. */
spry_status spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                   const void *const *images, spry_error *error);
void spry_cuda_context_deinit(spry_cuda_context *context);

/* Makes it the calling thread's. */
void spry_cuda_enter(spry_cuda_context *context);

/* A kernel by its name. */
void *spry_cuda_kernel(spry_cuda_context *context, const char *name);

/* Blocks of threads of one dimension, behind everything launched before. */
void spry_cuda_launch(spry_cuda_context *context, void *kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                      unsigned threads, const void *arguments);

/* The same for kernels that have SPRY_SMEM_DYNAMIC memory. */
void spry_cuda_launch_shared(spry_cuda_context *context, void *kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                             unsigned threads, size_t shared_bytes, const void *arguments);

/* The same for kernels whose blocks of one y and z run together, 8 at most; only on a GPU that `overlaps`. */
void spry_cuda_launch_cluster(spry_cuda_context *context, void *kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                              unsigned threads, size_t shared_bytes, const void *arguments);

/* The same for a kernel whose blocks all run at once and wait for each other: a grid that is refused where it has more
 * blocks than the GPU can hold. */
void spry_cuda_launch_cooperative(spry_cuda_context *context, void *kernel, size_t blocks, unsigned threads,
                                  size_t shared_bytes, const void *arguments);

/* Until the next call with NULL nothing is launched: `record` gets the name of each kernel and what it was to be
 * launched with; NULL for a kernel that is not known by name. */
void spry_cuda_record(spry_cuda_context *context,
                      void (*record)(void *to, const char *kernel, size_t shared_bytes, const void *arguments),
                      void *to);

/* What is launched between the two becomes a graph, and does not run; NULL when that failed. */
void spry_cuda_capture_begin(spry_cuda_context *context);
void *spry_cuda_capture_end(spry_cuda_context *context);
void spry_cuda_graph_launch(spry_cuda_context *context, void *graph);
void spry_cuda_graph_destroy(spry_cuda_context *context, void *graph);

/* 0: there is none. */
spry_cuda_memory spry_cuda_allocate(spry_cuda_context *context, size_t bytes);
void spry_cuda_free(spry_cuda_context *context, spry_cuda_memory *memory);
void *spry_cuda_allocate_host(spry_cuda_context *context, size_t bytes);
void spry_cuda_free_host(spry_cuda_context *context, void *memory);

/* Other memory of so many bytes on both sides in place of what was there. Where there is not enough, the old memory
 * stays and the GPU goes on. */
spry_status spry_cuda_grow(spry_cuda_context *context, void **host, spry_cuda_memory *memory, size_t bytes,
                           const char *doing, spry_error *error);

/* Copies, in the order of launches. Host memory is in use until the next spry_cuda_finish. */
void spry_cuda_write(spry_cuda_context *context, spry_cuda_memory to, const void *from, size_t bytes);
void spry_cuda_read(spry_cuda_context *context, void *to, spry_cuda_memory from, size_t bytes);
void spry_cuda_copy(spry_cuda_context *context, spry_cuda_memory to, spry_cuda_memory from, size_t bytes);

/* Returns when all of that is done, or after the timeout with a fault; the same for another stream. */
void spry_cuda_finish(spry_cuda_context *context);
void spry_cuda_finish_stream(spry_cuda_context *context, void *stream);

/* Marks what was launched and copied so far; the other returns when that is done. */
void spry_cuda_mark(spry_cuda_context *context);
void spry_cuda_finish_marked(spry_cuda_context *context);

/* Events that are timed; elapsed: milliseconds between two that are done. */
void *spry_cuda_event_create(spry_cuda_context *context);
void spry_cuda_event_destroy(spry_cuda_context *context, void *event);
void spry_cuda_event_record(spry_cuda_context *context, void *event);
double spry_cuda_event_elapsed(spry_cuda_context *context, void *from, void *to);

/* Remembers the result of a call of the driver; false if it is not 0. */
bool spry_cuda_went_well(spry_cuda_context *context, int result, const char *call);

/* SPRY_OK unless something failed; what, in words. */
spry_status spry_cuda_fault(const spry_cuda_context *context, const char *doing, spry_error *error);

#endif
