/* The driver's table over Vulkan. As with NVIDIA's driver, a device belongs to the process and is open while it is
 * retained, and a thread works with the device that it has set. */
#include "device/vulkan/vulkan_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/vulkan/vulkan_device.h"

enum { RESULT_BASE = 1000 }; /* results of Vulkan are negative; the driver's are positive */

static struct {
    pthread_mutex_t lock;
    spry_vulkan vulkan;
    spry_vk_facts facts[SPRY_VK_GPUS_MAX];
    spry_vk_gpu *gpus[SPRY_VK_GPUS_MAX];
    size_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local spry_vk_gpu *current;

/* The images of the kernels are found by name (vulkan_kernels.c); a device asks for one. */
const void *const spry_vulkan_images[] = {&spry_vulkan_kernels, NULL};

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int driver_result(spry_vk_gpu *g, int result)
{
    if (result == VK_ERROR_DEVICE_LOST && g)
        g->lost = true;
    return result == VK_SUCCESS                                                               ? 0
           : result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ? SPRY_CUDA_OUT_OF_MEMORY
           : result == VK_TIMEOUT || result == VK_NOT_READY                                   ? SPRY_CUDA_NOT_READY
                                                                                              : RESULT_BASE - result;
}

static int error_string(int result, const char **text)
{
    *text = result == SPRY_CUDA_OUT_OF_MEMORY ? "out of memory" : spry_vulkan_result_name(RESULT_BASE - result);
    return 0;
}

/* Locks the thread's device and evaluates a result of Vulkan. */
#define WITH_GPU(call)                                                                                                 \
    do {                                                                                                               \
        spry_vk_gpu *g = current;                                                                                      \
        if (!g)                                                                                                        \
            return RESULT_BASE - VK_ERROR_INITIALIZATION_FAILED;                                                       \
        if (g->lost)                                                                                                   \
            return RESULT_BASE - VK_ERROR_DEVICE_LOST;                                                                 \
        pthread_mutex_lock(&g->lock);                                                                                  \
        int locked_result = driver_result(g, call);                                                                    \
        pthread_mutex_unlock(&g->lock);                                                                                \
        return locked_result;                                                                                          \
    } while (0)

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int rank_of(const spry_vk_facts *f)
{
    return f->is_cpu ? 2 : f->unified;
}

static int by_rank(const void *a, const void *b)
{
    return rank_of(a) - rank_of(b);
}

/* Lists the usable devices; what is wrong with another one is told if there are none. */
static spry_status list_devices(spry_error *error)
{
    VkPhysicalDevice devices[SPRY_VK_GPUS_MAX];
    uint32_t n = SPRY_VK_GPUS_MAX;
    int result = all.vulkan.EnumeratePhysicalDevices(all.vulkan.handle, &n, devices);
    if (result < 0)
        return spry_fail(error, SPRY_ERR_DEVICE, "listing devices of Vulkan: %s", spry_vulkan_result_name(result));
    spry_fail(error, SPRY_ERR_DEVICE, "no driver of Vulkan offers a device");
    for (uint32_t i = 0; i < n; i++) {
        spry_vk_facts *facts = &all.facts[all.n];
        spry_vk_describe(facts, &all.vulkan, devices[i]);
        if (facts->why[0])
            spry_fail(error, SPRY_ERR_DEVICE, "%.100s cannot be used: %.200s", facts->name, facts->why);
        else
            all.n++;
    }
    qsort(all.facts, all.n, sizeof *all.facts, by_rank);
    return all.n ? SPRY_OK : SPRY_ERR_DEVICE;
}

static spry_status load(spry_error *error)
{
    spry_status status = all.vulkan.library ? SPRY_OK : spry_vulkan_open(&all.vulkan, SPRY_VULKAN_LIBRARY, error);
    if (status || all.n)
        return status;
    status = list_devices(error);
    if (status)
        spry_vulkan_close(&all.vulkan);
    return status;
}

bool spry_vulkan_is_cpu(int index)
{
    return all.facts[index].is_cpu;
}

bool spry_vulkan_is_portable(int index)
{
    return all.facts[index].is_portable;
}

const spry_vk_facts *spry_vulkan_facts(size_t i)
{
    return i < all.n ? &all.facts[i] : NULL;
}

spry_vk_gpu *spry_vulkan_gpu(size_t i)
{
    return all.gpus[i];
}

void spry_vulkan_driver_reset(void)
{
    pthread_mutex_lock(&all.lock);
    all.n = 0;
    spry_vulkan_close(&all.vulkan);
    pthread_mutex_unlock(&all.lock);
}

static int init(unsigned flags)
{
    (void)flags;
    return 0;
}

static int driver_version(int *version)
{
    *version = 0;
    return 0;
}

static int device_count(int *count)
{
    *count = (int)all.n;
    return 0;
}

static int device(int *out, int index)
{
    *out = index;
    return index < 0 || (size_t)index >= all.n ? RESULT_BASE - VK_ERROR_INITIALIZATION_FAILED : 0;
}

static int device_name(char *name, int size, int index)
{
    snprintf(name, (size_t)size, "%s", all.facts[index].name);
    return 0;
}

static int device_memory(size_t *bytes, int index)
{
    *bytes = all.facts[index].bytes;
    return 0;
}

static int device_free(size_t *bytes, int index)
{
    *bytes = spry_vk_free_bytes(&all.vulkan, &all.facts[index]);
    return 0;
}

static int device_limit(size_t *bytes, int index)
{
    *bytes = all.facts[index].max_allocation;
    return 0;
}

/* A device counts as one of compute capability 8.0: without what 9.0 adds. Launches are never limited by SMs, which
 * Vulkan does not tell. */
static int device_attribute(int *value, int attribute, int index)
{
    *value = attribute == SPRY_CUDA_COMPUTE_MAJOR     ? 8
             : attribute == SPRY_CUDA_MULTIPROCESSORS ? 1 << 20
             : attribute == SPRY_CUDA_SHARED_BYTES    ? (int)all.facts[index].shared_bytes
                                                      : 0;
    return 0;
}

static int context_retain(void **context, int index)
{
    int result = VK_SUCCESS;
    pthread_mutex_lock(&all.lock);
    if (!all.gpus[index])
        result = spry_vk_gpu_open(&all.gpus[index], &all.vulkan, &all.facts[index]);
    *context = all.gpus[index];
    if (!result)
        all.gpus[index]->users++;
    pthread_mutex_unlock(&all.lock);
    return driver_result(NULL, result);
}

static int context_release(int index)
{
    pthread_mutex_lock(&all.lock);
    spry_vk_gpu *g = all.gpus[index];
    if (g && --g->users == 0) {
        spry_vk_gpu_close(g);
        all.gpus[index] = NULL;
    }
    pthread_mutex_unlock(&all.lock);
    return 0;
}

static int context_set(void *context)
{
    current = context;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int memory_info(size_t *free_bytes, size_t *bytes)
{
    *free_bytes = current ? spry_vk_free_bytes(&all.vulkan, &current->facts) : 0;
    *bytes = current ? current->facts.bytes : 0;
    return current ? 0 : RESULT_BASE - VK_ERROR_INITIALIZATION_FAILED;
}

/* Gives the address on the device, or in host memory. */
static int allocate(spry_vk_gpu *g, uint64_t *address, void **host, size_t bytes, spry_vk_use use)
{
    spry_vk_memory m;
    int result = spry_vk_allocate(g, &m, bytes ? bytes : 1, use);
    if (!result && (result = spry_vk_keep(g, &m)))
        spry_vk_free(g, &m);
    if (result)
        return result;
    if (address)
        *address = m.address;
    if (host)
        *host = m.host;
    return VK_SUCCESS;
}

static int import(spry_vk_gpu *g, uint64_t *address, void *host, size_t bytes)
{
    spry_vk_memory m;
    int result = spry_vk_import(g, &m, host, bytes);
    if (!result && (result = spry_vk_keep(g, &m)))
        spry_vk_free(g, &m);
    *address = result ? 0 : m.address;
    return result;
}

static int memory_share(spry_cuda_memory *memory, void *host, size_t bytes)
{
    *memory = 0;
    WITH_GPU(import(g, memory, host, bytes));
}

static int memory_allocate(spry_cuda_memory *memory, size_t bytes)
{
    *memory = 0;
    WITH_GPU(allocate(g, memory, NULL, bytes, SPRY_VK_ON_DEVICE));
}

/* Frees memory that commands may still use: they end first. */
static int release(spry_vk_gpu *g, size_t index)
{
    if (index == g->n_memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    int result = spry_vk_flush(g);
    if (!result)
        result = spry_vk_wait(g, g->submitted, UINT64_MAX);
    spry_vk_release(g, index);
    return result;
}

static int memory_free(spry_cuda_memory memory)
{
    if (current && current->lost) {
        spry_vk_release(current, spry_vk_find(current, memory));
        return 0;
    }
    WITH_GPU(release(g, spry_vk_find(g, memory)));
}

static int memory_fill(spry_cuda_memory memory, unsigned word, size_t words)
{
    WITH_GPU(spry_vk_fill(g, memory, word, words));
}

static int finish(spry_vk_gpu *g)
{
    int result = spry_vk_flush(g);
    return result ? result : spry_vk_wait(g, g->submitted, UINT64_MAX);
}

static int memory_write(spry_cuda_memory to, const void *from, size_t bytes)
{
    WITH_GPU(spry_vk_write(g, to, from, bytes));
}

static int read_now(spry_vk_gpu *g, void *to, uint64_t from, size_t bytes)
{
    int result = spry_vk_read(g, to, from, bytes);
    return result ? result : finish(g);
}

static int memory_read(void *to, spry_cuda_memory from, size_t bytes)
{
    WITH_GPU(read_now(g, to, from, bytes));
}

static int host_allocate(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    *memory = NULL;
    WITH_GPU(allocate(g, NULL, memory, bytes, SPRY_VK_READBACK));
}

static int host_free(void *memory)
{
    if (current && current->lost) {
        spry_vk_release(current, spry_vk_find_host(current, memory));
        return 0;
    }
    WITH_GPU(release(g, spry_vk_find_host(g, memory)));
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static int stream_create(void **stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof(spry_vk_stream));
    return *stream ? 0 : SPRY_CUDA_OUT_OF_MEMORY;
}

static int stream_destroy(void *stream)
{
    free(stream);
    return 0;
}

static int stream_wait(void *stream)
{
    (void)stream;
    WITH_GPU(finish(g));
}

/* A CPU that imitates a GPU needs its processors for the work itself, so it is not polled. */
static int query(spry_vk_gpu *g, uint64_t serial)
{
    enum { PATIENCE_NS = 1000000 };
    int result = serial > g->submitted ? spry_vk_flush(g) : VK_SUCCESS;
    if (result)
        return result;
    if (g->facts.is_cpu)
        return spry_vk_wait(g, serial, PATIENCE_NS);
    return spry_vk_is_done(g, serial, &result) ? result : VK_NOT_READY;
}

static int stream_query(void *stream)
{
    (void)stream;
    WITH_GPU(query(g, g->submitted + g->recording));
}

static int stream_flush(void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_flush(g));
}

/* All streams share one order. */
static int stream_wait_event(void *stream, void *event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return 0;
}

static int stream_write(spry_cuda_memory to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_write(g, to, from, bytes));
}

static int stream_read(void *to, spry_cuda_memory from, size_t bytes, void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_read(g, to, from, bytes));
}

static int stream_copy(spry_cuda_memory to, spry_cuda_memory from, size_t bytes, void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_copy(g, to, from, bytes));
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static int capture_begin(void *stream, int mode)
{
    (void)mode;
    WITH_GPU(spry_vk_graph_begin(g, stream));
}

static int capture_end(void *stream, void **graph)
{
    WITH_GPU(spry_vk_graph_end(g, stream, (spry_vk_graph **)graph));
}

static int graph_prepare(void **exec, void *graph, unsigned long long flags)
{
    (void)flags;
    ((spry_vk_graph *)graph)->prepared = true;
    *exec = graph;
    return 0;
}

static int graph_launch(void *exec, void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_graph_run(g, exec));
}

static int graph_exec_destroy(void *exec)
{
    if (!current)
        return 0;
    pthread_mutex_lock(&current->lock);
    spry_vk_graph_free(current, exec);
    pthread_mutex_unlock(&current->lock);
    return 0;
}

/* A prepared graph belongs to what was made of it. */
static int graph_destroy(void *graph)
{
    return ((spry_vk_graph *)graph)->prepared ? 0 : graph_exec_destroy(graph);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static int module_load(void **module, const void *image)
{
    *module = (void *)(uintptr_t)image;
    return 0;
}

static int module_unload(void *module)
{
    (void)module;
    return 0;
}

static int module_function(void **function, void *module, const char *name)
{
    (void)module;
    for (size_t i = 0; i < spry_vulkan_n_kernels; i++)
        if (!strcmp(spry_vulkan_kernels[i].name, name)) {
            *function = (void *)(uintptr_t)&spry_vulkan_kernels[i];
            return 0;
        }
    return RESULT_BASE - VK_ERROR_FEATURE_NOT_PRESENT;
}

static int function_attribute(void *function, int attribute, int value)
{
    (void)function;
    (void)attribute;
    (void)value;
    return 0;
}

static int launch_as(const spry_cuda_launch_config *config, void *function, void **parameters, void **extra)
{
    size_t kernel = (size_t)((const spry_vulkan_kernel *)function - spry_vulkan_kernels);
    const uint32_t grid[] = {config->grid_x, config->grid_y, config->grid_z};
    (void)extra;
    WITH_GPU(spry_vk_dispatch(g, config->stream, kernel, grid, parameters[0]));
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int event_create(void **event, unsigned flags)
{
    spry_vk_event *e = calloc(1, sizeof *e);
    *event = e;
    if (!e)
        return SPRY_CUDA_OUT_OF_MEMORY;
    e->query = SPRY_VK_QUERIES;
    for (uint32_t i = 0; !(flags & SPRY_CUDA_EVENT_UNTIMED) && current && i < SPRY_VK_QUERIES; i++)
        if (!current->query_used[i]) {
            current->query_used[i] = 1;
            e->query = i;
            break;
        }
    return 0;
}

static int event_destroy(void *event)
{
    const spry_vk_event *e = event;
    if (current && e->query < SPRY_VK_QUERIES)
        current->query_used[e->query] = 0;
    free(event);
    return 0;
}

static int event_record(void *event, void *stream)
{
    (void)stream;
    WITH_GPU(spry_vk_event_record(g, event));
}

static int wait_event(spry_vk_gpu *g, uint64_t serial)
{
    int result = serial > g->submitted ? spry_vk_flush(g) : VK_SUCCESS;
    return result ? result : spry_vk_wait(g, serial, UINT64_MAX);
}

static int event_wait(void *event)
{
    WITH_GPU(wait_event(g, ((const spry_vk_event *)event)->serial));
}

static int event_query(void *event)
{
    WITH_GPU(query(g, ((const spry_vk_event *)event)->serial));
}

static int elapsed(spry_vk_gpu *g, float *ms, const spry_vk_event *begin, const spry_vk_event *end)
{
    uint64_t times[2] = {0, 0};
    *ms = 0;
    if (!g->queries || begin->query == SPRY_VK_QUERIES || end->query == SPRY_VK_QUERIES)
        return VK_SUCCESS;
    const spry_vk_event *events[] = {begin, end};
    for (size_t i = 0; i < 2; i++) {
        int result = g->vk.GetQueryPoolResults(g->device, g->queries, events[i]->query, 1, sizeof times[i], &times[i],
                                               sizeof times[i], VK_QUERY_RESULT_64_BIT);
        if (result)
            return result;
    }
    *ms = (float)((double)(times[1] - times[0]) * (double)g->facts.timestamp_ns / 1e6);
    return VK_SUCCESS;
}

static int event_elapsed(float *ms, void *begin, void *end)
{
    WITH_GPU(elapsed(g, ms, begin, end));
}

static const spry_cuda table = {.vulkan = true,
                                .init = init,
                                .error_string = error_string,
                                .driver_version = driver_version,
                                .device_count = device_count,
                                .device = device,
                                .device_name = device_name,
                                .device_memory = device_memory,
                                .device_free = device_free,
                                .device_limit = device_limit,
                                .device_attribute = device_attribute,
                                .context_retain = context_retain,
                                .context_release = context_release,
                                .context_set = context_set,
                                .memory_info = memory_info,
                                .memory_allocate = memory_allocate,
                                .memory_share = memory_share,
                                .memory_free = memory_free,
                                .memory_fill = memory_fill,
                                .memory_write = memory_write,
                                .memory_read = memory_read,
                                .host_allocate = host_allocate,
                                .host_free = host_free,
                                .stream_create = stream_create,
                                .stream_destroy = stream_destroy,
                                .stream_wait = stream_wait,
                                .stream_query = stream_query,
                                .stream_flush = stream_flush,
                                .stream_wait_event = stream_wait_event,
                                .stream_write = stream_write,
                                .stream_read = stream_read,
                                .stream_copy = stream_copy,
                                .capture_begin = capture_begin,
                                .capture_end = capture_end,
                                .graph_prepare = graph_prepare,
                                .graph_launch = graph_launch,
                                .graph_exec_destroy = graph_exec_destroy,
                                .graph_destroy = graph_destroy,
                                .module_load = module_load,
                                .module_unload = module_unload,
                                .module_function = module_function,
                                .function_attribute = function_attribute,
                                .launch_as = launch_as,
                                .event_create = event_create,
                                .event_destroy = event_destroy,
                                .event_record = event_record,
                                .event_wait = event_wait,
                                .event_query = event_query,
                                .event_elapsed = event_elapsed};

spry_status spry_vulkan_driver_open(spry_cuda *driver, spry_error *error)
{
    *driver = table;
    pthread_mutex_lock(&all.lock);
    spry_status status = load(error);
    pthread_mutex_unlock(&all.lock);
    return status;
}
