/* POST /api/pull: copies or downloads a model into the models folder; lines of JSON report the progress.
 *
 * A thread of its own runs the pull and posts to a channel; the connection's thread waits for records and for the
 * client to disconnect, which stops the pull. The thread is joined before anything is freed. */
#include <stdlib.h>

#include "platform/clock.h"
#include "platform/threads.h"
#include "pull/model_pull.h"
#include "server/api/apis.h"
#include "server/api/ollama_json.h"
#include "server/http/http_reply.h"
#include "server/request/channel.h"

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
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
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

static int socket_of(spry_exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
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
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
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
    s->socket = socket_of(x);
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
static bool has_model(void *context, const spry_pool_info *info)
{
    const char **name = context;
    if (strcmp(info->name, *name) == 0)
        *name = NULL;
    return *name != NULL;
}

static void reply_present(spry_exchange *x, const char *name)
{
    const char *left = name;
    spry_model_pool_each(x->server->pool, has_model, &left);
    if (left)
        spry_reply_error(
            x, MHD_HTTP_NOT_FOUND, "model",
            "there is no model '%.127s', and this server uses no registry: send its \"source\", a path or an address",
            name);
    else
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s}", "status", "success"));
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
        spry_reply_error(x, MHD_HTTP_FORBIDDEN, NULL, "pulling models is not allowed; --allow-pull allows it");
    else if (!is_place(source))
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "source",
                         "source must be an absolute path or begin with file://, http:// or https://");
    else if (!x->server->models_folder)
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "this server has no models folder; --models-dir sets one");
    else if (start(&s, x, source, name, &error) != SPRY_OK)
        spry_reply_failure(x, &error);
    else if (stream)
        spry_reply_stream(x, "application/x-ndjson", (spry_reply_source){pull_more, pull_end, s});
    else
        reply_whole(x, s);
}

void spry_ollama_pull(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    char name[SPRY_OLLAMA_NAME];
    if (!spry_fields_open(&fields, &root, x))
        return;
    const char *model = spry_fields_string(&fields, "model", spry_fields_string(&fields, "name", ""));
    const char *source = spry_fields_string(&fields, "source", NULL);
    bool stream = spry_fields_bool(&fields, "stream", true);
    if (!*model && !source)
        spry_fields_refuse(&fields, "model", "model is missing");
    if (spry_fields_fine(&fields, x)) {
        if (source)
            pull(x, source, *model ? spry_ollama_model(name, model) : NULL, stream);
        else if (is_place(model))
            pull(x, model, NULL, stream);
        else
            reply_present(x, spry_ollama_model(name, model));
    }
    json_decref(root);
}
