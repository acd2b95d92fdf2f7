/* The disk cache when things go wrong: damaged and foreign files, a lost index, impossible folders. Whatever happens, a
 * page that loads is right in every byte (disk_load checks it), nothing crashes, and each kind of trouble is mentioned
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "kv/kv_disk_index.h"
#include "support/disk_pages.h"

static void overwrite(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t slurp(const char *path, unsigned char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(data, 1, capacity, file);
    fclose(file);
    return size;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static unsigned char whole[DISK_FILE_BYTES + 8];

/* The damaged file must be a miss, be gone, and be stored again. */
static void expect_miss(spry_kv_disk *disk, uint64_t failures)
{
    assert_true(spry_kv_disk_has(disk, disk_key(1)));
    assert_false(disk_load(disk, 1));
    assert_false(spry_kv_disk_has(disk, disk_key(1)));
    assert_int_equal(access(file_of(1), F_OK), -1);
    assert_int_equal(disk_figures(disk).load_failures, failures);
    assert_true(disk_store(disk, 1));
}

static void every_damaged_byte_is_noticed(void **state)
{
    (void)state;
    spry_kv_disk *disk = open_plain();
    assert_true(disk_store(disk, 1));
    assert_int_equal(slurp(file_of(1), whole, sizeof whole), DISK_FILE_BYTES);
    uint64_t failures = 0;
    for (size_t at = 0; at < DISK_FILE_BYTES; at += at < SPRY_KV_FILE_HEAD ? 1 : 1999) {
        whole[at] ^= (unsigned char)(1 << at % 8);
        overwrite(file_of(1), whole, DISK_FILE_BYTES);
        whole[at] ^= (unsigned char)(1 << at % 8);
        expect_miss(disk, ++failures);
    }
    static const size_t sizes[] = {0,
                                   1,
                                   SPRY_KV_FILE_HEAD - 1,
                                   SPRY_KV_FILE_HEAD,
                                   SPRY_KV_FILE_HEAD + 1,
                                   4096,
                                   DISK_FILE_BYTES - 1,
                                   DISK_FILE_BYTES + 1};
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++) {
        overwrite(file_of(1), whole, sizes[i]);
        expect_miss(disk, ++failures);
    }
    assert_true(disk_load(disk, 1));
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 1);
    assert_non_null(strstr(talk.last, "damaged"));
}

/* A file that is whole but of another page: right checksums do not help it. */
static void files_under_wrong_names_are_noticed(void **state)
{
    (void)state;
    store_some(3);
    char from[SCRATCH_PATH];
    memcpy(from, file_of(2), sizeof from);
    assert_int_equal(rename(from, file_of(1)), 0);
    spry_kv_disk *disk = open_plain();
    assert_true(disk_load(disk, 0));
    assert_false(disk_load(disk, 1));
    assert_false(spry_kv_disk_has(disk, disk_key(2))); /* noticed when the folder was opened */
    spry_kv_disk_close(disk);
}

static void pages_of_another_size_are_noticed(void **state)
{
    (void)state;
    store_some(1);
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    static unsigned char bytes[DISK_PAGE_BYTES * 2];
    static made_page made;
    disk_page(&made, 0);
    static const size_t sizes[] = {DISK_PAGE_BYTES * 2, DISK_PAGE_BYTES + 1, DISK_PAGE_BYTES - 1, 1};
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++) {
        options.page_bytes = sizes[i];
        spry_kv_disk *disk = disk_open(&options);
        assert_true(spry_kv_disk_has(disk, disk_key(0)));
        assert_false(disk_load_page(disk, &made.page, bytes));
        spry_kv_disk_close(disk);
        store_some(1);
    }
}

static void what_is_no_file_is_no_page(void **state)
{
    (void)state;
    store_some(4);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(remove(file_of(i)), 0);
    char from[SCRATCH_PATH];
    store_some(5);
    spry_kv_disk *disk = open_plain();
    memcpy(from, file_of(2), sizeof from);
    assert_int_equal(rename(from, scratch_path(&place, "elsewhere")), 0);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(remove(file_of(i)) == 0, i != 2);
    assert_int_equal(mkdir(file_of(0), 0700), 0);
    assert_int_equal(mkfifo(file_of(1), 0600), 0);
    assert_int_equal(symlink("elsewhere", file_of(2)), 0); /* to the right page, but not ours; 3 is just gone */
    for (uint64_t i = 0; i < 4; i++)
        assert_false(disk_load(disk, i));
    assert_true(disk_load(disk, 4));
    assert_int_equal(disk_figures(disk).load_failures, 3);
    assert_int_equal(access(file_of(0), F_OK), 0); /* not ours to remove */
    assert_int_equal(access(file_of(1), F_OK), -1);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 1);
    disk = open_plain();
    assert_int_equal(disk_figures(disk).files, 1);
    spry_kv_disk_close(disk);
}

static void leftovers_are_swept_and_others_left_alone(void **state)
{
    (void)state;
    store_some(2);
    static const struct {
        const char *name;
        int age;
        bool stays;
    } files[] = {
        {"0123456789abcdef.tmp", SPRY_KV_SWEEP_AGE_SECONDS + 60, false},
        {"fedcba9876543210.tmp", -SPRY_KV_SWEEP_AGE_SECONDS - 60, false}, /* from a clock that was wrong */
        {"1111111111111111.tmp", 5, true},
        {"notes.txt", SPRY_KV_SWEEP_AGE_SECONDS + 60, true},
        {"x.page", SPRY_KV_SWEEP_AGE_SECONDS + 60, true},
    };
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        struct timespec times[2] = {{time(NULL) - files[i].age, 0}, {time(NULL) - files[i].age, 0}};
        assert_int_equal(utimensat(AT_FDCWD, scratch_write(&place, files[i].name, "half", 4), times, 0), 0);
    }
    spry_kv_disk *disk = open_plain();
    for (size_t i = 0; i < SPRY_COUNT(files); i++)
        assert_int_equal(access(scratch_path(&place, files[i].name), F_OK) == 0, files[i].stays);
    assert_int_equal(disk_figures(disk).files, 2);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

/* ---- the index -------------------------------------------------------------------------------------------------- */

static void remove_index(void)
{
    static const char *const names[] = {"index.db", "index.db-wal", "index.db-shm"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        remove(scratch_path(&place, names[i]));
}

static void expect_all(uint64_t count, size_t warnings)
{
    talk = (disk_talk){0};
    spry_kv_disk *disk = open_plain();
    assert_int_equal(disk_figures(disk).files, count);
    assert_int_equal(disk_figures(disk).bytes, count * DISK_FILE_BYTES);
    assert_int_equal(load_all(disk, count), count);
    assert_true(disk_store(disk, 1000 + count));
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, warnings);
    assert_int_equal(remove(file_of(1000 + count)), 0);
}

static void a_lost_index_is_made_again(void **state)
{
    (void)state;
    enum { PAGES = 6 };
    static unsigned char noise[20000];
    uint64_t random = 3;
    store_some(PAGES);
    remove_index();
    expect_all(PAGES, 0);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)hostile_random(&random);
    remove_index();
    scratch_write(&place, "index.db", noise, sizeof noise);
    expect_all(PAGES, 1);
    assert_non_null(strstr(talk.last, "new one was made"));
    expect_all(PAGES, 0); /* it stays whole */
    remove_index();
    scratch_write(&place, "index.db", "", 0);
    expect_all(PAGES, 0); /* to SQLite an empty file is an empty database */
    remove_index();
    scratch_write(&place, "index.db", noise, 1000);
    expect_all(PAGES, 1);
    remove_index();
    disk_sql(&place, "CREATE TABLE pages(a, b); CREATE TABLE total(c); INSERT INTO pages VALUES(1, 2)");
    expect_all(PAGES, 1); /* a database of another program */
    scratch_write(&place, "index.db-wal", noise, sizeof noise);
    expect_all(PAGES, 0); /* SQLite ignores a log that does not verify */
}

/* Damage anywhere in the index may lose it, never a page, and never more than one warning comes of it. */
static void a_damaged_index_is_survived(void **state)
{
    (void)state;
    enum { PAGES = 6, ROUNDS = 40 };
    static unsigned char bytes[1 << 16], damaged[1 << 16];
    uint64_t random = 11;
    store_some(PAGES);
    size_t size = slurp(scratch_path(&place, "index.db"), bytes, sizeof bytes);
    assert_true(size > 4096 && size < sizeof bytes);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(damaged, bytes, size);
        size_t from = (size_t)(hostile_random(&random) % size), length = 1 + (size_t)(hostile_random(&random) % 600);
        for (size_t i = from; i < from + length && i < size; i++)
            damaged[i] = (unsigned char)hostile_random(&random);
        size_t cut = round % 4 ? size : (size_t)(hostile_random(&random) % size);
        remove_index();
        scratch_write(&place, "index.db", damaged, cut);
        talk = (disk_talk){0};
        spry_kv_disk *disk = open_plain();
        assert_true(load_all(disk, PAGES) <= PAGES);
        disk_store(disk, 99);
        spry_kv_disk_close(disk);
        assert_true(talk.count <= 2); /* of the index, and of a page it could not be told */
        remove(file_of(99));
        for (uint64_t i = 0; i < PAGES; i++)
            assert_int_equal(access(file_of(i), F_OK), 0);
    }
    remove_index();
    expect_all(PAGES, 0);
}

static void rows_without_files_are_dropped(void **state)
{
    (void)state;
    store_some(8);
    for (uint64_t i = 0; i < 8; i += 2)
        assert_int_equal(remove(file_of(i)), 0);
    disk_sql(&place, "INSERT INTO pages(fingerprint, key, bytes, used) VALUES(x'00', x'01', -5, 'soon'),"
                     " (zeroblob(16), zeroblob(16), 1000000000000, 0); UPDATE total SET bytes = -3, files = 'many'");
    spry_kv_disk *disk = open_plain();
    assert_int_equal(disk_figures(disk).files, 4);
    assert_int_equal(disk_figures(disk).bytes, 4 * DISK_FILE_BYTES);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(spry_kv_disk_has(disk, disk_key(i)), i % 2);
    assert_int_equal(load_all(disk, 8), 4);
    assert_int_equal(disk_figures(disk).load_failures, 0);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

/* The folder has the index's name: every process keeps an index of its own, made from the files. */
static void without_an_index_the_files_are_enough(void **state)
{
    (void)state;
    assert_int_equal(mkdir(scratch_path(&place, "index.db"), 0700), 0);
    for (uint64_t round = 0; round < 3; round++) {
        talk = (disk_talk){0};
        spry_kv_disk_options options = disk_options(place.folder, &talk);
        options.max_bytes = 2 * DISK_FILE_BYTES;
        spry_kv_disk *disk = disk_open(&options);
        assert_int_equal(disk_figures(disk).files, round < 2 ? round : 2);
        assert_true(disk_store(disk, round) && disk_load(disk, round));
        spry_kv_disk_close(disk);
        assert_int_equal(talk.count, 1);
        assert_non_null(strstr(talk.last, "keeps its own"));
    }
}

static void an_index_damaged_under_way_is_replaced(void **state)
{
    (void)state;
    static unsigned char noise[40000];
    memset(noise, 0x5a, sizeof noise);
    spry_kv_disk *disk = open_plain();
    for (uint64_t i = 0; i < 3; i++)
        assert_true(disk_store(disk, i));
    nap(50);
    overwrite(scratch_path(&place, "index.db"), noise, sizeof noise);
    overwrite(scratch_path(&place, "index.db-wal"), noise, sizeof noise);
    for (uint64_t i = 3; i < 9; i++)
        disk_store(disk, i);
    assert_true(load_all(disk, 9) >= 3);
    spry_kv_disk_close(disk);
    assert_true(talk.count <= 2);
    disk = open_plain();
    assert_true(load_all(disk, 9) >= 3);
    assert_true(disk_store(disk, 100));
    spry_kv_disk_close(disk);
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

static void impossible_folders_are_named(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_kv_disk *disk;
    char path[SCRATCH_PATH];
    memcpy(path, scratch_write(&place, "file", "x", 1), sizeof path);
    spry_kv_disk_options options = disk_options(path, &talk);
    hostile_expect(spry_kv_disk_open(&disk, &options, &error), &error, SPRY_ERR_FILE, "file|Not a directory");
    assert_null(disk);
    options.folder = "/dev/null/cache";
    hostile_expect(spry_kv_disk_open(&disk, &options, &error), &error, SPRY_ERR_FILE, "/dev/null/cache");
    options.folder = "";
    hostile_expect(spry_kv_disk_open(&disk, &options, &error), &error, SPRY_ERR_INPUT, "empty");
}

static void a_folder_that_goes_away_is_survived(void **state)
{
    (void)state;
    store_some(3);
    spry_kv_disk *disk = open_plain();
    for (uint64_t i = 0; i < 3; i++)
        remove(file_of(i));
    remove_index();
    assert_int_equal(rmdir(place.folder), 0);
    assert_int_equal(load_all(disk, 3), 0);
    assert_true(disk_store(disk, 5)); /* taken, but it cannot be written */
    assert_false(disk_load(disk, 5));
    assert_int_equal(disk_figures(disk).skipped, 1);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 1);
    assert_int_equal(mkdir(place.folder, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DISK_TEST(every_damaged_byte_is_noticed),
        DISK_TEST(files_under_wrong_names_are_noticed),
        DISK_TEST(pages_of_another_size_are_noticed),
        DISK_TEST(what_is_no_file_is_no_page),
        DISK_TEST(leftovers_are_swept_and_others_left_alone),
        DISK_TEST(a_lost_index_is_made_again),
        DISK_TEST(a_damaged_index_is_survived),
        DISK_TEST(rows_without_files_are_dropped),
        DISK_TEST(without_an_index_the_files_are_enough),
        DISK_TEST(an_index_damaged_under_way_is_replaced),
        DISK_TEST(impossible_folders_are_named),
        DISK_TEST(a_folder_that_goes_away_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
