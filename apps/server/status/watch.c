#include "server/status/watch.h"

#include "cli/energy_figures.h"
#include "platform/clock.h"
#include "run/answer.h"

#define ENDED_SHOWN_NS 5000000000u
#define READING_NS     1000000000u

typedef struct listing {
    spry_server *server;
    json_t *list;
    const char *key; /* whose requests are shown */
    uint64_t now;
    size_t bytes;
} listing;

static double ms(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) / 1e6 : 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The model's thread tells what it took only once it is over; until then its parts are guessed from the news. */
static json_t *parts_of(const spry_activity *a, bool ended, uint64_t now)
{
    uint64_t taken = atomic_load(&a->taken_ns), first = atomic_load(&a->first_ns);
    double parts[SPRY_PART_COUNT];
    memcpy(parts, a->parts_ms, sizeof parts);
    if (!ended) {
        parts[SPRY_PART_QUEUE] += ms(a->submitted_ns, taken ? taken : now);
        parts[SPRY_PART_PREFILL] += taken ? ms(taken, first ? first : now) : 0;
        parts[SPRY_PART_DECODE] += first ? ms(first, now) : 0;
    }
    return spry_parts_json(parts);
}

static void add_request(void *context, const spry_activity *a)
{
    listing *l = context;
    if (a->key != l->key)
        return;
    int phase = atomic_load(&a->phase);
    bool ended = phase >= SPRY_PHASE_DONE;
    size_t pieces = atomic_load(&a->pieces), generated = ended ? a->result.generated_tokens : pieces;
    double decode_ms = ended ? a->result.decode_ms : ms(atomic_load(&a->first_ns), l->now);
    json_array_append_new(l->list,
                          json_pack("{s:s, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:f}", "id", a->id, "model", a->model,
                                    "state", spry_phase_name(phase), "start_ms", (double)a->began_ns / 1e6, "parts_ms",
                                    parts_of(a, ended, l->now), "prompt_tokens", (json_int_t)a->prompt_tokens,
                                    "cached_tokens", (json_int_t)a->result.reused_tokens, "generated_tokens",
                                    (json_int_t)generated, "tokens_per_second",
                                    generated > 1 && decode_ms > 0 ? (double)(generated - 1) / decode_ms * 1e3 : 0.0));
}

json_t *spry_watch_requests(spry_server *server, spry_view key, bool ended)
{
    listing l = {.server = server, .list = json_array(), .key = key.data, .now = spry_clock_ns()};
    uint64_t since = !ended ? UINT64_MAX : l.now > ENDED_SHOWN_NS ? l.now - ENDED_SHOWN_NS : 0;
    spry_activities_each(&server->activities, since, add_request, &l);
    return l.list;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static json_t *kv_json(const spry_kv_figures *kv)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "pages", (json_int_t)kv->pages, "free",
                     (json_int_t)kv->free_pages, "cached", (json_int_t)kv->cached_pages, "idle",
                     (json_int_t)kv->idle_pages, "pinned", (json_int_t)kv->pinned_pages, "page_bytes",
                     (json_int_t)kv->page_bytes);
}

static bool add_model(void *context, const spry_pool_info *info)
{
    static const char *const states[] = {
        [SPRY_POOL_ON_DISK] = "disk", [SPRY_POOL_LOADING] = "loading", [SPRY_POOL_LOADED] = "loaded"};
    listing *l = context;
    bool loaded = info->state == SPRY_POOL_LOADED;
    spry_model_metrics known = {0};
    size_t waiting, running;
    spry_activities_count(&l->server->activities, info->name, &waiting, &running);
    if (loaded)
        spry_metrics_find(&l->server->metrics, info->name, &known);
    l->bytes += loaded ? info->loaded_bytes : 0;
    const spry_scheduler_figures *work = &info->work;
    json_t *model =
        json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:{s:I, s:s}, s:o, s:I, s:I, s:I, s:f}", "name", info->name, "state",
                  states[info->state], "pinned", info->pinned, "bytes",
                  (json_int_t)(loaded ? info->loaded_bytes : info->file_bytes), "running", (json_int_t)running,
                  "waiting", (json_int_t)waiting, "together", "limit", (json_int_t)work->batch_limit, "why",
                  work->evidence, "kv", kv_json(&known.kv), "hit_tokens", (json_int_t)known.kv.hit_tokens,
                  "miss_tokens", (json_int_t)known.kv.miss_tokens, "span_tokens", (json_int_t)known.kv.span_tokens,
                  "tokens_per_second", spry_metrics_speed(&known, l->now));
    if (loaded)
        json_array_insert_new(l->list, 0, model);
    else
        json_array_append_new(l->list, model);
    return true;
}

void spry_watch_energy(spry_server *server, spry_joules *used)
{
    pthread_mutex_lock(&server->reading.lock);
    uint64_t now = spry_clock_ns();
    if (!server->reading.when_ns || now - server->reading.when_ns >= READING_NS) {
        spry_energy_read(server->meter, &server->reading.used);
        server->reading.when_ns = now;
    }
    *used = server->reading.used;
    pthread_mutex_unlock(&server->reading.lock);
}

static json_t *energy_json(spry_server *server)
{
    spry_joules used;
    char why[SPRY_ENERGY_TEXT] = "";
    spry_watch_energy(server, &used);
    if (!used.has_cpu && !used.has_gpu)
        spry_energy_why(why, server->meter);
    return json_pack("{s:o, s:o, s:s}", "cpu_joules", used.has_cpu ? json_real(used.cpu) : json_null(), "gpu_joules",
                     used.has_gpu ? json_real(used.gpu) : json_null(), "why", why);
}

char *spry_watch_snapshot(spry_server *server, spry_view key)
{
    listing models = {.server = server, .list = json_array(), .now = spry_clock_ns()};
    spry_model_pool_each(server->pool, add_model, &models);
    json_t *snapshot =
        json_pack("{s:f, s:o, s:o, s:{s:I, s:I}, s:o}", "now_ms", (double)models.now / 1e6, "requests",
                  spry_watch_requests(server, key, true), "models", models.list, "pool", "bytes",
                  (json_int_t)models.bytes, "max_bytes", (json_int_t)server->pool_bytes, "energy", energy_json(server));
    char *text = snapshot ? json_dumps(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(snapshot);
    return text;
}
