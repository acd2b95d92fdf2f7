/* GET /v1/models. */
#include "apis.h"
#include "http_reply.h"

static json_t *model_json(const spry_pool_info *info)
{
    static const char *const states[] = {
        [SPRY_POOL_ON_DISK] = "on disk", [SPRY_POOL_LOADING] = "loading", [SPRY_POOL_LOADED] = "loaded"};
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:I}", "id", info->name, "object", "model", "created",
                     (json_int_t)info->modified, "owned_by", "spry", "state", states[info->state], "size",
                     (json_int_t)info->file_bytes);
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
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s, s:o}", "object", "list", "data", list));
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

void spry_openai_model(spry_exchange *x)
{
    search s = {.name = x->tail};
    spry_model_pool_each(x->server->pool, match_model, &s);
    if (s.found)
        spry_reply_json(x, MHD_HTTP_OK, s.found);
    else
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         x->tail);
}
