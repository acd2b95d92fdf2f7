/* A server that answers a workload. Which interface it has is asked first: OpenAI's list of models, else Ollama's. A
 * server that does not know "ignore_eos" (status 400) is asked without it, and may then end answers early.
 *
 * Streamed answers are lines of text: `data: {...}`, then `data: [DONE]` with OpenAI's interface; a JSON object each
 * line, the last with "done": true, with Ollama's. Lines are bounded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bench/mix.h"
#include "cli/interrupt.h"
#include "pull/pull_http.h"

enum { BODY_MAX = 4 << 20, LINE_BYTES = 1 << 20, SILENT_S = 1800, QUOTED = 120 };

static bool is_ollama(const spry_mix_server *s)
{
    return strcmp(s->api, "ollama") == 0;
}

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

typedef struct exchange {
    CURL *curl;
    struct curl_slist *headers;
    char url[sizeof((spry_mix_server *)0)->url + 32];
    spry_buffer text;        /* an answer that is not streamed, or a refusal; with a stream the incomplete last line */
    spry_mix_answer *answer; /* NULL: not streamed */
    bool ended;              /* the last event of a stream has come */
    char refused[160];       /* an error in the stream; empty: none */
    long status;
    CURLcode code;
} exchange;

static bool has_text(const json_t *object)
{
    static const char *const keys[] = {"content", "reasoning_content", "reasoning", "thinking"};
    bool found = false;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++)
        found = found || json_string_length(json_object_get(object, keys[i]));
    return found || json_array_size(json_object_get(object, "tool_calls"));
}

static size_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (size_t)value : 0;
}

/* "usage" of OpenAI's interface, or the counts of Ollama's last object. */
static void read_counts(spry_mix_answer *a, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage"), *details = json_object_get(usage, "prompt_tokens_details");
    if (json_is_object(usage)) {
        a->prompt_tokens = count_of(usage, "prompt_tokens");
        a->answer_tokens = count_of(usage, "completion_tokens");
        a->hits_known = json_is_integer(json_object_get(details, "cached_tokens"));
        a->hit_tokens = count_of(details, "cached_tokens");
    }
    if (json_is_true(json_object_get(event, "done"))) {
        a->prompt_tokens = count_of(event, "prompt_eval_count");
        a->answer_tokens = count_of(event, "eval_count");
    }
}

/* The text of an error object: a string, or one with a message. */
static const char *error_text(const json_t *error)
{
    const char *text = json_string_value(error);
    return text ? text : json_string_value(json_object_get(error, "message"));
}

static bool read_event(exchange *x, spry_view text)
{
    json_t *event = NULL;
    if (spry_json_object(&event, text, NULL)) {
        snprintf(x->refused, sizeof x->refused, "it sent a line that is not JSON");
        return false;
    }
    const json_t *error = json_object_get(event, "error");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    if (error && !json_is_null(error))
        snprintf(x->refused, sizeof x->refused, "%s",
                 error_text(error) ? error_text(error) : "an error without a message");
    else if (has_text(json_object_get(choice, "delta")) || has_text(json_object_get(event, "message")))
        spry_mix_answer_event(x->answer);
    read_counts(x->answer, event);
    x->ended = x->ended || json_is_true(json_object_get(event, "done")) ||
               json_is_string(json_object_get(choice, "finish_reason"));
    json_decref(event);
    return !x->refused[0];
}

static bool read_line(exchange *x, spry_view line)
{
    const spry_view data = SPRY_VIEW("data:");
    while (line.size && memchr(" \t\r", line.data[line.size - 1], 3))
        line.size--;
    if (spry_view_starts(line, data)) {
        line = (spry_view){line.data + data.size, line.size - data.size};
        while (line.size && line.data[0] == ' ')
            line = (spry_view){line.data + 1, line.size - 1};
    } else if (line.size && line.data[0] != '{') {
        return true; /* "event:", a comment */
    }
    bool last = spry_view_equal(line, SPRY_VIEW("[DONE]"));
    x->ended = x->ended || last;
    return last || !line.size || read_event(x, line);
}

/* Reads a part of a stream; false: it is not what a server should send, and the transfer ends. */
static bool read_stream(exchange *x, const char *data, size_t size)
{
    while (size) {
        const char *end = memchr(data, '\n', size);
        size_t part = end ? (size_t)(end - data) : size;
        if (x->text.size + part > LINE_BYTES || !spry_buffer_append(&x->text, data, part)) {
            snprintf(x->refused, sizeof x->refused, "it sent a line of more than %d bytes", LINE_BYTES);
            return false;
        }
        if (!end)
            return true;
        if (!read_line(x, spry_buffer_view(&x->text)))
            return false;
        spry_buffer_clear(&x->text);
        data += part + 1;
        size -= part + 1;
    }
    return true;
}

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    exchange *x = user;
    (void)one;
    if (!x->status)
        curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &x->status);
    bool fine = x->answer && x->status == 200 ? read_stream(x, data, size) : spry_buffer_append(&x->text, data, size);
    return fine ? size : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t to_send, curl_off_t sent)
{
    (void)user, (void)total, (void)now, (void)to_send, (void)sent;
    return spry_interrupt_seen();
}

/* `body` NULL: GET. `answer` NULL: what comes is not streamed. */
static spry_status perform(exchange *x, const spry_mix_server *s, const char *path, const char *body,
                           spry_mix_answer *answer, spry_error *error)
{
    *x = (exchange){.curl = curl_easy_init(), .answer = answer};
    spry_buffer_init(&x->text, BODY_MAX);
    if (!x->curl)
        return spry_fail_memory(error, "a connection", 1);
    snprintf(x->url, sizeof x->url, "%s%s", s->url, path);
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
    return spry_interrupt_seen() ? spry_fail(error, SPRY_ERR_CANCELLED, "interrupted") : SPRY_OK;
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

static spry_status find_interface(spry_mix_server *s, const char *model, spry_error *error)
{
    char openai[QUOTED + 8] = "no list", ollama[QUOTED + 8] = "no list";
    json_t *answer = get_json(s, "/v1/models", openai, sizeof openai);
    const json_t *list = json_object_get(answer, "data");
    if (!json_is_array(list) && !spry_interrupt_seen()) {
        json_decref(answer);
        answer = get_json(s, "/api/tags", ollama, sizeof ollama);
        list = json_object_get(answer, "models");
        s->api = "ollama";
    }
    const json_t *first = json_array_get(list, 0);
    const char *name = model ? model : json_string_value(json_object_get(first, is_ollama(s) ? "name" : "id"));
    spry_status status = SPRY_OK;
    if (!json_is_array(list))
        status = spry_fail(error, SPRY_ERR_FILE,
                           "%.200s is no server of OpenAI's or Ollama's interface: /v1/models: %s; /api/tags: %s",
                           s->url, openai, ollama);
    else if (!name)
        status = spry_fail(error, SPRY_ERR_FILE, "%.200s: the server has no model", s->url);
    else if (!(s->model = strdup(name)))
        status = spry_fail_memory(error, "a name", strlen(name));
    json_decref(answer);
    return status;
}

static spry_status take_address(spry_mix_server *s, const char *url, spry_error *error)
{
    size_t size = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "--url: '%.200s' does not begin with http:// or https://", url);
    if (size >= sizeof s->url)
        return spry_fail(error, SPRY_ERR_INPUT, "--url is longer than %zu bytes", sizeof s->url - 1);
    while (size && url[size - 1] == '/')
        size--;
    if (size > 3 && strncmp(url + size - 3, "/v1", 3) == 0)
        size -= 3;
    snprintf(s->url, sizeof s->url, "%.*s", (int)size, url);
    return SPRY_OK;
}

spry_status spry_mix_server_init(spry_mix_server *s, const char *url, const char *model, const char *key,
                                 spry_error *error)
{
    *s = (spry_mix_server){.key = key, .api = "openai"};
    spry_http_init();
    pthread_mutex_init(&s->lock, NULL);
    spry_status status = take_address(s, url, error);
    return status ? status : find_interface(s, model, error);
}

void spry_mix_server_deinit(spry_mix_server *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->model);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static char *body_of(const spry_mix_server *s, const spry_mix_request *r, bool plain)
{
    json_t *body;
    if (is_ollama(s))
        body = json_pack("{s:s, s:O, s:b, s:{s:I, s:f}}", "model", s->model, "messages", r->messages, "stream", 1,
                         "options", "num_predict", (json_int_t)r->answer_tokens, "temperature", 0.0);
    else
        body = json_pack("{s:s, s:O, s:b, s:{s:b}, s:I, s:f}", "model", s->model, "messages", r->messages, "stream", 1,
                         "stream_options", "include_usage", 1, "max_tokens", (json_int_t)r->answer_tokens,
                         "temperature", 0.0);
    if (body && r->tools)
        json_object_set(body, "tools", r->tools);
    if (body && !is_ollama(s) && !plain)
        json_object_set_new(body, "ignore_eos", json_true());
    char *text = body ? spry_json_text(body, 0) : NULL;
    json_decref(body);
    return text;
}

static spry_status fail_status(const spry_mix_server *s, const exchange *x, spry_error *error)
{
    json_t *object = NULL;
    if (spry_json_object(&object, spry_buffer_view(&x->text), NULL))
        object = NULL;
    const char *said = error_text(json_object_get(object, "error"));
    spry_status status = spry_fail(error, SPRY_ERR_FILE, "%.200s refuses a request with status %ld%s%.*s", s->url,
                                   x->status, said ? ": " : "", QUOTED, said ? said : "");
    json_decref(object);
    return status;
}

/* Whether the answer is whole. A server that dies closes the connection, or does not accept one. */
static spry_status judge(const spry_mix_server *s, const exchange *x, spry_error *error)
{
    if (x->refused[0])
        return spry_fail(error, SPRY_ERR_FILE, "%.200s: %s", s->url, x->refused);
    if (x->code == CURLE_OK && x->status != 200)
        return fail_status(s, x, error);
    if (x->code == CURLE_COULDNT_CONNECT)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s no longer accepts connections", s->url);
    if (x->code != CURLE_OK || !x->ended)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s ended the connection in the middle of an answer%s%s", s->url,
                         x->code ? ": " : "", x->code ? curl_easy_strerror(x->code) : "");
    if (!x->answer->events)
        return spry_fail(error, SPRY_ERR_FILE, "%.200s gave an answer without text", s->url);
    if (!x->answer->answer_tokens)
        x->answer->answer_tokens = x->answer->events;
    return SPRY_OK;
}

static spry_status ask_once(spry_mix_server *s, spry_mix_answer *answer, const spry_mix_request *r, bool plain,
                            long *status_code, spry_error *error)
{
    exchange x;
    char *body = body_of(s, r, plain);
    *status_code = 0;
    if (!body)
        return spry_fail_memory(error, "a request", 1);
    spry_status status = perform(&x, s, is_ollama(s) ? "/api/chat" : "/v1/chat/completions", body, answer, error);
    if (!status)
        status = judge(s, &x, error);
    *status_code = x.status;
    finish(&x);
    free(body);
    return status;
}

spry_status spry_mix_server_ask(void *server, spry_mix_answer *answer, const spry_mix_request *r, spry_error *error)
{
    spry_mix_server *s = server;
    long status_code;
    pthread_mutex_lock(&s->lock);
    bool plain = s->plain;
    pthread_mutex_unlock(&s->lock);
    spry_status status = ask_once(s, answer, r, plain, &status_code, error);
    if (!status || plain || is_ollama(s) || (status_code != 400 && status_code != 422))
        return status;
    status = ask_once(s, answer, r, true, &status_code, error);
    pthread_mutex_lock(&s->lock);
    s->plain = s->plain || !status;
    pthread_mutex_unlock(&s->lock);
    return status;
}
