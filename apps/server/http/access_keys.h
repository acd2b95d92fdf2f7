/* The keys that may ask: one a line in a file, blank lines and lines that begin with '#' left out. */
#ifndef SPRY_SERVER_ACCESS_KEYS_H
#define SPRY_SERVER_ACCESS_KEYS_H

#include "base/buffer.h"
#include "base/error.h"

enum { SPRY_ACCESS_KEYS_MAX = 1024, SPRY_ACCESS_KEY_BYTES = 256 };

typedef struct spry_access_keys {
    spry_buffer text; /* the file; keys point into it */
    spry_view keys[SPRY_ACCESS_KEYS_MAX];
    size_t count; /* 0: everybody may */
} spry_access_keys;

/* `path` NULL: no keys. A file without any is an error: it would let everybody in. */
spry_status spry_access_keys_init(spry_access_keys *keys, const char *path, spry_error *error);
void spry_access_keys_deinit(spry_access_keys *keys);

/* Which key `given` is, or -1. Takes the same time whether it is nearly right or not at all. */
int spry_access_keys_find(const spry_access_keys *keys, spry_view given);

#endif
