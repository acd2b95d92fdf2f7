/* The interactive chat: `spry run` on a terminal without a prompt, and `spry chats resume`. */
#ifndef SPRY_APPS_CHAT_H
#define SPRY_APPS_CHAT_H

#include "chat/chat_flags.h"
#include "chat/chat_saver.h"

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

#endif
