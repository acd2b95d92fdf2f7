/* The subcommands of `spry chats`. Each takes its own name first, like all commands. */
#ifndef SPRY_CHAT_CHATS_H
#define SPRY_CHAT_CHATS_H

#include <jansson.h>

#include "chat/chat.h"
#include "chat/chat_store.h"

int spry_chats_list(int argc, char **argv);
int spry_chats_show(int argc, char **argv);
int spry_chats_delete(int argc, char **argv);
int spry_chats_export(int argc, char **argv);

/* Parses the number of a chat, or "latest", which is 0 here. False: neither. */
bool spry_chats_read_id(int64_t *id, const char *text);

/* Opens the store chosen by --chats. The user's default file does not exist yet: SPRY_ERR_INPUT. */
spry_status spry_chats_open(spry_chat_store **store, const spry_chat_flags *flags, spry_error *error);

/* Opens, resolves, loads and closes. */
spry_status spry_chats_load(spry_chat_past *past, const spry_chat_flags *flags, int64_t id, spry_error *error);

/* ---- stored chats as text ---------------------------------------------------------------------------------------- */

/* Stored chats as a transcript, as Markdown and as JSON. Text is appended to buffers; check out->failed once at the
 * end. */

enum { SPRY_CHAT_TIME_MAX = 32 };

/* Prints the turns to standard output. */
void spry_chat_text_print(const spry_conversation *conversation, size_t first);

#endif
