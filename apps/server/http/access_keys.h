/* Access keys: one per line of a file; blank lines and lines that begin with '#' are ignored. Behind a key may stand
 * settings of its own: name=TEXT, requests=N, tokens=N, concurrent=N. */
#ifndef SPRY_SERVER_ACCESS_KEYS_H
#define SPRY_SERVER_ACCESS_KEYS_H

#include "base/buffer.h"
#include "base/error.h"
#include "server/http/key_limits.h"

enum { SPRY_ACCESS_KEYS_MAX = 1024, SPRY_ACCESS_KEY_BYTES = 256 };

typedef struct spry_access_keys {
    spry_buffer text; /* the file; keys point into it */
    spry_view keys[SPRY_ACCESS_KEYS_MAX];
    spry_view names[SPRY_ACCESS_KEYS_MAX]; /* for logs; empty: none was given */
    spry_key_rates rates[SPRY_ACCESS_KEYS_MAX];
    size_t count; /* 0: no key is needed */
} spry_access_keys;

/* `path` NULL: no keys. A file without keys is an error, because it would disable the check. `rates`: of keys that have
 * none of their own. */
spry_status spry_access_keys_init(spry_access_keys *keys, const char *path, const spry_key_rates *rates,
                                  spry_error *error);
void spry_access_keys_deinit(spry_access_keys *keys);

/* The index of a key, or -1. Takes the same time for every wrong key. */
int spry_access_keys_find(const spry_access_keys *keys, spry_view given);

#endif
