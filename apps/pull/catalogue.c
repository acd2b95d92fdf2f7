#include "pull/catalogue.h"

#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "cli/model_source.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "pull/hub.h"

enum { PATH_BYTES = 4096, FILE_BYTES_MAX = 1 << 20, LISTED_BYTES = 400 };

static const char *text_of(const json_t *model, const char *key)
{
    const char *text = json_string_value(json_object_get(model, key));
    return text ? text : "";
}

/* How well a model follows schemas: no judgement, or a share and the source of it. */
static bool is_judgement(const json_t *model)
{
    const json_t *schema = json_object_get(model, "schema");
    double share = json_number_value(schema);
    return !schema || (json_is_number(schema) && share >= 0 && share <= 1 && text_of(model, "schema_source")[0]);
}

static spry_status check_models(const json_t *models, const char *path, spry_error *error)
{
    size_t i;
    const json_t *model;
    if (!json_is_array(models))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: models: a list is expected", path);
    json_array_foreach(models, i, model)
    {
        const char *source = text_of(model, "source");
        if (!text_of(model, "name")[0] || strpbrk(text_of(model, "name"), "/\\"))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: models[%zu].name: a name without slashes is expected", path,
                             i);
        if (!spry_hub_is(source) || spry_hub_check(source, error) != SPRY_OK)
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "%s: models[%zu].source: hf:OWNER/REPO[:TYPE] or ollama:NAME[:TAG] is expected", path, i);
        if (!json_is_number(json_object_get(model, "bytes")) || json_number_value(json_object_get(model, "bytes")) < 0)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: models[%zu].bytes: a number is expected", path, i);
        if (!is_judgement(model))
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "%s: models[%zu].schema: a number from 0 to 1 is expected, and schema_source, a text", path,
                             i);
    }
    return SPRY_OK;
}

spry_status spry_catalogue_load(json_t **models, spry_error *error)
{
    spry_buffer path, text;
    spry_status status = SPRY_OK;
    spry_buffer_init(&path, PATH_BYTES);
    spry_buffer_init(&text, FILE_BYTES_MAX);
    *models = NULL;
    spry_path_user_data(&path, "catalogue.json");
    if (path.size && spry_path_exists(path.data)) {
        status = spry_file_read(&text, path.data, error);
    } else {
        spry_buffer_deinit(&path);
        spry_buffer_text(&path, "the catalogue");
        spry_buffer_append(&text, spry_bundled_catalogue_begin,
                           (size_t)(spry_bundled_catalogue_end - spry_bundled_catalogue_begin));
    }
    if (status == SPRY_OK) {
        json_t *root;
        status = spry_json_read(&root, spry_buffer_view(&text), 0, 0, error);
        if (status != SPRY_OK)
            (void)spry_fail_prefix(error, status, path.data);
        else
            status = check_models(json_object_get(root, "models"), path.data, error);
        if (status == SPRY_OK)
            *models = json_incref(json_object_get(root, "models"));
        json_decref(root);
    }
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&text);
    return status;
}

spry_status spry_catalogue_find(spry_buffer *source, const char *name, spry_error *error)
{
    json_t *models;
    const json_t *model, *only = NULL;
    size_t i, n_sizes = 0, length = strlen(name);
    spry_status status = spry_catalogue_load(&models, error);
    if (status != SPRY_OK)
        return status;
    spry_buffer sizes;
    spry_buffer_init(&sizes, LISTED_BYTES);
    json_array_foreach(models, i, model)
    {
        const char *entry = text_of(model, "name");
        if (strcasecmp(entry, name) == 0) {
            only = model;
            n_sizes = 1;
            break;
        }
        if (strncasecmp(entry, name, length) == 0 && entry[length] == ':') {
            spry_buffer_format(&sizes, "%s%s", n_sizes++ ? ", " : "", entry);
            only = model;
        }
    }
    if (n_sizes > 1)
        status = spry_fail(error, SPRY_ERR_INPUT, "%.100s has several sizes: %s (spry models --available lists more)",
                           name, spry_buffer_view(&sizes).data);
    else if (n_sizes == 1)
        spry_buffer_text(source, text_of(only, "source"));
    spry_buffer_deinit(&sizes);
    json_decref(models);
    return status;
}

void spry_catalogue_names(const char *source, void (*visit)(void *user, const char *name), void *user)
{
    json_t *models;
    const json_t *model;
    size_t i;
    if (spry_catalogue_load(&models, NULL) != SPRY_OK)
        return;
    json_array_foreach(models, i, model) if (strcmp(text_of(model, "source"), source) == 0)
        visit(user, text_of(model, "name"));
    json_decref(models);
}

/* "qwen3-0.6b" and "qwen3:0.6b" */
static bool is_shape(const char *name, const char *shape)
{
    size_t family = strcspn(name, ":");
    return strncmp(name, shape, family) == 0 && name[family] && shape[family] == '-' &&
           strcmp(name + family + 1, shape + family + 1) == 0;
}

double spry_catalogue_schema(const json_t *models, const char *shape, const char **source)
{
    size_t i;
    const json_t *model;
    json_array_foreach(models, i, model) if (is_shape(text_of(model, "name"), shape))
    {
        *source = text_of(model, "schema_source");
        return json_number_value(json_object_get(model, "schema"));
    }
    *source = "";
    return 0;
}

bool spry_catalogue_fits(const json_t *model)
{
    /* Weights, a context of a few thousand tokens, and the rest of the system. */
    double bytes = json_number_value(json_object_get(model, "bytes"));
    return bytes * 1.1 + 1e9 <= (double)spry_memory_total();
}
