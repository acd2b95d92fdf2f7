/* POST /v1/messages and /v1/messages/count_tokens of Anthropic's interface; bodies rewritten as bodies of chat
 * completions. */
#include <stdio.h>
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/openai.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/request/completion.h"

bool spry_chat_body_is(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, text) == 0;
}

/* Adds a variable of the template. */
static void chat_body_variable(json_t *body, const char *name, json_t *value)
{
    json_t *variables = json_object_get(body, "chat_template_kwargs");
    if (!variables) {
        json_object_set_new(body, "chat_template_kwargs", json_object());
        variables = json_object_get(body, "chat_template_kwargs");
    }
    json_object_set_new(variables, name, value);
}

json_t *spry_chat_body_tool(const json_t *name, const json_t *description, const json_t *schema)
{
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                     json_is_null(description) ? NULL : description, "parameters",
                     json_is_null(schema) ? NULL : schema);
}

json_t *spry_chat_body_call(const json_t *id, const json_t *name, json_t *arguments)
{
    return json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

/* ---- Anthropic's bodies ------------------------------------------------------------------------------------------ */

/* Anthropic's messages consist of blocks: results of tools become messages of their own, calls and thoughts become
 * members of the assistant's message. */

enum { PLACE_BYTES = 64 };

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void refuse_block(spry_fields *fields, const char *place, const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type)
        spry_fields_refuse(fields, "messages", "%s must be an object with a \"type\"", place);
    else if (strcmp(type, "image") == 0 || strcmp(type, "document") == 0)
        spry_fields_refuse(fields, "messages", "%s is of type \"%s\": only text is understood", place, type);
    else
        spry_fields_refuse(fields, "messages", "%s has the type \"%.40s\", which is not known or has no place here",
                           place, type);
}

/* Adds the text of a block, or refuses it. */
static void add_text(json_t *parts, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *text = json_object_get(block, "text"), *source = json_object_get(block, "source");
    if (spry_chat_body_is(block, "type", "document") && spry_chat_body_is(source, "type", "text"))
        text = json_object_get(source, "data");
    else if (!spry_chat_body_is(block, "type", "text"))
        text = NULL;
    if (json_is_string(text))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    else
        refuse_block(fields, place, block);
}

/* A text, or a list of blocks that are all text; a new list of parts. */
static json_t *text_parts(spry_fields *fields, const char *place, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    if (json_is_string(content))
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    else if (content && !json_is_array(content))
        spry_fields_refuse(fields, "messages", "%s must be a string or a list of blocks", place);
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        add_text(parts, fields, inner, block);
    }
    return parts;
}

static void add_result(json_t *messages, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id)) {
        spry_fields_refuse(fields, "messages", "%s has no tool_use_id", place);
        return;
    }
    json_t *parts = text_parts(fields, place, json_object_get(block, "content"));
    if (json_is_true(json_object_get(block, "is_error")))
        json_array_insert_new(parts, 0, json_pack("{s:s, s:s}", "type", "text", "text", "Error: "));
    json_array_append_new(messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", parts));
}

static void add_call(json_t *calls, spry_fields *fields, const char *place, const json_t *block)
{
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    if (!json_is_string(name) || !json_is_object(input)) {
        spry_fields_refuse(fields, "messages", "%s must have a name and an input, which is an object", place);
        return;
    }
    char *text = json_dumps(input, JSON_COMPACT);
    json_array_append_new(calls,
                          spry_chat_body_call(json_object_get(block, "id"), name, json_string(text ? text : "{}")));
    free(text);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void add_user(json_t *messages, spry_fields *fields, const char *place, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "tool_result"))
            add_result(messages, fields, inner, block);
        else
            add_text(parts, fields, inner, block);
    }
    if (json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", parts));
    json_decref(parts);
}

static void append(spry_buffer *out, const json_t *text)
{
    spry_buffer_append(out, json_string_value(text), json_string_length(text));
}

static void add_assistant(json_t *messages, spry_fields *fields, const char *place, const json_t *content)
{
    json_t *calls = json_array();
    spry_buffer said, thoughts;
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    spry_buffer_init(&said, SIZE_MAX / 2);
    spry_buffer_init(&thoughts, SIZE_MAX / 2);
    json_array_foreach(content, i, block)
    {
        const json_t *text = json_object_get(block, "text"), *thought = json_object_get(block, "thinking");
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "text") && json_is_string(text))
            append(&said, text);
        else if (spry_chat_body_is(block, "type", "thinking") && json_is_string(thought))
            append(&thoughts, thought);
        else if (spry_chat_body_is(block, "type", "tool_use"))
            add_call(calls, fields, inner, block);
        else if (!spry_chat_body_is(block, "type", "redacted_thinking"))
            refuse_block(fields, inner, block);
    }
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", spry_buffer_json(&said));
    if (thoughts.size)
        json_object_set_new(message, "reasoning_content", spry_buffer_json(&thoughts));
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    spry_buffer_deinit(&said);
    spry_buffer_deinit(&thoughts);
    json_array_append_new(messages, message);
}

static void add_message(json_t *messages, spry_fields *fields, const json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, "messages[%zu].content", number);
    bool user = spry_chat_body_is(message, "role", "user");
    if (!user && !spry_chat_body_is(message, "role", "assistant"))
        spry_fields_refuse(fields, "messages", "messages[%zu].role must be \"user\" or \"assistant\"", number);
    else if (json_is_string(content))
        json_array_append(messages, (json_t *)(uintptr_t)message);
    else if (!json_is_array(content))
        spry_fields_refuse(fields, "messages", "%s must be a string or a list of blocks", place);
    else
        (user ? add_user : add_assistant)(messages, fields, place, content);
}

/* The answer continues a last message of the assistant. */
static json_t *messages_of(json_t *body, spry_fields *fields)
{
    json_t *messages = json_array();
    const json_t *system = spry_fields_get(fields, "system"), *list = spry_fields_array(fields, "messages"), *message;
    size_t i;
    if (system)
        json_array_append_new(
            messages, json_pack("{s:s, s:o}", "role", "system", "content", text_parts(fields, "system", system)));
    if (!json_array_size(list))
        spry_fields_refuse(fields, "messages", "messages must be a list with at least one message");
    json_array_foreach(list, i, message) add_message(messages, fields, message, i);
    message = json_array_get(messages, json_array_size(messages) - 1);
    if (spry_chat_body_is(message, "role", "assistant") && !json_object_get(message, "tool_calls"))
        json_object_set_new(body, "continue_final_message", json_true());
    return messages;
}

/* ---- tools and settings ------------------------------------------------------------------------------------------ */

static void add_tools(json_t *body, spry_fields *fields)
{
    const json_t *list = spry_fields_tools(fields), *tool;
    json_t *tools = json_array();
    size_t i;
    json_array_foreach(list, i, tool)
    {
        const json_t *type = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
        const json_t *schema = json_object_get(tool, "input_schema");
        if (json_is_string(type) && strcmp(json_string_value(type), "custom") != 0)
            spry_fields_refuse(fields, "tools", "tools[%zu].type is \"%.60s\": the server runs no tools", i,
                               json_string_value(type));
        else if (!json_is_string(name) || !json_is_object(schema))
            spry_fields_refuse(fields, "tools", "tools[%zu] must have a name and an input_schema, which is an object",
                               i);
        else
            json_array_append_new(tools, spry_chat_body_tool(name, json_object_get(tool, "description"), schema));
    }
    if (json_array_size(tools))
        json_object_set(body, "tools", tools);
    json_decref(tools);
}

static void add_choice(json_t *body, spry_fields *fields)
{
    const json_t *choice = spry_fields_object(fields, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice)
        return;
    if (spry_chat_body_is(choice, "type", "auto"))
        json_object_set_new(body, "tool_choice", json_string("auto"));
    else if (spry_chat_body_is(choice, "type", "any"))
        json_object_set_new(body, "tool_choice", json_string("required"));
    else if (spry_chat_body_is(choice, "type", "none"))
        json_object_set_new(body, "tool_choice", json_string("none"));
    else if (spry_chat_body_is(choice, "type", "tool") && json_is_string(name))
        json_object_set_new(body, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    else
        spry_fields_refuse(fields, "tool_choice",
                           "tool_choice.type must be \"auto\", \"any\", \"none\", or \"tool\" with a name");
    json_object_set_new(body, "parallel_tool_calls",
                        json_boolean(!json_is_true(json_object_get(choice, "disable_parallel_tool_use"))));
}

/* Thoughts are off unless they are asked for, as in Anthropic's interface. */
static void add_thinking(json_t *body, spry_fields *fields)
{
    const json_t *thinking = spry_fields_object(fields, "thinking");
    bool on = spry_chat_body_is(thinking, "type", "enabled") || spry_chat_body_is(thinking, "type", "adaptive");
    if (thinking && !on && !spry_chat_body_is(thinking, "type", "disabled"))
        spry_fields_refuse(fields, "thinking", "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    chat_body_variable(body, "enable_thinking", json_boolean(on));
}

static void add_format(json_t *body, spry_fields *fields)
{
    const json_t *config = spry_fields_object(fields, "output_config"), *effort = json_object_get(config, "effort");
    const json_t *format = json_object_get(config, "format");
    if (!format)
        format = spry_fields_object(fields, "output_format");
    if (json_is_string(effort))
        chat_body_variable(body, "reasoning_effort", json_incref((json_t *)(uintptr_t)effort));
    if (!format || json_is_null(format))
        return;
    const json_t *schema = json_object_get(format, "schema");
    if (spry_chat_body_is(format, "type", "json_schema") && json_is_object(schema))
        json_object_set_new(
            body, "response_format",
            json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema", schema));
    else
        spry_fields_refuse(fields, config ? "output_config" : "output_format",
                           "the format must be {\"type\": \"json_schema\", \"schema\": {...}}");
}

/* A new body, of Anthropic's Messages and of OpenAI's Responses. A field that is wrong is stored in `fields`; the
 * caller releases the body in any case. `before` (NULL: none): messages of the responses that came before. */
static json_t *chat_body_anthropic(spry_fields *fields)
{
    json_t *body = json_object();
    spry_fields_copy(body, fields, &spry_fields_anthropic);
    json_object_set_new(body, "messages", messages_of(body, fields));
    add_tools(body, fields);
    add_choice(body, fields);
    add_thinking(body, fields);
    add_format(body, fields);
    return body;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

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
        input = empty ? NULL : json_loadb(part->text.data, part->text.size, 0, NULL);
        return json_pack("{s:s, s:o, s:o, s:o}", "type", "tool_use", "id", spry_buffer_json(&part->id), "name",
                         spry_buffer_json(&part->name), "input", input ? input : json_object());
    default: break;
    }
    return json_pack("{s:s, s:o}", "type", "text", "text", empty ? json_string("") : spry_buffer_json(&part->text));
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
    event(c, "message_delta", json_pack("{s:o, s:o}", "delta", stop_json(c), "usage", usage_json(c, true)));
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
    json_t *body = chat_body_anthropic(&fields);
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
