/* An arena: many small objects with one lifetime. Memory is zeroed, aligned to 64 bytes, and freed all at once.
 * Pointers stay valid until spry_arena_deinit. */
#ifndef SPRY_BASE_ARENA_H
#define SPRY_BASE_ARENA_H

#include <stddef.h>

#include "base/view.h"

typedef struct spry_arena {
    struct spry_arena_block *head;
    size_t used, size; /* of the head block */
    size_t total;      /* bytes requested from the system */
} spry_arena;

void spry_arena_init(spry_arena *arena);
void spry_arena_deinit(spry_arena *arena);

/* Allocates `count` objects of `size` bytes, zeroed and aligned to 64 bytes. NULL when the size overflows or memory is
 * short. */
void *spry_arena_alloc(spry_arena *arena, size_t count, size_t size);

/* A zero-terminated copy; NULL when memory is short. */
char *spry_arena_copy(spry_arena *arena, spry_view text);

#endif
