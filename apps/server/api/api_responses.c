/* POST /v1/responses of OpenAI's interface, and the responses that are kept. */
#include <stdio.h>
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/api/openai_json.h"
#include "server/api/responses_json.h"
#include "server/api/responses_store.h"
#include "server/fields/field_table.h"
#include "server/http/http_reply.h"

/* State of this interface. */
typedef struct own_fields {
    spry_answer_parts parts;
    json_int_t n_events;
} own_fields;

/* ---- the end of a response --------------------------------------------------------------------------------------- */

/* The complete response, which is kept unless "store" is false. */
static json_t *finished(spry_completion *c)
{
    const own_fields *own = c->prompts.extra;
    const spry_answer_parts *parts = &own->parts;
    const json_t *request = json_object_get(c->root, "request");
    json_t *output = json_array();
    for (size_t i = 0; i < parts->count; i++)
        json_array_append_new(output, spry_responses_item(c, &parts->list[i], true));
    bool cut = strcmp(spry_choice_finish_reason(&c->choices[0]), "length") == 0;
    json_t *response = spry_responses_object(c, cut ? "incomplete" : "completed", output);
    if (!json_is_false(json_object_get(request, "store"))) {
        json_t *messages = json_copy(json_object_get(c->root, "messages")), *input = json_object_get(request, "input");
        if (json_is_string(json_object_get(request, "instructions")))
            json_array_remove(messages, 0); /* they hold for this response only */
        json_array_append_new(messages, spry_responses_message(parts));
        json_t *items = json_is_string(input) ? json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role",
                                                          "user", "content", "type", "input_text", "text", input)
                                              : json_incref(input);
        spry_response_store_put(&c->exchange->server->responses, c->id, c->exchange->key, response, messages, items);
        json_decref(items);
        json_decref(messages);
    }
    json_object_set_new(response, "timings", spry_completion_timings(c));
    return response;
}

/* ---- as a stream ------------------------------------------------------------------------------------------------- */

/* {"type", "sequence_number"} and the members of `more`, which it takes. */
static void event(spry_completion *c, const char *name, json_t *more)
{
    own_fields *own = c->prompts.extra;
    json_t *message = json_pack("{s:s, s:I}", "type", name, "sequence_number", own->n_events++);
    json_object_update(message, more);
    json_decref(more);
    spry_completion_named_event(c, name, message);
}

static void open_stream(spry_completion *c)
{
    static const char *const names[] = {"response.created", "response.in_progress"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        event(c, names[i], json_pack("{s:o}", "response", spry_responses_object(c, "in_progress", json_array())));
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *more = json_pack("{s:o, s:o}", "response", spry_responses_object(c, "in_progress", json_array()),
                             "prompt_progress", spry_choice_progress(choice));
    spry_openai_add_timings(more, choice);
    event(c, "response.in_progress", more);
}

/* An event of a part: `key` and `value` are its own member; takes `value`. */
static void part_event(spry_completion *c, const spry_answer_part *part, const char *name, const char *key,
                       json_t *value)
{
    char id[SPRY_ITEM_ID];
    spry_responses_item_id(id, c, part);
    json_t *more = json_pack("{s:s, s:I, s:o}", "item_id", id, "output_index", (json_int_t)part->index, key, value);
    if (part->kind != SPRY_CHAT_CALL_BEGIN)
        json_object_set_new(more, "content_index", json_integer(0));
    if (strcmp(key, "delta") == 0)
        spry_openai_add_timings(more, &c->choices[0]);
    event(c, name, more);
}

static void item_event(spry_completion *c, const spry_answer_part *part, const char *name, bool done)
{
    event(c, name,
          json_pack("{s:I, s:o}", "output_index", (json_int_t)part->index, "item", spry_responses_item(c, part, done)));
}

static void open_item(spry_completion *c, const spry_answer_part *part)
{
    item_event(c, part, "response.output_item.added", false);
    if (part->kind != SPRY_CHAT_CALL_BEGIN)
        part_event(c, part, "response.content_part.added", "part", spry_responses_text(part, true, NULL));
}

static const char *event_name(const spry_answer_part *part, bool done)
{
    static const char *const names[][2] = {
        {"response.output_text.delta", "response.output_text.done"},
        {"response.reasoning_text.delta", "response.reasoning_text.done"},
        {"response.function_call_arguments.delta", "response.function_call_arguments.done"}};
    return names[part->kind == SPRY_CHAT_CONTENT ? 0 : part->kind == SPRY_CHAT_REASONING ? 1 : 2][done];
}

static void add_to_item(spry_completion *c, const spry_answer_part *part, spry_view text)
{
    part_event(c, part, event_name(part, false), "delta", spry_view_json(text));
}

static void close_item(spry_completion *c, const spry_answer_part *part)
{
    bool call = part->kind == SPRY_CHAT_CALL_BEGIN;
    part_event(c, part, event_name(part, true), call ? "arguments" : "text", spry_buffer_json(&part->text));
    if (!call)
        part_event(c, part, "response.content_part.done", "part", spry_responses_text(part, false, NULL));
    item_event(c, part, "response.output_item.done", true);
}

static const spry_part_writer writer = {open_item, add_to_item, close_item};

static void add_event(spry_completion *c, spry_choice *choice, const spry_chat_event *chat_event)
{
    own_fields *own = c->prompts.extra;
    (void)choice;
    spry_answer_parts_add(&own->parts, c, chat_event);
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    own_fields *own = c->prompts.extra;
    (void)choice;
    (void)last;
    spry_answer_parts_end(&own->parts, c);
    json_t *response = finished(c);
    bool complete =
        json_is_null(json_object_get(response, "incomplete_details")) || spry_server_likes_llama(c->exchange->server);
    json_t *more = json_pack("{s:o}", "response", response);
    if (c->options.want_timings)
        json_object_set(more, "timings", json_object_get(response, "timings"));
    event(c, complete ? "response.completed" : "response.incomplete", more);
}

static void fail_stream(spry_completion *c, unsigned status, const char *sentence)
{
    json_t *body = spry_reply_error_body(SPRY_ERRORS_OPENAI, status, NULL, sentence);
    const json_t *error = json_object_get(body, "error");
    json_t *response = spry_responses_object(c, "failed", json_array());
    json_object_set_new(
        response, "error",
        json_pack("{s:O, s:O}", "code", json_object_get(error, "code"), "message", json_object_get(error, "message")));
    event(c, "error",
          json_pack("{s:O, s:O, s:n}", "code", json_object_get(error, "code"), "message",
                    json_object_get(error, "message"), "param"));
    event(c, "response.failed", json_pack("{s:o}", "response", response));
    json_decref(body);
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

static void free_own(void *extra)
{
    own_fields *own = extra;
    spry_answer_parts_deinit(&own->parts);
    free(own);
}

static spry_status make_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    own_fields *own = c->prompts.extra = calloc(1, sizeof *own);
    c->prompts.free_extra = free_own;
    if (!own)
        return spry_fail_memory(error, "the response", sizeof *own);
    own->parts.writer = c->options.stream ? &writer : NULL;
    return spry_openai_chat_prompt(c, fields, error);
}

static const spry_completion_interface interface = {.id_prefix = "resp_",
                                                    .read = spry_openai_chat_read,
                                                    .make_prompts = make_prompt,
                                                    .whole = finished,
                                                    .stream_type = "text/event-stream",
                                                    .open = open_stream,
                                                    .delta = add_event,
                                                    .ordered = true,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice,
                                                    .fail = fail_stream};

/* Replaces references by the items they mean. */
static void resolve_items(spry_fields *fields, json_t *root, spry_exchange *x)
{
    json_t *input = json_object_get(root, "input"), *item;
    size_t i;
    json_array_foreach(input, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));
        if (!spry_chat_body_is(item, "type", "item_reference"))
            continue;
        json_t *found = id ? spry_response_store_item(&x->server->responses, id, x->key) : NULL;
        if (found)
            json_array_set_new(input, i, found);
        else
            spry_fields_refuse(fields, "input", "input[%zu] refers to \"%.80s\", which is not stored", i, id ? id : "");
    }
}

void spry_responses_create(spry_exchange *x)
{
    spry_fields fields;
    json_t *root, *before = NULL;
    if (!spry_fields_open(&fields, &root, x))
        return;
    spry_fields_check(&fields, &spry_fields_responses);
    const char *previous = spry_fields_string(&fields, "previous_response_id", "");
    if (*previous && !fields.wrong[0]) {
        before = spry_response_store_get(&x->server->responses, previous, x->key, SPRY_STORED_MESSAGES);
        if (!before) {
            spry_reply_error(x, MHD_HTTP_NOT_FOUND, "previous_response_id",
                             "there is no response \"%.80s\": it was not stored, or not kept that long", previous);
            json_decref(root);
            return;
        }
    }
    if (!fields.wrong[0])
        resolve_items(&fields, root, x);
    json_t *body = spry_chat_body_responses(&fields, before);
    json_object_set_new(body, "request", root);
    json_decref(before);
    fields.object = body;
    spry_completion_serve(x, body, &fields, spry_fields_string(&fields, "model", NULL), &interface);
}

/* ---- responses that are kept ------------------------------------------------------------------------------------- */

/* "ID" or "ID/input_items". */
void spry_responses_get(spry_exchange *x)
{
    char id[SPRY_ITEM_ID];
    spry_view tail = spry_view_of(x->tail), list = SPRY_VIEW("/input_items");
    bool items = spry_view_ends(tail, list);
    snprintf(id, sizeof id, "%.*s", SPRY_VIEW_ARG(((spry_view){tail.data, tail.size - (items ? list.size : 0)})));
    json_t *found =
        spry_response_store_get(&x->server->responses, id, x->key, items ? SPRY_STORED_INPUT : SPRY_STORED_RESPONSE);
    if (!found)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, NULL, "there is no response \"%s\"", id);
    else if (items)
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s, s:o, s:b}", "object", "list", "data", found, "has_more", 0));
    else
        spry_reply_json(x, MHD_HTTP_OK, found);
}

void spry_responses_delete(spry_exchange *x)
{
    if (spry_response_store_remove(&x->server->responses, x->tail, x->key))
        spry_reply_json(x, MHD_HTTP_OK,
                        json_pack("{s:s, s:s, s:b}", "id", x->tail, "object", "response", "deleted", 1));
    else
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, NULL, "there is no response \"%.80s\"", x->tail);
}
