/* Bytes from one thread to another: the channel of a request, and streams that outlive their connection. */
#ifndef SPRY_SERVER_REQUEST_STREAMS_H
#define SPRY_SERVER_REQUEST_STREAMS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/view.h"
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

/* ---- kept streams ------------------------------------------------------------------------------------------------ */

/* Streams of answers that outlive their connection, for requests with "stream_id". The whole stream is kept while it is
 * written and for a minute after that, so a client that reloads or loses its connection reads on from the last event it
 * has. An answer that has had no reader for that minute is not wanted any more.
 *
 * One writer appends to a stream; any number of threads read it. A stream belongs to the access key that asked for it.
 */

enum { SPRY_STREAM_ID_MIN = 16, SPRY_STREAM_ID_MAX = 64, SPRY_STREAM_KEEP_S = 60 };

typedef struct spry_kept_stream spry_kept_stream;

typedef struct spry_kept_streams {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* bytes were appended, or a stream ended */
    spry_kept_stream *first;
} spry_kept_streams;

void spry_kept_streams_init(spry_kept_streams *streams);
void spry_kept_streams_deinit(spry_kept_streams *streams);

/* 16 to 64 letters, digits, '-' and '_'. */
bool spry_kept_stream_id_valid(const char *id);

/* ---- the writer -------------------------------------------------------------------------------------------------- */

/* A new stream with one reader, the connection of its request; `type` is its content type, which is borrowed. NULL: the
 * id is in use, too many streams are kept, or memory is short. */
spry_kept_stream *spry_kept_streams_open(spry_kept_streams *streams, const char *id, spry_view key, const char *type);

size_t spry_kept_stream_size(spry_kept_stream *stream);

/* Moves the bytes of `from` to the stream. Without memory for them the stream is not wanted any more. */
void spry_kept_stream_append(spry_kept_stream *stream, spry_buffer *from);

/* False once it is cancelled, or has had no reader for a minute; with `leaving`, as soon as it has no reader. */
bool spry_kept_stream_wanted(spry_kept_stream *stream, bool leaving);

/* The last call of the writer. An empty stream is dropped at once. */
void spry_kept_stream_end(spry_kept_stream *stream);

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* Copies bytes from `position` on and advances it. When there are none, waits for at most `wait_ms`. Returns 0 when
 * there are still none, -1 at the end of the stream. */
ssize_t spry_kept_stream_read(spry_kept_stream *stream, char *out, size_t *position, size_t size, uint32_t wait_ms);

/* The last call of a reader. */
void spry_kept_stream_leave(spry_kept_stream *stream);

#endif
