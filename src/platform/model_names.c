#include "platform/model_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "platform/environment.h"
#include "platform/file.h"

#ifndef SPRY_MODEL_DIR
#define SPRY_MODEL_DIR "../share/spry/models"
#endif

static const char suffix[] = ".gguf";

static bool has_suffix(const char *name)
{
    return strlen(name) >= sizeof suffix && spry_view_ends(spry_view_of(name), SPRY_VIEW(".gguf"));
}

static bool is_name(const char *name)
{
    size_t size = strlen(name);
    return size && size <= SPRY_MODEL_NAME_MAX && name[0] != '.' && !strchr(name, '/');
}

/* The real path of "folder/name" + `end`, if that is inside the folder. */
static bool find_inside(spry_buffer *real, const char *folder, const char *name, const char *end)
{
    spry_buffer path, root;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_init(&root, 1 << 16);
    bool inside = !spry_path_join(&path, folder, name, NULL) && spry_buffer_text(&path, end) &&
                  spry_path_real(real, path.data) && spry_path_real(&root, folder) && spry_buffer_text(&root, "/") &&
                  spry_view_starts(spry_buffer_view(real), spry_buffer_view(&root));
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&root);
    return inside;
}

static bool has_config(const char *folder)
{
    spry_buffer path;
    spry_buffer_init(&path, 1 << 16);
    bool has = !spry_path_join(&path, folder, "config.json", NULL) && spry_path_exists(path.data);
    spry_buffer_deinit(&path);
    return has;
}

/* A split GGUF file in a folder of its own: its first part ends in "-00001-of-0000N.gguf". */
static void keep_first_part(void *context, const char *name)
{
    static const char tail[] = "-00001-of-00000.gguf";
    spry_buffer *found = context;
    size_t size = strlen(name), length = sizeof tail - 1;
    if (size > length && has_suffix(name) && memcmp(name + size - length, tail, strlen("-00001-of-")) == 0) {
        spry_buffer_clear(found);
        spry_buffer_text(found, name);
    }
}

bool spry_model_first_part(spry_buffer *path, const char *folder)
{
    spry_buffer name;
    spry_buffer_init(&name, 4096);
    bool found = spry_path_is_folder(folder) && !has_config(folder) &&
                 spry_folder_each(folder, keep_first_part, &name, NULL) == SPRY_OK && name.size &&
                 spry_path_join(path, folder, name.data, NULL) == SPRY_OK;
    spry_buffer_deinit(&name);
    return found;
}

static bool is_model(const char *path)
{
    spry_buffer part;
    if (!spry_path_is_folder(path))
        return has_suffix(path) && spry_path_exists(path);
    spry_buffer_init(&part, 1 << 16);
    bool is = has_config(path) || spry_model_first_part(&part, path);
    spry_buffer_deinit(&part);
    return is;
}

/* What an entry of the folder is called: files without their suffix, unless a folder is called that. */
static void call(char called[SPRY_MODEL_NAME_MAX + 1], const char *folder, const char *name)
{
    spry_buffer real;
    spry_buffer_init(&real, 1 << 16);
    snprintf(called, SPRY_MODEL_NAME_MAX + 1, "%s", name);
    if (has_suffix(name)) {
        called[strlen(called) - (sizeof suffix - 1)] = 0;
        if (find_inside(&real, folder, called, "") && is_model(real.data))
            snprintf(called, SPRY_MODEL_NAME_MAX + 1, "%s", name);
    }
    spry_buffer_deinit(&real);
}

/* What `name` means by itself. */
static bool find_named(char called[SPRY_MODEL_NAME_MAX + 1], char path[SPRY_MODEL_PATH_MAX + 1], const char *folder,
                       const char *name)
{
    static const char *const ends[] = {"", suffix};
    spry_buffer real;
    bool found = false;
    spry_buffer_init(&real, 1 << 16);
    for (size_t i = 0; folder && is_name(name) && !found && i < SPRY_COUNT(ends); i++)
        found = find_inside(&real, folder, name, ends[i]) && is_model(real.data) && real.size <= SPRY_MODEL_PATH_MAX;
    if (found) {
        spry_buffer part;
        spry_buffer_init(&part, SPRY_MODEL_PATH_MAX + 1);
        bool split = spry_model_first_part(&part, real.data);
        snprintf(path, SPRY_MODEL_PATH_MAX + 1, "%s", split ? part.data : real.data);
        spry_buffer_deinit(&part);
        call(called, folder, name);
    }
    spry_buffer_deinit(&real);
    return found;
}

void spry_model_origin(char out[SPRY_MODEL_ORIGIN_MAX], const char *source)
{
    snprintf(out, SPRY_MODEL_ORIGIN_MAX, ".%016" PRIx64 ".hub", spry_hash_bytes(source, strlen(source), 0));
}

/* The model that was pulled by this name. */
static bool find_pulled(char called[SPRY_MODEL_NAME_MAX + 1], char path[SPRY_MODEL_PATH_MAX + 1], const char *folder,
                        const char *source)
{
    char origin[SPRY_MODEL_ORIGIN_MAX];
    spry_buffer file, target;
    spry_buffer_init(&file, 1 << 16);
    spry_buffer_init(&target, SPRY_MODEL_NAME_MAX + sizeof suffix);
    spry_model_origin(origin, source);
    bool found = folder && spry_path_join(&file, folder, origin, NULL) == SPRY_OK &&
                 spry_file_read(&target, file.data, NULL) == SPRY_OK && target.size &&
                 find_named(called, path, folder, target.data);
    spry_buffer_deinit(&file);
    spry_buffer_deinit(&target);
    return found;
}

spry_status spry_model_name_find(char called[SPRY_MODEL_NAME_MAX + 1], char path[SPRY_MODEL_PATH_MAX + 1],
                                 const char *folder, const char *name, spry_error *error)
{
    if (find_named(called, path, folder, name) || find_pulled(called, path, folder, name))
        return SPRY_OK;
    if (!is_name(name))
        return spry_fail(error, SPRY_ERR_FILE,
                         "there is no model '%.127s': a name has no slash, does not begin with a dot, and has at most "
                         "%d bytes",
                         name, SPRY_MODEL_NAME_MAX);
    return spry_fail(error, SPRY_ERR_FILE, "there is no model '%.127s'%s", name, folder ? " in the models folder" : "");
}

spry_status spry_model_locate(char path[SPRY_MODEL_PATH_MAX + 1], const char *name, spry_error *error)
{
    static const char *const installed[] = {SPRY_MODEL_DIR, "../share/spry/models", "../models", "models"};
    char called[SPRY_MODEL_NAME_MAX + 1];
    spry_buffer user, folder;
    spry_buffer_init(&user, SPRY_MODEL_PATH_MAX);
    spry_buffer_init(&folder, SPRY_MODEL_PATH_MAX);
    spry_path_user_data(&user, "models");
    bool found = user.size && spry_model_name_find(called, path, user.data, name, NULL) == SPRY_OK;
    for (size_t i = 0; !found && i < SPRY_COUNT(installed); i++)
        found = spry_environment_library_folder(&folder, installed[i]) && find_named(called, path, folder.data, name);
    spry_status status =
        found ? SPRY_OK
              : spry_fail(error, SPRY_ERR_FILE,
                          "there is no file or folder '%.127s', nor a model of that name in %.300s; `spry pull %.127s` "
                          "downloads models of hubs and of the catalogue",
                          name, user.size ? user.data : "a models folder (HOME is not set)", name);
    spry_buffer_deinit(&user);
    spry_buffer_deinit(&folder);
    return status;
}

typedef struct listing {
    const char *folder;
    spry_model_name_visit visit;
    void *context;
} listing;

static void list(void *context, const char *name)
{
    const listing *l = context;
    char called[SPRY_MODEL_NAME_MAX + 1];
    spry_buffer real;
    spry_buffer_init(&real, 1 << 16);
    if (is_name(name) && find_inside(&real, l->folder, name, "") && is_model(real.data) &&
        real.size <= SPRY_MODEL_PATH_MAX) {
        call(called, l->folder, name);
        l->visit(l->context, called, real.data);
    }
    spry_buffer_deinit(&real);
}

void spry_model_names_each(const char *folder, spry_model_name_visit visit, void *context)
{
    listing l = {folder, visit, context};
    if (folder)
        spry_folder_each(folder, list, &l, NULL);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

typedef struct folder_facts {
    const char *folder;
    size_t bytes;
    int64_t modified;
} folder_facts;

static void add_file(void *context, const char *name)
{
    folder_facts *f = context;
    spry_buffer path;
    size_t bytes;
    int64_t modified;
    spry_buffer_init(&path, 1 << 16);
    if (!spry_path_join(&path, f->folder, name, NULL) && !spry_path_is_folder(path.data) &&
        spry_path_facts(path.data, &bytes, &modified)) {
        f->bytes += bytes;
        f->modified = modified > f->modified ? modified : f->modified;
    }
    spry_buffer_deinit(&path);
}

void spry_model_file_facts(const char *path, size_t *bytes, int64_t *modified)
{
    folder_facts f = {.folder = path};
    if (spry_path_is_folder(path))
        spry_folder_each(path, add_file, &f, NULL);
    else
        spry_path_facts(path, &f.bytes, &f.modified);
    *bytes = f.bytes;
    *modified = f.modified;
}
