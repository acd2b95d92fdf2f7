/* The index of a cache folder: which pages are there, how large, and when last used. SQLite, so that several processes
 * may change it at once and a killed one leaves it whole. It is only a list of what lies in the folder, and never
 * believed further than that: whoever loses it makes a new one from the names of the files.
 *
 * SPRY_ERR_FORMAT from any function means that the file is no index of ours, or damaged; SPRY_ERR_FILE that it cannot
 * be used now (locked, disk full, not permitted). */
#ifndef SPRY_KV_KV_DISK_INDEX_H
#define SPRY_KV_KV_DISK_INDEX_H

#include "kv/kv_disk_file.h"

enum { SPRY_KV_INDEX_STATEMENTS = 13 };

#define SPRY_KV_INDEX_FILE      "index.db" /* in the folder; SQLite makes others named after it */
#define SPRY_KV_INDEX_IN_MEMORY ":memory:"

typedef struct spry_kv_index {
    struct sqlite3 *db; /* NULL: closed */
    struct sqlite3_stmt *statements[SPRY_KV_INDEX_STATEMENTS];
} spry_kv_index;

/* `path` may be SPRY_KV_INDEX_IN_MEMORY. After a failure the index is closed. */
spry_status spry_kv_index_open(spry_kv_index *index, const char *path, spry_error *error);
void spry_kv_index_close(spry_kv_index *index);

/* Changes go into a transaction; `begin` waits, a few seconds at most, until no other process has one. */
spry_status spry_kv_index_begin(spry_kv_index *index, spry_error *error);
spry_status spry_kv_index_commit(spry_kv_index *index, spry_error *error);
void spry_kv_index_rollback(spry_kv_index *index); /* when none is open, too */

/* Adds a page, or says again what is known of it. `used` are seconds since 1970. */
spry_status spry_kv_index_put(spry_kv_index *index, const spry_kv_file_id *id, uint64_t bytes, int64_t used,
                              spry_error *error);
/* Both do nothing when the page is not there. */
spry_status spry_kv_index_use(spry_kv_index *index, const spry_kv_file_id *id, int64_t used, spry_error *error);
spry_status spry_kv_index_remove(spry_kv_index *index, const spry_kv_file_id *id, spry_error *error);

spry_status spry_kv_index_total(spry_kv_index *index, uint64_t *files, uint64_t *bytes, spry_error *error);
/* 0 when it is empty. */
spry_status spry_kv_index_newest(spry_kv_index *index, int64_t *used, spry_error *error);

/* Rows, until `visit` returns false. It may remove the row it is shown, and change nothing else. */
typedef bool (*spry_kv_index_visit)(void *context, const spry_kv_file_id *id, uint64_t bytes);
spry_status spry_kv_index_each_of(spry_kv_index *index, spry_kv_key fingerprint, spry_kv_index_visit visit,
                                  void *context, spry_error *error);
/* Least recently used first, those last used before `before`. Of equals the last stored comes first, as it stands
 * deeper in its chain: a page is of no use without those before it. */
spry_status spry_kv_index_each_old(spry_kv_index *index, int64_t before, spry_kv_index_visit visit, void *context,
                                   spry_error *error);

/* All of them. */
spry_status spry_kv_index_each(spry_kv_index *index, spry_kv_index_visit visit, void *context, spry_error *error);

/* Drops rows that cannot be ours, lets no page be last used after `now`, and counts anew. */
spry_status spry_kv_index_tidy(spry_kv_index *index, int64_t now, spry_error *error);

#endif
