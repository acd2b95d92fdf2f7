/* Stored chats: records without their messages, and the SQLite file that holds records and messages. */
#ifndef SPRY_CHAT_CHAT_STORE_H
#define SPRY_CHAT_CHAT_STORE_H

#include <stdint.h>

#include "base/buffer.h"
#include "chat/conversation.h"

/* Replaces the path of a bundled model, which is found by name. */
#define SPRY_CHAT_BUNDLED "bundled"

enum { SPRY_CHAT_TITLE_MAX = 60 }; /* characters */

/* Strings are owned. */
typedef struct spry_chat {
    int64_t id;       /* ids begin at 1 and are never reused; 0: not stored yet */
    int64_t revision; /* number of saves, to detect changes by other processes */
    char *title, *model;
    char *model_path;         /* absolute, or SPRY_CHAT_BUNDLED */
    char *settings;           /* a JSON object; see spry_chat_settings_save */
    int64_t created, updated; /* milliseconds since 1970 */
    size_t turns;
} spry_chat;

/* Replaces an owned string by a copy of `text`; on failure false, without changes. */
bool spry_chat_set(char **field, spry_view text);
void spry_chat_deinit(spry_chat *chat);

/* Replaces `out` with a title made from a message: its first words, on one line, at most SPRY_CHAT_TITLE_MAX
 * characters. */
void spry_chat_make_title(spry_buffer *out, spry_view message);

/* ---- the store --------------------------------------------------------------------------------------------------- */

/* Stored chats: one SQLite file that several processes may use at once. A store handle belongs to one thread at a time;
 * concurrent threads open their own. Nothing here prints.
 *
 * Every change is one transaction, on disk when the call returns. Text read from the file is always valid UTF-8 without
 * zero bytes, except model paths, which are bytes. Deleted text is overwritten as soon as no other process reads the
 * file. */

typedef struct spry_chat_store spry_chat_store;

/* Opens the file at `path`; `create`: creates it if missing, readable by its owner only. Files of older versions are
 * migrated. Not a file of chats or damaged: SPRY_ERR_FORMAT; of a newer version: SPRY_ERR_UNSUPPORTED. */
spry_status spry_chat_store_open(spry_chat_store **out, const char *path, bool create, spry_error *error);
void spry_chat_store_close(spry_chat_store *store);

/* Calls `visit` for the `limit` most recently changed chats (0: all), newest first, until it returns false. The chat is
 * valid during the call, which must not use the store. */
typedef bool (*spry_chat_visit)(void *user, const spry_chat *chat);
spry_status spry_chat_store_list(spry_chat_store *store, size_t limit, spry_chat_visit visit, void *user,
                                 spry_error *error);

/* Like spry_chat_store_list, but only chats whose title or messages contain `text`, ignoring the case of ASCII letters;
 * NULL or "": all chats. */
spry_status spry_chat_store_search(spry_chat_store *store, size_t limit, const char *text, spry_chat_visit visit,
                                   void *user, spry_error *error);

/* The most recently changed chat; 0 when there is none. */
spry_status spry_chat_store_latest(spry_chat_store *store, int64_t *id, spry_error *error);

/* Fills `chat` and `conversation`, both initialised, from one snapshot; on failure both are unchanged. No such chat:
 * SPRY_ERR_INPUT. */
spry_status spry_chat_store_load(spry_chat_store *store, spry_chat *chat, spry_conversation *conversation, int64_t id,
                                 spry_error *error);

typedef enum spry_chat_saved {
    SPRY_CHAT_SAVED,
    SPRY_CHAT_CHANGED, /* another process has saved it since; nothing was written */
    SPRY_CHAT_GONE,    /* another process has deleted it; nothing was written */
} spry_chat_saved;

/* Writes the chat, its system message, and its turns from number `kept` (the store has the earlier ones; 0: all), and
 * deletes later turns in the store. Sets the chat's id, revision, times and turns. */
spry_status spry_chat_store_save(spry_chat_store *store, spry_chat_saved *saved, spry_chat *chat,
                                 const spry_conversation *conversation, size_t kept, spry_error *error);

/* Deletes all of them, or none when one does not exist (SPRY_ERR_INPUT). Ids may be repeated. */
spry_status spry_chat_store_delete(spry_chat_store *store, size_t *deleted, const int64_t *ids, size_t n_ids,
                                   spry_error *error);

#endif
