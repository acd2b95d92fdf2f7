/* Calls of the driver, and the record of the first failure. */
#include "device/cuda/cuda_context.h"

#include <string.h>

#include "platform/clock.h"

enum { DEFAULT_TIMEOUT_MS = 120000, COMPUTE_MIN = 8, COMPUTE_OVERLAPS = 9, FAULT_TIMEOUT = -1, FAULT_MISSING = -2 };

/* Records a result; true if nothing has failed so far. */
bool spry_cuda_went_well(spry_cuda_context *c, int result, const char *call)
{
    if (result != 0 && c->fault == 0) {
        c->fault = result;
        c->fault_call = call;
    }
    return c->fault == 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static spry_status load_images(spry_cuda_context *c, const void *const *images, spry_error *error)
{
    if (!images[0])
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "no GPU kernels are installed: the package spry-cuda has them, and `make CUDA=ON` builds "
                         "them (it needs nvcc)");
    for (size_t i = 0; !c->fault && images[i]; i++) {
        if (i == SPRY_CUDA_MODULES_MAX)
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "more than %d images of kernels", SPRY_CUDA_MODULES_MAX);
        int result = c->cuda->module_load(&c->modules[c->n_modules], images[i]);
        if (result == SPRY_CUDA_NO_BINARY) /* an image for other GPUs */
            continue;
        if (spry_cuda_went_well(c, result, "cuModuleLoadData"))
            c->n_modules++;
    }
    if (!c->fault && !c->n_modules)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "this program has no kernels for %s; they are compiled for those GPUs that "
                         "-DSPRY_CUDA_ARCHITECTURES names",
                         c->name);
    return spry_cuda_fault(c, "loading kernels", error);
}

static spry_status find_device(spry_cuda_context *c, int index, spry_error *error)
{
    int count = 0, major = 0, minor = 0, sm_count = 0, shared = 0;
    if (!spry_cuda_went_well(c, c->cuda->init(0), "cuInit") ||
        !spry_cuda_went_well(c, c->cuda->device_count(&count), "cuDeviceGetCount"))
        return spry_cuda_fault(c, "looking for a GPU", error);
    if (index < 0 || index >= count)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no GPU %d: the driver has %d", index, count);
    if (!spry_cuda_went_well(c, c->cuda->device(&c->device, index), "cuDeviceGet") ||
        !spry_cuda_went_well(c, c->cuda->device_name(c->name, sizeof c->name, c->device), "cuDeviceGetName") ||
        !spry_cuda_went_well(c, c->cuda->device_attribute(&major, SPRY_CUDA_COMPUTE_MAJOR, c->device),
                             "cuDeviceGetAttribute") ||
        !spry_cuda_went_well(c, c->cuda->device_attribute(&minor, SPRY_CUDA_COMPUTE_MINOR, c->device),
                             "cuDeviceGetAttribute") ||
        !spry_cuda_went_well(c, c->cuda->device_attribute(&sm_count, SPRY_CUDA_MULTIPROCESSORS, c->device),
                             "cuDeviceGetAttribute") ||
        !spry_cuda_went_well(c, c->cuda->device_attribute(&shared, SPRY_CUDA_SHARED_BYTES, c->device),
                             "cuDeviceGetAttribute"))
        return spry_cuda_fault(c, "asking for a GPU", error);
    c->name[sizeof c->name - 1] = '\0';
    c->sm_count = sm_count > 0 ? (size_t)sm_count : 1;
    c->shared_bytes = shared > 0 ? (size_t)shared : 0;
    c->sm90_up = major >= COMPUTE_OVERLAPS;
    c->has_wgmma = major == COMPUTE_OVERLAPS && minor == 0;
    if (major < COMPUTE_MIN)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s is of compute capability %d, at least %d is needed", c->name,
                         major, COMPUTE_MIN);
    return SPRY_OK;
}

spry_status spry_cuda_context_init(spry_cuda_context *c, const spry_cuda *cuda, int index, const void *const *images,
                                   spry_error *error)
{
    *c = (spry_cuda_context){.cuda = cuda, .vulkan = cuda->vulkan, .timeout_ms = DEFAULT_TIMEOUT_MS};
    if (cuda->timeout_ms)
        c->timeout_ms = cuda->timeout_ms;
    spry_status status = find_device(c, index, error);
    if (status)
        return status;
    if (spry_cuda_went_well(c, cuda->context_retain(&c->context, c->device), "cuDevicePrimaryCtxRetain") &&
        spry_cuda_went_well(c, cuda->context_set(c->context), "cuCtxSetCurrent") &&
        spry_cuda_went_well(c, cuda->stream_create(&c->stream, SPRY_CUDA_STREAM_APART), "cuStreamCreate"))
        spry_cuda_went_well(c, cuda->event_create(&c->mark, SPRY_CUDA_EVENT_UNTIMED), "cuEventCreate");
    status = spry_cuda_fault(c, "opening a GPU", error);
    if (!status)
        status = load_images(c, images, error);
    if (!status && cuda->device_limit)
        cuda->device_limit(&c->max_allocation, c->device);
    if (status)
        spry_cuda_context_deinit(c);
    return status;
}

void spry_cuda_context_deinit(spry_cuda_context *c)
{
    if (c->context)
        c->cuda->context_set(c->context);
    for (size_t i = 0; i < c->n_modules; i++)
        c->cuda->module_unload(c->modules[i]);
    if (c->mark)
        c->cuda->event_destroy(c->mark);
    if (c->stream)
        c->cuda->stream_destroy(c->stream);
    if (c->context) {
        c->cuda->context_set(NULL);
        c->cuda->context_release(c->device);
    }
    *c = (spry_cuda_context){0};
}

void spry_cuda_enter(spry_cuda_context *c)
{
    if (!c->fault)
        spry_cuda_went_well(c, c->cuda->context_set(c->context), "cuCtxSetCurrent");
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* The function of a kernel, which the driver finds by its name when it is first used. All kernels have the same share
 * of shared memory: an SM that changes it must be idle first, so kernels that follow each other could not overlap. */
static void *find_function(spry_cuda_context *c, spry_kernel_id kernel)
{
    const char *name = spry_cuda_kernel_names[kernel];
    void *function = NULL;
    int result = FAULT_MISSING;
    if (c->functions[kernel])
        return c->functions[kernel];
    for (size_t i = 0; !c->fault && name && i < c->n_modules; i++) {
        result = c->cuda->module_function(&function, c->modules[i], name);
        if (result)
            continue;
        spry_cuda_went_well(c, c->cuda->function_attribute(function, SPRY_CUDA_CARVEOUT, 100), "cuFuncSetAttribute");
        return c->functions[kernel] = function;
    }
    spry_cuda_went_well(c, result, "cuModuleGetFunction");
    return NULL;
}

bool spry_cuda_was_used(const spry_cuda_context *c, spry_kernel_id kernel)
{
    return c->functions[kernel] != NULL;
}

/* `cluster`: the blocks with the same blockIdx.y and blockIdx.z form a cluster. */
static void launch(spry_cuda_context *c, spry_kernel_id kernel, const size_t grid[3], unsigned threads,
                   size_t shared_bytes, bool cluster, const void *arguments)
{
    void *parameters[] = {(void *)(uintptr_t)arguments};
    spry_cuda_attribute attributes[] = {{.id = SPRY_CUDA_OVERLAP, .value.flag = 1},
                                        {.id = SPRY_CUDA_CLUSTER, .value.size = {(unsigned)grid[0], 1, 1}}};
    void *function = find_function(c, kernel);
    const spry_cuda_launch_config config = {.grid_x = (unsigned)grid[0],
                                            .grid_y = (unsigned)grid[1],
                                            .grid_z = (unsigned)grid[2],
                                            .block_x = threads ? threads : spry_cuda_kernel_threads[kernel],
                                            .block_y = 1,
                                            .block_z = 1,
                                            .shared_bytes = (unsigned)shared_bytes,
                                            .stream = c->stream,
                                            .attributes = attributes,
                                            .n_attributes = cluster ? 2 : c->sm90_up};
    if (!c->fault && shared_bytes)
        spry_cuda_went_well(c, c->cuda->function_attribute(function, SPRY_CUDA_SHARED_MAX, (int)shared_bytes),
                            "cuFuncSetAttribute");
    if (!c->fault && grid[0] && grid[1] && grid[2])
        spry_cuda_went_well(c, c->cuda->launch_as(&config, function, parameters, NULL), "cuLaunchKernelEx");
}

void spry_cuda_launch(spry_cuda_context *c, spry_kernel_id kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                      const void *arguments)
{
    launch(c, kernel, (size_t[]){grid_x, grid_y, grid_z}, 0, 0, false, arguments);
}

void spry_cuda_launch_shared(spry_cuda_context *c, spry_kernel_id kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                             size_t shared_bytes, const void *arguments)
{
    launch(c, kernel, (size_t[]){grid_x, grid_y, grid_z}, 0, shared_bytes, false, arguments);
}

void spry_cuda_launch_cluster(spry_cuda_context *c, spry_kernel_id kernel, size_t grid_x, size_t grid_y, size_t grid_z,
                              unsigned threads, size_t shared_bytes, const void *arguments)
{
    launch(c, kernel, (size_t[]){grid_x, grid_y, grid_z}, threads, shared_bytes, true, arguments);
}

void spry_cuda_capture_begin(spry_cuda_context *c)
{
    if (!c->fault)
        spry_cuda_went_well(c, c->cuda->capture_begin(c->stream, SPRY_CUDA_CAPTURE_RELAXED), "cuStreamBeginCapture");
}

void *spry_cuda_capture_end(spry_cuda_context *c)
{
    void *graph = NULL, *exec = NULL;
    int result = c->cuda->capture_end(
        c->stream, &graph); /* also after a fault: capturing must end before the stream can be used */
    if (spry_cuda_went_well(c, result, "cuStreamEndCapture"))
        spry_cuda_went_well(c, c->cuda->graph_prepare(&exec, graph, 0), "cuGraphInstantiate");
    if (graph)
        c->cuda->graph_destroy(graph);
    return c->fault ? NULL : exec;
}

void spry_cuda_graph_launch(spry_cuda_context *c, void *graph)
{
    if (!c->fault)
        spry_cuda_went_well(c, c->cuda->graph_launch(graph, c->stream), "cuGraphLaunch");
}

void spry_cuda_graph_destroy(spry_cuda_context *c, void *graph)
{
    if (graph)
        c->cuda->graph_exec_destroy(graph);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

spry_cuda_memory spry_cuda_allocate(spry_cuda_context *c, size_t bytes)
{
    spry_cuda_memory memory = 0;
    if (!c->fault && !spry_cuda_went_well(c, c->cuda->memory_allocate(&memory, bytes ? bytes : 1), "cuMemAlloc")) {
        c->fault_bytes = bytes;
        memory = 0;
    }
    return memory;
}

void spry_cuda_free(spry_cuda_context *c, spry_cuda_memory *memory)
{
    if (*memory)
        c->cuda->memory_free(*memory);
    *memory = 0;
}

void *spry_cuda_allocate_host(spry_cuda_context *c, size_t bytes)
{
    void *memory = NULL;
    if (!c->fault && !spry_cuda_went_well(c, c->cuda->host_allocate(&memory, bytes ? bytes : 1, 0), "cuMemHostAlloc")) {
        c->fault_bytes = bytes;
        memory = NULL;
    }
    return memory;
}

void spry_cuda_free_host(spry_cuda_context *c, void *memory)
{
    if (memory)
        c->cuda->host_free(memory);
}

spry_status spry_cuda_grow(spry_cuda_context *c, void **host, spry_cuda_memory *memory, size_t bytes, const char *doing,
                           spry_error *error)
{
    spry_cuda_memory new_memory = spry_cuda_allocate(c, bytes);
    void *new_host = spry_cuda_allocate_host(c, bytes);
    spry_status status = spry_cuda_fault(c, doing, error);
    spry_cuda_finish(c); /* the old memory may be in use */
    if (!status) {
        spry_cuda_memory old_memory = *memory;
        void *old_host = *host;
        *memory = new_memory;
        *host = new_host;
        new_memory = old_memory;
        new_host = old_host;
    }
    spry_cuda_free(c, &new_memory);
    spry_cuda_free_host(c, new_host);
    if (c->fault == SPRY_CUDA_OUT_OF_MEMORY)
        c->fault = 0;
    return status;
}

void spry_cuda_write(spry_cuda_context *c, spry_cuda_memory to, const void *from, size_t bytes)
{
    if (!c->fault && bytes)
        spry_cuda_went_well(c, c->cuda->stream_write(to, from, bytes, c->stream), "cuMemcpyHtoDAsync");
}

void spry_cuda_read(spry_cuda_context *c, void *to, spry_cuda_memory from, size_t bytes)
{
    if (!c->fault && bytes)
        spry_cuda_went_well(c, c->cuda->stream_read(to, from, bytes, c->stream), "cuMemcpyDtoHAsync");
}

void spry_cuda_copy(spry_cuda_context *c, spry_cuda_memory to, spry_cuda_memory from, size_t bytes)
{
    if (!c->fault && bytes)
        spry_cuda_went_well(c, c->cuda->stream_copy(to, from, bytes, c->stream), "cuMemcpyDtoDAsync");
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void finish(spry_cuda_context *c, int (*query)(void *), void *of, const char *call)
{
    if (c->fault)
        return;
    uint64_t begin = spry_clock_ns();
    int result;
    c->waits++;
    while ((result = query(of)) == SPRY_CUDA_NOT_READY)
        if (spry_clock_ns() - begin > (uint64_t)c->timeout_ms * 1000000) {
            spry_cuda_went_well(c, FAULT_TIMEOUT, call);
            return;
        }
    spry_cuda_went_well(c, result, call);
}

void spry_cuda_flush(spry_cuda_context *c)
{
    if (!c->fault && c->cuda->stream_flush)
        spry_cuda_went_well(c, c->cuda->stream_flush(c->stream), "submitting a step");
}

void spry_cuda_finish(spry_cuda_context *c)
{
    spry_cuda_finish_stream(c, c->stream);
}

void spry_cuda_finish_stream(spry_cuda_context *c, void *stream)
{
    finish(c, c->cuda->stream_query, stream, "cuStreamQuery");
}

void *spry_cuda_event_create(spry_cuda_context *c)
{
    void *event = NULL;
    return !c->fault && spry_cuda_went_well(c, c->cuda->event_create(&event, 0), "cuEventCreate") ? event : NULL;
}

void spry_cuda_event_destroy(spry_cuda_context *c, void *event)
{
    c->cuda->event_destroy(event);
}

void spry_cuda_event_record(spry_cuda_context *c, void *event)
{
    if (!c->fault)
        spry_cuda_went_well(c, c->cuda->event_record(event, c->stream), "cuEventRecord");
}

double spry_cuda_event_elapsed(spry_cuda_context *c, void *from, void *to)
{
    float ms = 0;
    if (!c->fault)
        spry_cuda_went_well(c, c->cuda->event_elapsed(&ms, from, to), "cuEventElapsedTime");
    return (double)ms;
}

void spry_cuda_mark(spry_cuda_context *c)
{
    spry_cuda_event_record(c, c->mark);
}

void spry_cuda_finish_marked(spry_cuda_context *c)
{
    finish(c, c->cuda->event_query, c->mark, "cuEventQuery");
}

spry_status spry_cuda_fault(const spry_cuda_context *c, const char *doing, spry_error *error)
{
    if (!c->fault)
        return SPRY_OK;
    const char *name = c->name[0] ? c->name : "the GPU";
    if (c->fault == FAULT_TIMEOUT)
        return spry_fail(error, SPRY_ERR_DEVICE, "%s: %s: no end after %u s", name, doing, c->timeout_ms / 1000);
    if (c->fault == SPRY_CUDA_OUT_OF_MEMORY)
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: %s: %zu MB of its memory are not free", name, doing,
                         c->fault_bytes / 1000000 + 1);
    return spry_fail(error, SPRY_ERR_DEVICE, "%s: %s: %s: %s (error %d)", name, doing, c->fault_call,
                     spry_cuda_reason(c->cuda, c->fault), c->fault);
}
