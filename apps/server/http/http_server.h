/* The HTTP side: connections, heads, bodies, keys and limits, by libmicrohttpd with a thread for each connection. */
#ifndef SPRY_SERVER_HTTP_SERVER_H
#define SPRY_SERVER_HTTP_SERVER_H

#include "server/http/exchange.h"

typedef struct spry_http_server spry_http_server;

/* Begins to listen. Sets server->loopback; refuses to be reached from elsewhere without a key unless told to. *port is
 * the one it listens on, also when 0 was asked for. */
spry_status spry_http_server_start(spry_http_server **out, spry_server *server, uint16_t *port, spry_error *error);

/* No new connections from now on. */
void spry_http_server_quiesce(spry_http_server *http);

/* Cuts every connection that is left and waits for their threads. */
void spry_http_server_stop(spry_http_server *http);

/* Time that passed until now does not count as idle. */
void spry_http_touch(spry_exchange *exchange);

/* The socket of an exchange; -1 when nobody is connected. */
int spry_http_socket(const spry_exchange *exchange);

/* Whether somebody still waits for the reply, to be asked before each part of a long computation. SPRY_ERR_CANCELLED:
 * the client has left, the server's end has cut it off, or it is late, which exchange->late says from then on. */
spry_status spry_http_check_reader(spry_exchange *exchange, spry_error *error);

/* One holder of an exchange lets it go. A stream may outlive the moment in which libmicrohttpd calls it complete. */
void spry_http_release(spry_exchange *exchange);

/* One line to standard error, when the server is verbose: "key=value" words. */
void spry_http_log(const spry_server *server, const char *format, ...) SPRY_PRINTF(2, 3);

#endif
