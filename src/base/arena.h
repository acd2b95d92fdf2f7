/* An arena: many small things with one lifetime. Memory is zeroed, aligned to 64 bytes on request, and freed all at
 * once. Pointers stay valid until spry_arena_deinit. */
#ifndef SPRY_BASE_ARENA_H
#define SPRY_BASE_ARENA_H

#include <stddef.h>

#include "base/view.h"

typedef struct spry_arena {
    struct spry_arena_block *head;
    size_t used, size; /* of the head block */
    size_t total;      /* bytes asked of the system */
} spry_arena;

void spry_arena_init(spry_arena *arena);
void spry_arena_deinit(spry_arena *arena);

/* Zeroed memory of `count` things of `size` bytes, aligned to 64; NULL when it does not fit or memory is short. */
void *spry_arena_alloc(spry_arena *arena, size_t count, size_t size);

/* A zero-terminated copy; NULL when memory is short. */
char *spry_arena_copy(spry_arena *arena, spry_view text);

#endif
