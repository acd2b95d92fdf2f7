#include "server/http/http_connection.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "platform/file.h"
#include "platform/memory.h"

enum { PEM_BYTES_MAX = 1 << 20 };

struct spry_http_tls {
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t versions;
    atomic_uint users; /* the server and its connections; the last one frees it */
};

struct spry_tls_link {
    gnutls_session_t session;
    spry_http_tls *tls;
    bool ready; /* hands are shaken */
};

/* ---- the certificate --------------------------------------------------------------------------------------------- */

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

static gnutls_datum_t datum(const spry_buffer *text)
{
    return (gnutls_datum_t){.data = (unsigned char *)text->data, .size = (unsigned)text->size};
}

/* Reads both files into the credentials. The key is wiped. */
static spry_status read_files(spry_http_tls *tls, const spry_serve_settings *s, spry_error *error)
{
    spry_buffer certificate, key;
    spry_buffer_init(&certificate, PEM_BYTES_MAX);
    spry_buffer_init(&key, PEM_BYTES_MAX);
    spry_status status = read_pem(&certificate, s->tls_cert, "CERTIFICATE", error);
    if (status == SPRY_OK)
        status = read_pem(&key, s->tls_key, "PRIVATE KEY", error);
    const gnutls_datum_t chain = datum(&certificate), secret = datum(&key);
    if (status == SPRY_OK &&
        gnutls_certificate_set_x509_key_mem(tls->credentials, &chain, &secret, GNUTLS_X509_FMT_PEM) < 0)
        status = spry_fail(error, SPRY_ERR_FORMAT,
                           "%s and %s: not a certificate and its unencrypted key, or the two do not belong together",
                           s->tls_cert, s->tls_key);
    if (key.data)
        spry_memory_wipe(key.data, key.capacity);
    spry_buffer_deinit(&certificate);
    spry_buffer_deinit(&key);
    return status;
}

/* Key exchanges with forward secrecy, and ciphers that authenticate what they encrypt. */
static const char modern[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:"
                             "+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD";

spry_status spry_http_tls_open(spry_http_tls **out, const spry_serve_settings *s, spry_error *error)
{
    *out = NULL;
    if (!s->tls_cert && !s->tls_key)
        return SPRY_OK;
    if (!s->tls_cert || !s->tls_key)
        return spry_fail(error, SPRY_ERR_INPUT, "--tls-cert and --tls-key must be used together: %s is missing",
                         s->tls_cert ? "--tls-key" : "--tls-cert");
    spry_http_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return spry_fail_memory(error, "TLS", sizeof *tls);
    spry_status status = SPRY_OK;
    atomic_init(&tls->users, 1);
    if (gnutls_certificate_allocate_credentials(&tls->credentials) < 0 ||
        gnutls_priority_init(&tls->versions, modern, NULL) < 0)
        status = spry_fail_memory(error, "TLS", sizeof *tls);
    if (status == SPRY_OK)
        status = read_files(tls, s, error);
    if (status == SPRY_OK)
        *out = tls;
    else
        spry_http_tls_close(tls);
    return status;
}

void spry_http_tls_close(spry_http_tls *tls)
{
    if (!tls || atomic_fetch_sub(&tls->users, 1) != 1)
        return;
    if (tls->credentials)
        gnutls_certificate_free_credentials(tls->credentials);
    if (tls->versions)
        gnutls_priority_deinit(tls->versions);
    free(tls);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

spry_tls_link *spry_tls_link_create(spry_http_tls *tls, int socket)
{
    spry_tls_link *link = calloc(1, sizeof *link);
    if (!link || gnutls_init(&link->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(link);
        return NULL;
    }
    atomic_fetch_add(&tls->users, 1);
    link->tls = tls;
    gnutls_handshake_set_timeout(link->session, GNUTLS_INDEFINITE_TIMEOUT); /* --head-timeout limits it */
    gnutls_transport_set_int(link->session, socket);
    if (gnutls_priority_set(link->session, tls->versions) < 0 ||
        gnutls_credentials_set(link->session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0) {
        spry_tls_link_destroy(link);
        return NULL;
    }
    return link;
}

void spry_tls_link_bye(spry_tls_link *link)
{
    if (link->ready)
        (void)gnutls_bye(link->session, GNUTLS_SHUT_WR);
}

void spry_tls_link_destroy(spry_tls_link *link)
{
    gnutls_deinit(link->session);
    spry_http_tls_close(link->tls);
    free(link);
}

/* The result of a call as that of a system call. A client that closes its socket without a word has ended. */
static ssize_t as_result(ssize_t n)
{
    if (n >= 0)
        return n;
    if (n == GNUTLS_E_PREMATURE_TERMINATION)
        return 0;
    errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
    return -1;
}

/* 0 when hands are shaken, else -1 and errno. Why it failed is sent to the client. */
static ssize_t shake_hands(spry_tls_link *link)
{
    int n = link->ready ? 0 : gnutls_handshake(link->session);
    if (n < 0 && gnutls_error_is_fatal(n))
        (void)gnutls_alert_send_appropriate(link->session, n);
    else if (n < 0 && n != GNUTLS_E_AGAIN)
        n = GNUTLS_E_INTERRUPTED; /* a warning */
    link->ready = n == 0;
    errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
    return n == 0 ? 0 : -1;
}

ssize_t spry_tls_link_recv(spry_tls_link *link, void *bytes, size_t size)
{
    return shake_hands(link) ? -1 : as_result(gnutls_record_recv(link->session, bytes, size));
}

ssize_t spry_tls_link_send(spry_tls_link *link, const void *bytes, size_t size)
{
    return shake_hands(link) ? -1 : as_result(gnutls_record_send(link->session, bytes, size));
}

bool spry_tls_link_writes(const spry_tls_link *link)
{
    return !link->ready && gnutls_record_get_direction(link->session) == 1;
}
