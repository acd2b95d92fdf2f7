/* The kernel ends such a file with a newline; a text without one was truncated. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "platform/energy_impl.h"

bool spry_sysfs_path(char out[PATH_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, PATH_MAX, format, args);
    va_end(args);
    return length >= 0 && length < PATH_MAX;
}

int spry_sysfs_text(char out[SPRY_SYSFS_TEXT], const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return errno;
    ssize_t size = read(descriptor, out, SPRY_SYSFS_TEXT);
    int failure = size < 0 ? errno : 0;
    close(descriptor);
    if (failure)
        return failure;
    if (size == 0 || memchr(out, '\n', (size_t)size) != out + size - 1 || memchr(out, 0, (size_t)size))
        return EINVAL;
    out[size - 1] = 0;
    return 0;
}

int spry_sysfs_u64(uint64_t *out, const char *path)
{
    char text[SPRY_SYSFS_TEXT];
    int failure = spry_sysfs_text(text, path);
    return failure ? failure : spry_number_u64(out, spry_view_of(text)) ? 0 : EINVAL;
}
