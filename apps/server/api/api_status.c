/* GET /health, /metrics and /watch. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "platform/clock.h"
#include "platform/wakeup.h"
#include "server/api/apis.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/status/metrics_text.h"
#include "server/status/watch.h"

enum { METRICS_BYTES_MAX = 4 << 20, WATCH_MS = 500 };

void spry_status_health(spry_exchange *x)
{
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

void spry_status_metrics(spry_exchange *x)
{
    spry_buffer out;
    spry_buffer_init(&out, METRICS_BYTES_MAX);
    spry_metrics_print(&out, x->server);
    snprintf(x->process_start, sizeof x->process_start, "%lld",
             (long long)(time(NULL) - (time_t)((spry_clock_ns() - x->server->started_ns) / 1000000000)));
    if (out.failed)
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the metrics");
    else
        spry_reply_text(x, spry_buffer_view(&out), "text/plain; version=0.0.4; charset=utf-8", NULL);
    spry_buffer_deinit(&out);
}

/* ---- /watch ------------------------------------------------------------------------------------------------------ */

typedef struct watcher {
    spry_exchange *exchange;
    spry_buffer out;
    bool started;
} watcher;

/* Waits before every snapshot except the first. */
static bool next_snapshot(watcher *w)
{
    if (w->started && spry_socket_hung_up(spry_http_socket(w->exchange), WATCH_MS))
        return false;
    w->started = true;
    char *text = spry_watch_snapshot(w->exchange->server, w->exchange->key);
    if (!text)
        return false;
    spry_buffer_format(&w->out, "data: %s\n\n", text);
    free(text);
    return !w->out.failed;
}

static ssize_t watch_more(void *self, char *out, size_t size)
{
    watcher *w = self;
    if (atomic_load(&w->exchange->server->ending))
        return 0;
    if (!w->out.size && !next_snapshot(w))
        return -1;
    size_t n = w->out.size < size ? w->out.size : size;
    memcpy(out, w->out.data, n);
    spry_buffer_consume(&w->out, n);
    return (ssize_t)n;
}

static void watch_end(void *self)
{
    watcher *w = self;
    spry_buffer_deinit(&w->out);
    free(w);
}

void spry_status_watch(spry_exchange *x)
{
    watcher *w = calloc(1, sizeof *w);
    if (!w) {
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the stream");
        return;
    }
    w->exchange = x;
    spry_buffer_init(&w->out, METRICS_BYTES_MAX);
    spry_reply_stream(x, "text/event-stream", (spry_reply_source){watch_more, watch_end, w});
}
