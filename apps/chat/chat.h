/* The interactive chat: `spry run` on a terminal without a prompt, and `spry chats resume`. */
#ifndef SPRY_CHAT_CHAT_H
#define SPRY_CHAT_CHAT_H

#include <jansson.h>

#include "chat/chat_store.h"
#include "cli/common_options.h"
#include "cli/model_source.h"
#include "run/answer.h"

typedef struct spry_chat_flags {
    const char *system; /* NULL: none given */
    const char *chats;  /* the file of stored chats; NULL: the user's file */
    const char *mcp;    /* file of MCP servers; NULL: none */
    bool history, save, stats;
    spry_answer_flags answer;
    spry_engine_flags engine;
    spry_model_flags model;
} spry_chat_flags;

/* The struct must not move afterwards. */
void spry_chat_flags_default(spry_chat_flags *flags);

/* --system, --history, --save, --chats; and --chats alone, for commands that only read stored chats. */
spry_option_table spry_chat_flags_table(spry_chat_flags *flags);
spry_option_table spry_chat_flags_file_table(spry_chat_flags *flags);

/* --mcp, for commands that lead to a chat. */
spry_option_table spry_chat_flags_mcp_table(spry_chat_flags *flags);

enum { SPRY_CHAT_SETTINGS_TABLES = 4 };

/* The settings in a record: answers, sampling, engine, model. */
void spry_chat_settings_tables(spry_option_table tables[SPRY_CHAT_SETTINGS_TABLES], spry_chat_flags *flags);

/* The settings that differ from the defaults, as the text of a JSON object, owned; with absolute paths. NULL: memory is
 * short. */
char *spry_chat_settings_save(const spry_chat_flags *flags);

/* Applies the settings in the object. Unknown keys are ignored; an invalid value is reported and ignored. Strings are
 * borrowed from `settings`. */
void spry_chat_settings_load(spry_chat_flags *flags, const json_t *settings);

/* Replaces `out` with the path of the file of chats; empty when the user has no folder for it. */
void spry_chat_flags_path(spry_buffer *out, const spry_chat_flags *flags);

/* ---- the chat and its store -------------------------------------------------------------------------------------- */

typedef struct spry_chat_saver {
    spry_chat_store *store; /* NULL: this chat is not stored */
    const char *file;       /* value of --chats; NULL: none */
    spry_chat chat;         /* the record; its id is 0 until the first answer */
    size_t kept;            /* turns that the store has */
    int64_t last_id;        /* id of the chat stored last; 0: none */
    bool complained;
} spry_chat_saver;

/* Call after an answer. */
void spry_chat_saver_save(spry_chat_saver *saver, const spry_conversation *conversation);

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

typedef struct spry_chat_job {
    spry_engine *engine;
    spry_session *session;
    spry_model_source source;
    spry_drafter_model drafter;
    spry_chat_flags *flags;
    spry_chat_saver *saver;
    spry_conversation *conversation; /* the conversation so far, with the system message */
} spry_chat_job;

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
                                 int (*run)(spry_chat_job *job, void *user), void *user, spry_error *error);

#endif
