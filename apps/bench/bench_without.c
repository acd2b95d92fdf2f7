/* `spry bench --without WHAT`: what the engine would cost without one of its parts. Each row is the same work with the
 * part and without it, in turns. Without KV memory every token computes all tokens before it again: that time is
 * measured at some lengths and summed over all. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "platform/clock.h"

enum {
    ANSWER = 512,
    LENGTHS = 8, /* number of prompt lengths that are measured for an answer without KV memory */
    TOGETHER = 8,
    TOKENS = 48, /* tokens of each answer in the other rows */
    PREFIX = 992,
    NEW = 32,
    CONTEXT = PREFIX + NEW + TOKENS,
};

typedef struct absence {
    uint64_t salt;
} absence;

/* Nothing is cached for the session from here on. */
static void forget(spry_bench *b, absence *w)
{
    w->salt++;
    spry_session_set_salt(b->session, &w->salt, sizeof w->salt);
}

static spry_status generate(spry_bench *b, spry_result *result, const spry_request *request)
{
    spry_status status = spry_bench_go_on(b);
    return status ? status : spry_session_generate(b->session, result, request, b->error);
}

static spry_status kv(spry_bench *b, void *context, double *ms)
{
    spry_result result;
    spry_request request = spry_bench_request(b->ids, 1, ANSWER);
    forget(b, context);
    spry_status status = generate(b, &result, &request);
    ms[0] = result.total_ms;
    ms[1] = 0;
    for (size_t i = 0; !status && i < LENGTHS; i++) {
        const size_t step = ANSWER / LENGTHS, length = i * step + step / 2; /* the middle of a step */
        request = spry_bench_request(b->ids, length, 1);
        forget(b, context);
        status = generate(b, &result, &request);
        ms[1] += (double)step * result.total_ms;
    }
    return status;
}

/* Answers to different prompts, submitted together. */
static spry_status answer_together(spry_bench *b, size_t count)
{
    spry_job *jobs[TOGETHER] = {NULL};
    spry_status status = spry_bench_go_on(b);
    for (size_t i = 0; !status && i < count; i++) {
        spry_request request = spry_bench_request(b->ids + i, 4, TOKENS);
        status = spry_job_create_answer(&jobs[i], b->engine, &request, NULL, b->error);
        if (!status)
            status = spry_job_submit(jobs[i], b->error);
    }
    for (size_t i = 0; !status && i < count; i++)
        status = spry_job_wait(jobs[i], -1, b->error);
    for (size_t i = 0; i < count; i++)
        spry_job_free(jobs[i]);
    return status;
}

static spry_status batching(spry_bench *b, void *context, double *ms)
{
    uint64_t start = spry_clock_ns();
    (void)context;
    spry_status status = answer_together(b, TOGETHER);
    ms[0] = spry_bench_ms_since(start);
    start = spry_clock_ns();
    for (size_t i = 0; !status && i < TOGETHER; i++)
        status = answer_together(b, 1);
    ms[1] = spry_bench_ms_since(start);
    return status;
}

/* A prompt of which all but the end is known, with its answer. */
static spry_status cache(spry_bench *b, void *context, double *ms)
{
    spry_result result;
    spry_request known = spry_bench_request(b->ids, PREFIX, 1);
    spry_request whole = spry_bench_request(b->ids, PREFIX + NEW, TOKENS);
    forget(b, context);
    spry_status status = generate(b, &result, &whole);
    ms[1] = result.total_ms;
    forget(b, context);
    if (!status)
        status = generate(b, &result, &known);
    if (!status)
        status = generate(b, &result, &whole);
    ms[0] = result.total_ms;
    return status;
}

/* The other way round: a grammar costs time, here one that allows any text. Milliseconds a token. */
static spry_status grammar(spry_bench *b, void *context, double *ms)
{
    static const char any[] = "(.|\n)*";
    spry_result result;
    spry_request request = spry_bench_request(b->ids, 1, 4 * TOKENS);
    spry_status status = SPRY_OK;
    (void)context;
    for (int way = 0; !status && way < 2; way++) {
        request.constraint_text = way ? NULL : any;
        request.constraint = way ? SPRY_ANY_TEXT : SPRY_REGEX;
        status = generate(b, &result, &request);
        ms[way] = spry_bench_ratio(result.decode_ms, (double)result.generated_tokens);
    }
    return status;
}

/* Attention over all keys with its scores in memory. Of the CPU's kernels, whatever computes the model. */
static spry_status fused(spry_bench *b, double *ms, uint32_t n_keys)
{
    spry_attention_speed speed;
    const spry_engine_options *o = &b->flags->engine.options;
    spry_status status = spry_bench_go_on(b);
    if (!status)
        status = spry_attention_measure(&speed, o->cpu, o->threads, n_keys, b->error);
    ms[0] = status ? 0 : speed.fused_ms;
    ms[1] = status ? 0 : speed.unfused_ms;
    return status;
}

static spry_status fused_512(spry_bench *b, void *context, double *ms)
{
    (void)context;
    return fused(b, ms, 512);
}

static spry_status fused_2048(spry_bench *b, void *context, double *ms)
{
    (void)context;
    return fused(b, ms, 2048);
}

static spry_status fused_8192(spry_bench *b, void *context, double *ms)
{
    (void)context;
    return fused(b, ms, 8192);
}

static const struct {
    const char *name, *what;
    spry_bench_once once;
} parts[] = {{"kv", "512 tokens, KV memory", kv},
             {"batching", "8 answers, batching", batching},
             {"cache", "992 known tokens of 1024, prompt cache", cache},
             {"grammar", "a token, grammar for any text", grammar},
             {"fused-512", "attention at 512 on the CPU, fused", fused_512},
             {"fused-2048", "attention at 2,048 on the CPU, fused", fused_2048},
             {"fused-8192", "attention at 8,192 on the CPU, fused", fused_8192}};

const char *const spry_bench_parts[] = {"all", "kv", "batching", "cache", "grammar", "fused", NULL};

/* The name, or its beginning before "-", is that of the command line. */
static bool wanted(const spry_bench *b, size_t part)
{
    const char *name = b->flags->without;
    const size_t length = strcspn(parts[part].name, "-");
    return strcmp(name, "all") == 0 || (strlen(name) == length && strncmp(name, parts[part].name, length) == 0);
}

static spry_status measure_parts(spry_bench *b, json_t *rows)
{
    absence w = {.salt = 0};
    spry_status status =
        b->context < CONTEXT
            ? spry_fail(b->error, SPRY_ERR_CONTEXT, "the model's context of %u tokens is too short, %d are needed",
                        b->context, CONTEXT)
            : spry_bench_make_text(b, CONTEXT);
    for (size_t i = 0; !status && i < SPRY_COUNT(parts); i++) {
        spry_bench_series series;
        if (!wanted(b, i))
            continue;
        snprintf(b->doing, sizeof b->doing, "without %s:", parts[i].name);
        status = spry_bench_repeat(b, &series, true, parts[i].once, &w);
        if (status)
            return status;
        double with = spry_bench_stat_of(series.values[0], series.count).median;
        double anew = spry_bench_stat_of(series.values[1], series.count).median;
        json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", parts[i].name, "what", parts[i].what, "with_ms",
                                with, "without_ms", anew, "ratio", spry_bench_ratio(anew, with));
        b->lacks_memory = json_object_set_new(rows, parts[i].name, row) != 0 || b->lacks_memory;
    }
    return status;
}

static spry_status measure(spry_bench *b)
{
    json_t *rows = json_object();
    spry_bench_put(b, "without", rows);
    spry_status status = spry_bench_check_baseline(b);
    b->whole = 0;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        b->whole += wanted(b, i);
    if (!b->flags->engine.options.context)
        b->flags->engine.options.context = CONTEXT;
    b->flags->engine.options.sessions = TOGETHER + 1; /* the session's, and the jobs' */
    if (!status)
        status = spry_bench_open(b, NULL, true);
    if (!status)
        status = measure_parts(b, rows);
    if (!status)
        spry_bench_put_figures(b, rows, "");
    spry_bench_close(b);
    return status;
}

static void print(const json_t *report)
{
    static const spry_bench_column columns[] = {{"The same work", -40, "what", SPRY_BENCH_TEXT, NULL},
                                                {"with", 12, "with_ms", SPRY_BENCH_TIME, NULL},
                                                {"without", 12, "without_ms", SPRY_BENCH_TIME, NULL},
                                                {"times", 9, "ratio", SPRY_BENCH_TIMES, NULL}};
    const json_t *without = json_object_get(report, "without");
    json_t *rows = json_array();
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        if (json_object_get(without, parts[i].name))
            json_array_append(rows, json_object_get(without, parts[i].name));
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_format("\n");
    spry_bench_table(columns, SPRY_COUNT(columns), rows, NULL, "");
    json_decref(rows);
}

const spry_bench_kind spry_bench_without_kind = {"--without", SPRY_WITHOUT_FORMAT, measure, print};
