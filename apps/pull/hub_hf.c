/* Hugging Face: the list of files from the hub's API, and its cache folder. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/environment.h"
#include "platform/file.h"
#include "pull/hub.h"

enum { PATH_BYTES = 4096, FILES_MAX = 10000 };

/* Appends a path with other bytes than these as %XX. */
static void append_escaped(spry_buffer *out, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    for (; *path; path++)
        if (strchr(plain, *path))
            spry_buffer_append(out, path, 1);
        else
            spry_buffer_format(out, "%%%02X", (unsigned char)*path);
}

static bool is_digest(const char *text)
{
    return text && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

/* Files of a folder that running needs. */
static bool is_needed(const char *path)
{
    static const char *const ends[] = {".safetensors", ".json", ".model", ".jinja", ".txt"};
    if (strchr(path, '/') || path[0] == '.')
        return false;
    for (size_t i = 0; i < SPRY_COUNT(ends); i++)
        if (spry_view_ends(spry_view_of(path), spry_view_of(ends[i])))
            return true;
    return false;
}

typedef struct lister {
    spry_hub_model *model;
    const spry_hub_name *name;
    const char *endpoint, *token, *source;
    spry_error *error;
} lister;

static spry_status add_file(lister *l, const json_t *entry)
{
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *path = json_string_value(json_object_get(entry, "path"));
    const char *digest = json_string_value(json_object_get(lfs, "oid"));
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    spry_buffer url;
    if (size < 0 || !base[0] || base[0] == '.' || strlen(base) > SPRY_MODEL_NAME_MAX)
        return spry_fail(l->error, SPRY_ERR_FORMAT, "%.200s: the hub names a file that cannot be stored", l->source);
    spry_buffer_init(&url, PATH_BYTES);
    spry_buffer_format(&url, "%s/%s/%s/resolve/main/", l->endpoint, l->name->owner, l->name->repo);
    append_escaped(&url, path);
    spry_remote_file *file = &l->model->files[l->model->count];
    spry_arena *arena = &l->model->arena;
    file->name = spry_arena_copy(arena, spry_view_of(base));
    file->url = url.failed ? NULL : spry_arena_copy(arena, spry_buffer_view(&url));
    file->bearer = l->token ? spry_arena_copy(arena, spry_view_of(l->token)) : NULL;
    file->sha256 = is_digest(digest) ? spry_arena_copy(arena, spry_view_of(digest)) : NULL;
    file->size = (uint64_t)size;
    spry_buffer_deinit(&url);
    if (!file->name || !file->url || (l->token && !file->bearer))
        return spry_fail_memory(l->error, "the list of files", PATH_BYTES);
    l->model->count++;
    return SPRY_OK;
}

static const char *path_of(const json_t *list, size_t i)
{
    const char *path = json_string_value(json_object_get(json_array_get(list, i), "path"));
    return path ? path : "";
}

/* The parts of one GGUF file, or the files of a folder. */
static spry_status add_files(lister *l, const json_t *list, const char *const *paths, size_t count, size_t chosen)
{
    bool config = false, weights = false;
    spry_status status = SPRY_OK;
    l->model->files = spry_arena_alloc(&l->model->arena, count, sizeof *l->model->files);
    if (!l->model->files)
        return spry_fail_memory(l->error, "the list of files", count * sizeof *l->model->files);
    for (size_t i = 0; status == SPRY_OK && i < count; i++) {
        bool wanted = chosen == SIZE_MAX ? is_needed(paths[i]) : spry_hub_same_split(paths[chosen], paths[i]);
        config |= strcmp(paths[i], "config.json") == 0;
        weights |= wanted && spry_view_ends(spry_view_of(paths[i]), SPRY_VIEW(".safetensors"));
        if (wanted)
            status = add_file(l, json_array_get(list, i));
    }
    if (status == SPRY_OK && chosen == SIZE_MAX && !(config && weights))
        status = spry_fail(l->error, SPRY_ERR_FORMAT,
                           "%.200s: it has neither GGUF files nor a config.json with .safetensors files", l->source);
    return status;
}

/* A GGUF file has its own name; everything else the repository's. */
static void name_model(lister *l)
{
    const spry_remote_file *first = l->model->files;
    l->model->folder = l->model->count > 1;
    if (!l->model->folder)
        snprintf(l->model->name, sizeof l->model->name, "%.*s", (int)(strlen(first->name) - strlen(".gguf")),
                 first->name);
    else if (l->name->last[0])
        snprintf(l->model->name, sizeof l->model->name, "%.90s-%.30s", l->name->repo, l->name->last);
    else
        snprintf(l->model->name, sizeof l->model->name, "%s", l->name->repo);
}

static spry_status choose_files(lister *l, const json_t *list)
{
    size_t count = json_array_size(list), chosen;
    if (!json_is_array(list) || count > FILES_MAX)
        return spry_fail(l->error, SPRY_ERR_FORMAT, "%.200s: the hub's list of files is not one", l->source);
    const char **paths = calloc(count + 1, sizeof *paths);
    if (!paths)
        return spry_fail_memory(l->error, "the list of files", count * sizeof *paths);
    for (size_t i = 0; i < count; i++)
        paths[i] = path_of(list, i);
    spry_status status = spry_hub_choose(&chosen, paths, count, l->name->last, l->source, l->error);
    if (status == SPRY_OK)
        status = add_files(l, list, paths, count, chosen);
    if (status == SPRY_OK)
        name_model(l);
    free(paths);
    return status;
}

spry_status spry_hub_find_hf(spry_hub_model *model, const spry_hub_name *name, const char *source, spry_error *error)
{
    char url[1024];
    void *list = NULL;
    const char *endpoint = spry_environment_hub(SPRY_HF_ENDPOINT);
    lister l = {.model = model,
                .name = name,
                .endpoint = endpoint ? endpoint : SPRY_HUB_HF,
                .token = spry_environment_hub(SPRY_HF_TOKEN),
                .source = source,
                .error = error};
    snprintf(url, sizeof url, "%.400s/api/models/%s/%s/tree/main?recursive=true", l.endpoint, name->owner, name->repo);
    spry_status status = spry_hub_get(&list, url, l.token, NULL, error);
    if (status == SPRY_OK)
        status = choose_files(&l, list);
    json_decref(list);
    return status;
}

/* ---- the cache folder ----------------------------------------------------------------------------------------------
 */

/* The folder of the newest snapshot: models--OWNER--REPO/snapshots/ and what refs/main says. */
static bool find_snapshot(spry_buffer *path, const spry_hub_name *name)
{
    spry_buffer revision;
    spry_buffer_init(&revision, 256);
    bool found = spry_environment_hub_folder(path, SPRY_HF_FOLDER) &&
                 spry_buffer_format(path, "/models--%s--%s", name->owner, name->repo);
    size_t root = path->size;
    found = found && spry_buffer_text(path, "/refs/main") && spry_file_read(&revision, path->data, NULL) == SPRY_OK;
    spry_view text = spry_buffer_view(&revision);
    while (text.size && text.data[text.size - 1] <= ' ')
        text.size--;
    for (size_t i = 0; i < text.size; i++)
        found = found && text.data[i] != '/' && text.data[i] != '.';
    if (found) {
        path->size = root;
        path->data[root] = '\0';
        found = text.size && spry_buffer_format(path, "/snapshots/%.*s", SPRY_VIEW_ARG(text)) &&
                spry_path_is_folder(path->data);
    }
    spry_buffer_deinit(&revision);
    return found;
}

typedef struct names {
    char *list[FILES_MAX];
    size_t count;
} names;

static void keep_name(void *context, const char *name)
{
    names *n = context;
    char *copy = n->count < FILES_MAX ? strdup(name) : NULL;
    if (copy)
        n->list[n->count++] = copy;
}

/* Whether all parts "-00001-of-0000N" of this kind of file are there. */
static bool is_whole(const names *n, const char *end)
{
    size_t files = 0;
    unsigned long parts = 1;
    for (size_t i = 0; i < n->count; i++)
        if (spry_view_ends(spry_view_of(n->list[i]), spry_view_of(end))) {
            const char *of = strstr(n->list[i], "-of-");
            parts = of ? strtoul(of + 4, NULL, 10) : parts;
            files++;
        }
    return files && files >= parts;
}

static bool find_in_snapshot(spry_buffer *path, const names *n, const spry_hub_name *name)
{
    size_t chosen;
    bool config = false;
    if (spry_hub_choose(&chosen, (const char *const *)n->list, n->count, name->last, "", NULL) != SPRY_OK)
        return false;
    if (chosen != SIZE_MAX) {
        size_t parts = 0, expected = 1;
        const char *of = strstr(n->list[chosen], "-of-");
        for (size_t i = 0; i < n->count; i++)
            parts += spry_hub_same_split(n->list[chosen], n->list[i]);
        expected = of ? strtoul(of + 4, NULL, 10) : 1;
        return parts >= expected && spry_buffer_format(path, "/%s", n->list[chosen]);
    }
    for (size_t i = 0; i < n->count; i++)
        config |= strcmp(n->list[i], "config.json") == 0;
    return config && is_whole(n, ".safetensors");
}

bool spry_hub_local_hf(spry_buffer *path, const spry_hub_name *name)
{
    names *n = calloc(1, sizeof *n);
    spry_buffer_clear(path);
    bool found = n && find_snapshot(path, name) && spry_folder_each(path->data, keep_name, n, NULL) == SPRY_OK &&
                 find_in_snapshot(path, n, name);
    for (size_t i = 0; n && i < n->count; i++)
        free(n->list[i]);
    free(n);
    return found;
}
