/* Every reply has the security headers, and CORS headers with --cors. */
#include "server/http/http_reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/meter.h"
#include "base/utf8.h"
#include "server/http/http_connection.h"

enum { SENTENCE_BYTES = 1024 };

void spry_reply_field(spry_exchange *x, const char *name, const char *value)
{
    spry_meter_pause();
    spry_buffer_format(&x->fields, "%s: %s\r\n", name, value);
    spry_meter_resume();
}

/* False: there is no connection, or it has its reply. `cached`: browsers may keep the reply for a day. */
static bool begin(spry_exchange *x, unsigned status, const char *type, bool cached)
{
    if (!x->connection || x->status)
        return false;
    x->status = status;
    spry_reply_field(x, "Content-Type", type);
    spry_reply_field(x, "X-Content-Type-Options", "nosniff");
    spry_reply_field(x, "Cache-Control", cached ? "max-age=86400" : "no-store");
    spry_reply_field(x, "Server", "spry/" SPRY_VERSION);
    if (x->ignored.size)
        spry_reply_field(x, "X-Spry-Ignored", spry_buffer_view(&x->ignored).data);
    if (x->process_start[0])
        spry_reply_field(x, "Process-Start-Time-Unix", x->process_start);
    spry_http_cors_add(x);
    return true;
}

static int append_text(const char *text, size_t size, void *out)
{
    return spry_buffer_append(out, text, size) && !spry_interrupted(1) ? 0 : -1;
}

/* A value as text, to be freed; NULL: memory is short, or the request is over. */
static char *text_of(const json_t *json)
{
    spry_buffer text;
    spry_buffer_init(&text, SIZE_MAX / 2);
    if (json && json_dump_callback(json, append_text, &text, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0)
        return text.data;
    spry_buffer_deinit(&text);
    return NULL;
}

void spry_reply_json(spry_exchange *x, unsigned status, json_t *json)
{
    static const char no_memory[] = "{\"error\":{\"message\":\"not enough memory for the reply\"}}",
                      is_over[] = "{\"error\":{\"message\":\"the request ended before its reply was complete\"}}";
    if (status == SPRY_HTTP_OK && spry_json_short()) { /* memory was short while the JSON was built */
        json_decref(json);
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the reply");
        return;
    }
    if (!json)
        status = SPRY_HTTP_INTERNAL_SERVER_ERROR;
    if (!x->connection) {
        x->status = status;
        x->kept = json;
        return;
    }
    char *text = text_of(json);
    json_decref(json);
    if (!text)
        status = SPRY_HTTP_SERVICE_UNAVAILABLE;
    if (!begin(x, status, "application/json; charset=utf-8", false)) {
        free(text);
        return;
    }
    x->owned = text;
    x->content = spry_view_of(text ? text : spry_interrupted(0) ? is_over : no_memory);
    if (status == SPRY_HTTP_SERVICE_UNAVAILABLE)
        spry_reply_field(x, "Retry-After", "1");
    if (status == SPRY_HTTP_TOO_MANY_REQUESTS) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", x->retry_s ? x->retry_s : 1);
        spry_reply_field(x, "Retry-After", seconds);
    }
    if (status == SPRY_HTTP_METHOD_NOT_ALLOWED)
        spry_reply_field(x, "Allow", x->allowed);
    if (status == SPRY_HTTP_UNAUTHORIZED)
        spry_reply_field(x, "WWW-Authenticate", "Bearer");
}

void spry_reply_text(spry_exchange *x, spry_view text, const char *type, const char *policy)
{
    if (!begin(x, SPRY_HTTP_OK, type, false))
        return;
    x->owned = malloc(text.size + 1);
    if (x->owned) {
        memcpy(x->owned, text.data, text.size);
        x->content = (spry_view){x->owned, text.size};
    } else {
        x->fields.failed = true;
    }
    if (policy) {
        spry_reply_field(x, "Content-Security-Policy", policy);
        spry_reply_field(x, "X-Frame-Options", "DENY");
        spry_reply_field(x, "Referrer-Policy", "no-referrer");
    }
}

void spry_reply_compressed(spry_exchange *x, spry_view bytes, const char *type)
{
    if (!begin(x, SPRY_HTTP_OK, type, true))
        return;
    spry_reply_field(x, "Content-Encoding", "gzip");
    x->content = bytes;
}

void spry_reply_stream(spry_exchange *x, const char *type, spry_reply_source source)
{
    if (!begin(x, SPRY_HTTP_OK, type, false)) {
        source.end(source.self);
        return;
    }
    spry_reply_field(x, "X-Accel-Buffering", "no");
    x->source = source;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static const struct {
    unsigned status;
    const char *reason, *type, *code, *anthropic;
} kinds[] = {
    {200, "OK", "", "", ""},
    {400, "Bad Request", "invalid_request_error", "invalid_value", "invalid_request_error"},
    {401, "Unauthorized", "authentication_error", "invalid_api_key", "authentication_error"},
    {403, "Forbidden", "permission_error", "forbidden", "permission_error"},
    {404, "Not Found", "not_found_error", "not_found", "not_found_error"},
    {405, "Method Not Allowed", "invalid_request_error", "method", "invalid_request_error"},
    {409, "Conflict", "conflict_error", "conflict", "invalid_request_error"},
    {413, "Content Too Large", "invalid_request_error", "too_large", "request_too_large"},
    {414, "URI Too Long", "invalid_request_error", "too_large", "request_too_large"},
    {415, "Unsupported Media Type", "invalid_request_error", "content_type", "invalid_request_error"},
    {422, "Unprocessable Content", "invalid_request_error", "invalid_value", "invalid_request_error"},
    {429, "Too Many Requests", "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"},
    {431, "Request Header Fields Too Large", "invalid_request_error", "too_large", "request_too_large"},
    {500, "Internal Server Error", "server_error", "server_error", "api_error"},
    {501, "Not Implemented", "not_supported_error", "not_supported", "invalid_request_error"},
    {502, "Bad Gateway", "unavailable_error", "bad_gateway", "api_error"},
    {503, "Service Unavailable", "unavailable_error", "unavailable", "overloaded_error"},
    {504, "Gateway Timeout", "unavailable_error", "timeout", "timeout_error"},
    {505, "HTTP Version Not Supported", "invalid_request_error", "version", "invalid_request_error"},
};

const char *spry_reply_reason(unsigned status)
{
    for (size_t i = 0; i < SPRY_COUNT(kinds); i++)
        if (kinds[i].status == status)
            return kinds[i].reason;
    return "";
}

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
    if (status < SPRY_HTTP_INTERNAL_SERVER_ERROR && spry_json_short()) { /* short memory may be the cause */
        status = SPRY_HTTP_SERVICE_UNAVAILABLE;
        snprintf(sentence, sizeof sentence, "not enough memory for the request; try again");
    }
    if (status == SPRY_HTTP_SERVICE_UNAVAILABLE && x->exceeds) { /* and will be whenever it is tried again */
        status = SPRY_HTTP_CONTENT_TOO_LARGE;
        snprintf(sentence, sizeof sentence,
                 "the request needs more than half of the memory for all (--request-memory)");
    }
    spry_meter_pause(); /* the request has freed nothing yet */
    spry_error_form form = form_of(x);
    json_t *body = spry_reply_error_body(form, status, param, sentence), *error = json_object_get(body, "error");
    if (x->overflow_tokens && form == SPRY_ERRORS_OPENAI) {
        json_object_set_new(error, "type", json_string("exceed_context_size_error"));
        json_object_set_new(error, "code", json_string("context_length_exceeded"));
        json_object_set_new(error, "n_prompt_tokens", json_integer((json_int_t)x->overflow_tokens));
        json_object_set_new(error, "n_ctx", json_integer((json_int_t)x->overflow_context));
    }
    spry_reply_json(x, status, body);
    spry_meter_resume();
}

void spry_reply_wrong_method(spry_exchange *x, const char *allowed)
{
    snprintf(x->allowed, sizeof x->allowed, "%s", allowed);
    spry_reply_error(x, SPRY_HTTP_METHOD_NOT_ALLOWED, NULL, "%.20s is not allowed on this path; allowed: %s", x->method,
                     allowed);
}

unsigned spry_reply_status(spry_status status)
{
    switch (status) {
    case SPRY_OK: return SPRY_HTTP_OK;
    case SPRY_ERR_INPUT:
    case SPRY_ERR_FORMAT:
    case SPRY_ERR_UNSUPPORTED:
    case SPRY_ERR_CONTEXT: return SPRY_HTTP_BAD_REQUEST;
    case SPRY_ERR_FILE: return SPRY_HTTP_NOT_FOUND;
    case SPRY_ERR_MEMORY:
    case SPRY_ERR_CANCELLED:
    case SPRY_ERR_BUSY:
    case SPRY_ERR_DEVICE: return SPRY_HTTP_SERVICE_UNAVAILABLE;
    }
    return SPRY_HTTP_INTERNAL_SERVER_ERROR;
}

void spry_reply_failure(spry_exchange *x, const spry_error *error)
{
    unsigned status = x->late ? SPRY_HTTP_GATEWAY_TIMEOUT : spry_reply_status(error->status);
    spry_reply_error(x, status, NULL, "%s", error->message);
}

void spry_reply_write_failure(spry_exchange *x, const spry_error *error)
{
    if (error->status == SPRY_ERR_FILE)
        spry_reply_error(x, SPRY_HTTP_INTERNAL_SERVER_ERROR, NULL, "%s", error->message);
    else
        spry_reply_failure(x, error);
}
