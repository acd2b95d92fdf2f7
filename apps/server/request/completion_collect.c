/* What the jobs have posted becomes content, reasoning, tool calls and tokens of the choices, or goes to the stream. */
#include <stdlib.h>

#include "base/number.h"
#include "platform/clock.h"
#include "server/http/http_server.h"
#include "server/request/completion_internal.h"

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
    case SPRY_CHAT_CALL_CUT: /* it is no call, and nothing the model wrote is lost */
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
    char *declared = c->options.parse_tools && json_is_array(tools) ? json_dumps(tools, JSON_COMPACT) : NULL;
    spry_chat_parser_options options;
    spry_chat_parser_options_default(&options);
    options.prompt = &prompt;
    options.tools = !c->options.parse_tools ? NULL : declared ? declared : "[]";
    options.reasoning = c->options.parse_reasoning;
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
    if (c->options.stream && c->interface->progress)
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
    if (choice->parser)
        spry_chat_parser_finish(choice->parser);
    if (c->options.stream)
        c->interface->close_choice(c, choice, last);
}

/* The choices are closed together, when the last answer has ended. */
static spry_collected receive(spry_completion *c)
{
    size_t n_submitted = 0;
    for (uint32_t i = 0; i < c->n_choices; i++)
        n_submitted += c->choices[i].submitted;
    c->jobs.received.size = 0;
    size_t n_done = spry_channel_take(&c->jobs.channel, &c->jobs.received);
    read_records(c);
    if (n_done < n_submitted)
        return SPRY_COLLECTED_SOME;
    spry_completion_jobs_end(c);
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

/* The time of the next look at whether the server is cutting off its answers. */
static uint64_t next_look(const spry_completion *c)
{
    uint64_t look = spry_clock_ns() + LOOK_NS, end = deadline(c);
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
