/* The flags of a chat: as options, and as the JSON object stored in its record, so that it continues with the same
 * settings later. */
#ifndef SPRY_APPS_CHAT_FLAGS_H
#define SPRY_APPS_CHAT_FLAGS_H

#include <jansson.h>

#include "cli/common_options.h"

typedef struct spry_chat_flags {
    const char *system; /* NULL: none given */
    const char *chats;  /* the file of stored chats; NULL: the user's file */
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

#endif
