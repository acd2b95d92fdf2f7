/* `spry bench --chunk LIST`: prefill with steps of several sizes. There is one engine for each size, because working
 * memory is carved for it when an engine opens. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "platform/clock.h"

typedef struct sweep {
    spry_steps *steps;
    uint32_t tokens; /* tokens of the prompt */
} sweep;

/* One prefill from nothing. The values are tokens/s and the milliseconds of its longest step, for which an answer
 * beside it would wait. */
static spry_status once(spry_bench *b, void *context, double *values)
{
    sweep *s = context;
    double ms = 0, longest = 0;
    spry_status status = SPRY_OK;
    spry_steps_truncate(s->steps, 0);
    for (size_t at = 0; !status && at < s->tokens;) {
        size_t part = s->tokens - at < b->chunk ? s->tokens - at : b->chunk;
        status = spry_bench_go_on(b);
        uint64_t start = spry_clock_ns();
        if (!status)
            status = spry_steps_prefill(s->steps, b->ids + at, part, at + part == s->tokens, b->error);
        double step = spry_bench_ms_since(start);
        ms += step;
        longest = step > longest ? step : longest;
        at += part;
    }
    values[0] = spry_bench_ratio(s->tokens * 1e3, ms);
    values[1] = longest;
    return status;
}

static spry_status measure_point(spry_bench *b, sweep *s, uint32_t chunk, json_t *points)
{
    spry_bench_series series;
    char what[64], size[16] = "in one step";
    spry_status status = spry_bench_repeat(b, &series, true, once, s);
    if (status)
        return status;
    spry_bench_stat tps = spry_bench_stat_of(series.values[0], series.count);
    double longest = spry_bench_stat_of(series.values[1], series.count).median;
    json_array_append_new(points, json_pack("{s:I, s:I, s:f, s:f, s:f}", "chunk", (json_int_t)chunk, "tokens",
                                            (json_int_t)s->tokens, "tps", tps.median, "spread", spry_bench_spread(&tps),
                                            "longest_step_ms", longest));
    if (chunk)
        snprintf(size, sizeof size, "by %u", chunk);
    snprintf(what, sizeof what, "prefill %u %s", s->tokens, size);
    spry_bench_put_figure(b, what, SPRY_BENCH_TPS, false, tps.median);
    snprintf(what, sizeof what, "prefill %u %s, longest step", s->tokens, size);
    spry_bench_put_figure(b, what, SPRY_BENCH_MS, true, longest);
    return SPRY_OK;
}

static spry_status measure_chunk(spry_bench *b, uint32_t chunk, size_t limit, json_t *points)
{
    const spry_bench_list *lengths = &b->flags->prefill;
    sweep s = {.steps = NULL};
    b->flags->engine.options.chunk = chunk ? chunk : SPRY_BENCH_CHUNK_MAX;
    spry_status status = spry_bench_open(b, NULL, false);
    if (!status)
        status = spry_bench_make_text(b, b->context);
    if (!status)
        status = spry_steps_create(&s.steps, b->engine, 1, b->error);
    for (size_t i = 0; !status && i < lengths->count; i++) {
        s.tokens = lengths->values[i];
        if (s.tokens <= limit)
            status = measure_point(b, &s, chunk, points);
    }
    spry_steps_destroy(s.steps);
    spry_bench_close(b);
    return status;
}

static spry_status measure(spry_bench *b)
{
    const spry_bench_flags *f = b->flags;
    spry_engine_options *o = &b->flags->engine.options;
    const spry_model_file file = spry_model_source_file(b->source);
    json_t *points = json_array(), *skipped = json_array();
    uint32_t longest = 1;
    char why[64];
    spry_checkpoint checkpoint = {0};
    spry_bench_put(b, "points", points);
    spry_bench_put(b, "skipped", skipped);
    snprintf(b->doing, sizeof b->doing, "prefill:");
    b->whole = f->chunks.count * f->prefill.count;
    spry_status status = spry_bench_check_baseline(b);
    if (!status)
        status = spry_checkpoint_read(&checkpoint, &file, o->kv_type, b->error);
    size_t limit = o->context ? o->context : checkpoint.context;
    for (size_t c = 0; c < f->chunks.count; c++)
        for (size_t i = 0; i < f->prefill.count; i++) {
            uint32_t tokens = f->prefill.values[i];
            snprintf(why, sizeof why, "%u tokens pass the limit of %zu", tokens, limit);
            if (tokens > limit)
                json_array_append_new(skipped, json_pack("{s:I, s:I, s:s}", "chunk", (json_int_t)f->chunks.values[c],
                                                         "tokens", (json_int_t)tokens, "why", why));
            else if (tokens > longest)
                longest = tokens;
        }
    o->context = longest;
    for (size_t c = 0; !status && c < f->chunks.count; c++)
        status = measure_chunk(b, f->chunks.values[c], limit, points);
    return status;
}

static void print(const json_t *report)
{
    static const spry_bench_column columns[] = {{"chunk", 8, "chunk", SPRY_BENCH_NOT_ZERO, "whole"},
                                                {"prefill", 9, "tokens", SPRY_BENCH_COUNT, NULL},
                                                {"tokens/s", 12, "tps", SPRY_BENCH_TENTHS, NULL},
                                                {"spread", 9, "spread", SPRY_BENCH_SHARE, NULL},
                                                {"longest step", 14, "longest_step_ms", SPRY_BENCH_TIME, NULL}};
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_format("\n");
    spry_bench_table(columns, SPRY_COUNT(columns), json_object_get(report, "points"),
                     json_object_get(report, "skipped"), "");
}

const spry_bench_kind spry_bench_chunk_kind = {"--chunk", SPRY_CHUNK_FORMAT, measure, print};
