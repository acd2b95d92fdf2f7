/* Local models: a GGUF file, or the files of a Hugging Face folder that are needed to run it. Links are followed,
 * because Hugging Face caches use them. A failed or cancelled copy is removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"
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

spry_status spry_pull_copy_file(spry_model_pull *pull, spry_error *error)
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

spry_status spry_pull_copy_folder(spry_model_pull *pull, spry_error *error)
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
