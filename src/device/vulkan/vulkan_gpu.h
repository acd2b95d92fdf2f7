/* An open GPU of Vulkan: memory with addresses, one queue into which everything is recorded in one order, and
 * pipelines. vulkan_driver.c makes of it the table of functions that the GPU devices of spry call (spry_cuda).
 *
 * All streams share the queue. A batch of commands is submitted when a step is complete or when a caller waits, so a
 * step is one submission. Barriers between commands keep the order. All functions but those that open and close are
 * called with the lock held. Results are VkResult: 0 or negative. */
#ifndef SPRY_DEVICE_VULKAN_VULKAN_GPU_H
#define SPRY_DEVICE_VULKAN_VULKAN_GPU_H

#include <pthread.h>
#include <stdbool.h>

#include "device/vulkan/vulkan_kernels.h"
#include "platform/vulkan_loader.h"

enum {
    SPRY_VK_BATCHES = 4,
    SPRY_VK_ARGS_BYTES = 1 << 20,     /* arguments of the kernels of a batch, or of a part of a graph */
    SPRY_VK_STAGING_BYTES = 16 << 20, /* host memory of a batch for copies from and to memory that is not pinned */
    SPRY_VK_GRAPH_PARTS = 8,
    SPRY_VK_QUERIES = 2048,
    SPRY_VK_GPUS_MAX = 16,
};

/* Memory with one buffer over all of it. */
typedef struct spry_vk_memory {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t address;
    unsigned char *host; /* NULL: the host cannot reach it */
    size_t bytes;
} spry_vk_memory;

/* Commands recorded so far, and what the last one was. */
typedef enum spry_vk_kind { SPRY_VK_NOTHING, SPRY_VK_COMPUTE, SPRY_VK_COPY, SPRY_VK_ANYTHING } spry_vk_kind;

typedef struct spry_vk_graph {
    VkCommandBuffer commands; /* secondary */
    spry_vk_memory args[SPRY_VK_GRAPH_PARTS];
    size_t n_args, used;
    spry_vk_kind last;
    uint64_t serial; /* of the last batch that executes it */
    bool prepared;
} spry_vk_graph;

typedef struct spry_vk_batch {
    VkCommandBuffer commands;
    spry_vk_memory args, staging;
    size_t args_used, staging_used;
    uint64_t serial; /* the timeline's value when the batch has ended */
} spry_vk_batch;

/* Work of one owner; capturing: `graph` is recorded in place of the batch. */
typedef struct spry_vk_stream {
    spry_vk_graph *graph;
} spry_vk_stream;

typedef struct spry_vk_event {
    uint64_t serial;
    uint32_t query; /* SPRY_VK_QUERIES: it has no time */
} spry_vk_event;

/* What is known of a physical device. */
typedef struct spry_vk_facts {
    VkPhysicalDevice physical;
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    bool is_cpu, unified, floats64, pageable_limit, full_subgroups;
    uint32_t family, subgroup_min, subgroup_max;
    uint32_t timestamp_bits;
    float timestamp_ns;
    size_t shared_bytes, bytes, max_allocation;
    uint32_t max_threads;
    uint8_t uuid[VK_UUID_SIZE];
    bool has_budget, is_portable; /* portable: a driver over another interface, such as MoltenVK */
    size_t import_alignment;      /* of memory of the host that can be used; 0: none can */
    char why[200];                /* why it cannot be used; "": it can */
} spry_vk_facts;

typedef struct spry_vk_gpu {
    pthread_mutex_t lock;
    const spry_vulkan *vulkan;
    spry_vk_facts facts;
    unsigned users;
    bool lost;
    VkDevice device;
    VkQueue queue;
    spry_vulkan_calls vk;
    VkPhysicalDeviceMemoryProperties types;
    VkCommandPool pool;
    VkSemaphore timeline;
    uint64_t submitted, done; /* serials of batches */
    spry_vk_batch batches[SPRY_VK_BATCHES], *batch;
    spry_vk_kind last;
    bool recording;
    VkQueryPool queries;
    uint8_t query_used[SPRY_VK_QUERIES];
    spry_vk_memory *memory; /* all that is allocated through the driver */
    size_t n_memory, memory_capacity;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    VkPipeline *pipelines; /* [spry_vulkan_n_kernels] */
    bool cache_grew;
    uint64_t submissions, allocations; /* counted, for tests */
} spry_vk_gpu;

/* vulkan_gpu.c: reads the facts of a physical device, and opens it. */
void spry_vk_describe(spry_vk_facts *facts, const spry_vulkan *vulkan, VkPhysicalDevice physical);
int spry_vk_gpu_open(spry_vk_gpu **out, const spry_vulkan *vulkan, const spry_vk_facts *facts);
void spry_vk_gpu_close(spry_vk_gpu *gpu);
size_t spry_vk_free_bytes(const spry_vulkan *vulkan, const spry_vk_facts *facts);

/* vulkan_memory.c */
typedef enum spry_vk_use { SPRY_VK_ON_DEVICE, SPRY_VK_ARGUMENTS, SPRY_VK_UPLOAD, SPRY_VK_READBACK } spry_vk_use;
int spry_vk_allocate(spry_vk_gpu *gpu, spry_vk_memory *memory, size_t bytes, spry_vk_use use);
int spry_vk_import(spry_vk_gpu *gpu, spry_vk_memory *memory, void *host, size_t bytes); /* whole pages */
void spry_vk_free(spry_vk_gpu *gpu, spry_vk_memory *memory);
int spry_vk_keep(spry_vk_gpu *gpu, const spry_vk_memory *memory); /* adds it to the list of allocations */
void spry_vk_release(spry_vk_gpu *gpu, size_t index);
size_t spry_vk_find(const spry_vk_gpu *gpu, uint64_t address);      /* n_memory: none */
size_t spry_vk_find_host(const spry_vk_gpu *gpu, const void *host); /* the same for pinned memory */

/* vulkan_stream.c: recording and waiting. */
int spry_vk_streams_open(spry_vk_gpu *gpu);
void spry_vk_streams_close(spry_vk_gpu *gpu);
int spry_vk_dispatch(spry_vk_gpu *gpu, spry_vk_stream *stream, size_t kernel, const uint32_t grid[3], const void *args);
int spry_vk_write(spry_vk_gpu *gpu, uint64_t to, const void *from, size_t bytes);
int spry_vk_read(spry_vk_gpu *gpu, void *to, uint64_t from, size_t bytes);
int spry_vk_copy(spry_vk_gpu *gpu, uint64_t to, uint64_t from, size_t bytes);
int spry_vk_fill(spry_vk_gpu *gpu, uint64_t to, uint32_t word, size_t words);
int spry_vk_flush(spry_vk_gpu *gpu);
bool spry_vk_is_done(spry_vk_gpu *gpu, uint64_t serial, int *result);
int spry_vk_wait(spry_vk_gpu *gpu, uint64_t serial, uint64_t timeout_ns); /* VK_TIMEOUT: not yet */
int spry_vk_graph_begin(spry_vk_gpu *gpu, spry_vk_stream *stream);
int spry_vk_graph_end(spry_vk_gpu *gpu, spry_vk_stream *stream, spry_vk_graph **graph);
int spry_vk_graph_run(spry_vk_gpu *gpu, spry_vk_graph *graph);
void spry_vk_graph_free(spry_vk_gpu *gpu, spry_vk_graph *graph);
int spry_vk_event_record(spry_vk_gpu *gpu, spry_vk_event *event);

/* vulkan_kernels.c: pipelines, made when a kernel is first used, and their cache on disk. */
int spry_vk_pipelines_open(spry_vk_gpu *gpu);
void spry_vk_pipelines_close(spry_vk_gpu *gpu);
int spry_vk_pipeline(spry_vk_gpu *gpu, size_t kernel);

#endif
