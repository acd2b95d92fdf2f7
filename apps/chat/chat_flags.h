/* The flags a chat is begun with: as options, and as the JSON object its record keeps so that it can go on with the
 * same settings another day. */
#ifndef SPRY_APPS_CHAT_FLAGS_H
#define SPRY_APPS_CHAT_FLAGS_H

#include <jansson.h>

#include "cli/common_options.h"

typedef struct spry_chat_flags {
    const char *system; /* NULL: none given */
    const char *chats;  /* the file of stored chats; NULL: the user's own */
    bool history, save, stats;
    spry_answer_flags answer;
    spry_engine_flags engine;
    spry_model_flags model;
} spry_chat_flags;

/* The struct must not move after. */
void spry_chat_flags_default(spry_chat_flags *flags);

/* --system, --history, --save, --chats; and --chats alone, for commands that only look at stored chats. */
spry_option_table spry_chat_flags_table(spry_chat_flags *flags);
spry_option_table spry_chat_flags_file_table(spry_chat_flags *flags);

enum { SPRY_CHAT_SETTINGS_TABLES = 4 };

/* What a record keeps: answers, sampling, engine, model. */
void spry_chat_settings_tables(spry_option_table tables[SPRY_CHAT_SETTINGS_TABLES], spry_chat_flags *flags);

/* The settings that are not the defaults, as the text of a JSON object, owned; folders and files with their whole path.
 * NULL: memory is short. */
char *spry_chat_settings_save(const spry_chat_flags *flags);

/* Sets what the object holds. What this version does not know is passed over; a value that is wrong gets a complaint
 * and stays as it was. Strings are borrowed from `settings`. */
void spry_chat_settings_load(spry_chat_flags *flags, const json_t *settings);

/* Replaces what is in `out` by the path of the file of chats; empty when the user has no folder for it. */
void spry_chat_flags_path(spry_buffer *out, const spry_chat_flags *flags);

#endif
