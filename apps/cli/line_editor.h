/* The chat's prompt: line editing and history through libedit. A line that ends in a backslash continues on the
 * next. */
#ifndef SPRY_APPS_LINE_EDITOR_H
#define SPRY_APPS_LINE_EDITOR_H

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_line_editor spry_line_editor;

typedef enum spry_line {
    SPRY_LINE_TEXT,
    SPRY_LINE_INTERRUPTED, /* Ctrl-C: the input is discarded */
    SPRY_LINE_END,         /* Ctrl-D on an empty line, or the terminal was closed */
} spry_line;

/* `history_path` (NULL: none) is read now and written by _destroy; an invalid or missing file means no history. */
spry_status spry_line_editor_create(spry_line_editor **out, const char *history_path, spry_error *error);
void spry_line_editor_destroy(spry_line_editor *editor);

/* Reads one message into `text` (cleared first): lines joined by newlines, valid UTF-8, without the last newline. */
spry_line spry_line_editor_read(spry_line_editor *editor, spry_buffer *text);

#endif
