#include "server/models/derived_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/json.h"
#include "base/sampling_options.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "platform/model_names.h"

enum { FILE_BYTES_MAX = 1 << 20, PATH_BYTES = 4096 };

static const char ending[] = ".derived.json";

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The name of the file; false: this cannot be the name of a model. */
static bool file_name(char out[SPRY_MODEL_NAME_MAX + sizeof ending], const char *name)
{
    const spry_view tag = SPRY_VIEW(":latest");
    spry_view view = spry_view_of(name);
    if (spry_view_ends(view, tag))
        view.size -= tag.size;
    bool fine =
        view.size && view.size < SPRY_MODEL_NAME_MAX && view.data[0] != '.' && !memchr(view.data, '/', view.size);
    for (size_t i = 0; i < view.size; i++)
        fine = fine && (unsigned char)view.data[i] > ' ';
    if (fine)
        snprintf(out, SPRY_MODEL_NAME_MAX + sizeof ending, "%.*s%s", (int)view.size, view.data, ending);
    return fine;
}

json_t *spry_derived_load(const spry_server *server, const char *name)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_buffer path, text;
    json_t *description = NULL;
    if (!name || !server->models_folder || !file_name(file, name))
        return NULL;
    spry_buffer_init(&path, PATH_BYTES);
    spry_buffer_init(&text, FILE_BYTES_MAX);
    if (spry_path_join(&path, server->models_folder, file, NULL) == SPRY_OK && spry_path_exists(path.data) &&
        spry_file_read(&text, path.data, NULL) == SPRY_OK)
        (void)spry_json_object(&description, spry_buffer_view(&text), NULL);
    spry_buffer_deinit(&text);
    spry_buffer_deinit(&path);
    if (!json_is_string(json_object_get(description, "from"))) {
        json_decref(description);
        return NULL;
    }
    return description;
}

spry_status spry_derived_save(const spry_server *server, const char *name, const json_t *description, spry_error *error)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_file_writer writer;
    spry_buffer path;
    if (!server->models_folder)
        return spry_fail(error, SPRY_ERR_INPUT, "this server has no models folder; --models-dir sets one");
    if (!file_name(file, name))
        return spry_fail(error, SPRY_ERR_INPUT, "\"%.100s\" cannot be the name of a model", name);
    char *text = json_dumps(description, JSON_INDENT(2));
    if (!text)
        return spry_fail_memory(error, "the model", 0);
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = spry_path_join(&path, server->models_folder, file, error);
    if (status == SPRY_OK)
        status = spry_file_writer_open(&writer, path.data, error);
    if (status == SPRY_OK) {
        status = spry_file_writer_write(&writer, text, strlen(text), error);
        if (status == SPRY_OK)
            status = spry_file_writer_commit(&writer, error);
        spry_file_writer_abandon(&writer);
    }
    spry_buffer_deinit(&path);
    free(text);
    return status;
}

bool spry_derived_remove(const spry_server *server, const char *name)
{
    char file[SPRY_MODEL_NAME_MAX + sizeof ending];
    spry_directory folder;
    if (!server->models_folder || !file_name(file, name) ||
        spry_directory_open(&folder, server->models_folder, NULL) != SPRY_OK)
        return false;
    bool removed = spry_directory_remove(&folder, file) == 0;
    spry_directory_close(&folder);
    return removed;
}

typedef struct visitor {
    void (*visit)(void *context, const char *name);
    void *context;
} visitor;

static void visit_file(void *context, const char *file)
{
    const visitor *v = context;
    char name[SPRY_MODEL_NAME_MAX + 1];
    spry_view view = spry_view_of(file);
    if (!spry_view_ends(view, SPRY_VIEW(".derived.json")) || view.size > SPRY_MODEL_NAME_MAX)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(view.size + 1 - sizeof ending), file);
    v->visit(v->context, name);
}

void spry_derived_each(const spry_server *server, void (*visit)(void *context, const char *name), void *context)
{
    visitor v = {visit, context};
    if (server->models_folder)
        (void)spry_folder_each(server->models_folder, visit_file, &v, NULL);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool has_system(const json_t *messages)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

/* A setting has another name, or none, outside Ollama's interface. */
static const char *setting_name(const char *name, bool ollama)
{
    static const char *const known[][2] = {{"num_predict", "max_tokens"},
                                           {"temperature", "temperature"},
                                           {"top_p", "top_p"},
                                           {"top_k", "top_k"},
                                           {"min_p", "min_p"},
                                           {"repeat_penalty", "repeat_penalty"},
                                           {"repeat_last_n", "repeat_last_n"},
                                           {"seed", "seed"},
                                           {"presence_penalty", "presence_penalty"},
                                           {"frequency_penalty", "frequency_penalty"},
                                           {"stop", "stop"}};
    if (ollama)
        return name;
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        if (strcmp(known[i][0], name) == 0)
            return known[i][1];
    return NULL;
}

/* Limits of answers have several names. */
static bool has_limit(const json_t *body)
{
    return json_object_get(body, "max_tokens") || json_object_get(body, "max_completion_tokens") ||
           json_object_get(body, "n_predict");
}

/* Ollama's "think" is a variable of the template elsewhere. */
static void apply_think(json_t *body, json_t *value, bool ollama)
{
    json_t *variables = json_object_get(body, "chat_template_kwargs");
    if (ollama && !json_object_get(body, "think"))
        json_object_set(body, "think", value);
    if (ollama || json_object_get(body, "reasoning_effort"))
        return;
    if (!json_is_object(variables))
        json_object_set_new(body, "chat_template_kwargs", variables = json_object());
    if (!json_object_get(variables, "enable_thinking"))
        json_object_set(variables, "enable_thinking", value);
}

static void apply_settings(const json_t *parameters, json_t *body, bool ollama)
{
    const char *key;
    json_t *value;
    if (ollama && json_object_size(parameters) && !json_is_object(json_object_get(body, "options")))
        json_object_set_new(body, "options", json_object());
    json_t *target = ollama ? json_object_get(body, "options") : body;
    json_object_foreach((json_t *)(uintptr_t)parameters, key, value)
    {
        const char *name = setting_name(key, ollama);
        if (strcmp(key, "think") == 0)
            apply_think(body, value, ollama);
        else if (strcmp(key, "verbose") == 0 && !json_object_get(body, key))
            json_object_set(body, key, value);
        else if (name && !json_object_get(target, name) && !(strcmp(key, "num_predict") == 0 && has_limit(body)))
            json_object_set(target, name, value);
    }
}

void spry_derived_apply(const json_t *description, json_t *body, bool ollama)
{
    json_t *system = json_object_get(description, "system"), *messages = json_object_get(body, "messages");
    apply_settings(json_object_get(description, "parameters"), body, ollama);
    if (json_string_length(system) && json_array_size(messages) && !has_system(messages))
        json_array_insert_new(messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", system));
    else if (json_string_length(system) && ollama && !json_object_get(body, "system"))
        json_object_set(body, "system", system);
}

spry_status spry_derived_defaults(json_t **out, const char *text, spry_error *error)
{
    json_error_t wrong;
    json_t *settings = json_loads(text, JSON_REJECT_DUPLICATES, &wrong), *value;
    const char *key, *unknown = NULL;
    spry_sampling sampling;
    spry_sampling_default(&sampling);
    if (!json_is_object(settings)) {
        json_decref(settings);
        return spry_fail(error, SPRY_ERR_INPUT, "--defaults is not a JSON object: %s", text);
    }
    json_object_foreach(settings, key, value)
    {
        bool flag = strcmp(key, "think") == 0 || strcmp(key, "verbose") == 0;
        bool count = strcmp(key, "num_predict") == 0;
        if (flag ? !json_is_boolean(value) : count ? !json_is_integer(value) : !setting_name(key, false))
            unknown = key;
    }
    spry_status status = SPRY_OK;
    if (unknown)
        status = spry_fail(error, SPRY_ERR_INPUT, "--defaults: %.60s is unknown, or has a wrong value", unknown);
    else if (spry_sampling_from_json(&sampling, NULL, 0, settings, true, error) != SPRY_OK)
        status = spry_fail_prefix(error, SPRY_ERR_INPUT, "--defaults");
    *out = status == SPRY_OK ? json_pack("{s:O}", "parameters", settings) : NULL;
    json_decref(settings);
    return status;
}
