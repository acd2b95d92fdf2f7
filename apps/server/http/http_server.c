#include "server/http/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/os.h"
#include "platform/threads.h"
#include "platform/wakeup.h"
#include "server/http/http_connection.h"

enum {
    MARGIN = 64,  /* connections beyond the limit when all others have a request */
    ACCEPTS = 64, /* maximum connections accepted in one turn */
    OTHER_FILES = 64,
    FIRST = 2, /* index in `files` of the first connection, after the wakeup and the listening socket */
};
#define HOLD_NS        100000000u  /* no connection is accepted for this time after file descriptors were short */
#define WORKER_IDLE_NS 1000000000u /* a worker without work ends after this time */

struct spry_http_server {
    spry_server *server;
    size_t limit;       /* maximum number of open connections */
    spry_http_tls *tls; /* NULL: plain HTTP */
    spry_wakeup wakeup; /* wakes the thread that waits in poll */
    pthread_t waiting;

    /* Only the thread that waits uses these. */
    int listening;        /* -1 once quiesced */
    uint64_t hold_ns;     /* no connection is accepted before this time */
    struct pollfd *files; /* [FIRST + limit] */
    spry_connection **polled;

    pthread_mutex_t lock;
    pthread_cond_t work; /* the queue has a connection, or the server stops */
    pthread_cond_t left; /* a worker has ended */
    spry_connection *first;
    size_t count;
    spry_connection *queue, **queue_end;
    size_t n_queued, n_workers, n_idle;
    bool quiet; /* accept no more */
    bool stopping;
};

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void unlist(spry_http_server *http, spry_connection *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    http->count--;
}

/* Under the lock: the next connection with bytes to read; NULL: the worker is to end. */
static spry_connection *take_work(spry_http_server *http)
{
    bool woken = true;
    while (!http->queue && !http->stopping && woken) {
        http->n_idle++;
        woken = spry_background_wait(&http->work, &http->lock, WORKER_IDLE_NS);
        http->n_idle--;
    }
    spry_connection *c = http->stopping ? NULL : http->queue;
    if (c) {
        http->queue = c->queued;
        http->queue_end = http->queue ? http->queue_end : &http->queue;
        http->n_queued--;
    }
    return c;
}

static void *worker_main(void *context)
{
    spry_http_server *http = context;
    pthread_mutex_lock(&http->lock);
    for (spry_connection *c; (c = take_work(http));) {
        pthread_mutex_unlock(&http->lock);
        bool stays = spry_connection_serve(c);
        pthread_mutex_lock(&http->lock);
        if (stays) {
            c->busy = false;
        } else {
            unlist(http, c);
            pthread_mutex_unlock(&http->lock);
            spry_connection_destroy(c);
            pthread_mutex_lock(&http->lock);
        }
        spry_wakeup_raise(&http->wakeup);
    }
    http->n_workers--;
    pthread_cond_signal(&http->left);
    pthread_mutex_unlock(&http->lock);
    return NULL;
}

/* Under the lock: passes a connection to a worker. Workers are started until each connection in the queue has one. */
static void enqueue(spry_http_server *http, spry_connection *c)
{
    pthread_t thread;
    if (http->n_queued >= http->n_idle &&
        spry_background_start(&thread, worker_main, http, "the server", NULL) == SPRY_OK) {
        pthread_detach(thread);
        http->n_workers++;
    }
    if (!http->n_workers) {
        c->until_ns = 0; /* no thread can be started: the connection is closed */
        return;
    }
    c->busy = true;
    c->queued = NULL;
    *http->queue_end = c;
    http->queue_end = &c->queued;
    http->n_queued++;
    pthread_cond_signal(&http->work);
}

/* ---- accepting --------------------------------------------------------------------------------------------------- */

/* Under the lock: the connection without a request that waits longest. One that has had its last reply is preferred,
 * then one that never had a request. NULL: all have one. */
static spry_connection *idlest(const spry_http_server *http)
{
    spry_connection *found = NULL;
    int best = 0;
    for (spry_connection *c = http->first; c; c = c->next) {
        if (c->busy || c->open)
            continue;
        int rank = c->lingering ? 3 : c->served ? 1 : 2;
        if (rank > best || (rank == best && c->since_ns < found->since_ns)) {
            found = c;
            best = rank;
        }
    }
    return found;
}

/* Under the lock: whether the address may have another connection. */
static bool is_allowed(const spry_http_server *http, const struct sockaddr_storage *address)
{
    const spry_serve_settings *s = http->server->settings;
    uint32_t half = s->connections / 2, limit = s->per_address ? s->per_address : half ? half : 1;
    uint64_t hash = spry_address_hash(address, 1);
    size_t same = 0;
    for (const spry_connection *c = http->first; c; c = c->next)
        same += spry_address_hash(&c->address, 1) == hash && (c->busy || !c->lingering);
    return same < limit || (http->server->loopback && !s->per_address);
}

static void accept_one(spry_http_server *http, int socket, const struct sockaddr_storage *address)
{
    spry_connection *out = NULL;
    pthread_mutex_lock(&http->lock);
    bool allowed = is_allowed(http, address);
    if (allowed && http->count >= http->server->settings->connections)
        out = idlest(http);
    if (out)
        unlist(http, out);
    pthread_mutex_unlock(&http->lock);
    if (out)
        spry_connection_destroy(out);
    if (!allowed)
        close(socket);
    pthread_mutex_lock(&http->lock); /* `tls` is replaced when certificates are read again */
    spry_connection *c = allowed ? spry_connection_create(http->server, http->tls, socket, address) : NULL;
    if (!c) {
        pthread_mutex_unlock(&http->lock);
        return;
    }
    c->next = http->first;
    c->link = &http->first;
    if (c->next)
        c->next->link = &c->next;
    http->first = c;
    http->count++;
    pthread_mutex_unlock(&http->lock);
}

/* Accepts connections up to the limit, as long as there are file descriptors; others wait in the listening socket. */
static void accept_some(spry_http_server *http)
{
    struct sockaddr_storage address;
    for (int i = 0; i < ACCEPTS; i++) {
        socklen_t size = sizeof address;
        pthread_mutex_lock(&http->lock);
        bool full = http->count >= http->limit;
        pthread_mutex_unlock(&http->lock);
        if (full)
            return;
        int socket = spry_os_accept(http->listening, (struct sockaddr *)(void *)&address, &size);
        if (socket >= 0)
            accept_one(http, socket, &address);
        else if (errno != EINTR && errno != ECONNABORTED) {
            http->hold_ns = errno == EAGAIN ? 0 : spry_clock_ns() + HOLD_NS;
            return;
        }
    }
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Under the lock: lists the sockets to wait for, and moves connections whose time is over to *late. Returns the time of
 * the next one. */
static uint64_t list_files(spry_http_server *http, nfds_t *n, spry_connection **late)
{
    uint64_t now = spry_clock_ns(), until = UINT64_MAX;
    bool accepts = http->count < http->limit && now >= http->hold_ns;
    http->files[0] = (struct pollfd){.fd = http->wakeup.file, .events = POLLIN};
    http->files[1] = (struct pollfd){.fd = accepts ? http->listening : -1, .events = POLLIN};
    if (now < http->hold_ns)
        until = http->hold_ns;
    *n = FIRST;
    for (spry_connection *c = http->first, *next; c; c = next) {
        next = c->next;
        if (c->busy)
            continue;
        if (now >= c->until_ns) {
            unlist(http, c);
            c->next = *late;
            *late = c;
            continue;
        }
        until = c->until_ns < until ? c->until_ns : until;
        http->polled[*n - FIRST] = c;
        http->files[(*n)++] = (struct pollfd){.fd = c->socket, .events = c->events};
    }
    return until;
}

/* Waits for bytes on any connection without a worker, and passes those that have some to workers. */
static void wait_once(spry_http_server *http)
{
    spry_connection *late = NULL;
    nfds_t n;
    pthread_mutex_lock(&http->lock);
    uint64_t until = list_files(http, &n, &late), now = spry_clock_ns();
    pthread_mutex_unlock(&http->lock);
    while (late) {
        spry_connection *c = late;
        late = c->next;
        spry_connection_destroy(c);
    }
    uint64_t ms = until > now ? (until - now) / 1000000 + 1 : 0;
    int found = poll(http->files, n, until == UINT64_MAX ? -1 : ms < INT_MAX ? (int)ms : INT_MAX);
    if (found <= 0)
        return;
    if (http->files[0].revents)
        spry_wakeup_clear(&http->wakeup);
    pthread_mutex_lock(&http->lock);
    for (nfds_t i = FIRST; i < n; i++)
        if (http->files[i].revents)
            enqueue(http, http->polled[i - FIRST]);
    pthread_mutex_unlock(&http->lock);
    if (http->files[1].revents)
        accept_some(http);
}

static void *waiting_main(void *context)
{
    spry_http_server *http = context;
    bool stopping = false;
    while (!stopping) {
        wait_once(http);
        pthread_mutex_lock(&http->lock);
        bool quiet = http->quiet;
        stopping = http->stopping;
        pthread_mutex_unlock(&http->lock);
        if (quiet && http->listening >= 0) {
            close(http->listening);
            http->listening = -1;
        }
    }
    return NULL;
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

static spry_status check_reach(spry_server *server, const struct sockaddr *address, const char *host, spry_error *error)
{
    server->loopback = is_loopback(address);
    if (server->loopback || server->keys.count || server->settings->insecure)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_INPUT,
                     "%s is reachable from other machines: set keys with --api-key-file, or allow it with --insecure",
                     host);
}

static int open_socket(const struct addrinfo *found)
{
    int file = spry_os_socket(found->ai_family), on = 1;
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

/* The address of a TCP socket that listens; false: the descriptor is something else. */
static bool address_of(struct sockaddr_storage *address, int file)
{
    int type = 0, listens = 0;
    socklen_t size = sizeof *address, type_size = sizeof type, listens_size = sizeof listens;
    memset(address, 0, sizeof *address);
    return getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_STREAM &&
           getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens &&
           getsockname(file, (struct sockaddr *)(void *)address, &size) == 0 &&
           (address->ss_family == AF_INET || address->ss_family == AF_INET6);
}

static uint16_t port_of(int file)
{
    struct sockaddr_storage address;
    if (!address_of(&address, file))
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                               : ((struct sockaddr_in *)(void *)&address)->sin_port);
}

/* A connection needs a file descriptor, its request another one. */
static void allow_files(size_t connections)
{
    struct rlimit limit;
    rlim_t wanted = 2 * (rlim_t)connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Uses the socket of a service manager, which stays open when this fails: it is not this server's. */
static spry_status take_socket(int *file, char host[SPRY_HTTP_HOST], spry_server *server, int passed, spry_error *error)
{
    struct sockaddr_storage address;
    const struct sockaddr *any = (const struct sockaddr *)(const void *)&address;
    char name[SPRY_HTTP_HOST - 2];
    int flags = fcntl(passed, F_GETFL);
    if (!address_of(&address, passed) || flags < 0 || fcntl(passed, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(passed, F_SETFD, FD_CLOEXEC) != 0 ||
        getnameinfo(any, sizeof address, name, sizeof name, NULL, 0, NI_NUMERICHOST) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "descriptor %d of the service manager is not a TCP socket that listens",
                         passed);
    snprintf(host, SPRY_HTTP_HOST, strchr(name, ':') ? "[%s]" : "%s", name);
    spry_status status = check_reach(server, any, host, error);
    if (status == SPRY_OK)
        *file = passed;
    return status;
}

static spry_status listen_on(int *file, char host[SPRY_HTTP_HOST], spry_server *server, spry_error *error)
{
    const spry_serve_settings *s = server->settings;
    int passed;
    spry_status status = spry_environment_take_socket(&passed, error);
    if (status != SPRY_OK || passed >= 0)
        return status != SPRY_OK ? status : take_socket(file, host, server, passed, error);
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    snprintf(port, sizeof port, "%u", s->port);
    if (getaddrinfo(s->host, port, &hints, &found) != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "--host %s: no such address", s->host);
    snprintf(host, SPRY_HTTP_HOST, "%s", s->host);
    status = check_reach(server, found->ai_addr, host, error);
    *file = status == SPRY_OK ? open_socket(found) : -1;
    if (status == SPRY_OK && *file < 0)
        status = spry_fail(error, SPRY_ERR_FILE, "cannot listen on %s port %u: %s", s->host, s->port, strerror(errno));
    freeaddrinfo(found);
    return status;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

static void destroy(spry_http_server *http)
{
    if (http->listening >= 0)
        close(http->listening);
    if (http->wakeup.file >= 0)
        spry_wakeup_deinit(&http->wakeup);
    spry_http_tls_close(http->tls);
    pthread_cond_destroy(&http->left);
    pthread_cond_destroy(&http->work);
    pthread_mutex_destroy(&http->lock);
    free(http->polled);
    free(http->files);
    free(http);
}

spry_status spry_http_server_start(spry_http_server **out, spry_server *server, spry_http_address *address,
                                   spry_error *error)
{
    spry_http_server *http = calloc(1, sizeof *http);
    if (!http)
        return spry_fail_memory(error, "the server", sizeof *http);
    *http = (spry_http_server){.server = server, .listening = -1, .wakeup.file = -1, .queue_end = &http->queue};
    http->limit = (size_t)server->settings->connections + MARGIN;
    http->files = calloc(FIRST + http->limit, sizeof *http->files);
    http->polled = calloc(http->limit, sizeof *http->polled);
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->left, NULL);
    spry_background_condition(&http->work);
    spry_status status = spry_http_tls_open(&http->tls, server->settings, error);
    if (status == SPRY_OK)
        status = listen_on(&http->listening, address->host, server, error);
    if (status == SPRY_OK) {
        address->port = port_of(http->listening);
        allow_files(http->limit);
        if (!http->files || !http->polled || !spry_wakeup_init(&http->wakeup))
            status = spry_fail(error, SPRY_ERR_MEMORY, "the HTTP server cannot start with %u connections",
                               server->settings->connections);
    }
    if (status == SPRY_OK)
        status = spry_background_start(&http->waiting, waiting_main, http, "the HTTP server", error);
    if (status == SPRY_OK)
        *out = http;
    else
        destroy(http);
    return status;
}

spry_status spry_http_server_reload(spry_http_server *http, spry_error *error)
{
    spry_http_tls *tls;
    spry_status status = spry_http_tls_open(&tls, http->server->settings, error);
    if (status != SPRY_OK)
        return status;
    pthread_mutex_lock(&http->lock);
    spry_http_tls *before = http->tls;
    http->tls = tls;
    pthread_mutex_unlock(&http->lock);
    spry_http_tls_close(before);
    return SPRY_OK;
}

void spry_http_server_quiesce(spry_http_server *http)
{
    pthread_mutex_lock(&http->lock);
    http->quiet = true;
    pthread_mutex_unlock(&http->lock);
    spry_wakeup_raise(&http->wakeup);
}

void spry_http_server_stop(spry_http_server *http)
{
    pthread_mutex_lock(&http->lock);
    http->stopping = true;
    for (spry_connection *c = http->first; c; c = c->next)
        if (c->busy)
            shutdown(c->socket, SHUT_RDWR); /* the worker's next read or write fails */
    pthread_cond_broadcast(&http->work);
    spry_wakeup_raise(&http->wakeup);
    pthread_mutex_unlock(&http->lock);
    pthread_join(http->waiting, NULL);
    pthread_mutex_lock(&http->lock);
    while (http->n_workers)
        pthread_cond_wait(&http->left, &http->lock);
    pthread_mutex_unlock(&http->lock);
    while (http->first) {
        spry_connection *c = http->first;
        unlist(http, c);
        spry_connection_destroy(c);
    }
    destroy(http);
}
