/* Read bandwidth is measured with a PTX kernel that the driver compiles for any GPU: every thread loads 16 bytes four
 * times per round, adjacent to its neighbours, and sums all words. The memory contains even numbers, so the sum is
 * never the odd number that would be stored: nothing is written, and no compiler can remove the reads. The result is
 * the best of several tries. */
#include "platform/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "platform/file.h"

enum {
    THREADS_A_BLOCK = 256,
    BLOCKS_A_MULTIPROCESSOR = 8,
    BYTES_A_THREAD = 4 * 16, /* per round */
    LAUNCHES = 4,            /* per try, so that launch overhead is small */
    TRIES = 5,
    ROUNDS_MIN = 4, /* with fewer, the data stays in the GPU's cache */
    COMPUTE_MIN = 7,
};

static const size_t read_bytes_max = (size_t)4 << 30;
static const unsigned even_word = 0x5A3C96E2;

const char spry_gpu_read_ptx[] = ".version 7.0\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".visible .entry spry_read(.param .u64 memory, .param .u32 rounds)\n"
                                 "{\n"
                                 "    .reg .pred %last, %stored;\n"
                                 "    .reg .u32 %thread, %block, %threads, %blocks, %left, %sum;\n"
                                 "    .reg .u32 %a<4>, %b<4>, %c<4>, %d<4>;\n"
                                 "    .reg .u64 %base, %at, %at1, %at2, %at3, %step, %round;\n"
                                 "    ld.param.u64 %base, [memory];\n"
                                 "    ld.param.u32 %left, [rounds];\n"
                                 "    cvta.to.global.u64 %base, %base;\n"
                                 "    mov.u32 %thread, %tid.x;\n"
                                 "    mov.u32 %block, %ctaid.x;\n"
                                 "    mov.u32 %threads, %ntid.x;\n"
                                 "    mov.u32 %blocks, %nctaid.x;\n"
                                 "    mad.lo.u32 %thread, %block, %threads, %thread;\n"
                                 "    mul.wide.u32 %at, %thread, 16;\n"
                                 "    add.u64 %at, %at, %base;\n"
                                 "    mul.lo.u32 %threads, %threads, %blocks;\n"
                                 "    mul.wide.u32 %step, %threads, 16;\n"
                                 "    shl.b64 %round, %step, 2;\n"
                                 "    mov.u32 %sum, 0;\n"
                                 "again:\n"
                                 "    add.u64 %at1, %at, %step;\n"
                                 "    add.u64 %at2, %at1, %step;\n"
                                 "    add.u64 %at3, %at2, %step;\n"
                                 "    ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%at];\n"
                                 "    ld.global.v4.u32 {%b0, %b1, %b2, %b3}, [%at1];\n"
                                 "    ld.global.v4.u32 {%c0, %c1, %c2, %c3}, [%at2];\n"
                                 "    ld.global.v4.u32 {%d0, %d1, %d2, %d3}, [%at3];\n"
                                 "    add.u32 %a0, %a0, %a1;\n"
                                 "    add.u32 %a2, %a2, %a3;\n"
                                 "    add.u32 %b0, %b0, %b1;\n"
                                 "    add.u32 %b2, %b2, %b3;\n"
                                 "    add.u32 %c0, %c0, %c1;\n"
                                 "    add.u32 %c2, %c2, %c3;\n"
                                 "    add.u32 %d0, %d0, %d1;\n"
                                 "    add.u32 %d2, %d2, %d3;\n"
                                 "    add.u32 %a0, %a0, %a2;\n"
                                 "    add.u32 %b0, %b0, %b2;\n"
                                 "    add.u32 %c0, %c0, %c2;\n"
                                 "    add.u32 %d0, %d0, %d2;\n"
                                 "    add.u32 %a0, %a0, %b0;\n"
                                 "    add.u32 %c0, %c0, %d0;\n"
                                 "    add.u32 %a0, %a0, %c0;\n"
                                 "    add.u32 %sum, %sum, %a0;\n"
                                 "    add.u64 %at, %at, %round;\n"
                                 "    sub.u32 %left, %left, 1;\n"
                                 "    setp.ne.u32 %last, %left, 0;\n"
                                 "    @%last bra again;\n"
                                 "    setp.eq.u32 %stored, %sum, 1;\n"
                                 "    @%stored st.global.u32 [%base], %sum;\n"
                                 "    ret;\n"
                                 "}\n";

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* Whether a call succeeded; the first failure leaves its message in `why`. */
static bool went_well(const spry_cuda *cuda, char why[SPRY_GPU_TEXT], int result, const char *call)
{
    if (result != 0 && !why[0])
        snprintf(why, SPRY_GPU_TEXT, "%s: %s (error %d)", call, spry_cuda_reason(cuda, result), result);
    return result == 0;
}

static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* "580.95.05, CUDA 13.0"; the first half only where the kernel module reports it. */
static void describe_driver(spry_gpus *gpus, const char *root)
{
    char path[PATH_MAX], version[24] = "";
    int length = snprintf(path, sizeof path, "%s/sys/module/nvidia/version", root), cuda = 0;
    FILE *file = length > 0 && length < PATH_MAX ? fopen(path, "re") : NULL;
    if (file && fgets(version, sizeof version, file)) {
        version[strcspn(version, " \n")] = '\0';
        make_printable(version);
    }
    if (file)
        fclose(file);
    if (gpus->cuda.driver_version(&cuda) != 0)
        cuda = 0;
    snprintf(gpus->driver, sizeof gpus->driver, "%s%sCUDA %d.%d", version, version[0] ? ", " : "", cuda / 1000,
             cuda % 1000 / 10);
}

static bool describe_device(spry_gpu *gpu, const spry_cuda *cuda, int index, char why[SPRY_GPU_TEXT])
{
    int device, major = 0, minor = 0, multiprocessors = 0, khz = 0;
    *gpu = (spry_gpu){.index = index};
    if (!went_well(cuda, why, cuda->device(&device, index), "cuDeviceGet") ||
        !went_well(cuda, why, cuda->device_name(gpu->name, SPRY_GPU_NAME, device), "cuDeviceGetName") ||
        !went_well(cuda, why, cuda->device_memory(&gpu->bytes, device), "cuDeviceTotalMem") ||
        !went_well(cuda, why, cuda->device_attribute(&major, SPRY_CUDA_COMPUTE_MAJOR, device),
                   "cuDeviceGetAttribute") ||
        !went_well(cuda, why, cuda->device_attribute(&minor, SPRY_CUDA_COMPUTE_MINOR, device),
                   "cuDeviceGetAttribute") ||
        !went_well(cuda, why, cuda->device_attribute(&multiprocessors, SPRY_CUDA_MULTIPROCESSORS, device),
                   "cuDeviceGetAttribute") ||
        !went_well(cuda, why, cuda->device_attribute(&khz, SPRY_CUDA_CLOCK, device), "cuDeviceGetAttribute"))
        return false;
    gpu->name[SPRY_GPU_NAME - 1] = '\0';
    make_printable(gpu->name);
    gpu->compute_major = (uint32_t)major;
    gpu->compute_minor = (uint32_t)minor;
    gpu->multiprocessors = (uint32_t)multiprocessors;
    gpu->clock_ghz = khz * 1e-6;
    return true;
}

void spry_gpus_find(spry_gpus *gpus, const char *root)
{
    const spry_cuda *cuda = &gpus->cuda;
    int count = 0;
    gpus->count = 0;
    if (!went_well(cuda, gpus->why, cuda->init(0), "cuInit") ||
        !went_well(cuda, gpus->why, cuda->device_count(&count), "cuDeviceGetCount"))
        return;
    describe_driver(gpus, root);
    for (int i = 0; i < count && gpus->count < SPRY_GPUS_MAX; i++)
        gpus->count += describe_device(&gpus->list[gpus->count], cuda, i, gpus->why);
    if (count <= 0)
        snprintf(gpus->why, sizeof gpus->why, "the NVIDIA driver is there and has no GPU");
}

void spry_gpus_open(spry_gpus *gpus, const char *library, const char *root)
{
    spry_error error;
    *gpus = (spry_gpus){0};
    if (spry_cuda_open(&gpus->cuda, library, &error) != SPRY_OK)
        snprintf(gpus->why, sizeof gpus->why, "%.*s", SPRY_GPU_TEXT - 1, error.message);
    else
        spry_gpus_find(gpus, root);
}

void spry_gpus_close(spry_gpus *gpus)
{
    spry_cuda_close(&gpus->cuda);
}

double spry_gpu_peak(const spry_gpu *gpu)
{
    static const struct {
        uint32_t major, minor;
        double each; /* operations of a multiprocessor in a cycle */
    } list[] = {{8, 0, 2048}, {8, 6, 1024}, {8, 9, 1024}, {9, 0, 4096}, {10, 0, 8192}};
    double each = 0;
    for (size_t i = 0; i < SPRY_COUNT(list); i++)
        if (gpu->compute_major > list[i].major ||
            (gpu->compute_major == list[i].major && gpu->compute_minor >= list[i].minor))
            each = list[i].each;
    return each * gpu->multiprocessors * gpu->clock_ghz * 1e9;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Resources for measuring one device. */
typedef struct meter {
    const spry_cuda *cuda;
    spry_gpu *gpu;
    void *module, *function, *begin, *end;
    spry_cuda_memory memory;
    unsigned blocks;
    uint32_t rounds;
    size_t bytes; /* read by all rounds together */
} meter;

static bool fine(meter *m, int result, const char *call)
{
    return went_well(m->cuda, m->gpu->why, result, call);
}

/* Whole rounds of all threads, in half of the free memory. */
static bool choose_size(meter *m)
{
    size_t free_bytes = 0, bytes = 0;
    if (!fine(m, m->cuda->memory_info(&free_bytes, &bytes), "cuMemGetInfo"))
        return false;
    m->blocks = m->gpu->multiprocessors * BLOCKS_A_MULTIPROCESSOR;
    size_t round = (size_t)m->blocks * THREADS_A_BLOCK * BYTES_A_THREAD;
    size_t most = free_bytes / 2 < read_bytes_max ? free_bytes / 2 : read_bytes_max;
    m->rounds = round ? (uint32_t)(most / round) : 0;
    m->bytes = m->rounds * round;
    if (m->rounds >= ROUNDS_MIN)
        return true;
    snprintf(m->gpu->why, sizeof m->gpu->why, "only %zu MB of its memory are free, too few to measure reading",
             free_bytes / 1000000);
    return false;
}

static bool prepare(meter *m)
{
    const spry_cuda *cuda = m->cuda;
    return choose_size(m) && fine(m, cuda->memory_allocate(&m->memory, m->bytes), "cuMemAlloc") &&
           fine(m, cuda->memory_fill(m->memory, even_word, m->bytes / sizeof even_word), "cuMemsetD32") &&
           fine(m, cuda->module_load(&m->module, spry_gpu_read_ptx), "cuModuleLoadData") &&
           fine(m, cuda->module_function(&m->function, m->module, "spry_read"), "cuModuleGetFunction") &&
           fine(m, cuda->event_create(&m->begin, 0), "cuEventCreate") &&
           fine(m, cuda->event_create(&m->end, 0), "cuEventCreate");
}

static bool launch(meter *m)
{
    void *parameters[] = {&m->memory, &m->rounds};
    return fine(m, m->cuda->launch(m->function, m->blocks, 1, 1, THREADS_A_BLOCK, 1, 1, 0, NULL, parameters, NULL),
                "cuLaunchKernel");
}

/* Milliseconds for LAUNCHES launches; 0: a call failed. */
static double time_launches(meter *m)
{
    const spry_cuda *cuda = m->cuda;
    float ms = 0;
    if (!fine(m, cuda->event_record(m->begin, NULL), "cuEventRecord"))
        return 0;
    for (int i = 0; i < LAUNCHES; i++)
        if (!launch(m))
            return 0;
    if (!fine(m, cuda->event_record(m->end, NULL), "cuEventRecord") ||
        !fine(m, cuda->event_wait(m->end), "cuEventSynchronize") ||
        !fine(m, cuda->event_elapsed(&ms, m->begin, m->end), "cuEventElapsedTime"))
        return 0;
    if (!(ms > 0))
        snprintf(m->gpu->why, sizeof m->gpu->why, "cuEventElapsedTime: reading took no time");
    return ms > 0 ? (double)ms : 0;
}

/* The first try also raises the GPU's clock and is discarded. */
static void measure_reading(meter *m)
{
    double best = 0;
    for (int i = 0; i <= TRIES; i++) {
        double ms = time_launches(m);
        if (ms == 0)
            return;
        if (i > 0 && (best == 0 || ms < best))
            best = ms;
    }
    m->gpu->read_gb_s = (double)m->bytes * LAUNCHES / (best * 1e6);
}

static void release(meter *m)
{
    const spry_cuda *cuda = m->cuda;
    if (m->begin)
        cuda->event_destroy(m->begin);
    if (m->end)
        cuda->event_destroy(m->end);
    if (m->module)
        cuda->module_unload(m->module);
    if (m->memory)
        cuda->memory_free(m->memory);
}

static void measure_device(spry_gpu *gpu, const spry_cuda *cuda)
{
    meter m = {.cuda = cuda, .gpu = gpu};
    int device;
    void *context;
    gpu->read_gb_s = 0;
    gpu->why[0] = '\0';
    if (gpu->compute_major < COMPUTE_MIN) {
        snprintf(gpu->why, sizeof gpu->why, "reading is measured from compute capability %d.0 on; this one has %u.%u",
                 COMPUTE_MIN, gpu->compute_major, gpu->compute_minor);
        return;
    }
    if (!fine(&m, cuda->device(&device, gpu->index), "cuDeviceGet") ||
        !fine(&m, cuda->context_retain(&context, device), "cuDevicePrimaryCtxRetain"))
        return;
    if (fine(&m, cuda->context_set(context), "cuCtxSetCurrent") && prepare(&m))
        measure_reading(&m);
    release(&m);
    cuda->context_set(NULL);
    cuda->context_release(device);
}

void spry_gpus_measure(spry_gpus *gpus)
{
    for (size_t i = 0; i < gpus->count; i++)
        measure_device(&gpus->list[i], &gpus->cuda);
}

/* ---- use --------------------------------------------------------------------------------------------------------- */

double spry_gpu_busy_of(const spry_gpu_use_api *api)
{
    unsigned count = 0, percent[2];
    double busiest = NAN;
    void *device;
    if (api->device_count(&count))
        return NAN;
    for (unsigned i = 0; i < count; i++)
        if (!api->device_handle(i, &device) && !api->device_use(device, percent) && percent[0] <= 100 &&
            !(percent[0] <= busiest))
            busiest = percent[0];
    return busiest;
}

double spry_gpu_busy_percent(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {{"nvmlDeviceGetCount_v2", offsetof(spry_gpu_use_api, device_count)},
                   {"nvmlDeviceGetHandleByIndex_v2", offsetof(spry_gpu_use_api, device_handle)},
                   {"nvmlDeviceGetUtilizationRates", offsetof(spry_gpu_use_api, device_use)}};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    spry_gpu_use_api api;
    bool whole = library;
    for (size_t i = 0; whole && i < SPRY_COUNT(symbols); i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)&api + symbols[i].offset, &symbol, sizeof symbol);
        whole = symbol;
    }
    double busy = whole ? spry_gpu_busy_of(&api) : NAN;
    if (library)
        dlclose(library);
    return busy;
}

bool spry_gpu_is_likely(void)
{
#ifdef SPRY_OS_LINUX
    return spry_path_exists("/dev/dri") || spry_path_exists("/dev/nvidiactl") || spry_path_exists("/dev/dxg");
#else
    return true;
#endif
}
