/* Stored chats where something is wrong: full disks, files that are no stores, damage, short memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#include "platform/file.h"
#include "support/store_scene.h"

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
        cmocka_unit_test(full_disks_lose_nothing),      cmocka_unit_test(files_that_are_no_stores),
        cmocka_unit_test(odd_names_are_files),          cmocka_unit_test(damaged_files),
        cmocka_unit_test(contents_that_no_store_wrote), cmocka_unit_test(memory_runs_short_anywhere),
    };
    watch_memory();
    return store_main(tests, sizeof tests / sizeof *tests);
}
