/* /v1/streams/ID: reading on in the stream of a request with "stream_id", and cancelling its answer. */
#include <stdlib.h>

#include "base/number.h"
#include "server/api/apis.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/kept_stream.h"

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
    spry_kept_stream *stream = spry_kept_streams_find(&x->server->streams, x->tail, x->key);
    if (!stream)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, NULL,
                         "there is no such stream; one is kept for %d seconds after its end, or after its last reader",
                         SPRY_STREAM_KEEP_S);
    return stream;
}

void spry_streams_read(spry_exchange *x)
{
    spry_kept_stream *stream = find_stream(x);
    const char *last = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Last-Event-ID");
    uint64_t id;
    size_t position = 0;
    if (!stream)
        return;
    bool fine = !last || (spry_number_u64(&id, spry_view_of(last)) && id <= SIZE_MAX &&
                          spry_kept_stream_seek(stream, &position, (size_t)id));
    reader *r = fine ? malloc(sizeof *r) : NULL;
    if (r) {
        *r = (reader){x, stream, position};
        spry_reply_stream(x, spry_kept_stream_type(stream), (spry_reply_source){read_more, end_reader, r});
        return;
    }
    spry_kept_stream_leave(stream);
    if (fine)
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the reply");
    else
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "Last-Event-ID is not the id of an event of this stream");
}

void spry_streams_cancel(spry_exchange *x)
{
    spry_kept_stream *stream = find_stream(x);
    if (!stream)
        return;
    spry_kept_stream_cancel(stream);
    spry_kept_stream_leave(stream);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "cancelled", x->tail));
}
