/* Stored chats: records, and the SQLite file that holds them. */
#include "chat/chat_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

bool spry_chat_set(char **field, spry_view text)
{
    char *copy = strndup(text.data, text.size);
    if (!copy)
        return false;
    free(*field);
    *field = copy;
    return true;
}

void spry_chat_deinit(spry_chat *chat)
{
    free(chat->title);
    free(chat->model);
    free(chat->model_path);
    free(chat->settings);
    *chat = (spry_chat){0};
}

static bool is_gap(uint32_t character)
{
    return character <= 0x20 || (character >= 0x7F && character <= 0xA0);
}

void spry_chat_make_title(spry_buffer *out, spry_view message)
{
    size_t characters = 0, word_end = 0; /* word_end: where a long title can be truncated */
    bool gap = false;
    spry_buffer_clear(out);
    for (size_t i = 0, n; i < message.size; i += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, message.data + i, message.size - i);
        if (n == 0 || is_gap(character)) {
            n = n ? n : 1;
            gap = out->size > 0;
            continue;
        }
        if (gap)
            word_end = out->size;
        if (characters + gap + 1 > SPRY_CHAT_TITLE_MAX) {
            if (word_end)
                out->data[out->size = word_end] = 0;
            return;
        }
        if (gap)
            spry_buffer_append(out, " ", 1);
        spry_buffer_append(out, message.data + i, n);
        characters += gap + (size_t)1;
        gap = false;
    }
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

/* Uses SQLite. The application id identifies the file, and user_version is the number of migration steps applied.
 * Statements are prepared on first use and cached. A failed statement leaves its error in the connection, from which
 * fail_store builds the message. */

enum { BUSY_MS = 5000, VALUE_BYTES_MAX = 256 << 20, APPLICATION_ID = 0x73707279 /* "spry" */ };

/* Step i migrates version i to version i + 1. A released step never changes. */
static const char *const steps[] = {
    "CREATE TABLE chats ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, revision INTEGER NOT NULL, title TEXT NOT NULL, model TEXT NOT NULL,"
    " model_path TEXT NOT NULL, system TEXT, settings TEXT NOT NULL, created INTEGER NOT NULL,"
    " updated INTEGER NOT NULL);"
    "CREATE INDEX chats_updated ON chats (updated, id);"
    "CREATE TABLE messages ("
    " chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE, number INTEGER NOT NULL, role TEXT NOT NULL,"
    " content TEXT NOT NULL, PRIMARY KEY (chat, number));",
};

enum { VERSION = SPRY_COUNT(steps) };

typedef enum statement_name {
    LIST,
    LATEST,
    FIND,
    MESSAGES,
    EXISTS,
    INSERT_CHAT,
    UPDATE_CHAT,
    CUT_MESSAGES,
    INSERT_MESSAGE,
    DELETE_CHAT,
    N_STATEMENTS
} statement_name;

#define CHAT_COLUMNS                                                                                                   \
    "id, revision, title, model, model_path, settings, created, updated,"                                              \
    " (SELECT count(*) FROM messages WHERE chat = chats.id)"

static const char *const statements[N_STATEMENTS] = {
    [LIST] = "SELECT " CHAT_COLUMNS " FROM chats WHERE ?2 IS NULL OR instr(lower(title), lower(?2)) OR EXISTS"
             " (SELECT 1 FROM messages WHERE chat = chats.id AND instr(lower(content), lower(?2)))"
             " ORDER BY updated DESC, id DESC LIMIT ?1",
    [LATEST] = "SELECT id FROM chats ORDER BY updated DESC, id DESC LIMIT 1",
    [FIND] = "SELECT " CHAT_COLUMNS ", system FROM chats WHERE id = ?1",
    [MESSAGES] = "SELECT role, content FROM messages WHERE chat = ?1 ORDER BY number",
    [EXISTS] = "SELECT 1 FROM chats WHERE id = ?1",
    [INSERT_CHAT] = "INSERT INTO chats (revision, title, model, model_path, system, settings, created, updated)"
                    " VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    [UPDATE_CHAT] = "UPDATE chats SET revision = revision + 1, title = ?1, model = ?2, model_path = ?3, system = ?4,"
                    " settings = ?5, updated = ?6 WHERE id = ?7 AND revision = ?8",
    [CUT_MESSAGES] = "DELETE FROM messages WHERE chat = ?1 AND number > ?2",
    [INSERT_MESSAGE] = "INSERT INTO messages (chat, number, role, content) VALUES (?1, ?2, ?3, ?4)",
    [DELETE_CHAT] = "DELETE FROM chats WHERE id = ?1",
};

struct spry_chat_store {
    sqlite3 *database;
    sqlite3_stmt *prepared[N_STATEMENTS];
    char *path;
};

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static spry_status fail_store(const spry_chat_store *store, spry_error *error)
{
    sqlite3 *database = store->database;
    const char *path = store->path;
    int system_error = sqlite3_system_errno(database);
    const char *reason = system_error ? strerror(system_error) : sqlite3_errmsg(database);
    switch (sqlite3_errcode(database) & 0xFF) {
    case SQLITE_NOMEM: return spry_fail(error, SPRY_ERR_MEMORY, "%s: not enough memory to use this file", path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return spry_fail(error, SPRY_ERR_FILE, "%s: another program is writing to it and did not finish in %d seconds",
                         path, BUSY_MS / 1000);
    case SQLITE_FULL: return spry_fail(error, SPRY_ERR_FILE, "%s: cannot write: the disk is full", path);
    case SQLITE_READONLY: return spry_fail(error, SPRY_ERR_FILE, "%s: cannot be written to", path);
    case SQLITE_CANTOPEN:
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot open it, or make files beside it: %s", path, reason);
    case SQLITE_NOTADB: return spry_fail(error, SPRY_ERR_FORMAT, "%s: is not a file of stored chats", path);
    case SQLITE_CORRUPT:
    case SQLITE_ERROR: /* a table or column is missing */
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: is damaged (%s): move it away to start a new one", path,
                         sqlite3_errmsg(database));
    case SQLITE_TOOBIG: return spry_fail(error, SPRY_ERR_INPUT, "%s: the text is too long to be stored", path);
    default: return spry_fail(error, SPRY_ERR_FILE, "%s: cannot read or write: %s", path, reason);
    }
}

static spry_status fail_unknown(const spry_chat_store *store, int64_t id, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_INPUT, "there is no chat %" PRId64 " in %s", id, store->path);
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static spry_status execute(spry_chat_store *store, const char *sql, spry_error *error)
{
    return sqlite3_exec(store->database, sql, NULL, NULL, NULL) == SQLITE_OK ? SPRY_OK : fail_store(store, error);
}

/* The statement, ready for its arguments; NULL when it cannot be prepared. */
static sqlite3_stmt *statement(spry_chat_store *store, statement_name name)
{
    sqlite3_stmt **prepared = &store->prepared[name];
    if (!*prepared)
        sqlite3_prepare_v3(store->database, statements[name], -1, SQLITE_PREPARE_PERSISTENT, prepared, NULL);
    return *prepared;
}

/* Binding fails only when memory is short; the step then stores NULL, which the tables refuse. */
static void bind_text(sqlite3_stmt *run, int index, const char *text)
{
    if (text)
        sqlite3_bind_text64(run, index, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(run, index);
}

/* Ends a statement and converts the result of its last step to a status. */
static spry_status finish_statement(spry_chat_store *store, sqlite3_stmt *run, int result, spry_error *error)
{
    spry_status status = result == SQLITE_DONE || result == SQLITE_ROW ? SPRY_OK : fail_store(store, error);
    if (run) {
        sqlite3_reset(run);
        sqlite3_clear_bindings(run);
    }
    return status;
}

/* Runs a statement without result rows. */
static spry_status run_once(spry_chat_store *store, sqlite3_stmt *run, spry_error *error)
{
    return finish_statement(store, run, run ? sqlite3_step(run) : SQLITE_ERROR, error);
}

/* A transaction: begin, then end with the status of the work in between. */
static spry_status begin(spry_chat_store *store, bool to_write, spry_error *error)
{
    return execute(store, to_write ? "BEGIN IMMEDIATE" : "BEGIN", error);
}

static spry_status end(spry_chat_store *store, spry_status status, bool commit, spry_error *error)
{
    if (status == SPRY_OK && commit)
        status = execute(store, "COMMIT", error);
    if (!sqlite3_get_autocommit(store->database))
        sqlite3_exec(store->database, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static spry_status number_of(spry_chat_store *store, int64_t *out, const char *sql, spry_error *error)
{
    sqlite3_stmt *run = NULL;
    int result = sqlite3_prepare_v2(store->database, sql, -1, &run, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(run);
    *out = result == SQLITE_ROW ? sqlite3_column_int64(run, 0) : 0;
    spry_status status = finish_statement(store, run, result, error);
    sqlite3_finalize(run);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static spry_status check_file(const char *path, bool create, spry_error *error)
{
    struct stat facts;
    if (stat(path, &facts) == 0) {
        if (!S_ISREG(facts.st_mode))
            return spry_fail(error, SPRY_ERR_FILE, "%s: is not a regular file", path);
        return SPRY_OK;
    }
    if (errno != ENOENT || !create)
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot open: %s", path, strerror(errno));
    /* SQLite would create it readable by others. */
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0 && errno == EEXIST) /* another process has made it, or it is a link to nothing */
        return check_file(path, false, error);
    if (descriptor < 0)
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot create: %s", path, strerror(errno));
    close(descriptor);
    return SPRY_OK;
}

/* SQLite interprets some names (":memory:", "file:..."), but no path with a folder. */
static char *plain_path(const char *path)
{
    spry_buffer plain;
    spry_buffer_init(&plain, strlen(path) + sizeof "./");
    spry_buffer_format(&plain, "%s%s", path[0] == '/' ? "" : "./", path);
    return plain.data; /* the caller owns the buffer's memory */
}

static spry_status connect(spry_chat_store *store, spry_error *error)
{
    char *path = plain_path(store->path);
    int result = SQLITE_NOMEM;
    if (path)
        result = sqlite3_open_v2(path, &store->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    free(path);
    if (!store->database)
        return spry_fail_memory(error, "the file of chats", 0);
    if (result != SQLITE_OK)
        return fail_store(store, error);
    sqlite3_busy_timeout(store->database, BUSY_MS);
    sqlite3_limit(store->database, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    sqlite3_db_config(store->database, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return execute(store, "PRAGMA trusted_schema = 0; PRAGMA foreign_keys = 1; PRAGMA secure_delete = 1;", error);
}

/* The file's version, after checking that it is ours or empty. Called in a transaction: another process may be creating
 * its tables. */
static spry_status read_version(spry_chat_store *store, int64_t *version, spry_error *error)
{
    int64_t owner = 0, tables = 0;
    spry_status status = number_of(store, version, "PRAGMA user_version", error);
    if (status == SPRY_OK)
        status = number_of(store, &owner, "PRAGMA application_id", error);
    if (status == SPRY_OK)
        status = number_of(store, &tables, "SELECT count(*) FROM sqlite_master", error);
    if (status != SPRY_OK)
        return status;
    bool empty = *version == 0 && owner == 0 && tables == 0;
    if (!empty && (owner != APPLICATION_ID || *version < 1))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: is a database of another program", store->path);
    if (*version > VERSION)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s: was written by a newer spry (version %" PRId64 " of the file; this one knows %d)",
                         store->path, *version, VERSION);
    return SPRY_OK;
}

static spry_status find_version(spry_chat_store *store, int64_t *version, spry_error *error)
{
    spry_status status = begin(store, false, error);
    if (status != SPRY_OK)
        return status;
    return end(store, read_version(store, version, error), true, error);
}

/* Another process may do the same, so the version is read again inside the write transaction. */
static spry_status upgrade(spry_chat_store *store, spry_error *error)
{
    int64_t version = 0;
    spry_status status = begin(store, true, error);
    if (status != SPRY_OK)
        return status;
    status = read_version(store, &version, error);
    for (int64_t i = version; status == SPRY_OK && i < VERSION; i++)
        status = execute(store, steps[i], error);
    if (status == SPRY_OK) {
        char sql[96];
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;", APPLICATION_ID, VERSION);
        status = execute(store, sql, error);
    }
    return end(store, status, true, error);
}

spry_status spry_chat_store_open(spry_chat_store **out, const char *path, bool create, spry_error *error)
{
    if (!path[0])
        return spry_fail(error, SPRY_ERR_INPUT, "the name of the file of chats is empty");
    spry_status status = check_file(path, create, error);
    if (status != SPRY_OK)
        return status;
    spry_chat_store *store = calloc(1, sizeof *store);
    if (!store || !(store->path = strdup(path))) {
        spry_chat_store_close(store);
        return spry_fail_memory(error, "the file of chats", sizeof *store);
    }
    int64_t version = 0;
    status = connect(store, error);
    if (status == SPRY_OK)
        status = find_version(store, &version, error);
    if (status == SPRY_OK && version < VERSION)
        status = upgrade(store, error);
    if (status != SPRY_OK) {
        spry_chat_store_close(store);
        return status;
    }
    /* Allows readers and a writer at the same time. The file also works where that is not possible. */
    sqlite3_exec(store->database, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    *out = store;
    return SPRY_OK;
}

void spry_chat_store_close(spry_chat_store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(store->prepared[i]);
    sqlite3_close(store->database);
    free(store->path);
    free(store);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A column's text as valid UTF-8, owned; NULL: no memory. */
static char *column_text(sqlite3_stmt *run, int column)
{
    const void *data = sqlite3_column_text(run, column);
    size_t size = data ? (size_t)sqlite3_column_bytes(run, column) : 0;
    spry_buffer text;
    spry_buffer_init(&text, 3 * size + 1);
    spry_buffer_text(&text, "");
    if (size)
        spry_utf8_append_valid(&text, (spry_view){data, size});
    if (text.failed)
        spry_buffer_deinit(&text);
    return text.data; /* the caller owns the buffer's memory */
}

static spry_status read_chat(const spry_chat_store *store, spry_chat *out, sqlite3_stmt *run, spry_error *error)
{
    const char *path = (const char *)sqlite3_column_text(run, 4);
    *out = (spry_chat){.id = sqlite3_column_int64(run, 0),
                       .revision = sqlite3_column_int64(run, 1),
                       .title = column_text(run, 2),
                       .model = column_text(run, 3),
                       .model_path = strdup(path ? path : ""),
                       .settings = column_text(run, 5),
                       .created = sqlite3_column_int64(run, 6),
                       .updated = sqlite3_column_int64(run, 7),
                       .turns = (size_t)sqlite3_column_int64(run, 8)};
    if (out->title && out->model && out->model_path && out->settings)
        return SPRY_OK;
    spry_chat_deinit(out);
    return spry_fail(error, SPRY_ERR_MEMORY, "%s: not enough memory to read a chat", store->path);
}

spry_status spry_chat_store_list(spry_chat_store *store, size_t limit, spry_chat_visit visit, void *user,
                                 spry_error *error)
{
    return spry_chat_store_search(store, limit, NULL, visit, user, error);
}

spry_status spry_chat_store_search(spry_chat_store *store, size_t limit, const char *text, spry_chat_visit visit,
                                   void *user, spry_error *error)
{
    sqlite3_stmt *run = statement(store, LIST);
    int result = SQLITE_ERROR;
    bool more = true;
    if (run) {
        sqlite3_bind_int64(run, 1, limit && limit < INT64_MAX ? (int64_t)limit : -1);
        bind_text(run, 2, text && *text ? text : NULL);
    }
    while (run && more && (result = sqlite3_step(run)) == SQLITE_ROW) {
        spry_chat chat;
        spry_status status = read_chat(store, &chat, run, error);
        if (status != SPRY_OK) {
            sqlite3_reset(run);
            return status;
        }
        more = visit(user, &chat);
        spry_chat_deinit(&chat);
    }
    return finish_statement(store, run, result, error);
}

spry_status spry_chat_store_latest(spry_chat_store *store, int64_t *id, spry_error *error)
{
    sqlite3_stmt *run = statement(store, LATEST);
    int result = run ? sqlite3_step(run) : SQLITE_ERROR;
    *id = result == SQLITE_ROW ? sqlite3_column_int64(run, 0) : 0;
    return finish_statement(store, run, result, error);
}

static spry_status read_facts(spry_chat_store *store, spry_chat *chat, spry_conversation *conversation, int64_t id,
                              spry_error *error)
{
    sqlite3_stmt *run = statement(store, FIND);
    if (run)
        sqlite3_bind_int64(run, 1, id);
    int result = run ? sqlite3_step(run) : SQLITE_ERROR;
    spry_status status = SPRY_OK;
    if (result == SQLITE_DONE)
        status = fail_unknown(store, id, error);
    if (result == SQLITE_ROW)
        status = read_chat(store, chat, run, error);
    if (result == SQLITE_ROW && status == SPRY_OK) {
        char *system = column_text(run, 9);
        status = system ? spry_conversation_set_system(conversation, spry_view_of(system), error)
                        : spry_fail_memory(error, "the system message", 0);
        free(system);
    }
    spry_status settled = finish_statement(store, run, result, status == SPRY_OK ? error : NULL);
    return status == SPRY_OK ? settled : status;
}

static spry_status read_message(const spry_chat_store *store, spry_conversation *conversation, sqlite3_stmt *run,
                                int64_t id, spry_error *error)
{
    const char *role = spry_conversation_role((const char *)sqlite3_column_text(run, 0));
    if (!role)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: is damaged: turn %zu of chat %" PRId64 " has no known role",
                         store->path, conversation->count + 1, id);
    char *content = column_text(run, 1);
    if (!content)
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: not enough memory to read chat %" PRId64, store->path, id);
    spry_status status = spry_conversation_add(conversation, role, spry_view_of(content), error);
    free(content);
    return status;
}

static spry_status read_messages(spry_chat_store *store, spry_conversation *conversation, int64_t id, spry_error *error)
{
    sqlite3_stmt *run = statement(store, MESSAGES);
    int result = SQLITE_ERROR;
    if (run)
        sqlite3_bind_int64(run, 1, id);
    while (run && (result = sqlite3_step(run)) == SQLITE_ROW) {
        spry_status status = read_message(store, conversation, run, id, error);
        if (status != SPRY_OK) {
            sqlite3_reset(run);
            return status;
        }
    }
    return finish_statement(store, run, result, error);
}

spry_status spry_chat_store_load(spry_chat_store *store, spry_chat *chat, spry_conversation *conversation, int64_t id,
                                 spry_error *error)
{
    spry_chat found = {0};
    spry_conversation talk = {0};
    spry_status status = begin(store, false, error);
    if (status == SPRY_OK)
        status = spry_conversation_init(&talk, error);
    if (status == SPRY_OK)
        status = read_facts(store, &found, &talk, id, error);
    if (status == SPRY_OK)
        status = read_messages(store, &talk, id, error);
    status = end(store, status, true, error);
    if (status == SPRY_OK) {
        spry_chat_deinit(chat);
        spry_conversation_deinit(conversation);
        *chat = found;
        *conversation = talk;
    } else {
        spry_chat_deinit(&found);
        spry_conversation_deinit(&talk);
    }
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static spry_status has_chat(spry_chat_store *store, bool *has, int64_t id, spry_error *error)
{
    sqlite3_stmt *run = statement(store, EXISTS);
    if (run)
        sqlite3_bind_int64(run, 1, id);
    int result = run ? sqlite3_step(run) : SQLITE_ERROR;
    *has = result == SQLITE_ROW;
    return finish_statement(store, run, result, error);
}

/* Inserts or updates the row; *id becomes its number. */
static spry_status write_chat(spry_chat_store *store, spry_chat_saved *saved, int64_t *id, const spry_chat *chat,
                              const char *system, int64_t now, spry_error *error)
{
    sqlite3_stmt *run = statement(store, chat->id ? UPDATE_CHAT : INSERT_CHAT);
    const char *const texts[] = {chat->title, chat->model, chat->model_path, system, chat->settings};
    for (int i = 0; run && i < (int)SPRY_COUNT(texts); i++)
        bind_text(run, i + 1, texts[i]);
    if (run)
        sqlite3_bind_int64(run, 6, now);
    if (run && chat->id) {
        sqlite3_bind_int64(run, 7, chat->id);
        sqlite3_bind_int64(run, 8, chat->revision);
    }
    spry_status status = run_once(store, run, error);
    if (status != SPRY_OK)
        return status;
    *id = chat->id ? chat->id : sqlite3_last_insert_rowid(store->database);
    if (chat->id && sqlite3_changes(store->database) == 0) {
        bool there = false;
        status = has_chat(store, &there, chat->id, error);
        *saved = there ? SPRY_CHAT_CHANGED : SPRY_CHAT_GONE;
    }
    return status;
}

static spry_status cut_messages(spry_chat_store *store, int64_t id, size_t kept, spry_error *error)
{
    sqlite3_stmt *run = statement(store, CUT_MESSAGES);
    if (run) {
        sqlite3_bind_int64(run, 1, id);
        sqlite3_bind_int64(run, 2, (int64_t)kept);
    }
    return run_once(store, run, error);
}

static spry_status add_message(spry_chat_store *store, int64_t id, size_t number, const spry_message *turn,
                               spry_error *error)
{
    sqlite3_stmt *run = statement(store, INSERT_MESSAGE);
    if (run) {
        sqlite3_bind_int64(run, 1, id);
        sqlite3_bind_int64(run, 2, (int64_t)number);
        bind_text(run, 3, turn->role);
        bind_text(run, 4, turn->content);
    }
    return run_once(store, run, error);
}

spry_status spry_chat_store_save(spry_chat_store *store, spry_chat_saved *saved, spry_chat *chat,
                                 const spry_conversation *conversation, size_t kept, spry_error *error)
{
    int64_t id = 0, now = now_ms();
    *saved = SPRY_CHAT_SAVED;
    spry_status status = begin(store, true, error);
    if (status != SPRY_OK)
        return status;
    status = write_chat(store, saved, &id, chat, spry_conversation_system(conversation), now, error);
    bool to_write = status == SPRY_OK && *saved == SPRY_CHAT_SAVED;
    if (to_write)
        status = cut_messages(store, id, kept, error);
    for (size_t i = kept + 1; to_write && status == SPRY_OK && i <= conversation->count; i++)
        status = add_message(store, id, i, &conversation->slots[i], error);
    status = end(store, status, *saved == SPRY_CHAT_SAVED, error);
    if (status != SPRY_OK || *saved != SPRY_CHAT_SAVED)
        return status;
    if (!chat->id)
        chat->created = now;
    chat->revision = chat->id ? chat->revision + 1 : 1;
    chat->id = id;
    chat->updated = now;
    chat->turns = conversation->count;
    return SPRY_OK;
}

static spry_status delete_one(spry_chat_store *store, size_t *deleted, const int64_t *ids, size_t index,
                              spry_error *error)
{
    for (size_t i = 0; i < index; i++)
        if (ids[i] == ids[index])
            return SPRY_OK;
    sqlite3_stmt *run = statement(store, DELETE_CHAT);
    if (run)
        sqlite3_bind_int64(run, 1, ids[index]);
    spry_status status = run_once(store, run, error);
    if (status == SPRY_OK && sqlite3_changes(store->database) == 0)
        return fail_unknown(store, ids[index], error);
    ++*deleted;
    return status;
}

spry_status spry_chat_store_delete(spry_chat_store *store, size_t *deleted, const int64_t *ids, size_t n_ids,
                                   spry_error *error)
{
    *deleted = 0;
    spry_status status = begin(store, true, error);
    if (status != SPRY_OK)
        return status;
    for (size_t i = 0; status == SPRY_OK && i < n_ids; i++)
        status = delete_one(store, deleted, ids, i, error);
    status = end(store, status, true, error);
    if (status != SPRY_OK)
        *deleted = 0;
    else /* also truncates the log, unless another process is reading; then it is truncated later */
        sqlite3_exec(store->database, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    return status;
}
