/* The chat's prompt: editing of a message of several lines, history, search, completion.
 *
 * Enter sends the message, unless it ends in a backslash, which becomes a new line, or begins with """ and does not end
 * with it. Alt-Enter begins a new line. Pasted text is inserted with its lines. */
#ifndef SPRY_APPS_LINE_EDITOR_H
#define SPRY_APPS_LINE_EDITOR_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/view.h"

/* ---- line_history.c ---------------------------------------------------------------------------------------------- */

/* Messages sent earlier, in a file with one per line: a backslash is "\\", a newline "\n". */

typedef struct spry_line_history spry_line_history;

/* Reads the file, which need not exist; one that cannot be read is replaced. `path` NULL: nothing is stored. It is
 * borrowed. */
spry_status spry_line_history_create(spry_line_history **out, const char *path, spry_error *error);
void spry_line_history_destroy(spry_line_history *history);

/* Adds a message, also to the file; blank ones and repetitions of the last one are not added. Fails once: then nothing
 * more is stored. */
spry_status spry_line_history_add(spry_line_history *history, spry_view text, spry_error *error);

size_t spry_line_history_count(const spry_line_history *history);

/* Zero-terminated; 0: the oldest. Valid until the next message is added. */
spry_view spry_line_history_at(const spry_line_history *history, size_t index);

/* ---- line_editor.c ----------------------------------------------------------------------------------------------- */

typedef struct spry_line_editor spry_line_editor;

typedef enum spry_line {
    SPRY_LINE_TEXT,
    SPRY_LINE_INTERRUPTED, /* Ctrl-C: the input is discarded */
    SPRY_LINE_END,         /* Ctrl-D on an empty line, or the terminal was closed */
} spry_line;

/* The words that may take the place of the last word of `text`, one per line, appended to `out`; a folder ends in a
 * slash. Returns where that word begins. */
typedef size_t (*spry_line_complete)(void *user, spry_buffer *out, spry_view text);

typedef struct spry_line_editor_options {
    const char *history_path;    /* NULL: none. Lines are added as they are sent; a damaged file means no history */
    spry_line_complete complete; /* NULL: none */
    void *user;                  /* for `complete` */
} spry_line_editor_options;

/* One per program. From here to _destroy the terminal does not echo. The path is borrowed. */
spry_status spry_line_editor_create(spry_line_editor **out, const spry_line_editor_options *options, spry_error *error);
void spry_line_editor_destroy(spry_line_editor *editor);

/* Gives the terminal back to what asks questions in its own way, or takes it again. */
void spry_line_editor_release(spry_line_editor *editor, bool release);

/* Reads one message into `text` (cleared first): valid UTF-8 without zero bytes, without newlines at the end. */
spry_line spry_line_editor_read(spry_line_editor *editor, spry_buffer *text);

/* Reads the answer to a question, which is not added to the history. */
spry_line spry_line_editor_ask(spry_line_editor *editor, spry_buffer *text);

#endif
