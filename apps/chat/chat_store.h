/* Stored chats: one SQLite file that several processes may use at once. A store handle belongs to one thread at a time;
 * concurrent threads open their own. Nothing here prints.
 *
 * Every change is one transaction, on disk when the call returns. Text read from the file is always valid UTF-8 without
 * zero bytes, except model paths, which are bytes. Deleted text is overwritten as soon as no other process reads the
 * file. */
#ifndef SPRY_APPS_CHAT_STORE_H
#define SPRY_APPS_CHAT_STORE_H

#include "chat/chat_record.h"
#include "chat/conversation.h"

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

/* Those of them whose title or messages contain a text, in any case of ASCII letters; NULL or "": all. */
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
