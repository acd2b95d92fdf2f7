/* Large memory directly from the system: zeroed, page-aligned, committed when touched, in huge pages where the system
 * allows it; and the amount of memory in use. */
#ifndef SPRY_PLATFORM_MEMORY_H
#define SPRY_PLATFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* NULL when the system refuses or `bytes` is 0. A mapping that can hold a huge page is aligned to one. */
void *spry_memory_map(size_t bytes);
void spry_memory_unmap(void *memory, size_t bytes);

/* Releases the whole pages in a range: of spry_memory_map, which become zero; of a mapped file, which are read again on
 * access. */
void spry_memory_drop(void *memory, size_t bytes);
void spry_memory_drop_file(const void *memory, size_t bytes);

/* Reads a range of a mapped file into memory now instead of on first access. */
void spry_memory_fetch(const void *memory, size_t bytes);

/* Bytes of memory this process may use: the machine's memory, or a lower cgroup or process limit. */
size_t spry_memory_total(void);

/* Whether the machine is short of memory: less than a sixteenth is available, or the system reports that in the last
 * ten seconds all tasks waited for memory for more than a tenth of the time (pressure stall information). `root` is
 * prepended to the paths: "" on a real system, a folder in tests. Allocates nothing. */
bool spry_memory_is_short(const char *root);

/* Limits how many regions the C library's allocator reserves for threads of their own. A server has many threads that
 * rarely allocate at the same time, and each region takes 64 MiB of address space. Call it before threads start. */
void spry_memory_limit_arenas(void);

/* The size of an allocation of the C library, which is at least what was asked for; 0: the library does not say. */
size_t spry_memory_size(void *memory);

/* Gives freed memory that the C library's allocator keeps back to the system. */
void spry_memory_trim(void);

/* Overwrites memory that held a secret; unlike a memset before a free, the compiler cannot remove this call. */
void spry_memory_wipe(void *memory, size_t bytes);

/* Resident bytes of a range, in whole pages, each counted where it begins, so that adjacent ranges add up. False where
 * the system does not report it. */
bool spry_memory_resident(size_t *bytes, const void *memory, size_t size);

/* The memory that written parts of spry_memory_map(size) use. */
typedef struct spry_memory_tally {
    size_t size, page, huge;
    size_t end;   /* end of the last page counted */
    size_t bytes; /* bytes in use so far */
} spry_memory_tally;

void spry_memory_tally_init(spry_memory_tally *tally, size_t size);
/* Adds the bytes [begin, end); ranges must be added in increasing order. */
void spry_memory_tally_add(spry_memory_tally *tally, size_t begin, size_t end);

/* Size of a page and of a huge page; the latter is 0 where huge pages are not used. */
size_t spry_memory_page(void);
size_t spry_memory_huge_page(void);

/* Bytes of memory this process uses now; 0 where the system does not report it. */
size_t spry_memory_now(void);

/* Peak memory of this process in bytes; 0 where the system does not report it. */
size_t spry_memory_peak(void);

#endif
