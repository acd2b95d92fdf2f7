/* Measures ways to launch decode steps (cuda_tune.h) on the GPU that is open, before anything else runs on it: steps of
 * sequences in the middle of a text, over pages of zeros. They are launched one behind the other and waited for at the
 * end, as steps ahead are. What the profile has for this GPU, its driver, these kernels and this model's shape is not
 * measured again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_state.h"
#include "kernels/ops.h"
#include "model/arch.h"
#include "platform/clock.h"

enum { TOKENS = 512, ROWS_MAX = 64, WARM = 2, ROUNDS = 3, ROUND_MAX = 4, KEY_BYTES = 384, TEXT_BYTES = 512 };

static const double config_us = 40e3;     /* the time that one way may take */
static const uint64_t warm_ns = 50000000; /* until clocks are up */

typedef struct tuner {
    spry_cuda_device *d;
    size_t rows;        /* that were laid out last; 0: none */
    size_t round_steps; /* 0: a step takes too long for more than one */
    spry_status status;
    spry_error *error;
} tuner;

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Memory that was never written may hold numbers that routers cannot compare. */
static void zero_pages(spry_cuda_context *c, spry_cuda_memory pages, size_t words)
{
    if (c->fault)
        return;
    c->fault = c->cuda->memory_fill(pages, 0, words);
    c->fault_call = "cuMemsetD32";
    if (!c->fault) { /* it is not in the stream of steps */
        c->fault = c->cuda->stream_wait(NULL);
        c->fault_call = "cuStreamSynchronize";
    }
}

/* Tables of sequences whose pages are the same but for the last: more would not fit where few sequences are meant to be
 * held. */
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

/* Microseconds of each of so many steps. */
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

/* What decides how long steps take. */
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

/* Whether the device runs decode steps by itself, and such long ones. */
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
