/* Blocks in a list, newest first. An object larger than a block gets its own block. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { ALIGNMENT = 64, BLOCK_BYTES = 1 << 16 };

struct spry_arena_block {
    struct spry_arena_block *next;
    unsigned char *data; /* aligned, inside this allocation */
};

void spry_arena_init(spry_arena *arena)
{
    *arena = (spry_arena){0};
}

void spry_arena_deinit(spry_arena *arena)
{
    struct spry_arena_block *block = arena->head;
    while (block) {
        struct spry_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (spry_arena){0};
}

static struct spry_arena_block *block_create(spry_arena *arena, size_t bytes)
{
    size_t whole;
    if (!spry_checked_add(&whole, bytes, sizeof(struct spry_arena_block) + ALIGNMENT))
        return NULL;
    struct spry_arena_block *block = calloc(1, whole);
    if (!block)
        return NULL;
    uintptr_t start = (uintptr_t)(block + 1);
    size_t shift = (ALIGNMENT - start % ALIGNMENT) % ALIGNMENT;
    block->data = (unsigned char *)(block + 1) + shift;
    arena->total += whole;
    return block;
}

void *spry_arena_alloc(spry_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!spry_checked_mul(&bytes, count, size) || !spry_checked_align(&bytes, bytes ? bytes : 1, ALIGNMENT))
        return NULL;
    if (arena->head && bytes <= arena->size - arena->used) {
        void *out = arena->head->data + arena->used;
        arena->used += bytes;
        return out;
    }
    bool own = bytes > BLOCK_BYTES / 4;
    struct spry_arena_block *block = block_create(arena, own ? bytes : BLOCK_BYTES);
    if (!block)
        return NULL;
    if (own && arena->head) { /* keep filling the current block */
        block->next = arena->head->next;
        arena->head->next = block;
        return block->data;
    }
    block->next = arena->head;
    arena->head = block;
    arena->size = own ? bytes : BLOCK_BYTES;
    arena->used = bytes;
    return block->data;
}

char *spry_arena_copy(spry_arena *arena, spry_view text)
{
    char *out = text.size < SIZE_MAX ? spry_arena_alloc(arena, text.size + 1, 1) : NULL;
    if (out && text.size)
        memcpy(out, text.data, text.size);
    return out;
}
