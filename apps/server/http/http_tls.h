/* The certificate and key for HTTPS. */
#ifndef SPRY_SERVER_HTTP_TLS_H
#define SPRY_SERVER_HTTP_TLS_H

#include "server/server.h"

typedef struct spry_http_tls {
    spry_buffer certificate, key; /* PEM; both empty: plain HTTP */
} spry_http_tls;

/* Reads the files of the settings. Fails when only one is set, when one cannot be read or has no PEM block of its kind,
 * and when libmicrohttpd was built without TLS. To be deinitialised also after a failure. */
spry_status spry_http_tls_init(spry_http_tls *tls, const spry_serve_settings *settings, spry_error *error);

/* Wipes the key. */
void spry_http_tls_deinit(spry_http_tls *tls);

static inline bool spry_http_tls_wanted(const spry_http_tls *tls)
{
    return tls->certificate.size > 0;
}

#endif
