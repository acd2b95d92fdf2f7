/* Changes the roles of instructions. Messages are copied only if they change. */
#include "template/chat_roles.h"

#include <string.h>

static json_t *mutable(const json_t *json)
{
    return (json_t *)(uintptr_t)json; /* needed for reference counting: jansson's functions are not const */
}

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

static bool is_instruction(const json_t *message)
{
    return has_role(message, "system") || has_role(message, "developer");
}

/* The role in place of one that few templates know; NULL: the role is a common one, or there is none. */
static const char *common_role(const json_t *message)
{
    static const char *const common[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython"};
    static const char *const answers[] = {"ai", "model", "bot"};
    for (size_t i = 0; i < SPRY_COUNT(common); i++)
        if (has_role(message, common[i]))
            return NULL;
    if (!json_is_string(json_object_get(message, "role")))
        return NULL;
    for (size_t i = 0; i < SPRY_COUNT(answers); i++)
        if (has_role(message, answers[i]))
            return "assistant";
    return "user";
}

static json_t *text_part(const json_t *text)
{
    return json_pack("{s:s, s:O}", "type", "text", "text", text);
}

/* The contents of two messages with an empty line between them: a text if both are texts, otherwise a list of parts. */
static json_t *joined(const json_t *first, const json_t *second)
{
    if (json_is_string(first) && json_is_string(second))
        return json_sprintf("%s\n\n%s", json_string_value(first), json_string_value(second));
    json_t *parts = json_array(), *gap = json_string("\n\n");
    const json_t *const both[] = {first, second};
    for (size_t i = 0; i < 2; i++) {
        if (i)
            json_array_append_new(parts, text_part(gap));
        if (json_is_string(both[i]))
            json_array_append_new(parts, text_part(both[i]));
        else
            json_array_extend(parts, mutable(both[i]));
    }
    json_decref(gap);
    return parts;
}

/* True if a message can be joined with another one: it has only a role and a content. */
static bool is_plain(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return json_object_size(message) == 2 && (json_is_string(content) || json_is_array(content));
}

/* Appends a message with this role, or joins it with the last message if that has the same role and `join` allows
 * it. */
static bool add(json_t *out, const json_t *message, const char *role, bool join, bool *differs)
{
    json_t *last = json_array_get(out, json_array_size(out) - 1), *copy;
    bool same = has_role(message, role);
    if (join && last && has_role(last, role) && is_plain(last) && is_plain(message)) {
        *differs = true;
        copy = json_copy(last);
        json_object_set_new(copy, "content",
                            joined(json_object_get(last, "content"), json_object_get(message, "content")));
        return copy && json_array_set_new(out, json_array_size(out) - 1, copy) == 0;
    }
    if (same)
        return json_array_append(out, mutable(message)) == 0;
    *differs = true;
    copy = json_copy(mutable(message));
    return copy && json_object_set_new(copy, "role", json_string(role)) == 0 && json_array_append_new(out, copy) == 0;
}

spry_status spry_chat_roles_apply(json_t **out, bool *differs, const json_t *messages, spry_chat_roles roles,
                                  spry_view source, spry_error *error)
{
    bool knows = source.size && memmem(source.data, source.size, "developer", 9);
    bool leading = true, made = true, moved = false; /* moved: the last message contains text that was an instruction */
    *differs = false;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(messages) && made; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        bool instruction = is_instruction(message);
        leading = leading && instruction;
        bool to_user = instruction && (roles == SPRY_ROLES_ALL_AS_USER || (roles > SPRY_ROLES_MERGED && !leading));
        bool follows = moved && has_role(message, "user");
        if (!role)
            made = json_array_append(*out, mutable(message)) == 0;
        else if (to_user)
            made = add(*out, message, "user", true, differs);
        else if (instruction)
            made = add(*out, message, knows ? role : "system", leading, differs);
        else
            made = add(*out, message, roles > SPRY_ROLES_MERGED && common_role(message) ? common_role(message) : role,
                       follows, differs);
        moved = to_user || follows;
    }
    if (made && *out)
        return SPRY_OK;
    json_decref(*out);
    *out = NULL;
    return spry_fail_memory(error, "a conversation", json_array_size(messages));
}

/* The beginning of a message's first text, without whitespace at its ends. */
static spry_view beginning(const json_t *message)
{
    enum { COMPARED = 200 };
    const json_t *content = json_object_get(message, "content");
    const json_t *text = json_is_array(content) ? json_object_get(json_array_get(content, 0), "text") : content;
    spry_view view = {json_string_value(text), json_string_length(text)};
    while (view.size && strchr(" \t\r\n", *view.data))
        view = (spry_view){view.data + 1, view.size - 1};
    view.size = view.size < COMPARED ? view.size : COMPARED;
    while (view.size && strchr(" \t\r\n", view.data[view.size - 1]))
        view.size--;
    return view;
}

bool spry_chat_roles_rendered(const json_t *messages, spry_view text)
{
    size_t first = 0;
    while (is_instruction(json_array_get(messages, first)))
        first++;
    for (size_t i = first; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        bool checked = is_instruction(message) || common_role(message);
        spry_view start = checked ? beginning(message) : (spry_view){NULL, 0};
        if (start.size && (!text.size || !memmem(text.data, text.size, start.data, start.size)))
            return false;
    }
    return true;
}
