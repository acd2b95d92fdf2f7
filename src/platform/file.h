/* Files as the engine meets them: mapped for weights, read whole (bounded) when small, written so that a crash never
 * leaves half a file. Every message names the path. */
#ifndef SPRY_PLATFORM_FILE_H
#define SPRY_PLATFORM_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_mapping {
    const unsigned char *data;
    size_t size;
} spry_mapping;

/* Maps a regular file for reading. An empty file maps to size 0. */
spry_status spry_mapping_open(spry_mapping *mapping, const char *path, spry_error *error);
void spry_mapping_close(spry_mapping *mapping);

/* Appends a whole file to `out`; a file larger than the buffer's maximum is refused with both numbers. */
spry_status spry_file_read(spry_buffer *out, const char *path, spry_error *error);

bool spry_path_is_folder(const char *path);
bool spry_path_exists(const char *path);

/* "folder/name" into `out`. */
spry_status spry_path_join(spry_buffer *out, const char *folder, const char *name, spry_error *error);

/* The user's folder for `kind` ("models", "history"), made of XDG_DATA_HOME or HOME; empty when neither is set. */
void spry_path_user_data(spry_buffer *out, const char *kind);

/* Writing: a temporary file beside the target, renamed on commit, removed on abandon. */
typedef struct spry_file_writer {
    FILE *file;
    char *path, *temporary;
} spry_file_writer;

spry_status spry_file_writer_open(spry_file_writer *writer, const char *path, spry_error *error);
spry_status spry_file_writer_write(spry_file_writer *writer, const void *data, size_t size, spry_error *error);
/* Flushes, syncs and renames. The writer is closed whatever happens. */
spry_status spry_file_writer_commit(spry_file_writer *writer, spry_error *error);
void spry_file_writer_abandon(spry_file_writer *writer);

#endif
