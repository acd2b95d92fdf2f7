/* Models of hubs: every file in turn, each in several ranges at once. Unfinished files are kept for the next pull.
 *
 * The models folder remembers what a source became: a file named after the source's hash holds the model's name. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "platform/file.h"
#include "pull/pull_ranges.h"

enum { ORIGIN_BYTES = 40 };

static void origin_name(char out[ORIGIN_BYTES], const char *source)
{
    snprintf(out, ORIGIN_BYTES, ".%016" PRIx64 ".hub", spry_hash_bytes(source, strlen(source), 0));
}

/* Without it the model is still found by its name, so a failure is ignored. */
static void remember(const spry_model_pull *pull)
{
    char name[ORIGIN_BYTES];
    origin_name(name, pull->source);
    struct iovec piece = {(void *)(uintptr_t)pull->target, strlen(pull->target)};
    spry_directory_write(&pull->folder, name, &piece, 1);
}

bool spry_hub_pulled(spry_buffer *path, const char *folder, const char *source)
{
    char name[ORIGIN_BYTES];
    spry_buffer target;
    spry_buffer_init(&target, SPRY_PULL_NAME_BYTES);
    origin_name(name, source);
    bool found = spry_path_join(path, folder, name, NULL) == SPRY_OK &&
                 spry_file_read(&target, path->data, NULL) == SPRY_OK && !strchr(target.data, '/') &&
                 target.data[0] != '.' && spry_path_join(path, folder, target.data, NULL) == SPRY_OK &&
                 spry_path_exists(path->data);
    spry_buffer_deinit(&target);
    return found;
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
        pull->done += file->size; /* of an earlier pull */
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

spry_status spry_pull_from_hub(spry_model_pull *pull, spry_error *error)
{
    pull->total = pull->hub.bytes;
    spry_status status = spry_pull_check_room(pull, pull->total, error);
    if (status == SPRY_OK)
        status = pull->hub.folder ? pull_folder(pull, error) : pull_file(pull, error);
    if (status == SPRY_OK)
        remember(pull);
    return status;
}
