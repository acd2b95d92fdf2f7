/* Ollama's paths that make, copy and remove models. With --allow-pull only: they change the models folder. */
#include <strings.h>

#include "platform/directory.h"
#include "server/api/apis.h"
#include "server/api/modelfile.h"
#include "server/api/ollama_json.h"
#include "server/fields/field_table.h"
#include "server/http/http_reply.h"
#include "server/models/derived_model.h"
#include "server/request/model_name.h"

static bool may_change(spry_exchange *x)
{
    if (!x->server->settings->allow_pull)
        spry_reply_error(x, MHD_HTTP_FORBIDDEN, NULL, "changing models is not allowed; --allow-pull allows it");
    return x->server->settings->allow_pull;
}

/* Whether the pool has a model; `known` is what it is called. */
static bool has_model(char known[SPRY_MODEL_NAME], const spry_server *server, const char *name)
{
    known[0] = '\0';
    (void)spry_model_name(known, server, name);
    return known[0] != '\0';
}

/* ---- /api/create ------------------------------------------------------------------------------------------------- */

/* Go's templates name fields with a dot. */
static bool is_go_template(const char *text)
{
    for (const char *at = text; (at = strstr(at, "{{")); at += 2) {
        const char *c = at + 2 + (at[2] == '-');
        while (*c == ' ')
            c++;
        if (*c == '.' || strncmp(c, "if .", 4) == 0 || strncmp(c, "range", 5) == 0)
            return true;
    }
    return false;
}

/* The description that the fields give, over that of the model it is made from; NULL: refused. */
static json_t *read_description(spry_exchange *x, spry_fields *fields)
{
    static const char *const members[] = {"from", "system", "template", "parameters"};
    spry_error error;
    const char *file = spry_fields_string(fields, "modelfile", NULL);
    json_t *made = file ? spry_modelfile_parse(spry_view_of(file), &error) : json_object();
    if (!made) {
        spry_fields_refuse(fields, "modelfile", "modelfile: %s", error.message);
        return NULL;
    }
    for (size_t i = 0; i < SPRY_COUNT(members); i++)
        if (spry_fields_get(fields, members[i]))
            json_object_set(made, members[i], json_object_get(fields->object, members[i]));
    const char *from = json_string_value(json_object_get(made, "from"));
    const char *source = json_string_value(json_object_get(made, "template"));
    char known[SPRY_MODEL_NAME];
    json_t *base = spry_derived_load(x->server, from), *all = base ? json_deep_copy(base) : json_object();
    if (!from)
        spry_fields_refuse(fields, "from", "from is missing: the model to derive from");
    else if (!base && !has_model(known, x->server, from))
        spry_fields_refuse(fields, "from", "from: there is no model \"%.100s\"", from);
    else if (source && is_go_template(source))
        spry_fields_refuse(fields, "template",
                           "template must be a Jinja template, as in chat_template; Go templates are "
                           "not understood");
    if (base)
        json_object_del(made, "from");
    json_t *settings = json_copy(json_object_get(all, "parameters"));
    if (settings)
        json_object_update_missing(json_object_get(made, "parameters"), settings);
    json_object_update(all, made);
    if (!base && from)
        json_object_set_new(all, "from", json_string(known));
    json_decref(settings);
    json_decref(base);
    json_decref(made);
    return all;
}

/* Settings are checked as those of a request. */
static void check_parameters(spry_fields *fields, const json_t *description)
{
    json_t *options = json_pack("{s:O*}", "options", json_object_get(description, "parameters"));
    spry_fields inner = {.object = options, .within = ""};
    spry_fields_check(&inner, &spry_fields_ollama_chat);
    if (inner.wrong[0])
        spry_fields_refuse(fields, "parameters", "parameters: %s", inner.error.message);
    json_decref(options);
}

void spry_ollama_create(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    spry_error error;
    if (!spry_fields_open(&fields, &root, x))
        return;
    spry_fields_check(&fields, &spry_fields_ollama_create);
    const char *name = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    char known[SPRY_MODEL_NAME];
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    json_t *description = fields.wrong[0] ? NULL : read_description(x, &fields);
    if (description)
        check_parameters(&fields, description);
    if (*name && has_model(known, x->server, name))
        spry_fields_refuse(&fields, "model", "\"%s\" is the name of a model that is not derived", known);
    if (may_change(x) && spry_fields_fine(&fields, x)) {
        if (spry_derived_save(x->server, name, description, &error) != SPRY_OK)
            spry_reply_failure(x, &error);
        else
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
    }
    json_decref(description);
    json_decref(root);
}

/* ---- /api/copy and /api/delete ----------------------------------------------------------------------------------- */

void spry_ollama_copy(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    spry_error error;
    char known[SPRY_MODEL_NAME];
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *source = spry_fields_string(&fields, "source", ""),
               *to = spry_fields_string(&fields, "destination", "");
    json_t *description = spry_derived_load(x->server, source);
    if (!*to || has_model(known, x->server, to))
        spry_fields_refuse(&fields, "destination", "destination must be the name of a new model");
    if (!description && has_model(known, x->server, source))
        description = json_pack("{s:s}", "from", known);
    if (may_change(x) && spry_fields_fine(&fields, x)) {
        if (!description)
            spry_reply_error(x, MHD_HTTP_NOT_FOUND, "source", "there is no model \"%.100s\"", source);
        else if (spry_derived_save(x->server, to, description, &error) != SPRY_OK)
            spry_reply_failure(x, &error);
        else
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
    }
    json_decref(description);
    json_decref(root);
}

/* Removes the file of a model in the models folder, once it is unloaded. */
static void delete_file(spry_exchange *x, const char *known)
{
    char file[SPRY_MODEL_NAME + 8];
    spry_directory folder;
    spry_error error;
    spry_file_facts facts;
    snprintf(file, sizeof file, "%s.gguf", known);
    if (!x->server->models_folder || spry_directory_open(&folder, x->server->models_folder, NULL) != SPRY_OK) {
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "model", "this server has no models folder");
        return;
    }
    if (spry_directory_facts(&folder, file, &facts) != 0 || !facts.regular)
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "model",
                         "\"%s\" is not a file in the models folder, so it is not deleted", known);
    else if (spry_model_pool_unload(x->server->pool, known, &error) == SPRY_ERR_BUSY)
        spry_reply_failure(x, &error);
    else if (spry_directory_remove(&folder, file) != 0)
        spry_reply_error(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "model", "\"%s\" cannot be deleted", known);
    else
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
    spry_directory_close(&folder);
}

void spry_ollama_delete(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    char known[SPRY_MODEL_NAME];
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *name = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (may_change(x) && spry_fields_fine(&fields, x)) {
        if (spry_derived_remove(x->server, name))
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
        else if (has_model(known, x->server, name))
            delete_file(x, known);
        else
            spry_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"", name);
    }
    json_decref(root);
}
