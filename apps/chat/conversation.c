/* A growing array of owned strings; JSON through jansson, which refuses invalid UTF-8 and zero bytes. */
#include "chat/conversation.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "platform/file.h"

enum { FIRST_CAPACITY = 16, FILE_BYTES_MAX = 64 << 20, TURNS_MAX = 100000 };

static const char *const roles[] = {"user", "assistant"};

const char *spry_conversation_role(const char *name)
{
    for (size_t i = 0; name && i < SPRY_COUNT(roles); i++)
        if (strcmp(name, roles[i]) == 0)
            return roles[i];
    return NULL;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

spry_status spry_conversation_init(spry_conversation *conversation, spry_error *error)
{
    *conversation = (spry_conversation){.capacity = FIRST_CAPACITY};
    conversation->slots = calloc(FIRST_CAPACITY, sizeof *conversation->slots);
    if (!conversation->slots)
        return spry_fail_memory(error, "the conversation", FIRST_CAPACITY * sizeof *conversation->slots);
    return SPRY_OK;
}

static void free_content(spry_message *message)
{
    free((void *)(uintptr_t)message->content);
    message->content = NULL;
}

void spry_conversation_deinit(spry_conversation *conversation)
{
    if (conversation->slots) {
        spry_conversation_clear(conversation);
        free_content(&conversation->slots[0]);
    }
    free(conversation->slots);
    *conversation = (spry_conversation){0};
}

spry_status spry_conversation_add(spry_conversation *conversation, const char *role, spry_view text, spry_error *error)
{
    if (conversation->count == TURNS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "a conversation holds at most %d turns", TURNS_MAX);
    size_t need = conversation->count + 2;
    if (need > conversation->capacity) {
        size_t capacity = conversation->capacity * 2;
        spry_message *slots = realloc(conversation->slots, capacity * sizeof *slots);
        if (!slots)
            return spry_fail_memory(error, "the conversation", capacity * sizeof *slots);
        conversation->slots = slots;
        conversation->capacity = capacity;
    }
    char *content = strndup(text.data, text.size);
    if (!content)
        return spry_fail_memory(error, "the conversation", text.size);
    conversation->slots[++conversation->count] = (spry_message){role, content};
    return SPRY_OK;
}

void spry_conversation_drop_last(spry_conversation *conversation)
{
    if (conversation->count)
        free_content(&conversation->slots[conversation->count--]);
}

void spry_conversation_clear(spry_conversation *conversation)
{
    while (conversation->count)
        spry_conversation_drop_last(conversation);
}

spry_status spry_conversation_set_system(spry_conversation *conversation, spry_view text, spry_error *error)
{
    char *content = strndup(text.data, text.size);
    if (!content)
        return spry_fail_memory(error, "the conversation", text.size);
    free_content(&conversation->slots[0]);
    conversation->slots[0] = (spry_message){"system", content};
    conversation->has_system = content[0] != 0;
    return SPRY_OK;
}

const char *spry_conversation_system(const spry_conversation *conversation)
{
    return conversation->has_system ? conversation->slots[0].content : NULL;
}

const spry_message *spry_conversation_messages(const spry_conversation *conversation, size_t *count)
{
    *count = conversation->count + (conversation->has_system ? 1 : 0);
    return conversation->slots + (conversation->has_system ? 0 : 1);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

json_t *spry_conversation_to_json(const spry_conversation *conversation, const char *model)
{
    json_t *turns = json_array();
    for (size_t i = 1; turns && i <= conversation->count; i++) {
        const spry_message *turn = &conversation->slots[i];
        json_t *item = json_pack("{s:s, s:s}", "role", turn->role, "content", turn->content);
        if (json_array_append_new(turns, item) != 0) {
            json_decref(turns);
            return NULL;
        }
    }
    return json_pack("{s:s, s:s?, s:o}", "model", model, "system", spry_conversation_system(conversation), "messages",
                     turns);
}

spry_status spry_conversation_save(const spry_conversation *conversation, const char *model, const char *path,
                                   spry_error *error)
{
    json_t *json = spry_conversation_to_json(conversation, model);
    spry_status status = spry_file_write_json(path, json, JSON_INDENT(2), error);
    json_decref(json);
    return status;
}

static spry_status add_turn(spry_conversation *out, const json_t *item, size_t index, const char *path,
                            spry_error *error)
{
    const char *role = spry_conversation_role(json_string_value(json_object_get(item, "role")));
    const json_t *content = json_object_get(item, "content");
    if (!role)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: messages[%zu].role is not \"user\" or \"assistant\"", path,
                         index);
    if (!json_is_string(content))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: messages[%zu].content is not a string", path, index);
    spry_view text = {json_string_value(content), json_string_length(content)};
    return spry_conversation_add(out, role, text, error);
}

static spry_status from_json(spry_conversation *out, const json_t *json, const char *path, spry_error *error)
{
    const json_t *system = json_object_get(json, "system"), *turns = json_object_get(json, "messages");
    if (!json_is_object(json) || !json_is_array(turns))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: is not a saved chat: it has no list \"messages\"", path);
    if (system && !json_is_string(system) && !json_is_null(system))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: \"system\" is not a string", path);
    spry_status status = SPRY_OK;
    if (json_is_string(system))
        status = spry_conversation_set_system(out, spry_view_of(json_string_value(system)), error);
    for (size_t i = 0; status == SPRY_OK && i < json_array_size(turns); i++)
        status = add_turn(out, json_array_get(turns, i), i, path, error);
    return status;
}

spry_status spry_conversation_load(spry_conversation *conversation, const char *path, spry_error *error)
{
    spry_conversation loaded = {0};
    json_t *json = NULL;
    spry_buffer text;
    spry_buffer_init(&text, FILE_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error);
    if (status != SPRY_OK)
        goto done;
    status = spry_json_read(&json, spry_buffer_view(&text), SPRY_JSON_NO_ZERO, 0, error);
    if (status != SPRY_OK) {
        (void)spry_fail_prefix(error, status, path);
        goto done;
    }
    status = spry_conversation_init(&loaded, error);
    if (status == SPRY_OK)
        status = from_json(&loaded, json, path, error);
    if (status == SPRY_OK) {
        spry_conversation old = *conversation;
        *conversation = loaded;
        loaded = old;
    }
done:
    spry_conversation_deinit(&loaded);
    json_decref(json);
    spry_buffer_deinit(&text);
    return status;
}
