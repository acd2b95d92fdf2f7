/* Runs a command of the user: bytes to its standard input, and what it writes back, piece by piece. */
#ifndef SPRY_APPS_CHILD_PROCESS_H
#define SPRY_APPS_CHILD_PROCESS_H

#include "base/error.h"
#include "base/view.h"

/* What the command writes; false ends it. */
typedef bool (*spry_child_output)(void *user, const char *data, size_t size);

/* Runs `command` with the shell, or, where `arguments` is not NULL, that program with these arguments, the last NULL.
 * A command's messages go to standard error, those of the program nowhere. Fails where it cannot be started, or ends
 * with a status other than 0. */
spry_status spry_child_run(const char *command, const char *const *arguments, spry_view input,
                           spry_child_output on_output, void *user, spry_error *error);

#endif
