/* The interactive chat: what `spry run` is on a terminal without a prompt. */
#ifndef SPRY_APPS_CHAT_H
#define SPRY_APPS_CHAT_H

#include "common_options.h"

typedef struct spry_chat_job {
    spry_engine *engine;
    spry_session *session;
    const char *model;  /* its name */
    const char *system; /* NULL: none; valid UTF-8 */
    const spry_answer_flags *flags;
    bool keep_history; /* of what was typed, in the user's data folder */
    bool show_stats;   /* after every answer */
} spry_chat_job;

/* Talks until the user leaves; returns the program's exit code. */
int spry_chat_run(const spry_chat_job *job);

#endif
