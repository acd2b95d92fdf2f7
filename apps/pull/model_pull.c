/* Pulls of local files and folders and of models on hubs; names, locks, progress and publishing of every pull. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/utf8.h"
#include "platform/file.h"
#include "pull/catalogue.h"
#include "pull/pull_state.h"

enum { BLOCK_BYTES = 1 << 20, PATH_BYTES = 4096 };

static spry_status open_source(int *file, uint64_t *size, const char *path, spry_error *error)
{
    struct stat facts;
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0)
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*file, &facts) == 0 && S_ISREG(facts.st_mode)) {
        *size = (uint64_t)facts.st_size;
        return SPRY_OK;
    }
    close(*file);
    return spry_fail(error, SPRY_ERR_FILE, "%s: is not a regular file", path);
}

static spry_status copy(spry_model_pull *pull, int to, int from, const char *path, spry_error *error)
{
    char *block = malloc(BLOCK_BYTES);
    spry_status status = block ? SPRY_OK : spry_fail_memory(error, "copying", BLOCK_BYTES);
    while (status == SPRY_OK && (status = spry_pull_report(pull, error)) == SPRY_OK) {
        ssize_t got = read(from, block, BLOCK_BYTES);
        if (got == 0)
            break;
        if (got > 0)
            status = spry_pull_write(pull, to, block, (size_t)got, error);
        else if (errno != EINTR)
            status = spry_fail(error, SPRY_ERR_FILE, "%s: cannot read: %s", path, strerror(errno));
    }
    free(block);
    return status;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static spry_status copy_to_part(spry_model_pull *pull, int from, spry_error *error)
{
    int part;
    spry_status status = spry_pull_lock(pull, &part, error);
    if (status != SPRY_OK)
        return status;
    if (ftruncate(part, 0) != 0)
        status = spry_fail(error, SPRY_ERR_FILE, "cannot write '%s': %s", pull->part, strerror(errno));
    if (status == SPRY_OK)
        status = spry_pull_check_room(pull, pull->total, error);
    if (status == SPRY_OK)
        status = copy(pull, part, from, pull->source, error);
    if (status == SPRY_OK)
        status = spry_pull_publish(pull, part, error);
    if (status != SPRY_OK)
        unlinkat(pull->folder.descriptor, pull->part, 0);
    close(part);
    return status;
}

/* The kinds of sources. */
static spry_status pull_copy_file(spry_model_pull *pull, spry_error *error)
{
    int from;
    spry_status status = open_source(&from, &pull->total, pull->source, error);
    if (status != SPRY_OK)
        return status;
    status = spry_pull_check_gguf(pull, from, error);
    if (status == SPRY_OK)
        status = copy_to_part(pull, from, error);
    close(from);
    return status;
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

typedef struct folder_copy {
    spry_model_pull *pull;
    int part; /* the destination folder; -1: files are only counted */
    bool has_config, has_weights;
    spry_status status;
    spry_error *error;
} folder_copy;

static bool is_needed(spry_view name)
{
    static const char *const ends[] = {".json", ".safetensors", ".model", ".jinja", ".txt"};
    for (size_t i = 0; i < SPRY_COUNT(ends); i++)
        if (spry_view_ends(name, spry_view_of(ends[i])))
            return true;
    return false;
}

static spry_status copy_into(folder_copy *c, int from, const char *name, const char *path)
{
    int to = openat(c->part, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (to < 0)
        return spry_fail(c->error, SPRY_ERR_FILE, "cannot make '%s' in '%s': %s", name, c->pull->part, strerror(errno));
    spry_status status = copy(c->pull, to, from, path, c->error);
    if (status == SPRY_OK && fsync(to) != 0)
        status = spry_fail(c->error, SPRY_ERR_FILE, "cannot write '%s': %s", name, strerror(errno));
    close(to);
    return status;
}

static void visit_file(void *context, const char *name)
{
    folder_copy *c = context;
    spry_buffer path;
    uint64_t size;
    int from;
    if (c->status != SPRY_OK || !is_needed(spry_view_of(name)))
        return;
    spry_buffer_init(&path, PATH_BYTES);
    c->status = spry_path_join(&path, c->pull->source, name, c->error);
    if (c->status == SPRY_OK && !spry_path_is_folder(path.data) &&
        (c->status = open_source(&from, &size, path.data, c->error)) == SPRY_OK) {
        c->has_config |= strcmp(name, "config.json") == 0;
        c->has_weights |= spry_view_ends(spry_view_of(name), SPRY_VIEW(".safetensors"));
        if (c->part < 0)
            c->pull->total += size;
        else
            c->status = copy_into(c, from, name, path.data);
        close(from);
    }
    spry_buffer_deinit(&path);
}

static spry_status visit_files(folder_copy *c)
{
    spry_status status = spry_folder_each(c->pull->source, visit_file, c, c->error);
    return c->status != SPRY_OK ? c->status : status;
}

static bool remove_name(void *context, const char *name)
{
    unlinkat(*(const int *)context, name, 0);
    return true;
}

static void empty_part(int part)
{
    const spry_directory folder = {part};
    spry_directory_each(&folder, remove_name, &part);
}

static spry_status pull_copy_folder(spry_model_pull *pull, spry_error *error)
{
    folder_copy c = {.pull = pull, .part = -1, .error = error};
    spry_status status = visit_files(&c);
    if (status == SPRY_OK && !(c.has_config && c.has_weights))
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: not a model folder: %s", pull->source,
                           c.has_config ? "it has no .safetensors file" : "it has no config.json");
    if (status == SPRY_OK)
        status = spry_pull_check_room(pull, pull->total, error);
    if (status == SPRY_OK)
        status = spry_pull_lock(pull, &c.part, error);
    if (status != SPRY_OK)
        return status;
    empty_part(c.part);
    status = visit_files(&c);
    if (status == SPRY_OK)
        status = spry_pull_publish(pull, c.part, error);
    if (status != SPRY_OK) {
        empty_part(c.part);
        unlinkat(pull->folder.descriptor, pull->part, AT_REMOVEDIR);
    }
    close(c.part);
    return status;
}

/* ---- models of a hub --------------------------------------------------------------------------------------------- */

/* Models of hubs: every file in turn, each in several ranges at once. Unfinished files are kept for the next pull. The
 * folder remembers the names that a model was pulled by. */

/* Without it the model is still found by its own name, so a failure is ignored. */
static void remember_as(void *user, const char *source)
{
    const spry_model_pull *pull = user;
    char name[SPRY_MODEL_ORIGIN_MAX];
    spry_model_origin(name, source);
    struct iovec piece = {(void *)(uintptr_t)pull->target, strlen(pull->target)};
    spry_directory_write(&pull->folder, name, &piece, 1);
}

bool spry_hub_pulled(spry_buffer *path, const char *folder, const char *source)
{
    char called[SPRY_MODEL_NAME_MAX + 1], found[SPRY_MODEL_PATH_MAX + 1];
    if (spry_model_name_find(called, found, folder, source, NULL) != SPRY_OK)
        return false;
    spry_buffer_clear(path);
    return spry_buffer_text(path, found);
}

static spry_status pull_file(spry_model_pull *pull, spry_error *error)
{
    int part;
    spry_status status = spry_pull_lock(pull, &part, error);
    if (status != SPRY_OK)
        return status;
    status = spry_pull_ranges(pull, &pull->folder, pull->part, pull->hub.files, error);
    if (status == SPRY_OK)
        status = spry_pull_check_gguf(pull, part, error);
    if (status == SPRY_ERR_FORMAT)
        spry_directory_remove(&pull->folder, pull->part);
    if (status == SPRY_OK)
        status = spry_pull_publish(pull, part, error);
    close(part);
    return status;
}

/* A file of a folder: under its own name once it is complete. */
static spry_status pull_into(spry_model_pull *pull, const spry_directory *folder, const spry_remote_file *file,
                             spry_error *error)
{
    char part[SPRY_PULL_NAME_BYTES];
    spry_file_facts facts;
    if (spry_directory_facts(folder, file->name, &facts) == 0 && facts.regular && facts.size == file->size) {
        pull->done += file->size; /* an earlier pull has downloaded the file */
        return SPRY_OK;
    }
    snprintf(part, sizeof part, "%s.part", file->name);
    spry_status status = spry_pull_ranges(pull, folder, part, file, error);
    if (status == SPRY_OK && renameat(folder->descriptor, part, folder->descriptor, file->name) != 0)
        status = spry_fail(error, SPRY_ERR_FILE, "cannot rename '%.150s' in '%s'", part, pull->part);
    return status;
}

static spry_status pull_folder(spry_model_pull *pull, spry_error *error)
{
    spry_directory folder;
    spry_status status = spry_pull_lock(pull, &folder.descriptor, error);
    if (status != SPRY_OK)
        return status;
    for (size_t i = 0; status == SPRY_OK && i < pull->hub.count; i++)
        status = pull_into(pull, &folder, &pull->hub.files[i], error);
    if (status == SPRY_OK)
        status = spry_pull_publish(pull, folder.descriptor, error);
    close(folder.descriptor);
    return status;
}

static spry_status pull_from_hub(spry_model_pull *pull, spry_error *error)
{
    pull->total = pull->hub.bytes;
    spry_status status = spry_pull_check_room(pull, pull->total, error);
    if (status == SPRY_OK)
        status = pull->hub.folder ? pull_folder(pull, error) : pull_file(pull, error);
    if (status == SPRY_OK) {
        remember_as(pull, pull->source);
        spry_catalogue_names(pull->source, remember_as, pull);
    }
    return status;
}

/* ---- any source -------------------------------------------------------------------------------------------------- */

enum { PULL_PATH_BYTES = 4096, ROOM_LEFT = 64 << 20 };

static const spry_view suffix = {".gguf", 5};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static spry_view last_part(spry_view path)
{
    while (path.size && path.data[path.size - 1] == '/')
        path.size--;
    size_t begin = path.size;
    while (begin && path.data[begin - 1] != '/')
        begin--;
    return (spry_view){path.data + begin, path.size - begin};
}

/* A name that the pool accepts and that is printable. */
static bool is_name(spry_view name)
{
    if (!name.size || name.size > SPRY_MODEL_NAME_MAX || name.data[0] == '.' || !spry_utf8_valid(name))
        return false;
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] == '/' || (unsigned char)name.data[i] < ' ' || name.data[i] == 127)
            return false;
    return true;
}

static spry_status take_name(spry_model_pull *pull, spry_view name, const char *folder, spry_error *error)
{
    char called[SPRY_MODEL_NAME_MAX + 1], path[SPRY_MODEL_PATH_MAX + 1];
    const char *end = spry_pull_is_folder(pull) ? "" : suffix.data;
    struct stat facts;
    if (spry_view_ends(name, suffix))
        name.size -= suffix.size;
    if (!is_name(name))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "'%.*s' is not a valid model name: a name has 1 to %d printable bytes, no slash and no "
                         "leading dot",
                         SPRY_VIEW_ARG(name), SPRY_MODEL_NAME_MAX);
    snprintf(pull->name, sizeof pull->name, "%.*s", (int)name.size, name.data);
    snprintf(pull->target, sizeof pull->target, "%s%s", pull->name, end);
    snprintf(pull->part, sizeof pull->part, ".%s%s.part", pull->name, end);
    if (spry_model_name_find(called, path, folder, pull->name, NULL) == SPRY_OK ||
        fstatat(pull->folder.descriptor, pull->target, &facts, AT_SYMLINK_NOFOLLOW) == 0)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "the models folder %s already contains '%s'; remove it, or give another name", folder,
                         pull->name);
    return SPRY_OK;
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

static bool has_scheme(const char *source, const char *scheme)
{
    return strncasecmp(source, scheme, strlen(scheme)) == 0;
}

/* Sets kind and source; `path` is the source of the name. */
static spry_status take_source(spry_model_pull *pull, spry_buffer *path, const char *source, spry_error *error)
{
    spry_status status = SPRY_OK;
    bool web = has_scheme(source, "http://") || has_scheme(source, "https://");
    if (spry_hub_is(source)) {
        pull->kind = SPRY_PULL_HUB;
        status = spry_hub_find(&pull->hub, source, error);
        spry_buffer_text(path, pull->hub.name);
        pull->source = strdup(source);
        return status != SPRY_OK || pull->source ? status : spry_fail_memory(error, "a name", strlen(source));
    }
    if (web || has_scheme(source, "file://"))
        status = spry_pull_url_path(path, source, error);
    else if (strstr(source, "://"))
        status = spry_fail(error, SPRY_ERR_INPUT,
                           "%.200s: a source is a path, file://, http://, https://, hf: or ollama:", source);
    else
        spry_buffer_text(path, source);
    if (status != SPRY_OK)
        return status;
    if (web)
        pull->kind = SPRY_PULL_WEB;
    else if (spry_path_is_folder(spry_buffer_view(path).data))
        pull->kind = SPRY_PULL_FOLDER;
    else if (!spry_path_exists(spry_buffer_view(path).data))
        return spry_fail(error, SPRY_ERR_FILE, "%.200s: no such file or folder", source);
    pull->source = path->failed ? NULL : strdup(web ? source : path->data);
    return pull->source ? SPRY_OK : spry_fail_memory(error, "the model's path", strlen(source));
}

spry_status spry_model_pull_open(spry_model_pull **out, const spry_pull_request *request, spry_error *error)
{
    spry_model_pull *pull = calloc(1, sizeof *pull);
    if (!pull)
        return spry_fail_memory(error, "a pull", sizeof *pull);
    spry_buffer path, real;
    spry_buffer_init(&path, PULL_PATH_BYTES);
    spry_buffer_init(&real, PULL_PATH_BYTES);
    pull->folder.descriptor = -1;
    pull->progress = request->progress;
    pull->user = request->user;
    spry_status status = take_source(pull, &path, request->source, error);
    if (status == SPRY_OK)
        status = spry_directory_open(&pull->folder, request->folder, error);
    if (status == SPRY_OK) {
        bool real_name = pull->kind == SPRY_PULL_FOLDER && spry_path_real(&real, path.data); /* "." has a name, too */
        spry_view given =
            request->name ? spry_view_of(request->name) : last_part(spry_buffer_view(real_name ? &real : &path));
        status = take_name(pull, given, request->folder, error);
    }
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&real);
    if (status == SPRY_OK)
        *out = pull;
    else
        spry_model_pull_close(pull);
    return status;
}

void spry_model_pull_close(spry_model_pull *pull)
{
    spry_directory_close(&pull->folder);
    spry_hub_deinit(&pull->hub);
    free(pull->source);
    free(pull);
}

const char *spry_model_pull_name(const spry_model_pull *pull)
{
    return pull->name;
}

spry_status spry_model_pull_run(spry_model_pull *pull, spry_error *error)
{
    switch (pull->kind) {
    case SPRY_PULL_FILE: return pull_copy_file(pull, error);
    case SPRY_PULL_FOLDER: return pull_copy_folder(pull, error);
    case SPRY_PULL_WEB: return spry_pull_download(pull, error);
    case SPRY_PULL_HUB: return pull_from_hub(pull, error);
    }
    return SPRY_OK;
}

/* ---- shared by all kinds of sources ------------------------------------------------------------------------------ */

spry_status spry_pull_report(const spry_model_pull *pull, spry_error *error)
{
    if (!pull->progress || pull->progress(pull->user, pull->done, pull->total))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_CANCELLED, "pulling '%s' was cancelled", pull->name);
}

spry_status spry_pull_check_room(const spry_model_pull *pull, uint64_t more, spry_error *error)
{
    struct statvfs disk;
    if (fstatvfs(pull->folder.descriptor, &disk) != 0)
        return SPRY_OK; /* a failing write will report it */
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room >= ROOM_LEFT && more <= room - ROOM_LEFT)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FILE,
                     "'%s' needs %.3f GB more, but the disk of the models folder has %.3f GB left", pull->name,
                     (double)more / 1e9, (double)room / 1e9);
}

/* The previous holder of the lock may have renamed the file that was opened here. */
static bool is_still_called(const spry_model_pull *pull, int descriptor)
{
    struct stat held, named;
    return fstat(descriptor, &held) == 0 &&
           fstatat(pull->folder.descriptor, pull->part, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

spry_status spry_pull_lock(const spry_model_pull *pull, int *descriptor, spry_error *error)
{
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    if (spry_pull_is_folder(pull)) {
        flags |= O_RDONLY | O_DIRECTORY;
        mkdirat(pull->folder.descriptor, pull->part, 0777); /* a failure shows when it is opened */
    } else {
        flags |= O_RDWR | O_CREAT;
    }
    *descriptor = openat(pull->folder.descriptor, pull->part, flags, 0666);
    if (*descriptor < 0)
        return spry_fail(error, SPRY_ERR_FILE, "cannot make %s in the models folder: %s", pull->part, strerror(errno));
    if (flock(*descriptor, LOCK_EX | LOCK_NB) == 0 && is_still_called(pull, *descriptor))
        return SPRY_OK;
    close(*descriptor);
    *descriptor = -1;
    return spry_fail(error, SPRY_ERR_BUSY, "'%s' is already being pulled", pull->name);
}

spry_status spry_pull_write(spry_model_pull *pull, int descriptor, const char *data, size_t size, spry_error *error)
{
    while (size) {
        ssize_t written = write(descriptor, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return spry_fail(error, SPRY_ERR_FILE, "cannot write '%s' in the models folder: %s", pull->part,
                             strerror(errno));
        data += written;
        size -= (size_t)written;
        pull->done += (uint64_t)written;
    }
    return SPRY_OK;
}

spry_status spry_pull_check_gguf(const spry_model_pull *pull, int descriptor, spry_error *error)
{
    char magic[4];
    if (pread(descriptor, magic, sizeof magic, 0) == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%.200s: not a GGUF file", pull->source);
}

spry_status spry_pull_publish(const spry_model_pull *pull, int descriptor, spry_error *error)
{
    struct stat facts;
    if (fsync(descriptor) != 0)
        return spry_fail(error, SPRY_ERR_FILE, "cannot write '%s': %s", pull->part, strerror(errno));
    if (fstatat(pull->folder.descriptor, pull->target, &facts, AT_SYMLINK_NOFOLLOW) == 0)
        return spry_fail(error, SPRY_ERR_INPUT, "another '%s' appeared in the models folder meanwhile", pull->target);
    if (renameat(pull->folder.descriptor, pull->part, pull->folder.descriptor, pull->target) != 0)
        return spry_fail(error, SPRY_ERR_FILE, "cannot rename '%s' to '%s': %s", pull->part, pull->target,
                         strerror(errno));
    fsync(pull->folder.descriptor);
    return SPRY_OK;
}
