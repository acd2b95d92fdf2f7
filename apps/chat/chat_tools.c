/* Calls of MCP tools in the chat. Each is shown, and made when the user allows it; its result goes to the model, which
 * answers again. The store keeps only the last answer. */
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "chat/chat_loop.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

enum { ROUNDS_MAX = 20, RESULT_BYTES = 16 << 20, SHOWN_BYTES = 200 };

static void log_line(void *user, const char *sentence)
{
    (void)user;
    spry_complain("%s", sentence);
}

static void describe(const json_t *server)
{
    const char *name = json_string_value(json_object_get(server, "name"));
    const char *error = json_string_value(json_object_get(server, "error"));
    if (!error)
        spry_chat_note("MCP server %s: %zu tools", name, json_array_size(json_object_get(server, "tools")));
}

spry_status spry_chat_tools_open(spry_chat_loop *c, spry_error *error)
{
    json_t *servers, *server, *tool;
    size_t i, k;
    c->tools.allowed = json_object();
    c->answer.more = json_array();
    if (!c->job.flags->mcp)
        return SPRY_OK;
    spry_status status = spry_mcp_open(&c->tools.mcp, c->job.flags->mcp, log_line, NULL, error);
    if (status != SPRY_OK)
        return status;
    c->answer.tools = json_array();
    servers = spry_mcp_servers(c->tools.mcp);
    json_array_foreach(servers, i, server)
    {
        describe(server);
        json_array_foreach(json_object_get(server, "tools"), k, tool)
            json_array_append_new(c->answer.tools, json_pack("{s:s, s:O}", "type", "function", "function", tool));
    }
    json_decref(servers);
    return SPRY_OK;
}

void spry_chat_tools_close(spry_chat_loop *c)
{
    spry_mcp_close(c->tools.mcp);
    json_decref(c->tools.allowed);
    json_decref(c->answer.more);
    json_decref(c->answer.tools);
    c->answer.more = c->answer.tools = NULL;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static bool may_call(spry_chat_loop *c, const char *name, const char *arguments)
{
    spry_buffer line;
    if (json_object_get(c->tools.allowed, name)) {
        spry_chat_note("%s %.*s", name, SHOWN_BYTES, arguments);
        return true;
    }
    spry_chat_note("The model wants to call %s %.*s\nMay it? y: yes, a: yes, always in this chat, anything else: no",
                   name, SHOWN_BYTES * 4, arguments);
    spry_buffer_init(&line, RESULT_BYTES);
    bool answered = spry_line_editor_ask(c->editor, &line) == SPRY_LINE_TEXT;
    spry_view word = spry_buffer_view(&line);
    bool always = answered && spry_view_is(word, "a"), once = answered && spry_view_is(word, "y");
    if (always)
        json_object_set_new(c->tools.allowed, name, json_true());
    spry_buffer_deinit(&line);
    return always || once;
}

static bool is_interrupted(void *user)
{
    (void)user;
    return spry_interrupt_seen();
}

/* The result of a call, for the model. */
static json_t *make_call(spry_chat_loop *c, const json_t *call)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    const spry_view text = spry_json_view(json_object_get(call, "arguments"));
    spry_buffer result;
    spry_error error;
    bool failed = false;
    json_t *arguments = spry_json_value(text);
    spry_buffer_init(&result, RESULT_BYTES);
    if (!json_is_object(arguments)) {
        spry_buffer_text(&result, "The arguments are not a JSON object.");
    } else if (!may_call(c, name, text.data)) {
        spry_buffer_text(&result, "The user did not allow this call.");
    } else {
        spry_interrupt_begin(is_interrupted, NULL);
        if (spry_mcp_call(&result, &failed, c->tools.mcp, name, arguments, &error) != SPRY_OK) {
            spry_buffer_clear(&result);
            spry_buffer_text(&result, error.message);
            failed = true;
        }
        spry_interrupt_end();
        spry_interrupt_clear();
        if (failed)
            spry_complain("%s: %.200s", name, spry_buffer_view(&result).data);
        else
            spry_chat_note("%s: %zu bytes", name, result.size);
    }
    json_t *json = json_stringn(spry_buffer_view(&result).data, result.size);
    spry_buffer_deinit(&result);
    json_decref(arguments);
    return json;
}

bool spry_chat_tools_call(spry_chat_loop *c, size_t round)
{
    const json_t *call;
    json_t *calls = json_array();
    size_t i, count = json_array_size(c->answer.calls);
    bool cancelled = c->answer.result.finish == SPRY_FINISH_CANCELLED;
    if (count && round == ROUNDS_MAX)
        spry_complain("the model has called tools in %d rounds, and may call no more", ROUNDS_MAX);
    if (!count || cancelled || round == ROUNDS_MAX) {
        json_decref(calls);
        return false;
    }
    json_array_foreach(c->answer.calls, i, call) json_array_append_new(
        calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "type", "function", "function",
                         "name", json_object_get(call, "name"), "arguments", json_object_get(call, "arguments")));
    json_array_append_new(c->answer.more, json_pack("{s:s, s:s, s:o}", "role", "assistant", "content",
                                                    spry_buffer_view(&c->answer.text).data, "tool_calls", calls));
    json_array_foreach(c->answer.calls, i, call)
        json_array_append_new(c->answer.more, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                                        json_object_get(call, "id"), "content", make_call(c, call)));
    return true;
}
