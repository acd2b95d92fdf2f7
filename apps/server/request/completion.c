/* The life of a completion: its phases in order. A phase that fails gives the reply. */
#include "server/request/completion.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "base/number.h"
#include "platform/clock.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/models/derived_model.h"
#include "server/request/prompt.h"
#include "server/request/rounds.h"
#include "server/server_setup.h"

enum { CHECK_MS = 20 }; /* between two checks of the connection */

void spry_job_options_of(spry_job_options *options, const spry_exchange *x)
{
    spry_job_options_default(options);
    options->salt = x->key.data;
    options->salt_size = x->key.size;
    options->client = x->client;
}

spry_status spry_job_begin(spry_job *job, const spry_costs *costs, spry_error *error)
{
    spry_status status = spry_http_check_reader(costs->exchange, error);
    return status == SPRY_OK ? spry_job_submit(job, error) : status;
}

spry_status spry_job_finish(spry_job *job, spry_costs *costs, spry_error *error)
{
    spry_result result;
    spry_laps *laps = &costs->laps;
    spry_status status = SPRY_OK;
    while (status == SPRY_OK && spry_job_wait(job, CHECK_MS, NULL) != SPRY_OK)
        status = atomic_load(&costs->exchange->server->cutting)
                     ? spry_fail(error, SPRY_ERR_CANCELLED, "the server is stopping")
                     : spry_http_check_reader(costs->exchange, error);
    if (status != SPRY_OK)
        return status;
    status = spry_job_result(job, &result, error);
    if (!laps->ns[SPRY_PART_PREFILL])
        spry_lap_until(laps, SPRY_PART_QUEUE, laps->last_ns + (uint64_t)(result.parts_ms[SPRY_PART_QUEUE] * 1e6));
    spry_lap(laps, SPRY_PART_PREFILL);
    return status;
}

/* ---- submit ------------------------------------------------------------------------------------------------------ */

/* The jobs of a completion, and their callbacks on the scheduler's thread, which post to the channel and never wait. */

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
    return !choice->owner->options.stream || post(choice, SPRY_RECORD_PROGRESS, &record, sizeof record);
}

/* The first text: the prompt is complete. */
static bool begin_text(spry_choice *choice, uint64_t now)
{
    const spry_progress_record all = {choice->prompt->count, choice->prompt->count};
    atomic_store(&choice->status.first_ns, now);
    return !choice->owner->options.stream || choice->progress.prefilled == all.done ||
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
    options.slide = c->options.overflow == SPRY_OVERFLOW_SLIDE && !c->options.no_shift;
    options.keep = c->options.keep < choice->prompt->count ? c->options.keep : choice->prompt->count;
    options.batch = c->options.batch;
    options.lora = c->options.lora;
    spry_request request = c->options.request;
    request.prompt = choice->prompt->ids;
    request.n_prompt = choice->prompt->count;
    request.spans = c->prompts.spans;
    request.n_spans = c->prompts.n_spans;
    request.pictures = c->prompts.pictures;
    request.n_pictures = c->prompts.n_pictures;
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
    snprintf(choice->status.ignored, sizeof choice->status.ignored, "%s", spry_buffer_view(&c->exchange->ignored).data);
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

spry_status spry_completion_submit_round(spry_completion *c, spry_error *error)
{
    spry_choice *choice = &c->choices[0];
    spry_job_free(choice->job.handle);
    spry_chat_parser_destroy(choice->parser);
    memset(&choice->job, 0, sizeof choice->job);
    choice->parser = NULL;
    choice->text_ended = false;
    choice->progress.last_text_ns = choice->progress.done_ns = 0;
    choice->progress.prefilled = choice->progress_total = 0;
    spry_status status = spry_choice_make_parser(choice, error);
    spry_completion_jobs_begin(c);
    atomic_fetch_add(&c->jobs.n_open, 1);
    if (status == SPRY_OK)
        status = submit_job(choice, error);
    if (status == SPRY_OK)
        c->rounds.n_jobs++;
    else
        close_job(c);
    return status;
}

/* Gives every answer a job and submits the jobs. After a failure some may have been submitted. */
static spry_status completion_submit(spry_completion *c, spry_error *error)
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
    if (status == SPRY_OK)
        status = spry_rounds_begin(c, error);
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

/* Cancels, and waits until every job has ended. */
static void completion_cancel_and_wait(spry_completion *c)
{
    size_t waiting, running, n_submitted = c->rounds.n_jobs;
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

/* ---- collect ----------------------------------------------------------------------------------------------------- */

/* Records posted by the jobs become content, reasoning, tool calls and tokens of the choices, or go to the stream. */

#define LOOK_NS 200000000u

static void fail(spry_completion *c, spry_status status, const char *sentence)
{
    if (c->jobs.error.status == SPRY_OK)
        spry_fail(&c->jobs.error, status, "%s", sentence);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

void spry_choice_add(spry_choice *choice, const spry_chat_event *event)
{
    switch (event->kind) {
    case SPRY_CHAT_CONTENT: spry_buffer_append(&choice->content, event->text, event->text_size); break;
    case SPRY_CHAT_REASONING: spry_buffer_append(&choice->reasoning, event->text, event->text_size); break;
    case SPRY_CHAT_CALL_BEGIN:
        if (!choice->calls)
            choice->calls = json_array();
        json_array_append_new(choice->calls, json_pack("{s:s, s:o, s:s}", "id", event->id, "name",
                                                       spry_view_json(spry_event_name(event)), "arguments", ""));
        break;
    case SPRY_CHAT_ARGUMENTS: spry_buffer_append(&choice->arguments, event->text, event->text_size); break;
    case SPRY_CHAT_CALL_END:
        json_object_set_new(json_array_get(choice->calls, json_array_size(choice->calls) - 1), "arguments",
                            spry_buffer_json(&choice->arguments));
        spry_buffer_clear(&choice->arguments);
        break;
    case SPRY_CHAT_CALL_CUT: /* the text of an incomplete call is sent as content */
        json_array_remove(choice->calls, json_array_size(choice->calls) - 1);
        spry_buffer_clear(&choice->arguments);
        spry_buffer_append(&choice->content, event->text, event->text_size);
        break;
    }
}

static void on_event(void *user, const spry_chat_event *event)
{
    spry_choice *choice = user;
    spry_completion *c = choice->owner;
    if (c->options.one_call && event->index && event->kind >= SPRY_CHAT_CALL_BEGIN)
        return;
    if (spry_rounds_take(choice, event))
        return;
    choice->n_calls += event->kind == SPRY_CHAT_CALL_END;
    if (event->kind == SPRY_CHAT_CALL_END && !choice->first_call.ns) {
        choice->first_call.ns = choice->place.ns;
        choice->first_call.tokens = choice->place.tokens;
    }
    if (c->options.stream || c->interface->ordered)
        c->interface->delta(c, choice, event);
    else
        spry_choice_add(choice, event);
    if (choice->content.failed || choice->reasoning.failed || choice->arguments.failed || c->reply.out.failed)
        fail(c, SPRY_ERR_MEMORY, "not enough memory for the answer");
}

spry_status spry_choice_make_parser(spry_choice *choice, spry_error *error)
{
    const spry_completion *c = choice->owner;
    const json_t *tools = json_object_get(c->root, "tools");
    if (!c->options.parse_tools && !c->options.parse_reasoning)
        return SPRY_OK;
    const spry_chat_prompt prompt = {.ids = c->prompts.ids[0].ids, .count = c->prompts.ids[0].count};
    char *declared = c->options.parse_tools && json_is_array(tools) ? spry_json_text(tools, JSON_COMPACT) : NULL;
    spry_chat_parser_options options;
    spry_chat_parser_options_default(&options);
    options.prompt = &prompt;
    options.tools = !c->options.parse_tools ? NULL : declared ? declared : "[]";
    options.reasoning = c->options.parse_reasoning != 0;
    options.seed = spry_entropy();
    options.on_event = on_event;
    options.user = choice;
    spry_status status = spry_chat_parser_create(&choice->parser, c->model->engine, &options, error);
    free(declared);
    return status;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static void add_text(spry_choice *choice, spry_view text)
{
    spry_completion *c = choice->owner;
    choice->has_newline = choice->has_newline || memchr(text.data, '\n', text.size);
    if (c->options.keep_raw_text)
        spry_buffer_append(&choice->raw_text, text.data, text.size);
    if (!choice->parser)
        on_event(choice, &(spry_chat_event){.kind = SPRY_CHAT_CONTENT, .text = text.data, .text_size = text.size});
    else if (spry_chat_parser_feed(choice->parser, text.data, text.size, NULL) != SPRY_OK)
        fail(c, SPRY_ERR_MEMORY, "not enough memory for the answer");
}

static void add_token(spry_choice *choice, const char *data)
{
    spry_token_record record;
    memcpy(&record, data, sizeof record);
    if (choice->n_tokens == choice->tokens_capacity) {
        size_t capacity = choice->tokens_capacity ? choice->tokens_capacity * 2 : 64, bytes;
        spry_answer_token *grown =
            spry_checked_mul(&bytes, capacity, sizeof *grown) ? realloc(choice->tokens, bytes) : NULL;
        if (!grown) {
            fail(choice->owner, SPRY_ERR_MEMORY, "not enough memory for the tokens");
            return;
        }
        choice->tokens = grown;
        choice->tokens_capacity = capacity;
    }
    spry_answer_token *token = &choice->tokens[choice->n_tokens++];
    *token = (spry_answer_token){.token = record.token, .n_top = record.n_top};
    if (record.n_top)
        memcpy(token->top, data + sizeof record, record.n_top * sizeof *token->top);
}

static void add_progress(spry_choice *choice, const char *data)
{
    spry_completion *c = choice->owner;
    spry_progress_record record;
    memcpy(&record, data, sizeof record);
    if (!choice->progress_total)
        choice->progress_cached = record.done;
    choice->progress_done = record.done;
    choice->progress_total = record.total;
    if (c->options.want_progress && c->options.stream && c->interface->progress)
        c->interface->progress(c, choice);
}

static void read_place(spry_choice *choice, const char *data)
{
    spry_place_record record;
    memcpy(&record, data, sizeof record);
    choice->place.ns = record.ns;
    choice->place.tokens = record.tokens;
}

static void read_records(spry_completion *c)
{
    spry_view rest = spry_buffer_view(&c->jobs.received);
    while (rest.size) {
        spry_record record;
        memcpy(&record, rest.data, sizeof record);
        const char *data = rest.data + sizeof record;
        if (record.kind == SPRY_RECORD_TOKEN)
            add_token(&c->choices[record.choice], data);
        else if (record.kind == SPRY_RECORD_PLACE)
            read_place(&c->choices[record.choice], data);
        else if (record.kind == SPRY_RECORD_PROGRESS)
            add_progress(&c->choices[record.choice], data);
        else
            add_text(&c->choices[record.choice], (spry_view){data, record.size});
        rest = (spry_view){data + record.size, rest.size - sizeof record - record.size};
    }
}

/* ---- the end of answers ------------------------------------------------------------------------------------------ */

void spry_choice_end_text(spry_choice *choice)
{
    if (choice->parser && !choice->text_ended)
        spry_chat_parser_finish(choice->parser);
    choice->text_ended = true;
}

static void finish_choice(spry_choice *choice, bool last)
{
    spry_completion *c = choice->owner;
    spry_finish finish = choice->job.result.finish;
    choice->done = true;
    if (choice->submitted && choice->job.status != SPRY_OK)
        fail(c, choice->job.status, choice->job.error.message);
    else if (choice->progress.overflow)
        fail(c, SPRY_ERR_CANCELLED, "the client reads the answer too slowly");
    else if (choice->submitted && finish == SPRY_FINISH_CANCELLED)
        fail(c, SPRY_ERR_CANCELLED,
             c->exchange->late                            ? "the answer took longer than allowed"
             : atomic_load(&c->exchange->server->cutting) ? "the server is stopping"
                                                          : "the answer was cancelled");
    if (c->jobs.error.status != SPRY_OK)
        return;
    spry_choice_end_text(choice);
    if (c->options.stream)
        c->interface->close_choice(c, choice, last);
}

/* The choices are closed together, when the last answer has ended. */
static spry_collected receive(spry_completion *c)
{
    size_t n_submitted = c->rounds.n_jobs;
    for (uint32_t i = 0; i < c->n_choices; i++)
        n_submitted += c->choices[i].submitted;
    c->jobs.received.size = 0;
    size_t n_done = spry_channel_take(&c->jobs.channel, &c->jobs.received);
    read_records(c);
    if (n_done < n_submitted)
        return SPRY_COLLECTED_SOME;
    spry_completion_jobs_end(c);
    if (spry_rounds_next(c))
        return SPRY_COLLECTED_SOME;
    if (c->rounds.active)
        close_job(c);
    c->rounds.active = false;
    for (uint32_t i = 0; i < c->n_choices; i++)
        finish_choice(&c->choices[i], i + 1 == c->n_choices);
    return SPRY_COLLECTED_ALL;
}

/* When --answer-timeout is over; 0: never. */
static uint64_t deadline(const spry_completion *c)
{
    uint64_t seconds = c->exchange->server->settings->answer_s;
    return seconds && !c->exchange->late ? c->exchange->began_ns + seconds * 1000000000 : 0;
}

/* The time of the next look at whether the server is cutting off its answers, or an event is due. */
static uint64_t next_look(const spry_completion *c)
{
    uint64_t look = spry_clock_ns() + LOOK_NS, end = deadline(c), event = spry_completion_event_due(c);
    look = event && event < look ? event : look;
    return end && end < look ? end : look;
}

/* Cancels an answer that takes too long, or that the server cuts off. */
static void look(spry_completion *c)
{
    uint64_t end = deadline(c);
    c->exchange->late = c->exchange->late || (end && spry_clock_ns() >= end);
    if (c->exchange->late || atomic_load(&c->exchange->server->cutting))
        spry_completion_cancel(c);
}

spry_collected spry_completion_collect(spry_completion *c)
{
    if (!c->options.no_answer)
        switch (
            spry_channel_wait(&c->jobs.channel, c->reply.detached ? -1 : spry_http_socket(c->exchange), next_look(c))) {
        case SPRY_WAIT_HUNG_UP: return SPRY_COLLECTED_DISCONNECTED;
        case SPRY_WAIT_RAISED: look(c); break; /* tokens may come without a pause */
        case SPRY_WAIT_TIMEOUT: look(c); return SPRY_COLLECTED_SOME;
        }
    return receive(c);
}

/* ---- the phases in order ----------------------------------------------------------------------------------------- */

enum { STREAM_BYTES_MAX = 64 << 20 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

typedef struct state_search {
    const char *name;
    spry_pool_state state;
    bool found;
} state_search;

static bool find_state(void *context, const spry_pool_info *info)
{
    state_search *s = context;
    s->found = strcmp(info->name, s->name) == 0;
    s->state = info->state;
    return !s->found;
}

bool spry_completion_sleeps(const spry_server *server, const char *name)
{
    state_search s = {.name = name ? name : spry_server_first_model(server)};
    spry_model_pool_each(server->pool, find_state, &s);
    return s.found && s.state == SPRY_POOL_ON_DISK;
}

const spry_pooled *spry_completion_model(spry_exchange *x, const char *name)
{
    const spry_pooled *model = NULL;
    spry_error error;
    uint64_t began = spry_clock_ns();
    char known[SPRY_MODEL_NAME];
    const char *own = spry_model_name(known, x->server, name);
    if (x->server->settings->no_autoload && spry_completion_sleeps(x->server, own)) {
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "model", "the model is not loaded; POST /models/load loads it");
        return NULL;
    }
    spry_status status = spry_model_pool_acquire(x->server->pool, &model, own, &error);
    x->load_ns = spry_clock_ns() - began;
    if (status != SPRY_OK)
        spry_completion_refuse_model(x, name, &error);
    else
        snprintf(x->audit.model, sizeof x->audit.model, "%s", model->name);
    return model;
}

void spry_completion_keep(const spry_exchange *x, const spry_pooled *model, double seconds)
{
    if (x->admin)
        spry_model_pool_keep(x->server->pool, model, seconds);
}

void spry_completion_refuse_model(spry_exchange *x, const char *name, const spry_error *error)
{
    spry_status status = error->status;
    spry_http_log(x->server, "request=%llu model=%.100s error=\"%s\"", (unsigned long long)x->number, name ? name : "",
                  error->message);
    /* Messages of the pool and the loader name files of this machine, which clients must not learn. */
    if (status == SPRY_ERR_FILE || status == SPRY_ERR_INPUT)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         name ? name : "");
    else if (status == SPRY_ERR_BUSY)
        spry_reply_failure(x, error);
    else if (status == SPRY_ERR_MEMORY)
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, "model",
                         "the model \"%.100s\" does not fit into memory at present", name ? name : "");
    else
        spry_reply_error(x, SPRY_HTTP_INTERNAL_SERVER_ERROR, "model",
                         "the model \"%.100s\" cannot be loaded; the server's log says why", name ? name : "");
}

/* ---- the phases -------------------------------------------------------------------------------------------------- */

static spry_completion *create(spry_exchange *x, json_t *root, const spry_completion_interface *interface)
{
    spry_completion *c = calloc(1, sizeof *c);
    if (!c) {
        json_decref(root);
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the request");
        return NULL;
    }
    c->exchange = x;
    c->interface = interface;
    c->root = root;
    c->prompts.count = 1;
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s%016" PRIx64, interface->id_prefix, spry_entropy());
    spry_buffer_init(&c->reply.out, STREAM_BYTES_MAX);
    spry_buffer_init(&c->jobs.received, STREAM_BYTES_MAX);
    spry_completion_options_init(&c->options, x->server->settings);
    spry_costs_begin(&c->costs, x);
    return c;
}

void spry_completion_options_limit(spry_completion_options *o, const spry_serve_settings *settings)
{
    uint32_t most = settings->max_tokens, *wanted = &o->request.max_tokens;
    if (most && (!*wanted || *wanted > most))
        *wanted = most;
}

static bool read_options(spry_completion *c, spry_fields *fields)
{
    spry_completion_options_read(&c->options, fields, c->interface);
    spry_completion_options_limit(&c->options, c->exchange->server->settings);
    spry_lap(&c->costs.laps, SPRY_PART_READ);
    return spry_fields_fine(fields, c->exchange);
}

/* The fields were read before, so that a wrong one loads no model, and are read again over the sampling settings that
 * the model recommends. */
static bool load_model(spry_completion *c, spry_fields *fields, const char *name)
{
    spry_completion_options *o = &c->options;
    c->model = spry_completion_model(c->exchange, name);
    spry_lap(&c->costs.laps, SPRY_PART_QUEUE);
    if (!c->model)
        return false;
    spry_completion_options_deinit(o);
    spry_completion_options_init(o, c->exchange->server->settings);
    o->engine = c->model->engine;
    spry_engine_sampling(c->model->engine, &o->request.sampling);
    bool fine = read_options(c, fields);
    if (fine && o->has_keep_alive)
        spry_completion_keep(c->exchange, c->model, o->keep_alive_s);
    return fine;
}

/* False when there are no prompts, and a reply was given; *streams: by the completion itself, as a stream. */
static bool make_prompts(spry_completion *c, spry_fields *fields, bool *streams)
{
    spry_error error;
    spry_status status = c->interface->make_prompts(c, fields, &error);
    spry_lap(&c->costs.laps, SPRY_PART_TOKENIZE);
    if (!spry_fields_fine(fields, c->exchange))
        return false;
    if (status == SPRY_OK)
        status = spry_prompt_check(c, &error);
    if (status == SPRY_OK && spry_json_short())
        status = spry_fail_memory(&error, "the request", c->exchange->body.size);
    *streams = status == SPRY_ERR_CONTEXT && c->options.stream && c->interface->overflow_in_stream;
    if (*streams) {
        c->jobs.error = error;
        spry_completion_reply_failed_stream(c);
    } else if (status != SPRY_OK) {
        spry_reply_failure(c->exchange, &error);
    }
    return status == SPRY_OK;
}

/* False when a stream with this id exists, and a reply was given. */
static bool keep_stream(spry_completion *c)
{
    spry_exchange *x = c->exchange;
    if (!c->options.stream || !c->options.stream_id || !x->connection)
        return true;
    c->reply.kept =
        spry_kept_streams_open(&x->server->streams, c->options.stream_id, x->key, c->interface->stream_type);
    if (!c->reply.kept)
        spry_reply_error(x, SPRY_HTTP_CONFLICT, "stream_id", "stream_id is in use, or too many streams are kept");
    return c->reply.kept != NULL;
}

/* The model that computes. If `name` is a derived model, its settings are added to the body. */
static const char *use_derived(spry_completion *c, const char *name)
{
    bool ollama = c->exchange->route->errors == SPRY_ERRORS_OLLAMA;
    c->derived = spry_derived_load(c->exchange->server, name);
    if (c->derived)
        spry_derived_apply(c->derived, c->root, ollama);
    spry_derived_apply(c->exchange->server->defaults, c->root, ollama);
    if (!c->derived)
        return name;
    const json_t *source = json_object_get(c->derived, "template");
    c->template = json_string_length(source) ? source : NULL;
    return json_string_value(json_object_get(c->derived, "from"));
}

void spry_completion_serve(spry_exchange *x, json_t *root, spry_fields *fields, const char *model,
                           const spry_completion_interface *interface)
{
    spry_completion *c = create(x, root, interface);
    if (!c)
        return;
    bool streams = false;
    model = use_derived(c, model);
    bool ready = read_options(c, fields) && load_model(c, fields, model) && make_prompts(c, fields, &streams);
    if (streams)
        return;
    if (!ready || !keep_stream(c))
        spry_completion_destroy(c);
    else if (completion_submit(c, &c->jobs.error) != SPRY_OK)
        spry_completion_reply_failure(c);
    else
        spry_completion_reply(c);
}

/* ---- done -------------------------------------------------------------------------------------------------------- */

static void deinit_choice(spry_choice *choice)
{
    spry_job_free(choice->job.handle);
    spry_chat_parser_destroy(choice->parser);
    spry_buffer_deinit(&choice->raw_text);
    spry_buffer_deinit(&choice->content);
    spry_buffer_deinit(&choice->reasoning);
    spry_buffer_deinit(&choice->arguments);
    json_decref(choice->calls);
    free(choice->tokens);
}

static void deinit_prompts(spry_completion *c)
{
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++)
        spry_tokens_deinit(&c->prompts.ids[i]);
    free(c->prompts.spans);
    spry_placed_free(c->prompts.pictures, c->prompts.n_pictures);
    if (c->prompts.extra)
        c->prompts.free_extra(c->prompts.extra);
}

/* Answers that are complete become fragments, as they were generated where nothing was parsed from them. */
static void keep_as_spans(const spry_completion *c)
{
    spry_server *server = c->exchange->server;
    for (uint32_t i = 0; i < c->n_choices && c->options.answer_span && server->spans; i++) {
        const spry_choice *choice = &c->choices[i];
        bool whole = choice->content.size && (choice->reasoning.size || choice->n_calls);
        spry_view text = spry_buffer_view(whole ? &choice->content : &choice->raw_text);
        if (choice->progress.done_ns && choice->job.result.finish != SPRY_FINISH_CANCELLED && text.size)
            spry_answer_spans_add(server->spans, c->model, c->exchange->key, text);
    }
}

void spry_completion_destroy(spry_completion *c)
{
    if (c->choices) {
        completion_cancel_and_wait(c);
        spry_completion_record(c);
        keep_as_spans(c);
    }
    spry_completion_costs_end(c);
    spry_completion_release_stream(c);
    for (uint32_t i = 0; i < c->n_choices; i++)
        deinit_choice(&c->choices[i]);
    free(c->choices);
    if (c->jobs.has_channel)
        spry_channel_deinit(&c->jobs.channel);
    spry_buffer_deinit(&c->jobs.received);
    spry_buffer_deinit(&c->reply.out);
    deinit_prompts(c);
    spry_rounds_deinit(c);
    if (c->model)
        spry_model_pool_release(c->exchange->server->pool, c->model);
    spry_completion_options_deinit(&c->options);
    json_decref(c->root);
    json_decref(c->derived);
    free(c);
}
