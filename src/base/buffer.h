/* A growable byte buffer with a fixed maximum. After a failed append the buffer stays failed, so a series of appends
 * needs one check at the end. The byte after `size` is always zero. */
#ifndef SPRY_BASE_BUFFER_H
#define SPRY_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/view.h"

typedef struct spry_buffer {
    char *data; /* NULL until the first append */
    size_t size, capacity, max;
    bool failed; /* memory was short or `max` would have been exceeded */
} spry_buffer;

void spry_buffer_init(spry_buffer *buffer, size_t max);
void spry_buffer_deinit(spry_buffer *buffer);
void spry_buffer_clear(spry_buffer *buffer);

bool spry_buffer_append(spry_buffer *buffer, const void *data, size_t size);
bool spry_buffer_text(spry_buffer *buffer, const char *zero_terminated);
bool spry_buffer_format(spry_buffer *buffer, const char *format, ...) SPRY_PRINTF(2, 3);

/* Appends the bytes in base64. */
void spry_buffer_base64(spry_buffer *buffer, spry_view bytes);

/* Room for `size` more bytes, counted as appended, for the caller to fill; NULL on failure. */
void *spry_buffer_extend(spry_buffer *buffer, size_t size);

/* Drops `size` bytes from the front. */
void spry_buffer_consume(spry_buffer *buffer, size_t size);

static inline spry_view spry_buffer_view(const spry_buffer *buffer)
{
    return (spry_view){buffer->data ? buffer->data : "", buffer->size};
}

/* A growable array of token ids, bounded like a buffer. */

typedef struct spry_tokens {
    int32_t *ids;
    size_t count, capacity;
} spry_tokens;

void spry_tokens_deinit(spry_tokens *tokens);
bool spry_tokens_push(spry_tokens *tokens, int32_t id);

/* An arena: many small objects with one lifetime. Memory is zeroed, aligned to 64 bytes, and freed all at once.
 * Pointers stay valid until spry_arena_deinit. */

typedef struct spry_arena {
    struct spry_arena_block *head;
    size_t used, size; /* bytes of the head block */
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
