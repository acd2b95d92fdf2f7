/* `spry bench --mix`: the workload on the model, then on a server. The server is asked what it is before minutes of
 * measuring, and what was measured is reported also when one of them ends early. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "bench/bench_gate.h"
#include "bench/mix.h"
#include "cli/interrupt.h"
#include "platform/clock.h"

enum { AROUND_TOKENS = 64 }; /* of templates, and of texts that become a few tokens longer than meant */

#define FIELD(name) offsetof(spry_mix_flags, name)

static const spry_option options[] = {
    {.name = "mix",
     .flag_only = true,
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(mix),
     .metavar = "NAME|FILE",
     .help =
         "Measure instead a workload: uniform, chat, documents, agent or writing (prompts and answers of 512 to 4096 "
         "tokens), or a file of distributions or of JSON lines to replay (docs/INSIGHT.md)",
     .group = "Workload"},
    {.name = "requests",
     .flag_only = true,
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(requests),
     .max = SPRY_MIX_REQUESTS_MAX,
     .help = "Number of requests; 0: all lines of the file, or 16"},
    {.name = "together",
     .flag_only = true,
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(together),
     .min = 1,
     .max = SPRY_MIX_TOGETHER_MAX,
     .help = "Clients that ask at the same time, each one request after another"},
    {.name = "mix-scale",
     .flag_only = true,
     .kind = SPRY_OPTION_FLOAT,
     .offset = FIELD(scale),
     .min = 0.001,
     .max = 1000,
     .metavar = "FACTOR",
     .help = "Multiply all lengths of the mix"},
    {.name = "seed",
     .flag_only = true,
     .kind = SPRY_OPTION_U64,
     .offset = FIELD(seed),
     .help = "Seed of the drawn lengths and words"},
    {.name = "url",
     .flag_only = true,
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(url),
     .metavar = "URL",
     .help = "Run the workload also on this server, which has OpenAI's or Ollama's interface"},
    {.name = "url-model",
     .flag_only = true,
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(url_model),
     .metavar = "NAME",
     .help = "The server's model; default: the first of its list"},
    {.name = "url-key",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(url_key),
     .metavar = "KEY",
     .help = "API key for the server"},
};

void spry_mix_flags_default(spry_mix_flags *flags)
{
    *flags = (spry_mix_flags){.together = 4, .scale = 1, .seed = 1};
}

spry_option_table spry_mix_flags_table(spry_mix_flags *flags)
{
    return (spry_option_table){options, SPRY_COUNT(options), flags};
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const spry_mix_flags *flags;
    spry_bench_settings *settings;
    const spry_model_source *source;
    spry_mix mix;
    spry_mix_plan plan;
    spry_mix_server *server; /* NULL: none is asked */
    spry_engine *engine;
    spry_mix_run runs[2];
    spry_error *error;
} bench;

/* Gives the engine a context for the longest request, unless the command line gives one. Replayed messages have a
 * length that only the tokenizer knows: the model's own limit holds. */
static spry_status choose_context(bench *b)
{
    spry_engine_options *o = &b->settings->engine.options;
    const spry_model_file file = spry_model_source_file(b->source);
    spry_checkpoint checkpoint;
    uint32_t needed = b->plan.longest + AROUND_TOKENS;
    bool replayed = false;
    spry_status status = spry_checkpoint_read(&checkpoint, &file, o->kv_type, b->error);
    if (status)
        return status;
    for (size_t i = 0; i < b->plan.count; i++)
        replayed = replayed || b->plan.list[i].messages;
    if (!o->context && needed > checkpoint.context)
        return spry_fail(b->error, SPRY_ERR_INPUT,
                         "%s has requests of %u tokens, but the model's context is %zu: choose another model, or "
                         "shorten all lengths, as with --mix-scale %.2g",
                         b->mix.name, b->plan.longest, checkpoint.context,
                         floor(100 * b->plan.scale * 0.9 * (double)checkpoint.context / needed) / 100);
    if (!o->context && !replayed)
        o->context = needed;
    o->sessions = b->flags->together;
    return SPRY_OK;
}

static spry_status prepare(bench *b)
{
    spry_status status = spry_mix_read(&b->mix, b->flags->mix, b->error);
    if (!status)
        status = spry_mix_plan_init(&b->plan, &b->mix, b->flags->requests, (double)b->flags->scale, b->flags->seed,
                                    b->error);
    if (!status && b->flags->url)
        status = spry_mix_server_open(&b->server, b->flags->url, b->flags->url_model, b->flags->url_key, b->error);
    if (!status)
        status = choose_context(b);
    if (!status)
        status = spry_model_source_engine(&b->engine, b->source, &b->settings->engine.options, b->error);
    if (!status)
        status = spry_mix_plan_write(&b->plan, b->engine, (uint64_t)time(NULL) << 20 ^ spry_clock_ns(), b->error);
    return status;
}

/* Runs both; the second also when the first one ended early, unless Ctrl-C was pressed. */
static spry_status measure(bench *b)
{
    spry_mix_target target = spry_mix_engine(b->engine);
    snprintf(b->runs[0].where, sizeof b->runs[0].where, "here");
    spry_status status = spry_mix_run_all(&b->runs[0], &b->plan, &target, b->flags->together, b->error);
    spry_engine_close(b->engine); /* its threads and memory are not to disturb a server on this machine */
    b->engine = NULL;
    if (status || !b->server)
        return status;
    spry_mix_server_describe(&b->runs[1], b->server);
    target = spry_mix_server_target(b->server);
    return spry_mix_run_all(&b->runs[1], &b->plan, &target, b->flags->together, b->error);
}

static spry_status publish(bool *passed, bench *b, const char *name, bool as_json, const char *save)
{
    const spry_mix_report report = {
        .model = name, .plan = &b->plan, .together = b->flags->together, .runs = b->runs, .n_runs = b->server ? 2 : 1};
    spry_status status = SPRY_OK;
    json_t *json = as_json || save ? spry_mix_report_json(&report) : NULL;
    if ((as_json || save) && !json)
        status = spry_fail(b->error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    if (!status && save)
        status = spry_bench_file_save(json, save, b->error);
    if (!status && as_json)
        status = spry_bench_print_json(json, b->error);
    else if (!status)
        spry_mix_print_table(&report);
    json_decref(json);
    for (size_t i = 0; i < report.n_runs; i++)
        if (b->runs[i].why[0]) {
            spry_out_flush();
            spry_complain("%s; %zu of %zu requests were measured and are in the report", b->runs[i].why,
                          b->runs[i].n_done, b->runs[i].count);
            *passed = false;
        }
    return status;
}

spry_status spry_bench_mix(bool *passed, const spry_mix_flags *flags, spry_bench_settings *settings, const char *name,
                           const spry_model_source *source, bool json, const char *save, spry_error *error)
{
    bench b = {.flags = flags, .settings = settings, .source = source, .error = error};
    *passed = true;
    spry_status status = prepare(&b);
    if (!status)
        status = measure(&b);
    if (!status)
        status = publish(passed, &b, name, json, save);
    for (size_t i = 0; i < SPRY_COUNT(b.runs); i++)
        spry_mix_run_deinit(&b.runs[i]);
    spry_engine_close(b.engine);
    spry_mix_server_close(b.server);
    spry_mix_plan_deinit(&b.plan);
    spry_mix_deinit(&b.mix);
    return status;
}
