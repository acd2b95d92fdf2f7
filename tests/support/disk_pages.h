/* Made-up pages for tests of the disk cache: page number i has a key, a parent, tokens and bytes that follow from i, so
 * whatever comes back from a disk can be checked without remembering anything. Include after cmocka.h. */
#ifndef SPRY_TESTS_DISK_PAGES_H
#define SPRY_TESTS_DISK_PAGES_H

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kv/kv_disk.h"
#include "kv/kv_disk_file.h"
#include "kv/kv_disk_index.h"
#include "support/hostile.h"
#include "support/scratch.h"

enum { DISK_PAGE_BYTES = 40000, DISK_FILE_BYTES = DISK_PAGE_BYTES + SPRY_KV_FILE_HEAD };

typedef struct made_page {
    spry_kv_disk_page page;
    int32_t tokens[SPRY_PAGE_TOKENS];
    unsigned char bytes[DISK_PAGE_BYTES];
} made_page;

static inline spry_kv_key disk_key(uint64_t number)
{
    uint64_t state = number * 2 + 1;
    spry_kv_key key = {hostile_random(&state), 0};
    key.high = hostile_random(&state);
    return key;
}

static inline void disk_page(made_page *made, uint64_t number)
{
    uint64_t state = number ^ 0x5eed;
    made->page = (spry_kv_disk_page){disk_key(number), disk_key(number + 1000000), made->tokens};
    for (size_t i = 0; i < SPRY_PAGE_TOKENS; i++)
        made->tokens[i] = (int32_t)(number * 100 + i);
    for (size_t i = 0; i < DISK_PAGE_BYTES; i++)
        made->bytes[i] = (unsigned char)hostile_random(&state);
}

/* What the cache said; and how often. */
typedef struct disk_talk {
    size_t count;
    char last[512];
} disk_talk;

static inline void disk_listen(void *user, int level, const char *sentence)
{
    disk_talk *talk = user;
    talk->count += level == SPRY_LOG_WARN;
    snprintf(talk->last, sizeof talk->last, "%s", sentence);
}

static inline spry_kv_disk_options disk_options(const char *folder, disk_talk *talk)
{
    return (spry_kv_disk_options){
        .folder = folder, .fingerprint = disk_key(42424242), .page_bytes = DISK_PAGE_BYTES, .log = {disk_listen, talk}};
}

static inline spry_kv_disk *disk_open(const spry_kv_disk_options *options)
{
    spry_kv_disk *disk = NULL;
    spry_error error = {0};
    if (spry_kv_disk_open(&disk, options, &error) != SPRY_OK)
        fail_msg("%s", error.message);
    return disk;
}

/* Hands a page over and waits until it is done with. */
static inline bool disk_store(spry_kv_disk *disk, uint64_t number)
{
    static made_page made;
    uint32_t ticket;
    disk_page(&made, number);
    if (!spry_kv_disk_store(disk, &made.page, made.bytes, 7))
        return false;
    assert_int_equal(spry_kv_disk_collect(disk, &ticket, 1, true), 1);
    assert_int_equal(ticket, 7);
    return true;
}

/* Loads one page. */
static inline bool disk_load_page(spry_kv_disk *disk, const spry_kv_disk_page *page, void *bytes)
{
    bool loaded;
    spry_kv_disk_load(disk, &loaded, page, &bytes, 1);
    return loaded;
}

/* Loads a page; its bytes must all be right. */
static inline bool disk_load(spry_kv_disk *disk, uint64_t number)
{
    static made_page made;
    static unsigned char bytes[DISK_PAGE_BYTES];
    disk_page(&made, number);
    memset(bytes, 0xee, sizeof bytes);
    if (!disk_load_page(disk, &made.page, bytes))
        return false;
    assert_memory_equal(bytes, made.bytes, sizeof bytes);
    return true;
}

static inline spry_kv_disk_figures disk_figures(spry_kv_disk *disk)
{
    spry_kv_disk_figures figures;
    spry_kv_disk_describe(disk, &figures);
    return figures;
}

/* The path of a page's file. */
static inline const char *disk_file(scratch *place, spry_kv_key fingerprint, uint64_t number)
{
    char name[SPRY_KV_FILE_NAME];
    spry_kv_file_name(name, &(spry_kv_file_id){fingerprint, disk_key(number)});
    return scratch_path(place, name);
}

/* Changes the index of a closed cache, or of one that is open elsewhere. */
static inline void disk_sql(scratch *place, const char *text)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(scratch_path(place, SPRY_KV_INDEX_FILE), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The one number a query gives. */
static inline int64_t disk_ask(scratch *place, const char *text)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_open(scratch_path(place, SPRY_KV_INDEX_FILE), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return number;
}

/* Sets when a page was last used, `seconds` from now. */
static inline void disk_age(scratch *place, uint64_t number, long long seconds)
{
    char text[256];
    spry_kv_key key = disk_key(number);
    snprintf(text, sizeof text,
             "UPDATE pages SET used = CAST(strftime('%%s', 'now') AS INTEGER) + %lld WHERE key = x'%016llx%016llx'",
             seconds, (unsigned long long)key.high, (unsigned long long)key.low);
    disk_sql(place, text);
}

/* ---- one folder a test ------------------------------------------------------------------------------------------ */

static scratch place;
static disk_talk talk;

static inline int disk_begin(void **state)
{
    (void)state;
    scratch_init(&place);
    talk = (disk_talk){0};
    return 0;
}

static inline int disk_end(void **state)
{
    (void)state;
    scratch_deinit(&place);
    return 0;
}

/* Without limits. */
static inline spry_kv_disk *open_plain(void)
{
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    return disk_open(&options);
}

static inline const char *file_of(uint64_t number)
{
    return disk_file(&place, disk_key(42424242), number);
}

static inline void store_some(uint64_t count)
{
    spry_kv_disk *disk = open_plain();
    for (uint64_t i = 0; i < count; i++)
        assert_true(disk_store(disk, i));
    spry_kv_disk_close(disk);
}

/* How many of the first `count` pages are there, and right. */
static inline size_t load_all(spry_kv_disk *disk, uint64_t count)
{
    size_t loaded = 0;
    for (uint64_t i = 0; i < count; i++)
        loaded += disk_load(disk, i);
    return loaded;
}

static inline void nap(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

#define DISK_TEST(name) cmocka_unit_test_setup_teardown(name, disk_begin, disk_end)

#endif
