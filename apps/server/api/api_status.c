/* GET /health, /metrics and /watch. */
#include <stddef.h>
#include <stdlib.h>

#include "platform/clock.h"
#include "platform/wakeup.h"
#include "server/api/apis.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/status/watch.h"

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
    double pinned, together, steps, rows, decode_rows, preempted, refused;
} model_gauges;

static const struct {
    const char *name, *help;
    size_t offset;
    const char *type; /* NULL: a gauge */
} gauges[] = {
    {"model_loaded", "Whether the model is in memory", offsetof(model_gauges, loaded), NULL},
    {"pool_bytes", "Memory the model takes", offsetof(model_gauges, bytes), NULL},
    {"requests_running", "Answers under way", offsetof(model_gauges, running), NULL},
    {"requests_waiting", "Answers that wait", offsetof(model_gauges, waiting), NULL},
    {"kv_bytes", "Memory for keys and values", offsetof(model_gauges, kv), NULL},
    {"kv_used_bytes", "Of that, not free", offsetof(model_gauges, kv_used), NULL},
    {"kv_idle_bytes", "Of that, kept for whoever comes", offsetof(model_gauges, kv_idle), NULL},
    {"kv_disk_bytes", "Keys and values on disk", offsetof(model_gauges, kv_disk), NULL},
    {"model_pinned", "Whether the model stays in memory", offsetof(model_gauges, pinned), NULL},
    {"batch_limit", "Answers that are taken together now", offsetof(model_gauges, together), NULL},
    {"steps_total",
     "Steps since the model was loaded, of answers and their prompts; not of embeddings, nor of echoed "
     "prompts' probabilities",
     offsetof(model_gauges, steps), "counter"},
    {"step_rows_total", "Their rows", offsetof(model_gauges, rows), "counter"},
    {"step_decode_rows_total", "Of those, of answers", offsetof(model_gauges, decode_rows), "counter"},
    {"preempted_total", "Answers put back for want of memory", offsetof(model_gauges, preempted), "counter"},
    {"refused_total", "Answers refused because too many waited", offsetof(model_gauges, refused), "counter"},
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
    g.pinned = info->pinned;
    g.together = info->work.batch_limit;
    g.steps = (double)info->work.steps;
    g.rows = (double)info->work.rows;
    g.decode_rows = (double)info->work.decode_rows;
    g.preempted = (double)info->work.preempted;
    g.refused = (double)info->work.refused;
    return spry_buffer_append(&list->models, &g, sizeof g);
}

static void print_gauges(spry_buffer *out, const gauge_list *list)
{
    for (size_t i = 0; i < SPRY_COUNT(gauges); i++) {
        spry_metrics_head(out, gauges[i].name, gauges[i].help, gauges[i].type ? gauges[i].type : "gauge");
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

static void print_energy(spry_buffer *out, spry_server *server)
{
    spry_joules used;
    spry_watch_energy(server, &used);
    if (used.has_cpu || used.has_gpu)
        spry_metrics_head(out, "energy_joules_total", "Energy of the whole machine since the server began", "counter");
    if (used.has_cpu)
        spry_buffer_format(out, "spry_energy_joules_total{device=\"cpu\"} %.17g\n", used.cpu);
    if (used.has_gpu)
        spry_buffer_format(out, "spry_energy_joules_total{device=\"gpu\"} %.17g\n", used.gpu);
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
    print_energy(&out, x->server);
    spry_metrics_head(&out, "uptime_seconds", "Since the server began", "gauge");
    spry_buffer_format(&out, "spry_uptime_seconds %.3f\n", (double)(spry_clock_ns() - x->server->started_ns) / 1e9);
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
    if (w->begun && spry_socket_hung_up(spry_http_socket(w->exchange), WATCH_MS))
        return false;
    w->begun = true;
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
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory to watch");
        return;
    }
    w->exchange = x;
    spry_buffer_init(&w->out, METRICS_BYTES_MAX);
    spry_reply_stream(x, "text/event-stream", (spry_reply_source){watch_more, watch_end, w});
}
