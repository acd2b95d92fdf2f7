/* The list of models and their states, health, metrics, and the files of the server's page. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/model_source.h"
#include "platform/clock.h"
#include "platform/model_names.h"
#include "platform/wakeup.h"
#include "pull/catalogue.h"
#include "server/api/apis.h"
#include "server/api/ollama.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/models/derived_model.h"
#include "server/request/completion.h"
#include "server/server_setup.h"
#include "server/status/status_text.h"
#include "web/web_page.h"

/* Appends the words of a list with commas between them. */
static void add_words(json_t *list, const char *words)
{
    for (const char *at = words ? words : ""; *at;) {
        at += strspn(at, ", ");
        size_t size = strcspn(at, ", ");
        if (size)
            json_array_append_new(list, json_stringn(at, size));
        at += size;
    }
}

/* Tokens of a session. A model that is not loaded has what its file says, which memory or --context may reduce; 0: not
 * known. */
static size_t context_of(const spry_pool_info *info)
{
    spry_checkpoint checkpoint = {.size = sizeof checkpoint};
    const spry_model_file file = {.path = info->path};
    if (info->context || !info->path[0])
        return info->context;
    return spry_checkpoint_read(&checkpoint, &file, "f16", NULL) == SPRY_OK ? checkpoint.context : 0;
}

static json_t *model_json(const spry_server *server, const spry_pool_info *info)
{
    static const char *const states[] = {
        [SPRY_POOL_ON_DISK] = "on disk", [SPRY_POOL_LOADING] = "loading", [SPRY_POOL_LOADED] = "loaded"};
    static const char *const values[] = {/* llama-server's names */
                                         [SPRY_POOL_ON_DISK] = "unloaded",
                                         [SPRY_POOL_LOADING] = "loading",
                                         [SPRY_POOL_LOADED] = "loaded"};
    char when[SPRY_OLLAMA_TIME];
    bool first = strcmp(info->name, spry_server_first_model(server)) == 0;
    json_t *aliases = json_pack("[s]", info->name), *tags = json_array();
    add_words(aliases, first ? server->settings->alias : NULL);
    add_words(tags, first ? server->settings->tags : NULL);
    spry_ollama_time(when, info->modified);
    json_t *model = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:{s:s}, s:I, s:b, s:o, s:o}", "type", "model",
                              "display_name", info->name, "created_at", when, "id", info->name, "object", "model",
                              "created", (json_int_t)info->modified, "owned_by", "spry", "state", states[info->state],
                              "status", "value", values[info->state], "size", (json_int_t)info->file_bytes, "pinned",
                              info->pinned, "aliases", aliases, "tags", tags);
    if (info->state == SPRY_POOL_LOADED) /* llama-server's names */
        json_object_set_new(model, "architecture",
                            json_pack("{s:[s,s*], s:[s]}", "input_modalities", "text", info->sees ? "image" : NULL,
                                      "output_modalities", "text"));
    size_t context = context_of(info);
    if (context) {
        json_object_set_new(model, "context_length", json_integer((json_int_t)context));
        json_object_set_new(model, "meta", json_pack("{s:I}", "n_ctx", (json_int_t)context));
    }
    if (info->state == SPRY_POOL_LOADED) { /* agents look whether pictures may be sent, in the form of model lists */
        json_t *inputs = info->sees ? json_pack("[s, s]", "text", "image") : json_pack("[s]", "text");
        json_object_set_new(model, "architecture",
                            json_pack("{s:o, s:[s]}", "input_modalities", inputs, "output_modalities", "text"));
    }
    return model;
}

typedef struct listing {
    const spry_server *server;
    json_t *list;
} listing;

static bool add_model(void *context, const spry_pool_info *info)
{
    const listing *l = context;
    json_array_append_new(l->list, model_json(l->server, info));
    return true;
}

void spry_openai_models(spry_exchange *x)
{
    json_t *list = json_array();
    listing l = {x->server, list};
    spry_model_pool_each(x->server->pool, add_model, &l);
    json_t *first = json_object_get(json_array_get(list, 0), "id");
    json_t *last = json_object_get(json_array_get(list, json_array_size(list) - 1), "id");
    spry_reply_json(x, SPRY_HTTP_OK,
                    json_pack("{s:s, s:b, s:O?, s:O?, s:o}", "object", "list", "has_more", 0, "first_id", first,
                              "last_id", last, "data", list));
}

typedef struct search {
    const spry_server *server;
    const char *name;
    json_t *found;
} search;

static bool match_model(void *context, const spry_pool_info *info)
{
    search *s = context;
    if (strcmp(s->name, info->name) == 0)
        s->found = model_json(s->server, info);
    return s->found == NULL;
}

/* NULL when a reply was given. */
static json_t *find_model(spry_exchange *x, const char *name)
{
    char known[SPRY_MODEL_NAME];
    const char *own = spry_model_is_alias(x->server, spry_view_of(name)) ? spry_server_first_model(x->server)
                                                                         : spry_model_name(known, x->server, name);
    search s = {.server = x->server, .name = own ? own : name};
    spry_model_pool_each(x->server->pool, match_model, &s);
    if (!s.found)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "model", "there is no model \"%.100s\"; GET /v1/models lists them",
                         name);
    return s.found;
}

void spry_openai_model(spry_exchange *x)
{
    json_t *model = find_model(x, x->tail);
    if (model)
        spry_reply_json(x, SPRY_HTTP_OK, model);
}

void spry_models_pin(spry_exchange *x)
{
    spry_fields fields;
    json_t *root, *model;
    spry_error error;
    if (!spry_fields_open(&fields, &root, x, &spry_fields_model_pin))
        return;
    const char *name = spry_fields_string(&fields, "model", "");
    bool pin = spry_fields_bool(&fields, "pin", true);
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (!x->server->settings->allow_pin) {
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "pinning models is not allowed; --allow-pin allows it");
    } else if (spry_fields_fine(&fields, x) && (model = find_model(x, name))) {
        json_object_set_new(model, "pinned", json_boolean(pin));
        const char *own = json_string_value(json_object_get(model, "id"));
        if (spry_model_pool_pin(x->server->pool, own, pin, &error) == SPRY_OK) {
            spry_reply_json(x, SPRY_HTTP_OK, model);
        } else { /* the model has just been removed */
            spry_reply_failure(x, &error);
            json_decref(model);
        }
    }
    json_decref(root);
}

/* Loading and unloading of a model that the body names. */
static void change_state(spry_exchange *x, bool load)
{
    spry_fields fields;
    json_t *root, *model;
    spry_error error = {0};
    if (!spry_fields_open(&fields, &root, x, &spry_fields_model_state))
        return;
    const char *name = spry_fields_string(&fields, "model", "");
    if (!*name)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (spry_fields_fine(&fields, x) && (model = find_model(x, name))) {
        const char *own = json_string_value(json_object_get(model, "id"));
        const spry_pooled *loaded = NULL;
        spry_status status = load ? spry_model_pool_acquire(x->server->pool, &loaded, own, &error)
                                  : spry_model_pool_unload(x->server->pool, own, &error);
        spry_model_pool_release(x->server->pool, loaded);
        if (status == SPRY_OK)
            spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:b}", "success", 1));
        else if (load)
            spry_completion_refuse_model(x, own, &error);
        else
            spry_reply_failure(x, &error);
        json_decref(model);
    }
    json_decref(root);
}

void spry_models_load(spry_exchange *x)
{
    change_state(x, true);
}

void spry_models_unload(spry_exchange *x)
{
    change_state(x, false);
}

/* ---- health, metrics and the watch ------------------------------------------------------------------------------- */

enum { METRICS_BYTES_MAX = 4 << 20, WATCH_MS = 500 };

void spry_status_health(spry_exchange *x)
{
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

void spry_status_metrics(spry_exchange *x)
{
    spry_buffer out;
    spry_buffer_init(&out, METRICS_BYTES_MAX);
    spry_metrics_print(&out, x->server);
    snprintf(x->process_start, sizeof x->process_start, "%lld",
             (long long)(time(NULL) - (time_t)((spry_clock_ns() - x->server->started_ns) / 1000000000)));
    if (out.failed)
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the metrics");
    else
        spry_reply_text(x, spry_buffer_view(&out), "text/plain; version=0.0.4; charset=utf-8", NULL);
    spry_buffer_deinit(&out);
}

/* ---- /watch ------------------------------------------------------------------------------------------------------ */

typedef struct watcher {
    spry_exchange *exchange;
    spry_buffer out;
    bool started;
} watcher;

/* Waits before every snapshot except the first. */
static bool next_snapshot(watcher *w)
{
    if (w->started && spry_socket_hung_up(spry_http_socket(w->exchange), WATCH_MS))
        return false;
    char *text = spry_watch_snapshot(w->exchange->server, w->exchange->key, !w->started);
    w->started = true;
    if (!text)
        return false;
    spry_buffer_format(&w->out, "data: %s\n\n", text);
    free(text);
    return !w->out.failed;
}

static ssize_t watch_more(void *self, char *out, size_t size)
{
    watcher *w = self;
    if (atomic_load(&w->exchange->server->ending))
        return 0;
    if (!w->out.size && !next_snapshot(w))
        return -1;
    size_t n = w->out.size < size ? w->out.size : size;
    memcpy(out, w->out.data, n);
    spry_buffer_consume(&w->out, n);
    return (ssize_t)n;
}

static void watch_end(void *self)
{
    watcher *w = self;
    spry_buffer_deinit(&w->out);
    free(w);
}

void spry_status_watch(spry_exchange *x)
{
    watcher *w = calloc(1, sizeof *w);
    if (!w) {
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the stream");
        return;
    }
    w->exchange = x;
    spry_buffer_init(&w->out, METRICS_BYTES_MAX);
    spry_reply_stream(x, "text/event-stream", (spry_reply_source){watch_more, watch_end, w});
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

/* The policy allows the page to load from and send to this server only. The libraries are stored and sent compressed:
 * every browser accepts it. */

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

typedef struct page_file {
    const char *path;
    const unsigned char *begin, *end;
    const char *type;
} page_file;

#define FILE_ROW(symbol, path, file, type) {path, spry_web_##symbol##_begin, spry_web_##symbol##_end, type},
static const page_file files[] = {SPRY_WEB_FILES(FILE_ROW)};

#define LIBRARY_ROW(symbol, path) {path, offsetof(spry_page_libraries, symbol)},
static const struct {
    const char *path;
    size_t place; /* of its bytes in spry_page_libraries */
} libraries[] = {SPRY_WEB_LIBRARIES(LIBRARY_ROW)};

static spry_view view_of(const unsigned char *begin, const unsigned char *end)
{
    return (spry_view){(const char *)begin, (size_t)((uintptr_t)end - (uintptr_t)begin)};
}

static spry_view library_bytes(size_t place)
{
    const spry_page_script *library = (const void *)((const char *)spry_page_libraries_get() + place);
    return view_of(library->begin, library->end);
}

void spry_page_file(spry_exchange *x)
{
    for (size_t i = 0; i < SPRY_COUNT(files); i++)
        if (strcmp(files[i].path, x->path) == 0) {
            spry_reply_text(x, view_of(files[i].begin, files[i].end), files[i].type, policy);
            return;
        }
}

void spry_page_library(spry_exchange *x)
{
    for (size_t i = 0; i < SPRY_COUNT(libraries); i++)
        if (strcmp(libraries[i].path, x->path) == 0 && library_bytes(libraries[i].place).size) {
            spry_reply_compressed(x, library_bytes(libraries[i].place), SPRY_WEB_JS);
            return;
        }
    spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "the module spry_page with the library is not installed");
}

void spry_page_features(spry_exchange *x)
{
    json_t *paths = json_array();
    for (size_t i = 0; i < SPRY_COUNT(libraries); i++)
        if (library_bytes(libraries[i].place).size)
            json_array_append_new(paths, json_string(libraries[i].path));
    const spry_serve_settings *settings = x->server->settings;
    spry_reply_json(x, SPRY_HTTP_OK,
                    json_pack("{so ss sb sb}", "libraries", paths, "bundled", SPRY_BUNDLED_MODEL, "chats",
                              settings->allow_chats, "pull", settings->allow_pull));
}

/* ---- GET /v1/catalogue ------------------------------------------------------------------------------------------- */

/* Models to download by short name; `here`: the name of the one that the models folder has, or null. */
void spry_catalogue_reply(spry_exchange *x)
{
    spry_error error;
    size_t i;
    json_t *models, *model;
    if (spry_catalogue_load(&models, &error) != SPRY_OK) {
        spry_reply_failure(x, &error);
        return;
    }
    json_array_foreach(models, i, model)
    {
        char called[SPRY_MODEL_NAME_MAX + 1], path[SPRY_MODEL_PATH_MAX + 1];
        const char *source = json_string_value(json_object_get(model, "source"));
        bool here = spry_model_name_find(called, path, x->server->models_folder, source, NULL) == SPRY_OK;
        json_object_set_new(model, "fits", json_boolean(spry_catalogue_fits(model)));
        json_object_set_new(model, "here", here ? json_string(called) : json_null());
    }
    spry_reply_json(x, SPRY_HTTP_OK,
                    json_pack("{s:o, s:b}", "models", models, "pull", x->server->settings->allow_pull));
}
