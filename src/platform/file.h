/* Files: mapped for weights, read whole (bounded) when small, written so that a crash never leaves a partial file.
 * Every message contains the path. */
#ifndef SPRY_PLATFORM_FILE_H
#define SPRY_PLATFORM_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_mapping {
    const unsigned char *data;
    size_t size;
} spry_mapping;

/* Maps a regular file for reading; anything else (a folder, a pipe, a device) is refused. An empty file maps to size 0.
 * Closing a closed mapping does nothing. */
spry_status spry_mapping_open(spry_mapping *mapping, const char *path, spry_error *error);
void spry_mapping_close(spry_mapping *mapping);

/* Appends a whole file or pipe to `out`; a file larger than the buffer's maximum is refused with both numbers. On
 * failure `out` keeps what it had. */
spry_status spry_file_read(spry_buffer *out, const char *path, spry_error *error);

bool spry_path_is_folder(const char *path);
/* Size of a file in bytes (links are followed) and time of its last change in seconds since 1970; false: no such
 * file. */
bool spry_path_facts(const char *path, size_t *bytes, int64_t *modified);
/* The time of the last use of a file or folder is its access time: marked, because systems may not keep it; 0 when it
 * cannot be told. */
void spry_path_mark_used(const char *path);
int64_t spry_path_last_used(const char *path);
/* Replaces `out` with the absolute path without links, "." or ".."; false: no such file. */
bool spry_path_real(spry_buffer *out, const char *path);
bool spry_path_exists(const char *path);
/* Creates an empty file where there is nothing; whether there is something now. */
bool spry_path_create(const char *path, unsigned mode);
/* Whether both exist and are the same file or folder. */
bool spry_path_same(const char *a, const char *b);

/* Calls `visit` for every name in the folder, in the system's order; names that start with a dot are skipped. */
typedef void (*spry_folder_visit)(void *context, const char *name);
spry_status spry_folder_each(const char *folder, spry_folder_visit visit, void *context, spry_error *error);

/* Replaces `out` with "folder/name". */
spry_status spry_path_join(spry_buffer *out, const char *folder, const char *name, spry_error *error);

/* Replaces `out` with the user's folder for `kind` ("models", "history"), below XDG_DATA_HOME or HOME; empty when
 * neither is set. */
void spry_path_user_data(spry_buffer *out, const char *kind);

/* Writing: a temporary file beside the target, renamed on commit, removed on abandon. A target that exists must be a
 * regular file. */
typedef struct spry_file_writer {
    FILE *file;
    char *path, *temporary;
} spry_file_writer;

spry_status spry_file_writer_open(spry_file_writer *writer, const char *path, spry_error *error);
spry_status spry_file_writer_write(spry_file_writer *writer, const void *data, size_t size, spry_error *error);
/* Flushes, syncs and renames. Always closes the writer. */
spry_status spry_file_writer_commit(spry_file_writer *writer, spry_error *error);
/* No effect when the writer is closed. */
void spry_file_writer_abandon(spry_file_writer *writer);

/* Writes a complete file; JSON as json_dumps formats it with `flags`, and a newline. NULL: memory was short. */
spry_status spry_file_write(const char *path, spry_view text, spry_error *error);
spry_status spry_file_write_json(const char *path, const json_t *json, size_t flags, spry_error *error);

/* A large file that only this process and its children need. It has a name while it is written and is then unlinked, so
 * that nothing is left behind when the process ends in any way. */

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
