/* A store of chats in a folder of its own. Include after cmocka.h. */
#ifndef SPRY_TESTS_STORE_SCENE_H
#define SPRY_TESTS_STORE_SCENE_H

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_store.h"
#include "support/scratch.h"

static scratch place;
static char store_path[SCRATCH_PATH]; /* of its own, because threads read it */

typedef struct fixture {
    spry_chat_store *store;
    spry_chat chat;
    spry_conversation talk;
    spry_error error;
} fixture;

static inline void open_store(fixture *f)
{
    spry_status status = spry_chat_store_open(&f->store, store_path, true, &f->error);
    if (status != SPRY_OK)
        fail_msg("%s", f->error.message);
}

static inline void set(char **field, const char *text)
{
    assert_true(spry_chat_set(field, spry_view_of(text)));
}

static inline void begin(fixture *f)
{
    *f = (fixture){0};
    open_store(f);
    assert_int_equal(spry_conversation_init(&f->talk, &f->error), SPRY_OK);
    set(&f->chat.title, "a title");
    set(&f->chat.model, "tiny");
    set(&f->chat.model_path, "/models/tiny.gguf");
    set(&f->chat.settings, "{\"top_k\": 3}");
}

static inline void finish(fixture *f)
{
    spry_chat_store_close(f->store);
    spry_chat_deinit(&f->chat);
    spry_conversation_deinit(&f->talk);
    scratch_clear(&place);
}

static inline void add(fixture *f, const char *question, const char *answer)
{
    assert_int_equal(spry_conversation_add(&f->talk, "user", spry_view_of(question), &f->error), SPRY_OK);
    assert_int_equal(spry_conversation_add(&f->talk, "assistant", spry_view_of(answer), &f->error), SPRY_OK);
}

static inline spry_chat_saved save(fixture *f, size_t kept)
{
    spry_chat_saved saved;
    if (spry_chat_store_save(f->store, &saved, &f->chat, &f->talk, kept, &f->error) != SPRY_OK)
        fail_msg("%s", f->error.message);
    return saved;
}

/* A new chat with one exchange; its id. */
static inline int64_t save_another(fixture *f, const char *question)
{
    spry_conversation_clear(&f->talk);
    f->chat.id = 0;
    add(f, question, "an answer");
    assert_int_equal(save(f, 0), SPRY_CHAT_SAVED);
    return f->chat.id;
}

static inline void load(fixture *f, spry_chat *chat, spry_conversation *talk, int64_t id)
{
    *chat = (spry_chat){0};
    assert_int_equal(spry_conversation_init(talk, &f->error), SPRY_OK);
    if (spry_chat_store_load(f->store, chat, talk, id, &f->error) != SPRY_OK)
        fail_msg("%s", f->error.message);
}

static inline void expect_turns(fixture *f, int64_t id, const char *const *texts, size_t count)
{
    spry_chat chat;
    spry_conversation talk;
    load(f, &chat, &talk, id);
    assert_int_equal(talk.count, count);
    assert_int_equal(chat.turns, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(talk.slots[i + 1].role, i % 2 ? "assistant" : "user");
        assert_string_equal(talk.slots[i + 1].content, texts[i]);
    }
    spry_chat_deinit(&chat);
    spry_conversation_deinit(&talk);
}

/* Changes the file behind the store's back. */
static inline void tamper(const char *sql)
{
    sqlite3 *raw = NULL;
    assert_int_equal(sqlite3_open(store_path, &raw), SQLITE_OK);
    if (sqlite3_exec(raw, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(raw));
    assert_int_equal(sqlite3_close(raw), SQLITE_OK);
}

static inline bool count_chats(void *user, const spry_chat *chat)
{
    (void)chat;
    ++*(size_t *)user;
    return true;
}

/* Runs tests of a program. */
static inline int store_main(const struct CMUnitTest *tests, size_t count)
{
    scratch_init(&place);
    snprintf(store_path, sizeof store_path, "%s", scratch_path(&place, "chats.db"));
    int failed = _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
    if (!failed)
        scratch_deinit(&place);
    return failed;
}

#endif
