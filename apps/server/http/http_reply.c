/* Every reply has the security headers, and CORS headers with --cors. */
#include "server/http/http_reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "server/http/http_guard.h"
#include "server/http/http_server.h"

enum { SENTENCE_BYTES = 1024, STREAM_BLOCK = 16384 };

static void add_headers(spry_exchange *x, struct MHD_Response *response, const char *type)
{
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_SERVER, "spry/" SPRY_VERSION);
    if (x->last)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (x->process_start[0])
        MHD_add_response_header(response, "Process-Start-Time-Unix", x->process_start);
    spry_http_cors_add(x, response);
}

static void queue(spry_exchange *x, unsigned status, struct MHD_Response *response)
{
    if (!response || x->status) {
        if (response)
            MHD_destroy_response(response);
        return;
    }
    x->status = status;
    x->queued = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
}

/* A response that owns malloc'ed bytes. */
static struct MHD_Response *response_of(char *data, size_t size)
{
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(size, data, free);
    if (!response)
        free(data);
    return response;
}

void spry_reply_json(spry_exchange *x, unsigned status, json_t *json)
{
    if (!x->connection) {
        x->status = json ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
        x->kept = json;
        return;
    }
    static const char no_memory[] = "{\"error\":{\"message\":\"not enough memory for the reply\"}}";
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text) {
        status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        text = strdup(no_memory);
    }
    struct MHD_Response *response = text ? response_of(text, strlen(text)) : NULL;
    if (!response)
        return;
    add_headers(x, response, "application/json; charset=utf-8");
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == MHD_HTTP_TOO_MANY_REQUESTS) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", x->retry_s ? x->retry_s : 1);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, x->allowed);
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    queue(x, status, response);
}

void spry_reply_text(spry_exchange *x, spry_view text, const char *type, const char *policy)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text.size, (void *)(uintptr_t)text.data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return;
    add_headers(x, response, type);
    if (policy) {
        MHD_add_response_header(response, "Content-Security-Policy", policy);
        MHD_add_response_header(response, "X-Frame-Options", "DENY");
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    queue(x, MHD_HTTP_OK, response);
}

void spry_reply_compressed(spry_exchange *x, spry_view bytes, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes.size, (void *)(uintptr_t)bytes.data, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return;
    add_headers(x, response, type);
    MHD_del_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "max-age=86400");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    queue(x, MHD_HTTP_OK, response);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const struct {
    unsigned status;
    const char *type, *code, *anthropic;
} kinds[] = {
    {400, "invalid_request_error", "invalid_value", "invalid_request_error"},
    {401, "authentication_error", "invalid_api_key", "authentication_error"},
    {403, "permission_error", "forbidden", "permission_error"},
    {404, "not_found_error", "not_found", "not_found_error"},
    {405, "invalid_request_error", "method", "invalid_request_error"},
    {409, "conflict_error", "conflict", "invalid_request_error"},
    {413, "invalid_request_error", "too_large", "request_too_large"},
    {414, "invalid_request_error", "too_large", "request_too_large"},
    {415, "invalid_request_error", "content_type", "invalid_request_error"},
    {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"},
    {431, "invalid_request_error", "too_large", "request_too_large"},
    {500, "server_error", "server_error", "api_error"},
    {501, "not_supported_error", "not_supported", "invalid_request_error"},
    {502, "unavailable_error", "bad_gateway", "api_error"},
    {503, "unavailable_error", "unavailable", "overloaded_error"},
    {504, "unavailable_error", "timeout", "timeout_error"},
    {505, "invalid_request_error", "version", "invalid_request_error"},
};

json_t *spry_reply_error_body(spry_error_form form, unsigned status, const char *param, const char *sentence)
{
    const char *type = "server_error", *code = "server_error", *anthropic = "api_error";
    spry_buffer valid;
    spry_buffer_init(&valid, 4 * SENTENCE_BYTES);
    spry_utf8_append_valid(&valid, spry_view_of(sentence));
    json_t *message = json_string(spry_buffer_view(&valid).data), *body;
    spry_buffer_deinit(&valid);
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (kinds[i].status == status) {
            type = kinds[i].type;
            code = kinds[i].code;
            anthropic = kinds[i].anthropic;
        }
    if (form == SPRY_ERRORS_OLLAMA)
        body = json_pack("{s:o}", "error", message);
    else if (form == SPRY_ERRORS_ANTHROPIC)
        body = json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", anthropic, "message", message);
    else
        body = json_pack("{s:{s:o, s:s, s:s?, s:s}}", "error", "message", message, "type", type, "param", param, "code",
                         code);
    return body;
}

/* A path that does not exist has the form of its interface. */
static spry_error_form form_of(const spry_exchange *x)
{
    if (x->route)
        return x->route->errors;
    if (x->path && strncmp(x->path, "/api/", 5) == 0)
        return SPRY_ERRORS_OLLAMA;
    return x->path && strncmp(x->path, "/v1/messages", 12) == 0 ? SPRY_ERRORS_ANTHROPIC : SPRY_ERRORS_OPENAI;
}

void spry_reply_error(spry_exchange *x, unsigned status, const char *param, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    spry_error_form form = form_of(x);
    json_t *body = spry_reply_error_body(form, status, param, sentence), *error = json_object_get(body, "error");
    if (x->overflow_tokens && form == SPRY_ERRORS_OPENAI) {
        json_object_set_new(error, "type", json_string("exceed_context_size_error"));
        json_object_set_new(error, "code", json_string("context_length_exceeded"));
        json_object_set_new(error, "n_prompt_tokens", json_integer((json_int_t)x->overflow_tokens));
        json_object_set_new(error, "n_ctx", json_integer((json_int_t)x->overflow_context));
    }
    spry_reply_json(x, status, body);
}

void spry_reply_wrong_method(spry_exchange *x, const char *allowed)
{
    snprintf(x->allowed, sizeof x->allowed, "%s", allowed);
    spry_reply_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, "%.20s is not allowed on this path; allowed: %s", x->method,
                     allowed);
}

unsigned spry_reply_status(spry_status status)
{
    switch (status) {
    case SPRY_OK: return MHD_HTTP_OK;
    case SPRY_ERR_INPUT:
    case SPRY_ERR_FORMAT:
    case SPRY_ERR_UNSUPPORTED:
    case SPRY_ERR_CONTEXT: return MHD_HTTP_BAD_REQUEST;
    case SPRY_ERR_FILE: return MHD_HTTP_NOT_FOUND;
    case SPRY_ERR_MEMORY:
    case SPRY_ERR_CANCELLED:
    case SPRY_ERR_BUSY:
    case SPRY_ERR_DEVICE: return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    return MHD_HTTP_INTERNAL_SERVER_ERROR;
}

void spry_reply_failure(spry_exchange *x, const spry_error *error)
{
    unsigned status = x->late ? MHD_HTTP_GATEWAY_TIMEOUT : spry_reply_status(error->status);
    spry_reply_error(x, status, NULL, "%s", error->message);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

typedef struct stream {
    spry_exchange *exchange;
    spry_reply_source source;
} stream;

static ssize_t read_source(void *cls, uint64_t position, char *out, size_t size)
{
    stream *s = cls;
    (void)position;
    ssize_t n = s->source.more(s->source.self, out, size);
    spry_http_touch(s->exchange);
    return n > 0 ? n : n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void end_source(void *cls)
{
    stream *s = cls;
    s->source.end(s->source.self);
    spry_http_release(s->exchange);
    free(s);
}

void spry_reply_stream(spry_exchange *x, const char *type, spry_reply_source source)
{
    stream *kept = malloc(sizeof *kept);
    struct MHD_Response *response =
        kept ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_source, kept, end_source) : NULL;
    if (!response) {
        free(kept);
        source.end(source.self);
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the reply");
        return;
    }
    *kept = (stream){x, source};
    x->references++;
    add_headers(x, response, type);
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    queue(x, MHD_HTTP_OK, response);
}
