/* llama-server's /props, /slots and /lora-adapters. */
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/llama_json.h"
#include "server/http/http_reply.h"
#include "server/models/derived_model.h"
#include "server/request/completion_options.h"
#include "server/server_setup.h"
#include "server/status/watch.h"

/* The model's entry in the registry of live status. */
static bool find_status(spry_model_status *out, spry_exchange *x, const char *name)
{
    spry_model_status *models;
    size_t count, i = 0;
    if (!spry_registry_models(&x->server->registry, &models, &count, x->server->pool))
        return false;
    while (i < count && strcmp(models[i].pool.name, name) != 0)
        i++;
    if (i < count)
        *out = models[i];
    bool found = i < count;
    free(models);
    return found;
}

static json_t *default_settings(spry_exchange *x, const spry_pooled *model)
{
    spry_completion_options o;
    json_t *empty = json_object();
    spry_derived_apply(x->server->defaults, empty, false);
    spry_fields fields = {.object = empty, .within = ""};
    spry_completion_options_init(&o, x->server->settings->speculation);
    spry_engine_sampling(model->engine, &o.request.sampling);
    spry_llama_read(&o, &fields);
    json_t *settings = spry_llama_settings(&o);
    spry_completion_options_deinit(&o);
    json_decref(empty);
    return settings;
}

static bool count_model(void *count, const spry_pool_info *info)
{
    (void)info;
    ++*(size_t *)count;
    return true;
}

/* What is known also of a model that is not loaded. */
static void add_server(json_t *props, const spry_server *server, bool sleeping)
{
    size_t count = 0;
    spry_model_pool_each(server->pool, count_model, &count);
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:b, s:I, s:b}", "build_info", spry_llama_build(server), "role",
                  count > 1 ? "router" : "model", "total_slots", (json_int_t)server->slots, "is_sleeping", sleeping,
                  "max_instances", (json_int_t)server->models_max, "models_autoload", !server->settings->no_autoload);
    json_object_update(props, more);
    json_decref(more);
}

/* Does not load a model that was unloaded. */
void spry_llama_props(spry_exchange *x)
{
    if (spry_completion_sleeps(x->server, NULL)) {
        json_t *props = json_pack("{s:s}", "model_alias", spry_server_first_model(x->server));
        add_server(props, x->server, true);
        spry_reply_json(x, MHD_HTTP_OK, props);
        return;
    }
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_view source;
    source.data = spry_engine_chat_template(model->engine, false, &source.size);
    spry_model_status status = {0};
    bool known = find_status(&status, x, model->name);
    spry_engine_kv_figures(model->engine, &status.kv);
    const spry_pool_info *pool = &status.pool;
    json_t *props =
        json_pack("{s:s, s:s, s:o, s:{s:I, s:o}, s:I, s:s, s:s, s:o*, s:{s:b, s:b}, s:o}", "model_alias", model->name,
                  "model_path", x->server->loopback && pool->path[0] ? pool->path : model->name, "chat_template",
                  spry_view_json(source), "default_generation_settings", "n_ctx", (json_int_t)info.context, "params",
                  default_settings(x, model), "n_params", (json_int_t)info.parameters, "architecture",
                  info.architecture, "device", info.device, "together", known ? spry_watch_batch(&status) : NULL,
                  "modalities", "vision", 0, "audio", 0, "memory", spry_watch_memory(&status));
    add_server(props, x->server, false);
    spry_reply_json(x, MHD_HTTP_OK, props);
    spry_model_pool_release_unused(x->server->pool, model);
}

/* The running requests of this key, one slot each, and slots that are idle. Slots that other keys use are shown as
 * busy, without their requests. */
void spry_llama_slots(spry_exchange *x)
{
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_model_status status = {0};
    (void)find_status(&status, x, model->name);
    json_t *own = spry_watch_requests(x->server, x->key, false), *slots = json_array(), *request;
    size_t i;
    json_array_foreach(own, i, request)
    {
        const char *state = json_string_value(json_object_get(request, "state"));
        if (state && strcmp(state, "queue") != 0)
            json_array_append(slots, request);
    }
    while (json_array_size(slots) < x->server->slots)
        json_array_append_new(slots, json_object());
    json_array_foreach(slots, i, request)
    {
        if (json_object_get(request, "id"))
            json_object_set(request, "request", json_object_get(request, "id"));
        json_object_set_new(request, "id", json_integer((json_int_t)i));
        json_object_set_new(request, "n_ctx", json_integer((json_int_t)info.context));
        json_object_set_new(request, "is_processing", json_boolean(i < status.running));
    }
    json_decref(own);
    spry_reply_json(x, MHD_HTTP_OK, slots);
    spry_model_pool_release_unused(x->server->pool, model);
}

/* The first model's adapters. */
void spry_llama_adapters(spry_exchange *x)
{
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    json_t *list = json_array();
    spry_lora_info info;
    for (size_t i = 0; spry_engine_lora(model->engine, i, &info); i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:I, s:f}", "id", (json_int_t)i, "name", info.name,
                                              "path", x->server->loopback ? info.path : info.name, "rank",
                                              (json_int_t)info.rank, "scale", (double)info.scale));
    spry_reply_json(x, MHD_HTTP_OK, list);
    spry_model_pool_release(x->server->pool, model);
}

/* What requests get from now on that choose no adapters: a list, as in their own field; others get none. */
void spry_llama_set_adapters(spry_exchange *x)
{
    spry_error error = {0};
    spry_fields fields = {.within = ""};
    json_t *list = json_loadb(spry_buffer_view(&x->body).data, x->body.size, JSON_REJECT_DUPLICATES, NULL);
    const spry_pooled *model = NULL;
    char *choice = NULL;
    if (!json_is_array(list))
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "the body must be a list of adapters");
    else if ((choice = spry_fields_lora(&fields, "lora", list), spry_fields_fine(&fields, x)))
        model = spry_completion_model(x, NULL);
    if (model && spry_engine_set_lora(model->engine, choice, &error) != SPRY_OK)
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "%s", error.message);
    else if (model)
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:b}", "success", 1));
    if (model)
        spry_model_pool_release(x->server->pool, model);
    free(choice);
    json_decref(list);
}
