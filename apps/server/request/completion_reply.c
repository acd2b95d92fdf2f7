/* The second half of a completion: its reply, at once or as a stream, and the report of its times and energy. */
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/energy_figures.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "run/answer.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/completion.h"

enum { PART_BYTES_MAX = 256 << 20, NAME_BYTES_MAX = 1 << 20 };

void spry_answer_parts_end(spry_answer_parts *parts, spry_completion *c)
{
    if (parts->open && parts->writer)
        parts->writer->close(c, &parts->list[parts->count - 1]);
    parts->open = false;
}

/* NULL when memory is short. */
static spry_answer_part *open_part(spry_answer_parts *parts, spry_completion *c, spry_chat_event_kind kind)
{
    spry_answer_parts_end(parts, c);
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity ? 2 * parts->capacity : 4;
        spry_answer_part *grown = realloc(parts->list, capacity * sizeof *grown);
        if (!grown) {
            parts->failed = true;
            return NULL;
        }
        parts->list = grown;
        parts->capacity = capacity;
    }
    spry_answer_part *part = &parts->list[parts->count];
    *part = (spry_answer_part){.kind = kind, .index = parts->count++};
    spry_buffer_init(&part->text, PART_BYTES_MAX);
    spry_buffer_init(&part->name, NAME_BYTES_MAX);
    spry_buffer_init(&part->id, NAME_BYTES_MAX);
    parts->open = true;
    return part;
}

static void begin_call(spry_answer_parts *parts, spry_completion *c, const spry_chat_event *event)
{
    spry_answer_part *part = open_part(parts, c, SPRY_CHAT_CALL_BEGIN);
    if (!part)
        return;
    spry_buffer_append(&part->name, event->name, event->name_size);
    spry_buffer_text(&part->id, event->id);
    parts->failed = parts->failed || part->name.failed || part->id.failed;
    if (parts->writer)
        parts->writer->open(c, part);
}

static void add_text(spry_answer_parts *parts, spry_completion *c, spry_chat_event_kind kind, spry_view text)
{
    spry_answer_part *part = parts->open ? &parts->list[parts->count - 1] : NULL;
    if (!part || part->kind != kind) {
        part = open_part(parts, c, kind);
        if (part && parts->writer)
            parts->writer->open(c, part);
    }
    if (!part)
        return;
    parts->failed = !spry_buffer_append(&part->text, text.data, text.size) || parts->failed;
    if (parts->writer)
        parts->writer->add(c, part, text);
}

/* A call that is none after all: text, unless it is in the stream already. */
static void cut_call(spry_answer_parts *parts, spry_completion *c, spry_view text)
{
    if (!parts->writer && parts->open) {
        spry_answer_part *part = &parts->list[parts->count - 1];
        part->kind = SPRY_CHAT_CONTENT;
        spry_buffer_clear(&part->text);
        parts->failed = !spry_buffer_append(&part->text, text.data, text.size) || parts->failed;
    }
    spry_answer_parts_end(parts, c);
}

void spry_answer_parts_add(spry_answer_parts *parts, spry_completion *c, const spry_chat_event *event)
{
    switch (event->kind) {
    case SPRY_CHAT_CONTENT:
    case SPRY_CHAT_REASONING: add_text(parts, c, event->kind, spry_event_text(event)); break;
    case SPRY_CHAT_CALL_BEGIN: begin_call(parts, c, event); break;
    case SPRY_CHAT_ARGUMENTS: add_text(parts, c, SPRY_CHAT_CALL_BEGIN, spry_event_text(event)); break;
    case SPRY_CHAT_CALL_END: spry_answer_parts_end(parts, c); break;
    case SPRY_CHAT_CALL_CUT: cut_call(parts, c, spry_event_text(event)); break;
    }
    if (parts->failed)
        c->reply.out.failed = true;
}

void spry_answer_parts_deinit(spry_answer_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        spry_buffer_deinit(&parts->list[i].text);
        spry_buffer_deinit(&parts->list[i].name);
        spry_buffer_deinit(&parts->list[i].id);
    }
    free(parts->list);
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

void spry_costs_begin(spry_costs *costs, spry_exchange *x)
{
    spry_trace *trace = x->server->trace;
    *costs = (spry_costs){.exchange = x};
    spry_laps_begin(&costs->laps, trace, spry_trace_take_lane(trace, x->began_ns), x->began_ns);
}

void spry_costs_begin_share(spry_costs *costs)
{
    if (costs->share_began_ns)
        return;
    spry_energy_begin(costs->exchange->server->meter, &costs->share);
    costs->share_began_ns = spry_clock_ns();
}

void spry_costs_end_share(spry_costs *costs)
{
    if (!costs->share_began_ns || costs->share_ended_ns)
        return;
    spry_energy_end(costs->exchange->server->meter, &costs->share, &costs->used);
    costs->share_ended_ns = spry_clock_ns();
}

void spry_costs_end(spry_costs *costs, size_t prompt_tokens, size_t generated_tokens)
{
    spry_exchange *x = costs->exchange;
    spry_laps *laps = &costs->laps;
    spry_costs_end_share(costs);
    spry_lap(laps, SPRY_PART_WRITE);
    x->audit.prompt = prompt_tokens;
    x->audit.generated = generated_tokens;
    if (x->counted)
        spry_key_limits_charge(&x->server->limits, x->key_index, prompt_tokens + generated_tokens);
    const spry_trace_span span = {.name = "request",
                                  .category = "request",
                                  .lane = laps->lane,
                                  .begin_ns = laps->began_ns,
                                  .end_ns = laps->last_ns,
                                  .args = {{"request", (int64_t)x->number},
                                           {"prompt_tokens", (int64_t)prompt_tokens},
                                           {"generated_tokens", (int64_t)generated_tokens}}};
    spry_trace_add(laps->trace, &span);
    spry_trace_leave_lane(laps->trace, laps->lane, laps->last_ns);
    if (spry_trace_failed(laps->trace) && !atomic_exchange(&x->server->trace_failed, true))
        spry_complain("the trace file can no longer be written; the server continues without it");
}

void spry_costs_parts(const spry_costs *costs, double ms[SPRY_PART_COUNT])
{
    spry_laps laps = costs->laps;
    laps.trace = NULL; /* only the real last lap is written to the trace */
    spry_lap(&laps, SPRY_PART_WRITE);
    spry_laps_ms(&laps, ms);
}

void spry_costs_tell(const spry_costs *costs, json_t *timings, const double ms[SPRY_PART_COUNT], size_t generated)
{
    double whole = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        whole += ms[i];
    json_object_set_new(timings, "total_ms", json_real(whole));
    json_object_set_new(timings, "parts_ms", spry_parts_json(ms));
    double share_ms = (double)(costs->share_ended_ns - costs->share_began_ns) / 1e6;
    json_t *energy = spry_energy_json(&costs->used, share_ms, generated);
    if (json_is_null(energy)) {
        char why[SPRY_ENERGY_TEXT];
        spry_energy_why(why, costs->exchange->server->meter);
        json_object_set_new(timings, "why_no_energy", json_string(why));
    }
    json_object_set_new(timings, "energy", energy);
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

/* The costs of a completion, and the parts of its time.
 *
 * The request's own laps run until its jobs are submitted. Then the job of the first answer measures its parts, in the
 * same lane of the trace; when the last job has ended, the request's laps go on. There is no gap, so the parts add up
 * to the whole. Jobs of further answers have lanes of their own. */

/* ---- laps -------------------------------------------------------------------------------------------------------- */

void spry_completion_jobs_begin(spry_completion *c)
{
    spry_lap(&c->costs.laps, SPRY_PART_QUEUE);
    c->laps_before_jobs = c->costs.laps;
    spry_costs_begin_share(&c->costs);
}

static void add(double ms[SPRY_PART_COUNT], const double more[SPRY_PART_COUNT])
{
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        ms[i] += more[i];
}

static double sum(const double ms[SPRY_PART_COUNT])
{
    double all = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        all += ms[i];
    return all;
}

void spry_choice_parts(const spry_choice *choice, double ms[SPRY_PART_COUNT])
{
    spry_laps_ms(&choice->owner->laps_before_jobs, ms);
    if (choice->progress.done_ns)
        add(ms, choice->job.result.parts_ms);
}

/* The laps go on where the first answer's job ended. The little time that neither of them measured is charged to
 * writing, so that the sum is complete. */
static void skip_job(spry_laps *laps, const spry_choice *choice)
{
    uint64_t done_ns = choice->progress.done_ns, passed = done_ns - laps->last_ns;
    uint64_t measured = (uint64_t)(sum(choice->job.result.parts_ms) * 1e6);
    laps->ns[SPRY_PART_WRITE] += passed > measured ? passed - measured : 0;
    laps->last_ns = done_ns;
}

void spry_completion_jobs_end(spry_completion *c)
{
    uint64_t last_ns = 0;
    if (c->jobs_ended)
        return;
    c->jobs_ended = true;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        uint64_t done_ns = c->choices[i].progress.done_ns;
        last_ns = done_ns > last_ns ? done_ns : last_ns;
    }
    if (c->n_choices && c->choices[0].progress.done_ns)
        skip_job(&c->costs.laps, &c->choices[0]);
    if (c->n_choices > 1)
        spry_lap_until(&c->costs.laps, SPRY_PART_OTHERS, last_ns);
}

void spry_completion_add_round(spry_completion *c)
{
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        c->costs.laps.ns[i] += (uint64_t)(c->choices[0].job.result.parts_ms[i] * 1e6);
    spry_lap(&c->costs.laps, SPRY_PART_OTHERS); /* the tools' time */
    spry_completion_count(c, &c->rounds.before);
    c->jobs_ended = false;
}

void spry_completion_costs_end(spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_jobs_end(c);
    spry_completion_count(c, &n);
    c->exchange->audit.cached = n.cached;
    spry_costs_end(&c->costs, n.prompt, n.generated);
}

/* ---- counts and timings ------------------------------------------------------------------------------------------ */

void spry_completion_count(const spry_completion *c, spry_usage_counts *counts)
{
    *counts = c->rounds.before;
    counts->dropped += c->prompts.dropped;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const spry_result *r = &c->choices[i].job.result;
        counts->generated += r->generated_tokens;
        counts->drafted += r->drafts.drafted;
        counts->accepted += r->drafts.accepted;
        if (i % c->options.n_each)
            continue; /* a prompt counts once */
        counts->prompt += c->prompts.ids[i / c->options.n_each].count;
        counts->cached += r->reused_tokens;
        counts->dropped += r->dropped_tokens;
        counts->span += r->span_tokens;
        counts->repaired += r->repaired_tokens;
    }
}

/* ttft_ms, total_ms, their parts, and the energy; times end now. */
static void add_parts(json_t *timings, const spry_completion *c, size_t generated)
{
    double whole[SPRY_PART_COUNT], first[SPRY_PART_COUNT];
    spry_costs_parts(&c->costs, whole);
    spry_laps_ms(&c->laps_before_jobs, first);
    if (c->choices[0].progress.done_ns) {
        add(whole, c->choices[0].job.result.parts_ms);
        add(first, c->choices[0].job.result.first_parts_ms);
    }
    json_object_set_new(timings, "ttft_ms", json_real(sum(first)));
    json_object_set_new(timings, "first_parts_ms", spry_parts_json(first));
    spry_costs_tell(&c->costs, timings, whole, generated);
}

static double lap_ms(const spry_completion *c, spry_part part)
{
    return (double)c->costs.laps.ns[part] / 1e6;
}

json_t *spry_choice_progress(const spry_choice *choice)
{
    double ms = (double)(spry_clock_ns() - choice->owner->exchange->began_ns) / 1e6;
    size_t total = choice->progress_total ? choice->progress_total : choice->prompt->count; /* 0: it waits */
    return json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)total, "cache", (json_int_t)choice->progress_cached,
                     "processed", (json_int_t)choice->progress_done, "time_ms", ms);
}

static double rate(double n, double ms)
{
    return n > 0 && ms > 0 ? n / ms * 1e3 : 0;
}

/* As llama-server names them. The first token comes with the prompt, so n tokens take n - 1 steps. */
static void add_rates(json_t *timings, const spry_result *r)
{
    size_t computed = r->prompt_tokens > r->reused_tokens ? r->prompt_tokens - r->reused_tokens : 0;
    double steps = r->generated_tokens > 1 ? (double)(r->generated_tokens - 1) : 0, n = (double)computed;
    json_t *more =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)r->reused_tokens, "prompt_n",
                  (json_int_t)computed, "prompt_ms", r->prefill_ms, "prompt_per_token_ms",
                  computed ? r->prefill_ms / n : 0.0, "prompt_per_second", rate(n, r->prefill_ms), "predicted_n",
                  (json_int_t)r->generated_tokens, "predicted_ms", r->decode_ms, "predicted_per_token_ms",
                  steps > 0 ? r->decode_ms / steps : 0.0, "predicted_per_second", rate(steps, r->decode_ms));
    json_object_update(timings, more);
    json_decref(more);
    if (r->drafts.drafted) {
        json_object_set_new(timings, "draft_n", json_integer((json_int_t)r->drafts.drafted));
        json_object_set_new(timings, "draft_n_accepted", json_integer((json_int_t)r->drafts.accepted));
    }
}

json_t *spry_choice_live_timings(const spry_choice *choice)
{
    const spry_request_status *s = &choice->status;
    uint64_t now = spry_clock_ns(), started = atomic_load(&s->started_ns), first = atomic_load(&s->first_ns);
    size_t done = choice->progress_done - choice->progress_cached, made = atomic_load(&s->pieces);
    double prompt_ms = !started || !(done || first) ? 0 : (double)((first ? first : now) - started) / 1e6;
    double made_ms = first && now > first ? (double)(now - first) / 1e6 : 0, steps = made > 1 ? (double)(made - 1) : 0;
    if (first) /* the prompt is complete */
        done = choice->prompt->count - choice->progress_cached;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)choice->progress_cached,
                     "prompt_n", (json_int_t)done, "prompt_ms", prompt_ms, "prompt_per_token_ms",
                     done ? prompt_ms / (double)done : 0.0, "prompt_per_second", rate((double)done, prompt_ms),
                     "predicted_n", (json_int_t)made, "predicted_ms", made_ms, "predicted_per_token_ms",
                     steps > 0 ? made_ms / steps : 0.0, "predicted_per_second", rate(steps, made_ms));
}

/* Tokens of an answer under a constraint, how many of them the constraint decided, and parts that are not enforced. */
static void add_shape(json_t *timings, const spry_completion *c)
{
    const spry_request *request = &c->options.request;
    const spry_result *r = &c->choices[0].job.result;
    if (request->constraint == SPRY_ANY_TEXT)
        return;
    double all = (double)r->generated_tokens, forced = (double)r->forced_tokens;
    json_object_set_new(timings, "constrained_tokens", json_integer((json_int_t)r->generated_tokens));
    json_object_set_new(timings, "forced_tokens", json_integer((json_int_t)r->forced_tokens));
    json_object_set_new(timings, "forced_share", json_real(all > 0 ? forced / all : 0));
    char *warnings = NULL;
    spry_error error;
    if (request->constraint != SPRY_JSON_SCHEMA || spry_engine_warnings(c->model->engine, &warnings, request, &error) ||
        !*warnings) {
        spry_free(warnings);
        return;
    }
    json_t *list = json_array();
    for (char *line = warnings; *line;) {
        size_t size = strcspn(line, "\n");
        json_array_append_new(list, json_stringn(line, size));
        line += size + (line[size] == '\n');
    }
    json_object_set_new(timings, "warnings", list);
    spry_free(warnings);
}

/* llama-server's timings have only numbers. */
static void keep_numbers(json_t *timings)
{
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(timings, next, name, value) if (!json_is_number(value)) json_object_del(timings, name);
}

/* With several answers, the times of the first one. */
json_t *spry_completion_timings(const spry_completion *c)
{
    const spry_choice *first = &c->choices[0];
    const spry_result *r = &first->job.result;
    spry_usage_counts n;
    spry_engine_info info;
    spry_engine_describe(c->model->engine, &info);
    spry_completion_count(c, &n);
    json_t *timings = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "load_ms",
        (double)c->exchange->load_ns / 1e6, "queue_ms", r->parts_ms[SPRY_PART_QUEUE], "template_ms",
        lap_ms(c, SPRY_PART_TEMPLATE), "tokenize_ms", lap_ms(c, SPRY_PART_TOKENIZE), "lookup_ms", r->lookup_ms,
        "restore_ms", r->restore_ms, "prefill_ms", r->prefill_ms, "first_token_ms", r->first_token_ms, "decode_ms",
        r->decode_ms, "prompt_tokens", (json_int_t)n.prompt, "cached_tokens", (json_int_t)n.cached, "span_tokens",
        (json_int_t)n.span, "repaired_tokens", (json_int_t)n.repaired, "generated_tokens", (json_int_t)n.generated,
        "drafted_tokens", (json_int_t)n.drafted, "accepted_tokens", (json_int_t)n.accepted, "dropped_tokens",
        (json_int_t)n.dropped, "span_divergence", r->span_divergence, "context_tokens", (json_int_t)info.context);
    add_rates(timings, r);
    add_shape(timings, c);
    if (c->prompts.n_pictures) {
        json_object_set_new(timings, "picture_tokens", json_integer((json_int_t)r->picture_tokens));
        json_object_set_new(timings, "preprocess_ms", json_real(lap_ms(c, SPRY_PART_PREPROCESS)));
        json_object_set_new(timings, "encode_ms", json_real(lap_ms(c, SPRY_PART_ENCODE)));
    }
    if (first->first_call.ns) {
        double ms = (double)(first->first_call.ns - c->exchange->began_ns) / 1e6;
        json_object_set_new(timings, "first_call_ms", json_real(ms));
        json_object_set_new(timings, "first_call_tokens", json_integer((json_int_t)first->first_call.tokens));
    }
    add_parts(timings, c, n.generated);
    if (c->prompts.agent)
        json_object_set_new(timings, "agent", json_string(c->prompts.agent));
    if (spry_server_likes_llama(c->exchange->server))
        keep_numbers(timings);
    return timings;
}

const char *spry_choice_stop(const spry_choice *choice)
{
    const spry_request *request = &choice->owner->options.request;
    uint32_t stop = choice->job.result.stop;
    return stop < request->n_stop ? request->stop[stop] : "";
}

const char *spry_choice_finish_reason(const spry_choice *choice)
{
    if (choice->n_calls)
        return "tool_calls";
    spry_finish finish = choice->job.result.finish;
    bool length = choice->owner->options.no_answer || finish == SPRY_FINISH_LENGTH || finish == SPRY_FINISH_CONTEXT;
    return length ? "length" : "stop";
}

/* ---- counters and log -------------------------------------------------------------------------------------------- */

static void count_choice(spry_model_counts *counts, const spry_choice *choice, uint64_t began_ns)
{
    uint64_t first_ns = atomic_load(&choice->status.first_ns);
    const spry_result *r = &choice->job.result;
    /* A choice that was never begun has no prompt. */
    uint64_t tokens = (choice->prompt ? choice->prompt->count : 0) + r->generated_tokens;
    counts->prompt_us += (uint64_t)(r->prefill_ms * 1e3);
    counts->decode_us += (uint64_t)(r->decode_ms * 1e3);
    counts->longest = tokens > counts->longest ? tokens : counts->longest;
    if (choice->submitted)
        spry_histogram_add(&counts->queue, choice->job.result.parts_ms[SPRY_PART_QUEUE] / 1e3);
    if (first_ns)
        spry_histogram_add(&counts->first_token, first_ns > began_ns ? (double)(first_ns - began_ns) / 1e9 : 0);
    if (choice->first_call.ns > began_ns) {
        spry_histogram_add(&counts->first_call, (double)(choice->first_call.ns - began_ns) / 1e9);
        counts->first_call_tokens += choice->first_call.tokens;
    }
    spry_histogram_merge(&counts->between_tokens, &choice->progress.gaps);
    spry_model_counts_add_drafts(counts, &choice->job.result.drafts);
}

void spry_completion_record(const spry_completion *c)
{
    const spry_exchange *x = c->exchange;
    const spry_result *first = &c->choices[0].job.result;
    bool failed = c->jobs.error.status != SPRY_OK;
    spry_usage_counts n;
    spry_completion_count(c, &n);
    spry_model_counts counts = {.requests = 1,
                                .failed = failed && !c->jobs.disconnected,
                                .cancelled = c->jobs.disconnected,
                                .prompt_tokens = n.prompt,
                                .cached_tokens = n.cached,
                                .span_tokens = n.span,
                                .generated_tokens = n.generated,
                                .pictures = c->prompts.n_pictures,
                                .picture_tokens = first->picture_tokens};
    counts.picture_us = (uint64_t)(1e3 * (lap_ms(c, SPRY_PART_PREPROCESS) + lap_ms(c, SPRY_PART_ENCODE)));
    for (uint32_t i = 0; i < c->n_choices; i++)
        count_choice(&counts, &c->choices[i], x->began_ns);
    spry_registry_add_counts(&x->server->registry, c->model->name, &counts);
    spry_http_log(x->server,
                  "request=%llu model=%.100s answers=%u prompt=%zu cached=%zu generated=%zu queue_ms=%.1f "
                  "prefill_ms=%.1f decode_ms=%.1f error=\"%s\"",
                  (unsigned long long)x->number, c->model->name, c->n_choices, n.prompt, n.cached, n.generated,
                  first->parts_ms[SPRY_PART_QUEUE], first->prefill_ms, first->decode_ms,
                  failed ? c->jobs.error.message : "");
}

/* ---- reply ------------------------------------------------------------------------------------------------------- */

/* The reply: whole, once every answer has ended, or as a stream. */

static unsigned failure_status(const spry_completion *c)
{
    return c->exchange->late ? SPRY_HTTP_GATEWAY_TIMEOUT : spry_reply_status(c->jobs.error.status);
}

void spry_completion_reply_failure(spry_completion *c)
{
    if (c->jobs.error.status == SPRY_ERR_CONTEXT && c->prompts.count == 1) {
        spry_engine_info info;
        spry_engine_describe(c->model->engine, &info);
        c->exchange->overflow_tokens = c->prompts.ids[0].count;
        c->exchange->overflow_context = info.context;
    }
    spry_reply_error(c->exchange, failure_status(c), NULL, "%s", c->jobs.error.message);
    spry_completion_destroy(c);
}

/* A request has a reply also when the client has left. */
static void set_disconnected(spry_completion *c)
{
    c->jobs.disconnected = true;
    spry_fail(&c->jobs.error, SPRY_ERR_CANCELLED, "the client has disconnected");
}

/* ---- whole ------------------------------------------------------------------------------------------------------- */

static void reply_whole(spry_completion *c)
{
    spry_collected collected;
    do
        collected = spry_completion_collect(c);
    while (collected == SPRY_COLLECTED_SOME);
    if (collected == SPRY_COLLECTED_DISCONNECTED)
        set_disconnected(c);
    if (c->jobs.error.status != SPRY_OK) {
        spry_completion_reply_failure(c);
        return;
    }
    spry_reply_json(c->exchange, SPRY_HTTP_OK, c->interface->whole(c));
    spry_completion_destroy(c);
}

/* ---- as a stream ------------------------------------------------------------------------------------------------- */

/* The status of the reply has been sent, so an error is the last event of the stream. */
static void close_stream(spry_completion *c)
{
    c->reply.ended = true;
    if (c->jobs.error.status != SPRY_OK && c->interface->fail) {
        c->interface->fail(c, failure_status(c), c->jobs.error.message);
    } else if (c->jobs.error.status != SPRY_OK) {
        spry_error_form form = c->exchange->route->errors;
        json_t *body = spry_reply_error_body(form, failure_status(c), NULL, c->jobs.error.message);
        if (c->jobs.error.status == SPRY_ERR_CONTEXT && form == SPRY_ERRORS_OPENAI)
            json_object_set_new(json_object_get(body, "error"), "code", json_string("context_length_exceeded"));
        (form == SPRY_ERRORS_OLLAMA ? spry_completion_line : spry_completion_event)(c, body);
    } else if (c->interface->close) {
        c->interface->close(c);
    }
}

/* Moves `out` to the kept stream. An answer that is not wanted any more is cancelled, and its end comes soon. */
static void keep_out(spry_completion *c)
{
    if (!c->reply.kept)
        return;
    spry_kept_stream_append(c->reply.kept, &c->reply.out);
    if (!c->reply.ended && !spry_kept_stream_wanted(c->reply.kept, atomic_load(&c->exchange->server->ending)))
        spry_completion_cancel(c);
}

void spry_completion_release_stream(spry_completion *c)
{
    if (!c->reply.kept)
        return;
    if (!c->reply.detached)
        spry_kept_stream_leave(c->reply.kept);
    spry_kept_stream_end(c->reply.kept);
    c->reply.kept = NULL;
}

/* The client has left a kept stream: the answer goes on, for a client that comes back. */
static void go_on(spry_completion *c)
{
    if (!c->reply.kept || c->reply.detached)
        return;
    c->reply.detached = true;
    spry_kept_stream_leave(c->reply.kept);
    while (!c->reply.ended) {
        if (spry_completion_collect(c) == SPRY_COLLECTED_ALL)
            close_stream(c);
        keep_out(c);
    }
    c->jobs.disconnected = c->jobs.error.status == SPRY_ERR_CANCELLED;
}

static bool has_unread(const spry_completion *c)
{
    return c->reply.kept ? spry_kept_stream_size(c->reply.kept) > c->reply.position : c->reply.out.size > 0;
}

uint64_t spry_completion_event_due(const spry_completion *c)
{
    double seconds = (double)c->exchange->server->settings->event_s;
    return c->options.stream && c->interface->progress ? c->reply.event_ns + (uint64_t)(seconds * 1e9) : 0;
}

/* Clients close a connection that is silent for minutes, and a long prompt can take as long. */
static bool write_due_event(spry_completion *c)
{
    if (!spry_completion_event_due(c) || spry_clock_ns() < spry_completion_event_due(c))
        return false;
    c->interface->progress(c, &c->choices[0]);
    c->reply.event_ns = spry_clock_ns();
    keep_out(c);
    return true;
}

/* Waits until there are bytes to write or the stream has ended. False when the connection must be closed. */
static bool fill_out(spry_completion *c)
{
    while (!has_unread(c) && !c->reply.ended) {
        if (write_due_event(c))
            continue;
        spry_collected collected = spry_completion_collect(c);
        if (collected == SPRY_COLLECTED_DISCONNECTED) {
            c->jobs.disconnected = true;
            return false;
        }
        if (collected == SPRY_COLLECTED_ALL)
            close_stream(c);
        keep_out(c);
    }
    return !c->reply.out.failed;
}

static ssize_t stream_more(void *self, char *out, size_t size)
{
    spry_completion *c = self;
    if (!fill_out(c))
        return -1;
    c->reply.event_ns = spry_clock_ns();
    if (c->reply.kept)
        return spry_kept_stream_read(c->reply.kept, out, &c->reply.position, size, 0);
    size_t n = c->reply.out.size < size ? c->reply.out.size : size;
    if (n)
        memcpy(out, c->reply.out.data, n);
    spry_buffer_consume(&c->reply.out, n);
    return (ssize_t)n;
}

static void stream_end(void *self)
{
    spry_completion *c = self;
    go_on(c);
    c->jobs.disconnected = c->jobs.disconnected || !c->reply.ended;
    spry_completion_destroy(c);
}

/* The head and the first event are sent at once: a prompt may take minutes. Later errors are events. */
static void reply_stream(spry_completion *c)
{
    if (c->interface->open)
        c->interface->open(c);
    keep_out(c);
    c->reply.event_ns = spry_clock_ns();
    spry_reply_stream(c->exchange, c->interface->stream_type, (spry_reply_source){stream_more, stream_end, c});
}

void spry_completion_reply_failed_stream(spry_completion *c)
{
    if (c->interface->open)
        c->interface->open(c);
    close_stream(c);
    spry_reply_stream(c->exchange, c->interface->stream_type, (spry_reply_source){stream_more, stream_end, c});
}

void spry_completion_reply(spry_completion *c)
{
    (c->options.stream ? reply_stream : reply_whole)(c);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

json_t *spry_view_json(spry_view text)
{
    json_t *string = json_stringn(text.data, text.size);
    if (string)
        return string;
    spry_buffer valid; /* the text is not UTF-8, or memory is short */
    spry_buffer_init(&valid, 3 * text.size + 1);
    spry_utf8_append_valid(&valid, text);
    string = json_stringn(spry_buffer_view(&valid).data, valid.size);
    spry_buffer_deinit(&valid);
    return string;
}

json_t *spry_buffer_json(const spry_buffer *text)
{
    return spry_view_json(spry_buffer_view(text));
}

static void append_json(spry_completion *c, const char *before, json_t *json, const char *after)
{
    char *text = json ? spry_json_text(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text || spry_json_short()) { /* parts of it may be missing */
        c->reply.out.failed = true;
        free(text);
        return;
    }
    spry_buffer_text(&c->reply.out, before);
    spry_buffer_text(&c->reply.out, text);
    spry_buffer_text(&c->reply.out, after);
    free(text);
}

void spry_completion_event(spry_completion *c, json_t *json)
{
    if (c->reply.kept)
        spry_buffer_format(&c->reply.out, "id: %zu\n", spry_kept_stream_size(c->reply.kept) + c->reply.out.size);
    append_json(c, "data: ", json, "\n\n");
}

void spry_completion_named_event(spry_completion *c, const char *name, json_t *json)
{
    spry_buffer_format(&c->reply.out, "event: %s\n", name);
    spry_completion_event(c, json);
}

void spry_completion_line(spry_completion *c, json_t *json)
{
    append_json(c, "", json, "\n");
}
