/* Tables say what is printed: the counters and histograms of model_counts.c, and the gauges below. */
#include "server/status/metrics_text.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "platform/clock.h"

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

enum { N_GAUGES = 22 };

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

/* Of all models together. */
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
