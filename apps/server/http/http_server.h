/* The HTTP server: connections, heads, bodies and limits, on libmicrohttpd with one thread per connection. */
#ifndef SPRY_SERVER_HTTP_SERVER_H
#define SPRY_SERVER_HTTP_SERVER_H

#include "server/http/exchange.h"

typedef struct spry_http_server spry_http_server;

/* Starts to listen and sets server->loopback. An address that other machines can reach needs keys or --insecure. *port
 * is the port it listens on, also when the settings say 0. */
spry_status spry_http_server_start(spry_http_server **out, spry_server *server, uint16_t *port, spry_error *error);

/* Accepts no new connections. */
void spry_http_server_quiesce(spry_http_server *http);

/* Closes all connections and waits for their threads. */
void spry_http_server_stop(spry_http_server *http);

/* Restarts the idle clock of the connection. */
void spry_http_touch(spry_exchange *exchange);

/* The socket of an exchange; -1: no connection. */
int spry_http_socket(const spry_exchange *exchange);

/* Whether the reply is still wanted; to be called before each part of a long computation. SPRY_ERR_CANCELLED: the
 * client has disconnected, or --answer-timeout has passed, which sets exchange->late. */
spry_status spry_http_check_reader(spry_exchange *exchange, spry_error *error);

/* Drops a reference. The stream of a reply may outlive libmicrohttpd's notice that the request is complete. */
void spry_http_release(spry_exchange *exchange);

/* With --verbose: one line of key=value pairs on standard error. */
void spry_http_log(const spry_server *server, const char *format, ...) SPRY_PRINTF(2, 3);

#endif
