#include "server/status/watch.h"

#include <stdlib.h>

#include "cli/energy_figures.h"
#include "doctor/slowdowns.h"
#include "platform/clock.h"
#include "run/answer.h"

#define ENDED_SHOWN_NS 5000000000u

static double ms(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) / 1e6 : 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

typedef struct request_list {
    json_t *list;
    uint64_t now;
} request_list;

/* The scheduler reports the parts of an answer once it has ended; until then they follow from its progress. */
static json_t *parts_of(const spry_request_status *r, bool ended, uint64_t now)
{
    uint64_t started = atomic_load(&r->started_ns), first = atomic_load(&r->first_ns);
    double parts[SPRY_PART_COUNT];
    memcpy(parts, r->parts_ms, sizeof parts);
    if (!ended) {
        parts[SPRY_PART_QUEUE] += ms(r->submitted_ns, started ? started : now);
        parts[SPRY_PART_PREFILL] += started ? ms(started, first ? first : now) : 0;
        parts[SPRY_PART_DECODE] += first ? ms(first, now) : 0;
    }
    return spry_parts_json(parts);
}

static void add_request(void *context, const spry_request_status *r)
{
    request_list *l = context;
    int phase = atomic_load(&r->phase);
    bool ended = phase >= SPRY_PHASE_DONE;
    size_t generated = ended ? r->result.generated_tokens : atomic_load(&r->pieces);
    double decode_ms = ended ? r->result.decode_ms : ms(atomic_load(&r->first_ns), l->now);
    json_array_append_new(l->list,
                          json_pack("{s:s, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:f}", "id", r->id, "model", r->model,
                                    "state", spry_phase_name(phase), "start_ms", (double)r->began_ns / 1e6, "parts_ms",
                                    parts_of(r, ended, l->now), "prompt_tokens", (json_int_t)r->prompt_tokens,
                                    "cached_tokens", (json_int_t)r->result.reused_tokens, "generated_tokens",
                                    (json_int_t)generated, "tokens_per_second",
                                    generated > 1 && decode_ms > 0 ? (double)(generated - 1) / decode_ms * 1e3 : 0.0));
}

json_t *spry_watch_requests(spry_server *server, spry_view key, bool ended)
{
    request_list l = {json_array(), spry_clock_ns()};
    uint64_t since = !ended ? UINT64_MAX : l.now > ENDED_SHOWN_NS ? l.now - ENDED_SHOWN_NS : 0;
    spry_registry_requests(&server->registry, key.data, since, add_request, &l);
    return l.list;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

json_t *spry_watch_batch(const spry_model_status *model)
{
    const spry_jobs_figures *work = &model->pool.work;
    return json_pack("{s:I, s:s}", "limit", (json_int_t)work->batch_limit, "why", work->evidence);
}

/* Memory in use: all but the part of KV memory that was not taken from the system. */
static size_t used_bytes(const spry_model_status *model)
{
    size_t untaken = (model->kv.pages - model->kv.held_pages) * model->kv.page_bytes;
    return model->pool.loaded_bytes > untaken ? model->pool.loaded_bytes - untaken : 0;
}

json_t *spry_watch_memory(const spry_model_status *model)
{
    const spry_kv_figures *kv = &model->kv;
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "kv_used", (json_int_t)(kv->held_pages * kv->page_bytes), "kv_cached",
                     (json_int_t)(kv->idle_pages * kv->page_bytes), "kv_limit",
                     (json_int_t)(kv->pages * kv->page_bytes), "used", (json_int_t)used_bytes(model), "limit",
                     (json_int_t)model->pool.loaded_bytes);
}

static json_t *kv_json(const spry_kv_figures *kv)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "pages", (json_int_t)kv->pages, "free",
                     (json_int_t)kv->free_pages, "cached", (json_int_t)kv->cached_pages, "idle",
                     (json_int_t)kv->idle_pages, "pinned", (json_int_t)kv->pinned_pages, "page_bytes",
                     (json_int_t)kv->page_bytes);
}

static json_t *model_json(const spry_model_status *m)
{
    static const char *const states[] = {
        [SPRY_POOL_ON_DISK] = "disk", [SPRY_POOL_LOADING] = "loading", [SPRY_POOL_LOADED] = "loaded"};
    const spry_pool_info *pool = &m->pool;
    return json_pack("{s:s, s:o, s:s, s:b, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:f}", "name", pool->name, "memory",
                     spry_watch_memory(m), "state", states[pool->state], "pinned", pool->pinned, "bytes",
                     (json_int_t)(pool->state == SPRY_POOL_LOADED ? used_bytes(m) : pool->file_bytes), "running",
                     (json_int_t)m->running, "waiting", (json_int_t)m->waiting, "together", spry_watch_batch(m), "kv",
                     kv_json(&m->kv), "hit_tokens", (json_int_t)m->kv.hit_tokens, "miss_tokens",
                     (json_int_t)m->kv.miss_tokens, "span_tokens", (json_int_t)m->kv.span_tokens, "tokens_per_second",
                     m->tokens_per_second);
}

/* Loaded models first. *bytes: the memory they take. */
static json_t *models_json(spry_server *server, size_t *bytes)
{
    spry_model_status *models;
    size_t count;
    *bytes = 0;
    if (!spry_registry_models(&server->registry, &models, &count, server->pool))
        return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < count && models[i].in_pool; i++) {
        bool loaded = models[i].pool.state == SPRY_POOL_LOADED;
        *bytes += loaded ? used_bytes(&models[i]) : 0;
        json_array_insert_new(list, loaded ? 0 : json_array_size(list), model_json(&models[i]));
    }
    free(models);
    return list;
}

static json_t *energy_json(spry_server *server)
{
    spry_joules used;
    char why[SPRY_ENERGY_TEXT] = "";
    spry_registry_energy(&server->registry, &used, server->meter);
    if (!used.has_cpu && !used.has_gpu)
        spry_energy_why(why, server->meter);
    return json_pack("{s:o, s:o, s:s}", "cpu_joules", used.has_cpu ? json_real(used.cpu) : json_null(), "gpu_joules",
                     used.has_gpu ? json_real(used.gpu) : json_null(), "why", why);
}

static json_t *machine_json(spry_server *server)
{
    spry_machine_state before, now;
    spry_machine_watch_read(&server->machine, &before, &now);
    return spry_machine_state_json(&before, &now);
}

char *spry_watch_snapshot(spry_server *server, spry_view key)
{
    size_t bytes;
    double now = (double)spry_clock_ns() / 1e6;
    json_t *models = models_json(server, &bytes);
    json_t *snapshot = json_pack("{s:f, s:o, s:o, s:{s:I, s:I}, s:o, s:o}", "now_ms", now, "requests",
                                 spry_watch_requests(server, key, true), "models", models, "pool", "bytes",
                                 (json_int_t)bytes, "max_bytes", (json_int_t)server->pool_bytes, "energy",
                                 energy_json(server), "machine", machine_json(server));
    char *text = snapshot ? json_dumps(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(snapshot);
    return text;
}
