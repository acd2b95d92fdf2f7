/* Any bytes in the rows of stored chats: what is loaded is valid UTF-8, or the chat is refused. The input is a title, a
 * model, a path, settings, a system message and turns, separated by bytes of value 0xFF. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "chat/chat_store.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static scratch place;
static spry_chat_store *store;
static sqlite3 *rows;

static void leave(void)
{
    sqlite3_close(rows);
    spry_chat_store_close(store);
    scratch_deinit(&place);
}

static void open_store(void)
{
    spry_error error;
    scratch_init(&place);
    if (spry_chat_store_open(&store, scratch_path(&place, "chats.db"), true, &error) != SPRY_OK ||
        sqlite3_open(place.path, &rows) != SQLITE_OK)
        abort();
    sqlite3_exec(rows, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    atexit(leave);
}

/* The next part of the input; empty at its end. */
static spry_view take(spry_view *rest)
{
    const char *end = rest->size ? memchr(rest->data, 0xFF, rest->size) : NULL;
    spry_view part = {rest->data, end ? (size_t)(end - rest->data) : rest->size};
    size_t used = part.size + (end != NULL);
    *rest = (spry_view){rest->data + used, rest->size - used};
    return part;
}

static void put(const char *sql, int number, spry_view *rest, int n_parts)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(rows, sql, -1, &statement, NULL) != SQLITE_OK)
        abort();
    sqlite3_bind_int(statement, 1, number);
    for (int i = 0; i < n_parts; i++) {
        spry_view part = take(rest);
        bool as_blob = part.size && part.data[0] == 1;
        if (as_blob)
            sqlite3_bind_blob(statement, i + 2, part.data, (int)part.size, SQLITE_TRANSIENT);
        else
            sqlite3_bind_text(statement, i + 2, part.data, (int)part.size, SQLITE_TRANSIENT);
    }
    sqlite3_step(statement);
    sqlite3_finalize(statement);
}

static void check(const char *text)
{
    if (text && !spry_utf8_valid(spry_view_of(text)))
        abort();
}

static bool visit(void *user, const spry_chat *chat)
{
    (void)user;
    check(chat->title);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_error error;
    if (!store)
        open_store();
    spry_view rest = {(const char *)data, size};
    sqlite3_exec(rows, "BEGIN; DELETE FROM messages; DELETE FROM chats", NULL, NULL, NULL);
    put("INSERT INTO chats VALUES (?, 1, ?, ?, ?, ?, ?, 5, 6)", 1, &rest, 5);
    for (int number = 0; rest.size && number < 20; number++)
        put("INSERT INTO messages (number, chat, role, content) VALUES (?, 1, ?, ?)", number, &rest, 2);
    sqlite3_exec(rows, "COMMIT", NULL, NULL, NULL);
    (void)spry_chat_store_list(store, 0, visit, NULL, &error);
    (void)spry_chat_store_search(store, 0, "a", visit, NULL, &error);
    spry_chat chat = {0};
    spry_conversation conversation;
    if (spry_conversation_init(&conversation, &error) != SPRY_OK)
        return 0;
    if (spry_chat_store_load(store, &chat, &conversation, 1, &error) == SPRY_OK)
        for (size_t i = 0; i <= conversation.count; i++)
            check(conversation.slots[i].content);
    spry_chat_deinit(&chat);
    spry_conversation_deinit(&conversation);
    return 0;
}
