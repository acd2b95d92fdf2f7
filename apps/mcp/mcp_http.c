/* The link to a server with an address: streamable HTTP. A message is the body of a POST; the reply is JSON, or an
 * event of a stream. Redirects are not followed, so that the headers go only to the address of the file. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "mcp/mcp_server.h"
#include "platform/clock.h"
#include "pull/pull_http.h"

enum { SESSION_BYTES = 256, VERSION_BYTES = 32 };

typedef struct http_link {
    spry_mcp_link base;
    atomic_bool stopped;
    pthread_mutex_t lock;
    char session[SESSION_BYTES]; /* the session's id from the server; "": none */
    char version[VERSION_BYTES]; /* version of the protocol, once it is agreed on */
} http_link;

typedef struct answer {
    http_link *link;
    CURL *curl;
    json_int_t id;
    json_t *reply;
    bool streamed, begun;
    spry_buffer text, data; /* bytes that are not a whole line; data of an event */
} answer;

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void take_message(answer *a, spry_view text)
{
    json_t *message = NULL;
    spry_error ignored;
    if (a->reply || spry_json_read(&message, text, SPRY_JSON_LAST_KEY, 0, &ignored) != SPRY_OK)
        return;
    const json_t *id = json_object_get(message, "id"), *method = json_object_get(message, "method");
    if (!method && json_is_integer(id) && json_integer_value(id) == a->id)
        a->reply = json_incref(message);
    else if (json_is_string(method) && strcmp(json_string_value(method), "notifications/tools/list_changed") == 0)
        a->link->base.events.list_changed(a->link->base.events.user);
    json_decref(message);
}

static void take_event_line(answer *a, spry_view line)
{
    if (spry_view_ends(line, SPRY_VIEW("\r")))
        line.size--;
    if (line.size == 0 && a->data.size) {
        take_message(a, spry_buffer_view(&a->data));
        spry_buffer_clear(&a->data);
    } else if (spry_view_starts(line, SPRY_VIEW("data:"))) {
        size_t skipped = line.size > 5 && line.data[5] == ' ' ? 6 : 5;
        spry_buffer_append(&a->data, line.data + skipped, line.size - skipped);
    }
}

/* Other than `size`: the transfer ends, because the reply is there or too long. */
static size_t on_bytes(char *bytes, size_t one, size_t size, void *user)
{
    answer *a = user;
    const char *type = NULL, *newline;
    (void)one;
    if (!a->begun) {
        curl_easy_getinfo(a->curl, CURLINFO_CONTENT_TYPE, &type);
        a->streamed = type && strncasecmp(type, "text/event-stream", 17) == 0;
        a->begun = true;
    }
    if (!spry_buffer_append(&a->text, bytes, size))
        return 0;
    while (a->streamed && !a->reply && a->text.size && (newline = memchr(a->text.data, '\n', a->text.size))) {
        size_t end = (size_t)(newline - a->text.data);
        take_event_line(a, (spry_view){a->text.data, end});
        spry_buffer_consume(&a->text, end + 1);
    }
    return a->reply || a->data.failed ? 0 : size;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    http_link *h = user;
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&h->stopped) || spry_interrupted(SPRY_INTERRUPT_WORK);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct curl_slist *make_headers(http_link *h)
{
    struct curl_slist *headers = NULL;
    char line[SESSION_BYTES + 40];
    for (const char *const *at = h->base.entry->headers; at && *at; at++)
        headers = curl_slist_append(headers, *at);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Accept: application/json, text/event-stream");
    headers = curl_slist_append(headers, "Expect:");
    pthread_mutex_lock(&h->lock);
    if (*h->session && snprintf(line, sizeof line, "Mcp-Session-Id: %s", h->session) > 0)
        headers = curl_slist_append(headers, line);
    if (*h->version && snprintf(line, sizeof line, "MCP-Protocol-Version: %s", h->version) > 0)
        headers = curl_slist_append(headers, line);
    pthread_mutex_unlock(&h->lock);
    return headers;
}

static bool is_local(const char *url)
{
    return strncasecmp(url, "http:", 5) == 0; /* the file allows nothing else (mcp_file.c) */
}

static void prepare(CURL *curl, struct curl_slist **headers, http_link *h, uint64_t until_ns)
{
    uint64_t now = spry_clock_ns();
    const char *url = h->base.entry->url;
    spry_http_prepare(curl, headers, url, NULL);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, until_ns > now ? (long)((until_ns - now) / 1000000 + 1) : 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, h);
    if (is_local(url))
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

static void keep_session(http_link *h, CURL *curl, const json_t *reply)
{
    const char *session = spry_http_header(curl, "Mcp-Session-Id");
    const char *version = json_string_value(json_object_get(json_object_get(reply, "result"), "protocolVersion"));
    pthread_mutex_lock(&h->lock);
    if (session && strlen(session) < sizeof h->session)
        snprintf(h->session, sizeof h->session, "%s", session);
    if (version && strlen(version) < sizeof h->version && !strpbrk(version, "\r\n"))
        snprintf(h->version, sizeof h->version, "%s", version);
    pthread_mutex_unlock(&h->lock);
}

/* How the transfer ended. *lost: the server is gone, or forgot its session. */
static spry_status outcome(bool *lost, const answer *a, CURLcode code, spry_error *error)
{
    long status = 0;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    if (a->reply || (!a->id && code == CURLE_OK && status / 100 == 2))
        return SPRY_OK;
    if (a->text.failed || a->data.failed)
        return spry_fail(error, SPRY_ERR_INPUT, "its answer has more than %d bytes", SPRY_MCP_MESSAGE_MAX);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return spry_fail(error, SPRY_ERR_CANCELLED, "the call was cancelled");
    if (code == CURLE_OPERATION_TIMEDOUT)
        return spry_fail(error, SPRY_ERR_FILE, "it has not answered in time");
    *lost = code != CURLE_OK || status == 404;
    if (code != CURLE_OK)
        return spry_fail(error, SPRY_ERR_FILE, "it cannot be reached: %s", curl_easy_strerror(code));
    if (status / 100 != 2)
        return spry_fail(error, SPRY_ERR_FILE, "it answered with status %ld%s", status,
                         status / 100 == 3 ? "; redirects are not followed" : "");
    return spry_fail(error, SPRY_ERR_FILE, "its answer is not a message of the protocol");
}

static spry_status exchange(spry_mcp_link *link, json_t **reply, const json_t *message, json_int_t id,
                            uint64_t until_ns, spry_error *error)
{
    http_link *h = (http_link *)link;
    struct curl_slist *headers = make_headers(h);
    char *text = spry_json_text(message, JSON_COMPACT);
    answer a = {.link = h, .curl = curl_easy_init(), .id = id};
    spry_status status = text && a.curl ? SPRY_OK : spry_fail_memory(error, "a message", 0);
    spry_buffer_init(&a.text, SPRY_MCP_MESSAGE_MAX);
    spry_buffer_init(&a.data, SPRY_MCP_MESSAGE_MAX);
    if (status == SPRY_OK) {
        prepare(a.curl, &headers, h, until_ns);
        curl_easy_setopt(a.curl, CURLOPT_POSTFIELDS, text);
        curl_easy_setopt(a.curl, CURLOPT_WRITEFUNCTION, on_bytes);
        curl_easy_setopt(a.curl, CURLOPT_WRITEDATA, &a);
        CURLcode code = curl_easy_perform(a.curl);
        if (!a.streamed)
            take_message(&a, spry_buffer_view(&a.text));
        bool lost = false;
        status = outcome(&lost, &a, code, error);
        if (lost)
            link->events.broken(link->events.user, error->message);
    }
    if (a.reply)
        keep_session(h, a.curl, a.reply);
    if (status == SPRY_OK && id)
        *reply = a.reply;
    else
        json_decref(a.reply);
    spry_buffer_deinit(&a.text);
    spry_buffer_deinit(&a.data);
    curl_slist_free_all(headers);
    curl_easy_cleanup(a.curl);
    free(text);
    return status;
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

static void stop(spry_mcp_link *link)
{
    atomic_store(&((http_link *)link)->stopped, true);
}

static size_t drop(char *bytes, size_t one, size_t size, void *user)
{
    (void)bytes, (void)one, (void)user;
    return size;
}

/* The session ends, so that the server need not keep it. */
static void end_session(http_link *h)
{
    enum { END_S = 2 };
    CURL *curl = *h->session ? curl_easy_init() : NULL;
    if (!curl)
        return;
    struct curl_slist *headers = make_headers(h);
    prepare(curl, &headers, h, spry_clock_ns() + END_S * 1000000000ull);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    (void)curl_easy_perform(curl);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
}

static void close_link(spry_mcp_link *link)
{
    http_link *h = (http_link *)link;
    end_session(h);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static const spry_mcp_link_ops ops = {exchange, stop, close_link};

spry_status spry_mcp_http_open(spry_mcp_link **out, const spry_mcp_entry *entry, const spry_mcp_events *events,
                               spry_error *error)
{
    http_link *h = calloc(1, sizeof *h);
    if (!h)
        return spry_fail_memory(error, "a server of --mcp", sizeof *h);
    spry_http_init();
    h->base = (spry_mcp_link){&ops, entry, *events};
    pthread_mutex_init(&h->lock, NULL);
    *out = &h->base;
    return SPRY_OK;
}
