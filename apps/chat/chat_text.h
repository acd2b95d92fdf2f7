/* Stored chats as a transcript, as Markdown and as JSON. Text is appended to buffers; check out->failed once at the
 * end. */
#ifndef SPRY_APPS_CHAT_TEXT_H
#define SPRY_APPS_CHAT_TEXT_H

#include <jansson.h>

#include "chat/chat_store.h"

enum { SPRY_CHAT_TIME_MAX = 32 };

/* Prints the turns to standard output. */
void spry_chat_text_print(const spry_conversation *conversation, size_t first);

/* A heading, the system message and all turns. */
void spry_chat_text_plain(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation,
                          bool terminal);
void spry_chat_text_markdown(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation);

/* The fields of a chat's record; with the system message and the turns it is the format of /load. NULL: no memory. */
json_t *spry_chat_text_facts(const spry_chat *chat);
json_t *spry_chat_text_json(const spry_chat *chat, const spry_conversation *conversation);

#endif
