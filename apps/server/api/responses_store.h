/* Responses that are kept in memory for previous_response_id, for a time and within a number of bytes; the oldest are
 * dropped first. They are found by a hash of their id. A response belongs to the access key that asked for it. */
#ifndef SPRY_SERVER_API_RESPONSES_STORE_H
#define SPRY_SERVER_API_RESPONSES_STORE_H

#include <jansson.h>
#include <pthread.h>
#include <stdint.h>

#include "base/view.h"

typedef struct spry_stored_response spry_stored_response;

enum { SPRY_RESPONSE_BUCKETS = 1 << 12 };

typedef struct spry_response_store {
    pthread_mutex_t lock;
    spry_stored_response *oldest, *newest;
    spry_stored_response *buckets[SPRY_RESPONSE_BUCKETS];
    size_t bytes, max_bytes;
    uint64_t keep_ns; /* 0: nothing is kept */
} spry_response_store;

void spry_response_store_init(spry_response_store *store, size_t max_bytes, uint32_t keep_s);
void spry_response_store_deinit(spry_response_store *store);

/* A part of a stored response, a new reference; NULL: there is no such response. */
typedef enum spry_stored_part { SPRY_STORED_RESPONSE, SPRY_STORED_MESSAGES, SPRY_STORED_INPUT } spry_stored_part;

#endif
