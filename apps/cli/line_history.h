/* Messages sent earlier, in a file with one per line: a backslash is "\\", a newline "\n". */
#ifndef SPRY_CLI_LINE_HISTORY_H
#define SPRY_CLI_LINE_HISTORY_H

#include "base/error.h"
#include "base/view.h"

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

#endif
