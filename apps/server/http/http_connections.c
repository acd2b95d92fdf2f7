/* A connection is closed by shutting its socket down: its thread wakes up and frees it. */
#include "server/http/http_connections.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/map.h"
#include "platform/clock.h"

enum { SWEEP_MS = 250 };

struct spry_connection {
    spry_connection *next, **link;
    int socket;
    uint64_t address;  /* a hash */
    uint64_t since_ns; /* it has begun, or its last request has ended */
    bool busy;         /* it has a request */
    bool served;       /* it had one */
    bool shut;
};

static uint64_t address_hash(const struct sockaddr *address)
{
    if (address && address->sa_family == AF_INET)
        return spry_hash_bytes(&((const struct sockaddr_in *)(const void *)address)->sin_addr, 4, 1);
    if (address && address->sa_family == AF_INET6)
        return spry_hash_bytes(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16, 1);
    return 0;
}

static void shut(spry_connection *c)
{
    if (!c->shut)
        shutdown(c->socket, SHUT_RDWR);
    c->shut = true;
}

/* ---- the sweeper ------------------------------------------------------------------------------------------------- */

static void sweep(spry_connections *all, uint64_t now)
{
    for (spry_connection *c = all->first; c; c = c->next) {
        uint64_t seconds = c->served ? all->settings->idle_s : all->settings->head_s;
        if (!c->busy && now - c->since_ns > seconds * 1000000000)
            shut(c);
    }
}

static void *sweeper_main(void *context)
{
    spry_connections *all = context;
    pthread_mutex_lock(&all->lock);
    while (all->running) {
        struct timespec until;
        sweep(all, spry_clock_ns());
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SWEEP_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&all->wake, &all->lock, &until);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

spry_status spry_connections_start(spry_connections *all, const spry_server *server, spry_error *error)
{
    *all = (spry_connections){.settings = server->settings, .loopback = server->loopback, .running = true};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->wake, NULL);
    if (pthread_create(&all->sweeper, NULL, sweeper_main, all) == 0)
        return SPRY_OK;
    all->running = false;
    return spry_fail(error, SPRY_ERR_MEMORY, "the HTTP server cannot start a thread");
}

void spry_connections_stop(spry_connections *all)
{
    pthread_mutex_lock(&all->lock);
    bool running = all->running;
    all->running = false;
    pthread_cond_signal(&all->wake);
    pthread_mutex_unlock(&all->lock);
    if (running)
        pthread_join(all->sweeper, NULL);
    pthread_cond_destroy(&all->wake);
    pthread_mutex_destroy(&all->lock);
}

/* ---- beginning and ending ---------------------------------------------------------------------------------------- */

static size_t address_limit(const spry_connections *all)
{
    uint32_t limit = all->settings->per_address, half = all->settings->connections / 2;
    return limit ? limit : all->loopback ? SIZE_MAX : half ? half : 1;
}

enum MHD_Result spry_connections_accept(void *connections, const struct sockaddr *address, socklen_t size)
{
    spry_connections *all = connections;
    uint64_t hash = address_hash(address);
    size_t same = 0;
    (void)size;
    pthread_mutex_lock(&all->lock);
    for (const spry_connection *c = all->first; c; c = c->next)
        same += c->address == hash && !c->shut;
    pthread_mutex_unlock(&all->lock);
    return same < address_limit(all) ? MHD_YES : MHD_NO;
}

/* The connection that waits longest without a request, those that never had one first; NULL: all have one. */
static spry_connection *idlest(const spry_connections *all)
{
    spry_connection *found = NULL;
    for (spry_connection *c = all->first; c; c = c->next) {
        bool better =
            !found || (!c->served && found->served) || (c->served == found->served && c->since_ns < found->since_ns);
        if (!c->busy && !c->shut && better)
            found = c;
    }
    return found;
}

static spry_connection *begin(spry_connections *all, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int file = socket ? socket->connect_fd : -1;
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    spry_connection *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->socket = file;
    c->address = address ? address_hash(address->client_addr) : 0;
    c->since_ns = spry_clock_ns();
    c->next = all->first;
    c->link = &all->first;
    if (c->next)
        c->next->link = &c->next;
    all->first = c;
    all->count++;
    spry_connection *out = all->count > all->settings->connections ? idlest(all) : NULL;
    if (out)
        shut(out);
    return c;
}

static void end(spry_connections *all, spry_connection *c)
{
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    all->count--;
    free(c);
}

void spry_connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code)
{
    spry_connections *all = connections;
    pthread_mutex_lock(&all->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        *context = begin(all, connection);
    else if (*context)
        end(all, *context);
    pthread_mutex_unlock(&all->lock);
}

void spry_connections_set_busy(spry_connections *all, struct MHD_Connection *connection, bool busy)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    pthread_mutex_lock(&all->lock);
    spry_connection *c = info ? info->socket_context : NULL;
    if (c) {
        c->busy = busy;
        c->served = c->served || busy;
        c->since_ns = spry_clock_ns();
    }
    pthread_mutex_unlock(&all->lock);
}
