/* Large memory straight from the system: zeroed, page-aligned, committed only when touched. */
#ifndef SPRY_PLATFORM_MEMORY_H
#define SPRY_PLATFORM_MEMORY_H

#include <stddef.h>

/* NULL when the system refuses or `bytes` is 0. */
void *spry_memory_map(size_t bytes);
void spry_memory_unmap(void *memory, size_t bytes);

/* Bytes of memory this process may use: the machine's, or its cgroup's limit when that is less. */
size_t spry_memory_total(void);

#endif
