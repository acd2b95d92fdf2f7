/* Finds models by name. The models folder is listed only for error messages. */
#include "cli/model_source.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "cli/settings_profile.h"
#include "platform/file.h"
#include "platform/model_names.h"
#include "pull/catalogue.h"
#include "pull/hub.h"
#include "pull/model_pull.h"

enum { PATH_BYTES = 4096, LISTED_BYTES = 160 };

static const struct {
    const char *name, *former; /* `former` is understood, and shown nowhere */
    const unsigned char *begin, *end;
} bundled[] = {
    {SPRY_BUNDLED_MODEL, "Llama-Tales-29M", spry_bundled_tales_begin, spry_bundled_tales_end},
    {SPRY_BUNDLED_DRAFTER, "Llama-Tales-Draft-4M", spry_bundled_tales_draft_begin, spry_bundled_tales_draft_end},
};

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool ends_with_gguf(const char *name)
{
    return spry_view_ends(spry_view_of(name), SPRY_VIEW(".gguf"));
}

/* The last part of a path without ".gguf", as valid UTF-8: "models/tiny.gguf" becomes "tiny". NULL: no memory. */
static char *name_of_path(const char *path)
{
    spry_buffer name;
    spry_buffer_init(&name, 4 * PATH_BYTES);
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (end - begin > strlen(".gguf") && ends_with_gguf(path))
        end -= strlen(".gguf");
    spry_utf8_append_valid(&name, (spry_view){path + begin, end - begin});
    return name.data; /* the caller owns the buffer's memory */
}

static spry_status take_path(spry_model_source *source, const char *path, spry_error *error)
{
    spry_buffer part;
    spry_buffer_init(&part, PATH_BYTES);
    source->path = strdup(spry_model_first_part(&part, path) ? part.data : path);
    source->name = name_of_path(path);
    spry_buffer_deinit(&part);
    if (source->path && source->name)
        return SPRY_OK;
    spry_model_source_deinit(source);
    return spry_fail_memory(error, "the model's name", strlen(path));
}

static spry_status take_bundled(spry_model_source *source, size_t index, spry_error *error)
{
    source->data = bundled[index].begin;
    source->size = (size_t)((uintptr_t)bundled[index].end - (uintptr_t)bundled[index].begin);
    source->alias = bundled[index].former;
    source->name = strdup(bundled[index].name);
    return source->name ? SPRY_OK : spry_fail_memory(error, "the model's name", strlen(bundled[index].name));
}

static bool is_only_a_path(const char *model)
{
    return strchr(model, '/') || strcmp(model, ".") == 0 || strncmp(model, "..", 2) == 0;
}

/* Looks for NAME and NAME.gguf in a folder; *found: whether `source` was set. */
static spry_status find_in_folder(spry_model_source *source, bool *found, const char *folder, const char *name,
                                  spry_error *error)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = spry_path_join(&path, folder, name, error);
    *found = status == SPRY_OK && spry_path_exists(path.data);
    if (status == SPRY_OK && !*found)
        *found = spry_buffer_text(&path, ".gguf") && spry_path_exists(path.data);
    if (*found)
        status = take_path(source, path.data, error);
    spry_buffer_deinit(&path);
    return status;
}

static int is_listed(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && !spry_view_ends(spry_view_of(entry->d_name), SPRY_VIEW(".part"));
}

/* Appends the names of the models in the folder, until they fill LISTED_BYTES. */
static void list_folder(spry_buffer *out, const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_listed, alphasort);
    if (count < 0)
        spry_buffer_text(out, "does not exist");
    else if (count == 0)
        spry_buffer_text(out, "is empty");
    else
        spry_buffer_text(out, "has ");
    size_t limit = out->size + LISTED_BYTES;
    int listed = 0;
    for (int i = 0; i < count; i++) {
        char *name = name_of_path(entries[i]->d_name);
        if (name && out->size + strlen(name) < limit) {
            spry_buffer_format(out, "%s%s", listed ? ", " : "", name);
            listed++;
        }
        free(name);
        free(entries[i]);
    }
    if (listed < count)
        spry_buffer_format(out, "%s%d more", listed ? " and " : "", count - listed);
    free(entries);
}

static spry_status fail_unknown(const char *model, const char *folder, spry_error *error)
{
    spry_buffer there;
    spry_buffer_init(&there, PATH_BYTES);
    if (folder[0]) {
        spry_buffer_format(&there, "the models folder %.160s ", folder);
        list_folder(&there, folder);
    } else {
        spry_buffer_text(&there, "there is no models folder because HOME is not set");
    }
    spry_status status = spry_fail(error, SPRY_ERR_FILE,
                                   "no model '%.100s': it is not bundled (%s, %s), no file or folder of that name is "
                                   "here, the catalogue (spry models --available) has none, and %s",
                                   model, bundled[0].name, bundled[1].name, spry_buffer_view(&there).data);
    spry_buffer_deinit(&there);
    return status;
}

/* Where a pull has put it, where the hub's own program has it, or after downloading it. */
static spry_status find_on_hub(spry_model_source *source, const char *model, const char *folder, spry_error *error)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    bool local = false;
    spry_status status = SPRY_OK;
    if (!spry_hub_pulled(&path, folder, model) && !(local = spry_hub_local(&path, model))) {
        status = spry_pull_offer(model, folder, error);
        if (status == SPRY_OK && !spry_hub_pulled(&path, folder, model))
            status = spry_fail(error, SPRY_ERR_FILE, "%.200s: is not in the models folder", model);
    }
    if (status == SPRY_OK)
        status = take_path(source, path.data, error);
    if (status == SPRY_OK && local) { /* paths in other programs' folders say little */
        char *name = strdup(model);
        if (name) {
            free(source->name);
            source->name = name;
        }
    }
    spry_buffer_deinit(&path);
    return status;
}

static spry_status find_by_name(spry_model_source *source, const char *model, const char *models_folder,
                                spry_error *error)
{
    for (size_t i = 0; i < SPRY_COUNT(bundled); i++)
        if (strcasecmp(model, bundled[i].name) == 0 || strcasecmp(model, bundled[i].former) == 0)
            return take_bundled(source, i, error);
    if (spry_path_exists(model))
        return take_path(source, model, error);
    bool found = false;
    spry_status status = SPRY_OK;
    if (models_folder[0])
        status = find_in_folder(source, &found, models_folder, model, error);
    if (status != SPRY_OK || found)
        return status;
    spry_buffer hub;
    spry_buffer_init(&hub, PATH_BYTES);
    status = spry_catalogue_find(&hub, model, error);
    if (status == SPRY_OK)
        status =
            hub.size ? find_on_hub(source, hub.data, models_folder, error) : fail_unknown(model, models_folder, error);
    spry_buffer_deinit(&hub);
    return status;
}

spry_status spry_model_source_find(spry_model_source *source, const char *model, const char *models_folder,
                                   spry_error *error)
{
    *source = (spry_model_source){0};
    if (!model)
        return take_bundled(source, 0, error);
    if (!model[0])
        return spry_fail(error, SPRY_ERR_INPUT, "the model's name is empty");
    bool hub = spry_hub_is(model);
    if (hub && spry_hub_check(model, error) != SPRY_OK)
        return SPRY_ERR_INPUT;
    if (is_only_a_path(model) && !hub) {
        if (spry_path_exists(model))
            return take_path(source, model, error);
        return spry_fail(error, SPRY_ERR_FILE, "%s: no such file or folder", model);
    }
    spry_buffer folder;
    spry_buffer_init(&folder, PATH_BYTES);
    if (models_folder)
        spry_buffer_text(&folder, models_folder);
    else
        spry_path_user_data(&folder, "models");
    const char *place = spry_buffer_view(&folder).data;
    spry_status status = hub ? find_on_hub(source, model, place, error) : find_by_name(source, model, place, error);
    if (status == SPRY_OK && source->path && spry_view_starts(spry_view_of(source->path), spry_buffer_view(&folder)))
        spry_path_mark_used(source->path);
    spry_buffer_deinit(&folder);
    return status;
}

void spry_model_source_deinit(spry_model_source *source)
{
    free(source->path);
    free(source->name);
    *source = (spry_model_source){0};
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

spry_status spry_model_source_engine(spry_engine **out, const spry_model_source *source,
                                     const spry_engine_options *options, spry_error *error)
{
    if (source->data)
        return spry_engine_open_memory(out, source->data, source->size, source->name, options, error);
    return spry_engine_open(out, source->path, options, error);
}

spry_model_file spry_model_source_file(const spry_model_source *source)
{
    return (spry_model_file){.path = source->path, .name = source->name, .data = source->data, .size = source->size};
}
