/* Whether the certificate and the key belong together is checked by libmicrohttpd when it starts. */
#include "server/http/http_tls.h"

#include <microhttpd.h>
#include <string.h>

#include "platform/file.h"
#include "platform/memory.h"

enum { PEM_BYTES_MAX = 1 << 20 };

static spry_status read_pem(spry_buffer *out, const char *path, const char *what, spry_error *error)
{
    char ending[64];
    spry_status status = spry_file_read(out, path, error);
    if (status != SPRY_OK)
        return status;
    /* "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----", ... */
    snprintf(ending, sizeof ending, "%s-----", what);
    if (!strstr(spry_buffer_view(out).data, "-----BEGIN ") || !strstr(out->data, ending))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: has no %s in PEM form (-----BEGIN ... %s-----)", path, what,
                         what);
    return SPRY_OK;
}

spry_status spry_http_tls_init(spry_http_tls *tls, const spry_serve_settings *s, spry_error *error)
{
    spry_buffer_init(&tls->certificate, PEM_BYTES_MAX);
    spry_buffer_init(&tls->key, PEM_BYTES_MAX);
    if (!s->tls_cert && !s->tls_key)
        return SPRY_OK;
    if (!s->tls_cert || !s->tls_key)
        return spry_fail(error, SPRY_ERR_INPUT, "--tls-cert and --tls-key must be used together: %s is missing",
                         s->tls_cert ? "--tls-key" : "--tls-cert");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "--tls-cert: libmicrohttpd was built without TLS; install one with TLS, or use a proxy");
    spry_status status = read_pem(&tls->certificate, s->tls_cert, "CERTIFICATE", error);
    if (status == SPRY_OK)
        status = read_pem(&tls->key, s->tls_key, "PRIVATE KEY", error);
    return status;
}

void spry_http_tls_deinit(spry_http_tls *tls)
{
    if (tls->key.data)
        spry_memory_wipe(tls->key.data, tls->key.capacity);
    spry_buffer_deinit(&tls->certificate);
    spry_buffer_deinit(&tls->key);
}
