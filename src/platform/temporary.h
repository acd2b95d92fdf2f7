/* A large file that only this process and its children need. It has a name while it is written and none afterwards, so
 * that nothing is left behind however the process ends. */
#ifndef SPRY_PLATFORM_TEMPORARY_H
#define SPRY_PLATFORM_TEMPORARY_H

#include <stdbool.h>

#include "base/error.h"

typedef struct spry_temporary {
    char *folder; /* NULL when the file has no name any more, or never was */
    char *path;   /* by which to open it */
    int file;     /* holds the nameless file; -1: none */
} spry_temporary;

/* Makes an empty folder in TMPDIR, /var/tmp or /tmp, whichever is the first that can be written to, and the path of the
 * file `name` to write there. */
spry_status spry_temporary_init(spry_temporary *temporary, const char *name, spry_error *error);

/* Once the file is written: removes its name. `path` changes to one that works in this process and in those it starts,
 * until deinit. */
spry_status spry_temporary_hide(spry_temporary *temporary, spry_error *error);

/* The file is gone. May be called on a zeroed struct and twice. */
void spry_temporary_deinit(spry_temporary *temporary);

#endif
