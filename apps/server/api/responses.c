/* OpenAI's Responses: replies as lists of items, and stored responses. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/map.h"
#include "platform/clock.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/api/openai.h"
#include "server/api/responses_store.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/request/completion.h"
#include "server/request/rounds.h"

enum { N_PARTS = 3, ID_BYTES = 64 };

struct spry_stored_response {
    spry_stored_response *older, *newer;
    spry_stored_response *next; /* next response in the bucket */
    char id[ID_BYTES];
    const char *key; /* by address; NULL: the server has no keys */
    uint64_t stored_ns;
    size_t bytes;
    char *parts[N_PARTS];
};

void spry_response_store_init(spry_response_store *store, size_t max_bytes, uint32_t keep_s)
{
    *store = (spry_response_store){.max_bytes = max_bytes, .keep_ns = (uint64_t)keep_s * 1000000000};
    pthread_mutex_init(&store->lock, NULL);
}

static void free_response(spry_stored_response *response)
{
    for (size_t i = 0; i < N_PARTS; i++)
        free(response->parts[i]);
    free(response);
}

static spry_stored_response **bucket_of(spry_response_store *store, const char *id)
{
    return &store->buckets[spry_hash_bytes(id, strlen(id), 0) % SPRY_RESPONSE_BUCKETS];
}

/* Under the lock. */
static void add(spry_response_store *store, spry_stored_response *response)
{
    spry_stored_response **bucket = bucket_of(store, response->id);
    response->next = *bucket;
    *bucket = response;
    response->older = store->newest;
    *(store->newest ? &store->newest->newer : &store->oldest) = response;
    store->newest = response;
    store->bytes += response->bytes;
}

/* Under the lock. */
static void remove_response(spry_response_store *store, spry_stored_response *response)
{
    spry_stored_response **link = bucket_of(store, response->id);
    while (*link != response)
        link = &(*link)->next;
    *link = response->next;
    *(response->older ? &response->older->newer : &store->oldest) = response->newer;
    *(response->newer ? &response->newer->older : &store->newest) = response->older;
    store->bytes -= response->bytes;
    free_response(response);
}

/* Under the lock. */
static void drop_old(spry_response_store *store, uint64_t now_ns)
{
    while (store->oldest && (store->bytes > store->max_bytes || now_ns - store->oldest->stored_ns > store->keep_ns))
        remove_response(store, store->oldest);
}

void spry_response_store_deinit(spry_response_store *store)
{
    while (store->oldest)
        remove_response(store, store->oldest);
    pthread_mutex_destroy(&store->lock);
}

/* Keeps copies. `messages`: the conversation with the answer, as chat completions have it; `input`: the items that were
 * sent. */
static void response_store_put(spry_response_store *store, const char *id, spry_view key, const json_t *response,
                               const json_t *messages, const json_t *input)
{
    const json_t *const parts[N_PARTS] = {response, messages, input};
    spry_stored_response *kept = store->keep_ns ? calloc(1, sizeof *kept) : NULL;
    bool complete = kept != NULL;
    if (!kept)
        return;
    snprintf(kept->id, sizeof kept->id, "%s", id);
    kept->key = key.data;
    kept->stored_ns = spry_clock_ns();
    kept->bytes = sizeof *kept;
    for (size_t i = 0; i < N_PARTS && complete; i++) {
        kept->parts[i] = spry_json_text(parts[i], JSON_COMPACT);
        complete = kept->parts[i] != NULL;
        kept->bytes += complete ? strlen(kept->parts[i]) + 1 : 0;
    }
    if (!complete) {
        free_response(kept);
        return;
    }
    pthread_mutex_lock(&store->lock);
    add(store, kept);
    drop_old(store, kept->stored_ns);
    pthread_mutex_unlock(&store->lock);
}

/* NULL: there is none. Under the lock. */
static spry_stored_response *find(spry_response_store *store, const char *id, spry_view key)
{
    drop_old(store, spry_clock_ns());
    spry_stored_response *response = *bucket_of(store, id);
    while (response && !(response->key == key.data && strcmp(response->id, id) == 0))
        response = response->next;
    return response;
}

static json_t *response_store_get(spry_response_store *store, const char *id, spry_view key, spry_stored_part part)
{
    pthread_mutex_lock(&store->lock);
    const spry_stored_response *found = find(store, id, key);
    char *text = found ? strdup(found->parts[part]) : NULL; /* a copy, so that the lock is not held while it is read */
    pthread_mutex_unlock(&store->lock);
    json_t *json = text ? spry_json_value(spry_view_of(text)) : NULL;
    free(text);
    return json;
}

/* An item of the output of any response of this key, borrowed: "msg_NUMBER_0" is an item of "resp_NUMBER". `known` has
 * the items of responses that were read before by their ids, and these responses by theirs. */
static json_t *response_store_item(spry_response_store *store, json_t *known, const char *id, spry_view key)
{
    const char *number = strchr(id, '_'), *end = strrchr(id, '_');
    char owner[ID_BYTES];
    json_t *item;
    size_t i;
    if (!number || end - number >= ID_BYTES - 8)
        return NULL;
    snprintf(owner, sizeof owner, "resp%.*s", (int)(end - number), number);
    if (!json_object_get(known, owner)) {
        json_t *response = response_store_get(store, owner, key, SPRY_STORED_RESPONSE);
        json_array_foreach(json_object_get(response, "output"), i, item)
        {
            const char *name = json_string_value(json_object_get(item, "id"));
            if (name)
                json_object_set(known, name, item);
        }
        json_object_set_new(known, owner, json_null());
        json_decref(response);
    }
    item = json_object_get(known, id);
    return json_is_object(item) ? item : NULL;
}

static bool response_store_remove(spry_response_store *store, const char *id, spry_view key)
{
    pthread_mutex_lock(&store->lock);
    spry_stored_response *found = find(store, id, key);
    if (found)
        remove_response(store, found);
    pthread_mutex_unlock(&store->lock);
    return found != NULL;
}

/* ---- responses json ---------------------------------------------------------------------------------------------- */

enum { SPRY_ITEM_ID = 80 };

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* A kind of call, by the type of its tool. */
typedef struct call_kind {
    const char *tool, *item, *prefix; /* type of the tool; type of the item; beginning of its id */
} call_kind;

static const call_kind call_kinds[] = {{"function", "function_call", "fc"},
                                       {"custom", "custom_tool_call", "ctc"},
                                       {"tool_search", "tool_search_call", "tsc"},
                                       {"local_shell", "local_shell_call", "lsh"},
                                       {"shell", "shell_call", "sh"},
                                       {"apply_patch", "apply_patch_call", "apc"}};

/* {"type", "name", "namespace"} of the tool that a part calls; NULL: the model made it up. */
static const json_t *tool_of(const spry_completion *c, const spry_answer_part *part)
{
    return json_object_getn(json_object_get(c->root, "calls"), spry_buffer_view(&part->name).data, part->name.size);
}

static const call_kind *call_kind_of(const spry_completion *c, const spry_answer_part *part)
{
    size_t i = SPRY_COUNT(call_kinds);
    while (--i > 0 && !spry_chat_body_is(tool_of(c, part), "type", call_kinds[i].tool)) {
    }
    return &call_kinds[i];
}

/* The call that the server has made, if the part is one. */
static const json_t *made_call(const spry_completion *c, const spry_answer_part *part)
{
    const json_t *call;
    size_t i;
    json_array_foreach(c->rounds.made, i, call)
    {
        if (part->kind == SPRY_CHAT_CALL_BEGIN &&
            spry_view_is(spry_buffer_view(&part->id), spry_chat_body_string(call, "id")))
            return call;
    }
    return NULL;
}

/* The id of the item that a part of the answer becomes. */
static void responses_item_id(char out[SPRY_ITEM_ID], const spry_completion *c, const spry_answer_part *part)
{
    const char *prefix = part->kind == SPRY_CHAT_REASONING    ? "rs"
                         : made_call(c, part)                 ? "mcp"
                         : part->kind == SPRY_CHAT_CALL_BEGIN ? call_kind_of(c, part)->prefix
                                                              : "msg";
    const char *number = strchr(c->id, '_');
    snprintf(out, SPRY_ITEM_ID, "%s%s_%zu", prefix, number ? number : "_", part->index);
}

/* {"type": "output_text", ...}, or the text of a thought; takes `logprobs`, NULL: an empty list. */
static json_t *responses_text(const spry_answer_part *part, bool empty, json_t *logprobs)
{
    json_t *text = empty ? json_string("") : spry_buffer_json(&part->text);
    if (part->kind == SPRY_CHAT_REASONING) {
        json_decref(logprobs);
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    }
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs",
                     logprobs ? logprobs : json_array());
}

/* The log probabilities of the whole answer; NULL: not wanted. */
static json_t *logprobs_of(const spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    if (!c->options.want_logprobs)
        return NULL;
    json_t *all = spry_openai_chat_logprobs(c, choice->tokens, 0, choice->n_tokens);
    json_t *content = json_incref(json_object_get(all, "content"));
    json_decref(all);
    return content;
}

static json_t *call_item(const spry_completion *c, const spry_answer_part *part, const char *id, bool done)
{
    const json_t *made = made_call(c, part);
    if (made) {
        json_t *item = spry_rounds_call_json(c, made);
        json_object_set_new(item, "id", json_string(id));
        json_object_set_new(item, "status", json_string(done ? "completed" : "in_progress"));
        return item;
    }
    const call_kind *kind = call_kind_of(c, part);
    const json_t *tool = tool_of(c, part);
    const char *space = spry_chat_body_string(tool, "namespace");
    json_t *item = json_pack("{s:s, s:s, s:s, s:o}", "id", id, "type", kind->item, "status",
                             done ? "completed" : "in_progress", "call_id", spry_buffer_json(&part->id));
    json_t *arguments = done ? spry_json_value(spry_buffer_view(&part->text)) : NULL;
    if (strcmp(kind->tool, "function") == 0 || strcmp(kind->tool, "custom") == 0)
        json_object_set_new(item, "name",
                            tool ? json_incref(json_object_get(tool, "name")) : spry_buffer_json(&part->name));
    if (*space)
        json_object_set_new(item, "namespace", json_string(space));
    if (strcmp(kind->tool, "custom") == 0)
        json_object_set_new(item, "input",
                            done ? spry_chat_body_custom_input(spry_buffer_view(&part->text)) : json_string(""));
    else if (strcmp(kind->tool, "function") == 0)
        json_object_set_new(item, "arguments", done ? spry_buffer_json(&part->text) : json_string(""));
    else if (strcmp(kind->tool, "tool_search") == 0) {
        json_object_set_new(item, "execution", json_string("client"));
        json_object_set_new(item, "arguments", arguments ? json_incref(arguments) : json_object());
    } else if (strcmp(kind->tool, "apply_patch") == 0) {
        json_object_set_new(item, "operation", arguments ? json_incref(arguments) : json_object());
    } else if (strcmp(kind->tool, "shell") == 0) {
        json_object_set_new(item, "action", arguments ? json_incref(arguments) : json_pack("{s:[]}", "commands"));
    } else {
        json_t *action = json_pack("{s:s, s:[], s:{}}", "type", "exec", "command", "env");
        json_object_update(action, arguments);
        json_object_set_new(item, "action", action);
    }
    json_decref(arguments);
    return item;
}

/* "encrypted_content", where the client wants it; NULL: it does not. */
static json_t *kept_thought(const spry_completion *c, const spry_answer_part *part)
{
    const json_t *include = json_object_get(json_object_get(c->root, "request"), "include"), *item;
    size_t i;
    json_array_foreach(include, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), "reasoning.encrypted_content") == 0)
            return json_sprintf(SPRY_KEPT_THOUGHT "%.*s", SPRY_VIEW_ARG(spry_buffer_view(&part->text)));
    }
    return NULL;
}

/* An item of the output; `done` false: as it opens in a stream. */
static json_t *responses_item(const spry_completion *c, const spry_answer_part *part, bool done)
{
    char id[SPRY_ITEM_ID];
    const char *status = done ? "completed" : "in_progress";
    responses_item_id(id, c, part);
    if (part->kind == SPRY_CHAT_CALL_BEGIN)
        return call_item(c, part, id, done);
    json_t *content = json_array();
    if (done)
        json_array_append_new(content,
                              responses_text(part, false, part->kind == SPRY_CHAT_CONTENT ? logprobs_of(c) : NULL));
    if (part->kind == SPRY_CHAT_REASONING)
        return json_pack("{s:s, s:s, s:[], s:o, s:s, s:o*}", "id", id, "type", "reasoning", "summary", "content",
                         content, "status", status, "encrypted_content", done ? kept_thought(c, part) : NULL);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role", "assistant",
                     "content", content);
}

static json_t *usage_json(const spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_count(c, &n);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)n.prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)n.cached, "output_tokens", (json_int_t)n.generated,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)0, "total_tokens",
                     (json_int_t)(n.prompt + n.generated));
}

/* The settings of the request, or their defaults. */
static void add_settings(json_t *response, const spry_completion *c)
{
    static const struct {
        const char *name, *otherwise;
    } settings[] = {{"instructions", "null"},
                    {"max_output_tokens", "null"},
                    {"metadata", "{}"},
                    {"parallel_tool_calls", "true"},
                    {"previous_response_id", "null"},
                    {"reasoning", "{\"effort\": null, \"summary\": null}"},
                    {"service_tier", "\"default\""},
                    {"store", "true"},
                    {"text", "{\"format\": {\"type\": \"text\"}}"},
                    {"tool_choice", "\"auto\""},
                    {"tools", "[]"},
                    {"top_logprobs", "0"},
                    {"truncation", "\"disabled\""},
                    {"user", "null"}};
    const json_t *request = json_object_get(c->root, "request");
    for (size_t i = 0; i < SPRY_COUNT(settings); i++) {
        json_t *value = json_object_get(request, settings[i].name);
        json_object_set_new(response, settings[i].name,
                            value && !json_is_null(value) ? json_incref(value)
                                                          : spry_json_value(spry_view_of(settings[i].otherwise)));
    }
    json_object_set_new(response, "temperature", json_real((double)c->options.request.sampling.temperature));
    json_object_set_new(response, "top_p", json_real((double)c->options.request.sampling.top_p));
}

/* The response object. `status`: "in_progress", "completed", "incomplete" or "failed"; takes `output`. */
static json_t *responses_object(const spry_completion *c, const char *status, json_t *output)
{
    json_t *response = json_pack("{s:s, s:s, s:I, s:s, s:b, s:n, s:n, s:s, s:o}", "id", c->id, "object", "response",
                                 "created_at", (json_int_t)c->created, "status", status, "background", 0, "error",
                                 "incomplete_details", "model", c->model->name, "output", output);
    add_settings(response, c);
    bool ended = strcmp(status, "in_progress") != 0;
    json_object_set_new(response, "usage", ended ? usage_json(c) : json_null());
    if (strcmp(status, "incomplete") == 0)
        json_object_set_new(response, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    return response;
}

/* The answer as a message of chat completions, for the next response; its parts from `first` on. */
static json_t *responses_message(const spry_answer_parts *parts, size_t first)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "assistant", "content", ""), *calls = json_array();
    for (size_t i = first; i < parts->count; i++) {
        const spry_answer_part *part = &parts->list[i];
        if (part->kind == SPRY_CHAT_CALL_BEGIN) {
            json_t *id = spry_buffer_json(&part->id), *name = spry_buffer_json(&part->name);
            json_array_append_new(calls, spry_chat_body_call(id, name, spry_buffer_json(&part->text)));
            json_decref(id);
            json_decref(name);
        } else {
            json_object_set_new(message, part->kind == SPRY_CHAT_CONTENT ? "content" : "reasoning_content",
                                spry_buffer_json(&part->text));
        }
    }
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    return message;
}

/* ---- the paths --------------------------------------------------------------------------------------------------- */

/* State of this interface. */
typedef struct own_fields {
    spry_answer_parts parts;
    size_t first; /* part of the last round; those before are in messages */
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
        json_array_append_new(output, responses_item(c, &parts->list[i], true));
    bool cut = strcmp(spry_choice_finish_reason(&c->choices[0]), "length") == 0;
    json_t *response = responses_object(c, cut ? "incomplete" : "completed", output);
    if (!json_is_false(json_object_get(request, "store"))) {
        json_t *messages = json_copy(json_object_get(c->root, "messages")), *input = json_object_get(request, "input");
        if (json_is_string(json_object_get(request, "instructions")))
            json_array_remove(messages, 0); /* instructions apply to this response only */
        json_array_append_new(messages, responses_message(parts, own->first));
        json_t *items = json_is_string(input) ? json_pack("[{s:s, s:s, s:[{s:s, s:O}]}]", "type", "message", "role",
                                                          "user", "content", "type", "input_text", "text", input)
                                              : json_incref(input);
        response_store_put(&c->exchange->server->responses, c->id, c->exchange->key, response, messages, items);
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
        event(c, names[i], json_pack("{s:o}", "response", responses_object(c, "in_progress", json_array())));
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *more = json_pack("{s:o, s:o}", "response", responses_object(c, "in_progress", json_array()),
                             "prompt_progress", spry_choice_progress(choice));
    spry_openai_add_timings(more, choice);
    event(c, "response.in_progress", more);
}

/* An event of a part: `key` and `value` are its own member; takes `value`. */
static void part_event(spry_completion *c, const spry_answer_part *part, const char *name, const char *key,
                       json_t *value)
{
    char id[SPRY_ITEM_ID];
    responses_item_id(id, c, part);
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
          json_pack("{s:I, s:o}", "output_index", (json_int_t)part->index, "item", responses_item(c, part, done)));
}

static void open_item(spry_completion *c, const spry_answer_part *part)
{
    item_event(c, part, "response.output_item.added", false);
    if (part->kind != SPRY_CHAT_CALL_BEGIN)
        part_event(c, part, "response.content_part.added", "part", responses_text(part, true, NULL));
}

static const char *event_name(const spry_answer_part *part, bool done)
{
    static const char *const names[][2] = {
        {"response.output_text.delta", "response.output_text.done"},
        {"response.reasoning_text.delta", "response.reasoning_text.done"},
        {"response.function_call_arguments.delta", "response.function_call_arguments.done"}};
    return names[part->kind == SPRY_CHAT_CONTENT ? 0 : part->kind == SPRY_CHAT_REASONING ? 1 : 2][done];
}

/* Only functions have events for parts of a call. */
static bool is_function(const spry_completion *c, const spry_answer_part *part)
{
    return part->kind != SPRY_CHAT_CALL_BEGIN || (call_kind_of(c, part) == call_kinds && !made_call(c, part));
}

static void add_to_item(spry_completion *c, const spry_answer_part *part, spry_view text)
{
    if (is_function(c, part))
        part_event(c, part, event_name(part, false), "delta", spry_view_json(text));
}

static void close_item(spry_completion *c, const spry_answer_part *part)
{
    bool call = part->kind == SPRY_CHAT_CALL_BEGIN;
    if (is_function(c, part)) {
        part_event(c, part, event_name(part, true), call ? "arguments" : "text", spry_buffer_json(&part->text));
    } else if (spry_chat_body_is(tool_of(c, part), "type", "custom")) {
        part_event(c, part, "response.custom_tool_call_input.delta", "delta",
                   spry_chat_body_custom_input(spry_buffer_view(&part->text)));
        part_event(c, part, "response.custom_tool_call_input.done", "input",
                   spry_chat_body_custom_input(spry_buffer_view(&part->text)));
    }
    if (!call)
        part_event(c, part, "response.content_part.done", "part", responses_text(part, false, NULL));
    item_event(c, part, "response.output_item.done", true);
}

static const spry_part_writer writer = {open_item, add_to_item, close_item};

static void add_event(spry_completion *c, spry_choice *choice, const spry_chat_event *chat_event)
{
    own_fields *own = c->prompts.extra;
    (void)choice;
    spry_answer_parts_add(&own->parts, c, chat_event);
}

/* A call that the server made. */
static void add_called(spry_completion *c, spry_choice *choice, const json_t *call)
{
    own_fields *own = c->prompts.extra;
    const spry_view name = spry_json_view(json_object_get(call, "name")),
                    arguments = spry_json_view(json_object_get(call, "arguments"));
    const spry_chat_event parts[] = {{.kind = SPRY_CHAT_CALL_BEGIN,
                                      .id = spry_chat_body_string(call, "id"),
                                      .name = name.data,
                                      .name_size = name.size},
                                     {.kind = SPRY_CHAT_ARGUMENTS, .text = arguments.data, .text_size = arguments.size},
                                     {.kind = SPRY_CHAT_CALL_END}};
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        add_event(c, choice, &parts[i]);
    own->first = own->parts.count;
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
    json_t *error = json_object_get(body, "error");
    if (c->exchange->overflow_tokens) /* clients compact the conversation when they see this code */
        json_object_set_new(error, "code", json_string("context_length_exceeded"));
    json_t *response = responses_object(c, "failed", json_array());
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
                                                    .table = &spry_fields_openai_chat,
                                                    .defaults = spry_openai_chat_defaults,
                                                    .read = spry_openai_chat_read,
                                                    .make_prompts = make_prompt,
                                                    .next_prompt = spry_openai_chat_prompt,
                                                    .called = add_called,
                                                    .whole = finished,
                                                    .stream_type = "text/event-stream",
                                                    .open = open_stream,
                                                    .delta = add_event,
                                                    .ordered = true,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice,
                                                    .overflow_in_stream = true,
                                                    .fail = fail_stream};

/* Replaces references by the items they mean. */
static void resolve_items(spry_fields *fields, json_t *root, spry_exchange *x)
{
    json_t *input = json_object_get(root, "input"), *known = json_object(), *item;
    size_t i;
    json_array_foreach(input, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));
        if (!spry_chat_body_is(item, "type", "item_reference"))
            continue;
        json_t *found = id ? response_store_item(&x->server->responses, known, id, x->key) : NULL;
        if (found)
            json_array_set(input, i, found);
        else
            spry_fields_refuse(fields, "input", "input[%zu] refers to \"%.80s\", which is not stored", i, id ? id : "");
    }
    json_decref(known);
}

/* ---- compaction -------------------------------------------------------------------------------------------------- */

/* The model writes a summary, which clients send back in place of the conversation. */

static const char compaction_request[] =
    "Summarise this conversation for an assistant that continues the work without seeing it: the user's goals and "
    "instructions, decisions, files and commands with their results, and what remains to be done. Write only the "
    "summary.";

/* The user's messages as they were sent, and the summary. */
static json_t *compacted(spry_completion *c)
{
    const own_fields *own = c->prompts.extra;
    const json_t *input = json_object_get(json_object_get(c->root, "request"), "input"), *item;
    json_t *output = json_array(), *texts = json_array();
    size_t i;
    json_array_foreach(input, i, item)
    {
        if (spry_chat_body_is(item, "role", "user"))
            json_array_append(output, (json_t *)(uintptr_t)item);
    }
    for (i = 0; i < own->parts.count; i++)
        if (own->parts.list[i].kind == SPRY_CHAT_CONTENT)
            json_array_append_new(texts, json_pack("{s:o}", "text", spry_buffer_json(&own->parts.list[i].text)));
    json_t *summary = spry_chat_body_joined(texts);
    json_array_append_new(output, json_pack("{s:s, s:o, s:o}", "type", "compaction", "id",
                                            json_sprintf("cmp%s", strchr(c->id, '_')), "encrypted_content",
                                            json_sprintf(SPRY_KEPT_THOUGHT "%s", json_string_value(summary))));
    json_decref(summary);
    json_decref(texts);
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", c->id, "object", "response.compaction", "created_at",
                     (json_int_t)c->created, "output", output, "usage", usage_json(c));
}

static void read_compaction(spry_completion_options *o, spry_fields *fields)
{
    spry_openai_chat_read(o, fields);
    o->stream = false;
}

static const spry_completion_interface compaction_interface = {.id_prefix = "resp_",
                                                               .table = &spry_fields_openai_chat,
                                                               .defaults = spry_openai_chat_defaults,
                                                               .read = read_compaction,
                                                               .make_prompts = make_prompt,
                                                               .whole = compacted,
                                                               .delta = add_event,
                                                               .ordered = true};

/* ---- the requests ------------------------------------------------------------------------------------------------ */

static void serve(spry_exchange *x, const spry_completion_interface *served)
{
    spry_fields fields;
    json_t *root, *before = NULL;
    if (!spry_fields_open(&fields, &root, x, &spry_fields_responses))
        return;
    const char *previous = spry_fields_string(&fields, "previous_response_id", "");
    if (*previous && !fields.wrong[0]) {
        before = response_store_get(&x->server->responses, previous, x->key, SPRY_STORED_MESSAGES);
        if (!before) {
            spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "previous_response_id",
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
    if (served == &compaction_interface) {
        json_array_append_new(json_object_get(body, "messages"),
                              json_pack("{s:s, s:s}", "role", "user", "content", compaction_request));
        json_object_set_new(body, "tool_choice", json_string("none"));
    }
    fields.object = body;
    spry_rounds_expand(x, &fields, body);
    spry_completion_serve(x, body, &fields, spry_fields_string(&fields, "model", NULL), served);
}

void spry_responses_create(spry_exchange *x)
{
    serve(x, &interface);
}

void spry_responses_count(spry_exchange *x)
{
    serve(x, &spry_openai_count);
}

void spry_responses_compact(spry_exchange *x)
{
    serve(x, &compaction_interface);
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
        response_store_get(&x->server->responses, id, x->key, items ? SPRY_STORED_INPUT : SPRY_STORED_RESPONSE);
    if (!found)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "there is no response \"%s\"", id);
    else if (items)
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s, s:o, s:b}", "object", "list", "data", found, "has_more", 0));
    else
        spry_reply_json(x, SPRY_HTTP_OK, found);
}

void spry_responses_delete(spry_exchange *x)
{
    if (response_store_remove(&x->server->responses, x->tail, x->key))
        spry_reply_json(x, SPRY_HTTP_OK,
                        json_pack("{s:s, s:s, s:b}", "id", x->tail, "object", "response", "deleted", 1));
    else
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "there is no response \"%.80s\"", x->tail);
}
