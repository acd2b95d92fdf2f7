/* Storing a chat while it is talked. What goes wrong never ends the chat: one complaint, and it goes on; later saves
 * try again and write what is missing. */
#ifndef SPRY_APPS_CHAT_SAVER_H
#define SPRY_APPS_CHAT_SAVER_H

#include "chat/chat_flags.h"
#include "chat/chat_store.h"

typedef struct spry_chat_saver {
    spry_chat_store *store; /* NULL: this chat is not stored */
    const char *file;       /* what --chats said; NULL: nothing */
    spry_chat chat;         /* the record; its id is 0 until the first answer */
    size_t kept;            /* turns of the conversation that the store has */
    int64_t last_id;        /* of the chat stored last; 0: none */
    bool complained;
} spry_chat_saver;

/* Opens the store that the flags choose, unless they say that nothing is stored. Takes over the strings of `chat`: a
 * record to go on with, or with id 0 all but the title of one to come. */
void spry_chat_saver_init(spry_chat_saver *saver, const spry_chat_flags *flags, spry_chat *chat);
void spry_chat_saver_deinit(spry_chat_saver *saver);

/* After an answer. */
void spry_chat_saver_save(spry_chat_saver *saver, const spry_conversation *conversation);

/* After another change of a chat; does nothing when it is not stored yet. */
void spry_chat_saver_update(spry_chat_saver *saver, const spry_conversation *conversation);

/* The conversation is another one now: the record stays as it is, the next answer begins a new one. */
void spry_chat_saver_restart(spry_chat_saver *saver);

/* False: memory is short. */
bool spry_chat_saver_title(spry_chat_saver *saver, const spry_conversation *conversation, const char *title);

/* Deletes the record and stores nothing more. True when there was one and it is gone. */
bool spry_chat_saver_forget(spry_chat_saver *saver);

#endif
