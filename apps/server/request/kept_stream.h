/* Streams of answers that outlive their connection, for requests with "stream_id". The whole stream is kept while it is
 * written and for a minute after that, so a client that reloads or loses its connection reads on from the last event it
 * has. An answer that has had no reader for that minute is not wanted any more.
 *
 * One writer appends to a stream; any number of threads read it. A stream belongs to the access key that asked for it.
 */
#ifndef SPRY_SERVER_KEPT_STREAM_H
#define SPRY_SERVER_KEPT_STREAM_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/view.h"

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

/* The stream with one more reader; NULL: there is none. */
spry_kept_stream *spry_kept_streams_find(spry_kept_streams *streams, const char *id, spry_view key);

const char *spry_kept_stream_type(const spry_kept_stream *stream);

/* The position behind the event that begins at `id`, its number in the stream; false when none begins there. */
bool spry_kept_stream_seek(spry_kept_stream *stream, size_t *position, size_t id);

/* Copies bytes from `position` on and advances it. When there are none, waits for at most `wait_ms`. Returns 0 when
 * there are still none, -1 at the end of the stream. */
ssize_t spry_kept_stream_read(spry_kept_stream *stream, char *out, size_t *position, size_t size, uint32_t wait_ms);

/* Its writer stops soon. */
void spry_kept_stream_cancel(spry_kept_stream *stream);

/* The last call of a reader. */
void spry_kept_stream_leave(spry_kept_stream *stream);

#endif
