/* Open connections, so that idle and slow ones lock out no other client: a connection must send a whole head within a
 * time; when all places are taken, the one that has waited longest without a request gives way; and one address has a
 * limit. */
#ifndef SPRY_SERVER_HTTP_CONNECTIONS_H
#define SPRY_SERVER_HTTP_CONNECTIONS_H

#include <microhttpd.h>
#include <pthread.h>

#include "base/error.h"
#include "server/server.h"

enum { SPRY_CONNECTIONS_MARGIN = 64 }; /* connections beyond the limit while others give way */

typedef struct spry_connection spry_connection;

typedef struct spry_connections {
    const spry_serve_settings *settings;
    bool loopback; /* only this machine connects: no limit per address, unless one is set */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t sweeper;
    bool running;
    spry_connection *first;
    size_t count;
} spry_connections;

spry_status spry_connections_start(spry_connections *connections, const spry_server *server, spry_error *error);
void spry_connections_stop(spry_connections *connections);

/* Callbacks of libmicrohttpd: whether an address may connect; a connection has begun or ended. */
enum MHD_Result spry_connections_accept(void *connections, const struct sockaddr *address, socklen_t size);
void spry_connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code);

/* The connection's head is complete, or its request has ended. */
void spry_connections_set_busy(spry_connections *connections, struct MHD_Connection *connection, bool busy);

#endif
