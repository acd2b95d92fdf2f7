/* Stores a chat while it runs. A failure never ends the chat: it is reported once, and later saves try again and write
 * the missing turns. */
#ifndef SPRY_APPS_CHAT_SAVER_H
#define SPRY_APPS_CHAT_SAVER_H

#include "chat/chat_flags.h"
#include "chat/chat_store.h"

typedef struct spry_chat_saver {
    spry_chat_store *store; /* NULL: this chat is not stored */
    const char *file;       /* value of --chats; NULL: none */
    spry_chat chat;         /* the record; its id is 0 until the first answer */
    size_t kept;            /* turns that the store has */
    int64_t last_id;        /* of the chat stored last; 0: none */
    bool complained;
} spry_chat_saver;

/* Opens the store chosen by the flags, unless storing is off. Takes ownership of the strings of `chat`: a record to
 * continue, or with id 0 a new record without title. */
void spry_chat_saver_init(spry_chat_saver *saver, const spry_chat_flags *flags, spry_chat *chat);
void spry_chat_saver_deinit(spry_chat_saver *saver);

/* Call after an answer. */
void spry_chat_saver_save(spry_chat_saver *saver, const spry_conversation *conversation);

/* Call after another change of a chat; has no effect when it is not stored yet. */
void spry_chat_saver_update(spry_chat_saver *saver, const spry_conversation *conversation);

/* The conversation was replaced: the record stays, and the next answer begins a new one. */
void spry_chat_saver_restart(spry_chat_saver *saver);

/* False: memory is short. */
bool spry_chat_saver_title(spry_chat_saver *saver, const spry_conversation *conversation, const char *title);

/* Deletes the record and stops storing. True when there was one and it was deleted. */
bool spry_chat_saver_forget(spry_chat_saver *saver);

#endif
