/* Reading structs of older and newer programs. */
#include "base/sized.h"

#include <string.h>

/* A size beyond this is garbage: nothing that far behind the struct is read. */
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
