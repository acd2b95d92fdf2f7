/* What all public functions share: statuses and error messages, log messages, and structs that grow from version to
 * version. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/meter.h"
#include "base/utf8.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Statuses and error messages. */

#ifndef SPRY_VERSION
#define SPRY_VERSION "0"
#endif

const char *spry_version(void)
{
    return SPRY_VERSION;
}

void spry_free(void *memory)
{
    free(memory);
}

uint32_t spry_version_number(void)
{
    return SPRY_VERSION_NUMBER;
}

const char *spry_status_name(spry_status status)
{
    static const char *const names[] = {
        [SPRY_OK] = "ok",
        [SPRY_ERR_INPUT] = "input",
        [SPRY_ERR_FILE] = "file",
        [SPRY_ERR_FORMAT] = "format",
        [SPRY_ERR_UNSUPPORTED] = "unsupported",
        [SPRY_ERR_MEMORY] = "memory",
        [SPRY_ERR_CONTEXT] = "context",
        [SPRY_ERR_CANCELLED] = "cancelled",
        [SPRY_ERR_BUSY] = "busy",
        [SPRY_ERR_DEVICE] = "device",
    };
    return (size_t)status < SPRY_COUNT(names) ? names[status] : "unknown";
}

/* Names in messages come from untrusted files: bytes that are unsafe in a terminal or invalid in JSON become '?'. */
static void make_printable(char *text)
{
    size_t size = strlen(text), length;
    for (size_t at = 0; at < size; at += length) {
        uint32_t character;
        length = spry_utf8_decode(&character, text + at, size - at);
        bool printable = length && character >= 0x20 && (character < 0x7f || character > 0x9f);
        if (!length)
            length = 1;
        if (!printable)
            memset(text + at, '?', length);
    }
}

spry_status spry_fail(spry_error *error, spry_status status, const char *format, ...)
{
    if (!error)
        return status;
    error->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    make_printable(error->message);
    return status;
}

spry_status spry_fail_memory(spry_error *error, const char *what, size_t bytes)
{
    spry_meter_count_shortage();
    return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for %s (%zu bytes)", what, bytes);
}

spry_status spry_fail_prefix(spry_error *error, spry_status status, const char *prefix)
{
    if (!error)
        return status;
    char rest[SPRY_ERROR_MAX];
    memcpy(rest, error->message, sizeof rest);
    return spry_fail(error, status, "%.200s: %.300s", prefix, rest);
}

/* ---- log messages ------------------------------------------------------------------------------------------------ */

void spry_log_write(const spry_log *log, int level, const char *format, ...)
{
    if (!log || !log->write)
        return;
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    log->write(log->user, level, sentence);
}

/* ---- sized structs ----------------------------------------------------------------------------------------------- */

/* A size beyond this is garbage: nothing that far after the struct is read. */
enum { SIZE_MOST = 1 << 16 };

bool spry_sized_zero(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    unsigned char any = 0;
    for (size_t i = 0; i < count; i++)
        any |= at[i];
    return any == 0;
}

void spry_sized_default(void *theirs, size_t size, const void *own, size_t own_size)
{
    size_t known = size < own_size ? size : own_size;
    if (size < sizeof size)
        return;
    memcpy(theirs, own, known);
    memset((char *)theirs + known, 0, size - known);
    memcpy(theirs, &size, sizeof size);
}

spry_status spry_sized_read(void *own, size_t own_size, const void *theirs, const char *what, spry_error *error)
{
    size_t size;
    if (!theirs)
        return SPRY_OK;
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size || size > SIZE_MOST)
        return spry_fail(error, SPRY_ERR_INPUT, "%s.size is %zu: initialise the struct with %s_default", what, size,
                         what);
    if (size > own_size && !spry_sized_zero((const char *)theirs + own_size, size - own_size))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s has %zu bytes and sets a member that this version of the library, which knows %zu, lacks",
                         what, size, own_size);
    memcpy(own, theirs, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return SPRY_OK;
}
