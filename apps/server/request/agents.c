/* agents.json is a list of agents. Each has
 *
 *   name
 *   clients    beginnings of the user agent, or
 *   begins     beginnings of the first instruction, by which it is found
 *   parts      what changes: a text that begins with "from", at the beginning of a line, and goes on to the end of the
 *              line in which "to" ends, or to the beginning of the text "before" or, where that is not found, to the
 *              end; "line": no further than its line, and "to" ends it; "leave": what takes its place; "in": "user",
 *              the first message of the user, or "tools", the descriptions of tools; else the instructions
 *   later      instructions directly after the first message of the user are the same in all sessions, but for `parts`,
 *              and are moved to the beginning */
#include "server/request/agents.h"

#include <stdlib.h>

#include "base/json.h"
#include "server/api/chat_body.h"

extern const char spry_agents_json[]; /* cli/bundled.S */

json_t *spry_agents_open(void)
{
    return spry_json_value(spry_view_of(spry_agents_json));
}

/* ---- which agent ------------------------------------------------------------------------------------------------- */

static bool is_instruction(const json_t *message)
{
    return spry_chat_body_is(message, "role", "system") || spry_chat_body_is(message, "role", "developer");
}

/* The first text of a message, without blanks before it. */
static spry_view beginning(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    spry_view text =
        spry_json_view(json_is_array(content) ? json_object_get(json_array_get(content, 0), "text") : content);
    while (text.size && strchr(" \t\r\n", *text.data))
        text = (spry_view){text.data + 1, text.size - 1};
    return text;
}

static bool begins_with_any(spry_view text, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (spry_view_starts(text, spry_json_view(json_array_get(list, i))))
            return true;
    return false;
}

static const json_t *find_agent(const json_t *agents, const char *client, const json_t *messages)
{
    const json_t *first = json_array_get(messages, 0), *agent;
    spry_view text = is_instruction(first) ? beginning(first) : SPRY_VIEW("");
    size_t i;
    json_array_foreach(agents, i, agent)
    {
        if (begins_with_any(text, json_object_get(agent, "begins")) ||
            (client && begins_with_any(spry_view_of(client), json_object_get(agent, "clients"))))
            return agent;
    }
    return NULL;
}

/* ---- parts of texts ---------------------------------------------------------------------------------------------- */

/* The text after the first `what` at or after `at`, before `end`; 0: it is not there. */
static size_t after(spry_view text, size_t at, size_t end, spry_view what)
{
    const char *found = memmem(text.data + at, end - at, what.data, what.size);
    return found ? (size_t)(found - text.data) + what.size : 0;
}

static size_t next_line(spry_view text, size_t at)
{
    size_t next = after(text, at, text.size, SPRY_VIEW("\n"));
    return next ? next : text.size;
}

/* The first such part at or after `at`, the beginning of a line. */
static bool find_part(spry_view text, size_t at, const json_t *part, spry_text_range *found)
{
    spry_view from = spry_json_view(json_object_get(part, "from")), to = spry_json_view(json_object_get(part, "to"));
    spry_view before = spry_json_view(json_object_get(part, "before"));
    bool line = json_is_true(json_object_get(part, "line"));
    for (; at < text.size; at = next_line(text, at)) {
        if (!spry_view_starts((spry_view){text.data + at, text.size - at}, from))
            continue;
        size_t begin = at + from.size, limit = line ? next_line(text, at) : text.size, end = limit;
        if (to.size)
            end = after(text, begin, limit, to);
        else if (before.size && (end = after(text, begin, limit, before)))
            end -= before.size;
        else
            end = limit;
        if (to.size && end && !line)
            end = next_line(text, end - 1);
        *found = (spry_text_range){at, end};
        if (end || !line)
            return end != 0; /* marks that the rest of the text lacks are not searched again */
    }
    return false;
}

/* Moves all parts of one kind to `moved`, and writes what remains of the text. */
static void take_part(spry_buffer *left, spry_view text, spry_buffer *moved, const json_t *part)
{
    spry_view leave = spry_json_view(json_object_get(part, "leave"));
    spry_text_range found;
    size_t at = 0;
    for (; find_part(text, at, part, &found); at = found.end) {
        bool whole = !leave.size && text.data[found.end - 1] != '\n' && found.end < text.size &&
                     text.data[found.end] == '\n'; /* including the line's end */
        if (moved->size)
            spry_buffer_text(moved, "\n");
        spry_buffer_append(moved, text.data + found.begin, found.end - found.begin);
        while (moved->size && moved->data[moved->size - 1] == '\n')
            moved->size--;
        spry_buffer_append(left, text.data + at, found.begin - at);
        spry_buffer_append(left, leave.data, leave.size);
        found.end += whole;
    }
    spry_buffer_append(left, text.data + at, text.size - at);
}

/* Moves the parts of a text to `moved`; `where`: "in" of the parts, or "". Returns the text that remains, a new
 * reference; NULL: nothing was moved. */
static json_t *take_parts(const json_t *string, spry_buffer *moved, const json_t *parts, const char *where)
{
    const size_t before = moved->size;
    spry_buffer text, left;
    const json_t *part;
    size_t i;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_append(&text, json_string_value(string), json_string_length(string));
    json_array_foreach(parts, i, part)
    {
        if (strcmp(spry_chat_body_string(part, "in"), where) != 0)
            continue;
        spry_buffer_init(&left, SIZE_MAX / 2);
        take_part(&left, spry_buffer_view(&text), moved, part);
        spry_buffer_deinit(&text);
        text = left;
    }
    json_t *out = moved->size > before ? json_stringn(spry_buffer_view(&text).data, text.size) : NULL;
    spry_buffer_deinit(&text);
    return out;
}

/* As take_parts, for all texts of a message, which is replaced by a copy. */
static void take_from_message(json_t *messages, size_t index, spry_buffer *moved, const json_t *parts,
                              const char *where)
{
    json_t *message = json_deep_copy(json_array_get(messages, index)), *content = json_object_get(message, "content"),
           *left;
    if (json_is_string(content) && (left = take_parts(content, moved, parts, where)))
        json_object_set_new(message, "content", left);
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = json_array_get(content, i);
        if (!(left = take_parts(json_object_get(part, "text"), moved, parts, where)))
            continue;
        json_object_set_new(part, "text", left);
        if (!json_string_length(left) && json_array_size(content) > 1)
            json_array_remove(content, i--);
    }
    json_array_set_new(messages, index, message);
}

static void take_from_tools(json_t *tools, spry_buffer *moved, const json_t *parts)
{
    json_t *tool, *left;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        left = take_parts(json_object_get(json_object_get(tool, "function"), "description"), moved, parts, "tools");
        if (!left)
            continue;
        tool = json_deep_copy(tool);
        json_object_set_new(json_object_get(tool, "function"), "description", left);
        json_array_set_new(tools, i, tool);
    }
}

/* ---- the new order ----------------------------------------------------------------------------------------------- */

/* `first`: the first message after the instructions. */
static void arrange(spry_agent_prompt *prompt, const json_t *agent, size_t first)
{
    const json_t *parts = json_object_get(agent, "parts");
    json_t *messages = prompt->messages;
    spry_buffer moved;
    spry_buffer_init(&moved, SIZE_MAX / 2);
    while (json_is_true(json_object_get(agent, "later")) && is_instruction(json_array_get(messages, first + 1))) {
        json_t *later = json_incref(json_array_get(messages, first + 1));
        json_array_remove(messages, first + 1);
        json_array_insert_new(messages, first++, later);
    }
    for (size_t i = 0; i <= first; i++)
        take_from_message(messages, i, &moved, parts, i == first ? "user" : "");
    take_from_tools(prompt->tools, &moved, parts);
    if (moved.size)
        json_array_insert_new(messages, first + 1,
                              json_pack("{s:s, s:o}", "role", "system", "content",
                                        json_stringn(spry_buffer_view(&moved).data, moved.size)));
    spry_buffer_deinit(&moved);
}

void spry_agent_prompt_init(spry_agent_prompt *prompt, const json_t *agents, const char *client, const json_t *messages,
                            const json_t *tools)
{
    json_t *all = json_copy((json_t *)(uintptr_t)messages), *list = json_copy((json_t *)(uintptr_t)tools);
    const json_t *agent = find_agent(agents, client, messages);
    size_t first = 0;
    while (is_instruction(json_array_get(messages, first)))
        first++;
    *prompt = (spry_agent_prompt){.messages = all, .tools = list};
    prompt->agent = json_string_value(json_object_get(agent, "name"));
    if (agent && spry_chat_body_is(json_array_get(messages, first), "role", "user"))
        arrange(prompt, agent, first);
}

void spry_agent_prompt_deinit(spry_agent_prompt *prompt)
{
    json_decref(prompt->messages);
    json_decref(prompt->tools);
    *prompt = (spry_agent_prompt){0};
}
