/* The capacity doubles until it reaches the maximum. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

void spry_buffer_init(spry_buffer *buffer, size_t max)
{
    *buffer = (spry_buffer){.max = max};
}

void spry_buffer_deinit(spry_buffer *buffer)
{
    free(buffer->data);
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
    char *data = realloc(buffer->data, capacity);
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
