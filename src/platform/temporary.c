/* The unlinked file is reached through /proc/self/fd, also by children that inherit the descriptor. */
#include "platform/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool make_folder(char path[PATH_BYTES], const char *parent)
{
    int length = snprintf(path, PATH_BYTES, "%s/spry-XXXXXX", parent);
    return length > 0 && length < PATH_BYTES && mkdtemp(path);
}

static bool make_any_folder(char path[PATH_BYTES])
{
    const char *wished = getenv("TMPDIR");
    if (wished && wished[0]) /* an explicit choice is never replaced by another folder */
        return make_folder(path, wished);
    return make_folder(path, "/var/tmp") || make_folder(path, "/tmp");
}

spry_status spry_temporary_init(spry_temporary *t, const char *name, spry_error *error)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    *t = (spry_temporary){.file = -1};
    if (!make_any_folder(folder))
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot make a folder for a temporary file: %s", folder,
                         strerror(errno));
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    t->folder = strdup(folder);
    t->path = length > 0 && length < PATH_BYTES ? strdup(path) : NULL;
    if (t->folder && t->path)
        return SPRY_OK;
    if (!t->folder)
        rmdir(folder);
    spry_temporary_deinit(t);
    return spry_fail_memory(error, "a temporary file's name", PATH_BYTES);
}

spry_status spry_temporary_hide(spry_temporary *t, spry_error *error)
{
    char path[32];
    t->file = open(t->path, O_RDONLY);
    if (t->file < 0)
        return spry_fail(error, SPRY_ERR_FILE, "%s: %s", t->path, strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", t->file);
    char *hidden = strdup(path);
    if (!hidden)
        return spry_fail_memory(error, "a temporary file's name", sizeof path);
    unlink(t->path);
    rmdir(t->folder);
    free(t->path);
    free(t->folder);
    t->path = hidden;
    t->folder = NULL;
    return SPRY_OK;
}

void spry_temporary_deinit(spry_temporary *t)
{
    if (t->folder) {
        if (t->path)
            unlink(t->path);
        rmdir(t->folder);
    }
    if (t->path && t->file >= 0)
        close(t->file);
    free(t->folder);
    free(t->path);
    *t = (spry_temporary){.file = -1};
}
