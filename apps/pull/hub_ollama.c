/* Ollama: a registry's manifest names the layer that is the model; its folder has manifests and blobs. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "platform/environment.h"
#include "platform/file.h"
#include "pull/hub.h"

enum { MANIFEST_BYTES = 1 << 20, URL_BYTES = 1024 };

static const char manifest_type[] = "application/vnd.docker.distribution.manifest.v2+json";

static const char *tag_of(const spry_hub_name *name)
{
    return name->last[0] ? name->last : "latest";
}

/* The 64 digits of the model's layer, or NULL. */
static const char *model_digest(const json_t *manifest, uint64_t *size)
{
    const json_t *layer;
    size_t i;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer)
    {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        json_int_t bytes = json_integer_value(json_object_get(layer, "size"));
        if (type && strcmp(type, "application/vnd.ollama.image.model") == 0 && digest && bytes > 0 &&
            strncmp(digest, "sha256:", 7) == 0 && strlen(digest) == 71 &&
            strspn(digest + 7, "0123456789abcdef") == 64) {
            *size = (uint64_t)bytes;
            return digest + 7;
        }
    }
    return NULL;
}

static void name_model(spry_hub_model *model, const spry_hub_name *name)
{
    if (strcmp(tag_of(name), "latest") == 0)
        snprintf(model->name, sizeof model->name, "%s", name->repo);
    else
        snprintf(model->name, sizeof model->name, "%.90s-%.30s", name->repo, name->last);
}

static spry_status add_blob(spry_hub_model *model, const spry_hub_name *name, const char *registry, const char *digest,
                            uint64_t size, spry_error *error)
{
    char url[URL_BYTES], file[SPRY_MODEL_NAME_MAX + 8];
    spry_remote_file *blob = spry_arena_alloc(&model->arena, 1, sizeof *blob);
    name_model(model, name);
    snprintf(url, sizeof url, "%.400s/v2/%s/%s/blobs/sha256:%s", registry, name->owner, name->repo, digest);
    snprintf(file, sizeof file, "%s.gguf", model->name);
    if (blob)
        *blob = (spry_remote_file){.name = spry_arena_copy(&model->arena, spry_view_of(file)),
                                   .url = spry_arena_copy(&model->arena, spry_view_of(url)),
                                   .sha256 = spry_arena_copy(&model->arena, spry_view_of(digest)),
                                   .size = size};
    if (!blob || !blob->name || !blob->url || !blob->sha256)
        return spry_fail_memory(error, "a model's manifest", sizeof *blob);
    model->files = blob;
    model->count = 1;
    return SPRY_OK;
}

spry_status spry_hub_find_ollama(spry_hub_model *model, const spry_hub_name *name, const char *source,
                                 spry_error *error)
{
    char url[URL_BYTES];
    void *manifest = NULL;
    uint64_t size;
    const char *registry = spry_environment_hub(SPRY_OLLAMA_REGISTRY);
    registry = registry ? registry : SPRY_HUB_OLLAMA;
    snprintf(url, sizeof url, "%.400s/v2/%s/%s/manifests/%s", registry, name->owner, name->repo, tag_of(name));
    spry_status status = spry_hub_get(&manifest, url, NULL, manifest_type, error);
    const char *digest = status == SPRY_OK ? model_digest(manifest, &size) : NULL;
    if (status == SPRY_OK)
        status = digest ? add_blob(model, name, registry, digest, size, error)
                        : spry_fail(error, SPRY_ERR_FORMAT, "%.200s: the registry's manifest names no model", source);
    json_decref(manifest);
    return status;
}

bool spry_hub_local_ollama(spry_buffer *path, const spry_hub_name *name)
{
    spry_buffer text;
    json_t *manifest = NULL;
    uint64_t size;
    const char *host = strstr(SPRY_HUB_OLLAMA, "://") + 3;
    spry_buffer_init(&text, MANIFEST_BYTES);
    spry_buffer_clear(path);
    bool found = spry_environment_hub_folder(path, SPRY_OLLAMA_FOLDER);
    size_t root = path->size;
    found = found && spry_buffer_format(path, "/manifests/%s/%s/%s/%s", host, name->owner, name->repo, tag_of(name)) &&
            spry_file_read(&text, path->data, NULL) == SPRY_OK &&
            spry_json_object(&manifest, spry_buffer_view(&text), NULL) == SPRY_OK;
    const char *digest = found ? model_digest(manifest, &size) : NULL;
    if (digest) {
        path->size = root;
        path->data[root] = '\0';
        found = spry_buffer_format(path, "/blobs/sha256-%s", digest) && spry_path_exists(path->data);
    }
    json_decref(manifest);
    spry_buffer_deinit(&text);
    return found && digest;
}
