/* Large memory straight from the system: zeroed, page-aligned, committed only when touched, in huge pages where the
 * system allows it; and what of memory is in use. */
#ifndef SPRY_PLATFORM_MEMORY_H
#define SPRY_PLATFORM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* NULL when the system refuses or `bytes` is 0. Memory that can hold a huge page begins with one. */
void *spry_memory_map(size_t bytes);
void spry_memory_unmap(void *memory, size_t bytes);

/* Lets the system take back the whole pages in a part of a mapped file; they come back by themselves when read. Pages
 * of spry_memory_map come back as zeros. */
void spry_memory_drop(const void *memory, size_t bytes);

/* Brings a part of a mapped file into memory now rather than when it is first read. */
void spry_memory_fetch(const void *memory, size_t bytes);

/* Bytes of memory this process may use: the machine's, or its cgroup's or its own limit when that is less. */
size_t spry_memory_total(void);

/* Overwrites memory that held a secret; the compiler cannot leave this out, as it may a memset before a free. */
void spry_memory_wipe(void *memory, size_t bytes);

/* What of memory is resident: in whole pages, each counted where it begins, so that neighbours add up. False where the
 * system does not say. */
bool spry_memory_resident(size_t *bytes, const void *memory, size_t size);

/* What the system would take for parts of spry_memory_map(size) that are written to. */
typedef struct spry_memory_tally {
    size_t size, page, huge;
    size_t end;   /* of the last page counted */
    size_t bytes; /* so far */
} spry_memory_tally;

void spry_memory_tally_init(spry_memory_tally *tally, size_t size);
/* Bytes [begin, end), none of which begins before the last. */
void spry_memory_tally_add(spry_memory_tally *tally, size_t begin, size_t end);

/* Of a page, and of a huge one; that is 0 where memory does not come in huge pages. */
size_t spry_memory_page(void);
size_t spry_memory_huge_page(void);

/* Bytes of memory this process holds now; 0 where the system does not say. */
size_t spry_memory_now(void);

/* Bytes of memory this process has held at once, at most, since it began; 0 where the system does not say. */
size_t spry_memory_peak(void);

#endif
