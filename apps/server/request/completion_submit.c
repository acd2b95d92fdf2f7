/* The jobs of a completion, and their callbacks on the scheduler's thread, which post to the channel and never wait. */
#include <stdio.h>
#include <stdlib.h>

#include "platform/clock.h"
#include "server/request/completion_internal.h"
#include "server/request/job_wait.h"

enum { CHANNEL_BYTES_MAX = 16 << 20, ANSWER_BYTES_MAX = 256 << 20 };

/* ---- on the scheduler's thread ----------------------------------------------------------------------------------- */

static void record_progress(spry_choice *choice, spry_phase phase, uint32_t pieces)
{
    spry_request_status *status = &choice->status;
    const spry_completion *c = choice->owner;
    atomic_store(&status->phase, phase);
    if (!atomic_load(&status->started_ns))
        atomic_store(&status->started_ns, spry_clock_ns());
    atomic_fetch_add(&status->pieces, pieces);
    spry_registry_sample(&c->exchange->server->registry, c->model->name, c->model->engine, pieces, false);
}

static bool post(spry_choice *choice, uint32_t kind, const void *data, size_t size)
{
    if (spry_channel_post(&choice->owner->jobs.channel, kind, choice->index, data, size))
        return true;
    choice->progress.overflow = true;
    return false;
}

static bool on_prefill(void *user, size_t done, size_t total)
{
    spry_choice *choice = user;
    const spry_progress_record record = {done, total};
    record_progress(choice, SPRY_PHASE_PREFILL, 0);
    choice->progress.prefilled = done;
    return !choice->owner->options.want_progress || post(choice, SPRY_RECORD_PROGRESS, &record, sizeof record);
}

/* The first text: the prompt is complete. */
static bool begin_text(spry_choice *choice, uint64_t now)
{
    const spry_progress_record all = {choice->prompt->count, choice->prompt->count};
    atomic_store(&choice->status.first_ns, now);
    return !choice->owner->options.want_progress || choice->progress.prefilled == all.done ||
           post(choice, SPRY_RECORD_PROGRESS, &all, sizeof all);
}

static bool on_text(void *user, const char *text, size_t size)
{
    spry_choice *choice = user;
    uint64_t now = spry_clock_ns(), last = choice->progress.last_text_ns;
    record_progress(choice, SPRY_PHASE_DECODE, 1);
    if (last)
        spry_histogram_add(&choice->progress.gaps, (double)(now - last) / 1e9);
    else if (!begin_text(choice, now))
        return false;
    choice->progress.last_text_ns = now;
    const spry_place_record place = {now, spry_job_generated(choice->job.handle)};
    if (choice->owner->options.parse_tools && !post(choice, SPRY_RECORD_PLACE, &place, sizeof place))
        return false;
    return post(choice, SPRY_RECORD_TEXT, text, size);
}

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    struct {
        spry_token_record head;
        spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX];
    } record = {.head = {token, n_top}};
    if (n_top)
        memcpy(record.top, top, n_top * sizeof *top);
    return post(user, SPRY_RECORD_TOKEN, &record, sizeof record.head + n_top * sizeof *top);
}

/* The request's share of the energy ends with its last job, so that a slow reader is not charged. */
static void close_job(spry_completion *c)
{
    if (atomic_fetch_sub(&c->jobs.n_open, 1) == 1)
        spry_costs_end_share(&c->costs);
}

static void on_done(void *user, spry_job *job)
{
    spry_choice *choice = user;
    choice->job.status = spry_job_result(job, &choice->job.result, &choice->job.error);
    choice->progress.done_ns = spry_clock_ns();
    close_job(choice->owner);
    spry_channel_post_done(&choice->owner->jobs.channel);
}

/* ---- submitting -------------------------------------------------------------------------------------------------- */

static spry_status submit_job(spry_choice *choice, spry_error *error)
{
    spry_completion *c = choice->owner;
    spry_job_options options;
    spry_job_options_of(&options, c->exchange);
    options.on_done = on_done;
    options.user = choice;
    options.slide = c->options.slide && !c->options.no_shift;
    options.keep = c->options.keep < choice->prompt->count ? c->options.keep : choice->prompt->count;
    options.batch = c->options.batch;
    options.lora = c->options.lora;
    spry_request request = c->options.request;
    request.prompt = choice->prompt->ids;
    request.n_prompt = choice->prompt->count;
    request.spans = c->prompts.spans;
    request.n_spans = c->prompts.n_spans;
    request.sampling.seed += choice->index % c->options.n_each;
    request.on_text = on_text;
    request.on_prefill = on_prefill;
    request.on_token = c->options.want_logprobs ? on_token : NULL;
    request.user = choice;
    request.marks = choice->parser != NULL;
    request.lane = choice->index ? 0 : c->costs.laps.lane;
    spry_status status = spry_job_create_answer(&choice->job.handle, c->model->engine, &request, &options, error);
    return status != SPRY_OK ? status : spry_job_submit(choice->job.handle, error);
}

static spry_status init_choice(spry_choice *choice, spry_completion *c, uint32_t index, spry_error *error)
{
    choice->owner = c;
    choice->index = index;
    choice->prompt = &c->prompts.ids[index / c->options.n_each];
    spry_buffer_init(&choice->raw_text, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->content, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->reasoning, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->arguments, ANSWER_BYTES_MAX);
    choice->status = (spry_request_status){
        .key = c->exchange->key.data, .began_ns = c->exchange->began_ns, .prompt_tokens = choice->prompt->count};
    snprintf(choice->status.id, sizeof choice->status.id, index ? "%s.%u" : "%s", c->id, index);
    snprintf(choice->status.model, sizeof choice->status.model, "%s", c->model->name);
    return spry_choice_make_parser(choice, error);
}

static spry_status submit_choice(spry_choice *choice, spry_error *error)
{
    spry_completion *c = choice->owner;
    spry_registry *registry = &c->exchange->server->registry;
    spry_choice_parts(choice, choice->status.parts_ms);
    spry_registry_begin(registry, &choice->status);
    atomic_fetch_add(&c->jobs.n_open, 1);
    spry_status status = submit_job(choice, error);
    choice->submitted = status == SPRY_OK;
    if (!choice->submitted) {
        close_job(c);
        spry_registry_end(registry, &choice->status, SPRY_PHASE_FAILED, NULL, choice->status.parts_ms);
    }
    return status;
}

spry_status spry_completion_submit(spry_completion *c, spry_error *error)
{
    uint32_t n = c->prompts.count * c->options.n_each;
    c->choices = calloc(n, sizeof *c->choices);
    if (!c->choices)
        return spry_fail_memory(error, "answers", n * sizeof *c->choices);
    c->n_choices = n;
    spry_status status = spry_channel_init(&c->jobs.channel, CHANNEL_BYTES_MAX, error);
    c->jobs.has_channel = status == SPRY_OK;
    for (uint32_t i = 0; i < n && status == SPRY_OK; i++)
        status = init_choice(&c->choices[i], c, i, error);
    spry_completion_jobs_begin(c);
    atomic_store(&c->jobs.n_open, 1);
    for (uint32_t i = 0; i < n && status == SPRY_OK && !c->options.no_answer; i++)
        status = submit_choice(&c->choices[i], error);
    close_job(c);
    return status;
}

/* ---- cancelling -------------------------------------------------------------------------------------------------- */

void spry_completion_cancel(spry_completion *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].submitted && !c->choices[i].done)
            spry_job_cancel(c->choices[i].job.handle);
}

static void end_status(spry_choice *choice)
{
    const spry_completion *c = choice->owner;
    double parts_ms[SPRY_PART_COUNT];
    spry_phase how = c->jobs.disconnected              ? SPRY_PHASE_CANCELLED
                     : c->jobs.error.status != SPRY_OK ? SPRY_PHASE_FAILED
                                                       : SPRY_PHASE_DONE;
    spry_choice_parts(choice, parts_ms);
    spry_registry_end(&c->exchange->server->registry, &choice->status, how, &choice->job.result, parts_ms);
}

void spry_completion_cancel_and_wait(spry_completion *c)
{
    size_t waiting, running, n_submitted = 0;
    if (!c->jobs.has_channel)
        return;
    spry_completion_cancel(c);
    for (uint32_t i = 0; i < c->n_choices; i++)
        n_submitted += c->choices[i].submitted;
    c->jobs.received.size = 0;
    while (spry_channel_take(&c->jobs.channel, &c->jobs.received) < n_submitted) {
        c->jobs.received.size = 0;
        spry_channel_wait(&c->jobs.channel, -1, 0);
    }
    for (uint32_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].submitted)
            end_status(&c->choices[i]);
    /* The last request of a model samples KV memory while no page is in use. */
    spry_registry_load(&c->exchange->server->registry, c->model->name, &waiting, &running);
    if (n_submitted && waiting + running == 0)
        spry_registry_sample(&c->exchange->server->registry, c->model->name, c->model->engine, 0, true);
}
