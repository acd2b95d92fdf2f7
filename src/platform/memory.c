/* Anonymous private mappings, and the memory there is. */
#include "platform/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/cgroup.h"

void *spry_memory_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish; refusal changes nothing */
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
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)memory;
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* What /proc/meminfo says, which a container may narrow; what the kernel counts when it says nothing. */
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

/* VmHWM rather than getrusage: that one also counts what stood in this process before the program was started in it. */
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
