/* Ollama's paths for models. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/map.h"
#include "server/api/apis.h"
#include "server/api/ollama_json.h"
#include "server/http/http_reply.h"
#include "server/request/prompt.h"

enum { NEVER_S = 1000000000 }; /* for a model that is never unloaded */

/* Made of the file's name, size and time; a checksum of its content would take minutes. */
static void digest_of(char out[65], const spry_pool_info *info)
{
    uint64_t name = spry_hash_bytes(info->name, strlen(info->name), 1);
    snprintf(out, 65, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, name, (uint64_t)info->file_bytes,
             (uint64_t)info->modified, spry_hash_bytes(info->path, strlen(info->path), 2));
}

static json_t *details_json(void)
{
    return json_pack("{s:s, s:s, s:s, s:[], s:s, s:s}", "parent_model", "", "format", "gguf", "family", "", "families",
                     "parameter_size", "", "quantization_level", "");
}

static json_t *model_json(const spry_pool_info *info)
{
    char when[SPRY_OLLAMA_TIME], digest[65];
    spry_ollama_time(when, info->modified);
    digest_of(digest, info);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", info->name, "model", info->name, "modified_at", when,
                     "size", (json_int_t)info->file_bytes, "digest", digest, "details", details_json());
}

static bool add_model(void *context, const spry_pool_info *info)
{
    json_array_append_new(context, model_json(info));
    return true;
}

void spry_ollama_tags(spry_exchange *x)
{
    json_t *list = json_array();
    spry_model_pool_each(x->server->pool, add_model, list);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "models", list));
}

static bool add_loaded(void *context, const spry_pool_info *info)
{
    char until[SPRY_OLLAMA_TIME];
    if (info->state != SPRY_POOL_LOADED)
        return true;
    json_t *model = model_json(info);
    double left = info->expires_s >= 0 && info->expires_s < NEVER_S ? info->expires_s : NEVER_S;
    spry_ollama_time(until, (int64_t)time(NULL) + (int64_t)left);
    json_object_set_new(model, "size", json_integer((json_int_t)info->loaded_bytes));
    json_object_set_new(model, "size_vram", json_integer(0));
    json_object_set_new(model, "expires_at", json_string(until));
    json_array_append_new(context, model);
    return true;
}

void spry_ollama_ps(spry_exchange *x)
{
    json_t *list = json_array();
    spry_model_pool_each(x->server->pool, add_loaded, list);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "models", list));
}

void spry_ollama_show(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    char name[SPRY_OLLAMA_NAME], parameters[32];
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *asked = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    if (!*asked)
        spry_fields_refuse(&fields, "model", "model is missing");
    const spry_pooled *model =
        spry_fields_fine(&fields, x) ? spry_completion_model(x, spry_ollama_model(name, asked)) : NULL;
    json_decref(root);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    json_t *details = details_json();
    snprintf(parameters, sizeof parameters, "%.1fM", (double)info.parameters / 1e6);
    json_object_set_new(details, "family", json_string(info.architecture));
    json_object_set_new(details, "parameter_size", json_string(parameters));
    spry_view source;
    source.data = spry_engine_chat_template(model->engine, false, &source.size);
    spry_reply_json(x, MHD_HTTP_OK,
                    json_pack("{s:s, s:s, s:o, s:o, s:{s:s, s:I, s:I, s:I}, s:[s, s, s]}", "modelfile", "",
                              "parameters", "", "template", spry_view_json(source), "details", details, "model_info",
                              "general.architecture", info.architecture, "general.parameter_count",
                              (json_int_t)info.parameters, "context_length", (json_int_t)info.context, "vocabulary",
                              (json_int_t)info.vocabulary, "capabilities", "completion", "tools", "embedding"));
    spry_model_pool_release(x->server->pool, model);
}

void spry_ollama_version(spry_exchange *x)
{
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "version", SPRY_VERSION));
}
