/* Each connection has its own thread, so handlers may block: while a model loads, for tokens, for a slow reader. */
#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/number.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "platform/wakeup.h"
#include "server/http/http_connections.h"
#include "server/http/http_frames.h"
#include "server/http/http_gate.h"
#include "server/http/http_guard.h"
#include "server/http/http_reply.h"
#include "server/http/http_route.h"
#include "server/http/http_tls.h"

enum {
    STACK_BYTES = 2 << 20,
    LOG_LINE = 1024,
    ENDLESS_FACTOR = 4,
    BODY_IDLES = 10,
    OTHER_FILES = 64,
    HEAD_FACTOR = 4,
    LIMIT_FACTOR = 16
};

struct spry_http_server {
    struct MHD_Daemon *daemon;
    int listening; /* -1 once quiesced */
    spry_http_gate *gate;
    spry_connections connections;
    spry_http_tls *tls; /* NULL: plain HTTP */
};

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

/* Setting no limit and then a limit restarts the idle clock of libmicrohttpd. */
void spry_http_touch(spry_exchange *x)
{
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT, x->server->settings->idle_s);
}

int spry_http_socket(const spry_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        x->connection ? MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD) : NULL;
    return info ? info->connect_fd : -1;
}

spry_status spry_http_check_reader(spry_exchange *x, spry_error *error)
{
    uint64_t seconds = x->server->settings->answer_s;
    if (x->connection && spry_socket_hung_up(spry_http_socket(x), 0))
        return spry_fail(error, SPRY_ERR_CANCELLED, "the client has disconnected");
    x->late = seconds && spry_clock_ns() > x->began_ns + seconds * 1000000000;
    return x->late ? spry_fail(error, SPRY_ERR_CANCELLED, "the answer took longer than allowed") : SPRY_OK;
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

static void tell_address(spry_exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    const void *bytes = NULL;
    if (address && address->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (address && address->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (bytes)
        inet_ntop(address->sa_family, bytes, x->audit.address, sizeof x->audit.address);
}

static spry_exchange *begin(spry_server *server, struct MHD_Connection *connection, const char *path,
                            const char *method)
{
    spry_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->server = server;
    x->connection = connection;
    x->method = method;
    x->path = path;
    x->number = atomic_fetch_add(&server->numbers, 1) + 1;
    x->began_ns = spry_clock_ns();
    x->queued = MHD_NO;
    x->references = 1;
    spry_buffer_init(&x->body, server->settings->max_body);
    snprintf(x->audit.method, sizeof x->audit.method, "%s", method);
    snprintf(x->audit.path, sizeof x->audit.path, "%s", path);
    tell_address(x);
    atomic_fetch_add(&server->open_exchanges, 1);
    return x;
}

/* A request that the gate has refused: the target has the fault or, behind a body, a field has. */
static bool refused(spry_exchange *x, const char *fault)
{
    unsigned status;
    const char *text = spry_http_fault_text(&status, spry_http_frames_fault(fault));
    x->last = text != NULL;
    if (text && status == MHD_HTTP_CONTENT_TOO_LARGE)
        spry_reply_error(x, status, NULL, "%s, which is %zu bytes", text, x->server->settings->max_body);
    else if (text)
        spry_reply_error(x, status, NULL, "%s", text);
    return text != NULL;
}

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
static void check_head(spry_exchange *x)
{
    char allowed[64];
    uint64_t length;
    const char *content_length =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (x->path[0] == '*' && refused(x, x->path + 1))
        return;
    x->route = spry_route_find(x->method, x->path, &x->tail, allowed);
    if (!spry_http_guard(x))
        return;
    if (!x->route && allowed[0])
        spry_reply_wrong_method(x, allowed);
    else if (!x->route)
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, NULL, "no such path; docs/SERVER.md lists all paths");
    else if (is_disabled(x))
        spry_reply_error(x, x->route->open ? MHD_HTTP_NOT_FOUND : MHD_HTTP_NOT_IMPLEMENTED, NULL,
                         "%s is turned off on this server (--disable)", x->route->path);
    else if (content_length && spry_number_u64(&length, spry_view_of(content_length)) &&
             length > x->server->settings->max_body)
        spry_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, NULL, "the body has %s bytes; the limit is %zu", content_length,
                         x->server->settings->max_body);
    else if (atomic_load(&x->server->ending))
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "the server is stopping");
}

/* Bytes beyond the limit are read and dropped, because HTTP expects the whole body before the reply. False when there
 * are too many of them or the body arrives too slowly: the connection is closed. */
static bool read_body(spry_exchange *x, const char *data, size_t size)
{
    if (spry_clock_ns() - x->began_ns > (uint64_t)x->server->settings->idle_s * BODY_IDLES * 1000000000)
        return false;
    if (!x->dropped && spry_buffer_append(&x->body, data, size))
        return true;
    x->dropped += size;
    return x->dropped / ENDLESS_FACTOR <= x->server->settings->max_body;
}

static void answer(spry_exchange *x)
{
    if (refused(x, MHD_lookup_connection_value(x->connection, MHD_FOOTER_KIND, SPRY_REFUSED_FIELD)))
        return;
    if (x->dropped)
        spry_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, NULL, "the body is larger than the limit of %zu bytes",
                         x->server->settings->max_body);
    else
        x->route->handle(x);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *size, void **state)
{
    spry_exchange *x = *state;
    if (!x) {
        *state = x = begin(cls, connection, path, method);
        if (!x)
            return MHD_NO;
        x->needs_host = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
        spry_connections_set_busy(x->server->connections, connection, true);
        check_head(x);
        return x->status ? x->queued : MHD_YES;
    }
    if (*size) {
        bool more = read_body(x, data, *size);
        *size = 0;
        return more ? MHD_YES : MHD_NO;
    }
    answer(x);
    spry_http_touch(x);
    return x->queued;
}

void spry_http_release(spry_exchange *x)
{
    if (--x->references)
        return;
    if (x->counted)
        spry_key_limits_end(&x->server->limits, x->key_index);
    spry_audit_log_write(&x->server->audit, x);
    atomic_fetch_sub(&x->server->open_exchanges, 1);
    spry_buffer_deinit(&x->body);
    free(x);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    spry_exchange *x = *state;
    if (!x)
        return;
    spry_http_log(cls, "request=%llu method=%.16s path=%.100s status=%u bytes_in=%zu ms=%.3f end=%s",
                  (unsigned long long)x->number, x->method, x->path, x->status, x->body.size + x->dropped,
                  (double)(spry_clock_ns() - x->began_ns) / 1e6,
                  why == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "whole" : "cut");
    x->audit.whole = why == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    *state = NULL;
    spry_connections_set_busy(x->server->connections, connection, false);
    spry_http_release(x);
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return false;
}

static spry_status check_reach(spry_server *server, const struct addrinfo *found, spry_error *error)
{
    server->loopback = is_loopback(found->ai_addr);
    if (server->loopback || server->keys.count || server->settings->insecure)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT,
                     "%s is reachable from other machines: set keys with --api-key-file, or allow it with --insecure",
                     server->settings->host);
}

static int open_socket(const struct addrinfo *found)
{
    int file = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (file < 0)
        return -1;
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(file, found->ai_addr, found->ai_addrlen) == 0 && listen(file, SOMAXCONN) == 0)
        return file;
    int why = errno;
    close(file);
    errno = why;
    return -1;
}

static uint16_t port_of(int file)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(file, (struct sockaddr *)(void *)&address, &size) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                               : ((struct sockaddr_in *)(void *)&address)->sin_port);
}

/* A connection needs three file descriptors, a request another one. */
static void allow_files(uint32_t connections)
{
    struct rlimit limit;
    rlim_t wanted = 4 * (rlim_t)connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static spry_status listen_on(int *file, spry_server *server, spry_error *error)
{
    const spry_serve_settings *s = server->settings;
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    snprintf(port, sizeof port, "%u", s->port);
    if (getaddrinfo(s->host, port, &hints, &found) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "--host %s: no such address", s->host);
    spry_status status = check_reach(server, found, error);
    *file = status == SPRY_OK ? open_socket(found) : -1;
    if (status == SPRY_OK && *file < 0)
        status = spry_fail(error, SPRY_ERR_FILE, "cannot listen on %s port %u: %s", s->host, s->port, strerror(errno));
    freeaddrinfo(found);
    return status;
}

/* Messages of libmicrohttpd are of use only to its developers. */
static void no_log(void *cls, const char *format, va_list args)
{
    (void)cls;
    (void)format;
    (void)args;
}

/* Behind the gate, which accepts no more connections than are allowed, libmicrohttpd must not reach its own limit: then
 * 0.9.75 leaves one of its locks locked. It counts connections that have ended for a moment longer. */
static spry_status start_daemon(spry_http_server *http, spry_server *server, spry_error *error)
{
    const spry_serve_settings *s = server->settings;
    http->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC |
            MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET,
        0, spry_connections_accept, &http->connections, on_request, server, MHD_OPTION_NOTIFY_CONNECTION,
        spry_connections_notify, &http->connections, MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        HEAD_FACTOR * s->max_head, MHD_OPTION_CONNECTION_LIMIT,
        LIMIT_FACTOR * (s->connections + SPRY_CONNECTIONS_MARGIN), MHD_OPTION_CONNECTION_TIMEOUT, s->idle_s,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!http->daemon)
        return spry_fail(error, SPRY_ERR_MEMORY, "the HTTP server cannot start with %u connections", s->connections);
    spry_status status = spry_http_gate_start(&http->gate, s, http->daemon, http->listening, http->tls, error);
    if (status != SPRY_OK)
        MHD_stop_daemon(http->daemon);
    return status;
}

spry_status spry_http_server_start(spry_http_server **out, spry_server *server, uint16_t *port, spry_error *error)
{
    spry_http_server *http = calloc(1, sizeof *http);
    if (!http)
        return spry_fail_memory(error, "the server", sizeof *http);
    http->listening = -1;
    spry_status status = spry_http_tls_open(&http->tls, server->settings, error);
    if (status == SPRY_OK)
        status = listen_on(&http->listening, server, error);
    if (status == SPRY_OK) {
        *port = port_of(http->listening);
        allow_files(server->settings->connections + SPRY_CONNECTIONS_MARGIN);
        status = spry_connections_start(&http->connections, server, error);
        server->connections = &http->connections;
        if (status == SPRY_OK)
            status = start_daemon(http, server, error);
        if (status != SPRY_OK)
            spry_connections_stop(&http->connections);
    }
    if (status == SPRY_OK) {
        *out = http;
        return SPRY_OK;
    }
    if (http->listening >= 0)
        close(http->listening);
    spry_http_tls_close(http->tls);
    free(http);
    return status;
}

void spry_http_server_quiesce(spry_http_server *http)
{
    if (http->listening < 0)
        return;
    spry_http_gate_quiesce(http->gate);
    close(http->listening);
    http->listening = -1;
}

void spry_http_server_stop(spry_http_server *http)
{
    spry_http_server_quiesce(http);
    MHD_stop_daemon(http->daemon);
    spry_http_gate_stop(http->gate);
    spry_connections_stop(&http->connections);
    spry_http_tls_close(http->tls);
    free(http);
}
