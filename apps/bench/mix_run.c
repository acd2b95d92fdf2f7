/* `spry bench --mix`: the workload on the model, then on a server. The server is asked what it is before minutes of
 * measuring, and what was measured is reported also when one of them ends early.
 *
 * Clients are threads that take the next request when their last one is answered, so that as many requests as there are
 * clients are under way at any time. The first failure ends all of them. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/mix.h"
#include "cli/interrupt.h"
#include "platform/clock.h"
#include "platform/threads.h"

enum { AROUND_TOKENS = 64 }; /* room for the template, and for texts that become a few tokens too long */

/* What answers requests, and all its answers in the order of the requests. */
typedef struct run {
    spry_status (*ask)(void *self, spry_mix_answer *answer, const spry_mix_request *request, spry_error *error);
    void *self; /* an engine, or a server */
    const spry_mix *mix;
    spry_mix_answer *answers; /* [mix->count] */
    spry_progress_line line;
    pthread_mutex_t lock; /* guards everything below */
    size_t next, n_done;
    bool stopped;
    char why[SPRY_ERROR_MAX]; /* why it ended early; empty: it did not */
} run;

void spry_mix_answer_event(spry_mix_answer *a)
{
    uint64_t now = spry_clock_ns();
    if (!a->events++) {
        a->ttft_ms = (double)(now - a->began_ns) / 1e6;
    } else {
        if (a->n_gaps == a->gap_room) {
            size_t room = a->gap_room ? 2 * a->gap_room : 256;
            double *grown = realloc(a->gaps_ms, room * sizeof *grown);
            a->failed = a->failed || !grown;
            a->gaps_ms = grown ? grown : a->gaps_ms;
            a->gap_room = grown ? room : a->gap_room;
        }
        if (a->n_gaps < a->gap_room)
            a->gaps_ms[a->n_gaps++] = (double)(now - a->last_ns) / 1e6;
    }
    a->last_ns = now;
}

/* ---- an engine --------------------------------------------------------------------------------------------------- */

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    (void)token, (void)top, (void)n_top;
    spry_mix_answer_event(user);
    return !spry_interrupt_seen();
}

static bool on_prefill(void *user, size_t done, size_t total)
{
    (void)user, (void)done, (void)total;
    return !spry_interrupt_seen();
}

/* The model in this process. */
typedef struct here {
    spry_engine *engine;
    uint64_t salt; /* of the last comparison */
    bool agreement;
} here;

static spry_status ask_engine(void *self, spry_mix_answer *answer, const spry_mix_request *r, spry_error *error)
{
    here *h = self;
    spry_engine *engine = h->engine;
    spry_chat_prompt prompt;
    spry_session *session = NULL;
    spry_result result = {0};
    spry_status status = spry_mix_prompt(&prompt, engine, r->messages, r->tools, error);
    spry_request request;
    spry_request_default(&request);
    request.prompt = prompt.ids;
    request.n_prompt = prompt.count;
    request.max_tokens = r->answer_tokens;
    request.ignore_end = true;
    request.sampling.temperature = 0;
    request.on_token = on_token;
    request.on_prefill = on_prefill;
    request.user = answer;
    if (!status)
        status = spry_session_create(&session, engine, error);
    if (!status)
        status = spry_session_generate(session, &result, &request, error);
    if (!status && result.finish == SPRY_FINISH_CANCELLED)
        status = spry_fail(error, SPRY_ERR_CANCELLED, "interrupted");
    answer->total_ms = spry_bench_ms_since(answer->began_ns);
    if (!status && h->agreement) /* one client at a time */
        status = spry_mix_agreement(answer, session, engine, prompt.count, ++h->salt, error);
    spry_session_destroy(session);
    spry_chat_prompt_deinit(&prompt);
    answer->prompt_tokens = result.prompt_tokens;
    answer->answer_tokens = result.generated_tokens;
    answer->hit_tokens = result.reused_tokens;
    answer->hits_known = true;
    return status;
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static bool take_request(run *r, size_t *index)
{
    pthread_mutex_lock(&r->lock);
    bool found = !r->stopped && r->next < r->mix->count;
    *index = r->next;
    r->next += found;
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void record(run *r, size_t index, spry_status status, const spry_error *error)
{
    pthread_mutex_lock(&r->lock);
    if (status && !r->stopped)
        snprintf(r->why, sizeof r->why, "%s", error->message);
    r->stopped = r->stopped || status;
    r->answers[index].done = !status;
    r->n_done += !status;
    spry_progress_update(&r->line, r->n_done, r->mix->count);
    pthread_mutex_unlock(&r->lock);
}

static void *client(void *context)
{
    run *r = context;
    size_t index;
    while (take_request(r, &index)) {
        spry_error error;
        spry_mix_answer *answer = &r->answers[index];
        answer->began_ns = spry_clock_ns();
        spry_status status = spry_interrupt_seen() ? spry_fail(&error, SPRY_ERR_CANCELLED, "interrupted")
                                                   : r->ask(r->self, answer, &r->mix->list[index], &error);
        if (r->ask != ask_engine)
            answer->total_ms = spry_bench_ms_since(answer->began_ns);
        if (!status && answer->failed)
            status = spry_fail_memory(&error, "times between tokens", answer->n_gaps * sizeof *answer->gaps_ms);
        record(r, index, status, &error);
    }
    return NULL;
}

static spry_status run_clients(run *r, size_t together, spry_error *error)
{
    pthread_t threads[SPRY_BENCH_TOGETHER_MAX];
    size_t count = 0;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < together && i < r->mix->count; i++) {
        status = spry_background_start(&threads[i], client, r, "a client", error);
        count += !status;
    }
    pthread_mutex_lock(&r->lock);
    r->stopped = r->stopped || status;
    pthread_mutex_unlock(&r->lock);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return status;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Cached tokens of the prompts with one system prompt. */
typedef struct group {
    size_t requests, prompt_tokens, hit_tokens;
    bool known; /* the target reported the cached tokens of each request */
} group;

static void add_group(group *g, const spry_mix_answer *a)
{
    g->known = (g->known || !g->requests) && a->hits_known;
    g->requests++;
    g->prompt_tokens += a->prompt_tokens;
    g->hit_tokens += a->hit_tokens;
}

static json_t *share_json(const group *g)
{
    return g->known && g->prompt_tokens ? json_real((double)g->hit_tokens / (double)g->prompt_tokens) : json_null();
}

static json_t *system_json(const spry_mix *mix, size_t index)
{
    return index < mix->systems.count ? spry_bench_text_json(mix->systems.list[index].name) : json_null();
}

/* Whether the prompt's system prompt was computed before this request began. */
static bool is_known(const run *r, size_t index)
{
    const size_t system = r->mix->list[index].system;
    for (size_t i = 0; i < r->mix->count; i++) {
        const spry_mix_answer *a = &r->answers[i];
        if (i != index && a->done && r->mix->list[i].system == system &&
            a->began_ns + (uint64_t)(a->ttft_ms * 1e6) < r->answers[index].began_ns)
            return true;
    }
    return false;
}

/* The hit rate of system prompts: of the prompts whose system prompt is known, the share that found it in the cache, as
 * far as it fills pages. */
static json_t *found_json(const run *r)
{
    size_t known = 0, found = 0;
    for (size_t i = 0; i < r->mix->count; i++) {
        const spry_mix_answer *a = &r->answers[i];
        const size_t system = r->mix->list[i].system;
        if (!a->done || !a->hits_known || system >= r->mix->systems.count || !is_known(r, i))
            continue;
        /* A text becomes a few tokens longer or shorter than meant. */
        size_t pages = (size_t)(r->mix->systems.list[system].tokens * r->mix->scale * 7 / 8) / SPRY_PAGE_TOKENS;
        known++;
        found += a->hit_tokens && a->hit_tokens >= pages * SPRY_PAGE_TOKENS;
    }
    return known ? json_real((double)found / (double)known) : json_null();
}

static json_t *requests_json(const run *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->mix->count; i++) {
        const spry_mix_answer *a = &r->answers[i];
        const spry_mix_request *q = &r->mix->list[i];
        if (a->done) {
            json_array_append_new(list,
                                  json_pack("{s:I, s:o, s:I, s:I, s:I, s:o, s:f, s:f}", "request", (json_int_t)i + 1,
                                            "system", system_json(r->mix, q->system), "prompt_tokens",
                                            (json_int_t)a->prompt_tokens, "answer_tokens", (json_int_t)a->answer_tokens,
                                            "wanted_tokens", (json_int_t)q->answer_tokens, "hit_tokens",
                                            a->hits_known ? json_integer((json_int_t)a->hit_tokens) : json_null(),
                                            "ttft_ms", a->ttft_ms, "total_ms", a->total_ms));
            if (a->compared)
                json_object_set_new(json_array_get(list, json_array_size(list) - 1), "agreement",
                                    json_pack("{s:I, s:I, s:I, s:f}", "predictions", (json_int_t)a->compared,
                                              "same_top", (json_int_t)a->same, "identical", (json_int_t)a->identical,
                                              "divergence", a->divergence));
        }
    }
    return list;
}

/* Percentiles of the first token and of the gaps, as clients saw them; NULL: memory is short. */
static json_t *times_json(const run *r, bool gaps)
{
    size_t count = 0;
    for (size_t i = 0; i < r->mix->count; i++)
        count += gaps ? r->answers[i].n_gaps : 1;
    double *values = malloc((count + 1) * sizeof *values);
    if (!values)
        return NULL;
    count = 0;
    for (size_t i = 0; i < r->mix->count; i++) {
        const spry_mix_answer *a = &r->answers[i];
        for (size_t k = 0; a->done && k < (gaps ? a->n_gaps : 1); k++)
            values[count++] = gaps ? a->gaps_ms[k] : a->ttft_ms;
    }
    json_t *out = count ? spry_bench_percentiles_json(values, count, "") : json_null();
    free(values);
    return out;
}

static json_t *run_json(const run *r, const spry_mix_server *server, double wall_ms)
{
    group groups[SPRY_MIX_CHOICES_MAX + 1] = {{0}}, all = {0};
    size_t answer_tokens = 0;
    json_t *systems = json_array();
    for (size_t i = 0; i < r->mix->count; i++)
        if (r->answers[i].done) {
            answer_tokens += r->answers[i].answer_tokens;
            add_group(&groups[r->mix->list[i].system], &r->answers[i]);
            add_group(&all, &r->answers[i]);
        }
    for (size_t g = 0; g < SPRY_COUNT(groups); g++)
        if (groups[g].requests)
            json_array_append_new(systems,
                                  json_pack("{s:o, s:I, s:I, s:o}", "system", system_json(r->mix, g), "requests",
                                            (json_int_t)groups[g].requests, "prompt_tokens",
                                            (json_int_t)groups[g].prompt_tokens, "hit_share", share_json(&groups[g])));
    return json_pack("{s:o, s:s?, s:o, s:I, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:o, s:o, s:o, s:o}", "where",
                     spry_bench_text_json(server ? server->url : "here"), "api", server ? server->api : NULL, "model",
                     server ? spry_bench_text_json(server->model) : json_null(), "completed", (json_int_t)r->n_done,
                     "error", r->why[0] ? spry_bench_text_json(r->why) : json_null(), "ttft_ms", times_json(r, false),
                     "between_ms", times_json(r, true), "prompt_tokens", (json_int_t)all.prompt_tokens, "answer_tokens",
                     (json_int_t)answer_tokens, "wall_ms", wall_ms, "tps",
                     spry_bench_ratio((double)answer_tokens * 1000, wall_ms), "hit_share", share_json(&all),
                     "found_share", found_json(r), "systems", systems, "requests", requests_json(r));
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Sends every request; a request that fails ends the run, and the answers so far stay. Fails only if memory or
 * threads are short. */
static spry_status run_all(spry_bench *b, const spry_mix *mix, spry_mix_server *server)
{
    here engine = {.engine = b->engine, .agreement = mix->agreement};
    run r = {.ask = server ? spry_mix_server_ask : ask_engine, .self = server ? (void *)server : &engine, .mix = mix};
    json_t *runs = json_object_get(b->report, "runs");
    r.answers = calloc(mix->count, sizeof *r.answers);
    if (!r.answers)
        return spry_fail_memory(b->error, "answers", mix->count * sizeof *r.answers);
    pthread_mutex_init(&r.lock, NULL);
    spry_progress_begin(&r.line, server ? server->url : "here");
    uint64_t began = spry_clock_ns();
    spry_status status = run_clients(&r, b->flags->together, b->error);
    json_t *report = run_json(&r, server, spry_bench_ms_since(began));
    spry_progress_end(&r.line);
    if (mix->agent)
        spry_mix_agent_sums(report);
    b->lacks_memory = json_array_append_new(runs, report) != 0 || b->lacks_memory;
    spry_bench_put_figures(b, report, server ? "server: " : "");
    b->passed = b->passed && !r.why[0];
    pthread_mutex_destroy(&r.lock);
    for (size_t i = 0; i < mix->count; i++)
        free(r.answers[i].gaps_ms);
    free(r.answers);
    return status;
}

/* Gives the engine a context for the longest request, unless the command line gives one. Replayed messages, and
 * a session, have a length that only the tokenizer knows: the model's own limit holds. */
static spry_status choose_context(spry_bench *b, const spry_mix *mix)
{
    spry_engine_options *o = &b->flags->engine.options;
    const spry_model_file file = spry_model_source_file(b->source);
    spry_checkpoint checkpoint;
    uint32_t needed = mix->longest + AROUND_TOKENS;
    bool replayed = mix->agent;
    spry_status status = spry_checkpoint_read(&checkpoint, &file, o->kv_type, b->error);
    if (status)
        return status;
    for (size_t i = 0; i < mix->count; i++)
        replayed = replayed || mix->list[i].messages;
    if (!o->context && needed > checkpoint.context)
        return spry_fail(b->error, SPRY_ERR_INPUT,
                         "%s has requests of %u tokens, but the model's context is %zu: choose another model, or "
                         "shorten all lengths, as with --mix-scale %.2g",
                         mix->name, mix->longest, checkpoint.context,
                         floor(100 * mix->scale * 0.9 * (double)checkpoint.context / needed) / 100);
    if (!o->context && !replayed)
        o->context = needed;
    o->sessions = b->flags->together + mix->agreement; /* one without the cache */
    return SPRY_OK;
}

static spry_status measure_mix(spry_bench *b, spry_mix *mix, spry_mix_server *server)
{
    const spry_bench_flags *f = b->flags;
    const double scale = round((double)f->scale * 1e6) / 1e6; /* the float 0.1 is printed and saved as 0.1 */
    spry_status status = f->agent ? spry_mix_agent_init(mix, scale, f->seed, b->error)
                                  : spry_mix_init(mix, f->mix, f->requests, scale, f->seed, b->error);
    mix->agreement = f->agreement;
    if (status)
        return status;
    spry_bench_put(b, "mix", spry_bench_text_json(mix->name));
    spry_bench_put(b, "requests", json_integer((json_int_t)mix->count));
    spry_bench_put(b, "together", json_integer((json_int_t)f->together));
    spry_bench_put(b, "scale", json_real(mix->scale));
    spry_bench_put(b, "seed", json_integer((json_int_t)mix->seed));
    spry_bench_put(b, "runs", json_array());
    status = spry_bench_check_baseline(b);
    if (!status && server)
        status = spry_mix_server_init(server, f->url, f->url_model, f->url_key, b->error);
    if (!status)
        status = choose_context(b, mix);
    if (!status)
        status = spry_bench_open(b, NULL, false);
    if (!status)
        status = spry_mix_write(mix, b->engine, (uint64_t)time(NULL) << 20 ^ spry_clock_ns(), b->error);
    if (!status)
        status = run_all(b, mix, NULL);
    spry_bench_close(b); /* the engine's threads and memory must not slow a server on this machine */
    return status || !server ? status : run_all(b, mix, server);
}

spry_status spry_bench_measure_mix(spry_bench *b)
{
    spry_mix mix;
    spry_mix_server server = {.model = NULL};
    spry_progress_end(&b->line); /* each run has its own */
    spry_status status = measure_mix(b, &mix, b->flags->url ? &server : NULL);
    if (server.api)
        spry_mix_server_deinit(&server);
    spry_mix_deinit(&mix);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void print_systems(const json_t *runs)
{
    spry_bench_column columns[] = {{"Cached, by system prompt", -32, "system", SPRY_BENCH_TEXT, "(none)"},
                                   {"requests", 9, "requests", SPRY_BENCH_COUNT, NULL},
                                   {"here", 14, "hit_share", SPRY_BENCH_SHARE, "not told"},
                                   {"server", 14, "server", SPRY_BENCH_SHARE, "not told"}};
    json_t *rows = json_deep_copy(json_object_get(json_array_get(runs, 0), "systems")), *row, *other;
    json_t *there = json_object_get(json_array_get(runs, 1), "systems");
    size_t i, k;
    json_array_foreach(rows, i, row)
    {
        char name[33];
        const char *system = spry_bench_text(row, "system");
        json_array_foreach(there, k, other)
        {
            if (strcmp(spry_bench_text(other, "system"), system) == 0)
                json_object_set(row, "server", json_object_get(other, "hit_share"));
        }
        snprintf(name, sizeof name, "%s", system);
        if (name[0])
            json_object_set_new(row, "system", spry_bench_text_json(name));
    }
    spry_bench_table(columns, json_array_size(runs) > 1 ? 4 : 3, rows, NULL, "");
    json_decref(rows);
}

static void print(const json_t *report)
{
    static const spry_bench_column columns[] = {
        {"", 8, "completed", SPRY_BENCH_COUNT, NULL},
        {"p50", 9, "ttft_ms.p50", SPRY_BENCH_TENTHS, NULL},
        {"p95", 9, "ttft_ms.p95", SPRY_BENCH_TENTHS, NULL},
        {"p99", 9, "ttft_ms.p99", SPRY_BENCH_TENTHS, NULL},
        {"p50", 8, "between_ms.p50", SPRY_BENCH_HUNDREDTHS, NULL},
        {"p95", 8, "between_ms.p95", SPRY_BENCH_HUNDREDTHS, NULL},
        {"p99", 8, "between_ms.p99", SPRY_BENCH_HUNDREDTHS, NULL},
        {"tokens/s", 9, "tps", SPRY_BENCH_TENTHS, NULL},
        {"cached", 9, "hit_share", SPRY_BENCH_SHARE, "not told"},
        {"", 0, "name", SPRY_BENCH_TEXT, ""},
    };
    json_t *runs = json_object_get(report, "runs"), *rows = json_deep_copy(runs), *row;
    size_t i;
    spry_bench_print_bold(spry_bench_text(report, "model"));
    spry_out_quote(", mix %s: %.0f requests, %.0f together, seed %lld\n\n", spry_bench_text(report, "mix"),
                   spry_bench_number(report, "requests"), spry_bench_number(report, "together"),
                   (long long)json_integer_value(json_object_get(report, "seed")));
    spry_out_format("%s%8s %29s %26s%s", spry_style_begin(stdout, SPRY_STYLE_BOLD), "requests", "first token, ms",
                    "between tokens, ms", spry_style_end(stdout));
    json_array_foreach(rows, i, row)
    {
        char name[512];
        snprintf(name, sizeof name, "%s (%s, %s)", spry_bench_text(row, "where"), spry_bench_text(row, "api"),
                 spry_bench_text(row, "model"));
        json_object_set_new(row, "name", i ? spry_bench_text_json(name) : json_string("here"));
    }
    spry_bench_table(columns, SPRY_COUNT(columns), rows, NULL, "");
    json_array_foreach(rows, i, row)
    {
        if (spry_bench_text(row, "error")[0])
            spry_out_quote("%s ended after %.0f of %.0f requests: %s\n", spry_bench_text(row, "where"),
                           spry_bench_number(row, "completed"), spry_bench_number(report, "requests"),
                           spry_bench_text(row, "error"));
    }
    json_decref(rows);
    print_systems(runs);
    json_array_foreach(runs, i, row)
    {
        if (json_is_number(json_object_get(row, "found_share")))
            spry_out_quote("%s: %.0f %% of the prompts whose system prompt was known found it in the cache\n",
                           spry_bench_text(row, "where"), 100 * spry_bench_number(row, "found_share"));
    }
}

void spry_bench_mix_complain(const json_t *report)
{
    const json_t *runs = json_object_get(report, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *one = json_array_get(runs, i);
        if (!spry_bench_text(one, "error")[0])
            continue;
        spry_out_flush();
        spry_complain("%s; %.0f of %.0f requests were measured and are in the report", spry_bench_text(one, "error"),
                      spry_bench_number(one, "completed"), spry_bench_number(report, "requests"));
    }
}

const spry_bench_kind spry_bench_mix_kind = {"--mix", SPRY_MIX_REPORT_FORMAT, spry_bench_measure_mix, print};
