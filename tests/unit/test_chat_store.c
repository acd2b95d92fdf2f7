/* Stored chats: what goes in comes out, several writers at once, and files that are not what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat/chat_store.h"
#include "platform/file.h"
#include "support/scratch.h"

static scratch place;
static char store_path[SCRATCH_PATH]; /* of its own, because threads read it */

typedef struct fixture {
    spry_chat_store *store;
    spry_chat chat;
    spry_conversation talk;
    spry_error error;
} fixture;

static void open_store(fixture *f)
{
    spry_status status = spry_chat_store_open(&f->store, store_path, true, &f->error);
    if (status != SPRY_OK)
        fail_msg("%s", f->error.message);
}

static void set(char **field, const char *text)
{
    assert_true(spry_chat_set(field, spry_view_of(text)));
}

static void begin(fixture *f)
{
    *f = (fixture){0};
    open_store(f);
    assert_int_equal(spry_conversation_init(&f->talk, &f->error), SPRY_OK);
    set(&f->chat.title, "a title");
    set(&f->chat.model, "tiny");
    set(&f->chat.model_path, "/models/tiny.gguf");
    set(&f->chat.settings, "{\"top_k\": 3}");
}

static void finish(fixture *f)
{
    spry_chat_store_close(f->store);
    spry_chat_deinit(&f->chat);
    spry_conversation_deinit(&f->talk);
    scratch_clear(&place);
}

static void add(fixture *f, const char *question, const char *answer)
{
    assert_int_equal(spry_conversation_add(&f->talk, "user", spry_view_of(question), &f->error), SPRY_OK);
    assert_int_equal(spry_conversation_add(&f->talk, "assistant", spry_view_of(answer), &f->error), SPRY_OK);
}

static spry_chat_saved save(fixture *f, size_t kept)
{
    spry_chat_saved saved;
    if (spry_chat_store_save(f->store, &saved, &f->chat, &f->talk, kept, &f->error) != SPRY_OK)
        fail_msg("%s", f->error.message);
    return saved;
}

/* A new chat with one exchange; its id. */
static int64_t save_another(fixture *f, const char *question)
{
    spry_conversation_clear(&f->talk);
    f->chat.id = 0;
    add(f, question, "an answer");
    assert_int_equal(save(f, 0), SPRY_CHAT_SAVED);
    return f->chat.id;
}

static void load(fixture *f, spry_chat *chat, spry_conversation *talk, int64_t id)
{
    *chat = (spry_chat){0};
    assert_int_equal(spry_conversation_init(talk, &f->error), SPRY_OK);
    if (spry_chat_store_load(f->store, chat, talk, id, &f->error) != SPRY_OK)
        fail_msg("%s", f->error.message);
}

static void expect_turns(fixture *f, int64_t id, const char *const *texts, size_t count)
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
static void tamper(const char *sql)
{
    sqlite3 *raw = NULL;
    assert_int_equal(sqlite3_open(store_path, &raw), SQLITE_OK);
    if (sqlite3_exec(raw, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(raw));
    assert_int_equal(sqlite3_close(raw), SQLITE_OK);
}

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

static bool count_chats(void *user, const spry_chat *chat)
{
    (void)chat;
    ++*(size_t *)user;
    return true;
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

/* ---- disks and files --------------------------------------------------------------------------------------------- */

static void full_disks_lose_nothing(void **state)
{
    (void)state;
    fixture f;
    spry_chat_saved saved;
    begin(&f);
    save_another(&f, "one");
    char *large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, 'x', 1 << 20);
    large[(1 << 20) - 1] = 0;
    add(&f, large, "thanks");
    scratch_limit_files(1 << 19);
    assert_int_equal(spry_chat_store_save(f.store, &saved, &f.chat, &f.talk, 2, &f.error), SPRY_ERR_FILE);
    assert_non_null(strstr(f.error.message, "chats.db: cannot"));
    scratch_limit_files(RLIM_INFINITY);
    expect_turns(&f, 1, (const char *const[]){"one", "an answer"}, 2);
    assert_int_equal(save(&f, 2), SPRY_CHAT_SAVED);
    expect_turns(&f, 1, (const char *const[]){"one", "an answer", large, "thanks"}, 4);
    free(large);
    finish(&f);
}

static void refuse(const char *path, bool create, spry_status expected, const char *words)
{
    spry_error error;
    spry_chat_store *store = NULL;
    assert_int_equal(spry_chat_store_open(&store, path, create, &error), expected);
    assert_null(store);
    if (!strstr(error.message, words))
        fail_msg("no '%s' in '%s'", words, error.message);
}

static void files_that_are_no_stores(void **state)
{
    (void)state;
    fixture f;
    refuse("", true, SPRY_ERR_INPUT, "is empty");
    refuse(place.folder, true, SPRY_ERR_FILE, "not a regular file");
    refuse("/dev/null", true, SPRY_ERR_FILE, "not a regular file");
    refuse(store_path, false, SPRY_ERR_FILE, "No such file");
    refuse(scratch_path(&place, "none/chats.db"), true, SPRY_ERR_FILE, "cannot create");
    refuse(scratch_write(&place, "chats.db", "this is a text and no database at all, long enough to be one", 60), true,
           SPRY_ERR_FORMAT, "not a file of stored chats");
    scratch_clear(&place);
    tamper("CREATE TABLE recipes (name TEXT)");
    refuse(store_path, true, SPRY_ERR_FORMAT, "another program");
    scratch_clear(&place);
    begin(&f);
    save_another(&f, "one");
    spry_chat_store_close(f.store);
    tamper("PRAGMA user_version = 99");
    refuse(store_path, true, SPRY_ERR_UNSUPPORTED, "newer spry");
    tamper("PRAGMA user_version = 1; PRAGMA application_id = 7");
    refuse(store_path, true, SPRY_ERR_FORMAT, "another program");
    f.store = NULL;
    finish(&f);
    scratch_write(&place, "chats.db", "", 0); /* an empty file is an empty database */
    begin(&f);
    save_another(&f, "one");
    finish(&f);
}

static void odd_names_are_files(void **state)
{
    (void)state;
    char *here = getcwd(NULL, 0);
    assert_non_null(here);
    assert_int_equal(chdir(place.folder), 0);
    static const char *const names[] = {":memory:", "file:x?mode=memory", "a name.db"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        spry_error error;
        spry_chat_store *store = NULL;
        assert_int_equal(spry_chat_store_open(&store, names[i], true, &error), SPRY_OK);
        spry_chat_store_close(store);
        struct stat facts;
        assert_int_equal(stat(names[i], &facts), 0);
        assert_true(facts.st_size > 0);
        assert_int_equal(facts.st_mode & 0777, 0600);
    }
    assert_int_equal(chdir(here), 0);
    free(here);
    scratch_clear(&place);
}

/* Every page of the file is broken in turn: sentences, never a crash. */
static void damaged_files(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (int i = 0; i < 20; i++)
        save_another(&f, "hello");
    spry_chat_store_close(f.store);
    f.store = NULL;
    spry_buffer bytes;
    spry_buffer_init(&bytes, 1 << 22);
    assert_int_equal(spry_file_read(&bytes, store_path, &f.error), SPRY_OK);
    size_t refused = 0;
    for (size_t at = 0; at < bytes.size; at += 256) {
        spry_buffer broken;
        spry_buffer_init(&broken, 1 << 22);
        spry_buffer_append(&broken, bytes.data, bytes.size);
        memset(broken.data + at, 0xA5, 64);
        scratch_write(&place, "chats.db", broken.data, broken.size);
        spry_buffer_deinit(&broken);
        spry_chat_store *store = NULL;
        spry_status status = spry_chat_store_open(&store, store_path, true, &f.error);
        size_t count = 0;
        if (status == SPRY_OK)
            status = spry_chat_store_list(store, 0, count_chats, &count, &f.error);
        for (int64_t id = 1; status == SPRY_OK && id <= 20; id++)
            status = spry_chat_store_load(store, &f.chat, &f.talk, id, &f.error);
        spry_chat_store_close(store);
        refused += status != SPRY_OK && strlen(f.error.message) > 10;
    }
    assert_true(refused >= 4);
    spry_buffer_deinit(&bytes);
    finish(&f);
}

static void contents_that_no_store_wrote(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (int i = 0; i < 4; i++)
        save_another(&f, "hello");
    tamper("UPDATE messages SET content = CAST(x'41FF42' AS TEXT) WHERE chat = 1 AND number = 1;"
           "UPDATE messages SET content = 12.5 WHERE chat = 1 AND number = 2;"
           "UPDATE chats SET title = x'C328', model = '', settings = 'nonsense', created = -9223372036854775808,"
           " updated = 9223372036854775807 WHERE id = 1;"
           "UPDATE messages SET role = 'emperor' WHERE chat = 2 AND number = 2;"
           "DELETE FROM messages WHERE chat = 3;"
           "UPDATE messages SET content = CAST(x'41004200' AS TEXT) WHERE chat = 4 AND number = 1;");
    expect_turns(&f, 1,
                 (const char *const[]){"A\xEF\xBF\xBD"
                                       "B",
                                       "12.5"},
                 2);
    spry_chat chat;
    spry_conversation talk;
    load(&f, &chat, &talk, 1);
    assert_string_equal(chat.title, "\xEF\xBF\xBD(");
    spry_chat_deinit(&chat);
    spry_conversation_deinit(&talk);
    assert_int_equal(spry_chat_store_load(f.store, &f.chat, &f.talk, 2, &f.error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(f.error.message, "turn 2 of chat 2 has no known role"));
    expect_turns(&f, 3, NULL, 0);
    expect_turns(&f, 4, (const char *const[]){"A", "an answer"}, 2);
    tamper("DROP TABLE messages");
    assert_int_equal(spry_chat_store_load(f.store, &f.chat, &f.talk, 1, &f.error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(f.error.message, "is damaged"));
    finish(&f);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { FAILURE_STEP = 5 }; /* 1 tries every allocation, and takes its time */

static sqlite3_mem_methods usual_memory;
static long allocations_left = -1; /* until one fails; below 0 none does */

static bool runs_short(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

static void *allocate(int size)
{
    return runs_short() ? NULL : usual_memory.xMalloc(size);
}

static void *allocate_again(void *memory, int size)
{
    return runs_short() ? NULL : usual_memory.xRealloc(memory, size);
}

static void watch_memory(void)
{
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &usual_memory), SQLITE_OK);
    sqlite3_mem_methods watched = usual_memory;
    watched.xMalloc = allocate;
    watched.xRealloc = allocate_again;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &watched), SQLITE_OK);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* every allocation is one of ours */
}

/* Everything a store can do; stops at the first failure. */
static spry_status use_everything(fixture *f)
{
    spry_chat_saved saved;
    size_t count = 0, deleted;
    int64_t latest;
    f->chat.id = 0;
    spry_status status = spry_chat_store_open(&f->store, store_path, true, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_save(f->store, &saved, &f->chat, &f->talk, 0, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_save(f->store, &saved, &f->chat, &f->talk, 2, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_latest(f->store, &latest, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_list(f->store, 0, count_chats, &count, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_load(f->store, &f->chat, &f->talk, f->chat.id, &f->error);
    if (status == SPRY_OK)
        status = spry_chat_store_delete(f->store, &deleted, &f->chat.id, 1, &f->error);
    spry_chat_store_close(f->store);
    f->store = NULL;
    return status;
}

static void memory_runs_short_anywhere(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    add(&f, "one", "two");
    spry_chat_store_close(f.store);
    f.store = NULL;
    long failures = 0;
    for (bool short_of_it = true; short_of_it; failures += FAILURE_STEP) {
        scratch_clear(&place);
        allocations_left = failures;
        spry_status status = use_everything(&f);
        short_of_it = allocations_left < 0;
        allocations_left = -1;
        assert_true(failures < 10000);
        if (status != SPRY_OK && status != SPRY_ERR_MEMORY)
            fail_msg("allocation %ld: %s", failures, f.error.message);
        assert_int_equal(f.talk.count, 2);
        if (failures % (16 * FAILURE_STEP) == 0)
            assert_int_equal(use_everything(&f), SPRY_OK); /* the file is whole */
    }
    assert_true(failures > 50);
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
        cmocka_unit_test(full_disks_lose_nothing),
        cmocka_unit_test(files_that_are_no_stores),
        cmocka_unit_test(odd_names_are_files),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(contents_that_no_store_wrote),
        cmocka_unit_test(memory_runs_short_anywhere),
    };
    watch_memory();
    scratch_init(&place);
    snprintf(store_path, sizeof store_path, "%s", scratch_path(&place, "chats.db"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed)
        scratch_deinit(&place);
    return failed;
}
