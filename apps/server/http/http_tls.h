/* HTTPS: the certificate and key, and TLS on the sockets of clients, which never block. */
#ifndef SPRY_SERVER_HTTP_TLS_H
#define SPRY_SERVER_HTTP_TLS_H

#include <sys/types.h>

#include "server/server.h"

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

#endif
