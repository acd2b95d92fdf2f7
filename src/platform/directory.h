/* A folder held open, and files in it by name, for a store of many small files. Unlike platform/file.h it returns the
 * system's error numbers instead of messages, since most of them only mean "not now" to such a store; 0 is success.
 * Files are readable by their owner only. */
#ifndef SPRY_PLATFORM_DIRECTORY_H
#define SPRY_PLATFORM_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

typedef struct spry_directory {
    int descriptor; /* -1: closed */
} spry_directory;

/* Creates the folder and its parents when they do not exist. */
spry_status spry_directory_open(spry_directory *directory, const char *path, spry_error *error);
void spry_directory_close(spry_directory *directory);

/* Whether files can be created in it, tested by creating one. A full disk does not count as not writable. */
bool spry_directory_writable(const spry_directory *directory);

/* Calls `visit` for every name in it that does not start with a dot, until it returns false. */
typedef bool (*spry_directory_visit)(void *context, const char *name);
int spry_directory_each(const spry_directory *directory, spry_directory_visit visit, void *context);

typedef struct spry_file_facts {
    uint64_t size;
    int64_t modified; /* seconds since 1970 */
    bool regular;     /* a regular file; not a folder, link or device */
} spry_file_facts;

int spry_directory_facts(const spry_directory *directory, const char *name, spry_file_facts *facts);
int spry_directory_remove(const spry_directory *directory, const char *name);

/* Writes the pieces one after the other to a temporary file whose name ends in SPRY_DIRECTORY_UNFINISHED, then renames
 * it over `name`: readers see the whole file or none. Not synced: after a power failure the file may be empty or torn,
 * which only a checksum inside it can detect. A failure leaves no file. `pieces` are modified. */
#define SPRY_DIRECTORY_UNFINISHED ".tmp"
int spry_directory_write(const spry_directory *directory, const char *name, struct iovec *pieces, size_t n_pieces);

/* A file open for reading. */
typedef struct spry_opened {
    int descriptor; /* -1: closed */
    uint64_t size;
} spry_opened;

/* Regular files only: links are not followed, pipes do not block. Other files fail with EINVAL or ELOOP. */
int spry_opened_open(spry_opened *opened, const spry_directory *directory, const char *name);
void spry_opened_close(spry_opened *opened);

/* Fills the pieces from `offset`; ENODATA when the file is shorter. `pieces` are modified. */
int spry_opened_read(const spry_opened *opened, struct iovec *pieces, size_t n_pieces, uint64_t offset);

/* Writes dirty pages to the device and drops the file from the page cache, where the system can, so that the next read
 * comes from the device. */
void spry_opened_forget(const spry_opened *opened);

#endif
