/* POST /v1/messages and /v1/messages/count_tokens of Anthropic's interface. */
#include <stdlib.h>

#include "base/json.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/api/openai.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/request/completion.h"

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* The counts of cached tokens are known when the answer has ended; until then all are counted as input. */
static json_t *usage_json(const spry_completion *c, bool ended)
{
    spry_usage_counts n = {.prompt = c->prompts.ids[0].count};
    if (ended)
        spry_completion_count(c, &n);
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t)(n.prompt - n.cached),
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens", (json_int_t)n.cached,
                     "output_tokens", (json_int_t)n.generated);
}

static const char *stop_reason(const spry_choice *choice)
{
    if (choice->n_calls)
        return "tool_use";
    switch (choice->job.result.finish) {
    case SPRY_FINISH_STOP: return "stop_sequence";
    case SPRY_FINISH_LENGTH: return "max_tokens";
    case SPRY_FINISH_CONTEXT: return "model_context_window_exceeded";
    case SPRY_FINISH_END:
    case SPRY_FINISH_CANCELLED: break;
    }
    return "end_turn";
}

/* {"stop_reason", "stop_sequence"} */
static json_t *stop_json(const spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    bool stopped = !choice->n_calls && choice->job.result.finish == SPRY_FINISH_STOP;
    return json_pack("{s:s, s:s?}", "stop_reason", stop_reason(choice), "stop_sequence",
                     stopped ? spry_choice_stop(choice) : NULL);
}

/* A block; `empty`: as it opens in a stream. */
static json_t *block_json(const spry_answer_part *part, bool empty)
{
    json_t *input;
    switch (part->kind) {
    case SPRY_CHAT_REASONING:
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                         empty ? json_string("") : spry_buffer_json(&part->text), "signature", "");
    case SPRY_CHAT_CALL_BEGIN:
        input = empty ? NULL : spry_json_value(spry_buffer_view(&part->text));
        return json_pack("{s:s, s:o, s:o, s:o}", "type", "tool_use", "id", spry_buffer_json(&part->id), "name",
                         spry_buffer_json(&part->name), "input", input ? input : json_object());
    default: break;
    }
    return json_pack("{s:s, s:o}", "type", "text", "text", empty ? json_string("") : spry_buffer_json(&part->text));
}

/* Adds what context_management did, to a reply that is complete. */
static void add_edits(json_t *message, const spry_completion *c)
{
    json_t *edits = json_object_get(c->root, "applied_edits");
    if (edits)
        json_object_set_new(message, "context_management", json_pack("{s:O}", "applied_edits", edits));
}

static json_t *message_json(const spry_completion *c, json_t *content, bool ended)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:n, s:n, s:o}", "id", c->id, "type", "message", "role", "assistant",
                     "model", c->model->name, "content", content, "stop_reason", "stop_sequence", "usage",
                     usage_json(c, ended));
}

/* ---- whole ------------------------------------------------------------------------------------------------------- */

static json_t *whole(spry_completion *c)
{
    const spry_answer_parts *parts = c->prompts.extra;
    json_t *content = json_array(), *stop = stop_json(c);
    for (size_t i = 0; i < parts->count; i++)
        json_array_append_new(content, block_json(&parts->list[i], false));
    json_t *message = message_json(c, content, true);
    json_object_update(message, stop);
    add_edits(message, c);
    json_decref(stop);
    return message;
}

/* ---- as a stream ------------------------------------------------------------------------------------------------- */

static void event(spry_completion *c, const char *name, json_t *more)
{
    json_t *message = json_pack("{s:s}", "type", name);
    json_object_update(message, more);
    json_decref(more);
    spry_completion_named_event(c, name, message);
}

static void open_stream(spry_completion *c)
{
    event(c, "message_start", json_pack("{s:o}", "message", message_json(c, json_array(), false)));
    event(c, "ping", NULL);
}

static void open_block(spry_completion *c, const spry_answer_part *part)
{
    event(c, "content_block_start",
          json_pack("{s:I, s:o}", "index", (json_int_t)part->index, "content_block", block_json(part, true)));
}

static void add_delta(spry_completion *c, const spry_answer_part *part, const char *type, const char *key, json_t *text)
{
    event(c, "content_block_delta",
          json_pack("{s:I, s:{s:s, s:o}}", "index", (json_int_t)part->index, "delta", "type", type, key, text));
}

static void add_to_block(spry_completion *c, const spry_answer_part *part, spry_view text)
{
    switch (part->kind) {
    case SPRY_CHAT_REASONING: add_delta(c, part, "thinking_delta", "thinking", spry_view_json(text)); break;
    case SPRY_CHAT_CALL_BEGIN: add_delta(c, part, "input_json_delta", "partial_json", spry_view_json(text)); break;
    default: add_delta(c, part, "text_delta", "text", spry_view_json(text)); break;
    }
}

static void close_block(spry_completion *c, const spry_answer_part *part)
{
    if (part->kind == SPRY_CHAT_REASONING)
        add_delta(c, part, "signature_delta", "signature", json_string(""));
    event(c, "content_block_stop", json_pack("{s:I}", "index", (json_int_t)part->index));
}

static const spry_part_writer writer = {open_block, add_to_block, close_block};

static void add_event(spry_completion *c, spry_choice *choice, const spry_chat_event *chat_event)
{
    (void)choice;
    spry_answer_parts_add(c->prompts.extra, c, chat_event);
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    (void)choice;
    (void)last;
    spry_answer_parts_end(c->prompts.extra, c);
    json_t *end = json_pack("{s:o, s:o}", "delta", stop_json(c), "usage", usage_json(c, true));
    add_edits(end, c);
    event(c, "message_delta", end);
    event(c, "message_stop", json_object());
}

static void fail_stream(spry_completion *c, unsigned status, const char *sentence)
{
    spry_completion_named_event(c, "error", spry_reply_error_body(SPRY_ERRORS_ANTHROPIC, status, NULL, sentence));
}

/* ---- the paths --------------------------------------------------------------------------------------------------- */

static void free_parts(void *extra)
{
    spry_answer_parts_deinit(extra);
    free(extra);
}

static spry_status make_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    spry_answer_parts *parts = c->prompts.extra = calloc(1, sizeof *parts);
    c->prompts.free_extra = free_parts;
    if (!parts)
        return spry_fail_memory(error, "the answer", sizeof *parts);
    parts->writer = c->options.stream ? &writer : NULL;
    return spry_openai_chat_prompt(c, fields, error);
}

/* Clients ignore what a ping says; people who watch a stream do not. */
static void write_ping(spry_completion *c, spry_choice *choice)
{
    event(c, "ping", json_pack("{s:o}", "prompt_progress", spry_choice_progress(choice)));
}

static const spry_completion_interface messages_interface = {.id_prefix = "msg_",
                                                             .table = &spry_fields_openai_chat,
                                                             .defaults = spry_openai_chat_defaults,
                                                             .read = spry_openai_chat_read,
                                                             .make_prompts = make_prompt,
                                                             .whole = whole,
                                                             .stream_type = "text/event-stream",
                                                             .open = open_stream,
                                                             .delta = add_event,
                                                             .ordered = true,
                                                             .progress = write_ping,
                                                             .close_choice = close_choice,
                                                             .fail = fail_stream};

static json_t *count_json(spry_completion *c)
{
    return json_pack("{s:I}", "input_tokens", (json_int_t)c->prompts.ids[0].count);
}

static const spry_completion_interface count_interface = {.id_prefix = "count_",
                                                          .table = &spry_fields_openai_chat,
                                                          .defaults = spry_openai_chat_defaults,
                                                          .read = spry_openai_count_read,
                                                          .make_prompts = spry_openai_chat_prompt,
                                                          .whole = count_json};

/* Replies to a request that continues a conversation kept by the server: none is kept, and clients then send all of it.
 */
static void refuse_thread(spry_exchange *x)
{
    json_t *body = spry_reply_error_body(SPRY_ERRORS_ANTHROPIC, SPRY_HTTP_NOT_FOUND, NULL,
                                         "thread: conversations are not kept; send all messages");
    json_object_set_new(json_object_get(body, "error"), "details",
                        json_pack("{s:s}", "error_code", "thread_not_found"));
    spry_reply_json(x, SPRY_HTTP_NOT_FOUND, body);
}

static void serve(spry_exchange *x, const spry_field_table *table, const spry_completion_interface *interface,
                  bool limited)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x, table))
        return;
    if (!*spry_fields_string(&fields, "model", ""))
        spry_fields_refuse(&fields, "model", "model is missing");
    if (limited && !spry_fields_get(&fields, "max_tokens"))
        spry_fields_refuse(&fields, "max_tokens", "max_tokens is missing");
    if (spry_chat_body_is(json_object_get(root, "thread"), "type", "continue")) {
        refuse_thread(x);
        json_decref(root);
        return;
    }
    json_t *body = spry_chat_body_anthropic(&fields);
    json_decref(root);
    fields.object = body;
    spry_completion_serve(x, body, &fields, spry_fields_string(&fields, "model", NULL), interface);
}

void spry_anthropic_messages(spry_exchange *x)
{
    serve(x, &spry_fields_anthropic, &messages_interface, true);
}

void spry_anthropic_count(spry_exchange *x)
{
    serve(x, &spry_fields_anthropic_count, &count_interface, false);
}
