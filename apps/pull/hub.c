/* Lists a model's files on Hugging Face or in Ollama's registry, and finds models that their programs downloaded. */
#include "pull/hub.h"

#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/json.h"
#include "platform/environment.h"
#include "platform/file.h"
#include "pull/pull_http.h"

enum { ANSWER_BYTES = 64 << 20, TRIES = 5 };

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    (void)one;
    return spry_buffer_append(user, data, size) ? size : 0;
}

/* One request; *status 0: there was no answer. */
static CURLcode ask(spry_buffer *out, long *status, uint64_t *wait_ms, const char *url, const char *bearer,
                    const char *accept, int tries)
{
    struct curl_slist *headers = accept ? curl_slist_append(NULL, accept) : NULL;
    CURL *curl = curl_easy_init();
    *status = 0;
    if (!curl)
        return CURLE_OUT_OF_MEMORY;
    spry_http_prepare(curl, &headers, url, bearer);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    *wait_ms = spry_http_wait_ms(curl, tries);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return code;
}

static spry_status parse(void **json, spry_buffer *text, const char *url, spry_error *error)
{
    json_t *parsed;
    char prefix[240];
    spry_status status = spry_json_read(&parsed, spry_buffer_view(text), SPRY_JSON_LAST_KEY, 0, error);
    *json = parsed;
    snprintf(prefix, sizeof prefix, "%.200s: the answer", url);
    return status ? spry_fail_prefix(error, status, prefix) : SPRY_OK;
}

/* The JSON that a URL gives; `accept` may be NULL. */
static spry_status hub_get(void **json, const char *url, const char *bearer, const char *accept, spry_error *error)
{
    char line[128];
    spry_buffer text;
    uint64_t wait_ms = 0;
    long status = 0;
    CURLcode code = CURLE_OK;
    spry_http_init();
    spry_buffer_init(&text, ANSWER_BYTES);
    if (accept)
        snprintf(line, sizeof line, "Accept: %s", accept);
    for (int tries = 0; tries < TRIES; tries++) {
        spry_buffer_clear(&text);
        code = ask(&text, &status, &wait_ms, url, bearer, accept ? line : NULL, tries);
        bool again = code == CURLE_OK ? spry_http_status_passes(status) : spry_http_passes(code);
        if (!again || tries + 1 == TRIES)
            break;
        const struct timespec nap = {.tv_sec = (time_t)(wait_ms / 1000), .tv_nsec = (long)(wait_ms % 1000) * 1000000};
        nanosleep(&nap, NULL);
    }
    spry_status result;
    if (code != CURLE_OK)
        result = spry_fail(error, SPRY_ERR_FILE, "%.200s: %s", url, curl_easy_strerror(code));
    else if (status != 200)
        result = spry_http_refused(url, status, bearer, error);
    else
        result = parse(json, &text, url, error);
    spry_buffer_deinit(&text);
    return result;
}

/* ---- Hugging Face ------------------------------------------------------------------------------------------------ */

/* Hugging Face: the list of files from the hub's API, and its cache folder. */

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
        snprintf(l->model->name, sizeof l->model->name, "%.120s", l->name->repo);
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

static spry_status hub_find_hf(spry_hub_model *model, const spry_hub_name *name, const char *source, spry_error *error)
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
    spry_status status = hub_get(&list, url, l.token, NULL, error);
    if (status == SPRY_OK)
        status = choose_files(&l, list);
    json_decref(list);
    return status;
}

/* ---- the cache folder -------------------------------------------------------------------------------------------- */

/* The folder of the newest snapshot: models--OWNER--REPO/snapshots/ and the name in refs/main. */
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

typedef struct snapshot_names {
    char *list[FILES_MAX];
    size_t count;
} snapshot_names;

static void keep_name(void *context, const char *name)
{
    snapshot_names *n = context;
    char *copy = n->count < FILES_MAX ? strdup(name) : NULL;
    if (copy)
        n->list[n->count++] = copy;
}

/* Whether all parts "-00001-of-0000N" of this kind of file are there. */
static bool is_whole(const snapshot_names *n, const char *end)
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

static bool find_in_snapshot(spry_buffer *path, const snapshot_names *n, const spry_hub_name *name)
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

static bool hub_local_hf(spry_buffer *path, const spry_hub_name *name)
{
    snapshot_names *n = calloc(1, sizeof *n);
    spry_buffer_clear(path);
    bool found = n && find_snapshot(path, name) && spry_folder_each(path->data, keep_name, n, NULL) == SPRY_OK &&
                 find_in_snapshot(path, n, name);
    for (size_t i = 0; n && i < n->count; i++)
        free(n->list[i]);
    free(n);
    return found;
}

/* ---- Ollama ------------------------------------------------------------------------------------------------------ */

/* Ollama: a registry's manifest names the layer that is the model; its folder has manifests and blobs. */

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

static void ollama_name_model(spry_hub_model *model, const spry_hub_name *name)
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
    ollama_name_model(model, name);
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

static spry_status hub_find_ollama(spry_hub_model *model, const spry_hub_name *name, const char *source,
                                   spry_error *error)
{
    char url[URL_BYTES];
    void *manifest = NULL;
    uint64_t size;
    const char *registry = spry_environment_hub(SPRY_OLLAMA_REGISTRY);
    registry = registry ? registry : SPRY_HUB_OLLAMA;
    snprintf(url, sizeof url, "%.400s/v2/%s/%s/manifests/%s", registry, name->owner, name->repo, tag_of(name));
    spry_status status = hub_get(&manifest, url, NULL, manifest_type, error);
    const char *digest = status == SPRY_OK ? model_digest(manifest, &size) : NULL;
    if (status == SPRY_OK)
        status = digest ? add_blob(model, name, registry, digest, size, error)
                        : spry_fail(error, SPRY_ERR_FORMAT, "%.200s: the registry's manifest names no model", source);
    json_decref(manifest);
    return status;
}

static bool hub_local_ollama(spry_buffer *path, const spry_hub_name *name)
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

/* ---- any hub ----------------------------------------------------------------------------------------------------- */

/* Names of models on hubs, and the choice among GGUF files. */

static const char hf[] = "hf:", ollama[] = "ollama:";

static bool is_hf(const char *source)
{
    return strncmp(source, hf, sizeof hf - 1) == 0;
}

bool spry_hub_is(const char *source)
{
    return is_hf(source) || strncmp(source, ollama, sizeof ollama - 1) == 0;
}

/* Copies letters, digits, '.', '_' and '-' up to `end`; false when it is empty, too long or has other characters. */
static bool take_part(char out[128], const char *from, const char *end)
{
    size_t size = (size_t)(end - from);
    if (!size || size > 127 || from[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)from[i]) && !strchr("._-", from[i]))
            return false;
    memcpy(out, from, size);
    out[size] = '\0';
    return true;
}

static spry_status hub_parse(spry_hub_name *name, const char *source, spry_error *error)
{
    *name = (spry_hub_name){.owner = "library", .last = ""};
    const char *at = strchr(source, ':') + 1, *end = at + strlen(at), *slash = strchr(at, '/'),
               *colon = strchr(at, ':');
    const char *repo = slash ? slash + 1 : at;
    bool good = slash || !is_hf(source);
    if (colon && colon < repo)
        good = false;
    if (good && slash)
        good = take_part(name->owner, at, slash);
    if (good)
        good = take_part(name->repo, repo, colon ? colon : end);
    if (good && colon)
        good = take_part(name->last, colon + 1, end);
    if (good)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT, "%.200s: a model of a hub is hf:OWNER/REPO[:TYPE] or ollama:NAME[:TAG]",
                     source);
}

spry_status spry_hub_check(const char *source, spry_error *error)
{
    spry_hub_name name;
    return hub_parse(&name, source, error);
}

spry_status spry_hub_find(spry_hub_model *model, const char *source, spry_error *error)
{
    spry_hub_name name;
    *model = (spry_hub_model){0};
    spry_arena_init(&model->arena);
    spry_status status = hub_parse(&name, source, error);
    if (status == SPRY_OK)
        status =
            is_hf(source) ? hub_find_hf(model, &name, source, error) : hub_find_ollama(model, &name, source, error);
    for (size_t i = 0; status == SPRY_OK && i < model->count; i++)
        model->bytes += model->files[i].size;
    if (status != SPRY_OK)
        spry_hub_deinit(model);
    return status;
}

void spry_hub_deinit(spry_hub_model *model)
{
    spry_arena_deinit(&model->arena);
    *model = (spry_hub_model){0};
}

bool spry_hub_local(spry_buffer *path, const char *source)
{
    spry_hub_name name;
    if (!spry_hub_is(source) || hub_parse(&name, source, NULL) != SPRY_OK)
        return false;
    return is_hf(source) ? hub_local_hf(path, &name) : hub_local_ollama(path, &name);
}

/* ---- GGUF files -------------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The number N of "-0000N-of-0000M.gguf", or 0; *stem: bytes before it. */
static unsigned part_number(const char *name, size_t *stem)
{
    static const char digits[] = "-00000-of-00000.gguf";
    size_t size = strlen(name), tail = sizeof digits - 1;
    unsigned number = 0;
    *stem = size;
    if (size <= tail)
        return 0;
    const char *at = name + size - tail;
    for (size_t i = 0; i < tail; i++)
        if (digits[i] == '0' ? !isdigit((unsigned char)at[i]) : at[i] != digits[i])
            return 0;
    for (size_t i = 1; i < 6; i++)
        number = number * 10 + (unsigned)(at[i] - '0');
    *stem = size - tail;
    return number;
}

bool spry_hub_same_split(const char *first, const char *name)
{
    size_t a, b;
    if (!part_number(first, &a))
        return strcmp(first, name) == 0;
    return part_number(name, &b) && a == b && strncmp(first, name, a) == 0 &&
           strcmp(first + a + 6, name + b + 6) == 0; /* the same "-of-0000M" */
}

static bool is_usable_gguf(const char *path)
{
    size_t stem;
    const char *name = base_name(path);
    unsigned part = part_number(name, &stem);
    size_t size = strlen(name);
    return size > 5 && strcasecmp(name + size - 5, ".gguf") == 0 && part <= 1 && strncasecmp(name, "mmproj", 6) != 0;
}

/* Whether the name has the type as a word of its own: Q4_K is not in Q4_K_M. */
static bool has_type(const char *path, const char *type)
{
    const char *name = base_name(path);
    size_t size = strlen(type);
    for (const char *at = name; *at; at++) {
        bool begins = at == name || !isalnum((unsigned char)at[-1]);
        if (begins && strncasecmp(at, type, size) == 0 && !isalnum((unsigned char)at[size]) && at[size] != '_')
            return true;
    }
    return false;
}

static void list_names(spry_buffer *out, const char *const *names, size_t count)
{
    size_t listed = 0;
    for (size_t i = 0; i < count; i++)
        if (is_usable_gguf(names[i]) && listed++ < 24)
            spry_buffer_format(out, "%s%.80s", listed > 1 ? ", " : "", base_name(names[i]));
}

spry_status spry_hub_choose(size_t *index, const char *const *names, size_t count, const char *type, const char *source,
                            spry_error *error)
{
    static const char *const usual[] = {"Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0", "MXFP4", "F16", "BF16"};
    size_t n_gguf = 0, last = SIZE_MAX;
    *index = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (is_usable_gguf(names[i])) {
            n_gguf++;
            last = i;
            if (type[0] && *index == SIZE_MAX && has_type(names[i], type))
                *index = i;
        }
    for (size_t t = 0; !type[0] && *index == SIZE_MAX && t < SPRY_COUNT(usual); t++)
        for (size_t i = 0; *index == SIZE_MAX && i < count; i++)
            if (is_usable_gguf(names[i]) && has_type(names[i], usual[t]))
                *index = i;
    if (*index == SIZE_MAX && n_gguf == 1 && !type[0])
        *index = last;
    if (*index != SIZE_MAX || (!n_gguf && !type[0]))
        return SPRY_OK;
    spry_buffer there;
    spry_buffer_init(&there, 4096);
    list_names(&there, names, count);
    spry_status status =
        n_gguf ? spry_fail(error, SPRY_ERR_FILE, "%.100s: %s; it has %.300s", source,
                           type[0] ? "no GGUF file of that type" : "say which type", spry_buffer_view(&there).data)
               : spry_fail(error, SPRY_ERR_FILE, "%.200s: it has no GGUF files, so a type cannot be chosen", source);
    spry_buffer_deinit(&there);
    return status;
}
