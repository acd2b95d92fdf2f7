/* A folder held open, and files in it by name: what a store of many small files needs. Unlike platform/file.h it gives
 * the system's error numbers instead of sentences, as most of them only mean "not now" to such a store; 0 is success.
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

/* Makes the folder, and those above it, where they are not there. */
spry_status spry_directory_open(spry_directory *directory, const char *path, spry_error *error);
void spry_directory_close(spry_directory *directory);

/* Whether files can be made in it, found out by making one. A full disk does not count as forbidden. */
bool spry_directory_writable(const spry_directory *directory);

/* Calls `visit` for every name in it that does not start with a dot, until it returns false. */
typedef bool (*spry_directory_visit)(void *context, const char *name);
int spry_directory_each(const spry_directory *directory, spry_directory_visit visit, void *context);

typedef struct spry_file_facts {
    uint64_t size;
    int64_t modified; /* seconds since 1970, as the clock said then */
    bool regular;     /* neither a folder nor a link nor anything else */
} spry_file_facts;

int spry_directory_facts(const spry_directory *directory, const char *name, spry_file_facts *facts);
int spry_directory_remove(const spry_directory *directory, const char *name);

/* Writes the pieces one behind the other under a name of its own ending in SPRY_DIRECTORY_UNFINISHED and renames the
 * whole file, replacing what was there: others see all of it or nothing. Not synced: after a power cut it may be empty
 * or torn, which only a checksum inside can tell. Nothing is left behind on failure. `pieces` are used up. */
#define SPRY_DIRECTORY_UNFINISHED ".tmp"
int spry_directory_write(const spry_directory *directory, const char *name, struct iovec *pieces, size_t n_pieces);

/* A file open for reading. */
typedef struct spry_opened {
    int descriptor; /* -1: closed */
    uint64_t size;
} spry_opened;

/* Regular files only: links are not followed, pipes not waited for. What is not one is EINVAL or ELOOP. */
int spry_opened_open(spry_opened *opened, const spry_directory *directory, const char *name);
void spry_opened_close(spry_opened *opened);

/* Fills the pieces from `offset` on; ENODATA when the file ends before. `pieces` are used up. */
int spry_opened_read(const spry_opened *opened, struct iovec *pieces, size_t n_pieces, uint64_t offset);

/* Lets the next read come from the device: writes out what is not yet there and drops it from memory, where the
 * system can. */
void spry_opened_forget(const spry_opened *opened);

#endif
