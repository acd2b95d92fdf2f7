/* Tuning of decode launch configs (cuda_tune.h): measuring, choosing, and the profile file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"
#include "device/cuda/cuda_state.h"
#include "device/cuda/cuda_tune.h"
#include "kernels/ops.h"
#include "model/arch.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Measures on the open GPU before anything else runs on it: decode steps in the middle of a text, over zeroed pages.
 * Steps are launched one after the other and waited for at the end, as steps submitted ahead are. Entries that the
 * profile has for this GPU, driver, kernel revision and model shape are not measured again. */

enum { TOKENS = 512, ROWS_MAX = 64, WARM = 2, ROUNDS = 3, ROUND_MAX = 4, KEY_BYTES = 384, TEXT_BYTES = 512 };

static const double config_us = 40e3;     /* the time for one config */
static const uint64_t warm_ns = 50000000; /* until the clocks have risen */

typedef struct tuner {
    spry_cuda_device *d;
    size_t rows;        /* of the prepared step; 0: none */
    size_t round_steps; /* 0: a step takes too long for more than one */
    spry_status status;
    spry_error *error;
} tuner;

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Uninitialised memory may hold NaN, which routers cannot compare. */
static void zero_pages(spry_cuda_context *c, spry_cuda_memory pages, size_t words)
{
    if (c->fault)
        return;
    c->fault = c->cuda->memory_fill(pages, 0, words);
    c->fault_call = "cuMemsetD32";
    if (!c->fault) { /* the fill is not in the steps' stream */
        c->fault = c->cuda->stream_wait(NULL);
        c->fault_call = "cuStreamSynchronize";
    }
}

/* Page tables of `rows` sequences that share all pages but the last, because there may not be room for more. */
static spry_status lay_out(spry_cuda_device *d, size_t rows, spry_error *error)
{
    static const int32_t token = 0;
    spry_segment segments[ROWS_MAX];
    spry_kv_table tables[ROWS_MAX];
    size_t n_pages = d->pool->n_pages, tokens = n_pages * SPRY_PAGE_TOKENS;
    tokens = tokens < TOKENS ? tokens : TOKENS;
    tokens = tokens < d->device.limits.session ? tokens : d->device.limits.session;
    size_t each = (tokens + SPRY_PAGE_TOKENS - 1) / SPRY_PAGE_TOKENS, used = each - 1 + rows;
    used = used < n_pages ? used : n_pages;
    spry_kv_entry *entries = calloc(rows * each, sizeof *entries);
    if (!entries)
        return spry_fail_memory(error, "tables of a step", rows * each * sizeof *entries);
    for (size_t i = 0; i < rows * each; i++) {
        size_t k = i % each, start = k * SPRY_PAGE_TOKENS, left = tokens - start;
        entries[i] = (spry_kv_entry){.page = (uint32_t)(k + 1 < each ? k : (k + i / each) % n_pages),
                                     .start = (uint32_t)start,
                                     .count = (uint32_t)(left < SPRY_PAGE_TOKENS ? left : SPRY_PAGE_TOKENS)};
    }
    for (size_t i = 0; i < rows; i++) {
        tables[i] = (spry_kv_table){.entries = entries + i * each,
                                    .n_entries = each,
                                    .capacity = each,
                                    .n_tokens = tokens,
                                    .max_tokens = tokens};
        segments[i] = (spry_segment){&tables[i], &token, (uint32_t)tokens - 1, 1, SPRY_WANT_LAST, {{0}}};
    }
    zero_pages(&d->context, d->pages, used * d->pool->page_bytes / sizeof(uint32_t));
    const spry_device_step step = {.segments = segments, .n_segments = rows};
    spry_status status = spry_cuda_upload_step(d, &step, NULL, error);
    spry_cuda_finish(&d->context);
    free(entries);
    return status;
}

/* Mean microseconds of a step. */
static double time_round(spry_cuda_device *d, size_t steps)
{
    uint64_t begin = spry_clock_ns();
    for (size_t i = 0; i < steps; i++)
        spry_cuda_run_graph(d, spry_cuda_run);
    spry_cuda_finish(&d->context);
    return (double)(spry_clock_ns() - begin) / 1e3 / (double)steps;
}

static double time_config(void *context, size_t rows, const spry_cuda_decode_config *config)
{
    tuner *t = context;
    spry_cuda_device *d = t->d;
    bool first = t->rows != rows;
    if (first && !t->status)
        t->status = lay_out(d, rows, t->error);
    if (t->status || (!first && !t->round_steps))
        return 0;
    t->rows = rows;
    d->measured[spry_cuda_step_size_of(rows)].config = *config;
    spry_cuda_graphs_deinit(d);
    for (uint64_t begin = spry_clock_ns(); first && !d->context.fault && spry_clock_ns() - begin < warm_ns;)
        time_round(d, 1);
    time_round(d, WARM); /* the second one becomes a graph */
    double best = time_round(d, first ? 1 : t->round_steps);
    if (first) {
        double steps = config_us / best / ROUNDS;
        t->round_steps = steps < 1 ? 0 : steps < ROUND_MAX ? (size_t)steps : ROUND_MAX;
    }
    for (size_t i = 0; t->round_steps && i < ROUNDS; i++) {
        double us = time_round(d, t->round_steps);
        best = us < best ? us : best;
    }
    t->status = spry_cuda_fault(&d->context, "measuring steps", t->error);
    return t->status ? 0 : best > 0 ? best : 1e-3;
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

/* Everything that determines the time of a step. */
static void make_key(char key[KEY_BYTES], const spry_cuda_device *d)
{
    const spry_config *c = d->config;
    const spry_cuda_layer *last = &d->model.layers[c->n_layers - 1];
    const spry_dtype types[] = {last->q.type, last->down.type, d->model.output.type};
    char names[SPRY_COUNT(types)][16];
    int driver = 0;
    if (d->context.cuda->driver_version(&driver))
        driver = 0;
    for (size_t i = 0; i < SPRY_COUNT(types); i++)
        snprintf(names[i], sizeof names[i], "%s", types[i] < SPRY_DTYPE_COUNT ? spry_dtype_name(types[i]) : "-");
    snprintf(
        key, KEY_BYTES,
        "%s, driver %d, spry %s revision %d, %s: %u layers of %u, %u heads of %u, %u of keys in %s, feed-forward %u, "
        "experts %u of %u by %u, vocabulary %u, %s %s %s",
        d->context.name, driver, spry_version(), SPRY_KERNEL_REVISION, c->arch->name, c->n_layers, c->n_embd,
        c->n_heads, c->head_dim, c->n_kv_heads, spry_dtype_name(d->pool->shape.type), c->n_ff, c->n_experts_used,
        c->n_experts, c->n_expert_ff, c->n_vocab, names[0], names[1], names[2]);
}

/* True if the device runs decode steps of this size itself. */
static bool decodes(const spry_cuda_device *d, size_t rows)
{
    return !d->config->bidirectional && d->model.embedding.type != SPRY_DTYPE_COUNT &&
           d->model.output.type != SPRY_DTYPE_COUNT && d->pool->n_pages && d->device.limits.session &&
           rows <= d->device.limits.max_rows && rows <= d->device.limits.max_logits;
}

spry_status spry_cuda_tune(spry_cuda_device *d, const char *profile, const spry_log *log, spry_cuda_timer timer,
                           void *context, spry_error *error)
{
    tuner own = {.d = d, .error = error};
    char key[KEY_BYTES], text[TEXT_BYTES];
    spry_error why = {0};
    uint64_t begin = spry_clock_ns(), waits = d->context.waits;
    bool anew = false;
    if (!decodes(d, 1))
        return SPRY_OK;
    make_key(key, d);
    if (spry_cuda_profile_read(d->measured, profile, key, &why))
        spry_log_write(log, SPRY_LOG_WARN, "%s; decode steps are measured anew", why.message);
    spry_cuda_enter(&d->context);
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES && !own.status; i++) {
        spry_cuda_measured best;
        if (d->measured[i].us > 0 || !decodes(d, spry_cuda_step_sizes[i]))
            continue;
        spry_cuda_choose(&best, spry_cuda_step_sizes[i], timer ? timer : time_config, timer ? context : &own);
        d->measured[i] = best;
        anew = true;
    }
    spry_cuda_graphs_deinit(d);
    d->context.waits = waits;
    if (own.status)
        return own.status;
    spry_cuda_profile_describe(text, sizeof text, d->measured);
    spry_log_write(log, SPRY_LOG_INFO, "%s: decode steps %s in %.0f ms, %s: %s", d->context.name,
                   anew ? "measured" : "as measured before, read", (double)(spry_clock_ns() - begin) / 1e6, profile,
                   text);
    if (anew && spry_cuda_profile_write(profile, key, d->measured, &why))
        spry_log_write(log, SPRY_LOG_WARN, "decode steps will be measured again: %s", why.message);
    return SPRY_OK;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

const size_t spry_cuda_step_sizes[SPRY_CUDA_STEP_SIZES] = {1, 8, 64};

static const double clearly = 0.98; /* relative to the best time so far */

/* The values of a tunable besides 0, up to the first 0; the step sizes it applies to; the value that applies to one row
 * only. */
static const struct tunable {
    const char *name;
    size_t first_rows, last_rows;
    uint8_t values[5];
    uint8_t alone;
} tunables[SPRY_TUNABLES] = {
    [SPRY_TUNE_LAUNCHES] = {"launches", 1, 64, {1, 2}, 2}, [SPRY_TUNE_WGMMA] = {"cores", 9, 64, {1}},
    [SPRY_TUNE_CLUSTER] = {"share", 1, 64, {8, 4, 2, 1}},  [SPRY_TUNE_NORM_TILES] = {"norm_tiles", 1, 8, {2, 4}},
    [SPRY_TUNE_GATE_TILES] = {"gate_tiles", 1, 8, {4, 8}},
};

size_t spry_cuda_step_size_of(size_t rows)
{
    size_t index = 0;
    while (index < SPRY_CUDA_STEP_SIZES && rows > spry_cuda_step_sizes[index])
        index++;
    return index;
}

const char *spry_cuda_tunable_name(spry_cuda_tunable tunable)
{
    return tunables[tunable].name;
}

bool spry_cuda_decode_config_set(spry_cuda_decode_config *config, const char *name, uint64_t value)
{
    for (size_t c = 0; c < SPRY_TUNABLES; c++)
        for (const uint8_t *known = tunables[c].values; *known; known++)
            if (*known == value && strcmp(tunables[c].name, name) == 0) {
                config->of[c] = *known;
                return true;
            }
    return false;
}

/* Measures the rule again: it must still be slower after a while, because clocks rise under load. */
static void confirm(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context)
{
    const spry_cuda_decode_config by_rule = {{0}};
    double us = memcmp(&best->config, &by_rule, sizeof by_rule) ? timer(context, rows, &by_rule) : 0;
    if (us > 0 && us < best->rule_us)
        best->rule_us = us;
    if (us > 0 && best->us >= clearly * best->rule_us) {
        best->config = by_rule;
        best->us = best->rule_us;
    }
}

void spry_cuda_choose(spry_cuda_measured *best, size_t rows, spry_cuda_timer timer, void *context)
{
    *best = (spry_cuda_measured){0};
    best->us = best->rule_us = timer(context, rows, &best->config);
    double us = best->us;
    for (size_t c = 0; c < SPRY_TUNABLES; c++) {
        if (rows < tunables[c].first_rows || rows > tunables[c].last_rows)
            continue;
        for (const uint8_t *value = tunables[c].values; us > 0 && *value; value++) {
            if (*value == tunables[c].alone && rows > 1)
                continue;
            spry_cuda_decode_config config = best->config;
            config.of[c] = *value;
            us = timer(context, rows, &config);
            if (us > 0 && us < clearly * best->us) {
                best->config = config;
                best->us = us;
            }
        }
    }
    confirm(best, rows, timer, context);
}

void spry_cuda_profile_describe(char *text, size_t size, const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES && used < size; i++) {
        const spry_cuda_measured *m = &measured[i];
        if (!(m->us > 0))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%zu row%s %.1f us", used ? "; " : "",
                                 spry_cuda_step_sizes[i], i ? "s" : "", m->us);
        for (size_t c = 0; c < SPRY_TUNABLES && used < size; c++)
            if (m->config.of[c])
                used += (size_t)snprintf(text + used, size - used, ", %s %u", tunables[c].name, m->config.of[c]);
        if (m->us < m->rule_us && used < size)
            used += (size_t)snprintf(text + used, size - used, " (by rule %.1f us)", m->rule_us);
    }
}

/* ---- the profile file -------------------------------------------------------------------------------------------- */

/* The profile, which other processes may write, too:
 *
 *   {"format": "spry-gpu-1",
 *    "models": {"NVIDIA H200, driver 13000, ...": [{"rows": 1, "us": 740, "rule_us": 760, "share": 4}]}}
 *
 * Tunables by rule are left out. The last written key is the last one; if there are too many, the first are dropped. */

#define FORMAT "spry-gpu-1"

enum { FILE_BYTES_MAX = 1 << 20, KEYS_MAX = 64 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The parsed file; NULL if there is none. */
static spry_status read_document(json_t **out, const char *path, spry_error *error)
{
    spry_buffer text;
    *out = NULL;
    if (!spry_path_exists(path))
        return SPRY_OK;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error);
    if (!status) {
        status = spry_json_object(out, spry_buffer_view(&text), error);
        const char *format = json_string_value(json_object_get(*out, "format"));
        if (!status && (!format || strcmp(format, FORMAT) || !json_is_object(json_object_get(*out, "models"))))
            status = spry_fail(error, SPRY_ERR_FORMAT, "\"format\" is not \"" FORMAT "\", or \"models\" no object");
        if (status)
            status = spry_fail_prefix(error, status, path);
    }
    spry_buffer_deinit(&text);
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static bool read_config(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const json_t *from)
{
    spry_cuda_measured m = {.us = json_number_value(json_object_get(from, "us")),
                            .rule_us = json_number_value(json_object_get(from, "rule_us"))};
    json_int_t rows = json_integer_value(json_object_get(from, "rows"));
    size_t index = rows > 0 ? spry_cuda_step_size_of((size_t)rows) : SPRY_CUDA_STEP_SIZES;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value)
    {
        bool figure = !strcmp(key, "rows") || !strcmp(key, "us") || !strcmp(key, "rule_us");
        json_int_t number = json_integer_value(value);
        if (!figure && (number <= 0 || !spry_cuda_decode_config_set(&m.config, key, (uint64_t)number)))
            return false;
    }
    if (index == SPRY_CUDA_STEP_SIZES || (size_t)rows != spry_cuda_step_sizes[index] || !(m.us > 0) ||
        !(m.rule_us >= m.us))
        return false;
    measured[index] = m;
    return true;
}

spry_status spry_cuda_profile_read(spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], const char *path, const char *key,
                                   spry_error *error)
{
    json_t *document;
    memset(measured, 0, SPRY_CUDA_STEP_SIZES * sizeof *measured);
    spry_status status = read_document(&document, path, error);
    const json_t *list = json_object_get(json_object_get(document, "models"), key);
    bool fine = !list || json_is_array(list);
    for (size_t i = 0; fine && i < json_array_size(list); i++)
        fine = read_config(measured, json_array_get(list, i));
    if (!fine) {
        memset(measured, 0, SPRY_CUDA_STEP_SIZES * sizeof *measured);
        status =
            spry_fail(error, SPRY_ERR_FORMAT, "%s: the launch configs of \"%.200s\" are not understood", path, key);
    }
    json_decref(document);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *list_of(const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES])
{
    json_t *list = json_array();
    for (size_t i = 0; i < SPRY_CUDA_STEP_SIZES; i++) {
        const spry_cuda_measured *m = &measured[i];
        if (!(m->us > 0))
            continue;
        json_t *entry = json_pack("{s:I, s:f, s:f}", "rows", (json_int_t)spry_cuda_step_sizes[i], "us", m->us,
                                  "rule_us", m->rule_us);
        for (size_t c = 0; c < SPRY_TUNABLES; c++)
            if (m->config.of[c])
                json_object_set_new(entry, spry_cuda_tunable_name((spry_cuda_tunable)c), json_integer(m->config.of[c]));
        json_array_append_new(list, entry);
    }
    return list;
}

static spry_status write_text(const char *path, const char *text, spry_error *error)
{
    spry_file_writer writer;
    spry_directory folder;
    const char *end = strrchr(path, '/');
    char *name = end ? strndup(path, (size_t)(end - path)) : NULL;
    spry_status status = name && name[0] ? spry_directory_open(&folder, name, error) : SPRY_OK;
    if (!status && name && name[0])
        spry_directory_close(&folder);
    free(name);
    if (status)
        return status;
    status = spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, text, strlen(text), error);
    if (!status)
        return spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    return status;
}

spry_status spry_cuda_profile_write(const char *path, const char *key,
                                    const spry_cuda_measured measured[SPRY_CUDA_STEP_SIZES], spry_error *error)
{
    json_t *document;
    read_document(&document, path, NULL);
    if (!document)
        document = json_pack("{s:s, s:{}}", "format", FORMAT, "models");
    json_t *models = json_object_get(document, "models");
    json_object_del(models, key);
    while (json_object_size(models) >= KEYS_MAX)
        json_object_del(models, json_object_iter_key(json_object_iter(models)));
    json_object_set_new(models, key, list_of(measured));
    char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    spry_status status = text ? write_text(path, text, error) : spry_fail_memory(error, "a profile", FILE_BYTES_MAX);
    free(text);
    json_decref(document);
    return status;
}
