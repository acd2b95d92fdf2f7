/* The scheduler's side of a completion, and taking in what it posts. */
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "engine/engine_state.h"
#include "platform/clock.h"
#include "server/http/http_server.h"
#include "server/request/completion_internal.h"

enum { CHANNEL_BYTES_MAX = 16 << 20, ANSWER_BYTES_MAX = 256 << 20, OPENING_TOKENS = 16, OPENING_BYTES = 4096 };

enum { NEWS_TEXT, NEWS_TOKEN };

/* A token with its alternatives, as it is posted: only n_top of them. */
typedef struct token_news {
    spry_logprob_entry token;
    size_t n_top;
} token_news;

/* ---- on the scheduler's thread ----------------------------------------------------------------------------------- */

/* The model has turned to this answer. */
static void note(spry_choice *choice, spry_phase phase, uint32_t pieces)
{
    spry_request_status *status = &choice->status;
    const spry_pooled *model = choice->owner->model;
    atomic_store(&status->phase, phase);
    if (!atomic_load(&status->started_ns))
        atomic_store(&status->started_ns, spry_clock_ns());
    atomic_fetch_add(&status->pieces, pieces);
    spry_registry_sample(&choice->owner->exchange->server->registry, model->name, model->engine, pieces, false);
}

static bool on_prefill(void *user, size_t done, size_t total)
{
    (void)done;
    (void)total;
    note(user, SPRY_PHASE_PREFILL, 0);
    return true;
}

static bool on_text(void *user, const char *text, size_t size)
{
    spry_choice *choice = user;
    uint64_t now = spry_clock_ns();
    note(choice, SPRY_PHASE_DECODE, 1);
    if (choice->last_ns)
        spry_histogram_add(&choice->gaps, (double)(now - choice->last_ns) / 1e9);
    else
        atomic_store(&choice->status.first_ns, now);
    choice->last_ns = now;
    if (spry_channel_post(&choice->owner->channel, NEWS_TEXT, choice->index, text, size))
        return true;
    choice->overflow = true;
    return false;
}

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    spry_choice *choice = user;
    struct {
        token_news news;
        spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX];
    } posted = {.news = {token, n_top}};
    if (n_top)
        memcpy(posted.top, top, n_top * sizeof *top);
    if (spry_channel_post(&choice->owner->channel, NEWS_TOKEN, choice->index, &posted,
                          sizeof posted.news + n_top * sizeof *top))
        return true;
    choice->overflow = true;
    return false;
}

/* The last one ends the request's share of the energy: whoever reads the answer may take his time. */
static void close_job(spry_completion *c)
{
    if (atomic_fetch_sub(&c->open, 1) == 1)
        spry_costs_end_share(&c->costs);
}

static void on_done(spry_job *job)
{
    spry_choice *choice = job->owner;
    choice->done_ns = spry_clock_ns();
    close_job(choice->owner);
    spry_channel_post_done(&choice->owner->channel);
}

/* ---- handing over ------------------------------------------------------------------------------------------------ */

static void on_event(void *user, const spry_answer_event *event);

/* Whether the prompt leaves the model in the middle of a thought. */
static bool opens_thought(const spry_completion *c)
{
    char text[OPENING_BYTES];
    const spry_tokens *prompt = &c->prompts[0];
    size_t size, n = prompt->count < OPENING_TOKENS ? prompt->count : OPENING_TOKENS;
    if (!n || spry_engine_detokenize(c->model->engine, text, sizeof text, &size, prompt->ids + prompt->count - n, n,
                                     true, NULL) != SPRY_OK)
        return false;
    return spry_answer_opens_thought((spry_view){text, size < sizeof text ? size : sizeof text});
}

static spry_status make_parser(spry_choice *choice, spry_error *error)
{
    spry_completion *c = choice->owner;
    if (!c->look_for_tools && !c->look_for_thoughts)
        return SPRY_OK;
    const spry_chat_template *chat = c->model->engine->model->chat;
    spry_answer_options options = {
        .tools = c->look_for_tools,
        .style = spry_tool_style_find(spry_chat_template_used_source(chat, c->look_for_tools)),
        .declared = c->tools,
        .reasoning = c->look_for_thoughts && !c->call_open,
        .in_thought = c->look_for_thoughts && opens_thought(c),
        .seed = spry_entropy(),
        .on_event = on_event,
        .user = choice,
    };
    spry_status status = spry_answer_parser_create(&choice->parser, &options, error);
    if (status == SPRY_OK && c->call_open)
        status = spry_answer_parser_feed(choice->parser, spry_view_of(c->call_open), error);
    return status;
}

static spry_status make_choice(spry_choice *choice, spry_completion *c, uint32_t index, spry_error *error)
{
    spry_exchange *x = c->exchange;
    choice->owner = c;
    choice->index = index;
    choice->prompt = &c->prompts[index / c->n_each];
    spry_buffer_init(&choice->said, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->content, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->reasoning, ANSWER_BYTES_MAX);
    spry_buffer_init(&choice->arguments, ANSWER_BYTES_MAX);
    choice->status =
        (spry_request_status){.key = x->key.data, .began_ns = x->began_ns, .prompt_tokens = choice->prompt->count};
    snprintf(choice->status.id, sizeof choice->status.id, index ? "%s.%u" : "%s", c->id, index);
    snprintf(choice->status.model, sizeof choice->status.model, "%s", c->model->name);
    choice->job = (spry_job){.request = c->request,
                             .salt = x->key.data,
                             .salt_size = x->key.size,
                             .client = x->client,
                             .on_done = on_done,
                             .owner = choice};
    spry_request *request = &choice->job.request;
    request->prompt = choice->prompt->ids;
    request->n_prompt = choice->prompt->count;
    request->spans = c->spans;
    request->n_spans = c->n_spans;
    request->sampling.seed += index % c->n_each;
    request->on_text = on_text;
    request->on_prefill = on_prefill;
    request->on_token = c->want_logprobs ? on_token : NULL;
    request->user = choice;
    request->lane = index ? 0 : c->costs.laps.lane;
    return make_parser(choice, error);
}

spry_status spry_completion_submit(spry_completion *c, spry_error *error)
{
    c->error.status = SPRY_OK;
    uint32_t n = c->n_prompts * c->n_each;
    c->choices = calloc(n, sizeof *c->choices);
    if (!c->choices)
        return spry_fail_memory(error, "answers", n * sizeof *c->choices);
    c->n = n;
    spry_status status = spry_channel_init(&c->channel, CHANNEL_BYTES_MAX, error);
    c->has_channel = status == SPRY_OK;
    for (uint32_t i = 0; i < c->n && status == SPRY_OK; i++)
        status = make_choice(&c->choices[i], c, i, error);
    spry_completion_hand_over(c);
    atomic_store(&c->open, 1);
    for (uint32_t i = 0; i < c->n && status == SPRY_OK && !c->silent; i++) {
        spry_choice *choice = &c->choices[i];
        spry_choice_parts(choice, choice->status.parts_ms);
        spry_registry_begin(&c->exchange->server->registry, &choice->status);
        atomic_fetch_add(&c->open, 1);
        status = spry_scheduler_submit(c->model->scheduler, &choice->job, error);
        choice->submitted = status == SPRY_OK;
        if (choice->submitted)
            continue;
        close_job(c);
        spry_registry_end(&c->exchange->server->registry, &choice->status, SPRY_PHASE_FAILED, NULL,
                          choice->status.parts_ms);
    }
    close_job(c);
    return status;
}

void spry_completion_cancel(spry_completion *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->choices[i].submitted && !c->choices[i].done)
            spry_scheduler_cancel(c->model->scheduler, &c->choices[i].job);
}

static size_t n_submitted(const spry_completion *c)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        n += c->choices[i].submitted;
    return n;
}

static void look_once_more(void *context, spry_engine *engine)
{
    spry_completion *c = context;
    spry_registry_sample(&c->exchange->server->registry, c->model->name, engine, 0, true);
}

static void end_activity(spry_choice *choice)
{
    const spry_completion *c = choice->owner;
    double parts_ms[SPRY_PART_COUNT];
    spry_phase how = c->gone ? SPRY_PHASE_CANCELLED : c->error.status != SPRY_OK ? SPRY_PHASE_FAILED : SPRY_PHASE_DONE;
    spry_choice_parts(choice, parts_ms);
    spry_registry_end(&c->exchange->server->registry, &choice->status, how, &choice->job.result, parts_ms);
}

void spry_completion_settle(spry_completion *c)
{
    size_t waiting, running;
    if (!c->has_channel)
        return;
    spry_completion_cancel(c);
    size_t submitted = n_submitted(c);
    c->taken.size = 0;
    while (spry_channel_take(&c->channel, &c->taken) < submitted) {
        c->taken.size = 0;
        spry_channel_wait(&c->channel, -1, 0);
    }
    for (uint32_t i = 0; i < c->n; i++)
        if (c->choices[i].submitted)
            end_activity(&c->choices[i]);
    /* The last one to leave notes what KV memory looks like when nobody uses it. */
    spry_registry_load(&c->exchange->server->registry, c->model->name, &waiting, &running);
    if (submitted && waiting + running == 0)
        spry_scheduler_call(c->model->scheduler, look_once_more, c);
}

/* ---- taking in --------------------------------------------------------------------------------------------------- */

static void fail(spry_completion *c, spry_status status, const char *sentence)
{
    if (c->error.status == SPRY_OK)
        spry_fail(&c->error, status, "%s", sentence);
}

void spry_choice_keep(spry_choice *choice, const spry_answer_event *event)
{
    json_t *call = json_array_get(choice->calls, event->index);
    switch (event->kind) {
    case SPRY_ANSWER_CONTENT: spry_buffer_append(&choice->content, event->text.data, event->text.size); break;
    case SPRY_ANSWER_REASONING: spry_buffer_append(&choice->reasoning, event->text.data, event->text.size); break;
    case SPRY_ANSWER_CALL_BEGIN:
        if (!choice->calls)
            choice->calls = json_array();
        json_array_append_new(choice->calls, json_pack("{s:s, s:o, s:s}", "id", event->id, "name",
                                                       spry_view_json(event->name), "arguments", ""));
        break;
    case SPRY_ANSWER_ARGUMENTS: spry_buffer_append(&choice->arguments, event->text.data, event->text.size); break;
    case SPRY_ANSWER_CALL_END:
        json_object_set_new(call, "arguments", spry_buffer_json(&choice->arguments));
        spry_buffer_clear(&choice->arguments);
        break;
    }
}

static void on_event(void *user, const spry_answer_event *event)
{
    spry_choice *choice = user;
    spry_completion *c = choice->owner;
    if (event->kind == SPRY_ANSWER_CALL_BEGIN)
        choice->n_calls = event->index + 1;
    if (c->stream)
        c->form->delta(c, choice, event);
    else
        spry_choice_keep(choice, event);
    if (choice->content.failed || choice->reasoning.failed || choice->arguments.failed || c->out.failed)
        fail(c, SPRY_ERR_MEMORY, "not enough memory for the answer");
}

static void take_text(spry_choice *choice, spry_view text)
{
    spry_completion *c = choice->owner;
    spry_answer_event event = {.kind = SPRY_ANSWER_CONTENT, .text = text};
    if (c->keep_text)
        spry_buffer_append(&choice->said, text.data, text.size);
    if (!choice->parser)
        on_event(choice, &event);
    else if (spry_answer_parser_feed(choice->parser, text, NULL) != SPRY_OK)
        fail(c, SPRY_ERR_MEMORY, "not enough memory for the answer");
}

static void take_token(spry_choice *choice, const char *data)
{
    token_news news;
    memcpy(&news, data, sizeof news);
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
    *token = (spry_answer_token){.token = news.token, .n_top = news.n_top};
    if (news.n_top)
        memcpy(token->top, data + sizeof news, news.n_top * sizeof *token->top);
}

static void take_records(spry_completion *c)
{
    spry_view rest = spry_buffer_view(&c->taken);
    while (rest.size) {
        spry_record record;
        memcpy(&record, rest.data, sizeof record);
        spry_choice *choice = &c->choices[record.choice];
        const char *data = rest.data + sizeof record;
        if (record.kind == NEWS_TOKEN)
            take_token(choice, data);
        else
            take_text(choice, (spry_view){data, record.size});
        rest = (spry_view){data + record.size, rest.size - sizeof record - record.size};
    }
}

static void finish_choice(spry_choice *choice, bool last)
{
    spry_completion *c = choice->owner;
    const spry_job *job = &choice->job;
    choice->done = true;
    if (choice->submitted && job->status != SPRY_OK)
        fail(c, job->error.status == SPRY_OK ? job->status : job->error.status, job->error.message);
    else if (choice->overflow)
        fail(c, SPRY_ERR_CANCELLED, "the answer was not read fast enough");
    else if (choice->submitted && job->result.finish == SPRY_FINISH_CANCELLED)
        fail(c, SPRY_ERR_CANCELLED,
             c->exchange->late ? "the answer took longer than allowed" : "the answer was cancelled");
    if (c->error.status != SPRY_OK)
        return;
    if (choice->parser && c->call_close && job->result.finish == SPRY_FINISH_END)
        take_text(choice, spry_view_of(c->call_close));
    if (choice->parser)
        spry_answer_parser_finish(choice->parser);
    if (c->stream)
        c->form->close_choice(c, choice, last);
    choice->closed = true;
}

/* Answers are closed together, once the last one is over. */
static spry_pumped take_in(spry_completion *c)
{
    c->taken.size = 0;
    size_t n_done = spry_channel_take(&c->channel, &c->taken);
    take_records(c);
    if (n_done < n_submitted(c))
        return SPRY_PUMPED_MORE;
    spry_completion_stop(c);
    for (uint32_t i = 0; i < c->n; i++)
        finish_choice(&c->choices[i], i + 1 == c->n);
    return SPRY_PUMPED_ALL;
}

static uint64_t deadline(const spry_completion *c)
{
    uint64_t seconds = c->exchange->server->settings->answer_s;
    return seconds && !c->exchange->late ? c->exchange->began_ns + seconds * 1000000000 : 0;
}

spry_pumped spry_completion_pump(spry_completion *c)
{
    if (!c->silent)
        switch (spry_channel_wait(&c->channel, spry_http_socket(c->exchange), deadline(c))) {
        case SPRY_WAIT_HUNG_UP: return SPRY_PUMPED_GONE;
        case SPRY_WAIT_RAISED: break;
        case SPRY_WAIT_TIMEOUT:
            c->exchange->late = true;
            spry_completion_cancel(c);
            return SPRY_PUMPED_MORE;
        }
    return take_in(c);
}
