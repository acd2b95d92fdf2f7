/* Models in Ollama's interface: lists, descriptions, derived models and downloads. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "base/json.h"
#include "base/map.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/threads.h"
#include "pull/catalogue.h"
#include "pull/hub.h"
#include "pull/model_pull.h"
#include "server/api/apis.h"
#include "server/api/ollama.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/models/derived_model.h"
#include "server/request/prompt.h"
#include "server/request/streams.h"
#include "server/server_setup.h"
#include "server/status/status_text.h"
#include "spry_tools.h"

enum {
    NEVER_S = 1000000000, /* for a model that is never unloaded */
    DESCRIPTIONS_MAX = 1024,
};

/* Clients compare this with the versions of Ollama whose interface they need. */
static const char interface_version[] = "0.13.5";

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

/* Made of the file's name, size and time; a checksum of its content would take minutes. */
static void digest_of(char out[65], const spry_pool_info *info)
{
    uint64_t name = spry_hash_bytes(info->name, strlen(info->name), 1);
    snprintf(out, 65, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, name, (uint64_t)info->file_bytes,
             (uint64_t)info->modified, spry_hash_bytes(info->path, strlen(info->path), 2));
}

/* The description of the model's file; NULL: it cannot be read. */
static json_t *read_model_file(const spry_server *server, const spry_pool_info *info)
{
    spry_model_file file;
    char *text = NULL;
    spry_server_model_file(&file, server, info);
    if (spry_inspect_json(&text, &file, 0, false, NULL) != SPRY_OK)
        return NULL;
    json_t *json = spry_json_value(spry_view_of(text));
    spry_free(text);
    return json;
}

/* The same, kept until the file changes. Other threads may read the same values, which do not change. */
static json_t *describe(spry_server *server, const spry_pool_info *info)
{
    char key[65];
    digest_of(key, info);
    pthread_mutex_lock(&server->descriptions_lock);
    json_t *facts = json_incref(json_object_get(server->descriptions, key));
    pthread_mutex_unlock(&server->descriptions_lock);
    if (facts || !(facts = read_model_file(server, info)))
        return facts;
    pthread_mutex_lock(&server->descriptions_lock);
    if (json_object_size(server->descriptions) >= DESCRIPTIONS_MAX)
        json_object_clear(server->descriptions);
    json_object_set(server->descriptions, key, facts);
    pthread_mutex_unlock(&server->descriptions_lock);
    return facts;
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

static json_t *model_json(spry_server *server, const spry_pool_info *info)
{
    char when[SPRY_OLLAMA_TIME], digest[65];
    json_t *facts = describe(server, info);
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
    spry_server *server;
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
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "models", l.list));
}

/* "size" is the memory in use; "size_limit" has all of KV memory. */
static json_t *loaded_json(spry_server *server, const spry_model_status *status)
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
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the list");
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (models[i].in_pool && models[i].pool.state == SPRY_POOL_LOADED)
            json_array_append_new(list, loaded_json(x->server, &models[i]));
    free(models);
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "models", list));
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
    json_object_set_new(info, name, json_integer((json_int_t)engine->context)); /* what requests can use */
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
    if (spry_engine_sees(engine))
        json_array_append_new(list, json_string("vision"));
    return list;
}

/* `derived`: the description of the derived model; NULL: the model is not derived. */
static json_t *show_json(spry_server *server, const spry_pooled *model, const json_t *derived)
{
    char when[SPRY_OLLAMA_TIME];
    pool_search s = {.name = model->name};
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_model_pool_each(server->pool, match, &s);
    spry_ollama_time(when, s.info.modified);
    json_t *facts = describe(server, &s.info), *own = json_object_get(derived, "template");
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
    if (!spry_fields_open(&fields, &root, x, NULL))
        return;
    const char *name = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    json_t *derived = spry_derived_load(x->server, name);
    const char *from = json_string_value(json_object_get(derived, "from"));
    const spry_pooled *model = spry_fields_fine(&fields, x) ? spry_completion_model(x, from ? from : name) : NULL;
    if (model) {
        spry_reply_json(x, SPRY_HTTP_OK, show_json(x->server, model, derived));
        spry_model_pool_release(x->server->pool, model);
    }
    json_decref(derived);
    json_decref(root);
}

void spry_ollama_version(spry_exchange *x)
{
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s, s:s}", "version", interface_version, "spry", SPRY_VERSION));
}

/* ---- derived models ---------------------------------------------------------------------------------------------- */

/* Ollama's paths that make, copy and remove models. With --allow-pull only: they change the models folder. */

static bool may_change(spry_exchange *x)
{
    if (!x->server->settings->allow_pull)
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "changing models is not allowed; --allow-pull allows it");
    return x->server->settings->allow_pull;
}

/* Whether the pool has a model; `known` is its name there. */
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

/* The description of the new model: that of the model it is made from, with the members that the fields give; NULL:
 * refused. */
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

/* Checks the settings like the options of a request. */
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
    if (!spry_fields_open(&fields, &root, x, &spry_fields_ollama_create))
        return;
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
            spry_reply_write_failure(x, &error);
        else
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
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
    if (!spry_fields_open(&fields, &root, x, NULL))
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
            spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "source", "there is no model \"%.100s\"", source);
        else if (spry_derived_save(x->server, to, description, &error) != SPRY_OK)
            spry_reply_write_failure(x, &error);
        else
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
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
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "model", "this server has no models folder");
        return;
    }
    if (spry_directory_facts(&folder, file, &facts) != 0 || !facts.regular)
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "model",
                         "\"%s\" is not a file in the models folder, so it is not deleted", known);
    else if (spry_model_pool_unload(x->server->pool, known, &error) == SPRY_ERR_BUSY)
        spry_reply_failure(x, &error);
    else if (spry_directory_remove(&folder, file) != 0)
        spry_reply_error(x, SPRY_HTTP_INTERNAL_SERVER_ERROR, "model", "\"%s\" cannot be deleted", known);
    else
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
    spry_directory_close(&folder);
}

void spry_ollama_delete(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    char known[SPRY_MODEL_NAME];
    if (!spry_fields_open(&fields, &root, x, NULL))
        return;
    const char *name = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (may_change(x) && spry_fields_fine(&fields, x)) {
        if (spry_derived_remove(x->server, name))
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
        else if (has_model(known, x->server, name))
            delete_file(x, known);
        else
            spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"", name);
    }
    json_decref(root);
}

/* ---- POST /api/pull ---------------------------------------------------------------------------------------------- */

/* POST /api/pull: copies or downloads a model into the models folder; lines of JSON report the progress.
 *
 * A thread of its own runs the pull and posts to a channel; the connection's thread waits for records and for the
 * client to disconnect, which stops the pull. The thread is joined before anything is freed. */

enum { REPORT_NS = 250000000, LINES_BYTES_MAX = 1 << 20 };

typedef struct pull_stream {
    spry_model_pull *pull;
    spry_channel channel;
    pthread_t thread;
    bool running; /* the thread must be joined */
    atomic_bool stop;
    spry_status status; /* the result; valid once the thread is joined */
    spry_error error;
    uint64_t reported_ns;
    int socket;
    spry_buffer records, out;
    bool over;
} pull_stream;

/* ---- the pull's thread ------------------------------------------------------------------------------------------- */

static void post_line(pull_stream *s, json_t *json)
{
    char *text = json ? spry_json_text(json, JSON_COMPACT) : NULL;
    if (text)
        spry_channel_post(&s->channel, 0, 0, text, strlen(text));
    free(text);
    json_decref(json);
}

static json_t *progress_json(const spry_model_pull *pull, uint64_t done, uint64_t total)
{
    return json_pack("{s:s+, s:I, s:I}", "status", "pulling ", spry_model_pull_name(pull), "total", (json_int_t)total,
                     "completed", (json_int_t)done);
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    pull_stream *s = user;
    uint64_t now = spry_clock_ns();
    if (total && (now - s->reported_ns >= REPORT_NS || done == total)) {
        s->reported_ns = now;
        post_line(s, progress_json(s->pull, done, total));
    }
    return !atomic_load(&s->stop);
}

static void *work(void *user)
{
    pull_stream *s = user;
    s->status = spry_model_pull_run(s->pull, &s->error);
    post_line(s, s->status == SPRY_OK
                     ? json_pack("{s:s}", "status", "success")
                     : spry_reply_error_body(SPRY_ERRORS_OLLAMA, spry_reply_status(s->status), NULL, s->error.message));
    spry_channel_post_done(&s->channel);
    return NULL;
}

/* ---- the connection's thread ------------------------------------------------------------------------------------- */

static void read_lines(pull_stream *s)
{
    size_t at = 0;
    s->over = spry_channel_take(&s->channel, &s->records) > 0;
    while (at < s->records.size) {
        spry_record record;
        memcpy(&record, s->records.data + at, sizeof record);
        at += sizeof record;
        spry_buffer_append(&s->out, s->records.data + at, record.size);
        spry_buffer_text(&s->out, "\n");
        at += record.size;
    }
    spry_buffer_clear(&s->records);
}

static ssize_t pull_more(void *self, char *out, size_t size)
{
    pull_stream *s = self;
    while (!s->out.size && !s->over) {
        if (spry_channel_wait(&s->channel, s->socket, 0) == SPRY_WAIT_HUNG_UP)
            return -1;
        read_lines(s);
    }
    if (s->out.failed)
        return -1;
    size_t n = s->out.size < size ? s->out.size : size;
    if (n) {
        memcpy(out, s->out.data, n);
        spry_buffer_consume(&s->out, n);
    }
    return (ssize_t)n;
}

static void stop(pull_stream *s)
{
    atomic_store(&s->stop, true);
    if (s->running)
        pthread_join(s->thread, NULL);
    s->running = false;
}

static void pull_end(void *self)
{
    pull_stream *s = self;
    stop(s);
    spry_model_pull_close(s->pull);
    spry_channel_deinit(&s->channel);
    spry_buffer_deinit(&s->records);
    spry_buffer_deinit(&s->out);
    free(s);
}

/* Without "stream": one reply at the end. */
static void reply_whole(spry_exchange *x, pull_stream *s)
{
    while (!s->over && spry_channel_wait(&s->channel, s->socket, 0) != SPRY_WAIT_HUNG_UP) {
        spry_buffer_clear(&s->out);
        read_lines(s);
    }
    stop(s);
    if (s->status == SPRY_OK)
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
    else
        spry_reply_failure(x, &s->error);
    pull_end(s);
}

static spry_status start(pull_stream **out, spry_exchange *x, const char *source, const char *name, spry_error *error)
{
    pull_stream *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a pull", sizeof *s);
    const spry_pull_request request = {
        .source = source, .name = name, .folder = x->server->models_folder, .progress = on_progress, .user = s};
    spry_status status = spry_channel_init(&s->channel, LINES_BYTES_MAX, error);
    if (status != SPRY_OK) {
        free(s);
        return status;
    }
    status = spry_model_pull_open(&s->pull, &request, error);
    if (status != SPRY_OK) {
        spry_channel_deinit(&s->channel);
        free(s);
        return status;
    }
    s->socket = spry_http_socket(x);
    spry_buffer_init(&s->records, LINES_BYTES_MAX);
    spry_buffer_init(&s->out, LINES_BYTES_MAX);
    spry_buffer_text(&s->out, "{\"status\":\"pulling manifest\"}\n"); /* the first line that Ollama's clients expect */
    status = spry_background_start(&s->thread, work, s, "the pull", error);
    s->running = status == SPRY_OK;
    if (!s->running) {
        pull_end(s);
        return status;
    }
    *out = s;
    return SPRY_OK;
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* Clients pull a model before they use it, also when it exists. */
static bool pull_has_model(void *context, const spry_pool_info *info)
{
    const char **name = context;
    if (strcmp(info->name, *name) == 0)
        *name = NULL;
    return *name != NULL;
}

static bool is_present(const spry_exchange *x, const char *name)
{
    const char *left = name;
    spry_model_pool_each(x->server->pool, pull_has_model, &left);
    return !left;
}

static bool is_place(const char *text)
{
    return text[0] == '/' || strstr(text, "://");
}

static void pull(spry_exchange *x, const char *source, const char *name, bool stream)
{
    spry_error error;
    pull_stream *s = NULL;
    if (!x->server->settings->allow_pull)
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "pulling models is not allowed; --allow-pull allows it");
    else if (!is_place(source) && !spry_hub_is(source))
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "source",
                         "source must be an absolute path, a name of the catalogue, or begin with file://, http://, "
                         "https://, hf: or ollama:");
    else if (!x->server->models_folder)
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, NULL, "this server has no models folder; --models-dir sets one");
    else if (start(&s, x, source, name, &error) != SPRY_OK)
        spry_reply_failure(x, &error);
    else if (stream)
        spry_reply_stream(x, "application/x-ndjson", (spry_reply_source){pull_more, pull_end, s});
    else
        reply_whole(x, s);
}

/* A model that is not here: by its place, its name on a hub, or that of the catalogue. `named`: the request has nothing
 * else that says what to pull. */
static void pull_named(spry_exchange *x, const char *model, const char *name, bool named, bool stream)
{
    spry_error error;
    spry_buffer hub;
    spry_buffer_init(&hub, SPRY_OLLAMA_NAME * 4);
    spry_status status = is_place(model) || spry_hub_is(model) ? SPRY_OK : spry_catalogue_find(&hub, model, &error);
    if (status != SPRY_OK)
        spry_reply_failure(x, &error);
    else if (hub.size || !named || is_place(model) || spry_hub_is(model))
        pull(x, hub.size ? hub.data : model, name, stream);
    else
        spry_reply_error(
            x, SPRY_HTTP_NOT_FOUND, "model",
            "there is no model '%.127s' here or in the catalogue (GET /v1/catalogue); hf:OWNER/REPO[:TYPE] "
            "and ollama:NAME[:TAG] name models of hubs, \"source\" may be a path or an address",
            model);
    spry_buffer_deinit(&hub);
}

void spry_ollama_pull(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    char name[SPRY_OLLAMA_NAME];
    if (!spry_fields_open(&fields, &root, x, NULL))
        return;
    const char *model = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    const char *source = spry_fields_string(&fields, "source", NULL);
    bool stream = spry_fields_bool(&fields, "stream", true);
    if (!*model && !source)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (spry_fields_fine(&fields, x)) {
        char known[SPRY_MODEL_NAME];
        if (source)
            pull_named(x, source, *model ? spry_ollama_model(name, model) : NULL, false, stream);
        else if (is_present(x, spry_ollama_model(name, model)) || has_model(known, x->server, model))
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "success"));
        else
            pull_named(x, is_place(model) || spry_hub_is(model) ? model : spry_ollama_model(name, model), NULL, true,
                       stream);
    }
    json_decref(root);
}
