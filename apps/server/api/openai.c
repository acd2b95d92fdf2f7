/* OpenAI's chat completions and completions. */
#include "server/api/openai.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/models/derived_model.h"
#include "server/request/prompt.h"
#include "server/request/rounds.h"

static json_t *usage_of(const spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_count(c, &n);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I, s:I}}", "prompt_tokens", (json_int_t)n.prompt,
                     "completion_tokens", (json_int_t)n.generated, "total_tokens", (json_int_t)(n.prompt + n.generated),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)n.cached, "completion_tokens_details",
                     "accepted_prediction_tokens", (json_int_t)n.accepted, "rejected_prediction_tokens",
                     (json_int_t)(n.drafted - n.accepted));
}

/* {"id", "object", "created", "model", "system_fingerprint", "choices"}; takes `choices`. */
static json_t *openai_envelope(const spry_completion *c, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", object, "created", (json_int_t)c->created,
                     "model", c->model->name, "system_fingerprint", spry_llama_build(c->exchange->server), "choices",
                     choices);
}

/* The bytes of a token inside a text. */
static spry_view openai_token_bytes(const spry_completion *c, int32_t id)
{
    spry_view bytes;
    bytes.data = spry_engine_token_bytes(c->model->engine, id, true, &bytes.size);
    return bytes.data ? bytes : (spry_view){"", 0};
}

static json_t *entry_json(const spry_completion *c, spry_logprob_entry entry)
{
    spry_view bytes = openai_token_bytes(c, entry.id);
    json_t *list = json_array();
    for (size_t i = 0; i < bytes.size; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes.data[i]));
    return json_pack("{s:i, s:o, s:f, s:o}", "id", (int)entry.id, "token", spry_view_json(bytes), "logprob",
                     isfinite(entry.logprob) ? entry.logprob : -9999.0, "bytes", list);
}

json_t *spry_openai_chat_logprobs(const spry_completion *c, const spry_answer_token *tokens, size_t from, size_t to)
{
    json_t *content = json_array();
    for (size_t i = from; i < to; i++) {
        json_t *entry = entry_json(c, tokens[i].token), *top = json_array();
        for (size_t k = 0; k < tokens[i].n_top; k++)
            json_array_append_new(top, entry_json(c, tokens[i].top[k]));
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

void spry_openai_progress(spry_completion *c, json_t *message, const spry_choice *choice)
{
    json_object_set_new(message, "prompt_progress", spry_choice_progress(choice));
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

void spry_openai_add_timings(json_t *message, const spry_choice *choice)
{
    if (choice->owner->options.want_timings)
        json_object_set_new(message, "timings", spry_choice_live_timings(choice));
}

void spry_openai_serve(spry_exchange *x, const spry_completion_interface *interface)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x, interface->table))
        return;
    spry_rounds_expand(x, &fields, root);
    spry_completion_serve(x, root, &fields, spry_fields_string(&fields, "model", NULL), interface);
}

/* The reply that is not streamed; takes `choices`. */
static json_t *openai_whole(const spry_completion *c, const char *object, json_t *choices)
{
    json_t *message = openai_envelope(c, object, choices);
    json_object_set_new(message, "usage", usage_of(c));
    json_object_set_new(message, "timings", spry_completion_timings(c));
    if (c->options.verbose)
        json_object_set_new(message, "__verbose",
                            json_pack("{s:o, s:o}", "prompt", spry_llama_prompt_text(c, &c->choices[0]),
                                      "generation_settings", spry_llama_settings(&c->options)));
    return message;
}

/* Appends the end of a stream: usage, where wanted, and [DONE]. */
static void openai_close_stream(spry_completion *c, const char *object)
{
    if (c->options.include_usage)
        spry_completion_event(c, openai_whole(c, object, json_array()));
    spry_buffer_text(&c->reply.out, "data: [DONE]\n\n");
}

/* ---- POST /v1/chat/completions ----------------------------------------------------------------------------------- */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *chunk(const spry_completion *c, const spry_choice *choice, json_t *delta, const char *finish)
{
    json_t *entry = json_pack("{s:i, s:o, s:n, s:s?}", "index", (int)choice->index, "delta", delta, "logprobs",
                              "finish_reason", finish);
    return openai_envelope(c, "chat.completion.chunk", json_pack("[o]", entry));
}

/* The log probabilities of the tokens since the last chunk. */
static void add_logprobs(json_t *message, const spry_completion *c, spry_choice *choice)
{
    if (!c->options.want_logprobs || choice->n_written == choice->n_tokens)
        return;
    json_t *entry = json_array_get(json_object_get(message, "choices"), 0);
    json_object_set_new(entry, "logprobs",
                        spry_openai_chat_logprobs(c, choice->tokens, choice->n_written, choice->n_tokens));
    choice->n_written = choice->n_tokens;
}

static void open_stream(spry_completion *c)
{
    const char *none = spry_server_likes_llama(c->exchange->server) ? NULL : "";
    for (uint32_t i = 0; i < c->n_choices; i++)
        spry_completion_event(
            c, chunk(c, &c->choices[i], json_pack("{s:s, s:s?}", "role", "assistant", "content", none), NULL));
}

/* Requests with the older `functions` get replies in their form. */
static bool is_legacy(const spry_completion *c)
{
    return json_object_get(c->root, "functions") != NULL;
}

static json_t *legacy_delta(const spry_chat_event *event)
{
    return event->kind == SPRY_CHAT_CALL_BEGIN
               ? json_pack("{s:{s:o, s:s}}", "function_call", "name", spry_view_json(spry_event_name(event)),
                           "arguments", "")
               : json_pack("{s:{s:o}}", "function_call", "arguments", spry_view_json(spry_event_text(event)));
}

/* "function_call" is the older form of "tool_calls". */
static const char *finish_of(const spry_choice *choice)
{
    return choice->n_calls && is_legacy(choice->owner) ? "function_call" : spry_choice_finish_reason(choice);
}

/* Whether a call is one of a custom tool, whose input is a text. */
static bool is_custom(const spry_completion *c, spry_view name)
{
    return json_object_getn(json_object_get(c->root, "custom_tools"), name.data, name.size) != NULL;
}

/* A call of a custom tool: its name at its beginning, and its input when that is complete. NULL: nothing to say. */
static json_t *custom_delta(spry_choice *choice, const spry_chat_event *event)
{
    spry_choice_add(choice, event);
    if (event->kind == SPRY_CHAT_CALL_BEGIN)
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index", (int)event->index, "id",
                         event->id, "type", "custom", "custom", "name", spry_view_json(spry_event_name(event)), "input",
                         "");
    if (event->kind != SPRY_CHAT_CALL_END)
        return NULL;
    const json_t *call = json_array_get(choice->calls, json_array_size(choice->calls) - 1);
    const char *arguments = spry_chat_body_string(call, "arguments");
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)event->index, "custom", "input",
                     spry_chat_body_custom_input(spry_view_of(arguments)));
}

static json_t *delta_of(const spry_completion *c, const spry_chat_event *event)
{
    if (is_legacy(c) && (event->kind == SPRY_CHAT_CALL_BEGIN || event->kind == SPRY_CHAT_ARGUMENTS))
        return legacy_delta(event);
    switch (event->kind) {
    case SPRY_CHAT_CONTENT: return json_pack("{s:o}", "content", spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_REASONING: return json_pack("{s:o}", "reasoning_content", spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_CALL_BEGIN:
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index", (int)event->index, "id",
                         event->id, "type", "function", "function", "name", spry_view_json(spry_event_name(event)),
                         "arguments", "");
    case SPRY_CHAT_ARGUMENTS:
        return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)event->index, "function", "arguments",
                         spry_view_json(spry_event_text(event)));
    case SPRY_CHAT_CALL_END:
    case SPRY_CHAT_CALL_CUT: break;
    }
    return NULL;
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    bool custom = event->kind >= SPRY_CHAT_CALL_BEGIN && is_custom(c, spry_event_name(event));
    if (!custom && (event->kind == SPRY_CHAT_CALL_END || event->kind == SPRY_CHAT_CALL_CUT))
        return;
    json_t *delta = custom ? custom_delta(choice, event) : delta_of(c, event);
    if (!delta)
        return;
    json_t *message = chunk(c, choice, delta, NULL);
    add_logprobs(message, c, choice);
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

/* A call that the server made: an extension of this interface. */
static void write_called(spry_completion *c, spry_choice *choice, const json_t *call)
{
    if (c->options.stream)
        spry_completion_event(
            c, chunk(c, choice, json_pack("{s:[o]}", "mcp_calls", spry_rounds_call_json(c, call)), NULL));
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    spry_openai_progress(c, chunk(c, choice, json_object(), NULL), choice);
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    json_t *message = chunk(c, choice, json_object(), finish_of(choice));
    add_logprobs(message, c, choice);
    if (last && !c->options.include_usage)
        json_object_set_new(message, "timings", spry_completion_timings(c));
    spry_completion_event(c, message);
}

static void close_stream(spry_completion *c)
{
    openai_close_stream(c, "chat.completion.chunk");
}

static json_t *call_json(const spry_completion *c, const json_t *call)
{
    const json_t *name = json_object_get(call, "name"), *arguments = json_object_get(call, "arguments");
    if (is_custom(c, spry_view_of(json_string_value(name))))
        return json_pack(
            "{s:O, s:s, s:{s:O, s:o}}", "id", json_object_get(call, "id"), "type", "custom", "custom", "name", name,
            "input",
            spry_chat_body_custom_input((spry_view){json_string_value(arguments), json_string_length(arguments)}));
    return json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "type", "function", "function",
                     "name", name, "arguments", arguments);
}

static json_t *calls_json(const spry_completion *c, const json_t *calls)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(calls, i, call) json_array_append_new(list, call_json(c, call));
    return list;
}

static json_t *message_of(const spry_choice *choice)
{
    json_t *message = json_pack(
        "{s:s, s:o}", "role", "assistant", "content",
        json_array_size(choice->calls) && !choice->content.size ? json_null() : spry_buffer_json(&choice->content));
    if (choice->reasoning.size)
        json_object_set_new(message, "reasoning_content", spry_buffer_json(&choice->reasoning));
    json_t *made = json_array(), *call;
    size_t i;
    json_array_foreach(choice->owner->rounds.made, i, call)
        json_array_append_new(made, spry_rounds_call_json(choice->owner, call));
    if (json_array_size(made))
        json_object_set(message, "mcp_calls", made);
    json_decref(made);
    const json_t *first = json_array_get(choice->calls, 0);
    if (first && is_legacy(choice->owner))
        json_object_set_new(message, "function_call",
                            json_pack("{s:O, s:O}", "name", json_object_get(first, "name"), "arguments",
                                      json_object_get(first, "arguments")));
    else if (first)
        json_object_set_new(message, "tool_calls", calls_json(choice->owner, choice->calls));
    return message;
}

static json_t *whole(spry_completion *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const spry_choice *choice = &c->choices[i];
        json_t *logprobs =
            c->options.want_logprobs ? spry_openai_chat_logprobs(c, choice->tokens, 0, choice->n_tokens) : json_null();
        json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", (int)i, "message", message_of(choice),
                                                 "logprobs", logprobs, "finish_reason", finish_of(choice)));
    }
    return openai_whole(c, "chat.completion", choices);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_none(const json_t *tool_choice)
{
    return json_is_string(tool_choice) && strcmp(json_string_value(tool_choice), "none") == 0;
}

/* NULL when there are none, or the model must not call any. */
static const json_t *usable_tools(const spry_fields *fields)
{
    const json_t *tools = spry_fields_get(fields, "tools");
    return json_array_size(tools) && !is_none(spry_fields_get(fields, "tool_choice")) ? tools : NULL;
}

/* `functions` and `function_call`, the older forms of `tools` and `tool_choice`. The first remains, and tells that the
 * reply must have the older form, too. */
static void update_functions(json_t *body)
{
    json_t *functions = json_object_get(body, "functions"), *call = json_object_get(body, "function_call"), *item;
    json_t *tools = json_array();
    size_t i;
    json_array_foreach(functions, i, item)
        json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function", item));
    if (!json_object_get(body, "tools"))
        json_object_set(body, "tools", tools);
    json_decref(tools);
    if (json_is_string(call))
        json_object_set(body, "tool_choice", call);
    else if (json_is_object(call))
        json_object_set_new(body, "tool_choice", json_pack("{s:s, s:O}", "type", "function", "function", call));
    json_object_set_new(body, "parallel_tool_calls", json_false());
}

/* A tool that is a text becomes a function; "custom_tools" has its name, for the reply. */
static void read_custom(spry_fields *fields, json_t *tools, size_t index)
{
    const json_t *custom = json_object_get(json_array_get(tools, index), "custom"), *name;
    const json_t *format = json_object_get(custom, "format"), *grammar = json_object_get(format, "grammar");
    json_t *body = (json_t *)(uintptr_t)fields->object;
    name = json_object_get(custom, "name");
    if (!json_is_string(name)) {
        spry_fields_refuse(fields, "tools", "tools[%zu].custom has no name", index);
        return;
    }
    if (!json_object_get(body, "custom_tools"))
        json_object_set_new(body, "custom_tools", json_object());
    json_object_set_new(json_object_get(body, "custom_tools"), json_string_value(name), json_true());
    json_array_set_new(tools, index,
                       spry_chat_body_custom_tool(name, spry_chat_body_string(custom, "description"),
                                                  spry_chat_body_string(grammar ? grammar : format, "syntax"),
                                                  spry_chat_body_string(grammar ? grammar : format, "definition")));
}

/* {"type": "function", "name": ...}, as responses have it, in the form of chat completions. */
static void read_flat(json_t *tools, size_t index)
{
    const json_t *tool = json_array_get(tools, index);
    if (json_is_string(json_object_get(tool, "name")) && !json_object_get(tool, "function"))
        json_array_set_new(tools, index,
                           spry_chat_body_tool(json_object_get(tool, "name"), json_object_get(tool, "description"),
                                               json_object_get(tool, "parameters")));
}

/* Leaves out tools that are no functions, by name. */
static void keep_functions(spry_fields *fields)
{
    json_t *tools = json_object_get(fields->object, "tools");
    char name[96];
    for (size_t i = json_array_size(tools); i-- > 0;) {
        const char *type = spry_chat_body_string(json_array_get(tools, i), "type");
        if (!*type || strcmp(type, "function") == 0) {
            read_flat(tools, i);
            continue;
        }
        if (strcmp(type, "custom") == 0) {
            read_custom(fields, tools, i);
            continue;
        }
        snprintf(name, sizeof name, "tools.%.60s", type);
        spry_fields_ignore(fields, "tools", name, "only functions are known");
        if (fields->ignored)
            json_array_remove(tools, i);
    }
}

void spry_openai_chat_defaults(spry_completion_options *o)
{
    o->parse_reasoning = 1;
}

void spry_openai_chat_read(spry_completion_options *o, spry_fields *fields)
{
    if (spry_fields_get(fields, "functions"))
        update_functions((json_t *)(uintptr_t)fields->object);
    spry_fields_messages(fields, spry_fields_array(fields, "messages"));
    if (spry_fields_tools(fields))
        keep_functions(fields);
    o->parse_tools = usable_tools(fields) != NULL;
}

/* The variables of the template, including the variables that reasoning_effort sets; a new reference. */
static json_t *variables_of(const spry_fields *fields)
{
    const json_t *given = spry_fields_get(fields, "chat_template_kwargs");
    const json_t *effort = spry_fields_get(fields, "reasoning_effort");
    const json_t *thinking = spry_fields_get(fields, "thinking"), *reasoning = spry_fields_get(fields, "reasoning");
    const json_t *enable = spry_fields_get(fields, "enable_thinking");
    json_t *variables = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (thinking && json_object_get(thinking, "type"))
        json_object_set_new(variables, "enable_thinking",
                            json_boolean(!spry_chat_body_is(thinking, "type", "disabled")));
    if (!enable)
        enable = json_object_get(reasoning, "enabled");
    if (json_is_boolean(enable))
        json_object_set(variables, "enable_thinking", (json_t *)(uintptr_t)enable);
    if (!effort && *spry_chat_body_string(reasoning, "effort"))
        effort = json_object_get(reasoning, "effort");
    static const char *const budgets[] = {"max_thinking_tokens", "thinking_budget", "reasoning_budget"};
    for (size_t i = 0; i < SPRY_COUNT(budgets); i++) {
        const json_t *budget = spry_fields_get(fields, budgets[i]);
        if (json_is_integer(budget) && json_integer_value(budget) == 0)
            json_object_set_new(variables, "enable_thinking", json_false());
    }
    if (is_none(effort))
        json_object_set_new(variables, "enable_thinking", json_false());
    else if (effort)
        json_object_set(variables, "reasoning_effort", (json_t *)(uintptr_t)effort);
    return variables;
}

/* A template that knows no effort gets a budget for the thought. */
static void limit_thought(spry_completion *c, const json_t *variables)
{
    static const struct {
        const char *effort;
        uint32_t tokens;
    } budgets[] = {{"minimal", 128}, {"low", 512}, {"medium", 2048}};
    const char *effort = json_string_value(json_object_get(variables, "reasoning_effort"));
    spry_view source;
    source.data = spry_engine_chat_template(c->model->engine, true, &source.size);
    if (!effort || c->options.request.thought_budget ||
        (source.size && memmem(source.data, source.size, "reasoning_effort", 16)))
        return;
    for (size_t i = 0; i < SPRY_COUNT(budgets); i++)
        if (strcmp(effort, budgets[i].effort) == 0)
            c->options.request.thought_budget = budgets[i].tokens;
}

static spry_status make_prompt(spry_completion *c, spry_fields *fields, const json_t *messages, bool generate,
                               spry_error *error)
{
    const json_t *choice = spry_fields_get(fields, "tool_choice");
    json_t *variables = variables_of(fields);
    limit_thought(c, variables);
    const json_t *tools = usable_tools(fields);
    choice = is_none(choice) ? NULL : choice;
    spry_status status = c->options.overflow == SPRY_OVERFLOW_SLIDE && generate
                             ? spry_prompt_chat_fit(c, messages, tools, variables, choice, error)
                             : spry_prompt_chat(c, messages, tools, variables, choice, generate, error);
    json_decref(variables);
    return status;
}

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* The answer continues the last message: the prompt of the messages before it, and its text. */
static spry_status continue_prompt(spry_completion *c, spry_fields *fields, const json_t *messages, spry_error *error)
{
    size_t count = json_array_size(messages);
    const json_t *last = json_array_get(messages, count - 1), *content = json_object_get(last, "content"), *part;
    if (!is_assistant(last))
        return spry_fail(error, SPRY_ERR_INPUT, "continue_final_message: the last message is not the assistant's");
    spry_buffer text;
    size_t i;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_append(&text, json_is_string(content) ? json_string_value(content) : "", json_string_length(content));
    json_array_foreach(content, i, part)
    {
        if (i && spry_server_likes_llama(c->exchange->server))
            spry_buffer_text(&text, "\n\n");
        spry_buffer_text(&text, json_string_value(json_object_get(part, "text")));
    }
    json_t *before = json_copy((json_t *)(uintptr_t)messages), *begun = spry_buffer_json(&text);
    json_array_remove(before, count - 1);
    c->prompts.begun = begun;
    spry_status status = make_prompt(c, fields, before, true, error);
    c->prompts.begun = NULL;
    json_decref(before);
    json_decref(begun);
    spry_buffer_deinit(&text);
    return status;
}

/* Whether the last message is the beginning of an answer and the request has no "add_generation_prompt". */
static bool ends_with_assistant(spry_fields *fields, const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return is_assistant(last) && !json_array_size(json_object_get(last, "tool_calls")) &&
           !spry_fields_get(fields, "add_generation_prompt");
}

spry_status spry_openai_chat_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *messages = json_object_get(fields->object, "messages");
    bool generate = spry_fields_bool(fields, "add_generation_prompt", true);
    bool given = spry_fields_bool(fields, "continue_final_message", false),
         ends = ends_with_assistant(fields, messages);
    if (given && spry_fields_get(fields, "add_generation_prompt") && generate)
        return spry_fail(error, SPRY_ERR_INPUT, "add_generation_prompt and continue_final_message exclude each other");
    if (!given && ends && is_assistant(json_array_get(messages, json_array_size(messages) - 2)))
        return spry_fail(error, SPRY_ERR_INPUT, "the last two messages are both the assistant's");
    if (given || (ends && !spry_fields_get(fields, "continue_final_message")))
        return continue_prompt(c, fields, messages, error);
    return make_prompt(c, fields, messages, generate, error);
}

static const spry_completion_interface interface = {.id_prefix = "chatcmpl-",
                                                    .table = &spry_fields_openai_chat,
                                                    .defaults = spry_openai_chat_defaults,
                                                    .read = spry_openai_chat_read,
                                                    .make_prompts = spry_openai_chat_prompt,
                                                    .next_prompt = spry_openai_chat_prompt,
                                                    .called = write_called,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .open = open_stream,
                                                    .delta = write_delta,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice,
                                                    .close = close_stream};

void spry_openai_chat(spry_exchange *x)
{
    spry_openai_serve(x, &interface);
}

/* ---- how many tokens a prompt has -------------------------------------------------------------------------------- */

void spry_openai_count_read(spry_completion_options *o, spry_fields *fields)
{
    spry_openai_chat_read(o, fields);
    o->no_answer = true;
    o->stream = false;
}

static json_t *count_json(spry_completion *c)
{
    return json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                     (json_int_t)c->prompts.ids[0].count);
}

const spry_completion_interface spry_openai_count = {.id_prefix = "count_",
                                                     .table = &spry_fields_openai_chat,
                                                     .defaults = spry_openai_chat_defaults,
                                                     .read = spry_openai_count_read,
                                                     .make_prompts = spry_openai_chat_prompt,
                                                     .whole = count_json};

void spry_openai_chat_count(spry_exchange *x)
{
    spry_openai_serve(x, &spry_openai_count);
}

/* ---- GET /v1/settings -------------------------------------------------------------------------------------------- */

/* One setting: its name, range (`max` 0: no limit) and help from the table that checks requests, and its value (NULL:
 * none).
 */
static json_t *setting_json(const char *name, const char *help, bool whole, double min, double max, json_t *value)
{
    json_t *setting = json_pack("{s:s, s:s, s:b, s:f, s:o}", "name", name, "help", help, "integer", whole, "min", min,
                                "value", value ? value : json_null());
    if (max > 0)
        json_object_set_new(setting, "max", json_real(max));
    return setting;
}

static json_t *settings_json(spry_completion_options *o, bool loaded)
{
    json_t *list = json_array();
    const spry_option_table table = spry_completion_sampling(o);
    for (size_t i = 0; i < table.count; i++) {
        const spry_option *option = &table.options[i];
        char name[64];
        spry_options_key(name, sizeof name, option->name);
        bool drawn = strcmp(name, "seed") == 0; /* a seed is drawn for every request */
        if (option->kind != SPRY_OPTION_CHOICE)
            json_array_append_new(list, setting_json(name, option->help, option->kind != SPRY_OPTION_FLOAT,
                                                     option->negative_unset ? -1 : option->min, option->max,
                                                     loaded && !drawn ? spry_options_get_json(&table, option) : NULL));
    }
    const spry_field *limit = spry_fields_find(&spry_fields_openai_chat, "max_tokens");
    json_t *most = o->request.max_tokens ? json_integer((json_int_t)o->request.max_tokens) : NULL;
    json_array_append_new(list, setting_json(limit->name, limit->about, true, -1, 0, most));
    return list;
}

/* The settings of chat completions with the values that a request has which sets none. A model that is not loaded is
 * not loaded for this, and its values are null. */
void spry_openai_settings(spry_exchange *x)
{
    const char *name = spry_exchange_argument(x, "model");
    json_t *body = json_object(), *derived = spry_derived_load(x->server, name);
    const char *from = json_string_value(json_object_get(derived, "from"));
    char known[SPRY_MODEL_NAME];
    spry_fields fields = {.object = body, .within = ""};
    spry_completion_options o;
    bool loaded = !spry_completion_sleeps(x->server, spry_model_name(known, x->server, from ? from : name));
    const spry_pooled *model = loaded ? spry_completion_model(x, from ? from : name) : NULL;
    if (model || !loaded) {
        spry_derived_apply(derived, body, false);
        spry_derived_apply(x->server->defaults, body, false);
        spry_completion_options_init(&o, x->server->settings);
        if (model)
            spry_engine_sampling(model->engine, &o.request.sampling);
        spry_fields_read(&o, &fields, &spry_fields_openai_chat);
        spry_completion_options_limit(&o, x->server->settings);
        spry_reply_json(x, SPRY_HTTP_OK,
                        json_pack("{s:b, s:o}", "loaded", loaded, "settings", settings_json(&o, loaded)));
        spry_completion_options_deinit(&o);
    }
    spry_model_pool_release(x->server->pool, model);
    json_decref(derived);
    json_decref(body);
}

/* ---- POST /v1/completions ---------------------------------------------------------------------------------------- */

enum { DEFAULT_TOKENS = 16, ECHO_BYTES_MAX = 64 << 20 };

/* A prompt that is part of the reply, before its answers. */
typedef struct echoed {
    spry_buffer text;
    spry_answer_token *tokens; /* the answer's tokens with log probabilities; NULL: not wanted */
    size_t n_tokens;
} echoed;

/* State of this text_interface. */
typedef struct own_fields {
    size_t offsets[SPRY_ANSWERS_MAX]; /* characters written of each answer */
    echoed prompts[SPRY_ANSWERS_MAX];
} own_fields;

static void free_own(void *extra)
{
    own_fields *own = extra;
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++) {
        spry_buffer_deinit(&own->prompts[i].text);
        free(own->prompts[i].tokens);
    }
    free(own);
}

static const echoed *echo_of(const spry_completion *c, const spry_choice *choice)
{
    const own_fields *own = c->prompts.extra;
    return &own->prompts[choice->index / c->options.n_each];
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static size_t characters(spry_view text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return n;
}

typedef struct logprob_lists {
    json_t *tokens, *probabilities, *top, *offsets;
} logprob_lists;

static void add_token(logprob_lists *lists, const spry_completion *c, const spry_answer_token *token, size_t *offset)
{
    spry_view bytes = openai_token_bytes(c, token->token.id);
    double p = token->token.logprob;
    json_array_append_new(lists->tokens, spry_view_json(bytes));
    json_array_append_new(lists->probabilities, isfinite(p) ? json_real(p) : json_null());
    json_array_append_new(lists->offsets, json_integer((json_int_t)*offset));
    *offset += characters(bytes);
    json_t *top = isnan(p) ? json_null() : json_object();
    for (size_t i = 0; i < token->n_top; i++) {
        spry_view name = openai_token_bytes(c, token->top[i].id);
        json_t *key = spry_view_json(name);
        json_object_set_new(top, json_string_value(key), json_real(token->top[i].logprob));
        json_decref(key);
    }
    json_array_append_new(lists->top, top);
}

/* The log probabilities of the tokens since the last chunk, after the tokens of an echoed prompt; null: not wanted. */
static json_t *logprobs_of(const spry_completion *c, spry_choice *choice)
{
    own_fields *own = c->prompts.extra;
    const echoed *e = echo_of(c, choice);
    size_t *offset = &own->offsets[choice->index];
    if (!c->options.want_logprobs)
        return json_null();
    logprob_lists lists = {json_array(), json_array(), json_array(), json_array()};
    size_t n_prompt = *offset == 0 ? e->n_tokens : 0;
    for (size_t i = 0; i < n_prompt; i++)
        add_token(&lists, c, &e->tokens[i], offset);
    for (; choice->n_written < choice->n_tokens; choice->n_written++)
        add_token(&lists, c, &choice->tokens[choice->n_written], offset);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", lists.tokens, "token_logprobs", lists.probabilities,
                     "top_logprobs", lists.top, "text_offset", lists.offsets);
}

static json_t *entry_of(const spry_completion *c, spry_choice *choice, json_t *text, const char *finish)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)choice->index, "text", text, "logprobs",
                     logprobs_of(c, choice), "finish_reason", finish);
}

static void write_chunk(spry_completion *c, spry_choice *choice, spry_view text, const char *finish, bool timings)
{
    json_t *entry = entry_of(c, choice, spry_view_json(text), finish);
    json_t *message = openai_envelope(c, "text_completion", json_pack("[o]", entry));
    if (timings)
        json_object_set_new(message, "timings", spry_completion_timings(c));
    else
        spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

static void text_open_stream(spry_completion *c)
{
    for (uint32_t i = 0; c->options.echo && i < c->n_choices; i++)
        write_chunk(c, &c->choices[i], spry_buffer_view(&echo_of(c, &c->choices[i])->text), NULL, false);
}

static void text_write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    write_chunk(c, choice, spry_event_text(event), NULL, false);
}

static void text_write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *entry = entry_of(c, choice, json_string(""), NULL);
    spry_openai_progress(c, openai_envelope(c, "text_completion", json_pack("[o]", entry)), choice);
}

static void text_close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    write_chunk(c, choice, SPRY_VIEW(""), spry_choice_finish_reason(choice), last && !c->options.include_usage);
}

static void text_close_stream(spry_completion *c)
{
    openai_close_stream(c, "text_completion");
}

static json_t *text_whole(spry_completion *c)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++) {
        spry_choice *choice = &c->choices[i];
        spry_buffer all;
        spry_buffer_init(&all, SIZE_MAX / 2);
        spry_view echo = spry_buffer_view(&echo_of(c, choice)->text);
        spry_buffer_append(&all, echo.data, echo.size);
        spry_buffer_append(&all, spry_buffer_view(&choice->content).data, choice->content.size);
        json_array_append_new(choices, entry_of(c, choice, spry_buffer_json(&all), spry_choice_finish_reason(choice)));
        spry_buffer_deinit(&all);
    }
    return openai_whole(c, "text_completion", choices);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* `what`: the name of the prompt in messages. */
static spry_status text_make_prompt(spry_tokens *out, spry_completion *c, const json_t *prompt, const char *what,
                                    spry_error *error)
{
    const json_t *suffix = json_object_get(c->root, "suffix");
    if (json_string_length(suffix)) {
        if (!json_is_string(prompt))
            return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string where there is a suffix", what);
        return spry_prompt_fill_in(out, c->model->engine,
                                   (spry_view){json_string_value(prompt), json_string_length(prompt)},
                                   (spry_view){json_string_value(suffix), json_string_length(suffix)}, NULL, error);
    }
    if (json_is_string(prompt))
        return spry_prompt_encode(out, c->model->engine,
                                  (spry_view){json_string_value(prompt), json_string_length(prompt)}, false, true,
                                  error);
    if (json_is_array(prompt))
        return spry_prompt_list(out, c, prompt, what, error);
    return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string or a list of token ids%s", what,
                     prompt == json_object_get(c->root, "prompt") ? ", or a list of those" : "");
}

/* The text of a prompt and, where wanted, its log probabilities. */
static spry_status make_echo(echoed *out, spry_completion *c, const spry_tokens *prompt, spry_error *error)
{
    const spry_engine *engine = c->model->engine;
    size_t size = 0;
    spry_status status = spry_engine_detokenize(engine, NULL, 0, &size, prompt->ids, prompt->count, false, error);
    char *text = status == SPRY_OK ? spry_buffer_extend(&out->text, size) : NULL;
    if (text)
        status = spry_engine_detokenize(engine, text, size, &size, prompt->ids, prompt->count, false, error);
    if (status != SPRY_OK || !c->options.want_logprobs)
        return status;
    out->tokens = calloc(prompt->count, sizeof *out->tokens);
    if (!out->tokens)
        return spry_fail_memory(error, "the prompt's tokens", prompt->count * sizeof *out->tokens);
    out->n_tokens = prompt->count;
    return spry_prompt_logprobs(out->tokens, c, prompt, error);
}

/* One prompt, or a list of prompts. */
static spry_status make_prompts(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(fields->object, "prompt"), *first = json_array_get(prompt, 0);
    bool several = json_is_string(first) || json_is_array(first);
    size_t count = several ? json_array_size(prompt) : 1;
    if (count * c->options.n_each > SPRY_ANSWERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "prompt has %zu prompts with %u answers each; the limit is %d answers",
                         count, c->options.n_each, SPRY_ANSWERS_MAX);
    own_fields *own = c->prompts.extra = calloc(1, sizeof *own);
    c->prompts.free_extra = free_own;
    if (!own)
        return spry_fail_memory(error, "the prompts", sizeof *own);
    c->prompts.count = (uint32_t)count;
    for (size_t i = 0; i < SPRY_ANSWERS_MAX; i++)
        spry_buffer_init(&own->prompts[i].text, ECHO_BYTES_MAX);
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < count && status == SPRY_OK; i++) {
        char what[32] = "prompt";
        if (several)
            snprintf(what, sizeof what, "prompt[%zu]", i);
        status = text_make_prompt(&c->prompts.ids[i], c, several ? json_array_get(prompt, i) : prompt, what, error);
    }
    if (status == SPRY_OK)
        status = spry_prompt_check(c, error);
    spry_lap(&c->costs.laps, SPRY_PART_TOKENIZE);
    for (size_t i = 0; c->options.echo && i < count && status == SPRY_OK; i++)
        status = make_echo(&own->prompts[i], c, &c->prompts.ids[i], error);
    if (c->options.echo)
        spry_lap(&c->costs.laps, SPRY_PART_PREFILL);
    return status;
}

static void text_defaults(spry_completion_options *o)
{
    o->request.max_tokens = DEFAULT_TOKENS;
}

static const spry_completion_interface text_interface = {.id_prefix = "cmpl-",
                                                         .table = &spry_fields_openai_completion,
                                                         .defaults = text_defaults,
                                                         .make_prompts = make_prompts,
                                                         .whole = text_whole,
                                                         .stream_type = "text/event-stream",
                                                         .open = text_open_stream,
                                                         .delta = text_write_delta,
                                                         .progress = text_write_progress,
                                                         .close_choice = text_close_choice,
                                                         .close = text_close_stream};

void spry_openai_completion(spry_exchange *x)
{
    spry_openai_serve(x, &text_interface);
}
