/* Limits of access keys: requests and tokens a minute, and requests at a time. An allowance is refilled steadily and
 * holds at most that of a minute. The tokens of a request are known when it ends, so a key may get into debt once, and
 * is refused until the debt is refilled. Without keys all clients share one allowance. */
#ifndef SPRY_SERVER_KEY_LIMITS_H
#define SPRY_SERVER_KEY_LIMITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0: no limit. */
typedef struct spry_key_rates {
    uint32_t requests, tokens; /* a minute */
    uint32_t concurrent;
} spry_key_rates;

typedef struct spry_key_use {
    double requests, tokens; /* used and not refilled */
    uint64_t at_ns;          /* as of this time */
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
