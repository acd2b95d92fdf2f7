/* Bodies of Anthropic's Messages, rewritten as bodies of chat completions: results of tools become messages of their
 * own, calls and thoughts become members of the assistant's message. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "server/api/chat_body.h"
#include "server/request/completion.h"

enum { PLACE_BYTES = 64, BYTES_PER_TOKEN = 4 };

typedef struct reader {
    spry_fields *fields;
    const json_t *tools;        /* tools of the body; NULL: none */
    json_t *deferred, *defined; /* tools by name: not in the list; of these, defined by messages */
} reader;

/* ---- context_management ------------------------------------------------------------------------------------------ */

/* Anthropic's edits remove old parts of the conversation. Their limits in tokens are compared with an estimate, because
 * the model is not loaded yet. */

static size_t estimated_tokens(const json_t *json)
{
    return json ? json_dumpb(json, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) / BYTES_PER_TOKEN : 0;
}

/* {"type": ..., "value": N} as N, or `fallback`. */
static size_t limit_of(const json_t *edit, const char *key, size_t fallback)
{
    const json_t *value = json_object_get(json_object_get(edit, key), "value");
    return json_is_integer(value) && json_integer_value(value) >= 0 ? (size_t)json_integer_value(value) : fallback;
}

static json_t *content_of(const json_t *messages, size_t index)
{
    return json_object_get(json_array_get(messages, index), "content");
}

static bool is_thought(const json_t *block)
{
    return spry_chat_body_is(block, "type", "thinking") || spry_chat_body_is(block, "type", "redacted_thinking");
}

static size_t remove_thoughts(json_t *content, size_t *tokens)
{
    size_t removed = 0;
    for (size_t i = json_array_size(content); i-- > 0;) {
        const json_t *block = json_array_get(content, i);
        if (!is_thought(block))
            continue;
        *tokens += estimated_tokens(block);
        removed++;
        json_array_remove(content, i);
    }
    return removed;
}

static void clear_thinking(json_t *applied, const json_t *edit, json_t *messages)
{
    const json_t *keep = json_object_get(edit, "keep");
    size_t kept = 0, turns = 0, tokens = 0, limit = limit_of(edit, "keep", 1);
    if (spry_chat_body_is(edit, "keep", "all") || spry_chat_body_is(keep, "type", "all"))
        limit = SIZE_MAX;
    for (size_t i = json_array_size(messages); i-- > 0;) {
        json_t *content = content_of(messages, i), *block;
        size_t k;
        bool thinks = false;
        json_array_foreach(content, k, block) thinks = thinks || is_thought(block);
        if (thinks && kept++ >= limit)
            turns += remove_thoughts(content, &tokens) > 0;
    }
    if (turns)
        json_array_append_new(applied,
                              json_pack("{s:s, s:I, s:I}", "type", "clear_thinking_20251015", "cleared_thinking_turns",
                                        (json_int_t)turns, "cleared_input_tokens", (json_int_t)tokens));
}

static bool has_string(const json_t *list, const char *text)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), text) == 0)
            return true;
    }
    return false;
}

/* The calls whose results may be cleared, oldest first: a list of {"id", "block"}. */
static json_t *clearable_calls(const json_t *edit, const json_t *messages)
{
    json_t *calls = json_array(), *message, *block;
    size_t i, k;
    json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, block)
    {
        if (spry_chat_body_is(block, "type", "tool_use") &&
            !has_string(json_object_get(edit, "exclude_tools"), spry_chat_body_string(block, "name")))
            json_array_append(calls, block);
    }
    return calls;
}

static void clear_tool_uses(json_t *applied, const json_t *edit, json_t *messages)
{
    static const char cleared[] = "[old tool result cleared]";
    const json_t *trigger = json_object_get(edit, "trigger"), *inputs = json_object_get(edit, "clear_tool_inputs");
    json_t *calls = clearable_calls(edit, messages), *ids = json_object(), *message, *block, *call;
    size_t i, k, n = json_array_size(calls), keep = limit_of(edit, "keep", 3), tokens = 0, count = 0;
    bool by_calls = spry_chat_body_is(trigger, "type", "tool_uses");
    bool due =
        by_calls ? n > limit_of(edit, "trigger", 0) : estimated_tokens(messages) > limit_of(edit, "trigger", 100000);
    for (i = 0; due && i + keep < n; i++)
        json_object_set(ids, spry_chat_body_string(json_array_get(calls, i), "id"), json_array_get(calls, i));
    for (int pass = 0; pass < 2; pass++) /* first the sum, then the changes */
        json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, block)
        {
            const char *id = spry_chat_body_string(block, "tool_use_id");
            json_t *content = json_object_get(block, "content");
            if (!*id || !json_object_get(ids, id) || spry_chat_body_is(block, "content", cleared))
                continue;
            tokens += pass == 0 ? estimated_tokens(content) : 0;
            if (pass == 0 || tokens < limit_of(edit, "clear_at_least", 0))
                continue;
            count++;
            json_object_set_new(block, "content", json_string(cleared));
            call = json_object_get(ids, id);
            if (json_is_true(inputs) || has_string(inputs, spry_chat_body_string(call, "name")))
                json_object_set_new(call, "input", json_object());
        }
    if (count)
        json_array_append_new(applied,
                              json_pack("{s:s, s:I, s:I}", "type", "clear_tool_uses_20250919", "cleared_tool_uses",
                                        (json_int_t)count, "cleared_input_tokens", (json_int_t)tokens));
    json_decref(ids);
    json_decref(calls);
}

/* Applies the edits, and stores what they did in "applied_edits" for the reply. */
static void manage_context(json_t *body, spry_fields *fields, json_t *messages)
{
    const json_t *edits = json_object_get(spry_fields_object(fields, "context_management"), "edits"), *edit;
    json_t *applied = json_array();
    char name[96];
    size_t i;
    json_array_foreach(edits, i, edit)
    {
        const char *type = spry_chat_body_string(edit, "type");
        if (strcmp(type, "clear_thinking_20251015") == 0)
            clear_thinking(applied, edit, messages);
        else if (strcmp(type, "clear_tool_uses_20250919") == 0)
            clear_tool_uses(applied, edit, messages);
        else {
            snprintf(name, sizeof name, "context_management.%.60s", type);
            spry_fields_ignore(fields, "context_management", name, "this edit is not known");
        }
    }
    if (edits)
        json_object_set(body, "applied_edits", applied);
    json_decref(applied);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A block of an unknown type is left out by name; something that is no block is an error. */
static void ignore_block(reader *r, const char *place, const json_t *block)
{
    char name[96];
    const char *type = spry_chat_body_string(block, "type");
    if (!*type) {
        spry_fields_refuse(r->fields, "messages", "%s must be an object with a \"type\"", place);
        return;
    }
    snprintf(name, sizeof name, "messages.%.60s", type);
    spry_fields_ignore(r->fields, "messages", name, "this type of block is not known, or has no place here");
}

static void add_parts(json_t *parts, reader *r, const char *place, const json_t *content);

static void add_picture(json_t *parts, reader *r, const char *place, const json_t *source)
{
    const json_t *data = json_object_get(source, "data"), *url = json_object_get(source, "url");
    const char *type = spry_chat_body_string(source, "media_type");
    if (spry_chat_body_is(source, "type", "base64") && json_is_string(data))
        spry_chat_body_add_image_data(parts, type, json_string_value(data));
    else if (spry_chat_body_is(source, "type", "url") && json_is_string(url))
        spry_chat_body_add_image(parts, json_string_value(url));
    else if (json_is_object(source))
        spry_chat_body_add_notice(parts, r->fields, "messages", "image");
    else
        spry_fields_refuse(r->fields, "messages", "%s has no source", place);
}

static void add_document(json_t *parts, reader *r, const char *place, const json_t *block)
{
    const json_t *source = json_object_get(block, "source"), *data = json_object_get(source, "data");
    const char *title = spry_chat_body_string(block, "title"), *context = spry_chat_body_string(block, "context");
    if (*title)
        spry_chat_body_add_sentence(parts, "Document: %s\n", title);
    if (*context)
        spry_chat_body_add_sentence(parts, "%s\n", context);
    if (spry_chat_body_is(source, "type", "text") && json_is_string(data))
        spry_chat_body_add_text(parts, data);
    else if (spry_chat_body_is(source, "type", "content"))
        add_parts(parts, r, place, json_object_get(source, "content"));
    else
        spry_chat_body_add_notice(parts, r->fields, "messages", "document");
}

static void add_search_result(json_t *parts, reader *r, const char *place, const json_t *block)
{
    spry_chat_body_add_sentence(parts, "%s\n%s\n", spry_chat_body_string(block, "title"),
                                spry_chat_body_string(block, "source"));
    add_parts(parts, r, place, json_object_get(block, "content"));
    spry_chat_body_add_sentence(parts, "\n");
}

/* The definition of a tool that the list does not show. */
static void add_definition(json_t *parts, reader *r, const char *name)
{
    json_t *tool = json_object_get(r->deferred, name);
    if (!tool || json_object_get(r->defined, name)) {
        spry_chat_body_add_sentence(parts, "The tool %.200s can be called.\n", name);
        return;
    }
    json_t *whole = spry_chat_body_tool(json_object_get(tool, "name"), json_object_get(tool, "description"),
                                        json_object_get(tool, "input_schema"));
    spry_chat_body_define(parts, whole);
    json_object_set(r->defined, name, tool);
    json_decref(whole);
}

/* The texts inside the result of a tool that another server ran: the model reads what it read before. */
static void add_texts(json_t *parts, const json_t *value)
{
    static const char *const names[] = {"title", "url",        "text",    "stdout", "stderr",
                                        "data",  "error_code", "content", "source"};
    const json_t *item;
    size_t i;
    if (json_is_string(value) && json_string_length(value)) {
        spry_chat_body_add_text(parts, value);
        spry_chat_body_add_sentence(parts, "\n");
    }
    json_array_foreach(value, i, item) add_texts(parts, item);
    for (i = 0; json_is_object(value) && i < SPRY_COUNT(names); i++)
        add_texts(parts, json_object_get(value, names[i]));
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), n = strlen(end);
    return size >= n && strcmp(text + size - n, end) == 0;
}

/* Calls of tools that another server ran, and their results, as text; false: the block is neither. */
static bool add_hosted(json_t *parts, const json_t *block)
{
    const char *type = spry_chat_body_string(block, "type");
    if (strcmp(type, "server_tool_use") == 0 || strcmp(type, "mcp_tool_use") == 0) {
        char *input = spry_json_text(json_object_get(block, "input"), JSON_COMPACT);
        spry_chat_body_add_sentence(parts, "\n[%.100s %.3000s]\n", spry_chat_body_string(block, "name"),
                                    input ? input : "");
        free(input);
        return true;
    }
    if (strcmp(type, "tool_result") == 0 || !ends_with(type, "_tool_result"))
        return false;
    add_texts(parts, json_object_get(block, "content"));
    return true;
}

static void add_part(json_t *parts, reader *r, const char *place, const json_t *block)
{
    const char *type = spry_chat_body_string(block, "type");
    const json_t *text = json_is_string(block) ? block : json_object_get(block, "text");
    if ((json_is_string(block) || !*type || strcmp(type, "text") == 0) && json_is_string(text))
        spry_chat_body_add_text(parts, text);
    else if (strcmp(type, "text") == 0 && json_is_null(text))
        return; /* says nothing */
    else if (add_hosted(parts, block))
        return;
    else if (strcmp(type, "text") == 0)
        spry_fields_refuse(r->fields, "messages", "%s has no text", place);
    else if (strcmp(type, "image") == 0)
        add_picture(parts, r, place, json_object_get(block, "source"));
    else if (strcmp(type, "document") == 0)
        add_document(parts, r, place, block);
    else if (strcmp(type, "search_result") == 0)
        add_search_result(parts, r, place, block);
    else if (strcmp(type, "tool_reference") == 0)
        add_definition(parts, r, spry_chat_body_string(block, "tool_name"));
    else if (strcmp(type, "tool_addition") == 0)
        add_definition(parts, r, spry_chat_body_string(json_object_get(block, "tool"), "name"));
    else if (strcmp(type, "tool_removal") == 0)
        spry_chat_body_add_sentence(parts, "The tool %.200s can no longer be called.\n",
                                    spry_chat_body_string(json_object_get(block, "tool"), "name"));
    else
        ignore_block(r, place, block);
}

/* A text, or a list of blocks. */
static void add_parts(json_t *parts, reader *r, const char *place, const json_t *content)
{
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    if (json_is_string(content))
        spry_chat_body_add_text(parts, content);
    else if (json_is_object(content))
        add_part(parts, r, place, content);
    else if (content && !json_is_null(content) && !json_is_array(content))
        spry_fields_refuse(r->fields, "messages", "%s must be a string or a list of blocks", place);
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%.40s[%zu]", place, i);
        add_part(parts, r, inner, block);
    }
}

static void add_result(json_t *messages, reader *r, const char *place, const json_t *block)
{
    const json_t *id = json_object_get(block, "tool_use_id");
    json_t *parts = json_array();
    if (json_is_true(json_object_get(block, "is_error")))
        spry_chat_body_add_sentence(parts, "Error: ");
    add_parts(parts, r, place, json_object_get(block, "content"));
    if (json_is_string(id))
        json_array_append_new(messages,
                              json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id, "content", parts));
    else
        spry_fields_refuse(r->fields, "messages", "%s has no tool_use_id", place);
    json_decref(parts);
}

static void add_call(json_t *calls, reader *r, const char *place, const json_t *block)
{
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    json_t *object = json_is_string(input)
                         ? spry_json_value((spry_view){json_string_value(input), json_string_length(input)})
                     : !input || json_is_null(input) ? json_object()
                                                     : json_incref((json_t *)(uintptr_t)input);
    char *text = json_is_object(object) ? spry_json_text(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!json_is_string(name) || !text) {
        spry_fields_refuse(r->fields, "messages", "%s must have a name and an input, which is an object", place);
        free(text);
        return;
    }
    json_array_append_new(calls,
                          spry_chat_body_call(json_object_get(block, "id"), name, json_string(text ? text : "{}")));
    free(text);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void add_user(json_t *messages, reader *r, const char *role, const char *place, const json_t *content)
{
    json_t *parts = json_array();
    const json_t *block;
    char inner[PLACE_BYTES];
    size_t i;
    json_array_foreach(content, i, block)
    {
        snprintf(inner, sizeof inner, "%.40s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "tool_result"))
            add_result(messages, r, inner, block);
        else
            add_part(parts, r, inner, block);
    }
    if (json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", parts));
    json_decref(parts);
}

static void append(spry_buffer *out, const json_t *text)
{
    spry_buffer_append(out, json_string_value(text), json_string_length(text));
}

/* What else the assistant has said: strings, and the tools of another server. */
static void add_other(spry_buffer *said, reader *r, const char *place, const json_t *block)
{
    const char *type = spry_chat_body_string(block, "type");
    json_t *parts = json_array();
    if (json_is_string(block)) {
        append(said, block);
    } else if (add_hosted(parts, block)) {
        json_t *text = spry_chat_body_joined(parts);
        append(said, text);
        json_decref(text);
    } else if (strcmp(type, "redacted_thinking") != 0 && strcmp(type, "text") != 0 && strcmp(type, "thinking") != 0) {
        ignore_block(r, place, block);
    }
    json_decref(parts);
}

static void add_assistant(json_t *messages, reader *r, const char *role, const char *place, const json_t *content)
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
        snprintf(inner, sizeof inner, "%.40s[%zu]", place, i);
        if (spry_chat_body_is(block, "type", "text") && json_is_string(text))
            append(&said, text);
        else if (spry_chat_body_is(block, "type", "compaction"))
            append(&said, json_object_get(block, "content"));
        else if (spry_chat_body_is(block, "type", "thinking") && json_is_string(thought))
            append(&thoughts, thought);
        else if (spry_chat_body_is(block, "type", "tool_use"))
            add_call(calls, r, inner, block);
        else
            add_other(&said, r, inner, block);
    }
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", spry_buffer_json(&said));
    if (thoughts.size)
        json_object_set_new(message, "reasoning_content", spry_buffer_json(&thoughts));
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    spry_buffer_deinit(&said);
    spry_buffer_deinit(&thoughts);
    json_array_append_new(messages, message);
}

static void add_message(json_t *messages, reader *r, const json_t *message, size_t number)
{
    const json_t *content = json_object_get(message, "content");
    const char *given = spry_chat_body_string(message, "role");
    const char *role = strcmp(given, "developer") == 0 ? "system" : given;
    bool assistant = strcmp(role, "assistant") == 0;
    char place[PLACE_BYTES];
    snprintf(place, sizeof place, "messages[%zu].content", number);
    if (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0)
        spry_fields_refuse(r->fields, "messages", "messages[%zu].role must be \"user\", \"assistant\" or \"system\"",
                           number);
    else if (json_is_string(content))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
    else if (!content || json_is_null(content))
        return; /* says nothing */
    else if (!json_is_array(content))
        spry_fields_refuse(r->fields, "messages", "%s must be a string or a list of blocks", place);
    else
        (assistant ? add_assistant : add_user)(messages, r, role, place, content);
}

/* A line that Claude Code puts before its instructions, and changes with every version: the prompt does not need it. */
static bool is_billing(const json_t *block)
{
    return strncmp(spry_chat_body_string(block, "text"), "x-anthropic-billing-header:", 27) == 0;
}

static void add_system(json_t *messages, reader *r, json_t *system)
{
    json_t *parts = json_array();
    for (size_t i = json_array_size(system); i-- > 0;)
        if (is_billing(json_array_get(system, i)))
            json_array_remove(system, i);
    add_parts(parts, r, "system", system);
    if (json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", parts));
    json_decref(parts);
}

/* The answer continues a last message of the assistant. */
static void add_messages(json_t *body, reader *r)
{
    json_t *messages = json_array(), *list = json_object_get(r->fields->object, "messages"), *message;
    size_t i;
    if (spry_fields_get(r->fields, "system"))
        add_system(messages, r, json_object_get(r->fields->object, "system"));
    if (!json_array_size(spry_fields_array(r->fields, "messages")))
        spry_fields_refuse(r->fields, "messages", "messages must be a list with at least one message");
    manage_context(body, r->fields, list);
    json_array_foreach(list, i, message) add_message(messages, r, message, i);
    if (!json_array_size(messages))
        spry_fields_refuse(r->fields, "messages", "messages say nothing");
    message = json_array_get(messages, json_array_size(messages) - 1);
    if (spry_chat_body_is(message, "role", "assistant") && !json_object_get(message, "tool_calls"))
        json_object_set_new(body, "continue_final_message", json_true());
    json_object_set_new(body, "messages", messages);
}

/* ---- tools and settings ------------------------------------------------------------------------------------------ */

/* Tools that the client runs and the interface defines: requests have only their types. */
static const struct {
    const char *type, *about, *schema; /* `type`: the beginning of it; `schema`: properties and required ones */
} known_tools[] = {
    {"bash_", "Runs a command in a shell that keeps its state.",
     "{\"command\": {\"type\": \"string\"}, \"restart\": {\"type\": \"boolean\"}}"},
    {"text_editor_", "Shows, creates and edits text files.",
     "{\"command\": {\"type\": \"string\", \"enum\": [\"view\", \"create\", \"str_replace\", \"insert\"]}, \"path\": "
     "{\"type\": \"string\"}, \"file_text\": {\"type\": \"string\"}, \"old_str\": {\"type\": \"string\"}, "
     "\"new_str\": {\"type\": \"string\"}, \"insert_line\": {\"type\": \"integer\"}, \"insert_text\": {\"type\": "
     "\"string\"}, \"view_range\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}"},
    {"memory_", "Keeps notes in files under /memories.",
     "{\"command\": {\"type\": \"string\", \"enum\": [\"view\", \"create\", \"str_replace\", \"insert\", \"delete\", "
     "\"rename\"]}, \"path\": {\"type\": \"string\"}, \"view_range\": {\"type\": \"array\", \"items\": {\"type\": "
     "\"integer\"}}, \"file_text\": {\"type\": \"string\"}, \"old_str\": {\"type\": \"string\"}, \"new_str\": "
     "{\"type\": "
     "\"string\"}, \"insert_line\": {\"type\": \"integer\"}, \"insert_text\": {\"type\": \"string\"}, \"old_path\": "
     "{\"type\": \"string\"}, \"new_path\": {\"type\": \"string\"}}"},
    {"computer_", "Uses the screen, the keyboard and the mouse of a computer.",
     "{\"action\": {\"type\": \"string\", \"enum\": [\"screenshot\", \"key\", \"type\", \"cursor_position\", "
     "\"mouse_move\", \"left_click\", \"right_click\", \"middle_click\", \"double_click\", \"triple_click\", "
     "\"left_click_drag\", \"left_mouse_down\", \"left_mouse_up\", \"scroll\", \"hold_key\", \"wait\", \"zoom\"]}, "
     "\"coordinate\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}, \"start_coordinate\": {\"type\": "
     "\"array\", \"items\": {\"type\": \"integer\"}}, \"text\": {\"type\": \"string\"}, \"duration\": {\"type\": "
     "\"number\"}, \"scroll_direction\": {\"type\": \"string\", \"enum\": [\"up\", \"down\", \"left\", \"right\"]}, "
     "\"scroll_amount\": {\"type\": \"integer\"}, \"region\": {\"type\": \"array\", \"items\": {\"type\": "
     "\"integer\"}}}"},
};

/* A new tool; NULL: the type is not one of these. */
static json_t *known_tool(const json_t *tool, const char *type)
{
    for (size_t i = 0; i < SPRY_COUNT(known_tools); i++) {
        if (strncmp(type, known_tools[i].type, strlen(known_tools[i].type)) != 0)
            continue;
        json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties",
                                   spry_json_value(spry_view_of(known_tools[i].schema)));
        json_t *about = json_string(known_tools[i].about);
        void *iter = json_object_iter(json_object_get(schema, "properties"));
        if (strncmp(type, "bash_", 5) != 0) /* a restart has no command */
            json_object_set_new(schema, "required", json_pack("[s]", json_object_iter_key(iter)));
        json_t *made = spry_chat_body_tool(json_object_get(tool, "name"), about, schema);
        json_decref(about);
        json_decref(schema);
        return made;
    }
    return NULL;
}

/* Whether the interface's own search would find deferred tools; this server has none, so they are listed. */
static bool has_hosted_search(const json_t *list)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(list, i, tool)
    {
        if (strncmp(spry_chat_body_string(tool, "type"), "tool_search_tool_", 17) == 0)
            return true;
    }
    return false;
}

static void find_deferred(reader *r)
{
    json_t *tool;
    size_t i;
    if (!has_hosted_search(r->tools))
        json_array_foreach(r->tools, i, tool)
        {
            if (json_is_true(json_object_get(tool, "defer_loading")) && *spry_chat_body_string(tool, "name"))
                json_object_set(r->deferred, spry_chat_body_string(tool, "name"), tool);
        }
}

/* A new tool; NULL: it is left out, or was refused. */
static json_t *read_tool(reader *r, const json_t *tool, size_t number)
{
    const char *type = spry_chat_body_string(tool, "type");
    const json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool, "input_schema");
    bool custom = !*type || strcmp(type, "custom") == 0;
    char ignored[96];
    json_t *made = custom || !json_is_string(name) ? NULL : known_tool(tool, type);
    if (made)
        return made;
    if (!custom) {
        snprintf(ignored, sizeof ignored, "tools.%.60s", type);
        spry_fields_ignore(r->fields, "tools", ignored, "the server runs no tools, and this one is not the client's");
        return NULL;
    }
    if (json_is_string(name) && (json_is_object(schema) || json_is_null(schema)))
        return spry_chat_body_tool(name, json_object_get(tool, "description"), schema);
    spry_fields_refuse(r->fields, "tools", "tools[%zu] must have a name and an input_schema, which is an object",
                       number);
    return NULL;
}

/* Deferred tools are not in the list; those that messages define can be called. */
static void add_tools(json_t *body, reader *r)
{
    const json_t *tool;
    json_t *tools = json_array();
    size_t i;
    json_array_foreach(r->tools, i, tool)
    {
        bool deferred = json_object_get(r->deferred, spry_chat_body_string(tool, "name")) == tool;
        if (deferred && !json_object_get(r->defined, spry_chat_body_string(tool, "name")))
            continue;
        json_t *made = read_tool(r, tool, i);
        if (made && deferred)
            spry_chat_body_defer(made);
        if (made)
            json_array_append_new(tools, made);
    }
    if (json_array_size(tools))
        json_object_set(body, "tools", tools);
    json_decref(tools);
}

/* Whether a tool that the choice forces was left out, because another server would run it. */
static bool is_left_out(const json_t *body, const reader *r, const json_t *choice, const json_t *name)
{
    const json_t *tools = json_object_get(body, "tools"), *tool;
    bool given = false;
    size_t i;
    if (spry_chat_body_is(choice, "type", "any"))
        return json_array_size(r->tools) && !json_array_size(tools);
    json_array_foreach(r->tools, i, tool) given = given || (name && json_equal(json_object_get(tool, "name"), name));
    json_array_foreach(tools, i, tool)
    {
        if (name && json_equal(json_object_get(json_object_get(tool, "function"), "name"), name))
            return false;
    }
    return given;
}

static void add_choice(json_t *body, const reader *r)
{
    spry_fields *fields = r->fields;
    const json_t *choice = spry_fields_object(fields, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice)
        return;
    if (is_left_out(body, r, choice, name)) {
        spry_fields_ignore(fields, "tool_choice", "tool_choice",
                           "the tool is not the client's, and the server runs none");
        return;
    }
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
    const char *type = spry_chat_body_string(thinking, "type");
    bool on = thinking && strcmp(type, "disabled") != 0;
    if (thinking && !*type)
        spry_fields_refuse(fields, "thinking", "thinking.type must be \"enabled\", \"adaptive\" or \"disabled\"");
    else if (on && strcmp(type, "enabled") != 0 && strcmp(type, "adaptive") != 0)
        spry_fields_ignore(fields, "thinking", "thinking.type", "this type is not known; thoughts are on");
    spry_chat_body_variable(body, "enable_thinking", json_boolean(on));
    if (on && json_object_get(thinking, "budget_tokens"))
        json_object_set(body, "max_thinking_tokens", json_object_get(thinking, "budget_tokens"));
}

static void add_format(json_t *body, spry_fields *fields)
{
    const json_t *config = spry_fields_object(fields, "output_config"), *effort = json_object_get(config, "effort");
    const json_t *format = json_object_get(config, "format");
    if (!format)
        format = spry_fields_object(fields, "output_format");
    if (json_is_string(effort))
        spry_chat_body_variable(body, "reasoning_effort", json_incref((json_t *)(uintptr_t)effort));
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

json_t *spry_chat_body_anthropic(spry_fields *fields)
{
    json_t *body = json_object();
    reader r = {
        .fields = fields, .tools = spry_fields_tools(fields), .deferred = json_object(), .defined = json_object()};
    find_deferred(&r);
    spry_fields_copy(body, fields, &spry_fields_anthropic);
    add_messages(body, &r);
    add_tools(body, &r);
    add_choice(body, &r);
    add_thinking(body, fields);
    add_format(body, fields);
    json_decref(r.deferred);
    json_decref(r.defined);
    return body;
}
