/* A growable byte buffer with a fixed maximum. After a failed append the buffer stays failed, so a series of appends
 * needs one check at the end. The byte after `size` is always zero. */
#ifndef SPRY_BASE_BUFFER_H
#define SPRY_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

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

/* Room for `size` more bytes, counted as appended, for the caller to fill; NULL on failure. */
void *spry_buffer_extend(spry_buffer *buffer, size_t size);

/* Drops `size` bytes from the front. */
void spry_buffer_consume(spry_buffer *buffer, size_t size);

static inline spry_view spry_buffer_view(const spry_buffer *buffer)
{
    return (spry_view){buffer->data ? buffer->data : "", buffer->size};
}

#endif
