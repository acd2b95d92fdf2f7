/* A clock that a test moves on: the library's clock plus the nanoseconds in the first 8 bytes of the file that
 * SPRY_TEST_CLOCK names. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

uint64_t __real_spry_clock_ns(void);
uint64_t __wrap_spry_clock_ns(void);

static const volatile uint64_t *moved;

__attribute__((constructor)) static void map_file(void)
{
    static const uint64_t unmoved;
    const char *path = getenv("SPRY_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *bytes = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    moved = bytes == MAP_FAILED ? &unmoved : bytes;
}

uint64_t __wrap_spry_clock_ns(void)
{
    return __real_spry_clock_ns() + *moved;
}
