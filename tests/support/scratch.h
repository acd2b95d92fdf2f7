/* A folder for one test program's files, gone when the program ends well. Include after cmocka.h. */
#ifndef SPRY_TESTS_SCRATCH_H
#define SPRY_TESTS_SCRATCH_H

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCRATCH_PATH = 1024 };

typedef struct scratch {
    char folder[SCRATCH_PATH];
    char path[SCRATCH_PATH]; /* the answer of the last scratch_path */
} scratch;

static inline void scratch_init(scratch *s)
{
    snprintf(s->folder, sizeof s->folder, "/tmp/spry-test-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
}

static inline const char *scratch_path(scratch *s, const char *name)
{
    int length = snprintf(s->path, sizeof s->path, "%s/%s", s->folder, name);
    assert_true(length > 0 && length < SCRATCH_PATH);
    return s->path;
}

static inline const char *scratch_write(scratch *s, const char *name, const void *data, size_t size)
{
    FILE *file = fopen(scratch_path(s, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return s->path;
}

static inline size_t scratch_count(const scratch *s)
{
    size_t count = 0;
    DIR *listing = opendir(s->folder);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(listing);
    return count;
}

/* Removes what is in the folder; empty folders in it too. */
static inline void scratch_clear(scratch *s)
{
    DIR *listing = opendir(s->folder);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(remove(scratch_path(s, entry->d_name)), 0);
    closedir(listing);
}

static inline void scratch_deinit(scratch *s)
{
    scratch_clear(s);
    assert_int_equal(rmdir(s->folder), 0);
}

/* A disk that is full after `bytes` of any one file; RLIM_INFINITY makes room again. */
static inline void scratch_limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#endif
