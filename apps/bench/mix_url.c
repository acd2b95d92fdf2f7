/* A server as the target of a workload. Which interface it has is asked first: OpenAI's list of models, else Ollama's.
 * A server that does not know "ignore_eos" (status 400) is asked without it, and may then end answers early. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bench/mix.h"
#include "cli/interrupt.h"
#include "pull/pull_http.h"

enum { BODY_MAX = 4 << 20, ADDRESS_MAX = 1024, SILENT_S = 1800, QUOTED = 120 };

struct spry_mix_server {
    char base[ADDRESS_MAX]; /* without a slash at its end, and without /v1 */
    const char *key;
    bool ollama;
    char *model;
    pthread_mutex_t lock; /* guards `plain` */
    bool plain;           /* without "ignore_eos" */
};

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

typedef struct exchange {
    CURL *curl;
    struct curl_slist *headers;
    char url[ADDRESS_MAX + 32];
    spry_buffer text;        /* of an answer that is not streamed, or refused */
    spry_mix_stream *stream; /* NULL: not streamed */
    long status;
    CURLcode code;
} exchange;

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    exchange *x = user;
    (void)one;
    if (!x->status)
        curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &x->status);
    bool fine = x->stream && x->status == 200 ? spry_mix_stream_add(x->stream, data, size)
                                              : spry_buffer_append(&x->text, data, size);
    return fine ? size : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t to_send, curl_off_t sent)
{
    (void)user, (void)total, (void)now, (void)to_send, (void)sent;
    return spry_interrupt_seen();
}

/* `body` NULL: GET. */
static spry_status perform(exchange *x, const spry_mix_server *s, const char *path, const char *body,
                           spry_mix_stream *stream, spry_error *error)
{
    *x = (exchange){.curl = curl_easy_init(), .stream = stream};
    spry_buffer_init(&x->text, BODY_MAX);
    if (!x->curl)
        return spry_fail_memory(error, "a connection", 1);
    snprintf(x->url, sizeof x->url, "%s%s", s->base, path);
    if (body)
        x->headers = curl_slist_append(NULL, "Content-Type: application/json");
    spry_http_prepare(x->curl, &x->headers, x->url, s->key);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_S); /* a long prompt takes its time */
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(x->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(x->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    if (body)
        curl_easy_setopt(x->curl, CURLOPT_POSTFIELDS, body);
    x->code = curl_easy_perform(x->curl);
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &x->status);
    if (spry_interrupt_seen())
        return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted");
    return SPRY_OK;
}

static void finish(exchange *x)
{
    spry_buffer_deinit(&x->text);
    curl_slist_free_all(x->headers);
    curl_easy_cleanup(x->curl);
}

/* ---- which server it is ------------------------------------------------------------------------------------------ */

/* The answer to GET as an object; NULL: there is none, and `why` says so. */
static json_t *get_json(const spry_mix_server *s, const char *path, char *why, size_t why_size)
{
    exchange x;
    spry_error error;
    json_t *out = NULL;
    if (perform(&x, s, path, NULL, NULL, &error))
        snprintf(why, why_size, "%.*s", QUOTED, error.message);
    else if (x.code != CURLE_OK)
        snprintf(why, why_size, "%s", curl_easy_strerror(x.code));
    else if (x.status != 200)
        snprintf(why, why_size, "status %ld%s", x.status, x.status == 401 ? " (--url-key)" : "");
    else if (spry_json_object(&out, spry_buffer_view(&x.text), &error))
        snprintf(why, why_size, "its answer is not a JSON object");
    finish(&x);
    return out;
}

/* Takes the first name of a list where none is wanted. */
static spry_status choose_model(spry_mix_server *s, const json_t *list, const char *key, const char *wanted,
                                spry_error *error)
{
    const char *name = wanted ? wanted : json_string_value(json_object_get(json_array_get(list, 0), key));
    if (!name)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s: the server has no model", s->base);
    s->model = strdup(name);
    return s->model ? SPRY_OK : spry_fail_memory(error, "a name", strlen(name));
}

static spry_status find_interface(spry_mix_server *s, const char *model, spry_error *error)
{
    char openai[QUOTED + 8] = "", ollama[QUOTED + 8] = "";
    json_t *answer = get_json(s, "/v1/models", openai, sizeof openai);
    const json_t *list = json_object_get(answer, "data");
    const char *key = "id";
    if (!json_is_array(list) && !spry_interrupt_seen()) {
        json_decref(answer);
        answer = get_json(s, "/api/tags", ollama, sizeof ollama);
        list = json_object_get(answer, "models");
        s->ollama = true;
        key = "name";
    }
    spry_status status =
        json_is_array(list)
            ? choose_model(s, list, key, model, error)
            : spry_fail(error, SPRY_ERR_FILE,
                        "%.200s is no server of OpenAI's or Ollama's interface: /v1/models: %s; /api/tags: %s", s->base,
                        openai[0] ? openai : "no list", ollama[0] ? ollama : "no list");
    json_decref(answer);
    return status;
}

static spry_status take_address(spry_mix_server *s, const char *url, spry_error *error)
{
    size_t size = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "--url: '%.200s' does not begin with http:// or https://", url);
    if (size >= sizeof s->base)
        return spry_fail(error, SPRY_ERR_INPUT, "--url is longer than %zu bytes", sizeof s->base - 1);
    while (size && url[size - 1] == '/')
        size--;
    if (size > 3 && strncmp(url + size - 3, "/v1", 3) == 0)
        size -= 3;
    snprintf(s->base, sizeof s->base, "%.*s", (int)size, url);
    return SPRY_OK;
}

spry_status spry_mix_server_open(spry_mix_server **out, const char *url, const char *model, const char *key,
                                 spry_error *error)
{
    spry_mix_server *s = calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return spry_fail_memory(error, "a server", sizeof *s);
    spry_http_init();
    pthread_mutex_init(&s->lock, NULL);
    s->key = key;
    spry_status status = take_address(s, url, error);
    return status ? status : find_interface(s, model, error);
}

void spry_mix_server_close(spry_mix_server *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s->model);
    free(s);
}

void spry_mix_server_describe(spry_mix_run *run, const spry_mix_server *s)
{
    snprintf(run->where, sizeof run->where, "%.*s", (int)sizeof run->where - 1, s->base);
    snprintf(run->api, sizeof run->api, "%s", s->ollama ? "ollama" : "openai");
    snprintf(run->model, sizeof run->model, "%s", s->model);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static char *body_of(const spry_mix_server *s, const spry_mix_request *r, bool plain)
{
    json_t *body;
    if (s->ollama)
        body = json_pack("{s:s, s:O, s:b, s:{s:I, s:f}}", "model", s->model, "messages", r->messages, "stream", 1,
                         "options", "num_predict", (json_int_t)r->answer_tokens, "temperature", 0.0);
    else
        body = json_pack("{s:s, s:O, s:b, s:{s:b}, s:I, s:f}", "model", s->model, "messages", r->messages, "stream", 1,
                         "stream_options", "include_usage", 1, "max_tokens", (json_int_t)r->answer_tokens,
                         "temperature", 0.0);
    if (body && !s->ollama && !plain)
        json_object_set_new(body, "ignore_eos", json_true());
    char *text = body ? json_dumps(body, 0) : NULL;
    json_decref(body);
    return text;
}

static spry_status fail_status(const spry_mix_server *s, const exchange *x, spry_error *error)
{
    json_t *object = NULL;
    char said[QUOTED + 1] = "";
    if (spry_json_object(&object, spry_buffer_view(&x->text), NULL) == SPRY_OK) {
        const json_t *refusal = json_object_get(object, "error");
        const char *text = json_string_value(refusal);
        text = text ? text : json_string_value(json_object_get(refusal, "message"));
        snprintf(said, sizeof said, "%s", text ? text : "");
    }
    json_decref(object);
    return spry_fail(error, SPRY_ERR_FILE, "%.200s refuses a request with status %ld%s%s", s->base, x->status,
                     said[0] ? ": " : "", said);
}

/* Whether the answer is whole. A server that dies closes the connection, or does not accept one. */
static spry_status judge(const spry_mix_server *s, const exchange *x, const spry_mix_stream *stream,
                         spry_mix_answer *answer, spry_error *error)
{
    if (stream->refused[0])
        return spry_fail(error, SPRY_ERR_FILE, "%.200s: %s", s->base, stream->refused);
    if (x->code == CURLE_OK && x->status != 200)
        return fail_status(s, x, error);
    if (x->code == CURLE_COULDNT_CONNECT)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s no longer accepts connections", s->base);
    if (x->code != CURLE_OK || !stream->ended)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s ended the connection in the middle of an answer%s%s", s->base,
                         x->code ? ": " : "", x->code ? curl_easy_strerror(x->code) : "");
    if (!answer->events)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s gave an answer without text", s->base);
    if (!answer->answer_tokens)
        answer->answer_tokens = answer->events;
    return SPRY_OK;
}

static bool is_plain(spry_mix_server *s, bool set)
{
    pthread_mutex_lock(&s->lock);
    bool before = s->plain;
    s->plain = s->plain || set;
    pthread_mutex_unlock(&s->lock);
    return before;
}

static spry_status ask_once(spry_mix_server *s, spry_mix_answer *answer, const spry_mix_request *r, bool plain,
                            long *status_code, spry_error *error)
{
    exchange x;
    spry_mix_stream stream;
    char *body = body_of(s, r, plain);
    *status_code = 0;
    if (!body)
        return spry_fail_memory(error, "a request", 1);
    spry_mix_stream_init(&stream, answer);
    spry_status status = perform(&x, s, s->ollama ? "/api/chat" : "/v1/chat/completions", body, &stream, error);
    if (!status)
        status = judge(s, &x, &stream, answer, error);
    *status_code = x.status;
    finish(&x);
    spry_mix_stream_deinit(&stream);
    free(body);
    return status;
}

static spry_status ask(void *self, spry_mix_answer *answer, const spry_mix_request *r, spry_error *error)
{
    spry_mix_server *s = self;
    long status_code;
    bool plain = is_plain(s, false);
    spry_status status = ask_once(s, answer, r, plain, &status_code, error);
    if (!status || plain || s->ollama || (status_code != 400 && status_code != 422))
        return status;
    status = ask_once(s, answer, r, true, &status_code, error);
    if (!status)
        is_plain(s, true);
    return status;
}

spry_mix_target spry_mix_server_target(spry_mix_server *server)
{
    return (spry_mix_target){server, ask};
}
