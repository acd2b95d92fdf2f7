/* Ollama's paths that list and describe models. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/map.h"
#include "server/api/apis.h"
#include "server/api/modelfile.h"
#include "server/api/ollama_json.h"
#include "server/http/http_reply.h"
#include "server/models/derived_model.h"
#include "server/request/fill_in.h"
#include "server/request/model_name.h"
#include "server/request/prompt.h"
#include "server/server_setup.h"
#include "server/status/watch.h"
#include "spry_tools.h"

enum { NEVER_S = 1000000000 }; /* for a model that is never unloaded */

/* Clients compare this with the versions of Ollama whose interface they need. */
static const char interface_version[] = "0.12.6";

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

/* Made of the file's name, size and time; a checksum of its content would take minutes. */
static void digest_of(char out[65], const spry_pool_info *info)
{
    uint64_t name = spry_hash_bytes(info->name, strlen(info->name), 1);
    snprintf(out, 65, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, name, (uint64_t)info->file_bytes,
             (uint64_t)info->modified, spry_hash_bytes(info->path, strlen(info->path), 2));
}

/* What the file says of itself; NULL: it cannot be read. */
static json_t *inspect(const spry_server *server, const spry_pool_info *info)
{
    spry_model_file file;
    char *text = NULL;
    spry_server_model_file(&file, server, info);
    if (spry_inspect_json(&text, &file, 0, false, NULL) != SPRY_OK)
        return NULL;
    json_t *json = json_loads(text, 0, NULL);
    spry_free(text);
    return json;
}

/* The type that has the most bytes, in capitals. */
static void main_type(char out[24], const json_t *types)
{
    json_int_t most = -1;
    const json_t *type;
    size_t i;
    out[0] = '\0';
    json_array_foreach(types, i, type)
    {
        json_int_t bytes = json_integer_value(json_object_get(type, "bytes"));
        const char *name = json_string_value(json_object_get(type, "type"));
        if (bytes <= most || !name)
            continue;
        most = bytes;
        snprintf(out, 24, "%s", name);
    }
    for (char *c = out; *c; c++)
        *c = (char)toupper((unsigned char)*c);
}

static void print_size(char out[24], double parameters)
{
    if (parameters >= 1e9)
        snprintf(out, 24, "%.1fB", parameters / 1e9);
    else
        snprintf(out, 24, "%.1fM", parameters / 1e6);
}

static json_t *details_json(const json_t *facts, const char *parent)
{
    char type[24], size[24];
    const char *family = json_string_value(json_object_get(facts, "architecture"));
    const char *format = json_string_value(json_object_get(facts, "format"));
    main_type(type, json_object_get(facts, "types"));
    print_size(size, json_number_value(json_object_get(facts, "parameters")));
    bool gguf = format && strncmp(format, "GGUF", 4) == 0;
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", parent, "format",
                     gguf ? "gguf" : "safetensors", "family", family ? family : "", "families", family ? family : "",
                     "parameter_size", size, "quantization_level", type);
}

static json_t *model_json(const spry_server *server, const spry_pool_info *info)
{
    char when[SPRY_OLLAMA_TIME], digest[65];
    json_t *facts = inspect(server, info);
    spry_ollama_time(when, info->modified);
    digest_of(digest, info);
    json_t *model =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", info->name, "model", info->name, "modified_at", when,
                  "size", (json_int_t)info->file_bytes, "digest", digest, "details", details_json(facts, ""));
    json_decref(facts);
    return model;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

typedef struct model_list {
    const spry_server *server;
    json_t *list;
} model_list;

static bool add_model(void *context, const spry_pool_info *info)
{
    model_list *l = context;
    json_array_append_new(l->list, model_json(l->server, info));
    return true;
}

/* A derived model is listed with the facts of the model it is derived from. */
static void add_derived(void *context, const char *name)
{
    model_list *l = context;
    json_t *description = spry_derived_load(l->server, name), *model, *found = NULL;
    const char *from = json_string_value(json_object_get(description, "from"));
    size_t i;
    json_array_foreach(l->list, i, model)
    {
        const char *other = json_string_value(json_object_get(model, "name"));
        if (!found && from && other && strcasecmp(other, from) == 0)
            found = json_deep_copy(model);
    }
    if (found) {
        json_object_set_new(found, "name", json_string(name));
        json_object_set_new(found, "model", json_string(name));
        json_object_set_new(json_object_get(found, "details"), "parent_model", json_string(from));
        json_array_append_new(l->list, found);
    }
    json_decref(description);
}

void spry_ollama_tags(spry_exchange *x)
{
    model_list l = {x->server, json_array()};
    spry_model_pool_each(x->server->pool, add_model, &l);
    spry_derived_each(x->server, add_derived, &l);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "models", l.list));
}

/* "size" is the memory in use; "size_limit" has all of KV memory. */
static json_t *loaded_json(const spry_server *server, const spry_model_status *status)
{
    char until[SPRY_OLLAMA_TIME];
    const spry_pool_info *info = &status->pool;
    json_t *model = model_json(server, info), *memory = spry_watch_memory(status);
    double left = info->expires_s >= 0 && info->expires_s < NEVER_S ? info->expires_s : NEVER_S;
    spry_ollama_time(until, (int64_t)time(NULL) + (int64_t)left);
    json_object_set(model, "size", json_object_get(memory, "used"));
    json_object_set(model, "size_limit", json_object_get(memory, "limit"));
    json_object_set_new(model, "size_vram", json_integer(0));
    json_object_set_new(model, "expires_at", json_string(until));
    json_decref(memory);
    return model;
}

void spry_ollama_ps(spry_exchange *x)
{
    spry_model_status *models;
    size_t count;
    if (!spry_registry_models(&x->server->registry, &models, &count, x->server->pool)) {
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the list");
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (models[i].in_pool && models[i].pool.state == SPRY_POOL_LOADED)
            json_array_append_new(list, loaded_json(x->server, &models[i]));
    free(models);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "models", list));
}

/* ---- one model --------------------------------------------------------------------------------------------------- */

typedef struct pool_search {
    const char *name;
    spry_pool_info info;
    bool found;
} pool_search;

static bool match(void *context, const spry_pool_info *info)
{
    pool_search *s = context;
    s->found = strcmp(info->name, s->name) == 0;
    if (s->found)
        s->info = *info;
    return !s->found;
}

/* The plain values of the metadata; lists, such as the tokens, are left out. */
static json_t *info_json(const json_t *facts, const spry_engine_info *engine)
{
    json_t *info = json_object(), *value;
    const char *key, *family = json_string_value(json_object_get(facts, "architecture"));
    char name[96];
    json_object_foreach(json_object_get(facts, "metadata"), key,
                        value) if (!json_is_object(value) && !json_is_array(value)) json_object_set(info, key, value);
    snprintf(name, sizeof name, "%s.context_length", family ? family : "model");
    if (!json_object_get(info, name))
        json_object_set_new(info, name, json_integer((json_int_t)engine->context));
    snprintf(name, sizeof name, "%s.embedding_length", family ? family : "model");
    if (!json_object_get(info, name))
        json_object_set_new(info, name, json_integer((json_int_t)engine->embedding));
    json_object_set_new(info, "general.architecture", json_string(family ? family : ""));
    json_object_set_new(info, "general.parameter_count", json_integer((json_int_t)engine->parameters));
    json_object_set_new(info, "vocabulary", json_integer((json_int_t)engine->vocabulary));
    return info;
}

static bool template_has(spry_view source, const char *word)
{
    return source.size && memmem(source.data, source.size, word, strlen(word));
}

static json_t *capabilities_json(const spry_engine *engine, spry_view source)
{
    if (spry_engine_only_embeds(engine))
        return json_pack("[s]", "embedding");
    json_t *list = json_pack("[s, s]", "completion", "embedding");
    if (template_has(source, "tools") || template_has(source, "im_start"))
        json_array_append_new(list, json_string("tools"));
    if (spry_ollama_template_thinks(source))
        json_array_append_new(list, json_string("thinking"));
    if (spry_engine_can_fill_in(engine))
        json_array_append_new(list, json_string("insert"));
    return list;
}

/* `derived` (NULL: it is not) describes what is derived from the model. */
static json_t *show_json(const spry_server *server, const spry_pooled *model, const json_t *derived)
{
    char when[SPRY_OLLAMA_TIME];
    pool_search s = {.name = model->name};
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_model_pool_each(server->pool, match, &s);
    spry_ollama_time(when, s.info.modified);
    json_t *facts = inspect(server, &s.info), *own = json_object_get(derived, "template");
    json_t *plain = json_pack("{s:s}", "from", model->name), *system = json_object_get(derived, "system");
    spry_view source;
    source.data = spry_engine_chat_template(model->engine, false, &source.size);
    json_t *shown =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "modelfile", spry_modelfile_text(derived ? derived : plain),
                  "parameters", spry_modelfile_parameters(derived), "template",
                  json_string_length(own) ? json_incref(own) : spry_view_json(source), "details",
                  details_json(facts, derived ? model->name : ""), "model_info", info_json(facts, &info),
                  "capabilities", capabilities_json(model->engine, source), "modified_at", when);
    if (json_string_length(system))
        json_object_set(shown, "system", system);
    json_decref(plain);
    json_decref(facts);
    return shown;
}

void spry_ollama_show(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *name = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    json_t *derived = spry_derived_load(x->server, name);
    const char *from = json_string_value(json_object_get(derived, "from"));
    const spry_pooled *model = spry_fields_fine(&fields, x) ? spry_completion_model(x, from ? from : name) : NULL;
    if (model) {
        spry_reply_json(x, MHD_HTTP_OK, show_json(x->server, model, derived));
        spry_model_pool_release(x->server->pool, model);
    }
    json_decref(derived);
    json_decref(root);
}

void spry_ollama_version(spry_exchange *x)
{
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s, s:s}", "version", interface_version, "spry", SPRY_VERSION));
}
