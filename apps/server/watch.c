/* Phases of a request that is under way come from when its news came; once it has ended, from what the engine measured.
 */
#include "watch.h"

#include "platform/clock.h"

#define ENDED_SHOWN_NS 5000000000u

typedef struct listing {
    spry_server *server;
    json_t *list;
    uint64_t now;
    size_t bytes;
} listing;

static double ms(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) / 1e6 : 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static json_t *phases_ended(const spry_activity *a)
{
    const spry_result *r = &a->result;
    double lookup = r->lookup_ms + r->restore_ms, prefill = r->prefill_ms - lookup;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "template", ms(a->began_ns, a->submitted_ns), "queue",
                     a->queue_ms, "lookup", lookup, "prefill", prefill > 0 ? prefill : 0.0, "first", r->first_step_ms,
                     "decode", r->decode_ms);
}

static json_t *phases_now(const spry_activity *a, uint64_t now)
{
    uint64_t taken = atomic_load(&a->taken_ns), first = atomic_load(&a->first_ns);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "template", ms(a->began_ns, a->submitted_ns), "queue",
                     ms(a->submitted_ns, taken ? taken : now), "lookup", 0.0, "prefill",
                     taken ? ms(taken, first ? first : now) : 0.0, "first", 0.0, "decode",
                     first ? ms(first, now) : 0.0);
}

static void add_request(void *context, const spry_activity *a)
{
    listing *l = context;
    int phase = atomic_load(&a->phase);
    bool ended = phase >= SPRY_PHASE_DONE;
    size_t pieces = atomic_load(&a->pieces), generated = ended ? a->result.generated_tokens : pieces;
    double decode_ms = ended ? a->result.decode_ms : ms(atomic_load(&a->first_ns), l->now);
    json_array_append_new(l->list,
                          json_pack("{s:s, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:f}", "id", a->id, "model", a->model,
                                    "state", spry_phase_name(phase), "start_ms", (double)a->began_ns / 1e6, "phases",
                                    ended ? phases_ended(a) : phases_now(a, l->now), "prompt_tokens",
                                    (json_int_t)a->prompt_tokens, "cached_tokens", (json_int_t)a->result.reused_tokens,
                                    "generated_tokens", (json_int_t)generated, "tokens_per_second",
                                    generated > 1 && decode_ms > 0 ? (double)(generated - 1) / decode_ms * 1e3 : 0.0));
}

json_t *spry_watch_requests(spry_server *server, bool ended)
{
    listing l = {.server = server, .list = json_array(), .now = spry_clock_ns()};
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
    json_t *model =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:f}", "name", info->name, "state",
                  states[info->state], "bytes", (json_int_t)(loaded ? info->loaded_bytes : info->file_bytes), "running",
                  (json_int_t)running, "waiting", (json_int_t)waiting, "kv", kv_json(&known.kv), "hit_tokens",
                  (json_int_t)known.kv.hit_tokens, "miss_tokens", (json_int_t)known.kv.miss_tokens, "span_tokens",
                  (json_int_t)known.kv.span_tokens, "tokens_per_second", spry_metrics_speed(&known, l->now));
    if (loaded)
        json_array_insert_new(l->list, 0, model);
    else
        json_array_append_new(l->list, model);
    return true;
}

char *spry_watch_snapshot(spry_server *server)
{
    listing models = {.server = server, .list = json_array(), .now = spry_clock_ns()};
    spry_model_pool_each(server->pool, add_model, &models);
    json_t *snapshot = json_pack("{s:f, s:o, s:o, s:{s:I, s:I}}", "now_ms", (double)models.now / 1e6, "requests",
                                 spry_watch_requests(server, true), "models", models.list, "pool", "bytes",
                                 (json_int_t)models.bytes, "max_bytes", (json_int_t)server->pool_bytes);
    char *text = snapshot ? json_dumps(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(snapshot);
    return text;
}
