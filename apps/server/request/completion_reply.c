/* The reply: whole, once every answer has ended, or as a stream. */
#include <stdlib.h>

#include "base/utf8.h"
#include "server/http/http_reply.h"
#include "server/request/completion_internal.h"

static unsigned failure_status(const spry_completion *c)
{
    return c->exchange->late ? MHD_HTTP_GATEWAY_TIMEOUT : spry_reply_status(c->jobs.error.status);
}

void spry_completion_reply_failure(spry_completion *c)
{
    spry_reply_error(c->exchange, failure_status(c), NULL, "%s", c->jobs.error.message);
    spry_completion_destroy(c);
}

/* libmicrohttpd wants a reply also when the client has left. */
static void set_disconnected(spry_completion *c)
{
    c->jobs.disconnected = true;
    spry_fail(&c->jobs.error, SPRY_ERR_CANCELLED, "the client has disconnected");
}

/* ---- whole ------------------------------------------------------------------------------------------------------- */

static void reply_whole(spry_completion *c)
{
    spry_collected collected;
    do
        collected = spry_completion_collect(c);
    while (collected == SPRY_COLLECTED_SOME);
    if (collected == SPRY_COLLECTED_DISCONNECTED)
        set_disconnected(c);
    if (c->jobs.error.status != SPRY_OK) {
        spry_completion_reply_failure(c);
        return;
    }
    spry_reply_json(c->exchange, MHD_HTTP_OK, c->interface->whole(c));
    spry_completion_destroy(c);
}

/* ---- as a stream ------------------------------------------------------------------------------------------------- */

/* The status of the reply has been sent, so an error is the last event of the stream. */
static void close_stream(spry_completion *c)
{
    c->reply.ended = true;
    if (c->jobs.error.status != SPRY_OK && c->interface->fail) {
        c->interface->fail(c, failure_status(c), c->jobs.error.message);
    } else if (c->jobs.error.status != SPRY_OK) {
        spry_error_form form = c->exchange->route->errors;
        json_t *body = spry_reply_error_body(form, failure_status(c), NULL, c->jobs.error.message);
        (form == SPRY_ERRORS_OLLAMA ? spry_completion_line : spry_completion_event)(c, body);
    } else if (c->interface->close) {
        c->interface->close(c);
    }
}

/* Moves `out` to the kept stream. An answer that is not wanted any more is cancelled, and its end comes soon. */
static void keep_out(spry_completion *c)
{
    if (!c->reply.kept)
        return;
    spry_kept_stream_append(c->reply.kept, &c->reply.out);
    if (!c->reply.ended && !spry_kept_stream_wanted(c->reply.kept, atomic_load(&c->exchange->server->ending)))
        spry_completion_cancel(c);
}

void spry_completion_release_stream(spry_completion *c)
{
    if (!c->reply.kept)
        return;
    if (!c->reply.detached)
        spry_kept_stream_leave(c->reply.kept);
    spry_kept_stream_end(c->reply.kept);
    c->reply.kept = NULL;
}

/* The client has left a kept stream: the answer goes on, for a client that comes back. */
static void go_on(spry_completion *c)
{
    if (!c->reply.kept || c->reply.detached)
        return;
    c->reply.detached = true;
    spry_kept_stream_leave(c->reply.kept);
    while (!c->reply.ended) {
        if (spry_completion_collect(c) == SPRY_COLLECTED_ALL)
            close_stream(c);
        keep_out(c);
    }
    c->jobs.disconnected = c->jobs.error.status == SPRY_ERR_CANCELLED;
}

static bool has_unread(const spry_completion *c)
{
    return c->reply.kept ? spry_kept_stream_size(c->reply.kept) > c->reply.position : c->reply.out.size > 0;
}

/* Waits until there are bytes to write or the stream has ended. False when the connection must be closed. */
static bool fill_out(spry_completion *c)
{
    while (!has_unread(c) && !c->reply.ended) {
        spry_collected collected = spry_completion_collect(c);
        if (collected == SPRY_COLLECTED_DISCONNECTED) {
            c->jobs.disconnected = true;
            return false;
        }
        if (collected == SPRY_COLLECTED_ALL)
            close_stream(c);
        keep_out(c);
    }
    return !c->reply.out.failed;
}

static ssize_t stream_more(void *self, char *out, size_t size)
{
    spry_completion *c = self;
    if (!fill_out(c))
        return -1;
    if (c->reply.kept)
        return spry_kept_stream_read(c->reply.kept, out, &c->reply.position, size, 0);
    size_t n = c->reply.out.size < size ? c->reply.out.size : size;
    if (n)
        memcpy(out, c->reply.out.data, n);
    spry_buffer_consume(&c->reply.out, n);
    return (ssize_t)n;
}

static void stream_end(void *self)
{
    spry_completion *c = self;
    go_on(c);
    c->jobs.disconnected = c->jobs.disconnected || !c->reply.ended;
    spry_completion_destroy(c);
}

/* Waits for the first event, which decides the status of the reply. */
static void reply_stream(spry_completion *c)
{
    if (c->interface->open)
        c->interface->open(c);
    size_t opened = c->reply.out.size;
    spry_collected collected = SPRY_COLLECTED_SOME;
    while (collected == SPRY_COLLECTED_SOME && c->reply.out.size == opened && c->jobs.error.status == SPRY_OK)
        collected = spry_completion_collect(c);
    if (collected == SPRY_COLLECTED_DISCONNECTED) {
        go_on(c);
        set_disconnected(c);
    }
    if (c->jobs.error.status != SPRY_OK) {
        if (c->reply.kept && !c->reply.ended)
            close_stream(c);
        keep_out(c);
        spry_completion_reply_failure(c);
        return;
    }
    if (collected == SPRY_COLLECTED_ALL)
        close_stream(c);
    keep_out(c);
    spry_reply_stream(c->exchange, c->interface->stream_type, (spry_reply_source){stream_more, stream_end, c});
}

void spry_completion_reply(spry_completion *c)
{
    (c->options.stream ? reply_stream : reply_whole)(c);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

json_t *spry_view_json(spry_view text)
{
    json_t *string = json_stringn(text.data, text.size);
    if (string)
        return string;
    spry_buffer valid; /* the text is not UTF-8, or memory is short */
    spry_buffer_init(&valid, 3 * text.size + 1);
    spry_utf8_append_valid(&valid, text);
    string = json_stringn(spry_buffer_view(&valid).data, valid.size);
    spry_buffer_deinit(&valid);
    return string;
}

json_t *spry_buffer_json(const spry_buffer *text)
{
    return spry_view_json(spry_buffer_view(text));
}

static void append_json(spry_completion *c, const char *before, json_t *json, const char *after)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text) {
        c->reply.out.failed = true;
        return;
    }
    spry_buffer_text(&c->reply.out, before);
    spry_buffer_text(&c->reply.out, text);
    spry_buffer_text(&c->reply.out, after);
    free(text);
}

void spry_completion_event(spry_completion *c, json_t *json)
{
    if (c->reply.kept)
        spry_buffer_format(&c->reply.out, "id: %zu\n", spry_kept_stream_size(c->reply.kept) + c->reply.out.size);
    append_json(c, "data: ", json, "\n\n");
}

void spry_completion_named_event(spry_completion *c, const char *name, json_t *json)
{
    spry_buffer_format(&c->reply.out, "event: %s\n", name);
    spry_completion_event(c, json);
}

void spry_completion_line(spry_completion *c, json_t *json)
{
    append_json(c, "", json, "\n");
}
