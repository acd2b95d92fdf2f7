/* Stored chats: what goes in comes out, several writers at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/file.h"
#include "support/store_scene.h"

/* ---- going in and coming out ------------------------------------------------------------------------------------- */

static void chats_come_back_as_they_were(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    set(&f.chat.model_path, "/caf\xE9/no-utf8.gguf");
    assert_int_equal(spry_conversation_set_system(&f.talk, SPRY_VIEW("Be \"brief\"."), &f.error), SPRY_OK);
    add(&f, "d\xC3\xA9j\xC3\xA0 'vu'; DROP TABLE chats", "\x1b[31m\n\t");
    assert_int_equal(save(&f, 0), SPRY_CHAT_SAVED);
    assert_int_equal(f.chat.id, 1);
    assert_true(f.chat.created > INT64_C(1600000000000) && f.chat.updated == f.chat.created);
    spry_chat_store_close(f.store);
    open_store(&f);
    spry_chat chat;
    spry_conversation talk;
    load(&f, &chat, &talk, 1);
    assert_string_equal(chat.title, "a title");
    assert_string_equal(chat.model, "tiny");
    assert_string_equal(chat.model_path, "/caf\xE9/no-utf8.gguf");
    assert_string_equal(chat.settings, "{\"top_k\": 3}");
    assert_int_equal(chat.revision, f.chat.revision);
    assert_true(chat.created == f.chat.created && chat.updated == f.chat.updated);
    assert_string_equal(spry_conversation_system(&talk), "Be \"brief\".");
    assert_int_equal(talk.count, 2);
    assert_string_equal(talk.slots[1].content, "d\xC3\xA9j\xC3\xA0 'vu'; DROP TABLE chats");
    assert_string_equal(talk.slots[2].content, "\x1b[31m\n\t");
    spry_chat_deinit(&chat);
    spry_conversation_deinit(&talk);
    finish(&f);
}

static void chats_grow_and_shrink(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    add(&f, "one", "two");
    assert_int_equal(save(&f, 0), SPRY_CHAT_SAVED);
    tamper("UPDATE messages SET content = 'kept' WHERE number = 1");
    add(&f, "three", "four");
    set(&f.chat.title, "renamed");
    assert_int_equal(save(&f, 2), SPRY_CHAT_SAVED);
    expect_turns(&f, 1, (const char *const[]){"kept", "two", "three", "four"}, 4);
    spry_conversation_drop_last(&f.talk);
    spry_conversation_drop_last(&f.talk);
    assert_int_equal(save(&f, 2), SPRY_CHAT_SAVED);
    expect_turns(&f, 1, (const char *const[]){"kept", "two"}, 2);
    assert_int_equal(save(&f, 0), SPRY_CHAT_SAVED);
    expect_turns(&f, 1, (const char *const[]){"one", "two"}, 2);
    spry_chat chat;
    spry_conversation talk;
    load(&f, &chat, &talk, 1);
    assert_string_equal(chat.title, "renamed");
    assert_null(spry_conversation_system(&talk));
    spry_chat_deinit(&chat);
    spry_conversation_deinit(&talk);
    finish(&f);
}

typedef struct seen {
    int64_t ids[8];
    size_t count, stop_at;
} seen;

static bool see(void *user, const spry_chat *chat)
{
    seen *s = user;
    s->ids[s->count++] = chat->id;
    assert_string_equal(chat->title, "a title");
    assert_int_equal(chat->turns, 2);
    return s->count != s->stop_at;
}

static void lists_start_with_the_newest(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    seen all = {0}, two = {0}, stopped = {.stop_at = 1};
    int64_t latest = 7;
    assert_int_equal(spry_chat_store_latest(f.store, &latest, &f.error), SPRY_OK);
    assert_int_equal(latest, 0);
    for (int i = 0; i < 3; i++)
        save_another(&f, "hello");
    tamper("UPDATE chats SET updated = updated + 5000 WHERE id = 2");
    assert_int_equal(spry_chat_store_latest(f.store, &latest, &f.error), SPRY_OK);
    assert_int_equal(latest, 2);
    assert_int_equal(spry_chat_store_list(f.store, 0, see, &all, &f.error), SPRY_OK);
    assert_int_equal(all.count, 3);
    assert_true(all.ids[0] == 2 && all.ids[1] == 3 && all.ids[2] == 1);
    assert_int_equal(spry_chat_store_list(f.store, 2, see, &two, &f.error), SPRY_OK);
    assert_int_equal(two.count, 2);
    assert_int_equal(spry_chat_store_list(f.store, 0, see, &stopped, &f.error), SPRY_OK);
    assert_int_equal(stopped.count, 1);
    finish(&f);
}

static void deleting_is_all_or_nothing(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    size_t deleted = 9;
    for (int i = 0; i < 3; i++)
        save_another(&f, "hello");
    assert_int_equal(spry_chat_store_delete(f.store, &deleted, (int64_t[]){1, 44}, 2, &f.error), SPRY_ERR_INPUT);
    assert_non_null(strstr(f.error.message, "no chat 44"));
    assert_int_equal(deleted, 0);
    assert_int_equal(spry_chat_store_delete(f.store, &deleted, (int64_t[]){3, 1, 3}, 3, &f.error), SPRY_OK);
    assert_int_equal(deleted, 2);
    seen left = {0};
    assert_int_equal(spry_chat_store_list(f.store, 0, see, &left, &f.error), SPRY_OK);
    assert_true(left.count == 1 && left.ids[0] == 2);
    assert_int_equal(save_another(&f, "again"), 4); /* 3 is never given again */
    assert_int_equal(spry_chat_store_load(f.store, &f.chat, &f.talk, 3, &f.error), SPRY_ERR_INPUT);
    assert_int_equal(f.chat.id, 4); /* and failing to load changes nothing */
    assert_int_equal(f.talk.count, 2);
    finish(&f);
}

static void deleted_text_is_gone_from_the_disk(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    size_t deleted;
    save_another(&f, "a very particular secret");
    save_another(&f, "something harmless");
    assert_int_equal(spry_chat_store_delete(f.store, &deleted, (int64_t[]){1}, 1, &f.error), SPRY_OK);
    spry_buffer bytes;
    spry_buffer_init(&bytes, 1 << 22);
    assert_int_equal(spry_file_read(&bytes, store_path, &f.error), SPRY_OK);
    spry_file_read(&bytes, scratch_path(&place, "chats.db-wal"), &f.error);
    assert_non_null(memmem(bytes.data, bytes.size, "harmless", 8));
    assert_null(memmem(bytes.data, bytes.size, "particular", 10));
    spry_buffer_deinit(&bytes);
    finish(&f);
}

static void titles(void **state)
{
    (void)state;
    static const struct {
        const char *message, *title;
    } cases[] = {
        {"Hello", "Hello"},
        {"", ""},
        {" \n\t ", ""},
        {"  one\n\ntwo\t three ", "one two three"},
        {"an\x1b[31m escape\x7f\xC2\x9B!", "an [31m escape !"},
        {"123456789 123456789 123456789 123456789 123456789 123456789 and more",
         "123456789 123456789 123456789 123456789 123456789 123456789"},
        {"123456789 123456789 123456789 123456789 123456789 1234567890",
         "123456789 123456789 123456789 123456789 123456789 1234567890"},
        {"123456789 123456789 123456789 123456789 123456789 12345678901",
         "123456789 123456789 123456789 123456789 123456789"},
        {"1234567890123456789012345678901234567890123456789012345678901234567890",
         "123456789012345678901234567890123456789012345678901234567890"},
    };
    spry_buffer title;
    spry_buffer_init(&title, 1024);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_chat_make_title(&title, spry_view_of(cases[i].message));
        assert_string_equal(spry_buffer_view(&title).data, cases[i].title);
    }
    char wide[2 * 80 + 1] = "";
    for (size_t i = 0; i < 80; i++)
        memcpy(wide + 2 * i, "\xC3\xA9", 3);
    spry_chat_make_title(&title, spry_view_of(wide));
    assert_int_equal(title.size, 2 * SPRY_CHAT_TITLE_MAX); /* characters, not bytes */
    spry_buffer_deinit(&title);
}

/* ---- several at once --------------------------------------------------------------------------------------------- */

static void changes_from_elsewhere_are_noticed(void **state)
{
    (void)state;
    fixture f, other = {0};
    begin(&f);
    add(&f, "one", "two");
    save(&f, 0);
    open_store(&other);
    load(&other, &other.chat, &other.talk, 1);
    add(&other, "theirs", "too");
    assert_int_equal(save(&other, 2), SPRY_CHAT_SAVED);
    add(&f, "ours", "too");
    assert_int_equal(save(&f, 2), SPRY_CHAT_CHANGED);
    expect_turns(&f, 1, (const char *const[]){"one", "two", "theirs", "too"}, 4);
    f.chat.id = 0;
    assert_int_equal(save(&f, 0), SPRY_CHAT_SAVED);
    expect_turns(&f, 2, (const char *const[]){"one", "two", "ours", "too"}, 4);
    size_t deleted;
    assert_int_equal(spry_chat_store_delete(other.store, &deleted, (int64_t[]){2}, 1, &other.error), SPRY_OK);
    assert_int_equal(save(&f, 4), SPRY_CHAT_GONE);
    assert_int_equal(spry_chat_store_load(f.store, &f.chat, &f.talk, 2, &f.error), SPRY_ERR_INPUT);
    spry_chat_store_close(other.store);
    spry_chat_deinit(&other.chat);
    spry_conversation_deinit(&other.talk);
    finish(&f);
}

enum { WRITERS = 4, CHATS_EACH = 10 };

static void *write_many(void *unused)
{
    (void)unused;
    fixture f;
    begin(&f); /* opening, too, happens at once */
    for (int i = 0; i < CHATS_EACH; i++)
        save_another(&f, "hello");
    spry_chat_store_close(f.store);
    spry_chat_deinit(&f.chat);
    spry_conversation_deinit(&f.talk);
    return NULL;
}

static void threads_write_at_once(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    fixture f;
    size_t count = 0;
    for (size_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, NULL), 0);
    for (size_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    begin(&f);
    assert_int_equal(spry_chat_store_list(f.store, 0, count_chats, &count, &f.error), SPRY_OK);
    assert_int_equal(count, WRITERS * CHATS_EACH);
    finish(&f);
}

static void a_writer_that_does_not_finish_is_named(void **state)
{
    (void)state;
    fixture f;
    spry_chat_saved saved;
    begin(&f);
    add(&f, "one", "two");
    sqlite3 *raw = NULL;
    assert_int_equal(sqlite3_open(store_path, &raw), SQLITE_OK);
    assert_int_equal(sqlite3_exec(raw, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(spry_chat_store_save(f.store, &saved, &f.chat, &f.talk, 0, &f.error), SPRY_ERR_FILE);
    assert_non_null(strstr(f.error.message, "another program is writing"));
    assert_int_equal(f.chat.id, 0);
    assert_int_equal(sqlite3_close(raw), SQLITE_OK);
    assert_int_equal(save(&f, 0), SPRY_CHAT_SAVED);
    finish(&f);
}

static void what_is_saved_survives_a_kill(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fixture f;
        begin(&f);
        save_another(&f, "one");
        add(&f, "three", "four");
        save(&f, 2);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    fixture f;
    begin(&f);
    expect_turns(&f, 1, (const char *const[]){"one", "an answer", "three", "four"}, 4);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_come_back_as_they_were),
        cmocka_unit_test(chats_grow_and_shrink),
        cmocka_unit_test(lists_start_with_the_newest),
        cmocka_unit_test(deleting_is_all_or_nothing),
        cmocka_unit_test(deleted_text_is_gone_from_the_disk),
        cmocka_unit_test(titles),
        cmocka_unit_test(changes_from_elsewhere_are_noticed),
        cmocka_unit_test(threads_write_at_once),
        cmocka_unit_test(a_writer_that_does_not_finish_is_named),
        cmocka_unit_test(what_is_saved_survives_a_kill),
    };
    return store_main(tests, sizeof tests / sizeof *tests);
}
