#include "server/request/model_name.h"

#include <stdio.h>
#include <strings.h>

typedef struct search {
    spry_view name;
    char *out;
    bool found, exact;
} search;

static bool compare(void *context, const spry_pool_info *info)
{
    search *s = context;
    if (strlen(info->name) != s->name.size || strncasecmp(info->name, s->name.data, s->name.size) != 0)
        return true;
    bool exact = memcmp(info->name, s->name.data, s->name.size) == 0;
    if (exact || !s->found)
        snprintf(s->out, SPRY_MODEL_NAME, "%s", info->name);
    s->found = true;
    return !exact;
}

bool spry_model_is_alias(const spry_server *server, spry_view name)
{
    for (const char *at = server->settings->alias; at && *at;) {
        at += strspn(at, ", ");
        size_t size = strcspn(at, ", ");
        if (size && size == name.size && strncasecmp(at, name.data, size) == 0)
            return true;
        at += size;
    }
    return false;
}

const char *spry_model_name(char out[SPRY_MODEL_NAME], const spry_server *server, const char *name)
{
    const spry_view tag = SPRY_VIEW(":latest");
    if (!name || !*name)
        return NULL;
    search s = {.name = spry_view_of(name), .out = out};
    if (spry_view_ends(s.name, tag))
        s.name.size -= tag.size;
    spry_model_pool_each(server->pool, compare, &s);
    if (s.found)
        return out;
    return server->settings->any_model || spry_model_is_alias(server, s.name) ? NULL : name;
}
