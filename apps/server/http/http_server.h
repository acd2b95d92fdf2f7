/* The HTTP server. One thread accepts connections and waits for bytes on all that are idle; a connection with bytes to
 * read goes to a worker thread, which parses them, runs the handler of a request and writes its reply. So idle and slow
 * clients cost no thread, TLS handshakes delay no other client, and handlers may block: while a model loads, for
 * tokens, for a slow reader. */
#ifndef SPRY_SERVER_HTTP_SERVER_H
#define SPRY_SERVER_HTTP_SERVER_H

#include "server/http/exchange.h"

typedef struct spry_http_server spry_http_server;

enum { SPRY_HTTP_HOST = 256 };

/* Where a server listens. */
typedef struct spry_http_address {
    char host[SPRY_HTTP_HOST]; /* as in a URL */
    uint16_t port;             /* also when the settings say 0 */
} spry_http_address;

/* Starts to listen, on the address of the settings or on the socket of a service manager, and sets server->loopback. An
 * address that other machines can reach needs keys or --insecure. */
spry_status spry_http_server_start(spry_http_server **out, spry_server *server, spry_http_address *address,
                                   spry_error *error);

/* Reads the certificate and its key again, for new connections; after an error the old ones stay. */
spry_status spry_http_server_reload(spry_http_server *http, spry_error *error);

/* Accepts no new connections. */
void spry_http_server_quiesce(spry_http_server *http);

/* Closes all connections and waits for their threads. */
void spry_http_server_stop(spry_http_server *http);

/* A field of the request's head, or an argument of its query; NULL: there is none. */
const char *spry_exchange_header(const spry_exchange *exchange, const char *name);
const char *spry_exchange_argument(const spry_exchange *exchange, const char *name);

/* The socket of an exchange; -1: no connection. */
int spry_http_socket(const spry_exchange *exchange);

/* Whether the reply is still wanted; to be called before each part of a long computation. SPRY_ERR_CANCELLED: the
 * client has disconnected, or --answer-timeout has passed, which sets exchange->late. */
spry_status spry_http_check_reader(spry_exchange *exchange, spry_error *error);

/* Until spry_interrupt_end, what this thread computes is given up when the client has left, its time is over, or the
 * server stops. */
void spry_http_interrupt_begin(spry_exchange *exchange);

/* Whether the key of this request may change models; false: a refusal was the reply. */
bool spry_http_admin(spry_exchange *exchange);

/* Takes bytes of --request-memory until the request ends. False: other requests have the rest, or this one has half. */
bool spry_http_take_memory(spry_exchange *exchange, size_t bytes);

/* With --verbose: one line of key=value pairs on standard error. */
void spry_http_log(const spry_server *server, const char *format, ...) SPRY_PRINTF(2, 3);

#endif
