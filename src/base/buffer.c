/* Growable storage: arenas, byte buffers, arrays of token ids. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/meter.h"
#include "base/number.h"

/* ---- arenas ------------------------------------------------------------------------------------------------------ */

/* Blocks in a list, newest first. An object larger than a block gets its own block. */

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
    spry_meter_give(arena->total);
    *arena = (spry_arena){0};
}

static struct spry_arena_block *block_create(spry_arena *arena, size_t bytes)
{
    size_t whole;
    if (!spry_checked_add(&whole, bytes, sizeof(struct spry_arena_block) + ALIGNMENT))
        return NULL;
    struct spry_arena_block *block = spry_meter_take(whole) ? calloc(1, whole) : NULL;
    if (!block) {
        spry_meter_count_shortage();
        return NULL;
    }
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

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* `memory` of `before` bytes made larger; NULL: memory is short. */
static void *grow(void *memory, size_t before, size_t bytes)
{
    void *larger = spry_meter_take(bytes - before) ? realloc(memory, bytes) : NULL;
    if (!larger)
        spry_meter_count_shortage();
    return larger;
}

/* The capacity doubles until it reaches the maximum. */

void spry_buffer_init(spry_buffer *buffer, size_t max)
{
    *buffer = (spry_buffer){.max = max};
}

void spry_buffer_deinit(spry_buffer *buffer)
{
    free(buffer->data);
    spry_meter_give(buffer->capacity);
    *buffer = (spry_buffer){.max = buffer->max};
}

void spry_buffer_clear(spry_buffer *buffer)
{
    buffer->size = 0;
    buffer->failed = false;
    if (buffer->data)
        buffer->data[0] = 0;
}

static bool reserve(spry_buffer *buffer, size_t more)
{
    size_t need, with_zero;
    if (buffer->failed)
        return false;
    if (!spry_checked_add(&need, buffer->size, more) || need > buffer->max || !spry_checked_add(&with_zero, need, 1))
        return !(buffer->failed = true);
    if (with_zero <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity > SIZE_MAX / 2 ? SIZE_MAX : buffer->capacity * 2;
    if (capacity < 64)
        capacity = 64;
    if (capacity < with_zero)
        capacity = with_zero;
    char *data = grow(buffer->data, buffer->capacity, capacity);
    if (!data)
        return !(buffer->failed = true);
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void *spry_buffer_extend(spry_buffer *buffer, size_t size)
{
    if (!reserve(buffer, size))
        return NULL;
    char *out = buffer->data + buffer->size;
    buffer->size += size;
    buffer->data[buffer->size] = 0;
    return out;
}

bool spry_buffer_append(spry_buffer *buffer, const void *data, size_t size)
{
    void *room = spry_buffer_extend(buffer, size);
    if (room && size)
        memcpy(room, data, size);
    return room != NULL;
}

bool spry_buffer_text(spry_buffer *buffer, const char *zero_terminated)
{
    return spry_buffer_append(buffer, zero_terminated, strlen(zero_terminated));
}

bool spry_buffer_format(spry_buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = length >= 0 && reserve(buffer, (size_t)length);
    if (ok) {
        vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, again);
        buffer->size += (size_t)length;
    }
    va_end(again);
    return ok;
}

void spry_buffer_consume(spry_buffer *buffer, size_t size)
{
    if (size > buffer->size)
        size = buffer->size;
    if (!size)
        return;
    memmove(buffer->data, buffer->data + size, buffer->size - size + 1);
    buffer->size -= size;
}

/* ---- arrays of token ids ----------------------------------------------------------------------------------------- */

void spry_buffer_base64(spry_buffer *buffer, spry_view bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *data = (const unsigned char *)bytes.data;
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t n = bytes.size - i;
        uint32_t three = (uint32_t)data[i] << 16 | (n > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (n > 2 ? data[i + 2] : 0);
        const char four[] = {digits[three >> 18], digits[three >> 12 & 63], n > 1 ? digits[three >> 6 & 63] : '=',
                             n > 2 ? digits[three & 63] : '='};
        spry_buffer_append(buffer, four, sizeof four);
    }
}

/* Arrays of token ids. */

void spry_tokens_deinit(spry_tokens *tokens)
{
    free(tokens->ids);
    spry_meter_give(tokens->capacity * sizeof *tokens->ids);
    *tokens = (spry_tokens){0};
}

bool spry_tokens_push(spry_tokens *tokens, int32_t id)
{
    if (SPRY_UNLIKELY(tokens->count == tokens->capacity)) {
        size_t capacity = tokens->capacity ? tokens->capacity * 2 : 256, bytes;
        if (tokens->capacity > SIZE_MAX / 2 || !spry_checked_mul(&bytes, capacity, sizeof *tokens->ids))
            return false;
        int32_t *ids = grow(tokens->ids, tokens->capacity * sizeof *tokens->ids, bytes);
        if (!ids)
            return false;
        tokens->ids = ids;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return true;
}
