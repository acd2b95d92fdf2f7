/* A round is a prompt and its answer. One that ends with calls which the server makes is followed by another, whose
 * prompt has the calls and their results; the keys and values of all before are in the cache. */
#include "server/request/rounds.h"

#include <stdlib.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "mcp/mcp.h"
#include "server/api/chat_body.h"
#include "server/http/http_server.h"
#include "server/request/prompt.h"

enum { ROUNDS_MAX = 20, TEXT_BYTES = 256 << 20, RESULT_BYTES = 16 << 20 };

/* ---- what a request asks for ------------------------------------------------------------------------------------- */

static const char names_key[] =
    "server_calls"; /* key of the body: {name of a tool that the server calls: {"server_label", "name"}} */

static bool is_listed(const json_t *list, const char *name)
{
    const char *own = strstr(name, "__");
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *wanted = json_string_value(item);
        if (wanted && (strcmp(wanted, name) == 0 || (own && strcmp(wanted, own + 2) == 0)))
            return true;
    }
    return false;
}

static bool has_function(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i,
                       tool) if (spry_chat_body_is(json_object_get(tool, "function"), "name", name)) return true;
    return false;
}

/* Adds the tools of one entry. */
static void expand_entry(spry_exchange *x, spry_fields *fields, json_t *body, json_t *tools, const json_t *entry)
{
    const char *label = spry_chat_body_string(entry, "server_label");
    const json_t *approval = json_object_get(entry, "require_approval"),
                 *chosen = json_object_get(entry, "allowed_tools");
    bool never = spry_chat_body_is(entry, "require_approval", "never");
    json_t *found = spry_mcp_tools(x->server->mcp, label), *tool;
    size_t i;
    if (json_object_get(entry, "server_url"))
        spry_fields_refuse(fields, "tools",
                           "tools: server_url is not supported: this server uses the MCP servers of its "
                           "--mcp FILE, which server_label names");
    else if (!found)
        spry_fields_refuse(fields, "tools",
                           "tools: there is no MCP server \"%.60s\"; GET /v1/tools lists those of --mcp", label);
    else if (json_array_size(found) == 0)
        spry_fields_refuse(fields, "tools", "tools: the MCP server \"%.60s\" does not run, or has no tools", label);
    else if (approval && !never && !json_is_null(approval) && !spry_chat_body_is(entry, "require_approval", "always"))
        spry_fields_refuse(fields, "tools", "tools: require_approval must be \"always\" or \"never\"");
    if (json_is_object(chosen))
        chosen = json_object_get(chosen, "tool_names");
    json_array_foreach(found, i, tool)
    {
        const char *name = spry_chat_body_string(json_object_get(tool, "function"), "name");
        if (json_is_array(chosen) && !is_listed(chosen, name))
            continue;
        if (has_function(tools, name))
            spry_fields_refuse(fields, "tools", "tools: two have the name \"%.64s\"", name);
        json_array_append(tools, tool);
        if (never)
            json_object_set_new(json_object_get(body, names_key), name,
                                json_pack("{s:s, s:s}", "server_label", label, "name", name + strlen(label) + 2));
    }
    json_decref(found);
}

void spry_rounds_expand(spry_exchange *x, spry_fields *fields, json_t *body)
{
    const json_t *given = json_object_get(body, "tools"), *tool;
    json_t *tools = json_array();
    size_t i;
    json_object_set_new(body, names_key, json_object());
    json_array_foreach(given, i, tool) if (!spry_chat_body_is(tool, "type", "mcp"))
        json_array_append(tools, (json_t *)(uintptr_t)tool);
    json_array_foreach(given, i, tool) if (spry_chat_body_is(tool, "type", "mcp"))
        expand_entry(x, fields, body, tools, tool);
    if (json_is_array(given))
        json_object_set(body, "tools", tools);
    json_decref(tools);
}

/* ---- one round --------------------------------------------------------------------------------------------------- */

spry_status spry_rounds_begin(spry_completion *c, spry_error *error)
{
    if (!json_object_size(json_object_get(c->root, names_key)) || !c->interface->next_prompt)
        return SPRY_OK;
    if (c->n_choices > 1)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "a request with tools that the server calls has one answer; leave out n, or set "
                         "require_approval to always");
    c->rounds.made = json_array();
    c->rounds.calls = json_array();
    c->rounds.active = c->rounds.made && c->rounds.calls;
    spry_buffer_init(&c->rounds.text, TEXT_BYTES);
    spry_buffer_init(&c->rounds.thought, TEXT_BYTES);
    spry_buffer_init(&c->rounds.arguments, TEXT_BYTES);
    atomic_fetch_add(&c->jobs.n_open, c->rounds.active); /* the share of energy goes on between jobs */
    return c->rounds.active ? SPRY_OK : spry_fail_memory(error, "calls of tools", 0);
}

static bool is_own(const spry_completion *c, const spry_chat_event *event)
{
    return json_object_getn(json_object_get(c->root, names_key), event->name, event->name_size) != NULL;
}

bool spry_rounds_take(spry_choice *choice, const spry_chat_event *event)
{
    spry_completion *c = choice->owner;
    if (!c->rounds.active)
        return false;
    if (event->kind == SPRY_CHAT_CALL_BEGIN)
        c->rounds.in_call = is_own(c, event);
    if (event->kind == SPRY_CHAT_CONTENT)
        spry_buffer_append(&c->rounds.text, event->text, event->text_size);
    if (event->kind == SPRY_CHAT_REASONING)
        spry_buffer_append(&c->rounds.thought, event->text, event->text_size);
    if (!c->rounds.in_call || event->kind < SPRY_CHAT_CALL_BEGIN)
        return false;
    json_t *call = json_array_get(c->rounds.calls, json_array_size(c->rounds.calls) - 1);
    switch (event->kind) {
    case SPRY_CHAT_CALL_BEGIN:
        spry_buffer_clear(&c->rounds.arguments);
        json_array_append_new(c->rounds.calls,
                              json_pack("{s:s, s:o}", "id", event->id, "name", spry_view_json(spry_event_name(event))));
        break;
    case SPRY_CHAT_ARGUMENTS: spry_buffer_append(&c->rounds.arguments, event->text, event->text_size); break;
    case SPRY_CHAT_CALL_END: json_object_set_new(call, "arguments", spry_buffer_json(&c->rounds.arguments)); break;
    default: json_array_remove(c->rounds.calls, json_array_size(c->rounds.calls) - 1); break; /* the call was cut off */
    }
    return true;
}

/* Makes a call and adds {"output"} or {"error"} to it. */
static void make_call(spry_completion *c, json_t *call)
{
    spry_buffer text;
    spry_error error;
    bool failed = false;
    json_t *arguments = spry_json_value(spry_json_view(json_object_get(call, "arguments")));
    spry_buffer_init(&text, RESULT_BYTES);
    spry_status status = SPRY_ERR_INPUT;
    if (c->rounds.count >= ROUNDS_MAX)
        spry_fail(&error, status, "the answer has had %d rounds of calls, and may make no more", ROUNDS_MAX);
    else if (!json_is_object(arguments))
        spry_fail(&error, status, "the arguments are not a JSON object");
    else
        status = spry_mcp_call(&text, &failed, c->exchange->server->mcp, spry_chat_body_string(call, "name"), arguments,
                               &error);
    json_object_set_new(call, status || failed ? "error" : "output",
                        status ? json_string(error.message) : spry_buffer_json(&text));
    spry_buffer_deinit(&text);
    json_decref(arguments);
}

/* Adds what the model wrote in this round, and the results of its calls, to the messages. */
static void add_messages(spry_completion *c)
{
    json_t *messages = json_object_get(c->root, "messages"), *calls = json_array(), *call;
    size_t i;
    json_array_foreach(c->rounds.calls, i, call)
        json_array_append_new(calls, spry_chat_body_call(json_object_get(call, "id"), json_object_get(call, "name"),
                                                         json_incref(json_object_get(call, "arguments"))));
    json_t *message = json_pack("{s:s, s:o, s:o}", "role", "assistant", "content", spry_buffer_json(&c->rounds.text),
                                "tool_calls", calls);
    if (c->rounds.thought.size)
        json_object_set_new(message, "reasoning_content", spry_buffer_json(&c->rounds.thought));
    json_array_append_new(messages, message);
    json_array_foreach(c->rounds.calls, i, call)
    {
        json_t *output = json_object_get(call, "output");
        json_array_append_new(messages,
                              json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", json_object_get(call, "id"),
                                        "content", output ? output : json_object_get(call, "error")));
    }
}

/* The prompt of the next round; after the first, the model decides itself whether it calls a tool. */
static spry_status next_prompt(spry_completion *c, spry_error *error)
{
    spry_fields fields = {.object = c->root, .within = "", .ignored = &c->exchange->ignored};
    json_object_set_new(c->root, "tool_choice", json_string("auto"));
    if (c->options.request.constraint == SPRY_TOOL_CALLS)
        c->options.request.constraint = SPRY_ANY_TEXT;
    spry_prompt_reset(c);
    spry_status status = c->interface->next_prompt(c, &fields, error);
    return status == SPRY_OK ? spry_prompt_check(c, error) : status;
}

static void report_calls(spry_completion *c)
{
    json_t *call;
    size_t i;
    json_array_foreach(c->rounds.calls, i, call)
    {
        make_call(c, call);
        json_array_append(c->rounds.made, call);
        c->interface->called(c, &c->choices[0], call);
    }
}

static void forget_round(spry_completion *c)
{
    json_array_clear(c->rounds.calls);
    spry_buffer_clear(&c->rounds.text);
    spry_buffer_clear(&c->rounds.thought);
    c->rounds.in_call = false;
}

static spry_status begin_round(spry_completion *c, spry_error *error)
{
    add_messages(c);
    c->rounds.count++;
    forget_round(c);
    spry_completion_add_round(c);
    spry_status status = next_prompt(c, error);
    return status == SPRY_OK ? spry_completion_submit_round(c, error) : status;
}

/* Whether a stream need not go on: base/interrupt.h. */
static bool is_over(void *user)
{
    spry_completion *c = user;
    spry_error ignored;
    if (atomic_load(&c->exchange->server->cutting))
        return true;
    bool left = !c->reply.kept && spry_http_check_reader(c->exchange, &ignored) != SPRY_OK;
    c->jobs.disconnected = c->jobs.disconnected || (left && !c->exchange->late);
    return left;
}

bool spry_rounds_next(spry_completion *c)
{
    spry_choice *choice = &c->choices[0];
    spry_error error;
    bool whole = c->rounds.active && c->jobs.error.status == SPRY_OK && choice->job.status == SPRY_OK &&
                 !choice->progress.overflow && choice->job.result.finish != SPRY_FINISH_CANCELLED;
    if (!whole)
        return false;
    spry_choice_end_text(choice);
    if (!json_array_size(c->rounds.calls))
        return false;
    bool watched = c->options.stream; /* the handler of a whole reply is watched already */
    if (watched)
        spry_interrupt_begin(is_over, c);
    report_calls(c);
    /* The client may have calls to make, too. */
    bool more = !choice->n_calls && c->rounds.count < ROUNDS_MAX;
    spry_status status = more ? begin_round(c, &error) : SPRY_OK;
    if (watched)
        spry_interrupt_end();
    if (status != SPRY_OK)
        c->jobs.error = error;
    return more && status == SPRY_OK;
}

json_t *spry_rounds_call_json(const spry_completion *c, const json_t *call)
{
    const char *name = spry_chat_body_string(call, "name");
    json_t *json = json_pack("{s:O, s:s, s:O}", "id", json_object_get(call, "id"), "type", "mcp_call", "arguments",
                             json_object_get(call, "arguments")),
           *output = json_object_get(call, "output"), *error = json_object_get(call, "error");
    json_object_update(json, json_object_get(json_object_get(c->root, names_key), name));
    json_object_set_new(json, "output", output ? json_incref(output) : json_null());
    json_object_set_new(json, "error", error ? json_incref(error) : json_null());
    return json;
}

void spry_rounds_deinit(spry_completion *c)
{
    json_decref(c->rounds.made);
    json_decref(c->rounds.calls);
    spry_buffer_deinit(&c->rounds.text);
    spry_buffer_deinit(&c->rounds.thought);
    spry_buffer_deinit(&c->rounds.arguments);
}
