/* Sockets never block: a request is read in as many turns as its bytes need. Its reply is written in one turn, which
 * waits for the client to read. */
#include "server/http/http_connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/map.h"
#include "base/meter.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/wakeup.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"

enum {
    BLOCK = 16384,
    FIELDS_BYTES_MAX = 65536,
    LOG_LINE = 1024,
    BODY_IDLES = 10,
    TRIMMED = 16 << 20, /* memory is given back to the system after requests that took more */
};
#define SECOND_NS 1000000000ull
#define LINGER_NS (2 * SECOND_NS) /* how long to read on when a client still sends after its last reply */

/* ---- what handlers ask of a request ------------------------------------------------------------------------------ */

void spry_http_log(const spry_server *server, const char *format, ...)
{
    char line[LOG_LINE];
    if (!server->settings->verbose)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    spry_complain("%s", line);
}

const char *spry_exchange_header(const spry_exchange *x, const char *name)
{
    return x->connection ? spry_http_head_field(&x->connection->parser.head, name) : NULL;
}

const char *spry_exchange_argument(const spry_exchange *x, const char *name)
{
    const spry_http_head *head = x->connection ? &x->connection->parser.head : NULL;
    for (size_t i = 0; head && i < head->n_arguments; i++)
        if (strcmp(head->arguments[i].name, name) == 0)
            return head->arguments[i].value;
    return NULL;
}

int spry_http_socket(const spry_exchange *x)
{
    return x->connection ? x->connection->socket : -1;
}

spry_status spry_http_check_reader(spry_exchange *x, spry_error *error)
{
    uint64_t seconds = x->server->settings->answer_s;
    if (x->connection && spry_socket_hung_up(x->connection->socket, 0))
        return spry_fail(error, SPRY_ERR_CANCELLED, "the client has disconnected");
    x->late = seconds && spry_clock_ns() > x->began_ns + seconds * SECOND_NS;
    return x->late ? spry_fail(error, SPRY_ERR_CANCELLED, "the answer took longer than allowed") : SPRY_OK;
}

static void give_memory(spry_exchange *x, size_t bytes)
{
    atomic_fetch_sub(&x->server->memory, bytes);
    x->memory -= bytes;
}

/* One request gets at most half, so that others are answered meanwhile. */
bool spry_http_take_memory(spry_exchange *x, size_t bytes)
{
    size_t limit = x->server->settings->request_memory;
    if (x->memory > limit / 2 || bytes > limit / 2 - x->memory) {
        x->exceeds = true;
        return false;
    }
    size_t taken = atomic_fetch_add(&x->server->memory, bytes);
    if (taken > limit || bytes > limit - taken) {
        atomic_fetch_sub(&x->server->memory, bytes);
        return false;
    }
    x->memory += bytes;
    x->large |= x->memory >= TRIMMED;
    return true;
}

/* Whether to give up a request while it is prepared: base/interrupt.h. */
static bool is_over(void *user)
{
    spry_exchange *x = user;
    spry_error ignored;
    return atomic_load(&x->server->cutting) || spry_http_check_reader(x, &ignored) != SPRY_OK;
}

void spry_http_interrupt_begin(spry_exchange *x)
{
    spry_interrupt_begin(is_over, x);
}

static bool take_memory(void *exchange, size_t bytes)
{
    return spry_http_take_memory(exchange, bytes);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* The bytes of an address without its port; NULL: it is of another family. */
static const void *address_bytes(const struct sockaddr_storage *address, size_t *size)
{
    bool is_6 = address->ss_family == AF_INET6;
    *size = is_6 ? 16 : 4;
    if (is_6)
        return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return address->ss_family == AF_INET ? &((const struct sockaddr_in *)(const void *)address)->sin_addr : NULL;
}

uint64_t spry_address_hash(const struct sockaddr_storage *address, uint64_t seed)
{
    size_t size;
    const void *bytes = address_bytes(address, &size);
    return bytes ? spry_hash_bytes(bytes, size, seed) : seed;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The number of bytes read, 0 at the end, -1 and errno. */
static ssize_t receive(spry_connection *c)
{
    char block[BLOCK];
    ssize_t n = c->tls ? spry_tls_link_recv(c->tls, block, sizeof block) : recv(c->socket, block, sizeof block, 0);
    if (n > 0 && !spry_buffer_append(&c->in, block, (size_t)n)) {
        errno = ENOMEM;
        return -1;
    }
    return n;
}

/* False: the client has left, or reads nothing for --idle-timeout. */
static bool send_all(spry_connection *c, spry_view bytes)
{
    while (bytes.size) {
        ssize_t n = c->tls ? spry_tls_link_send(c->tls, bytes.data, bytes.size)
                           : send(c->socket, bytes.data, bytes.size, MSG_NOSIGNAL);
        struct pollfd file = {.fd = c->socket, .events = POLLOUT};
        if (n > 0)
            bytes = (spry_view){bytes.data + n, bytes.size - (size_t)n};
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else if (errno == EAGAIN && poll(&file, 1, (int)c->server->settings->idle_s * 1000) == 0)
            return false;
    }
    return true;
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool is_disabled(const spry_exchange *x)
{
    for (const char *at = x->server->settings->disable; at && *at;) {
        at += strspn(at, ", ");
        spry_view path = {at, strcspn(at, ", ")};
        if (spry_view_is(path, x->route->path))
            return true;
        at += path.size;
    }
    return false;
}

/* Refuses what can be refused before the body is read. */
static void check_head(spry_exchange *x, uint64_t length)
{
    char allowed[64];
    x->route = spry_route_find(x->method, x->path, &x->tail, allowed);
    if (!spry_http_guard(x))
        return;
    if (!x->route && allowed[0])
        spry_reply_wrong_method(x, allowed);
    else if (!x->route)
        spry_reply_error(x, SPRY_HTTP_NOT_FOUND, NULL, "no such path; docs/SERVER.md lists all paths");
    else if (is_disabled(x))
        spry_reply_error(x, x->route->access == SPRY_ROUTE_OPEN ? SPRY_HTTP_NOT_FOUND : SPRY_HTTP_NOT_IMPLEMENTED, NULL,
                         "%s is turned off on this server (--disable)", x->route->path);
    else if (length > x->server->settings->max_body)
        spry_reply_error(x, SPRY_HTTP_CONTENT_TOO_LARGE, NULL, "the body has %llu bytes; the limit is %zu",
                         (unsigned long long)length, x->server->settings->max_body);
    else if (atomic_load(&x->server->ending))
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "the server is stopping");
}

static void begin_exchange(spry_connection *c)
{
    spry_exchange *x = &c->exchange;
    const spry_http_head *head = &c->parser.head;
    size_t size;
    const void *bytes = address_bytes(&c->address, &size);
    bool refused = c->parser.state == SPRY_PARSE_REFUSED;
    *x = (spry_exchange){.server = c->server,
                         .connection = c,
                         .method = refused ? "-" : head->method,
                         .path = refused ? "-" : head->path,
                         .number = atomic_fetch_add(&c->server->numbers, 1) + 1,
                         .began_ns = spry_clock_ns()};
    spry_buffer_init(&x->body, c->server->settings->max_body);
    spry_buffer_init(&x->fields, FIELDS_BYTES_MAX);
    spry_buffer_init(&x->ignored, FIELDS_BYTES_MAX);
    snprintf(x->audit.method, sizeof x->audit.method, "%s", x->method);
    snprintf(x->audit.path, sizeof x->audit.path, "%s", x->path);
    if (bytes)
        inet_ntop(c->address.ss_family, bytes, x->audit.address, sizeof x->audit.address);
    atomic_fetch_add(&c->server->open_exchanges, 1);
    c->open = c->served = true;
    if (!refused)
        check_head(x, head->length);
}

static void end_exchange(spry_connection *c, bool whole)
{
    spry_exchange *x = &c->exchange;
    spry_http_log(
        c->server, "request=%llu method=%.16s path=%.100s status=%u bytes_in=%zu ms=%.3f end=%s ignored=\"%.200s\"",
        (unsigned long long)x->number, x->method, x->path, x->status, x->body.size,
        (double)(spry_clock_ns() - x->began_ns) / 1e6, whole ? "whole" : "cut", spry_buffer_view(&x->ignored).data);
    x->audit.whole = whole;
    if (!whole)
        shutdown(c->socket, SHUT_RDWR); /* ending the source may take as long as the rest of an answer */
    if (x->source.more)
        x->source.end(x->source.self);
    if (x->counted)
        spry_key_limits_end(&c->server->limits, x->key_index);
    spry_audit_log_write(&c->server->audit, x);
    spry_request_show(x);
    atomic_fetch_sub(&c->server->open_exchanges, 1);
    spry_buffer_deinit(&x->body);
    spry_buffer_deinit(&x->fields);
    spry_buffer_deinit(&x->ignored);
    free(x->owned);
    give_memory(x, x->memory);
    if (x->large)
        spry_memory_trim();
    spry_http_parser_reset(&c->parser);
    c->open = false;
    c->since_ns = spry_clock_ns();
}

/* ---- the reply --------------------------------------------------------------------------------------------------- */

static void write_head(spry_buffer *out, spry_connection *c, bool keeps)
{
    const spry_exchange *x = &c->exchange;
    char date[64];
    struct tm day;
    time_t now = time(NULL);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &day));
    spry_buffer_format(out, "HTTP/1.1 %u %s\r\nDate: %s\r\n", x->status, spry_reply_reason(x->status), date);
    spry_buffer_append(out, spry_buffer_view(&x->fields).data, x->fields.size);
    if (!x->source.more)
        spry_buffer_format(out, "Content-Length: %zu\r\n", x->content.size);
    else if (c->parser.head.is_1_1)
        spry_buffer_text(out, "Transfer-Encoding: chunked\r\n");
    if (!keeps)
        spry_buffer_text(out, "Connection: close\r\n");
    else if (!c->parser.head.is_1_1)
        spry_buffer_text(out, "Connection: keep-alive\r\n");
    spry_buffer_text(out, "\r\n");
}

static bool send_stream(spry_connection *c, spry_buffer *out)
{
    spry_exchange *x = &c->exchange;
    bool chunked = c->parser.head.is_1_1, sent = true;
    char block[BLOCK];
    ssize_t n;
    while (sent && (n = x->source.more(x->source.self, block, sizeof block)) != 0) {
        spry_buffer_clear(out);
        if (n < 0)
            return false;
        if (chunked)
            spry_buffer_format(out, "%zx\r\n", (size_t)n);
        spry_buffer_append(out, block, (size_t)n);
        if (chunked)
            spry_buffer_text(out, "\r\n");
        sent = !out->failed && send_all(c, spry_buffer_view(out));
    }
    return sent && (!chunked || send_all(c, SPRY_VIEW("0\r\n\r\n")));
}

static bool send_reply(spry_connection *c, bool keeps)
{
    spry_exchange *x = &c->exchange;
    bool is_head = strcmp(x->method, "HEAD") == 0, small = x->content.size <= BLOCK;
    spry_buffer out;
    spry_buffer_init(&out, FIELDS_BYTES_MAX + 4 * BLOCK);
    write_head(&out, c, keeps);
    if (small && !is_head)
        spry_buffer_append(&out, x->content.data ? x->content.data : "", x->content.size);
    bool sent = !out.failed && !x->fields.failed && send_all(c, spry_buffer_view(&out));
    if (sent && !small && !is_head)
        sent = send_all(c, x->content);
    if (sent && x->source.more && !is_head)
        sent = send_stream(c, &out);
    spry_buffer_deinit(&out);
    return sent;
}

static void reply_fault(spry_exchange *x, spry_http_fault fault)
{
    unsigned status;
    const char *text = spry_http_fault_text(&status, fault);
    if (status == SPRY_HTTP_CONTENT_TOO_LARGE)
        spry_reply_error(x, status, NULL, "%s, which is %zu bytes", text, x->server->settings->max_body);
    else
        spry_reply_error(x, status, NULL, "%s", text);
}

/* Replies to a request, which is complete unless it is refused. False: the reply could not be sent. *keeps: the
 * connection can have another request. */
static bool answer(spry_connection *c, bool *keeps)
{
    spry_exchange *x = &c->exchange;
    if (!x->status && c->parser.state == SPRY_PARSE_REFUSED) {
        reply_fault(x, c->parser.fault);
    } else if (!x->status) {
        spry_http_interrupt_begin(x);
        spry_meter_begin(take_memory, x);
        spry_json_forget();
        x->route->handle(x);
        give_memory(x, spry_meter_end()); /* before the reply is sent, which may take long */
        spry_interrupt_end();
    }
    *keeps =
        c->parser.state == SPRY_PARSE_COMPLETE && c->parser.head.keeps && (c->parser.head.is_1_1 || !x->source.more);
    bool whole = x->status && send_reply(c, *keeps);
    end_exchange(c, whole);
    return whole;
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

spry_connection *spry_connection_create(spry_server *server, spry_http_tls *tls, int socket,
                                        const struct sockaddr_storage *address)
{
    int on = 1;
    spry_connection *c = calloc(1, sizeof *c);
    if (c && tls)
        c->tls = spry_tls_link_create(tls, socket);
    if (!c || (tls && !c->tls)) {
        free(c);
        close(socket);
        return NULL;
    }
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->server = server;
    c->socket = socket;
    c->address = *address;
    spry_http_parser_init(&c->parser, server->settings->max_head, server->settings->max_body);
    spry_buffer_init(&c->in, BLOCK);
    c->since_ns = spry_clock_ns();
    c->until_ns = c->since_ns + server->settings->head_s * SECOND_NS;
    c->events = POLLIN;
    return c;
}

void spry_connection_destroy(spry_connection *c)
{
    if (c->open)
        end_exchange(c, false);
    if (c->tls && !c->lingering)
        spry_tls_link_bye(c->tls);
    if (c->tls)
        spry_tls_link_destroy(c->tls);
    close(c->socket);
    spry_http_parser_deinit(&c->parser);
    spry_buffer_deinit(&c->in);
    free(c);
}

/* Reads and drops what the client still sends: a socket that is closed with unread bytes can lose the reply. */
static bool drop_rest(spry_connection *c)
{
    char block[BLOCK];
    ssize_t n;
    do
        n = recv(c->socket, block, sizeof block, 0);
    while (n > 0 && spry_clock_ns() < c->until_ns);
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* After the last reply. */
static bool linger(spry_connection *c)
{
    if (c->tls)
        spry_tls_link_bye(c->tls);
    if (shutdown(c->socket, SHUT_WR) != 0)
        return false;
    c->lingering = true;
    c->until_ns = spry_clock_ns() + LINGER_NS;
    c->events = POLLIN;
    return drop_rest(c);
}

/* Sets what the connection waits for, and how long: a new one for a head, another for its next request, and one with an
 * unfinished body for more of it. */
static void set_wait(spry_connection *c)
{
    const spry_serve_settings *s = c->server->settings;
    uint64_t idle_ns = s->idle_s * SECOND_NS;
    c->until_ns = c->since_ns + (c->served ? idle_ns : s->head_s * SECOND_NS);
    if (c->open) {
        uint64_t next = spry_clock_ns() + idle_ns, last = c->exchange.began_ns + BODY_IDLES * idle_ns;
        c->until_ns = next < last ? next : last;
    }
    c->events = c->tls && spry_tls_link_writes(c->tls) ? POLLOUT : POLLIN;
    spry_buffer_deinit(&c->in);
}

bool spry_connection_serve(spry_connection *c)
{
    if (c->lingering)
        return drop_rest(c);
    for (;;) {
        spry_buffer_consume(&c->in, spry_http_parser_feed(&c->parser, &c->exchange.body, spry_buffer_view(&c->in)));
        bool begins = c->parser.state != SPRY_PARSE_HEAD && !c->open, keeps;
        if (begins)
            begin_exchange(c);
        if (c->open && !c->exchange.status && c->exchange.body.capacity > c->exchange.memory &&
            !spry_http_take_memory(&c->exchange, c->exchange.body.capacity - c->exchange.memory))
            spry_reply_error(&c->exchange, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL,
                             "the bodies of requests take all memory that they may (--request-memory); try again");
        if (c->open && (c->exchange.status || c->parser.state >= SPRY_PARSE_COMPLETE)) {
            if (!answer(c, &keeps))
                return false;
            if (!keeps)
                return linger(c);
            continue;
        }
        if (c->in.size)
            continue;
        if (begins && c->parser.head.expects && !send_all(c, SPRY_VIEW("HTTP/1.1 100 Continue\r\n\r\n")))
            return false;
        ssize_t n = receive(c);
        if (n < 0 && errno == EAGAIN) {
            set_wait(c);
            return true;
        }
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
    }
}
