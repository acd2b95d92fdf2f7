/* The disk cache against the system and other processes: folders that cannot be written, disks that fill up, processes
 * that are killed at any moment or work in one folder together. Whatever happens, a page that loads is right in every
 * byte (disk_load checks it), and each kind of trouble is mentioned once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/disk_pages.h"

/* ---- forbidden folders ------------------------------------------------------------------------------------------ */

/* Runs `body` in a child, whose assertions end it; returns its exit status. */
static int in_child(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

enum { CHILD_CANNOT = 77 };

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Permissions stop every user except root. */
static void use_read_only(void)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        _exit(CHILD_CANNOT);
    spry_kv_disk *disk = open_plain();
    REQUIRE(disk_figures(disk).files == 3);
    REQUIRE(talk.count == 1 && strstr(talk.last, "not written"));
    REQUIRE(load_all(disk, 3) == 2); /* page 1 is damaged */
    REQUIRE(!spry_kv_disk_has(disk, disk_key(1)));
    REQUIRE(!disk_store(disk, 1) && !disk_store(disk, 5));
    REQUIRE(disk_figures(disk).load_failures == 1);
    spry_kv_disk_close(disk);
    REQUIRE(talk.count == 2);
}

static void a_read_only_folder_is_read(void **state)
{
    (void)state;
    store_some(3);
    assert_int_equal(truncate(file_of(1), 7), 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(chmod(file_of(i), 0644), 0);
    assert_int_equal(chmod(place.folder, 0555), 0);
    int status = in_child(use_read_only);
    assert_int_equal(chmod(place.folder, 0700), 0);
    assert_int_equal(access(file_of(1), F_OK), 0);
    if (status == CHILD_CANNOT) {
        puts("SKIPPED a_read_only_folder_is_read: this process can neither be stopped by permissions nor change its "
             "user");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- full disks ------------------------------------------------------------------------------------------------- */

static void a_full_disk_is_tried_again_later(void **state)
{
    (void)state;
    store_some(1);
    spry_kv_disk *disk = open_plain();
    scratch_limit_files(DISK_FILE_BYTES / 2);
    assert_true(disk_store(disk, 1)); /* taken, and given back unwritten */
    for (uint64_t i = 2; i < 50; i++)
        assert_false(disk_store(disk, i)); /* not even tried */
    scratch_limit_files(RLIM_INFINITY);
    assert_int_equal(disk_figures(disk).skipped, 49);
    assert_int_equal(disk_figures(disk).stored, 0);
    assert_false(spry_kv_disk_has(disk, disk_key(1)));
    assert_true(disk_load(disk, 0));
    while (!disk_store(disk, 1))
        nap(50);
    assert_true(disk_load(disk, 1));
    assert_true(disk_store(disk, 2) && disk_load(disk, 2));
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 1);
    assert_non_null(strstr(talk.last, "cannot be written now"));
    disk = open_plain();
    assert_int_equal(load_all(disk, 50), 3);
    assert_int_equal(disk_figures(disk).files, 3);
    spry_kv_disk_close(disk);
}

/* A file system of its own that holds about five pages, or fewer, and the index. */
static void fill_a_small_disk(void)
{
    static const char *const sizes[] = {"size=1m", "size=300k", "size=64k", "size=8k"};
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        _exit(CHILD_CANNOT);
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++) {
        if (mount("tmpfs", place.folder, "tmpfs", 0, sizes[i]) != 0)
            _exit(CHILD_CANNOT);
        for (int round = 0; round < 2; round++) {
            talk = (disk_talk){0};
            spry_kv_disk *disk = open_plain();
            size_t before = load_all(disk, 40), stored = 0;
            for (uint64_t n = 0; n < 40; n++)
                if (!spry_kv_disk_has(disk, disk_key(n)))
                    stored += disk_store(disk, n) && disk_load(disk, n);
            REQUIRE(before + stored < 40 && load_all(disk, 40) <= before + stored);
            REQUIRE(i >= 2 || before + stored > 0);
            REQUIRE(disk_figures(disk).skipped > 0);
            spry_kv_disk_close(disk);
            REQUIRE(talk.count >= 1 && talk.count <= 2);
        }
        REQUIRE(umount2(place.folder, MNT_DETACH) == 0);
    }
}

static void a_small_disk_fills_up(void **state)
{
    (void)state;
    int status = in_child(fill_a_small_disk);
    if (status == CHILD_CANNOT) {
        puts("SKIPPED a_small_disk_fills_up: file systems cannot be mounted here");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

static uint64_t child_seed;

/* Stores, loads and makes room without end. */
static void work_for_ever(void)
{
    uint64_t random = child_seed;
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.max_bytes = 30 * DISK_FILE_BYTES;
    spry_kv_disk *disk = disk_open(&options);
    for (;;) {
        uint64_t number = hostile_random(&random) % 60;
        if (!disk_load(disk, number))
            disk_store(disk, number);
    }
}

static pid_t start_child(void (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    return child;
}

static uint64_t pages_on_disk(void)
{
    uint64_t count = 0;
    DIR *listing = opendir(place.folder);
    assert_non_null(listing);
    spry_kv_file_id id;
    for (const struct dirent *entry; (entry = readdir(listing));)
        count += spry_kv_file_parse(&id, entry->d_name);
    closedir(listing);
    return count;
}

static void a_killed_process_leaves_whole_pages(void **state)
{
    (void)state;
    enum { ROUNDS = 25 };
    uint64_t random = 77;
    size_t loaded = 0;
    for (int round = 0; round < ROUNDS; round++) {
        child_seed = 1000 + (uint64_t)round;
        pid_t child = start_child(work_for_ever);
        nap((long)(hostile_random(&random) % 60));
        while (!pages_on_disk()) /* a slow machine's first */
            nap(5);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it did not end before, by a failed assertion */
        talk = (disk_talk){0};
        spry_kv_disk *disk = open_plain();
        uint64_t files = disk_figures(disk).files;
        assert_int_equal(files, pages_on_disk());
        size_t good = load_all(disk, 60);
        assert_int_equal(good, files);
        loaded += good;
        spry_kv_disk_close(disk);
        assert_int_equal(talk.count, 0); /* neither pages nor index were damaged */
    }
    assert_true(loaded >= ROUNDS); /* at least one each, however slow the machine is */
}

/* As above, but it ends, and what it says is an error. */
static void work_a_while(void)
{
    enum { STEPS = 150 };
    uint64_t random = child_seed;
    spry_kv_disk_options options = disk_options(place.folder, &talk);
    options.max_bytes = 30 * DISK_FILE_BYTES;
    spry_kv_disk *disk = disk_open(&options);
    size_t loaded = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t number = hostile_random(&random) % 60;
        if (disk_load(disk, number))
            loaded++;
        else
            disk_store(disk, number);
    }
    uint64_t wrong = disk_figures(disk).load_failures;
    spry_kv_disk_close(disk);
    if (talk.count)
        fprintf(stderr, "%s\n", talk.last);
    REQUIRE(loaded > 0 && wrong == 0 && talk.count == 0);
}

static void processes_share_a_folder(void **state)
{
    (void)state;
    enum { CHILDREN = 4 };
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        child_seed = (uint64_t)i + 1;
        children[i] = start_child(work_a_while);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    spry_kv_disk *disk = open_plain();
    uint64_t files = disk_figures(disk).files;
    assert_true(files > 20);
    assert_int_equal(load_all(disk, 60), files);
    spry_kv_disk_close(disk);
    assert_int_equal(talk.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DISK_TEST(a_read_only_folder_is_read), DISK_TEST(a_full_disk_is_tried_again_later),
        DISK_TEST(a_small_disk_fills_up),      DISK_TEST(a_killed_process_leaves_whole_pages),
        DISK_TEST(processes_share_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
