/* The index of a cache folder: its pages, their sizes and times of last use. SQLite allows several processes to change
 * it at once, and a killed process leaves it consistent. It is only a list of the folder's files and can be rebuilt
 * from their names.
 *
 * SPRY_ERR_FORMAT from any function means that the file is not an index of spry, or damaged; SPRY_ERR_FILE that it
 * cannot be used now (locked, disk full, not permitted). */
#ifndef SPRY_KV_KV_DISK_INDEX_H
#define SPRY_KV_KV_DISK_INDEX_H

#include "kv/kv_disk_file.h"

enum { SPRY_KV_INDEX_STATEMENTS = 13 };

#define SPRY_KV_INDEX_FILE      "index.db" /* name of the index; SQLite creates more files with this prefix */
#define SPRY_KV_INDEX_IN_MEMORY ":memory:"

typedef struct spry_kv_index {
    struct sqlite3 *db; /* NULL: closed */
    struct sqlite3_stmt *statements[SPRY_KV_INDEX_STATEMENTS];
} spry_kv_index;

/* `path` may be SPRY_KV_INDEX_IN_MEMORY. After a failure the index is closed. */
spry_status spry_kv_index_open(spry_kv_index *index, const char *path, spry_error *error);
void spry_kv_index_close(spry_kv_index *index);

/* Changes are made in a transaction; `begin` waits, a few seconds at most, until no other process has one. */
spry_status spry_kv_index_begin(spry_kv_index *index, spry_error *error);
spry_status spry_kv_index_commit(spry_kv_index *index, spry_error *error);
void spry_kv_index_rollback(spry_kv_index *index); /* also allowed when no transaction is open */

/* Adds or updates a page. `used` are seconds since 1970. */
spry_status spry_kv_index_put(spry_kv_index *index, const spry_kv_file_id *id, uint64_t bytes, int64_t used,
                              spry_error *error);
/* Both have no effect when the page does not exist. */
spry_status spry_kv_index_use(spry_kv_index *index, const spry_kv_file_id *id, int64_t used, spry_error *error);
spry_status spry_kv_index_remove(spry_kv_index *index, const spry_kv_file_id *id, spry_error *error);

spry_status spry_kv_index_total(spry_kv_index *index, uint64_t *files, uint64_t *bytes, spry_error *error);
/* 0 when it is empty. */
spry_status spry_kv_index_newest(spry_kv_index *index, int64_t *used, spry_error *error);

/* Iterates over rows until `visit` returns false. It may remove the current row, and nothing else. */
typedef bool (*spry_kv_index_visit)(void *context, const spry_kv_file_id *id, uint64_t bytes);
spry_status spry_kv_index_each_of(spry_kv_index *index, spry_kv_key fingerprint, spry_kv_index_visit visit,
                                  void *context, spry_error *error);
/* Least recently used first, those last used before `before`. Of equals the last stored comes first, because it is
 * deeper in its chain: a page is useless without those before it. */
spry_status spry_kv_index_each_old(spry_kv_index *index, int64_t before, spry_kv_index_visit visit, void *context,
                                   spry_error *error);

/* Makes folder and index consistent when a folder is opened: pages missing in the index (their process was killed, or
 * the index was lost) are added, rows without a file are removed, and unfinished files are removed. Costs one listing
 * of the folder; only files missing in the index are examined. */

/* Unfinished files younger than this may still be written by another process. */
enum { SPRY_KV_SWEEP_AGE_SECONDS = 600 };

/* One transaction. A listing that takes longer than two seconds is stopped; entries not seen stay unchanged. */
spry_status spry_kv_sweep(spry_kv_index *index, const spry_directory *directory, int64_t now, spry_error *error);

#endif
