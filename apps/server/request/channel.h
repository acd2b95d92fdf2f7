/* Records from the thread that computes to the thread of a connection. The writer never blocks; the reader waits for
 * records and for its client to disconnect at the same time. */
#ifndef SPRY_SERVER_CHANNEL_H
#define SPRY_SERVER_CHANNEL_H

#include <pthread.h>

#include "base/buffer.h"
#include "base/error.h"
#include "platform/wakeup.h"

typedef struct spry_channel {
    pthread_mutex_t lock;
    spry_buffer records;
    size_t n_done; /* writers that have finished */
    spry_wakeup wakeup;
} spry_channel;

/* The head of a record; `size` bytes follow it. */
typedef struct spry_record {
    uint32_t kind, choice;
    size_t size;
} spry_record;

/* `max`: bytes that may wait for the reader. */
spry_status spry_channel_init(spry_channel *channel, size_t max, spry_error *error);
void spry_channel_deinit(spry_channel *channel);

/* False when the reader is too far behind or memory is short; then nothing is appended. */
bool spry_channel_post(spry_channel *channel, uint32_t kind, uint32_t choice, const void *data, size_t size);

/* A writer has finished. It must not use the channel after this call. */
void spry_channel_post_done(spry_channel *channel);

/* Moves all records to `out`, which must be empty, and returns how many writers have finished. */
size_t spry_channel_take(spry_channel *channel, spry_buffer *out);

/* Until there are records or a writer has finished. `socket` -1: no client. `until_ns` 0: no limit. */
spry_wait_result spry_channel_wait(const spry_channel *channel, int socket, uint64_t until_ns);

#endif
