/* From the scheduler's thread to a connection's: bytes under a lock and a bell. The writer never waits; the reader
 * waits for the bell and for the client's leaving at once. */
#ifndef SPRY_SERVER_CHANNEL_H
#define SPRY_SERVER_CHANNEL_H

#include <pthread.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_channel {
    pthread_mutex_t lock;
    spry_buffer records;
    size_t n_done; /* answers that are over */
    int bell;      /* an eventfd */
} spry_channel;

/* A piece of news about one answer; `size` bytes follow it. */
typedef struct spry_record {
    uint32_t kind, choice;
    size_t size;
} spry_record;

/* `max`: bytes that may wait for the reader. */
spry_status spry_channel_init(spry_channel *channel, size_t max, spry_error *error);
void spry_channel_deinit(spry_channel *channel);

/* False when the reader is too far behind or memory is short; nothing is appended then. */
bool spry_channel_post(spry_channel *channel, uint32_t kind, uint32_t choice, const void *data, size_t size);

/* An answer is over. Its writer touches the channel no more once this returns. */
void spry_channel_post_done(spry_channel *channel);

/* Moves what has come to `out`, which must be empty, and says how many answers are over. */
size_t spry_channel_take(spry_channel *channel, spry_buffer *out);

typedef enum spry_waited {
    SPRY_WAITED_NEWS,
    SPRY_WAITED_GONE, /* the client has left, or closed its side */
    SPRY_WAITED_LATE, /* `until_ns` has passed */
} spry_waited;

/* `socket` -1: nobody can leave. `until_ns` on spry_clock_ns; 0: for ever. */
spry_waited spry_channel_wait(spry_channel *channel, int socket, uint64_t until_ns);

/* Waits on a socket alone, for `ms`: true when the client has left by then. */
bool spry_channel_client_left(int socket, int ms);

#endif
