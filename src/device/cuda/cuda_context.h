/* An open GPU: context, kernels, stream and memory. The first failed call is remembered, and after it the driver is not
 * called any more; the caller checks spry_cuda_fault once, at the end. */
#ifndef SPRY_DEVICE_CUDA_CUDA_CONTEXT_H
#define SPRY_DEVICE_CUDA_CUDA_CONTEXT_H

#include "base/dtype.h"
#include "device/cuda/cuda_kernels.h"
#include "platform/cuda_driver.h"

enum { SPRY_CUDA_MODULES_MAX = 40, SPRY_CUDA_NAME = 96 };

typedef struct spry_cuda_context {
    const spry_cuda *cuda;
    bool vulkan; /* the driver is that of device/vulkan */
    size_t max_allocation; /* bytes that the driver allocates at once; 0: no limit */ /* borrowed */
    int device;
    void *context, *stream;
    void *mark; /* an event */
    void *modules[SPRY_CUDA_MODULES_MAX];
    size_t n_modules;
    void *functions[SPRY_KERNEL_COUNT]; /* the kernels that were used */
    char name[SPRY_CUDA_NAME];
    bool sm90_up;   /* compute capability 9.0 or later: programmatic dependent launch and clusters */
    bool has_wgmma; /* compute capability 9.0, which has wgmma and TMA kernels */
    size_t sm_count;
    size_t shared_bytes; /* maximum shared memory of a block */
    uint32_t timeout_ms; /* a longer step is a fault */
    uint64_t waits;      /* how often the host has waited for the GPU */
    int fault;           /* the first result that is not 0 */
    const char *fault_call;
    size_t fault_bytes; /* size of the failed allocation */
} spry_cuda_context;

/* `index` selects the GPU. `images` ends with NULL. On failure everything is closed again. */
spry_status spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                   const void *const *images, spry_error *error);
void spry_cuda_context_deinit(spry_cuda_context *context);

/* Makes the context current in the calling thread. */
void spry_cuda_enter(spry_cuda_context *context);

/* Launches one-dimensional blocks, in stream order; kernel_list.h has the number of threads of a block. */
void spry_cuda_launch(spry_cuda_context *context, spry_kernel_id kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                      const void *arguments);

/* Launches blocks with dynamic shared memory. */
void spry_cuda_launch_shared(spry_cuda_context *context, spry_kernel_id kernel, size_t grid_x, size_t grid_y,
                             size_t grid_z, size_t shared_bytes, const void *arguments);

/* Launches clusters: the blocks with the same blockIdx.y and blockIdx.z form one, of at most 8 blocks; needs sm90_up.
 * `threads`: threads of a block if fewer than in kernel_list.h, or 0.
 */
void spry_cuda_launch_cluster(spry_cuda_context *context, spry_kernel_id kernel, size_t grid_x, size_t grid_y,
                              size_t grid_z, unsigned threads, size_t shared_bytes, const void *arguments);

/* True if the kernel has been launched. */
bool spry_cuda_was_used(const spry_cuda_context *context, spry_kernel_id kernel);

/* Captures the launches in between as a graph, which does not run yet; NULL on failure. */
void spry_cuda_capture_begin(spry_cuda_context *context);
void *spry_cuda_capture_end(spry_cuda_context *context);
void spry_cuda_graph_launch(spry_cuda_context *context, void *graph);
void spry_cuda_graph_destroy(spry_cuda_context *context, void *graph);

/* 0 or NULL on failure. */
spry_cuda_memory spry_cuda_allocate(spry_cuda_context *context, size_t bytes);
void spry_cuda_free(spry_cuda_context *context, spry_cuda_memory *memory);
void *spry_cuda_allocate_host(spry_cuda_context *context, size_t bytes);
void spry_cuda_free_host(spry_cuda_context *context, void *memory);

/* Replaces memory on the host and the GPU by memory of another size. If there is not enough, the old memory is kept and
 * no fault is recorded. */
spry_status spry_cuda_grow(spry_cuda_context *context, void **host, spry_cuda_memory *memory, size_t bytes,
                           const char *doing, spry_error *error);

/* Copies in stream order. Host memory is in use until the next spry_cuda_finish. */
void spry_cuda_write(spry_cuda_context *context, spry_cuda_memory to, const void *from, size_t bytes);
void spry_cuda_read(spry_cuda_context *context, void *to, spry_cuda_memory from, size_t bytes);
void spry_cuda_copy(spry_cuda_context *context, spry_cuda_memory to, spry_cuda_memory from, size_t bytes);

/* Waits for the stream, or for another one; a timeout is a fault. */
void spry_cuda_finish(spry_cuda_context *context);

/* Submits work that the driver has only recorded so far. */
void spry_cuda_flush(spry_cuda_context *context);
void spry_cuda_finish_stream(spry_cuda_context *context, void *stream);

/* Marks the current end of the stream; finish_marked waits for the mark. */
void spry_cuda_mark(spry_cuda_context *context);
void spry_cuda_finish_marked(spry_cuda_context *context);

/* Timed events; elapsed: milliseconds between two events that have occurred. */
void *spry_cuda_event_create(spry_cuda_context *context);
void spry_cuda_event_destroy(spry_cuda_context *context, void *event);
void spry_cuda_event_record(spry_cuda_context *context, void *event);
double spry_cuda_event_elapsed(spry_cuda_context *context, void *from, void *to);

/* Records the result of a driver call; false if this or an earlier one failed. */
bool spry_cuda_went_well(spry_cuda_context *context, int result, const char *call);

/* SPRY_OK, or an error that describes the recorded fault. */
spry_status spry_cuda_fault(const spry_cuda_context *context, const char *doing, spry_error *error);

#endif
