/* What is known of a stored chat besides its messages. */
#ifndef SPRY_APPS_CHAT_RECORD_H
#define SPRY_APPS_CHAT_RECORD_H

#include <stdint.h>

#include "base/buffer.h"

/* In place of a path: the model is inside the program and is found by its name. */
#define SPRY_CHAT_BUNDLED "bundled"

enum { SPRY_CHAT_TITLE_MAX = 60 }; /* characters */

/* Strings are owned. */
typedef struct spry_chat {
    int64_t id;       /* from 1 on; 0: not stored yet. A number is never given twice */
    int64_t revision; /* counts the saves, by which a change from elsewhere is noticed */
    char *title, *model;
    char *model_path;         /* absolute, or SPRY_CHAT_BUNDLED */
    char *settings;           /* a JSON object; see chat_flags.h */
    int64_t created, updated; /* milliseconds since 1970 */
    size_t turns;
} spry_chat;

/* Replaces an owned string by a copy of `text`; false, with nothing changed, when memory is short. */
bool spry_chat_set(char **field, spry_view text);
void spry_chat_deinit(spry_chat *chat);

/* Replaces what is in `out` by a title made of a message: its first words, in one line, at most SPRY_CHAT_TITLE_MAX
 * characters. */
void spry_chat_make_title(spry_buffer *out, spry_view message);

#endif
