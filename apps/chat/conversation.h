/* The conversation of a chat: an optional system message and turns of user and assistant. All text is valid UTF-8
 * without zero bytes. Saved files are JSON: {"model", "system", "messages": [{"role", "content"}]}. */
#ifndef SPRY_APPS_CONVERSATION_H
#define SPRY_APPS_CONVERSATION_H

#include <stdbool.h>

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

typedef struct spry_conversation {
    spry_message *slots; /* slots[0] is reserved for the system message */
    size_t count;        /* turns: slots[1] to slots[count] */
    size_t capacity;
    bool has_system;
} spry_conversation;

spry_status spry_conversation_init(spry_conversation *conversation, spry_error *error);
void spry_conversation_deinit(spry_conversation *conversation);

/* The role of a turn by name, a static string; NULL for other roles. */
const char *spry_conversation_role(const char *name);

/* Adds a turn; `role` is "user" or "assistant", a static string; the text is copied. */
spry_status spry_conversation_add(spry_conversation *conversation, const char *role, spry_view text, spry_error *error);

/* Removes the last turn, or all of them. The system message stays. */
void spry_conversation_drop_last(spry_conversation *conversation);
void spry_conversation_clear(spry_conversation *conversation);

/* An empty text removes the system message. */
spry_status spry_conversation_set_system(spry_conversation *conversation, spry_view text, spry_error *error);
const char *spry_conversation_system(const spry_conversation *conversation); /* NULL: none */

/* All messages in order, valid until the next change. */
const spry_message *spry_conversation_messages(const spry_conversation *conversation, size_t *count);

/* The contents of a saved file; NULL when memory is short. */
json_t *spry_conversation_to_json(const spry_conversation *conversation, const char *model);

/* Saving is atomic. Loading replaces everything, or nothing when the file is invalid. */
spry_status spry_conversation_save(const spry_conversation *conversation, const char *model, const char *path,
                                   spry_error *error);
spry_status spry_conversation_load(spry_conversation *conversation, const char *path, spry_error *error);

#endif
