/* Stands in for malloc in a test program: counts what is allocated and not freed, and fails one allocation, or all from
 * one on. Shared libraries call these functions too. Not under a sanitizer, which stands in for malloc itself. */
#ifndef SPRY_TESTS_FAILING_MEMORY_H
#define SPRY_TESTS_FAILING_MEMORY_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "support/hostile.h"

#ifndef HOSTILE_SANITIZED

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

static atomic_long memory_live;    /* allocations that are not freed */
static atomic_long memory_fail_at; /* calls until one fails; 0: none does */
static bool memory_stays_short;    /* every later call fails too */

static bool memory_fails(void)
{
    if (!memory_fail_at)
        return false;
    long left = atomic_fetch_sub(&memory_fail_at, 1);
    if (left == 1 && memory_stays_short)
        memory_fail_at = 1;
    if (left == 1)
        errno = ENOMEM;
    return left == 1;
}

static void *memory_made(void *memory)
{
    memory_live += memory != NULL;
    return memory;
}

SPRY_API void *malloc(size_t size)
{
    return memory_fails() ? NULL : memory_made(__libc_malloc(size));
}

SPRY_API void *calloc(size_t count, size_t size)
{
    return memory_fails() ? NULL : memory_made(__libc_calloc(count, size));
}

SPRY_API void *realloc(void *memory, size_t size)
{
    if (memory_fails())
        return NULL;
    void *moved = __libc_realloc(memory, size);
    memory_live += !memory && moved;
    return moved;
}

SPRY_API void *aligned_alloc(size_t alignment, size_t size)
{
    return memory_fails() ? NULL : memory_made(__libc_memalign(alignment, size));
}

SPRY_API int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = memory_fails() ? NULL : memory_made(__libc_memalign(alignment, size));
    return *out ? 0 : ENOMEM;
}

SPRY_API void free(void *memory)
{
    memory_live -= memory != NULL;
    __libc_free(memory);
}

#endif
#endif
