#include "server/request/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "server/api/apis.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"

spry_status spry_channel_init(spry_channel *c, size_t max, spry_error *error)
{
    c->n_done = 0;
    if (!spry_wakeup_init(&c->wakeup))
        return spry_fail(error, SPRY_ERR_MEMORY, "too many open files to take another request");
    if (pthread_mutex_init(&c->lock, NULL)) {
        spry_wakeup_deinit(&c->wakeup);
        return spry_fail_memory(error, "a lock", sizeof c->lock);
    }
    spry_buffer_init(&c->records, max);
    return SPRY_OK;
}

void spry_channel_deinit(spry_channel *c)
{
    spry_buffer_deinit(&c->records);
    pthread_mutex_destroy(&c->lock);
    spry_wakeup_deinit(&c->wakeup);
}

bool spry_channel_post(spry_channel *c, uint32_t kind, uint32_t choice, const void *data, size_t size)
{
    spry_record record = {kind, choice, size};
    pthread_mutex_lock(&c->lock);
    bool was_empty = c->records.size == 0;
    size_t before = c->records.size;
    bool fits = spry_buffer_append(&c->records, &record, sizeof record) && spry_buffer_append(&c->records, data, size);
    if (!fits)
        c->records.size = before;
    if (fits && was_empty)
        spry_wakeup_raise(&c->wakeup);
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void spry_channel_post_done(spry_channel *c)
{
    pthread_mutex_lock(&c->lock);
    c->n_done++;
    spry_wakeup_raise(&c->wakeup);
    pthread_mutex_unlock(&c->lock);
}

size_t spry_channel_take(spry_channel *c, spry_buffer *out)
{
    pthread_mutex_lock(&c->lock);
    spry_buffer empty = *out;
    *out = c->records;
    c->records = empty;
    spry_wakeup_clear(&c->wakeup);
    size_t n_done = c->n_done;
    pthread_mutex_unlock(&c->lock);
    return n_done;
}

spry_wait_result spry_channel_wait(const spry_channel *c, int socket, uint64_t until_ns)
{
    return spry_wakeup_wait(&c->wakeup, socket, until_ns);
}

/* ---- kept streams ------------------------------------------------------------------------------------------------ */

/* One lock and one condition for all streams: there are few, and every critical section only copies bytes. Streams
 * whose time is over are dropped when the list is next used. */

enum { STREAMS_MAX = 64, STREAM_BYTES_MAX = 64 << 20 };

struct spry_kept_stream {
    spry_kept_stream *next;
    spry_kept_streams *owner;
    char id[SPRY_STREAM_ID_MAX + 1];
    const char *key; /* by address; NULL: the server has no keys */
    const char *type;
    spry_buffer bytes;
    unsigned n_readers;
    uint64_t left_ns; /* when the last reader left or, later, when it ended */
    bool ended, cancelled;
};

void spry_kept_streams_init(spry_kept_streams *streams)
{
    *streams = (spry_kept_streams){0};
    pthread_mutex_init(&streams->lock, NULL);
    spry_background_condition(&streams->changed);
}

static void drop(spry_kept_stream **link)
{
    spry_kept_stream *stream = *link;
    *link = stream->next;
    spry_buffer_deinit(&stream->bytes);
    free(stream);
}

void spry_kept_streams_deinit(spry_kept_streams *streams)
{
    while (streams->first)
        drop(&streams->first);
    pthread_cond_destroy(&streams->changed);
    pthread_mutex_destroy(&streams->lock);
}

bool spry_kept_stream_id_valid(const char *id)
{
    size_t size = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");
    return size >= SPRY_STREAM_ID_MIN && size <= SPRY_STREAM_ID_MAX && !id[size];
}

static bool is_over(const spry_kept_stream *stream)
{
    return !stream->n_readers && spry_clock_ns() - stream->left_ns > (uint64_t)SPRY_STREAM_KEEP_S * 1000000000;
}

/* Under the lock: drops streams whose time is over; returns how many are left. */
static size_t drop_old(spry_kept_streams *streams)
{
    size_t count = 0;
    for (spry_kept_stream **link = &streams->first; *link;) {
        const spry_kept_stream *stream = *link;
        if (stream->ended && (is_over(stream) || (!stream->bytes.size && !stream->n_readers))) {
            drop(link);
        } else {
            link = &(*link)->next;
            count++;
        }
    }
    return count;
}

/* Under the lock. */
static spry_kept_stream *find(const spry_kept_streams *streams, const char *id, spry_view key)
{
    spry_kept_stream *stream = streams->first;
    while (stream && (strcmp(stream->id, id) != 0 || stream->key != key.data))
        stream = stream->next;
    return stream;
}

/* ---- the writer -------------------------------------------------------------------------------------------------- */

spry_kept_stream *spry_kept_streams_open(spry_kept_streams *streams, const char *id, spry_view key, const char *type)
{
    spry_kept_stream *stream = NULL;
    pthread_mutex_lock(&streams->lock);
    if (drop_old(streams) < STREAMS_MAX && !find(streams, id, key))
        stream = calloc(1, sizeof *stream);
    if (stream) {
        *stream =
            (spry_kept_stream){.next = streams->first, .owner = streams, .key = key.data, .type = type, .n_readers = 1};
        snprintf(stream->id, sizeof stream->id, "%s", id);
        spry_buffer_init(&stream->bytes, STREAM_BYTES_MAX);
        streams->first = stream;
    }
    pthread_mutex_unlock(&streams->lock);
    return stream;
}

size_t spry_kept_stream_size(spry_kept_stream *stream)
{
    pthread_mutex_lock(&stream->owner->lock);
    size_t size = stream->bytes.size;
    pthread_mutex_unlock(&stream->owner->lock);
    return size;
}

void spry_kept_stream_append(spry_kept_stream *stream, spry_buffer *from)
{
    if (!from->size)
        return;
    pthread_mutex_lock(&stream->owner->lock);
    if (!spry_buffer_append(&stream->bytes, from->data, from->size))
        stream->cancelled = true;
    pthread_cond_broadcast(&stream->owner->changed);
    pthread_mutex_unlock(&stream->owner->lock);
    spry_buffer_clear(from);
}

bool spry_kept_stream_wanted(spry_kept_stream *stream, bool leaving)
{
    pthread_mutex_lock(&stream->owner->lock);
    bool wanted = !stream->cancelled && !is_over(stream) && (stream->n_readers || !leaving);
    pthread_mutex_unlock(&stream->owner->lock);
    return wanted;
}

void spry_kept_stream_end(spry_kept_stream *stream)
{
    spry_kept_streams *streams = stream->owner;
    pthread_mutex_lock(&streams->lock);
    stream->ended = true;
    stream->left_ns = spry_clock_ns();
    pthread_cond_broadcast(&streams->changed);
    drop_old(streams);
    pthread_mutex_unlock(&streams->lock);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* The stream with one more reader; NULL: there is none. */
static spry_kept_stream *kept_streams_find(spry_kept_streams *streams, const char *id, spry_view key)
{
    pthread_mutex_lock(&streams->lock);
    drop_old(streams);
    spry_kept_stream *stream = find(streams, id, key);
    if (stream)
        stream->n_readers++;
    pthread_mutex_unlock(&streams->lock);
    return stream;
}

static const char *kept_stream_type(const spry_kept_stream *stream)
{
    return stream->type;
}

/* The position after the event that begins at `id`, its number in the stream; false when none begins there. */
static bool kept_stream_seek(spry_kept_stream *stream, size_t *position, size_t id)
{
    char head[40];
    pthread_mutex_lock(&stream->owner->lock);
    spry_view all = spry_buffer_view(&stream->bytes);
    size_t n = (size_t)snprintf(head, sizeof head, "id: %zu\n", id);
    bool found = id <= all.size && n <= all.size - id && memcmp(all.data + id, head, n) == 0;
    while (found && id + 2 <= all.size && memcmp(all.data + id, "\n\n", 2) != 0)
        id++;
    *position = id + 2;
    pthread_mutex_unlock(&stream->owner->lock);
    return found;
}

ssize_t spry_kept_stream_read(spry_kept_stream *stream, char *out, size_t *position, size_t size, uint32_t wait_ms)
{
    pthread_mutex_lock(&stream->owner->lock);
    uint64_t now = spry_clock_ns(), until = now + (uint64_t)wait_ms * 1000000;
    for (; *position >= stream->bytes.size && !stream->ended && now < until; now = spry_clock_ns())
        spry_background_wait(&stream->owner->changed, &stream->owner->lock, until - now);
    size_t n = stream->bytes.size > *position ? stream->bytes.size - *position : 0;
    ssize_t result = n || !stream->ended ? (ssize_t)(n < size ? n : size) : -1;
    if (n && result > 0)
        memcpy(out, stream->bytes.data + *position, (size_t)result);
    *position += result > 0 ? (size_t)result : 0;
    pthread_mutex_unlock(&stream->owner->lock);
    return result;
}

/* Its writer stops soon. */
static void kept_stream_cancel(spry_kept_stream *stream)
{
    pthread_mutex_lock(&stream->owner->lock);
    stream->cancelled = true;
    pthread_mutex_unlock(&stream->owner->lock);
}

void spry_kept_stream_leave(spry_kept_stream *stream)
{
    spry_kept_streams *streams = stream->owner;
    pthread_mutex_lock(&streams->lock);
    stream->n_readers--;
    stream->left_ns = spry_clock_ns();
    drop_old(streams);
    pthread_mutex_unlock(&streams->lock);
}

/* ---- GET and DELETE /v1/streams/ID ------------------------------------------------------------------------------- */

/* /v1/streams/ID: reading on in the stream of a request with "stream_id", and cancelling its answer. */

enum { LOOK_MS = 200 };

typedef struct reader {
    spry_exchange *exchange;
    spry_kept_stream *stream;
    size_t position;
} reader;

static ssize_t read_more(void *self, char *out, size_t size)
{
    reader *r = self;
    for (;;) {
        spry_error error;
        ssize_t n = spry_kept_stream_read(r->stream, out, &r->position, size, LOOK_MS);
        if (n)
            return n < 0 ? 0 : n;
        if (spry_http_check_reader(r->exchange, &error) != SPRY_OK || atomic_load(&r->exchange->server->cutting))
            return -1;
    }
}

static void end_reader(void *self)
{
    reader *r = self;
    spry_kept_stream_leave(r->stream);
    free(r);
}

/* NULL, and a reply was given, when there is no such stream. */
static spry_kept_stream *find_stream(spry_exchange *x)
{
    spry_kept_stream *stream = kept_streams_find(&x->server->streams, x->tail, x->key);
    if (!stream)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL,
                         "there is no such stream; one is kept for %d seconds after its end, or after its last reader",
                         SPRY_STREAM_KEEP_S);
    return stream;
}

void spry_streams_read(spry_exchange *x)
{
    spry_kept_stream *stream = find_stream(x);
    const char *last = spry_exchange_header(x, "Last-Event-ID");
    uint64_t id;
    size_t position = 0;
    if (!stream)
        return;
    bool fine = !last || (spry_number_u64(&id, spry_view_of(last)) && id <= SIZE_MAX &&
                          kept_stream_seek(stream, &position, (size_t)id));
    reader *r = fine ? malloc(sizeof *r) : NULL;
    if (r) {
        *r = (reader){x, stream, position};
        spry_reply_stream(x, kept_stream_type(stream), (spry_reply_source){read_more, end_reader, r});
        return;
    }
    spry_kept_stream_leave(stream);
    if (fine)
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the reply");
    else
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, NULL, "Last-Event-ID is not the id of an event of this stream");
}

void spry_streams_cancel(spry_exchange *x)
{
    spry_kept_stream *stream = find_stream(x);
    if (!stream)
        return;
    kept_stream_cancel(stream);
    spry_kept_stream_leave(stream);
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "cancelled", x->tail));
}
