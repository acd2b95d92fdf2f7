/* The program with a GPU that is imitated (cuda_imitation.h), as the program spry_imitated: everything else is the
 * program's own. Variables say what GPU it is, files in a folder what happens to it while the program runs:
 *
 *   IMITATED_GPU          none: no driver; old: one that lacks functions; else there is one GPU
 *   IMITATED_GPU_BYTES    of its memory, 256 MiB unless given
 *   IMITATED_GPU_WAIT_MS  after which work counts as endless
 *   IMITATED_GPU_FOLDER   a file "lost": every call fails; "hangs": work does not end; "memory": what processes hold
 *
 * NVML reports 100 W, counted ten times a second, and a GPU that is busy for 40 % of the time. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_device.h"
#include "platform/clock.h"
#include "platform/energy_impl.h"
#include "platform/gpu.h"
#include "support/cuda_imitation.h"

enum { LOST = 719, DEFAULT_MIB = 256, WATTS = 100, BUSY = 40 };

static const char image[] = "kernels";
const void *const *spry_cuda_images(void)
{
    static const void *const images[] = {image, NULL};
    return images;
}

static spry_cuda plain; /* the imitation's own functions */
static atomic_size_t *held;
static atomic_size_t held_here; /* where there is no folder */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

spry_status __real_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __real_spry_cuda_context_init(spry_cuda_context *c, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);
spry_status __wrap_spry_cuda_context_init(spry_cuda_context *c, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);
spry_status __wrap_spry_nvml_load(spry_nvml *nvml, spry_error *why);
double __wrap_spry_gpu_busy_percent(void);

/* ---- what happens to it ------------------------------------------------------------------------------------------ */

static bool path_of(char out[PATH_MAX], const char *name)
{
    const char *folder = getenv("IMITATED_GPU_FOLDER");
    return folder && snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool is_there(const char *name)
{
    char path[PATH_MAX];
    return path_of(path, name) && access(path, F_OK) == 0;
}

static size_t total_bytes(void)
{
    const char *bytes = getenv("IMITATED_GPU_BYTES");
    return bytes ? strtoull(bytes, NULL, 10) : (size_t)DEFAULT_MIB << 20;
}

static int query(int (*done)(void *), void *of)
{
    if (is_there("lost"))
        return LOST;
    return is_there("hangs") ? SPRY_CUDA_NOT_READY : done(of);
}

static int stream_query(void *stream)
{
    return query(plain.stream_query, stream);
}

static int event_query(void *event)
{
    return query(plain.event_query, event);
}

/* One thread at a time runs kernels: the host's fibers are one set. */
static int launch_as(const spry_cuda_launch_config *config, void *function, void **parameters, void **extra)
{
    pthread_mutex_lock(&lock);
    int result = plain.launch_as(config, function, parameters, extra);
    pthread_mutex_unlock(&lock);
    return result;
}

static int graph_launch(void *exec, void *stream)
{
    pthread_mutex_lock(&lock);
    int result = plain.graph_launch(exec, stream);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- memory that processes share --------------------------------------------------------------------------------- */

static void share_memory(void)
{
    char path[PATH_MAX];
    int file = path_of(path, "memory") ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    held = &held_here;
    if (file < 0)
        return;
    void *shared = ftruncate(file, sizeof *held) == 0
                       ? mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                       : MAP_FAILED;
    held = shared == MAP_FAILED ? &held_here : shared;
    close(file);
}

static int memory_info(size_t *free_bytes, size_t *bytes)
{
    size_t used = atomic_load(held);
    *bytes = total_bytes();
    *free_bytes = used < *bytes ? *bytes - used : 0;
    return 0;
}

static int device_memory(size_t *bytes, int device)
{
    (void)device;
    *bytes = total_bytes();
    return 0;
}

/* Sizes stand before what the imitation allocated. */
static int memory_allocate(spry_cuda_memory *memory, size_t bytes)
{
    if (atomic_fetch_add(held, bytes) + bytes > total_bytes()) {
        atomic_fetch_sub(held, bytes);
        return SPRY_CUDA_OUT_OF_MEMORY;
    }
    return plain.memory_allocate(memory, bytes);
}

static int memory_free(spry_cuda_memory memory)
{
    atomic_fetch_sub(held, cuda_imitation_bytes(memory));
    return plain.memory_free(memory);
}

/* ---- what is replaced -------------------------------------------------------------------------------------------- */

static void prepare(void)
{
    cuda_imitation_reset();
    share_memory();
    plain = cuda_imitation_driver();
}

spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *kind = getenv("IMITATED_GPU");
    if (kind && !strcmp(kind, "none"))
        return __real_spry_cuda_open(cuda, "libno-such-driver.so.1", error);
    if (kind && !strcmp(kind, "old")) /* a library that is there, and has none of the functions */
        return __real_spry_cuda_open(cuda, "libc.so.6", error);
    (void)library;
    pthread_once(&once, prepare);
    *cuda = plain;
    cuda->stream_query = stream_query;
    cuda->event_query = event_query;
    cuda->launch_as = launch_as;
    cuda->graph_launch = graph_launch;
    cuda->memory_info = memory_info;
    cuda->device_memory = device_memory;
    cuda->memory_allocate = memory_allocate;
    cuda->memory_free = memory_free;
    return SPRY_OK;
}

spry_status __wrap_spry_cuda_context_init(spry_cuda_context *c, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error)
{
    spry_status status = __real_spry_cuda_context_init(c, cuda, index, images, error);
    const char *wait_ms = getenv("IMITATED_GPU_WAIT_MS");
    if (!status && wait_ms)
        c->timeout_ms = (uint32_t)strtoul(wait_ms, NULL, 10);
    return status;
}

static int nvml_works(void)
{
    return SPRY_NVML_OK;
}

static const char *nvml_text(int result)
{
    (void)result;
    return "imitated";
}

static int nvml_count(unsigned *count)
{
    *count = 1;
    return SPRY_NVML_OK;
}

static int nvml_handle(unsigned index, void **device)
{
    (void)index;
    *device = &plain;
    return SPRY_NVML_OK;
}

static int nvml_name(void *device, char *name, unsigned size)
{
    (void)device;
    snprintf(name, size, "Imitated GPU");
    return SPRY_NVML_OK;
}

static int nvml_energy(void *device, unsigned long long *millijoules)
{
    (void)device;
    *millijoules = spry_clock_ns() / 100000000 * 100 * WATTS;
    return SPRY_NVML_OK;
}

static int nvml_power(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = WATTS * 1000;
    return SPRY_NVML_OK;
}

spry_status __wrap_spry_nvml_load(spry_nvml *nvml, spry_error *why)
{
    (void)why;
    *nvml = (spry_nvml){.init = nvml_works,
                        .shutdown = nvml_works,
                        .error_text = nvml_text,
                        .device_count = nvml_count,
                        .device_handle = nvml_handle,
                        .device_name = nvml_name,
                        .device_energy = nvml_energy,
                        .device_power = nvml_power};
    return SPRY_OK;
}

double __wrap_spry_gpu_busy_percent(void)
{
    return BUSY;
}
