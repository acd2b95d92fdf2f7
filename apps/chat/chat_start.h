/* Opens everything a chat needs, runs it and closes everything. */
#ifndef SPRY_APPS_CHAT_START_H
#define SPRY_APPS_CHAT_START_H

#include "chat/chat.h"
#include "chat/chat_store.h"

/* A stored chat, or a new one: then both are empty. */
typedef struct spry_chat_past {
    spry_chat chat;
    spry_conversation conversation;
} spry_chat_past;

spry_status spry_chat_past_init(spry_chat_past *past, spry_error *error);
void spry_chat_past_deinit(spry_chat_past *past);

/* Chats with `model` (NULL: the bundled one), continuing `past`. The flags are complete. A status other than SPRY_OK
 * means that no chat took place; else *code is the program's exit code. */
spry_status spry_chat_start(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                            spry_error *error);

/* The same with another loop than the chat's; it returns the exit code. */
spry_status spry_chat_start_with(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                                 int (*run)(const spry_chat_job *job, void *user), void *user, spry_error *error);

#endif
