/* The interactive chat: `spry run` on a terminal without a prompt, and `spry chats resume`. */
#ifndef SPRY_CHAT_CHAT_H
#define SPRY_CHAT_CHAT_H

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

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

typedef struct spry_chat_job {
    spry_engine *engine;
    spry_session *session;
    const char *model; /* its name */
    const spry_chat_flags *flags;
    spry_chat_saver *saver;
    spry_conversation *conversation; /* the conversation so far, with the system message */
    spry_speculation speculation;
} spry_chat_job;

/* Runs until the user leaves; returns the program's exit code. */
int spry_chat_run(const spry_chat_job *job);

/* ---- from flags to a chat ---------------------------------------------------------------------------------------- */

/* Opens everything a chat needs, runs it and closes everything. */

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
