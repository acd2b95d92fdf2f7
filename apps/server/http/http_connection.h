/* One connection of a client: its bytes, its TLS, and its requests, one after the other. One thread at a time uses it:
 * the one that waits for bytes on all connections, or a worker. */
#ifndef SPRY_SERVER_HTTP_CONNECTION_H
#define SPRY_SERVER_HTTP_CONNECTION_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "server/http/exchange.h"
#include "server/server.h"

/* ---- http_tls.c: HTTPS ------------------------------------------------------------------------------------------- */

/* The certificate and key, and TLS on the sockets of clients, which never block. */

typedef struct spry_http_tls spry_http_tls;

/* Reads the files of the settings; *tls is NULL when none is set. Fails when only one is, when one cannot be read or
 * has no PEM block of its kind, and when they do not belong together. */
spry_status spry_http_tls_open(spry_http_tls **tls, const spry_serve_settings *settings, spry_error *error);
void spry_http_tls_close(spry_http_tls *tls);

/* TLS of one connection. */
typedef struct spry_tls_link spry_tls_link;

/* NULL when memory is short. */
spry_tls_link *spry_tls_link_create(spry_http_tls *tls, int socket);

/* Tells the client that no more bytes follow, if that is possible at once. */
void spry_tls_link_bye(spry_tls_link *link);
void spry_tls_link_destroy(spry_tls_link *link);

/* As recv and send of a socket that does not block. Bytes that were not sent must be passed again. The first calls
 * shake hands. */
ssize_t spry_tls_link_recv(spry_tls_link *link, void *bytes, size_t size);
ssize_t spry_tls_link_send(spry_tls_link *link, const void *bytes, size_t size);

/* Whether the handshake goes on when the socket can be written to. */
bool spry_tls_link_writes(const spry_tls_link *link);

/* ---- http_connection.c ------------------------------------------------------------------------------------------- */

typedef struct spry_connection {
    struct spry_connection *next, **link; /* list of the server's connections, under its lock */
    struct spry_connection *queued;       /* queue of connections that wait for a worker, under the same lock */
    bool busy;                            /* a worker has it, or will; under the same lock */

    spry_server *server;
    int socket;
    spry_tls_link *tls; /* NULL: none */
    struct sockaddr_storage address;
    spry_http_parser parser;
    spry_buffer in; /* bytes that were read and not parsed */
    spry_exchange exchange;
    bool open;         /* the exchange has begun and not ended */
    bool served;       /* the connection had a request */
    bool lingering;    /* the last reply is sent; bytes of the client are read and dropped */
    uint64_t since_ns; /* the connection has begun, or its last request has ended */
    uint64_t until_ns; /* when a connection that still waits for bytes is closed */
    short events;      /* events of poll that the connection waits for */
} spry_connection;

/* Takes over the socket, also on failure. NULL: memory is short. */
spry_connection *spry_connection_create(spry_server *server, spry_http_tls *tls, int socket,
                                        const struct sockaddr_storage *address);
void spry_connection_destroy(spry_connection *connection);

/* Reads bytes and serves requests until there are no more. True: the connection then waits for `events` until
 * `until_ns`. False: it is to be destroyed. */
bool spry_connection_serve(spry_connection *connection);

/* A hash of an address without its port. */
uint64_t spry_address_hash(const struct sockaddr_storage *address, uint64_t seed);

/* Access checks: keys, their limits, and the Origin and Host headers. Sets exchange->key and exchange->client. False
 * when a reply was given: a refusal, or the reply to a CORS preflight. */
bool spry_http_guard(spry_exchange *exchange);

/* Adds the headers that let a page of the request's origin read the reply, if --cors allows the origin. */
void spry_http_cors_add(spry_exchange *exchange);

#endif
