/* One engine for each chunk, because working memory is carved for it when an engine opens. */
#include "bench/bench_chunk.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_gate.h"
#include "cli/interrupt.h"
#include "platform/clock.h"

enum { CHUNK_MOST = 65536 };

typedef struct bench {
    spry_bench_settings *settings;
    spry_engine *engine;
    spry_steps *steps;
    int32_t *ids; /* [the longest prompt] */
    uint32_t chunk;
    spry_progress_line line;
    size_t done, whole;
    spry_error *error;
} bench;

/* One prefill from nothing; *longest is its longest step. */
static spry_status prefill(bench *b, double *seconds, double *longest, size_t tokens)
{
    spry_status status = SPRY_OK;
    *seconds = *longest = 0;
    spry_progress_update(&b->line, b->done++, b->whole);
    spry_steps_truncate(b->steps, 0);
    for (size_t at = 0; !status && at < tokens;) {
        size_t part = tokens - at < b->chunk ? tokens - at : b->chunk;
        if (spry_interrupt_seen())
            return spry_fail(b->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
        uint64_t start = spry_clock_ns();
        status = spry_steps_prefill(b->steps, b->ids + at, part, at + part == tokens, b->error);
        double step = (double)(spry_clock_ns() - start) / 1e9;
        *seconds += step;
        *longest = step > *longest ? step : *longest;
        at += part;
    }
    return status;
}

static spry_status measure_point(bench *b, spry_bench_chunk_point *p)
{
    double tps[SPRY_BENCH_REPEAT_MAX], longest[SPRY_BENCH_REPEAT_MAX], seconds;
    spry_status status = prefill(b, &seconds, &longest[0], p->tokens); /* warms up */
    for (uint32_t i = 0; !status && i < b->settings->repeat; i++) {
        status = prefill(b, &seconds, &longest[i], p->tokens);
        tps[i] = spry_bench_ratio(p->tokens, seconds);
    }
    if (status)
        return status;
    p->tps = spry_bench_stat_of(tps, b->settings->repeat);
    p->step_ms = 1e3 * spry_bench_stat_of(longest, b->settings->repeat).median;
    return SPRY_OK;
}

static spry_status measure_chunk(bench *b, spry_bench_chunk_point *points, size_t count,
                                 const spry_model_source *source)
{
    spry_engine_options *o = &b->settings->engine.options;
    spry_engine_info info;
    o->chunk = points[0].chunk ? points[0].chunk : CHUNK_MOST;
    spry_status status = spry_model_source_engine(&b->engine, source, o, b->error);
    if (!status) {
        spry_engine_describe(b->engine, &info);
        b->chunk = info.chunk;
        for (size_t i = 0; i < o->context; i++) /* ids that rarely repeat, like text */
            b->ids[i] = (int32_t)((i * 2654435761u >> 7) % info.vocabulary);
        status = spry_steps_create(&b->steps, b->engine, 1, b->error);
    }
    for (size_t i = 0; !status && i < count; i++)
        if (!points[i].skipped[0])
            status = measure_point(b, &points[i]);
    spry_steps_destroy(b->steps);
    spry_engine_close(b->engine);
    b->steps = NULL;
    b->engine = NULL;
    return status;
}

/* Lists the points; *longest is the longest prompt that fits the model. */
static void plan(spry_bench_chunks *out, uint32_t *longest, const spry_bench_settings *s, const spry_bench_list *chunks,
                 size_t limit)
{
    out->count = 0;
    *longest = 1;
    for (size_t c = 0; c < chunks->count; c++)
        for (size_t i = 0; i < s->prefill.count; i++) {
            spry_bench_chunk_point *p = &out->points[out->count++];
            *p = (spry_bench_chunk_point){.chunk = chunks->values[c], .tokens = s->prefill.values[i]};
            if (p->tokens > limit)
                snprintf(p->skipped, sizeof p->skipped, "%u tokens pass the limit of %zu", p->tokens, limit);
            else if (p->tokens > *longest)
                *longest = p->tokens;
        }
}

spry_status spry_bench_chunk_run(spry_bench_chunks *out, spry_bench_settings *settings, const spry_bench_list *chunks,
                                 const spry_model_source *source, spry_error *error)
{
    bench b = {.settings = settings, .error = error};
    spry_engine_options *o = &settings->engine.options;
    const spry_model_file file = spry_model_source_file(source);
    spry_checkpoint checkpoint;
    spry_status status = spry_checkpoint_read(&checkpoint, &file, o->kv_type, error);
    if (status)
        return status;
    uint32_t longest;
    plan(out, &longest, settings, chunks, o->context ? o->context : checkpoint.context);
    o->context = longest;
    b.ids = malloc(longest * sizeof *b.ids);
    if (!b.ids)
        return spry_fail_memory(error, "synthetic text", longest * sizeof *b.ids);
    b.whole = out->count * (settings->repeat + 1);
    spry_progress_begin(&b.line, "prefill:");
    for (size_t at = 0; !status && at < out->count; at += settings->prefill.count)
        status = measure_chunk(&b, out->points + at, settings->prefill.count, source);
    spry_progress_end(&b.line);
    free(b.ids);
    return status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

void spry_bench_chunk_print_table(const spry_bench_chunks *c)
{
    const char *bold = spry_style_begin(stdout, SPRY_STYLE_BOLD), *plain = spry_style_end(stdout);
    spry_out_format("%s", bold);
    spry_out_quote("%s", c->model);
    spry_out_format("%s\n\n%s%8s %9s %12s %9s %14s%s\n", plain, bold, "chunk", "prefill", "tokens/s", "spread",
                    "longest step", plain);
    for (size_t i = 0; i < c->count; i++) {
        const spry_bench_chunk_point *p = &c->points[i];
        char chunk[16] = "whole";
        if (p->chunk)
            snprintf(chunk, sizeof chunk, "%u", p->chunk);
        spry_out_format("%8s %9u ", chunk, p->tokens);
        if (p->skipped[0])
            spry_out_format("   skipped: %s\n", p->skipped);
        else
            spry_out_format("%12.1f %7.1f %% %11.1f ms\n", p->tps.median, 100 * spry_bench_spread(&p->tps), p->step_ms);
    }
}

json_t *spry_bench_chunk_json(const spry_bench_chunks *c)
{
    json_t *points = json_array(), *skipped = json_array();
    for (size_t i = 0; i < c->count; i++) {
        const spry_bench_chunk_point *p = &c->points[i];
        if (p->skipped[0])
            json_array_append_new(skipped, json_pack("{s:I, s:I, s:s}", "chunk", (json_int_t)p->chunk, "tokens",
                                                     (json_int_t)p->tokens, "why", p->skipped));
        else
            json_array_append_new(points, json_pack("{s:I, s:I, s:f, s:f, s:f}", "chunk", (json_int_t)p->chunk,
                                                    "tokens", (json_int_t)p->tokens, "tps", p->tps.median, "spread",
                                                    spry_bench_spread(&p->tps), "longest_step_ms", p->step_ms));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "format", "spry-chunk-1", "spry", spry_version(), "model",
                     spry_bench_text_json(c->model), "points", points, "skipped", skipped);
}
