/* Measuring one model: first token, load, prefill, decode of one sequence, decode of batches. Each is
 * first done once without counting, so that pages are there, caches warm and files read. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "interrupt.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "terminal.h"

typedef struct runner {
    spry_bench_report *report;
    spry_bench_settings *settings;
    const char *model;               /* as the command was given it; NULL: the bundled one */
    const spry_model_source *source; /* what that is */
    spry_engine *engine;
    spry_batch batch;
    int32_t *ids; /* [n_ids]: made-up text */
    size_t n_ids;
    spry_progress_line line;
    char doing[96];
    size_t measured, to_measure;
    spry_error *error;
} runner;

/* ---- what people see meanwhile -------------------------------------------------------------------------------------
 */

static spry_status check_interrupt(runner *r)
{
    spry_progress_update(&r->line, r->measured, r->to_measure);
    if (spry_interrupt_seen())
        return spry_fail(r->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
    return SPRY_OK;
}

static void begin_measuring(runner *r, const spry_bench_point *point)
{
    if (point->decode)
        snprintf(r->doing, sizeof r->doing, "decode at depth %u, %u together:", point->tokens, point->batch);
    else
        snprintf(r->doing, sizeof r->doing, "prefill of %u tokens:", point->tokens);
}

/* ---- numbers -------------------------------------------------------------------------------------------------------
 */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

spry_bench_stat spry_bench_stat_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (spry_bench_stat){(values[(count - 1) / 2] + values[count / 2]) / 2, values[0], values[count - 1]};
}

static double seconds_since(uint64_t start)
{
    return (double)(spry_clock_ns() - start) / 1e9;
}

/* ---- prefill -------------------------------------------------------------------------------------------------------
 */

/* Appends tokens to the first sequence until it has `tokens`. */
static spry_status fill(runner *r, size_t tokens)
{
    spry_status status = SPRY_OK;
    for (size_t done = r->batch.tables[0].n_tokens; !status && done < tokens;) {
        size_t part = tokens - done < r->engine->chunk ? tokens - done : r->engine->chunk;
        status = check_interrupt(r);
        if (!status)
            status = spry_batch_prefill(&r->batch, r->ids + done, part, done + part == tokens, r->error);
        done += part;
    }
    return status;
}

static spry_status measure_prefill(runner *r, spry_bench_point *point)
{
    double tps[SPRY_BENCH_REPEAT_MAX];
    spry_status status = fill(r, point->tokens);
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        spry_batch_truncate(&r->batch, 0);
        uint64_t start = spry_clock_ns();
        status = fill(r, point->tokens);
        tps[i] = point->tokens / seconds_since(start);
    }
    spry_batch_truncate(&r->batch, 0);
    if (status)
        return status;
    point->tps = spry_bench_stat_of(tps, r->settings->repeat);
    spry_bench_work work = spry_bench_prefill_work(r->engine, point->tokens);
    double seconds = point->tokens / point->tps.median;
    point->read_gb_s = work.bytes / seconds / 1e9;
    point->multiply_g_s = work.products / seconds / 1e9;
    return SPRY_OK;
}

/* ---- decode --------------------------------------------------------------------------------------------------------
 */

static spry_status generate(runner *r, size_t n_tokens, size_t batch)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < n_tokens; i++) {
        status = check_interrupt(r);
        if (!status)
            status = spry_batch_step(&r->batch, r->ids + i * batch % (r->n_ids - batch + 1), batch, r->error);
    }
    return status;
}

/* The sequences hold `depth` tokens each, before and afterwards. */
static spry_status measure_decode(runner *r, spry_bench_point *point)
{
    double tps[SPRY_BENCH_REPEAT_MAX];
    uint32_t tokens = r->settings->tokens, depth = point->tokens;
    spry_status status = generate(r, tokens, point->batch);
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        spry_batch_truncate(&r->batch, depth);
        uint64_t start = spry_clock_ns();
        status = generate(r, tokens, point->batch);
        tps[i] = (double)tokens * point->batch / seconds_since(start);
    }
    spry_batch_truncate(&r->batch, depth);
    if (status)
        return status;
    point->tps = spry_bench_stat_of(tps, r->settings->repeat);
    spry_bench_work work = spry_bench_decode_work(r->engine, depth + tokens / 2, point->batch);
    double seconds = point->batch / point->tps.median;
    point->read_gb_s = work.bytes / seconds / 1e9;
    point->multiply_g_s = work.products / seconds / 1e9;
    return SPRY_OK;
}

/* The points of one kind in the order to run them: one sequence from the smallest depth to the largest, so that it only
 * ever grows; batches backwards, so that it only shrinks. */
typedef enum stage { STAGE_PREFILL, STAGE_ONE, STAGE_BATCHES } stage;

static bool belongs(const spry_bench_point *point, stage s)
{
    stage own = !point->decode ? STAGE_PREFILL : point->batch == 1 ? STAGE_ONE : STAGE_BATCHES;
    return own == s && !point->skipped[0];
}

static int by_depth(const void *a, const void *b)
{
    const spry_bench_point *x = *(spry_bench_point *const *)a, *y = *(spry_bench_point *const *)b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static int by_depth_down(const void *a, const void *b)
{
    return by_depth(b, a);
}

static spry_status measure_point(runner *r, spry_bench_point *point)
{
    begin_measuring(r, point);
    spry_status status = SPRY_OK;
    if (!point->decode) {
        status = measure_prefill(r, point);
    } else {
        spry_batch_truncate(&r->batch, point->tokens);
        status = fill(r, point->tokens);
        if (!status)
            status = spry_batch_spread(&r->batch, point->batch, r->error);
        if (!status)
            status = measure_decode(r, point);
    }
    r->measured++;
    return status;
}

static spry_status measure_stage(runner *r, stage s)
{
    spry_bench_point *order[SPRY_BENCH_POINTS_MAX];
    size_t count = 0;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < r->report->n_points; i++)
        if (belongs(&r->report->points[i], s))
            order[count++] = &r->report->points[i];
    if (s != STAGE_PREFILL)
        qsort(order, count, sizeof *order, s == STAGE_ONE ? by_depth : by_depth_down);
    for (size_t i = 0; !status && i < count; i++)
        status = measure_point(r, order[i]);
    return status;
}

/* ---- all of it -----------------------------------------------------------------------------------------------------
 */

/* A model that cannot answer by itself (it has no tokenizer) can be measured all the same. */
static spry_status measure_first_token(runner *r)
{
    double ms[SPRY_BENCH_REPEAT_MAX], warm;
    snprintf(r->doing, sizeof r->doing, "first token of a new process:");
    spry_status status = spry_bench_first_token(&warm, r->settings, r->source, r->error);
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        status = check_interrupt(r);
        if (!status)
            status = spry_bench_first_token(&ms[i], r->settings, r->source, r->error);
    }
    r->measured++;
    if (!status)
        r->report->first_token_ms = spry_bench_stat_of(ms, r->settings->repeat);
    return spry_interrupt_seen() ? check_interrupt(r) : SPRY_OK;
}

/* Opens and closes; the last one stays. */
static spry_status measure_load(runner *r)
{
    double ms[SPRY_BENCH_REPEAT_MAX];
    snprintf(r->doing, sizeof r->doing, "opening the model:");
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        spry_engine_close(r->engine);
        r->engine = NULL;
        status = check_interrupt(r);
        uint64_t start = spry_clock_ns();
        spry_model_source source = {0};
        if (!status)
            status =
                spry_open_model(&r->engine, &source, r->model, &r->settings->model, &r->settings->engine, r->error);
        ms[i] = seconds_since(start) * 1e3;
        spry_model_source_deinit(&source);
    }
    r->measured++;
    if (!status)
        r->report->load_ms = spry_bench_stat_of(ms, r->settings->repeat);
    return status;
}

/* Ids that look like text to the memory: hardly ever the same twice. */
static spry_status make_text(runner *r, size_t n_vocab)
{
    r->n_ids = r->engine->context > SPRY_BATCH_MAX ? r->engine->context : SPRY_BATCH_MAX;
    r->ids = malloc(r->n_ids * sizeof *r->ids);
    if (!r->ids)
        return spry_fail_memory(r->error, "made-up text", r->n_ids * sizeof *r->ids);
    uint64_t state = 1;
    for (size_t i = 0; i < r->n_ids; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        r->ids[i] = (int32_t)((state >> 33) % n_vocab);
    }
    return SPRY_OK;
}

static spry_status measure_all(runner *r, const spry_bench_needs *needs)
{
    spry_status status = measure_first_token(r);
    r->settings->engine.options.context = needs->context;
    r->settings->engine.options.sessions = needs->sessions;
    if (!status)
        status = measure_load(r);
    if (!status)
        status = make_text(r, r->engine->model->config.n_vocab);
    if (!status)
        status = spry_batch_init(&r->batch, r->engine, needs->batch, r->error);
    if (!status)
        status = measure_stage(r, STAGE_PREFILL);
    if (!status)
        status = measure_stage(r, STAGE_ONE);
    r->report->one_peak_bytes = spry_memory_peak();
    if (!status)
        status = measure_stage(r, STAGE_BATCHES);
    r->report->peak_bytes = spry_memory_peak();
    return status;
}

/* Looks at the model, without packing it, to see what can be run. */
static spry_status plan(runner *r, spry_bench_needs *needs)
{
    const spry_model_source *s = r->source;
    spry_model *model = NULL;
    spry_status status = s->data ? spry_model_open_memory(&model, s->data, s->size, s->name, r->error)
                                 : spry_model_open(&model, s->path, r->error);
    if (!status)
        status = spry_bench_plan(r->report, needs, r->settings, model, r->error);
    spry_model_close(model);
    r->to_measure = 2;
    for (size_t i = 0; i < r->report->n_points; i++)
        r->to_measure += !r->report->points[i].skipped[0];
    return status;
}

spry_status spry_bench_run(spry_bench_report *report, spry_bench_settings *settings, const char *model,
                           const spry_model_source *source, spry_error *error)
{
    runner r = {.report = report, .settings = settings, .model = model, .source = source, .error = error};
    spry_bench_needs needs;
    spry_progress_begin(&r.line, r.doing);
    spry_status status = plan(&r, &needs);
    if (!status)
        status = measure_all(&r, &needs);
    spry_progress_end(&r.line);
    if (!status) {
        spry_engine_info info;
        spry_engine_describe(r.engine, &info);
        report->architecture = info.architecture;
        report->parameters = info.parameters;
        report->weight_bytes = info.weight_bytes;
        report->main_type = spry_bench_main_type(r.engine->model);
        report->machine.threads = info.threads;
        report->machine.kernels = info.cpu;
    }
    spry_batch_deinit(&r.batch);
    spry_engine_close(r.engine);
    free(r.ids);
    return status;
}
