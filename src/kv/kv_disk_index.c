/* Every statement is a row of one table and is prepared when the index is opened; parameters are bound by meaning, with
 * the same numbers in all of them. Triggers maintain the total, so that it is correct for every writer and need not be
 * summed for every batch. */
#include "kv/kv_disk_index.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kv/kv_key.h"
#include "platform/clock.h"

enum { BUSY_MS = 3000, KEY_BYTES = 16 };

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS pages(id INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL, key BLOB NOT NULL,"
    " bytes INTEGER NOT NULL, used INTEGER NOT NULL, UNIQUE(fingerprint, key));"
    "CREATE INDEX IF NOT EXISTS pages_used ON pages(used);"
    "CREATE TABLE IF NOT EXISTS total(one INTEGER PRIMARY KEY CHECK(one = 1), files INTEGER, bytes INTEGER);"
    "INSERT OR IGNORE INTO total VALUES(1, 0, 0);"
    "CREATE TRIGGER IF NOT EXISTS page_added AFTER INSERT ON pages BEGIN"
    " UPDATE total SET files = files + 1, bytes = bytes + new.bytes; END;"
    "CREATE TRIGGER IF NOT EXISTS page_removed AFTER DELETE ON pages BEGIN"
    " UPDATE total SET files = files - 1, bytes = bytes - old.bytes; END;"
    "CREATE TRIGGER IF NOT EXISTS page_changed AFTER UPDATE OF bytes ON pages BEGIN"
    " UPDATE total SET bytes = bytes - old.bytes + new.bytes; END;"
    "PRAGMA user_version = 1;";

static const char settings[] = "PRAGMA trusted_schema = OFF; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;"
                               "PRAGMA journal_mode = WAL;";

enum { BEGIN, COMMIT, PUT, USE, REMOVE, TOTAL, NEWEST, ALL, OF, OLD, FOREIGN, CLAMP, RECOUNT };

/* ?1 fingerprint, ?2 key, ?3 bytes, ?4 a time */
static const char *const texts[] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [PUT] = "INSERT INTO pages(fingerprint, key, bytes, used) VALUES(?1, ?2, ?3, ?4)"
            " ON CONFLICT(fingerprint, key) DO UPDATE SET bytes = ?3, used = ?4",
    [USE] = "UPDATE pages SET used = ?4 WHERE fingerprint = ?1 AND key = ?2",
    [REMOVE] = "DELETE FROM pages WHERE fingerprint = ?1 AND key = ?2",
    [TOTAL] = "SELECT files, bytes FROM total",
    [NEWEST] = "SELECT ifnull(max(used), 0), 0 FROM pages",
    [ALL] = "SELECT fingerprint, key, bytes FROM pages",
    [OF] = "SELECT fingerprint, key, bytes FROM pages WHERE fingerprint = ?1",
    [OLD] = "SELECT fingerprint, key, bytes FROM pages WHERE used < ?4 ORDER BY used, id DESC",
    [FOREIGN] = "DELETE FROM pages WHERE length(fingerprint) != 16 OR length(key) != 16 OR typeof(bytes) != 'integer'"
                " OR bytes < 0",
    [CLAMP] = "UPDATE pages SET used = ?4 WHERE used > ?4",
    [RECOUNT] = "UPDATE total SET files = (SELECT count(*) FROM pages),"
                " bytes = (SELECT ifnull(sum(bytes), 0) FROM pages)",
};

_Static_assert(SPRY_COUNT(texts) == SPRY_KV_INDEX_STATEMENTS, "room for every statement");

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static spry_status fail_index(const spry_kv_index *index, spry_error *error)
{
    int code = index->db ? sqlite3_errcode(index->db) & 0xff : SQLITE_NOMEM;
    bool garbage = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR || code == SQLITE_MISMATCH ||
                   code == SQLITE_CONSTRAINT;
    return spry_fail(error, garbage ? SPRY_ERR_FORMAT : SPRY_ERR_FILE, "the index of the cache: %s",
                     index->db ? sqlite3_errmsg(index->db) : sqlite3_errstr(code));
}

static bool prepare(spry_kv_index *index)
{
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        if (sqlite3_prepare_v3(index->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &index->statements[i], NULL) !=
            SQLITE_OK)
            return false;
    return true;
}

static bool execute(spry_kv_index *index, const char *text)
{
    return sqlite3_exec(index->db, text, NULL, NULL, NULL) == SQLITE_OK;
}

/* Two processes may open a new folder at once, so the schema is created inside a transaction. The settings only affect
 * speed; where the file system does not support them (WAL over a network) the index works without. */
static bool set_up(spry_kv_index *index)
{
    sqlite3_busy_timeout(index->db, BUSY_MS);
    execute(index, settings);
    return execute(index, "BEGIN IMMEDIATE") && execute(index, schema) && execute(index, "COMMIT") && prepare(index);
}

spry_status spry_kv_index_open(spry_kv_index *index, const char *path, spry_error *error)
{
    *index = (spry_kv_index){0};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &index->db, flags, NULL) == SQLITE_OK && set_up(index))
        return SPRY_OK;
    spry_status status = fail_index(index, error);
    spry_kv_index_close(index);
    return status;
}

void spry_kv_index_close(spry_kv_index *index)
{
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        sqlite3_finalize(index->statements[i]);
    sqlite3_close(index->db);
    *index = (spry_kv_index){0};
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

typedef struct parameters {
    const spry_kv_file_id *id;
    int64_t bytes, time;
} parameters;

static void put_key(unsigned char blob[KEY_BYTES], spry_kv_key key)
{
    for (int i = 0; i < 8; i++) {
        blob[i] = (unsigned char)(key.high >> (56 - 8 * i));
        blob[8 + i] = (unsigned char)(key.low >> (56 - 8 * i));
    }
}

static spry_kv_key get_key(const unsigned char blob[KEY_BYTES])
{
    spry_kv_key key = {0};
    for (int i = 0; i < 8; i++) {
        key.high = key.high << 8 | blob[i];
        key.low = key.low << 8 | blob[8 + i];
    }
    return key;
}

/* Binds the statement's parameters; the number of its highest one determines which. */
static bool bind(sqlite3_stmt *statement, const parameters *given)
{
    unsigned char blob[KEY_BYTES];
    int highest = sqlite3_bind_parameter_count(statement);
    if (highest >= 1 && given->id) {
        put_key(blob, given->id->fingerprint);
        if (sqlite3_bind_blob(statement, 1, blob, KEY_BYTES, SQLITE_TRANSIENT) != SQLITE_OK)
            return false;
    }
    if (highest >= 2 && given->id) {
        put_key(blob, given->id->key);
        if (sqlite3_bind_blob(statement, 2, blob, KEY_BYTES, SQLITE_TRANSIENT) != SQLITE_OK)
            return false;
    }
    return (highest < 3 || sqlite3_bind_int64(statement, 3, given->bytes) == SQLITE_OK) &&
           (highest < 4 || sqlite3_bind_int64(statement, 4, given->time) == SQLITE_OK);
}

/* Runs a statement; the first two numbers of its first row go to `numbers` unless that is NULL. */
static spry_status run(spry_kv_index *index, int which, const parameters *given, int64_t numbers[2], spry_error *error)
{
    sqlite3_stmt *statement = index->statements[which];
    int code = bind(statement, given) ? sqlite3_step(statement) : SQLITE_ERROR;
    if (numbers && code == SQLITE_ROW) {
        numbers[0] = sqlite3_column_int64(statement, 0);
        numbers[1] = sqlite3_column_int64(statement, 1);
    }
    bool good = code == SQLITE_DONE || code == SQLITE_ROW;
    spry_status status = good ? SPRY_OK : fail_index(index, error);
    sqlite3_reset(statement);
    return status;
}

static bool visit_row(sqlite3_stmt *statement, spry_kv_index_visit visit, void *context)
{
    const unsigned char *fingerprint = sqlite3_column_blob(statement, 0), *key = sqlite3_column_blob(statement, 1);
    int64_t bytes = sqlite3_column_int64(statement, 2);
    if (!fingerprint || !key || sqlite3_column_bytes(statement, 0) != KEY_BYTES ||
        sqlite3_column_bytes(statement, 1) != KEY_BYTES || bytes < 0)
        return true; /* a row of another program */
    spry_kv_file_id id = {get_key(fingerprint), get_key(key)};
    return visit(context, &id, (uint64_t)bytes);
}

static spry_status each(spry_kv_index *index, int which, const parameters *given, spry_kv_index_visit visit,
                        void *context, spry_error *error)
{
    sqlite3_stmt *statement = index->statements[which];
    int code = bind(statement, given) ? sqlite3_step(statement) : SQLITE_ERROR;
    while (code == SQLITE_ROW && visit_row(statement, visit, context))
        code = sqlite3_step(statement);
    bool good = code == SQLITE_DONE || code == SQLITE_ROW;
    spry_status status = good ? SPRY_OK : fail_index(index, error);
    sqlite3_reset(statement);
    return status;
}

/* ---- what can be asked ------------------------------------------------------------------------------------------ */

spry_status spry_kv_index_begin(spry_kv_index *index, spry_error *error)
{
    return run(index, BEGIN, &(parameters){0}, NULL, error);
}

spry_status spry_kv_index_commit(spry_kv_index *index, spry_error *error)
{
    return run(index, COMMIT, &(parameters){0}, NULL, error);
}

void spry_kv_index_rollback(spry_kv_index *index)
{
    if (index->db && !sqlite3_get_autocommit(index->db))
        execute(index, "ROLLBACK");
}

spry_status spry_kv_index_put(spry_kv_index *index, const spry_kv_file_id *id, uint64_t bytes, int64_t used,
                              spry_error *error)
{
    return run(index, PUT, &(parameters){id, (int64_t)(bytes & INT64_MAX), used}, NULL, error);
}

spry_status spry_kv_index_use(spry_kv_index *index, const spry_kv_file_id *id, int64_t used, spry_error *error)
{
    return run(index, USE, &(parameters){.id = id, .time = used}, NULL, error);
}

spry_status spry_kv_index_remove(spry_kv_index *index, const spry_kv_file_id *id, spry_error *error)
{
    return run(index, REMOVE, &(parameters){.id = id}, NULL, error);
}

spry_status spry_kv_index_total(spry_kv_index *index, uint64_t *files, uint64_t *bytes, spry_error *error)
{
    int64_t numbers[2] = {0};
    spry_status status = run(index, TOTAL, &(parameters){0}, numbers, error);
    *files = numbers[0] > 0 ? (uint64_t)numbers[0] : 0;
    *bytes = numbers[1] > 0 ? (uint64_t)numbers[1] : 0;
    return status;
}

spry_status spry_kv_index_newest(spry_kv_index *index, int64_t *used, spry_error *error)
{
    int64_t numbers[2] = {0};
    spry_status status = run(index, NEWEST, &(parameters){0}, numbers, error);
    *used = numbers[0];
    return status;
}

spry_status spry_kv_index_each_of(spry_kv_index *index, spry_kv_key fingerprint, spry_kv_index_visit visit,
                                  void *context, spry_error *error)
{
    spry_kv_file_id id = {.fingerprint = fingerprint};
    return each(index, OF, &(parameters){.id = &id}, visit, context, error);
}

spry_status spry_kv_index_each_old(spry_kv_index *index, int64_t before, spry_kv_index_visit visit, void *context,
                                   spry_error *error)
{
    return each(index, OLD, &(parameters){.time = before}, visit, context, error);
}

/* All of them. */
static spry_status index_each(spry_kv_index *index, spry_kv_index_visit visit, void *context, spry_error *error)
{
    return each(index, ALL, &(parameters){0}, visit, context, error);
}

/* Removes invalid rows, limits times of last use to `now`, and recomputes the total. */
static spry_status index_tidy(spry_kv_index *index, int64_t now, spry_error *error)
{
    static const int steps[] = {FOREIGN, CLAMP, RECOUNT};
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < SPRY_COUNT(steps) && status == SPRY_OK; i++)
        status = run(index, steps[i], &(parameters){.time = now}, NULL, error);
    return status;
}

/* ---- sweeping a folder ------------------------------------------------------------------------------------------- */

/* The transaction is begun before the folder is listed. A writer renames its file first and writes its row afterwards,
 * so every row seen here has a file that the later listing shows; a row without one is stale. */

enum { IN_INDEX = 1, IN_BOTH };

static const uint64_t listing_ns = 2000000000u;

typedef struct sweep {
    spry_kv_index *index;
    const spry_directory *directory;
    spry_kv_keys rows;
    int64_t now;
    uint64_t deadline;
    bool whole;
    spry_status status;
    spry_error *error;
} sweep;

static void remove_leftover(const sweep *s, const char *name)
{
    spry_file_facts facts;
    if (spry_directory_facts(s->directory, name, &facts) == 0 && facts.regular &&
        llabs((long long)(s->now - facts.modified)) > SPRY_KV_SWEEP_AGE_SECONDS)
        spry_directory_remove(s->directory, name);
}

/* A short digest of fingerprint and key. */
static spry_kv_key digest(const spry_kv_file_id *id)
{
    XXH128_hash_t hash = XXH3_128bits(id, sizeof *id);
    return (spry_kv_key){hash.low64, hash.high64};
}

static bool note_row(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    (void)bytes;
    sweep *s = context;
    if (!spry_kv_keys_put(&s->rows, digest(id), IN_INDEX))
        s->status = spry_fail_memory(s->error, "the list of cached pages", s->rows.count * sizeof *id);
    return s->status == SPRY_OK;
}

static bool remove_dead_row(void *context, const spry_kv_file_id *id, uint64_t bytes)
{
    (void)bytes;
    sweep *s = context;
    if (spry_kv_keys_find(&s->rows, digest(id)) == IN_INDEX)
        s->status = spry_kv_index_remove(s->index, id, s->error);
    return s->status == SPRY_OK;
}

static spry_status note_file(sweep *s, const char *name, const spry_kv_file_id *id)
{
    spry_kv_key key = digest(id);
    spry_file_facts facts;
    if (spry_kv_keys_find(&s->rows, key)) {
        spry_kv_keys_put(&s->rows, key, IN_BOTH);
        return SPRY_OK;
    }
    if (spry_directory_facts(s->directory, name, &facts) != 0 || !facts.regular)
        return SPRY_OK;
    return spry_kv_index_put(s->index, id, facts.size, facts.modified, s->error);
}

static bool visit_name(void *context, const char *name)
{
    sweep *s = context;
    static const char ending[] = SPRY_DIRECTORY_UNFINISHED;
    spry_kv_file_id id;
    size_t length = strlen(name);
    if (spry_kv_file_parse(&id, name))
        s->status = note_file(s, name, &id);
    else if (length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0)
        remove_leftover(s, name);
    s->whole = spry_clock_ns() < s->deadline;
    return s->whole && s->status == SPRY_OK;
}

static spry_status compare(sweep *s)
{
    spry_status status = index_each(s->index, note_row, s, s->error);
    if (status != SPRY_OK || s->status != SPRY_OK)
        return status != SPRY_OK ? status : s->status;
    int failure = spry_directory_each(s->directory, visit_name, s);
    if (s->status == SPRY_OK && s->whole && !failure)
        status = index_each(s->index, remove_dead_row, s, s->error);
    if (status != SPRY_OK || s->status != SPRY_OK)
        return status != SPRY_OK ? status : s->status;
    return index_tidy(s->index, s->now, s->error);
}

spry_status spry_kv_sweep(spry_kv_index *index, const spry_directory *directory, int64_t now, spry_error *error)
{
    sweep s = {.index = index, .directory = directory, .now = now, .whole = true, .error = error};
    s.deadline = spry_clock_ns() + listing_ns;
    spry_kv_keys_init(&s.rows);
    spry_status status = spry_kv_index_begin(index, error);
    if (status == SPRY_OK)
        status = compare(&s);
    if (status == SPRY_OK)
        status = spry_kv_index_commit(index, error);
    if (status != SPRY_OK)
        spry_kv_index_rollback(index);
    spry_kv_keys_deinit(&s.rows);
    return status;
}
