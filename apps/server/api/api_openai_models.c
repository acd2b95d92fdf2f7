/* GET /v1/models with the members of OpenAI's and of Anthropic's lists, and POST /models/pin, an addition. */
#include "server/api/apis.h"
#include "server/api/ollama_json.h"
#include "server/http/http_reply.h"
#include "server/request/request_fields.h"

static json_t *model_json(const spry_pool_info *info)
{
    static const char *const states[] = {
        [SPRY_POOL_ON_DISK] = "on disk", [SPRY_POOL_LOADING] = "loading", [SPRY_POOL_LOADED] = "loaded"};
    char when[SPRY_OLLAMA_TIME];
    spry_ollama_time(when, info->modified);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:I, s:b}", "type", "model", "display_name", info->name,
                     "created_at", when, "id", info->name, "object", "model", "created", (json_int_t)info->modified,
                     "owned_by", "spry", "state", states[info->state], "size", (json_int_t)info->file_bytes, "pinned",
                     info->pinned);
}

static bool add_model(void *context, const spry_pool_info *info)
{
    json_array_append_new(context, model_json(info));
    return true;
}

void spry_openai_models(spry_exchange *x)
{
    json_t *list = json_array();
    spry_model_pool_each(x->server->pool, add_model, list);
    json_t *first = json_object_get(json_array_get(list, 0), "id");
    json_t *last = json_object_get(json_array_get(list, json_array_size(list) - 1), "id");
    spry_reply_json(x, MHD_HTTP_OK,
                    json_pack("{s:s, s:b, s:O?, s:O?, s:o}", "object", "list", "has_more", 0, "first_id", first,
                              "last_id", last, "data", list));
}

typedef struct search {
    const char *name;
    json_t *found;
} search;

static bool match_model(void *context, const spry_pool_info *info)
{
    search *s = context;
    if (strcmp(s->name, info->name) == 0)
        s->found = model_json(info);
    return s->found == NULL;
}

/* NULL when a reply was given. */
static json_t *find_model(spry_exchange *x, const char *name)
{
    search s = {.name = name};
    spry_model_pool_each(x->server->pool, match_model, &s);
    if (!s.found)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         name);
    return s.found;
}

void spry_openai_model(spry_exchange *x)
{
    json_t *model = find_model(x, x->tail);
    if (model)
        spry_reply_json(x, MHD_HTTP_OK, model);
}

void spry_models_pin(spry_exchange *x)
{
    spry_fields fields;
    json_t *root, *model;
    spry_error error;
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *name = spry_fields_string(&fields, "model", "");
    bool pin = spry_fields_bool(&fields, "pin", true);
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (!x->server->settings->allow_pin) {
        spry_reply_error(x, MHD_HTTP_FORBIDDEN, NULL, "pinning models is not allowed; --allow-pin allows it");
    } else if (spry_fields_fine(&fields, x) && (model = find_model(x, name))) {
        json_object_set_new(model, "pinned", json_boolean(pin));
        if (spry_model_pool_pin(x->server->pool, name, pin, &error) == SPRY_OK) {
            spry_reply_json(x, MHD_HTTP_OK, model);
        } else { /* it has just been removed */
            spry_reply_failure(x, &error);
            json_decref(model);
        }
    }
    json_decref(root);
}
