/* POSIX files. Files that are not regular are refused where the size must be known: a pipe or a folder cannot be
 * mapped, and a rename over a device would destroy it. */
#include "platform/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "platform/os.h"

enum { CHUNK_BYTES = 1 << 14, NAME_ATTEMPTS = 1000, TEMPORARY_BYTES = 8192, ABANDONED_S = 86400 };

static spry_status fail_errno(spry_error *error, const char *path, const char *action)
{
    spry_status status = errno == ENOMEM ? SPRY_ERR_MEMORY : SPRY_ERR_FILE;
    return spry_fail(error, status, "%s: cannot %s: %s", path, action, strerror(errno));
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static spry_status check_regular(const char *path, const struct stat *facts, spry_error *error)
{
    if (S_ISDIR(facts->st_mode))
        return spry_fail(error, SPRY_ERR_FILE, "%s: is a folder, not a file", path);
    if (!S_ISREG(facts->st_mode))
        return spry_fail(error, SPRY_ERR_FILE, "%s: is not a regular file", path);
    return SPRY_OK;
}

static spry_status map_descriptor(spry_mapping *mapping, int descriptor, const char *path, spry_error *error)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0)
        return fail_errno(error, path, "read its size");
    spry_status status = check_regular(path, &facts, error);
    if (status != SPRY_OK)
        return status;
    size_t size = (size_t)facts.st_size;
    if (size == 0) {
        *mapping = (spry_mapping){(const unsigned char *)"", 0};
        return SPRY_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return fail_errno(error, path, "map");
    *mapping = (spry_mapping){data, size};
    return SPRY_OK;
}

spry_status spry_mapping_open(spry_mapping *mapping, const char *path, spry_error *error)
{
    *mapping = (spry_mapping){0};
    /* Without O_NONBLOCK, opening a named pipe would block until a writer opens it. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fail_errno(error, path, "open");
    spry_status status = map_descriptor(mapping, descriptor, path, error);
    close(descriptor);
    return status;
}

void spry_mapping_close(spry_mapping *mapping)
{
    if (mapping->size)
        munmap((void *)(uintptr_t)mapping->data, mapping->size);
    *mapping = (spry_mapping){0};
}

/* Pipes have no known size, so the bytes are counted while reading. */
static spry_status read_all(spry_buffer *out, int descriptor, const char *path, spry_error *error)
{
    char chunk[CHUNK_BYTES];
    for (;;) {
        ssize_t got = read(descriptor, chunk, sizeof chunk);
        if (got == 0)
            return SPRY_OK;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(error, path, "read");
        if ((size_t)got > out->max - out->size)
            return spry_fail(error, SPRY_ERR_FILE, "%s: holds more than the %zu bytes that fit here", path, out->max);
        if (!spry_buffer_append(out, chunk, (size_t)got))
            return spry_fail_memory(error, path, out->size + (size_t)got);
    }
}

spry_status spry_file_read(spry_buffer *out, const char *path, spry_error *error)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail_errno(error, path, "open");
    struct stat facts;
    spry_status status = SPRY_OK;
    size_t before = out->size;
    if (fstat(descriptor, &facts) != 0)
        status = fail_errno(error, path, "read its size");
    else if (S_ISDIR(facts.st_mode))
        status = check_regular(path, &facts, error);
    else if (S_ISREG(facts.st_mode) && (size_t)facts.st_size > out->max - out->size)
        status = spry_fail(error, SPRY_ERR_FILE, "%s: has %zu bytes, more than the %zu that fit here", path,
                           (size_t)facts.st_size, out->max - out->size);
    else
        status = read_all(out, descriptor, path, error);
    if (status != SPRY_OK && out->data) {
        out->size = before;
        out->data[before] = 0;
    }
    close(descriptor);
    return status;
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

bool spry_path_is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool spry_path_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0;
}

bool spry_path_facts(const char *path, size_t *bytes, int64_t *modified)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return false;
    *bytes = facts.st_size > 0 ? (size_t)facts.st_size : 0;
    *modified = (int64_t)facts.st_mtime;
    return true;
}

void spry_path_mark_used(const char *path)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    utimensat(AT_FDCWD, path, times, 0);
}

int64_t spry_path_last_used(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 ? (int64_t)facts.st_atime : 0;
}

bool spry_path_real(spry_buffer *out, const char *path)
{
    char *real = realpath(path, NULL);
    spry_buffer_clear(out);
    bool there = real && spry_buffer_text(out, real);
    free(real);
    return there;
}

bool spry_path_create(const char *path, unsigned mode)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    bool is_there = file >= 0 || errno == EEXIST;
    if (file >= 0)
        close(file);
    return is_there;
}

bool spry_path_same(const char *a, const char *b)
{
    char *first = realpath(a, NULL), *second = realpath(b, NULL);
    bool same = first && second && strcmp(first, second) == 0;
    free(first);
    free(second);
    return same;
}

spry_status spry_folder_each(const char *folder, spry_folder_visit visit, void *context, spry_error *error)
{
    DIR *listing = opendir(folder);
    if (!listing)
        return fail_errno(error, folder, "list");
    for (;;) {
        errno = 0; /* the only way to distinguish the end from a failure */
        const struct dirent *entry = readdir(listing);
        if (!entry)
            break;
        if (entry->d_name[0] != '.')
            visit(context, entry->d_name);
    }
    spry_status status = errno ? fail_errno(error, folder, "list") : SPRY_OK;
    closedir(listing);
    return status;
}

spry_status spry_path_join(spry_buffer *out, const char *folder, const char *name, spry_error *error)
{
    size_t length = strlen(folder);
    bool slash = length == 0 || folder[length - 1] == '/';
    spry_buffer_clear(out);
    if (!spry_buffer_format(out, "%s%s%s", folder, slash ? "" : "/", name))
        return spry_fail(error, SPRY_ERR_FILE, "%s: the path of '%s' in it does not fit memory or %zu bytes", folder,
                         name, out->max);
    return SPRY_OK;
}

void spry_path_user_data(spry_buffer *out, const char *kind)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    spry_buffer_clear(out);
    if (data && data[0] == '/') /* the XDG rule: a relative path counts as unset */
        spry_buffer_format(out, "%s/spry/%s", data, kind);
    else if (home && home[0])
        spry_buffer_format(out, "%s/.local/share/spry/%s", home, kind);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* The temporary file is beside the target, so that the rename stays inside one file system. It is created with the
 * user's umask, which mkstemp would ignore. */
static int create_temporary(char **name, const char *path)
{
    size_t size = strlen(path) + 48;
    *name = malloc(size);
    for (unsigned attempt = 0; *name && attempt < NAME_ATTEMPTS; attempt++) {
        snprintf(*name, size, "%s.%ld-%u.part", path, (long)getpid(), attempt);
        int descriptor = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0 || errno != EEXIST)
            return descriptor;
    }
    return -1;
}

/* Temporary files of writers that were killed: their process is gone, and they are older than a day, since processes of
 * another container cannot be seen. */
static void remove_abandoned(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    spry_buffer folder, file;
    spry_buffer_init(&folder, TEMPORARY_BYTES);
    spry_buffer_init(&file, TEMPORARY_BYTES);
    spry_buffer_append(&folder, slash ? path : "./", slash ? (size_t)(slash - path) + 1 : 2);
    DIR *list = folder.failed ? NULL : opendir(folder.data);
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        long process;
        unsigned attempt;
        int end = 0;
        struct stat facts;
        size_t size = strlen(name);
        if (strncmp(entry->d_name, name, size) != 0 ||
            sscanf(entry->d_name + size, ".%ld-%u.part%n", &process, &attempt, &end) != 2 || !end ||
            entry->d_name[size + (size_t)end] || process <= 0)
            continue;
        spry_buffer_clear(&file);
        spry_buffer_format(&file, "%s%s", folder.data, entry->d_name);
        if (!file.failed && kill((pid_t)process, 0) != 0 && errno == ESRCH && lstat(file.data, &facts) == 0 &&
            time(NULL) - facts.st_mtime > ABANDONED_S)
            unlink(file.data);
    }
    if (list)
        closedir(list);
    spry_buffer_deinit(&folder);
    spry_buffer_deinit(&file);
}

spry_status spry_file_writer_open(spry_file_writer *writer, const char *path, spry_error *error)
{
    *writer = (spry_file_writer){0};
    struct stat facts;
    if (stat(path, &facts) == 0) {
        spry_status status = check_regular(path, &facts, error);
        if (status != SPRY_OK)
            return status;
    }
    remove_abandoned(path);
    spry_file_writer opened = {.path = strdup(path)};
    int descriptor = opened.path ? create_temporary(&opened.temporary, path) : -1;
    if (descriptor >= 0)
        opened.file = fdopen(descriptor, "wb");
    if (!opened.file) {
        spry_status status = fail_errno(error, path, "create");
        if (descriptor >= 0) {
            close(descriptor);
            unlink(opened.temporary);
        }
        free(opened.temporary);
        free(opened.path);
        return status;
    }
    *writer = opened;
    return SPRY_OK;
}

spry_status spry_file_writer_write(spry_file_writer *writer, const void *data, size_t size, spry_error *error)
{
    if (size && fwrite(data, 1, size, writer->file) != size)
        return fail_errno(error, writer->path, "write");
    return SPRY_OK;
}

/* Makes the rename survive a power failure. Some file systems do not support it; the file is complete in any case. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    char *folder = slash ? strndup(path, length ? length : 1) : strdup(".");
    int descriptor = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
    free(folder);
}

static void release(spry_file_writer *writer)
{
    free(writer->path);
    free(writer->temporary);
    *writer = (spry_file_writer){0};
}

spry_status spry_file_writer_commit(spry_file_writer *writer, spry_error *error)
{
    bool failed_before = ferror(writer->file);
    bool written = !failed_before && fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
    spry_status status = SPRY_OK;
    if (failed_before)
        status = spry_fail(error, SPRY_ERR_FILE, "%s: cannot write: an earlier write failed", writer->path);
    else if (!written)
        status = fail_errno(error, writer->path, "write");
    if (fclose(writer->file) != 0 && status == SPRY_OK)
        status = fail_errno(error, writer->path, "write");
    if (status == SPRY_OK && rename(writer->temporary, writer->path) != 0)
        status = fail_errno(error, writer->path, "rename the finished file");
    if (status == SPRY_OK)
        sync_folder(writer->path);
    else
        unlink(writer->temporary);
    release(writer);
    return status;
}

void spry_file_writer_abandon(spry_file_writer *writer)
{
    if (!writer->file)
        return;
    fclose(writer->file);
    unlink(writer->temporary);
    release(writer);
}

spry_status spry_file_write(const char *path, spry_view text, spry_error *error)
{
    spry_file_writer writer;
    spry_status status = spry_file_writer_open(&writer, path, error);
    if (!status)
        status = spry_file_writer_write(&writer, text.data, text.size, error);
    if (!status)
        status = spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    return status;
}

spry_status spry_file_write_json(const char *path, const json_t *json, size_t flags, spry_error *error)
{
    spry_buffer text;
    char *dumped = json ? spry_json_text(json, flags) : NULL;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_status status = dumped && spry_buffer_format(&text, "%s\n", dumped)
                             ? spry_file_write(path, spry_buffer_view(&text), error)
                             : spry_fail(error, SPRY_ERR_MEMORY, "%s: there is not enough memory for its text", path);
    spry_buffer_deinit(&text);
    free(dumped);
    return status;
}

/* ---- temporary files --------------------------------------------------------------------------------------------- */

/* The unlinked file is reached through the folder of open descriptors, also by children that inherit the descriptor. */

enum { PATH_BYTES = 4096 };

static bool make_folder(char path[PATH_BYTES], const char *parent)
{
    int length = snprintf(path, PATH_BYTES, "%s/spry-XXXXXX", parent);
    return length > 0 && length < PATH_BYTES && mkdtemp(path);
}

static bool make_any_folder(char path[PATH_BYTES])
{
    const char *wished = getenv("TMPDIR");
    if (wished && wished[0]) /* an explicit choice is never replaced by another folder */
        return make_folder(path, wished);
    return make_folder(path, "/var/tmp") || make_folder(path, "/tmp");
}

spry_status spry_temporary_init(spry_temporary *t, const char *name, spry_error *error)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    *t = (spry_temporary){.file = -1};
    if (!make_any_folder(folder))
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot make a folder for a temporary file: %s", folder,
                         strerror(errno));
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    t->folder = strdup(folder);
    t->path = length > 0 && length < PATH_BYTES ? strdup(path) : NULL;
    if (t->folder && t->path)
        return SPRY_OK;
    if (!t->folder)
        rmdir(folder);
    spry_temporary_deinit(t);
    return spry_fail_memory(error, "a temporary file's name", PATH_BYTES);
}

spry_status spry_temporary_hide(spry_temporary *t, spry_error *error)
{
    char path[32];
    t->file = open(t->path, O_RDONLY);
    if (t->file < 0)
        return spry_fail(error, SPRY_ERR_FILE, "%s: %s", t->path, strerror(errno));
    snprintf(path, sizeof path, "%s/%d", spry_os_descriptors, t->file);
    char *hidden = strdup(path);
    if (!hidden)
        return spry_fail_memory(error, "a temporary file's name", sizeof path);
    unlink(t->path);
    rmdir(t->folder);
    free(t->path);
    free(t->folder);
    t->path = hidden;
    t->folder = NULL;
    return SPRY_OK;
}

void spry_temporary_deinit(spry_temporary *t)
{
    if (t->folder) {
        if (t->path)
            unlink(t->path);
        rmdir(t->folder);
    }
    if (t->path && t->file >= 0)
        close(t->file);
    free(t->folder);
    free(t->path);
    *t = (spry_temporary){.file = -1};
}
