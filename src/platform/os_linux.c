/* Linux: affinity, eventfd, perf, procfs. */
#include "platform/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/system_file.h"
#include "platform/wakeup.h"

/* ---- threads and processors -------------------------------------------------------------------------------------- */

_Static_assert(sizeof(spry_processor_set) == sizeof(cpu_set_t) && SPRY_PROCESSOR_SET_MAX == CPU_SETSIZE,
               "a set is copied to Linux's own form");

void spry_os_begin_worker(void)
{
}

int spry_os_processor(void)
{
    return sched_getcpu();
}

bool spry_os_affinity(spry_processor_set *set, pthread_t thread)
{
    cpu_set_t own;
    if (pthread_getaffinity_np(thread, sizeof own, &own))
        return false;
    memcpy(set, &own, sizeof own);
    return true;
}

void spry_os_set_affinity(pthread_t thread, const spry_processor_set *set)
{
    cpu_set_t own;
    memcpy(&own, set, sizeof own);
    pthread_setaffinity_np(thread, sizeof own, &own);
}

void spry_os_bind(pthread_t thread, int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

uint64_t spry_os_thread_ns(pthread_t thread)
{
    clockid_t clock;
    struct timespec time;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &time))
        return 0;
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Processors in the affinity mask; all processors when it cannot be read. */
size_t spry_os_processors(void)
{
    size_t count = 0;
    for (size_t cpus = CPU_SETSIZE; !count && cpus <= ((size_t)1 << 20); cpus *= 2) {
        /* The kernel refuses a mask shorter than its own: try longer ones. */
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0)
            count = (size_t)CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set);
        CPU_FREE(set);
    }
    if (count)
        return count;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

int spry_os_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int spry_os_accept(int listening, struct sockaddr *address, socklen_t *size)
{
    return accept4(listening, address, size, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

bool spry_os_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC) == 0;
}

void spry_os_forget(int file)
{
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

const char spry_os_descriptors[] = "/proc/self/fd";

bool spry_os_program(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* ---- waking a thread (wakeup.h) ---------------------------------------------------------------------------------- */

/* An eventfd, polled together with the socket. POLLRDHUP reports a peer that has closed its sending side, also while
 * unread bytes remain. */

bool spry_wakeup_init(spry_wakeup *w)
{
    w->file = w->raised = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->file >= 0;
}

void spry_wakeup_deinit(spry_wakeup *w)
{
    close(w->file);
}

void spry_wakeup_raise(spry_wakeup *w)
{
    uint64_t one = 1;
    ssize_t written = write(w->raised, &one, sizeof one); /* fails only when the flag is raised already */
    (void)written;
}

void spry_wakeup_clear(spry_wakeup *w)
{
    uint64_t count;
    ssize_t got = read(w->file, &count, sizeof count); /* fails only when the flag is not raised */
    (void)got;
}

spry_wait_result spry_wakeup_wait(const spry_wakeup *w, int socket, uint64_t until_ns)
{
    struct pollfd files[] = {{.fd = w->file, .events = POLLIN}, {.fd = socket, .events = POLLRDHUP}};
    for (;;) {
        int n = poll(files, 2, spry_clock_ms_until(until_ns));
        if (n < 0 && errno == EINTR)
            continue;
        if (files[1].revents)
            return SPRY_WAIT_HUNG_UP;
        return n == 0 ? SPRY_WAIT_TIMEOUT : SPRY_WAIT_RAISED;
    }
}

bool spry_socket_hung_up(int socket, int ms)
{
    struct pollfd file = {.fd = socket, .events = POLLRDHUP};
    return poll(&file, 1, ms) > 0 && file.revents;
}

/* ---- memory (memory.h) ------------------------------------------------------------------------------------------- */

/* Reads the first line of a small system file; false: no such file. */
static bool read_line(char *line, int size, const char *path)
{
    FILE *file = fopen(path, "re");
    bool got = file && fgets(line, size, file);
    if (file)
        fclose(file);
    return got;
}

size_t spry_memory_huge_page(void)
{
    char line[128];
    size_t bytes = 0;
    if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0 ||
        !read_line(line, sizeof line, "/sys/kernel/mm/transparent_hugepage/enabled") || strstr(line, "[never]") ||
        !read_line(line, sizeof line, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") ||
        sscanf(line, "%zu", &bytes) != 1 || bytes & (bytes - 1))
        return 0;
    return bytes;
}

/* madvise makes anonymous pages zero. */
void spry_memory_drop(void *memory, size_t bytes)
{
    spry_memory_drop_file(memory, bytes);
}

size_t spry_os_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_size > 0 ? (size_t)pages * (size_t)page_size : 0;
}

/* spry_memory_is_short reads /proc/pressure itself. */
bool spry_os_memory_pressure(void)
{
    return false;
}

size_t spry_os_memory_now(void)
{
    return 0;
}

size_t spry_os_memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

enum { ENTRIES_AT_ONCE = 4096 };

/* /proc/self/pagemap has one entry per page; mincore would not do: for files it reports the page cache, not this
 * process's pages. */
bool spry_memory_resident(size_t *bytes, const void *memory, size_t size)
{
    static const uint64_t present = (uint64_t)1 << 63;
    uint64_t entries[ENTRIES_AT_ONCE];
    size_t page = spry_memory_page(), first = ((uintptr_t)memory + page - 1) / page;
    size_t end = ((uintptr_t)memory + size + page - 1) / page, count = 0;
    int descriptor = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool known = descriptor >= 0;
    while (known && first < end) {
        size_t wanted = end - first < ENTRIES_AT_ONCE ? end - first : ENTRIES_AT_ONCE;
        ssize_t got = pread(descriptor, entries, wanted * sizeof *entries, (off_t)(first * sizeof *entries));
        known = got >= (ssize_t)sizeof *entries;
        size_t n = known ? (size_t)got / sizeof *entries : 0;
        for (size_t i = 0; i < n; i++)
            count += (entries[i] & present) != 0;
        first += n;
    }
    if (descriptor >= 0)
        close(descriptor);
    *bytes = count * page;
    return known;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

#if defined(__aarch64__)

uint32_t spry_os_cpu_features(void)
{
    enum { I8MM = 1 << 13, BF16 = 1 << 14 }; /* bits of AT_HWCAP2 that older headers lack */
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    uint32_t features = first & HWCAP_ASIMDDP ? SPRY_CPU_DOTPROD : 0;
    features |= second & I8MM ? SPRY_CPU_I8MM : 0;
    features |= second & BF16 ? SPRY_CPU_ARM_BF16 : 0;
    return features;
}

#elif defined(__x86_64__)

/* Tiles are 8 KB of state a thread: Linux saves them only for processes that have asked for it. */
uint32_t spry_os_cpu_features(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25, ALL = AMX_BF16 | AMX_TILE | AMX_INT8 };
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx;
    bool amx = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & ALL) == ALL &&
               syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
    return amx ? SPRY_CPU_AMX : 0;
}

#else

uint32_t spry_os_cpu_features(void)
{
    return 0;
}

#endif

void spry_os_hardware(spry_hardware *hardware)
{
    (void)hardware;
}

void spry_os_machine_state(spry_machine_state *state)
{
    (void)state;
}

int spry_energy_perf_open(uint32_t type, uint64_t config, unsigned cpu)
{
    struct perf_event_attr attributes = {.type = type, .size = sizeof attributes, .config = config};
    return (int)syscall(SYS_perf_event_open, &attributes, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

spry_status spry_os_open_energy(spry_energy_source *source, const spry_energy_system *system)
{
    (void)system;
    return spry_fail(&source->why, SPRY_ERR_UNSUPPORTED, "Linux's counters are files, or perf's");
}
