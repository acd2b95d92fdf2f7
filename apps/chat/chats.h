/* The subcommands of `spry chats`. Each takes its own name first, like all commands. */
#ifndef SPRY_APPS_CHATS_H
#define SPRY_APPS_CHATS_H

#include "chat/chat_flags.h"
#include "chat/chat_start.h"

int spry_chats_list(int argc, char **argv);
int spry_chats_show(int argc, char **argv);
int spry_chats_resume(int argc, char **argv);
int spry_chats_delete(int argc, char **argv);
int spry_chats_export(int argc, char **argv);

/* Parses the number of a chat, or "latest", which is 0 here. False: neither. */
bool spry_chats_read_id(int64_t *id, const char *text);

/* Opens the store chosen by --chats. The user's default file does not exist yet: SPRY_ERR_INPUT. */
spry_status spry_chats_open(spry_chat_store **store, const spry_chat_flags *flags, spry_error *error);

/* Opens, resolves, loads and closes. */
spry_status spry_chats_load(spry_chat_past *past, const spry_chat_flags *flags, int64_t id, spry_error *error);

#endif
