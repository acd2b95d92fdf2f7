/* Anonymous private mappings; total memory and memory in use. */
#include "platform/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/system_file.h"

enum { ARENAS = 4 };

void spry_memory_limit_arenas(void)
{
#if defined(__GLIBC__)
    mallopt(M_ARENA_MAX, ARENAS);
#endif
}

void spry_memory_trim(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

size_t spry_memory_page(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

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
    madvise(memory, bytes, MADV_HUGEPAGE); /* a hint; refusal has no effect */
#endif
    return memory;
}

void spry_memory_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

void spry_memory_drop(const void *memory, size_t bytes)
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

/* From /proc/meminfo, which a container may restrict; otherwise from sysconf. */
static size_t machine_memory(void)
{
    size_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file) {
        char line[256];
        while (!kib && fgets(line, sizeof line, file))
            if (sscanf(line, "MemTotal: %zu kB", &kib) != 1)
                kib = 0;
        fclose(file);
    }
    if (kib && kib <= SIZE_MAX / 1024)
        return kib * 1024;
    long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_size > 0 ? (size_t)pages * (size_t)page_size : 0;
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

bool spry_memory_is_short(const char *root)
{
    enum { TOO_FEW = 16, TOO_LONG = 10 }; /* a sixteenth of the memory; percent of the time */
    char text[512];
    size_t total = 0, available = 0, waited = 0;
    read_start(text, sizeof text, root, "/proc/meminfo");
    const char *line = strstr(text, "MemAvailable:");
    if (line && sscanf(text, "MemTotal: %zu kB", &total) == 1 &&
        sscanf(line, "MemAvailable: %zu kB", &available) == 1 && available < total / TOO_FEW)
        return true;
    read_start(text, sizeof text, root, "/proc/pressure/memory");
    line = strstr(text, "full avg10=");
    return line && sscanf(line, "full avg10=%zu", &waited) == 1 && waited >= TOO_LONG;
}

/* VmHWM rather than getrusage, which also counts the process image before exec. */
size_t spry_memory_peak(void)
{
    size_t kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && !kib && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %zu kB", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    struct rusage usage;
    if (!kib && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = (size_t)usage.ru_maxrss;
    return kib * 1024;
}

/* ---- what is resident -------------------------------------------------------------------------------------------- */

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

/* smaps_rollup is exact; statm may lag by some pages per processor. */
size_t spry_memory_now(void)
{
    size_t kib = 0, pages = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && !kib && fgets(line, sizeof line, file))
        if (sscanf(line, "Rss: %zu kB", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    if (!kib && read_line(line, sizeof line, "/proc/self/statm") && sscanf(line, "%*s %zu", &pages) == 1)
        return pages * spry_memory_page();
    return kib * 1024;
}

void spry_memory_wipe(void *memory, size_t bytes)
{
    explicit_bzero(memory, bytes);
}
