/* The functions of NVIDIA's driver that are used here, loaded at run time: one program runs with and without a GPU, and
 * building it needs nothing from NVIDIA. Each returns 0, or an error number that spry_cuda_reason describes. */
#ifndef SPRY_PLATFORM_CUDA_DRIVER_H
#define SPRY_PLATFORM_CUDA_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SPRY_CUDA_LIBRARY "libcuda.so.1"

/* Device attributes of the driver API. */
enum {
    SPRY_CUDA_CLOCK = 13, /* kHz */
    SPRY_CUDA_MULTIPROCESSORS = 16,
    SPRY_CUDA_COMPUTE_MAJOR = 75,
    SPRY_CUDA_COMPUTE_MINOR = 76,
    SPRY_CUDA_SHARED_BYTES = 97, /* shared memory of a block, where its launch asks for it */
};

/* Results with a meaning of their own. */
enum {
    SPRY_CUDA_OUT_OF_MEMORY = 2,
    SPRY_CUDA_NO_BINARY = 209, /* an image has nothing for this GPU */
    SPRY_CUDA_NOT_READY = 600,
};

enum {
    SPRY_CUDA_STREAM_APART = 1, /* a stream that does not wait for the device's common one */
    SPRY_CUDA_EVENT_UNTIMED = 2,
    SPRY_CUDA_CAPTURE_RELAXED = 2, /* other calls of the thread stay allowed */
};

/* Settings of TMA descriptors: 16-bit numbers; 64-byte swizzle; 256 bytes at a time into the L2 cache. */
enum { SPRY_CUDA_TMA_16_BIT = 1, SPRY_CUDA_TMA_SWIZZLE_64 = 2, SPRY_CUDA_TMA_L2_256 = 3 };

/* Attributes of a kernel: bytes of shared memory that a launch may ask for; percentage of an SM's first-level cache
 * that is shared memory. */
enum { SPRY_CUDA_SHARED_MAX = 8, SPRY_CUDA_CARVEOUT = 9 };

typedef uint64_t spry_cuda_memory; /* a device address */

/* How a kernel is launched, as the driver lays it out. */
typedef struct spry_cuda_attribute {
    int id, unused;
    union {
        int flag;
        unsigned size[3];
        char bytes[64];
    } value;
} spry_cuda_attribute;

typedef struct spry_cuda_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
    spry_cuda_attribute *attributes;
    unsigned n_attributes;
} spry_cuda_launch_config;

/* Attributes: blocks of a cluster, by dimensions; the kernel may begin while the kernel before it ends. */
enum { SPRY_CUDA_CLUSTER = 4, SPRY_CUDA_OVERLAP = 6 };

typedef struct spry_cuda {
    void *library;       /* NULL: not open */
    bool vulkan;         /* the table of device/vulkan, whose kernels are its own */
    uint32_t timeout_ms; /* after which a step counts as lost; 0: the default */
    int (*init)(unsigned flags);
    int (*error_string)(int result, const char **text);
    int (*driver_version)(int *version); /* 1000 * major + 10 * minor of CUDA */

    int (*device_count)(int *count);
    int (*device)(int *device, int index);
    int (*device_name)(char *name, int size, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*device_free)(size_t *bytes, int device);  /* only of Vulkan; */
    int (*device_limit)(size_t *bytes, int device); /* NULL, or bytes of the largest allocation */
    int (*device_attribute)(int *value, int attribute, int device);

    int (*context_retain)(void **context, int device); /* the device's primary context, shared within the process */
    int (*context_release)(int device);
    int (*context_set)(void *context); /* for the calling thread; NULL: none */

    int (*memory_info)(size_t *free_bytes, size_t *bytes);
    int (*memory_allocate)(spry_cuda_memory *memory, size_t bytes);
    /* NULL, or makes whole pages of the host known to a GPU that shares its memory. */
    int (*memory_share)(spry_cuda_memory *memory, void *host, size_t bytes);
    int (*memory_free)(spry_cuda_memory memory);
    int (*memory_fill)(spry_cuda_memory memory, unsigned word, size_t words);
    int (*memory_write)(spry_cuda_memory to, const void *from, size_t bytes); /* returns when `from` was read */
    int (*memory_read)(void *to, spry_cuda_memory from, size_t bytes);
    int (*tensor_map_encode)(void *map, int type, uint32_t rank, void *memory, const uint64_t *sizes,
                             const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                             int permuted, int cached, int fill);      /* how boxes of it are copied to shared memory */
    int (*host_allocate)(void **memory, size_t bytes, unsigned flags); /* pinned memory: copies do not need a buffer */
    int (*host_free)(void *memory);

    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*stream_query)(void *stream); /* SPRY_CUDA_NOT_READY: there is work to do */
    int (*stream_flush)(void *stream); /* NULL, or submits work that was only recorded so far */
    int (*stream_wait_event)(void *stream, void *event, unsigned flags); /* later work of the stream waits */
    int (*stream_write)(spry_cuda_memory to, const void *from, size_t bytes, void *stream);
    int (*stream_read)(void *to, spry_cuda_memory from, size_t bytes, void *stream);
    int (*stream_copy)(spry_cuda_memory to, spry_cuda_memory from, size_t bytes, void *stream);

    int (*capture_begin)(void *stream, int mode); /* later launches become a graph, and do not run */
    int (*capture_end)(void *stream, void **graph);
    int (*graph_prepare)(void **exec, void *graph, unsigned long long flags);
    int (*graph_launch)(void *exec, void *stream);
    int (*graph_exec_destroy)(void *exec);
    int (*graph_destroy)(void *graph);

    int (*module_load)(void **module, const void *image); /* PTX or binaries */
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_attribute)(void *function, int attribute, int value);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra);

    int (*launch_as)(const spry_cuda_launch_config *config, void *function, void **parameters, void **extra);

    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);
    int (*event_query)(void *event); /* SPRY_CUDA_NOT_READY: what was before it is not done */
    int (*event_elapsed)(float *ms, void *begin, void *end);
} spry_cuda;

/* Loads `library` (SPRY_CUDA_LIBRARY) and looks up every function. Closing when it is not open has no effect. */
spry_status spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
void spry_cuda_close(spry_cuda *cuda);

/* The driver's description of a non-zero result. */
const char *spry_cuda_reason(const spry_cuda *cuda, int result);

#endif
