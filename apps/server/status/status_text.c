/* The registry as text: metrics in the format of Prometheus, the JSON of the watch, and lines of the audit log. */
#include "server/status/status_text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/energy_figures.h"
#include "cli/terminal.h"
#include "doctor/findings.h"
#include "platform/clock.h"
#include "run/answer.h"
#include "server/http/exchange.h"
#include "server/request/completion.h"
#include "server/status/status.h"

/* The two lines before the values of a metric; `type` is "counter", "gauge" or "histogram". */
static void print_head(spry_buffer *out, const char *name, const char *help, const char *type)
{
    spry_buffer_format(out, "# HELP spry_%s %s\n# TYPE spry_%s %s\n", name, help, name, type);
}

/* spry_NAME{model="MODEL */
static void print_series(spry_buffer *out, const char *name, const char *suffix, const char *model)
{
    spry_buffer_format(out, "spry_%s%s{model=\"", name, suffix);
    for (; *model; model++) {
        if (*model == '"' || *model == '\\')
            spry_buffer_append(out, "\\", 1);
        if (*model == '\n')
            spry_buffer_text(out, "\\n");
        else
            spry_buffer_append(out, model, 1);
    }
}

static void print_counter(spry_buffer *out, const spry_counter_field *field, const spry_model_status *model)
{
    const uint64_t *values = spry_model_counts_values(&model->counts, field);
    for (size_t i = 0; i < field->n_values; i++) {
        print_series(out, field->name, "", model->pool.name);
        if (field->label)
            spry_buffer_format(out, "\",%s=\"%zu", field->label, field->first_label + i);
        spry_buffer_format(out, "\"} %llu\n", (unsigned long long)values[i]);
    }
}

static void print_histogram(spry_buffer *out, const spry_histogram_field *field, const spry_model_status *model)
{
    const spry_histogram *h = spry_model_counts_histogram(&model->counts, field);
    uint64_t below = 0;
    for (size_t i = 0; i <= SPRY_HISTOGRAM_BUCKETS; i++) {
        below += h->buckets[i];
        print_series(out, field->name, "_bucket", model->pool.name);
        if (i < SPRY_HISTOGRAM_BUCKETS)
            spry_buffer_format(out, "\",le=\"%g\"} %llu\n", spry_histogram_limits[i], (unsigned long long)below);
        else
            spry_buffer_format(out, "\",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    print_series(out, field->name, "_sum", model->pool.name);
    spry_buffer_format(out, "\"} %.9g\n", h->sum);
    print_series(out, field->name, "_count", model->pool.name);
    spry_buffer_format(out, "\"} %llu\n", (unsigned long long)h->count);
}

static void print_counts(spry_buffer *out, const spry_model_status *models, size_t n_models)
{
    for (size_t i = 0; i < SPRY_COUNTER_FIELDS; i++) {
        print_head(out, spry_counter_fields[i].name, spry_counter_fields[i].help, "counter");
        for (size_t k = 0; k < n_models; k++)
            if (models[k].has_counts)
                print_counter(out, &spry_counter_fields[i], &models[k]);
    }
    for (size_t i = 0; i < SPRY_HISTOGRAM_FIELDS; i++) {
        print_head(out, spry_histogram_fields[i].name, spry_histogram_fields[i].help, "histogram");
        for (size_t k = 0; k < n_models; k++)
            if (models[k].has_counts)
                print_histogram(out, &spry_histogram_fields[i], &models[k]);
    }
}

/* ---- gauges ------------------------------------------------------------------------------------------------------ */

enum { N_GAUGES = 24 };

static const struct {
    const char *name, *help, *type;
} gauges[N_GAUGES] = {
    {"model_loaded", "1 if the model is in memory", "gauge"},
    {"pool_bytes", "Limit for the model's memory: weights, working memory, all of KV memory", "gauge"},
    {"memory_bytes", "Memory the model takes now", "gauge"},
    {"requests_running", "Answers being computed", "gauge"},
    {"requests_waiting", "Answers waiting in the queue", "gauge"},
    {"kv_bytes", "Limit for KV memory", "gauge"},
    {"kv_used_bytes", "Pages in use or cached", "gauge"},
    {"kv_held_bytes", "KV memory taken from the system now, free pages included", "gauge"},
    {"kv_idle_bytes", "Cached pages not in use", "gauge"},
    {"kv_host_bytes", "Host memory taken for cached pages of a GPU", "gauge"},
    {"kv_host_saved_total", "Cached pages copied to host memory when they were evicted", "counter"},
    {"kv_host_loaded_total", "Cached pages copied back from host memory", "counter"},
    {"kv_disk_bytes", "Cached pages on disk", "gauge"},
    {"known_prompts_total", "Prompts whose first page one of the latest 4,096 beginnings of prompts had", "counter"},
    {"found_prompts_total", "Known prompts that were found in the cache: the hit rate is their share of known ones",
     "counter"},
    {"model_pinned", "1 if the model is pinned in memory", "gauge"},
    {"batch_limit", "Most answers decoded in one step at present", "gauge"},
    {"steps_total", "Steps since the model was loaded, of all its jobs", "counter"},
    {"step_rows_total", "Rows of those steps", "counter"},
    {"step_decode_rows_total", "Rows of those steps that decode answers", "counter"},
    {"steps_ahead_total", "Steps begun on the device before the tokens of the step before were read", "counter"},
    {"device_waits_total", "Times the host waited for the device; 0 on the CPU", "counter"},
    {"preempted_total", "Answers returned to the queue because KV memory was short or interactive ones came",
     "counter"},
    {"refused_total", "Answers refused because the queue was full", "counter"},
};

/* The values of a model, in the order of the table. */
static void read_gauges(double values[N_GAUGES], const spry_model_status *model)
{
    const spry_pool_info *pool = &model->pool;
    const spry_kv_figures *kv = &model->kv;
    const double all[N_GAUGES] = {pool->state == SPRY_POOL_LOADED,
                                  (double)pool->loaded_bytes,
                                  (double)(pool->loaded_bytes - (kv->pages - kv->held_pages) * kv->page_bytes),
                                  (double)model->running,
                                  (double)model->waiting,
                                  (double)(kv->pages * kv->page_bytes),
                                  (double)((kv->pages - kv->free_pages) * kv->page_bytes),
                                  (double)(kv->held_pages * kv->page_bytes),
                                  (double)(kv->idle_pages * kv->page_bytes),
                                  (double)kv->host_bytes,
                                  (double)kv->host_saved_pages,
                                  (double)kv->host_loaded_pages,
                                  (double)kv->disk_bytes,
                                  (double)kv->known_prompts,
                                  (double)kv->found_prompts,
                                  pool->pinned,
                                  pool->work.batch_limit,
                                  (double)pool->work.steps,
                                  (double)pool->work.rows,
                                  (double)pool->work.decode_rows,
                                  (double)pool->work.ahead,
                                  (double)pool->work.waits,
                                  (double)pool->work.preempted,
                                  (double)pool->work.refused};
    memcpy(values, all, sizeof all);
}

static void print_gauges(spry_buffer *out, const spry_model_status *models, size_t n_models)
{
    for (size_t i = 0; i < N_GAUGES; i++) {
        print_head(out, gauges[i].name, gauges[i].help, gauges[i].type);
        for (size_t k = 0; k < n_models && models[k].in_pool; k++) {
            double values[N_GAUGES];
            read_gauges(values, &models[k]);
            print_series(out, gauges[i].name, "", models[k].pool.name);
            spry_buffer_format(out, "\"} %.17g\n", values[i]);
        }
    }
}

/* ---- llama-server's names ---------------------------------------------------------------------------------------- */

static double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

/* llama-server's metrics, summed over all models. */
static void print_llama(spry_buffer *out, const spry_model_status *models, size_t n_models)
{
    spry_model_counts all = {0};
    double running = 0, waiting = 0, steps = 0, rows = 0;
    for (size_t i = 0; i < n_models; i++) {
        if (models[i].has_counts)
            spry_model_counts_merge(&all, &models[i].counts);
        running += (double)models[i].running;
        waiting += (double)models[i].waiting;
        steps += (double)models[i].pool.work.steps;
        rows += (double)models[i].pool.work.decode_rows;
    }
    double computed = (double)(all.prompt_tokens - all.cached_tokens), made = (double)all.generated_tokens;
    double prompt_s = (double)all.prompt_us / 1e6, made_s = (double)all.decode_us / 1e6;
    const struct {
        const char *name, *type, *help;
        double value;
    } lines[] = {
        {"prompt_tokens_total", "counter", "Prompt tokens computed", computed},
        {"prompt_tokens_cached_total", "counter", "Prompt tokens found in the cache", (double)all.cached_tokens},
        {"prompt_seconds_total", "counter", "Time of prompts", prompt_s},
        {"tokens_predicted_total", "counter", "Generated tokens", made},
        {"tokens_predicted_seconds_total", "counter", "Time of generating", made_s},
        {"n_decode_total", "counter", "Steps of all jobs", steps},
        {"n_tokens_max", "counter", "Longest prompt with its answer, in tokens", (double)all.longest},
        {"spec_decode_num_draft_tokens_total", "counter", "Draft tokens", (double)all.drafted_tokens},
        {"spec_decode_num_accepted_tokens_total", "counter", "Accepted draft tokens", (double)all.accepted_tokens},
        {"spec_decode_num_drafts_total", "counter", "Steps with draft tokens", (double)spry_model_counts_drafts(&all)},
        {"prompt_tokens_seconds", "gauge", "Prompt tokens computed a second", per_second(computed, prompt_s)},
        {"predicted_tokens_seconds", "gauge", "Tokens generated a second", per_second(made, made_s)},
        {"requests_processing", "gauge", "Answers being computed", running},
        {"requests_deferred", "gauge", "Answers waiting in the queue", waiting},
        {"n_busy_slots_per_decode", "gauge", "Answers decoded in one step, on average", per_second(rows, steps)},
    };
    for (size_t i = 0; i < SPRY_COUNT(lines); i++)
        spry_buffer_format(out, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.17g\n", lines[i].name,
                           lines[i].help, lines[i].name, lines[i].type, lines[i].name, lines[i].value);
}

static void print_energy(spry_buffer *out, spry_server *server)
{
    spry_joules used;
    spry_registry_energy(&server->registry, &used, server->meter);
    if (used.has_cpu || used.has_gpu)
        print_head(out, "energy_joules_total", "Energy of the whole machine since the server started", "counter");
    if (used.has_cpu)
        spry_buffer_format(out, "spry_energy_joules_total{device=\"cpu\"} %.17g\n", used.cpu);
    if (used.has_gpu)
        spry_buffer_format(out, "spry_energy_joules_total{device=\"gpu\"} %.17g\n", used.gpu);
}

/* Fields that this machine does not report are omitted. */
static void print_machine(spry_buffer *out, spry_server *server)
{
    spry_machine_state before, now;
    spry_machine_watch_read(&server->machine, &before, &now);
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++) {
        const spry_machine_field *field = &spry_machine_fields[i];
        double value = spry_machine_field_value(&now, field);
        char name[64];
        if (isnan(value))
            continue;
        bool of_process = field->offset == offsetof(spry_machine_state, resident_bytes);
        snprintf(name, sizeof name, "%s%s", of_process ? "" : "machine_", field->name);
        print_head(out, name, field->help, field->counts ? "counter" : "gauge");
        spry_buffer_format(out, "spry_%s %.17g\n", name, value);
    }
}

void spry_metrics_print(spry_buffer *out, spry_server *server)
{
    spry_model_status *models;
    size_t n_models;
    if (!spry_registry_models(&server->registry, &models, &n_models, server->pool)) {
        out->failed = true;
        return;
    }
    print_counts(out, models, n_models);
    print_gauges(out, models, n_models);
    print_llama(out, models, n_models);
    print_energy(out, server);
    print_head(out, "uptime_seconds", "Time since the server started", "gauge");
    spry_buffer_format(out, "spry_uptime_seconds %.3f\n", (double)(spry_clock_ns() - server->started_ns) / 1e9);
    print_machine(out, server);
    free(models);
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

#define ENDED_SHOWN_NS 5000000000u
#define ENDED_FIRST_NS 120000000000u

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
                          json_pack("{s:s, s:s, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:f}", "id", r->id, "model",
                                    r->model, "ignored", r->ignored, "state", spry_phase_name(phase), "start_ms",
                                    (double)r->began_ns / 1e6, "parts_ms", parts_of(r, ended, l->now), "prompt_tokens",
                                    (json_int_t)r->prompt_tokens, "cached_tokens", (json_int_t)r->result.reused_tokens,
                                    "generated_tokens", (json_int_t)generated, "tokens_per_second",
                                    generated > 1 && decode_ms > 0 ? (double)(generated - 1) / decode_ms * 1e3 : 0.0));
}

json_t *spry_watch_requests(spry_server *server, spry_view key, uint64_t ended_ns)
{
    request_list l = {json_array(), spry_clock_ns()};
    uint64_t since = !ended_ns ? UINT64_MAX : l.now > ended_ns ? l.now - ended_ns : 0;
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

char *spry_watch_snapshot(spry_server *server, spry_view key, bool first)
{
    size_t bytes;
    double now = (double)spry_clock_ns() / 1e6;
    json_t *models = models_json(server, &bytes);
    json_t *snapshot =
        json_pack("{s:f, s:o, s:o, s:{s:I, s:I}, s:o, s:o}", "now_ms", now, "requests",
                  spry_watch_requests(server, key, first ? ENDED_FIRST_NS : ENDED_SHOWN_NS), "models", models, "pool",
                  "bytes", (json_int_t)bytes, "max_bytes", (json_int_t)server->pool_bytes, "energy",
                  energy_json(server), "machine", machine_json(server));
    char *text = snapshot ? spry_json_text(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(snapshot);
    return text;
}

/* ---- the audit log ----------------------------------------------------------------------------------------------- */

/* A line is one write to a file opened for appending, so lines of several threads do not mix. */

enum { TIME_BYTES = 32 };

spry_status spry_audit_log_open(spry_audit_log *log, const char *path, spry_error *error)
{
    *log = (spry_audit_log){.file = -1};
    if (!path)
        return SPRY_OK;
    log->file = strcmp(path, "-") == 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                                       : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    return log->file >= 0 ? SPRY_OK : spry_fail(error, SPRY_ERR_FILE, "--audit-log %s: %s", path, strerror(errno));
}

void spry_audit_log_close(spry_audit_log *log)
{
    if (log->file >= 0)
        close(log->file);
    log->file = -1;
}

/* "2026-01-31T12:00:00.123Z" */
static void time_text(char out[TIME_BYTES])
{
    struct timespec now;
    struct tm day;
    char seconds[TIME_BYTES];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(out, TIME_BYTES, "%.20s.%03uZ", seconds, (unsigned)(now.tv_nsec / 1000000) % 1000u);
}

/* The key's name, or the number of its line; null without keys or with a wrong one. */
static json_t *key_json(const spry_exchange *x)
{
    if (!x->key.data)
        return json_null();
    char name[SPRY_KEY_NAME_BYTES];
    spry_access_keys_name((spry_access_keys *)(uintptr_t)&x->server->keys, name, x->key_index);
    return name[0] ? spry_view_json(spry_view_of(name)) : json_integer((json_int_t)x->key_index + 1);
}

static char *line_of(const spry_exchange *x)
{
    const spry_audit_facts *a = &x->audit;
    char when[TIME_BYTES];
    time_text(when);
    json_t *line =
        json_pack("{s:s, s:I, s:o, s:s, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:f, s:b}", "time", when, "request",
                  (json_int_t)x->number, "key", key_json(x), "address", a->address, "method",
                  spry_view_json(spry_view_of(a->method)), "path", spry_view_json(spry_view_of(a->path)), "model",
                  a->model[0] ? spry_view_json(spry_view_of(a->model)) : json_null(), "status", (int)x->status,
                  "bytes_in", (json_int_t)x->body.size, "prompt_tokens", (json_int_t)a->prompt, "cached_tokens",
                  (json_int_t)a->cached, "generated_tokens", (json_int_t)a->generated, "ms",
                  (double)(spry_clock_ns() - x->began_ns) / 1e6, "complete", a->whole);
    char *text = line ? spry_json_text(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    return text;
}

void spry_audit_log_write(spry_audit_log *log, const spry_exchange *x)
{
    if (log->file < 0)
        return;
    char *text = line_of(x);
    size_t size = text ? strlen(text) : 0;
    bool written = false;
    if (text) {
        text[size] = '\n'; /* instead of the zero */
        written = write(log->file, text, size + 1) == (ssize_t)size + 1;
    }
    free(text);
    if (!written && !atomic_exchange(&log->failed, true))
        spry_complain("--audit-log: a line could not be written: %s; later lines are still tried", strerror(errno));
}

/* ---- requests on a terminal -------------------------------------------------------------------------------------- */

void spry_request_show(const spry_exchange *x)
{
    enum { LINE_BYTES = 1024, BAD = 400 };
    const spry_audit_facts *a = &x->audit;
    if (!x->server->shows_requests || (x->route && x->route->access == SPRY_ROUTE_OPEN && x->status < BAD))
        return;
    char line[LINE_BYTES], tokens[64] = "", took[SPRY_AMOUNT_MAX], when[16];
    struct tm day;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&now, &day));
    if (a->prompt || a->generated)
        snprintf(tokens, sizeof tokens, "  %zu + %zu tokens", a->prompt, a->generated);
    snprintf(line, sizeof line, "%s  %u  %s %s%s%s%s  %s%s", when, x->status, a->method, a->path,
             a->model[0] ? "  " : "", a->model, tokens,
             spry_amount_time(took, (double)(spry_clock_ns() - x->began_ns) / 1e6),
             a->whole ? "" : "  the client left");
    spry_buffer safe;
    spry_buffer_init(&safe, 4 * LINE_BYTES);
    spry_terminal_defuse(&safe, spry_view_of(line), "");
    fprintf(stderr, "%s%s%s\n", spry_style_begin(stderr, x->status < BAD ? SPRY_STYLE_DIM : SPRY_STYLE_ERROR),
            spry_buffer_view(&safe).data, spry_style_end(stderr));
    spry_buffer_deinit(&safe);
}
