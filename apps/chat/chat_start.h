/* Everything a chat needs is opened, the chat is talked, everything is closed. */
#ifndef SPRY_APPS_CHAT_START_H
#define SPRY_APPS_CHAT_START_H

#include "chat/chat_flags.h"
#include "chat/chat_store.h"

/* A chat from the store, or a new one: then both are empty. */
typedef struct spry_chat_past {
    spry_chat chat;
    spry_conversation conversation;
} spry_chat_past;

spry_status spry_chat_past_init(spry_chat_past *past, spry_error *error);
void spry_chat_past_deinit(spry_chat_past *past);

/* Talks with `model`, named as MODEL is (NULL: the bundled one), going on with `past`. The flags are settled. A status
 * that is not SPRY_OK means that there was no chat; else *code is the program's exit code. */
spry_status spry_chat_start(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                            spry_error *error);

#endif
