/* Access keys: one per line of a file; blank lines and lines that begin with '#' are ignored. After a key its line may
 * have settings: name=TEXT, requests=N, tokens=N, concurrent=N, and the word admin, without which it cannot change
 * models.
 *
 * The file can be read again while the server runs. A key keeps its number and its memory for the life of the server,
 * also when it is no longer in the file: requests, limits and stored responses refer to them.
 *
 * Keys have limits: requests and tokens a minute, and requests at a time. An allowance is refilled steadily and holds
 * at most that of a minute. The tokens of a request are known when it ends, so a key may get into debt once, and is
 * refused until the debt is refilled. Without keys all clients share one allowance. */
#ifndef SPRY_SERVER_ACCESS_KEYS_H
#define SPRY_SERVER_ACCESS_KEYS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

/* 0: no limit. */
typedef struct spry_key_rates {
    uint32_t requests, tokens; /* a minute */
    uint32_t concurrent;
} spry_key_rates;

enum { SPRY_ACCESS_KEYS_MAX = 1024, SPRY_ACCESS_KEY_BYTES = 256, SPRY_KEY_NAME_BYTES = 64 };

typedef struct spry_access_key {
    char *text; /* SPRY_ACCESS_KEY_BYTES + 1; never moves */
    size_t size;
    char name[SPRY_KEY_NAME_BYTES]; /* for logs; empty: none was given */
    spry_key_rates rates;
    bool admin;
    bool gone; /* no longer in the file */
} spry_access_key;

typedef struct spry_access_keys {
    pthread_rwlock_t lock; /* guards all members below; a `count` of 0 never changes */
    spry_access_key *keys; /* [SPRY_ACCESS_KEYS_MAX] */
    atomic_size_t count;   /* 0: no key is needed */
} spry_access_keys;

/* `path` NULL: no keys. A file without keys is an error, because it would disable the check. `rates`: of keys that
 * have none of their own. */
spry_status spry_access_keys_init(spry_access_keys *keys, const char *path, const spry_key_rates *rates,
                                  spry_error *error);
void spry_access_keys_deinit(spry_access_keys *keys);

/* Reads the file again; after an error all is as it was before. */
spry_status spry_access_keys_read(spry_access_keys *keys, const char *path, const spry_key_rates *rates,
                                  spry_error *error);

/* The index of a key, or -1; *key is a copy of what is known about it. Takes the same time for every wrong key. */
int spry_access_keys_find(spry_access_keys *keys, spry_access_key *key, spry_view given);

void spry_access_keys_name(spry_access_keys *keys, char name[SPRY_KEY_NAME_BYTES], size_t index);

/* ---- limits ------------------------------------------------------------------------------------------------------ */

typedef struct spry_key_use {
    double requests, tokens; /* used and not refilled */
    uint64_t at_ns;          /* time to which the values above belong */
    uint32_t open;           /* requests without a complete reply */
} spry_key_use;

typedef struct spry_key_limits {
    pthread_mutex_t lock;
    size_t count;
    spry_key_use *use; /* [count] */
} spry_key_limits;

/* False: memory is short. */
bool spry_key_limits_init(spry_key_limits *limits, size_t count);
void spry_key_limits_deinit(spry_key_limits *limits);

/* Counts a request that begins. NULL: it may. Otherwise the limit that it would pass, in words; it may be tried again
 * in *retry_s seconds, and was not counted. */
const char *spry_key_limits_begin(spry_key_limits *limits, size_t key, const spry_key_rates *rates, uint64_t now_ns,
                                  uint32_t *retry_s);

/* A request that began has ended. */
void spry_key_limits_end(spry_key_limits *limits, size_t key);

/* Charges tokens that were computed. */
void spry_key_limits_charge(spry_key_limits *limits, size_t key, size_t tokens);

#endif
