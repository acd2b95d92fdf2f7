/* Large memory straight from the system: zeroed, page-aligned, committed only when touched, in huge
 * pages where the system allows it. */
#ifndef SPRY_PLATFORM_MEMORY_H
#define SPRY_PLATFORM_MEMORY_H

#include <stddef.h>

/* NULL when the system refuses or `bytes` is 0. */
void *spry_memory_map(size_t bytes);
void spry_memory_unmap(void *memory, size_t bytes);

/* Lets the system take back the whole pages in a part of a mapped file; they come back by themselves when read. Pages
 * of spry_memory_map come back as zeros. */
void spry_memory_drop(const void *memory, size_t bytes);

/* Bytes of memory this process may use: the machine's, or its cgroup's or its own limit when that is less. */
size_t spry_memory_total(void);

/* Bytes of memory this process has held at once, at most, since it began; 0 where the system does not say. */
size_t spry_memory_peak(void);

#endif
