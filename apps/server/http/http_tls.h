/* The certificate and key of a server that speaks HTTPS. */
#ifndef SPRY_SERVER_HTTP_TLS_H
#define SPRY_SERVER_HTTP_TLS_H

#include "server/server.h"

typedef struct spry_http_tls {
    spry_buffer certificate, key; /* PEM; both empty: plain HTTP */
} spry_http_tls;

/* Reads the files that the settings name. Fails when only one is named, when one cannot be read or holds no PEM block
 * of its kind, and when libmicrohttpd was built without TLS. Deinit whatever happens. */
spry_status spry_http_tls_init(spry_http_tls *tls, const spry_serve_settings *settings, spry_error *error);

/* The key is wiped. */
void spry_http_tls_deinit(spry_http_tls *tls);

static inline bool spry_http_tls_wanted(const spry_http_tls *tls)
{
    return tls->certificate.size > 0;
}

#endif
