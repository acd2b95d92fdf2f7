/* A large file that only this process and its children need. It has a name while it is written and is then unlinked, so
 * that nothing is left behind when the process ends in any way. */
#ifndef SPRY_PLATFORM_TEMPORARY_H
#define SPRY_PLATFORM_TEMPORARY_H

#include <stdbool.h>

#include "base/error.h"

typedef struct spry_temporary {
    char *folder; /* NULL when the file is unlinked or was never created */
    char *path;   /* path for opening it */
    int file;     /* descriptor of the unlinked file; -1: none */
} spry_temporary;

/* Creates an empty folder in the first writable one of TMPDIR, /var/tmp and /tmp, and sets `path` to the file `name` in
 * it. */
spry_status spry_temporary_init(spry_temporary *temporary, const char *name, spry_error *error);

/* Unlinks the file after it is written. `path` becomes one that works in this process and its children until deinit. */
spry_status spry_temporary_hide(spry_temporary *temporary, spry_error *error);

/* Deletes the file. May be called on a zeroed struct and twice. */
void spry_temporary_deinit(spry_temporary *temporary);

#endif
