/* A POSIX system that nothing else is known of: facts that POSIX does not tell stay unknown. Chosen with
 * -DSPRY_PLATFORM=posix, on Linux too, where the tests then run the code that other systems use. */
#include "platform/os.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/memory.h"

void spry_os_begin_worker(void)
{
}

uint64_t spry_os_thread_ns(pthread_t thread)
{
    (void)thread;
    return 0;
}

size_t spry_os_processors(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

/* The names that systems with a /proc give the running program. */
bool spry_os_program(char *path, size_t size)
{
    static const char *const names[] = {"/proc/self/exe", "/proc/curproc/exe", "/proc/curproc/file"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ssize_t length = readlink(names[i], path, size - 1);
        path[length > 0 ? length : 0] = 0;
        if (length > 0)
            return true;
    }
    return false;
}

size_t spry_os_memory(void)
{
    long pages = -1, page = (long)spry_memory_page();
#if defined(_SC_PHYS_PAGES)
    pages = sysconf(_SC_PHYS_PAGES);
#endif
    return pages > 0 ? (size_t)pages * (size_t)page : 0;
}

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

/* Only what every processor of the kind has. */
uint32_t spry_os_cpu_features(void)
{
    uint32_t features = 0;
#if defined(__ARM_FEATURE_DOTPROD)
    features |= SPRY_CPU_DOTPROD;
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
    features |= SPRY_CPU_I8MM;
#endif
#if defined(__ARM_FEATURE_BF16)
    features |= SPRY_CPU_ARM_BF16;
#endif
    return features;
}

void spry_os_hardware(spry_hardware *hardware)
{
    (void)hardware;
}

void spry_os_machine_state(spry_machine_state *state)
{
    (void)state;
}

spry_status spry_os_open_energy(spry_energy_source *source, const spry_energy_system *system)
{
    (void)system;
    return spry_fail(&source->why, SPRY_ERR_UNSUPPORTED, "this system has no energy counter that spry knows");
}
