/* Heads of requests, checked before libmicrohttpd reads them: exactly the forms of RFC 9112 that only one reading is
 * possible of, so that no other program on the way can see other requests than this server does. */
#ifndef SPRY_SERVER_HTTP_HEAD_H
#define SPRY_SERVER_HTTP_HEAD_H

#include <stdint.h>

#include "base/buffer.h"

/* Why a request is refused. */
typedef enum spry_http_fault {
    SPRY_FAULT_NONE,
    SPRY_FAULT_LINE,      /* the request line has another form */
    SPRY_FAULT_TARGET,    /* its target is neither a path nor an http address */
    SPRY_FAULT_VERSION,   /* neither HTTP/1.0 nor HTTP/1.1 */
    SPRY_FAULT_FIELD,     /* a header field has another form */
    SPRY_FAULT_ENDING,    /* a line does not end with CR LF */
    SPRY_FAULT_HOST,      /* no Host, several, or a wrong one */
    SPRY_FAULT_LENGTH,    /* Content-Length is no number, or is there twice */
    SPRY_FAULT_ENCODING,  /* Transfer-Encoding is not "chunked" */
    SPRY_FAULT_BOTH,      /* Content-Length and Transfer-Encoding */
    SPRY_FAULT_LONG_LINE, /* the request line exceeds the limit of heads */
    SPRY_FAULT_LONG_HEAD, /* the head does */
    SPRY_FAULT_CHUNK,     /* the framing of a chunked body is wrong */
    SPRY_FAULT_BODY,      /* a chunked body exceeds its limit */
    SPRY_FAULT_COUNT
} spry_http_fault;

/* The status and the sentence of a fault; NULL when there is no such fault. */
const char *spry_http_fault_text(unsigned *status, unsigned fault);

/* Whether the first `size` characters, at least one, may stand in a method or in the name of a field. */
bool spry_http_is_token(spry_view text, size_t size);

typedef struct spry_http_head {
    bool chunked;
    uint64_t length; /* of a body that is not chunked */
} spry_http_head;

/* Checks a head whose lines end with CR LF, with the empty line at its end, and appends what libmicrohttpd is to read:
 * the same head, where an http address as target becomes its path and the Host. */
spry_http_fault spry_http_head_check(spry_http_head *head, spry_buffer *out, spry_view text);

#endif
