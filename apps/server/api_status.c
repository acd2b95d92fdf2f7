/* GET /health, /metrics and /watch. */
#include <stddef.h>
#include <stdlib.h>

#include "apis.h"
#include "channel.h"
#include "http_reply.h"
#include "http_server.h"
#include "platform/clock.h"
#include "watch.h"

enum { METRICS_BYTES_MAX = 4 << 20, WATCH_MS = 500 };

void spry_status_health(spry_exchange *x)
{
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

/* What is printed of a model at this moment. */
typedef struct model_gauges {
    char name[sizeof((spry_pool_info *)0)->name];
    double loaded, bytes, running, waiting, kv, kv_used, kv_idle, kv_disk;
} model_gauges;

static const struct {
    const char *name, *help;
    size_t offset;
} gauges[] = {
    {"model_loaded", "Whether the model is in memory", offsetof(model_gauges, loaded)},
    {"pool_bytes", "Memory the model takes", offsetof(model_gauges, bytes)},
    {"requests_running", "Answers under way", offsetof(model_gauges, running)},
    {"requests_waiting", "Answers that wait", offsetof(model_gauges, waiting)},
    {"kv_bytes", "Memory for keys and values", offsetof(model_gauges, kv)},
    {"kv_used_bytes", "Of that, not free", offsetof(model_gauges, kv_used)},
    {"kv_idle_bytes", "Of that, kept for whoever comes", offsetof(model_gauges, kv_idle)},
    {"kv_disk_bytes", "Keys and values on disk", offsetof(model_gauges, kv_disk)},
};

typedef struct gauge_list {
    spry_server *server;
    spry_buffer models; /* model_gauges */
} gauge_list;

static bool add_model(void *context, const spry_pool_info *info)
{
    gauge_list *list = context;
    model_gauges g = {.loaded = info->state == SPRY_POOL_LOADED, .bytes = (double)info->loaded_bytes};
    spry_model_metrics known = {0};
    size_t waiting, running;
    memcpy(g.name, info->name, sizeof g.name);
    spry_activities_count(&list->server->activities, info->name, &waiting, &running);
    if (info->state == SPRY_POOL_LOADED)
        spry_metrics_find(&list->server->metrics, info->name, &known);
    const spry_kv_figures *kv = &known.kv;
    g.running = (double)running;
    g.waiting = (double)waiting;
    g.kv = (double)(kv->pages * kv->page_bytes);
    g.kv_used = (double)((kv->pages - kv->free_pages) * kv->page_bytes);
    g.kv_idle = (double)(kv->idle_pages * kv->page_bytes);
    g.kv_disk = (double)kv->disk_bytes;
    return spry_buffer_append(&list->models, &g, sizeof g);
}

static void print_gauges(spry_buffer *out, const gauge_list *list)
{
    for (size_t i = 0; i < SPRY_COUNT(gauges); i++) {
        spry_buffer_format(out, "# HELP spry_%s %s\n# TYPE spry_%s gauge\n", gauges[i].name, gauges[i].help,
                           gauges[i].name);
        for (size_t at = 0; at < list->models.size; at += sizeof(model_gauges)) {
            model_gauges g;
            double value;
            memcpy(&g, list->models.data + at, sizeof g);
            memcpy(&value, (const char *)&g + gauges[i].offset, sizeof value);
            spry_buffer_format(out, "spry_%s{model=\"", gauges[i].name);
            spry_metrics_label(out, g.name);
            spry_buffer_format(out, "\"} %.17g\n", value);
        }
    }
}

void spry_status_metrics(spry_exchange *x)
{
    spry_buffer out;
    gauge_list list = {.server = x->server};
    spry_buffer_init(&out, METRICS_BYTES_MAX);
    spry_buffer_init(&list.models, METRICS_BYTES_MAX);
    spry_metrics_print(&x->server->metrics, &out);
    spry_model_pool_each(x->server->pool, add_model, &list);
    print_gauges(&out, &list);
    spry_buffer_format(&out, "# TYPE spry_uptime_seconds gauge\nspry_uptime_seconds %.3f\n",
                       (double)(spry_clock_ns() - x->server->started_ns) / 1e9);
    if (out.failed || list.models.failed)
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the metrics");
    else
        spry_reply_text(x, spry_buffer_view(&out), "text/plain; version=0.0.4; charset=utf-8", NULL);
    spry_buffer_deinit(&list.models);
    spry_buffer_deinit(&out);
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    spry_exchange *exchange;
    spry_buffer out;
    bool begun;
} watcher;

/* Waits before every snapshot but the first. */
static bool next_snapshot(watcher *w)
{
    if (w->begun && spry_channel_client_left(spry_http_socket(w->exchange), WATCH_MS))
        return false;
    w->begun = true;
    char *text = spry_watch_snapshot(w->exchange->server);
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
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory to watch");
        return;
    }
    w->exchange = x;
    spry_buffer_init(&w->out, METRICS_BYTES_MAX);
    spry_reply_stream(x, "text/event-stream", (spry_reply_source){watch_more, watch_end, w});
}
