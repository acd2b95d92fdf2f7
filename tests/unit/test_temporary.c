/* Files that vanish, and what a process can tell about its machine and its own memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/hardware.h"
#include "platform/memory.h"
#include "support/hostile.h"
#include "support/place.h"

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_text(const char *path, const char *text)
{
    char line[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, text);
    fclose(file);
}

static void hidden_files_have_no_name(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_temporary file;
    assert_int_equal(setenv("TMPDIR", place.folder, 1), 0);
    assert_int_equal(spry_temporary_init(&file, "a.gguf", &error), SPRY_OK);
    assert_int_equal(strncmp(file.path, place.folder, strlen(place.folder)), 0);
    assert_int_equal(scratch_count(&place), 1);
    write_text(file.path, "hello");
    assert_int_equal(spry_temporary_hide(&file, &error), SPRY_OK);
    assert_int_equal(scratch_count(&place), 0);
    expect_text(file.path, "hello");
    expect_text(file.path, "hello"); /* every opening starts at the front */
    char command[128];
    snprintf(command, sizeof command, "test \"$(cat %s)\" = hello", file.path);
    assert_int_equal(system(command), 0); /* in a child too */
    char *path = strdup(file.path);
    assert_non_null(path);
    spry_temporary_deinit(&file);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
    spry_temporary_deinit(&file);
}

static void abandoned_files_are_removed(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_temporary file;
    assert_int_equal(setenv("TMPDIR", place.folder, 1), 0);
    assert_int_equal(spry_temporary_init(&file, "a.gguf", &error), SPRY_OK);
    write_text(file.path, "hello");
    spry_temporary_deinit(&file);
    assert_int_equal(scratch_count(&place), 0);
    assert_int_equal(spry_temporary_init(&file, "never-written", &error), SPRY_OK);
    hostile_expect(spry_temporary_hide(&file, &error), &error, SPRY_ERR_FILE, "never-written");
    spry_temporary_deinit(&file);
    assert_int_equal(scratch_count(&place), 0);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_temporary file;
    assert_int_equal(setenv("TMPDIR", "/nowhere/at-all", 1), 0);
    hostile_expect(spry_temporary_init(&file, "a", &error), &error, SPRY_ERR_FILE, "/nowhere/at-all|No such file");
    spry_temporary_deinit(&file);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(spry_temporary_init(&file, "a", &error), SPRY_OK); /* somewhere there is room */
    spry_temporary_deinit(&file);
}

static void the_processor_has_a_name(void **state)
{
    (void)state;
    char name[SPRY_PROCESSOR_NAME_MAX];
    spry_processor_name(name);
    size_t length = strlen(name);
    assert_true(length > 0 && length < sizeof name);
    assert_true(name[0] != ' ' && name[length - 1] != ' ');
    assert_null(strstr(name, "  "));
    for (size_t i = 0; i < length; i++)
        assert_true(name[i] >= ' ' && name[i] <= '~');
}

static void the_peak_of_memory_stays(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    size_t before = spry_memory_peak();
    assert_true(before > 0);
    void *memory = spry_memory_map(BYTES);
    assert_non_null(memory);
    memset(memory, 1, BYTES);
    spry_memory_unmap(memory, BYTES);
    size_t after = spry_memory_peak();
    assert_true(after >= before + BYTES / 2); /* some of `before` may have been given back meanwhile */
    assert_true(after < before + 4 * (size_t)BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_files_have_no_name),
        cmocka_unit_test(abandoned_files_are_removed),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
        cmocka_unit_test(the_processor_has_a_name),
        cmocka_unit_test(the_peak_of_memory_stays),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
