/* Anonymous private mappings, and how much memory may be used. */
#include "platform/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

#include "platform/os.h"
#include "platform/system_file.h"

/* ---- the C library's allocator ----------------------------------------------------------------------------------- */

void spry_memory_limit_arenas(void)
{
#if defined(__GLIBC__)
    enum { ARENAS = 4 };
    mallopt(M_ARENA_MAX, ARENAS);
#endif
}

void spry_memory_trim(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#elif defined(__APPLE__)
    malloc_zone_pressure_relief(NULL, 0);
#endif
}

size_t spry_memory_size(void *memory)
{
#if defined(__GLIBC__)
    return malloc_usable_size(memory);
#elif defined(__APPLE__)
    return malloc_size(memory);
#else
    (void)memory;
    return 0;
#endif
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

size_t spry_memory_page(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

/* The system uses huge pages only at aligned addresses, so a mapping that can hold one is aligned. */
static void *map_aligned(size_t bytes, size_t alignment)
{
    if (bytes > SIZE_MAX - alignment)
        return MAP_FAILED;
    size_t page = spry_memory_page(), whole = (bytes + page - 1) / page * page;
    char *memory = mmap(NULL, whole + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (alignment - (uintptr_t)memory % alignment) % alignment;
    if (before)
        munmap(memory, before);
    if (alignment > before)
        munmap(memory + before + whole, alignment - before);
    return memory + before;
}

void *spry_memory_map(size_t bytes)
{
    size_t huge = spry_memory_huge_page();
    void *memory = huge && bytes >= huge
                       ? map_aligned(bytes, huge)
                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (huge)
        madvise(memory, bytes, MADV_HUGEPAGE); /* a hint; refusal has no effect */
#endif
    return memory;
}

void spry_memory_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

void spry_memory_drop_file(const void *memory, size_t bytes)
{
    uintptr_t page = spry_memory_page(), begin = (uintptr_t)memory;
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

void spry_memory_fetch(const void *memory, size_t bytes)
{
    size_t page = spry_memory_page(), skip = (uintptr_t)memory % page;
    unsigned char *begin = (unsigned char *)(uintptr_t)memory - skip;
#ifdef MADV_POPULATE_READ
    if (madvise(begin, skip + bytes, MADV_POPULATE_READ) == 0 || errno != EINVAL)
        return; /* reading byte by byte would fail as well */
#endif
    unsigned char sum = 0; /* older systems: one byte of each page */
    for (size_t at = 0; at < skip + bytes; at += page)
        sum ^= *(const volatile unsigned char *)(begin + at);
    (void)sum;
}

/* ---- how much there is, and how much is used --------------------------------------------------------------------- */

/* The beginning of a file of the system, as text; "" where there is none. */
static void read_start(char *text, size_t size, const char *root, const char *path)
{
    char whole[PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    int descriptor = length > 0 && (size_t)length < sizeof whole ? open(whole, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = descriptor >= 0 ? read(descriptor, text, size - 1) : 0;
    text[got > 0 ? got : 0] = 0;
    if (descriptor >= 0)
        close(descriptor);
}

/* The first line "KEY NUMBER kB" of a file of /proc, in bytes; 0: no such line. */
static size_t read_kib(const char *path, const char *key)
{
    char line[256];
    size_t kib = 0, length = strlen(key);
    FILE *file = fopen(path, "re");
    while (file && !kib && fgets(line, sizeof line, file))
        if (strncmp(line, key, length) != 0 || sscanf(line + length, "%zu kB", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    return kib <= SIZE_MAX / 1024 ? kib * 1024 : 0;
}

/* /proc/meminfo first, which a container may restrict. */
static size_t machine_memory(void)
{
    size_t bytes = read_kib("/proc/meminfo", "MemTotal:");
    return bytes ? bytes : spry_os_memory();
}

/* smaps_rollup is exact; statm may lag by some pages per processor. */
size_t spry_memory_now(void)
{
    char text[128] = "";
    size_t pages = 0, bytes = read_kib("/proc/self/smaps_rollup", "Rss:");
    if (bytes)
        return bytes;
    read_start(text, sizeof text, "", "/proc/self/statm");
    return sscanf(text, "%*s %zu", &pages) == 1 ? pages * spry_memory_page() : spry_os_memory_now();
}

/* VmHWM rather than getrusage, which also counts the process image before exec. */
size_t spry_memory_peak(void)
{
    size_t bytes = read_kib("/proc/self/status", "VmHWM:");
    return bytes ? bytes : spry_os_memory_peak();
}

size_t spry_memory_total(void)
{
    size_t total = machine_memory();
    spry_cgroup_limits limits;
    struct rlimit space;
    spry_cgroup_read(&limits, "");
    total = limits.memory < total ? limits.memory : total;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < total)
        total = (size_t)space.rlim_cur;
    return total;
}

bool spry_memory_is_short(const char *root)
{
    enum { TOO_FEW = 16, TOO_LONG = 10 }; /* a sixteenth of the memory; percent of the time */
    char text[512];
    size_t total = 0, available = 0, waited = 0;
    if (!*root && spry_os_memory_pressure())
        return true;
    read_start(text, sizeof text, root, "/proc/meminfo");
    const char *line = strstr(text, "MemAvailable:");
    if (line && sscanf(text, "MemTotal: %zu kB", &total) == 1 &&
        sscanf(line, "MemAvailable: %zu kB", &available) == 1 && available < total / TOO_FEW)
        return true;
    read_start(text, sizeof text, root, "/proc/pressure/memory");
    line = strstr(text, "full avg10=");
    return line && sscanf(line, "full avg10=%zu", &waited) == 1 && waited >= TOO_LONG;
}

/* ---- counting what is touched ------------------------------------------------------------------------------------ */

void spry_memory_tally_init(spry_memory_tally *t, size_t size)
{
    *t = (spry_memory_tally){.size = size, .page = spry_memory_page(), .huge = spry_memory_huge_page()};
}

void spry_memory_tally_add(spry_memory_tally *t, size_t begin, size_t end)
{
    size_t huge_end = t->huge ? t->size / t->huge * t->huge : 0; /* the remainder is too small for a huge page */
    while (begin < end) {
        size_t step = begin < huge_end ? t->huge : t->page, first = begin / step * step;
        size_t last = end < huge_end || begin >= huge_end ? end : huge_end;
        size_t rest = last % step, whole = rest ? last + (step - rest) : last;
        first = first > t->end ? first : t->end;
        if (whole > first) {
            t->bytes += whole - first;
            t->end = whole;
        }
        begin = last;
    }
}

void spry_memory_wipe(void *memory, size_t bytes)
{
    static void *(*const volatile fill)(void *, int, size_t) = memset; /* unknown to the compiler */
    fill(memory, 0, bytes);
}
