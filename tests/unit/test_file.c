/* Files: mapping, bounded reading, paths, and writing that never leaves half a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/file.h"
#include "support/hostile.h"
#include "support/place.h"

static void expect_content(const char *name, const char *expected)
{
    spry_buffer got;
    spry_buffer_init(&got, 1 << 20);
    assert_int_equal(spry_file_read(&got, scratch_path(&place, name), NULL), SPRY_OK);
    assert_string_equal(spry_buffer_view(&got).data, expected);
    spry_buffer_deinit(&got);
}

/* ---- mapping ---------------------------------------------------------------------------------------------------- */

static void a_file_is_mapped(void **state)
{
    (void)state;
    spry_mapping mapping;
    assert_int_equal(spry_mapping_open(&mapping, scratch_write(&place, "f", "hello", 5), NULL), SPRY_OK);
    assert_int_equal(mapping.size, 5);
    assert_memory_equal(mapping.data, "hello", 5);
    spry_mapping_close(&mapping);
    spry_mapping_close(&mapping);
    assert_null(mapping.data);

    assert_int_equal(spry_mapping_open(&mapping, scratch_write(&place, "f", "", 0), NULL), SPRY_OK);
    assert_int_equal(mapping.size, 0);
    assert_non_null(mapping.data);
    spry_mapping_close(&mapping);
    scratch_clear(&place);
}

static void only_regular_files_are_mapped(void **state)
{
    (void)state;
    char missing[SCRATCH_PATH], pipe_path[SCRATCH_PATH];
    snprintf(missing, sizeof missing, "%s", scratch_path(&place, "missing"));
    snprintf(pipe_path, sizeof pipe_path, "%s", scratch_path(&place, "pipe"));
    assert_int_equal(mkfifo(pipe_path, 0600), 0); /* it has no writer: opening must not block */
    const struct {
        const char *path, *words;
    } cases[] = {
        {place.folder, "is a folder"},
        {missing, "missing|cannot open|No such file"},
        {pipe_path, "pipe|not a regular file"},
        {"/dev/zero", "/dev/zero|not a regular file"},
        {"", "cannot open"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_mapping mapping = {.size = 99};
        spry_error error = {0};
        spry_status status = spry_mapping_open(&mapping, cases[i].path, &error);
        hostile_expect(status, &error, SPRY_ERR_FILE, cases[i].path);
        hostile_expect(status, &error, SPRY_ERR_FILE, cases[i].words);
        assert_true(!mapping.data && !mapping.size);
    }
    scratch_clear(&place);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void reading_appends_up_to_the_maximum(void **state)
{
    (void)state;
    spry_buffer b;
    spry_error error = {0};
    spry_buffer_init(&b, 10);
    spry_buffer_text(&b, "abc");
    scratch_write(&place, "seven", "1234567", 7);
    scratch_write(&place, "eight", "12345678", 8);
    spry_status status = spry_file_read(&b, scratch_path(&place, "eight"), &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "eight|has 8 bytes|more than the 7");
    assert_string_equal(b.data, "abc");
    assert_int_equal(spry_file_read(&b, scratch_path(&place, "seven"), &error), SPRY_OK);
    assert_string_equal(b.data, "abc1234567");
    assert_int_equal(spry_file_read(&b, scratch_write(&place, "none", "", 0), &error), SPRY_OK);
    assert_int_equal(b.size, 10);
    status = spry_file_read(&b, place.folder, &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "is a folder");
    status = spry_file_read(&b, "/no/such", &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/no/such|cannot open");
    spry_buffer_deinit(&b);
    scratch_clear(&place);
}

/* Reads `size` bytes through a pipe into a buffer of at most 100. */
static spry_status read_pipe(spry_buffer *b, size_t size, spry_error *error)
{
    char data[200], path[40];
    int ends[2];
    memset(data, 'x', sizeof data);
    assert_true(size <= sizeof data);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], data, size), (ssize_t)size);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    spry_buffer_init(b, 100);
    spry_status status = spry_file_read(b, path, error);
    close(ends[0]);
    return status;
}

static void pipes_are_read_and_bounded(void **state)
{
    (void)state;
    spry_buffer b;
    spry_error error = {0};
    assert_int_equal(read_pipe(&b, 100, &error), SPRY_OK);
    assert_int_equal(b.size, 100);
    spry_buffer_deinit(&b);
    spry_status status = read_pipe(&b, 101, &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/dev/fd/|more than the 100 bytes");
    assert_int_equal(b.size, 0);
    spry_buffer_deinit(&b);
    spry_buffer_init(&b, 1 << 20);
    status = spry_file_read(&b, "/dev/zero", &error); /* has no end */
    hostile_expect(status, &error, SPRY_ERR_FILE, "/dev/zero|1048576");
    assert_int_equal(b.size, 0);
    spry_buffer_deinit(&b);
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static void paths_are_joined(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {"/x/y", "z.json", "/x/y/z.json"},
    };
    spry_buffer b;
    spry_buffer_init(&b, 20);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        assert_int_equal(spry_path_join(&b, cases[i][0], cases[i][1], NULL), SPRY_OK);
        assert_string_equal(b.data, cases[i][2]);
    }
    spry_error error = {0};
    spry_status status = spry_path_join(&b, "0123456789", "0123456789", &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "0123456789|20 bytes");
    assert_int_equal(spry_path_join(&b, "fits", "again", NULL), SPRY_OK);
    spry_buffer_deinit(&b);
}

static void paths_are_told_apart(void **state)
{
    (void)state;
    scratch_write(&place, "f", "", 0);
    assert_true(spry_path_exists(place.path));
    assert_false(spry_path_is_folder(place.path));
    assert_true(spry_path_exists(place.folder));
    assert_true(spry_path_is_folder(place.folder));
    assert_false(spry_path_exists(scratch_path(&place, "g")));
    assert_false(spry_path_is_folder(place.path));
    scratch_clear(&place);
}

static void user_data_follows_the_environment(void **state)
{
    (void)state;
    static const struct {
        const char *data, *home, *expected;
    } cases[] = {
        {"/data", "/h/me", "/data/spry/models"},
        {NULL, "/h/me", "/h/me/.local/share/spry/models"},
        {"", "/h/me", "/h/me/.local/share/spry/models"},
        {"relative", "/h/me", "/h/me/.local/share/spry/models"},
        {NULL, NULL, ""},
        {NULL, "", ""},
    };
    spry_buffer b;
    spry_buffer_init(&b, 1000);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        if (cases[i].data)
            setenv("XDG_DATA_HOME", cases[i].data, 1);
        else
            unsetenv("XDG_DATA_HOME");
        if (cases[i].home)
            setenv("HOME", cases[i].home, 1);
        else
            unsetenv("HOME");
        spry_path_user_data(&b, "models");
        assert_string_equal(spry_buffer_view(&b).data, cases[i].expected);
    }
    spry_buffer_deinit(&b);
}

static void collect(void *context, const char *name)
{
    assert_int_equal(strlen(name), 1);
    *(unsigned *)context |= 1u << (name[0] - 'a');
}

static void folders_are_listed(void **state)
{
    (void)state;
    unsigned seen = 0;
    spry_error error = {0};
    assert_int_equal(spry_folder_each(place.folder, collect, &seen, &error), SPRY_OK);
    assert_int_equal(seen, 0);
    scratch_write(&place, "a", "", 0);
    scratch_write(&place, "c", "", 0);
    scratch_write(&place, ".hidden", "", 0);
    assert_int_equal(spry_folder_each(place.folder, collect, &seen, &error), SPRY_OK);
    assert_int_equal(seen, 1u << 0 | 1u << 2);
    spry_status status = spry_folder_each(scratch_path(&place, "a"), collect, &seen, &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/a: cannot list");
    scratch_clear(&place);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static void a_file_appears_when_it_is_whole(void **state)
{
    (void)state;
    spry_file_writer writer;
    scratch_write(&place, "f", "old", 3);
    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&writer, "new ", 4, NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&writer, NULL, 0, NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&writer, "text", 4, NULL), SPRY_OK);
    expect_content("f", "old");
    assert_int_equal(scratch_count(&place), 2); /* the temporary is beside it */
    assert_int_equal(spry_file_writer_commit(&writer, NULL), SPRY_OK);
    assert_null(writer.file);
    expect_content("f", "new text");
    assert_int_equal(scratch_count(&place), 1);
    spry_file_writer_abandon(&writer); /* closed: nothing to do */
    expect_content("f", "new text");
    scratch_clear(&place);
}

static void an_abandoned_file_leaves_nothing(void **state)
{
    (void)state;
    spry_file_writer writer;
    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&writer, "x", 1, NULL), SPRY_OK);
    spry_file_writer_abandon(&writer);
    spry_file_writer_abandon(&writer);
    assert_int_equal(scratch_count(&place), 0);
}

static void two_writers_do_not_meet(void **state)
{
    (void)state;
    spry_file_writer first, second;
    assert_int_equal(spry_file_writer_open(&first, scratch_path(&place, "f"), NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_open(&second, scratch_path(&place, "f"), NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&first, "first", 5, NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_write(&second, "second", 6, NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_commit(&first, NULL), SPRY_OK);
    expect_content("f", "first");
    assert_int_equal(spry_file_writer_commit(&second, NULL), SPRY_OK);
    expect_content("f", "second");
    assert_int_equal(scratch_count(&place), 1);
    scratch_clear(&place);
}

static void the_umask_is_obeyed(void **state)
{
    (void)state;
    struct stat facts;
    spry_file_writer writer;
    mode_t before = umask(027);
    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), NULL), SPRY_OK);
    assert_int_equal(spry_file_writer_commit(&writer, NULL), SPRY_OK);
    umask(before);
    assert_int_equal(stat(scratch_path(&place, "f"), &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0640);
    assert_int_equal(facts.st_size, 0);
    scratch_clear(&place);
}

static void targets_that_are_no_files_are_refused(void **state)
{
    (void)state;
    char no_folder[SCRATCH_PATH];
    snprintf(no_folder, sizeof no_folder, "%s", scratch_path(&place, "no/f"));
    const struct {
        const char *path, *words;
    } cases[] = {
        {place.folder, "is a folder"},
        {"/dev/full", "/dev/full|not a regular file"},
        {no_folder, "no/f|cannot create|No such file"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_file_writer writer;
        spry_error error = {0};
        spry_status status = spry_file_writer_open(&writer, cases[i].path, &error);
        hostile_expect(status, &error, SPRY_ERR_FILE, cases[i].words);
        assert_null(writer.file);
        spry_file_writer_abandon(&writer);
    }
    assert_int_equal(scratch_count(&place), 0);
}

static void a_failed_rename_leaves_nothing(void **state)
{
    (void)state;
    spry_file_writer writer;
    spry_error error = {0};
    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), &error), SPRY_OK);
    assert_int_equal(mkdir(scratch_path(&place, "f"), 0755), 0); /* another process was faster */
    spry_status status = spry_file_writer_commit(&writer, &error);
    hostile_expect(status, &error, SPRY_ERR_FILE, "/f: cannot rename");
    assert_null(writer.file);
    assert_int_equal(scratch_count(&place), 1);
    scratch_clear(&place);
}

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    static char block[1 << 16];
    spry_file_writer writer;
    spry_error wrote = {0}, committed = {0}, late = {0};
    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), NULL), SPRY_OK);
    scratch_limit_files(100000);
    spry_status status = SPRY_OK;
    for (int i = 0; i < 4 && status == SPRY_OK; i++)
        status = spry_file_writer_write(&writer, block, sizeof block, &wrote);
    spry_status commit = spry_file_writer_commit(&writer, &committed); /* must not publish what is missing bytes */
    scratch_limit_files(RLIM_INFINITY);
    hostile_expect(status, &wrote, SPRY_ERR_FILE, "/f: cannot write|File too large");
    hostile_expect(commit, &committed, SPRY_ERR_FILE, "/f: cannot write|earlier");
    assert_int_equal(scratch_count(&place), 0);

    assert_int_equal(spry_file_writer_open(&writer, scratch_path(&place, "f"), NULL), SPRY_OK);
    scratch_limit_files(2); /* small writes wait in a buffer: only the commit can notice */
    status = spry_file_writer_write(&writer, "12345", 5, NULL);
    commit = spry_file_writer_commit(&writer, &late);
    scratch_limit_files(RLIM_INFINITY);
    assert_int_equal(status, SPRY_OK);
    hostile_expect(commit, &late, SPRY_ERR_FILE, "/f: cannot write|File too large");
    assert_int_equal(scratch_count(&place), 0);
}

/* A writer that was killed leaves its temporary file; another removes it when the process is gone and a day has passed.
 */
static void abandoned_files_are_removed(void **state)
{
    (void)state;
    spry_file_writer writer;
    spry_error error;
    char names[3][64];
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    snprintf(names[0], sizeof names[0], "f.%ld-0.part", (long)gone);     /* old, of a process that is gone */
    snprintf(names[1], sizeof names[1], "f.%ld-1.part", (long)gone);     /* new */
    snprintf(names[2], sizeof names[2], "f.%ld-7.part", (long)getpid()); /* old, of a process that lives */
    const struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_write(&place, names[i], "x", 1);
        if (i != 1)
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    const char *target = scratch_path(&place, "f");
    assert_int_equal(spry_file_writer_open(&writer, target, &error), SPRY_OK);
    assert_int_equal(spry_file_writer_commit(&writer, &error), SPRY_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(access(scratch_path(&place, names[i]), F_OK), i == 0 ? -1 : 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_mapped),
        cmocka_unit_test(only_regular_files_are_mapped),
        cmocka_unit_test(reading_appends_up_to_the_maximum),
        cmocka_unit_test(pipes_are_read_and_bounded),
        cmocka_unit_test(paths_are_joined),
        cmocka_unit_test(paths_are_told_apart),
        cmocka_unit_test(user_data_follows_the_environment),
        cmocka_unit_test(folders_are_listed),
        cmocka_unit_test(a_file_appears_when_it_is_whole),
        cmocka_unit_test(an_abandoned_file_leaves_nothing),
        cmocka_unit_test(two_writers_do_not_meet),
        cmocka_unit_test(the_umask_is_obeyed),
        cmocka_unit_test(targets_that_are_no_files_are_refused),
        cmocka_unit_test(a_failed_rename_leaves_nothing),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(abandoned_files_are_removed),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
