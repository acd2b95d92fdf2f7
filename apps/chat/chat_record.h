/* The record of a stored chat, without its messages. */
#ifndef SPRY_APPS_CHAT_RECORD_H
#define SPRY_APPS_CHAT_RECORD_H

#include <stdint.h>

#include "base/buffer.h"

/* Replaces the path of a bundled model, which is found by name. */
#define SPRY_CHAT_BUNDLED "bundled"

enum { SPRY_CHAT_TITLE_MAX = 60 }; /* characters */

/* Strings are owned. */
typedef struct spry_chat {
    int64_t id;       /* from 1; 0: not stored yet. Never reused */
    int64_t revision; /* number of saves, to detect changes by other processes */
    char *title, *model;
    char *model_path;         /* absolute, or SPRY_CHAT_BUNDLED */
    char *settings;           /* a JSON object; see chat_flags.h */
    int64_t created, updated; /* milliseconds since 1970 */
    size_t turns;
} spry_chat;

/* Replaces an owned string by a copy of `text`; on failure false, without changes. */
bool spry_chat_set(char **field, spry_view text);
void spry_chat_deinit(spry_chat *chat);

/* Replaces `out` with a title made from a message: its first words, on one line, at most SPRY_CHAT_TITLE_MAX
 * characters. */
void spry_chat_make_title(spry_buffer *out, spry_view message);

#endif
