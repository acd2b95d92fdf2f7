/* The parser of requests. It accepts exactly the forms of RFC 9112 that have one possible reading, so that no proxy in
 * front of the server can see other requests than the server does, and ends at the first fault. */
#ifndef SPRY_SERVER_HTTP_REQUEST_H
#define SPRY_SERVER_HTTP_REQUEST_H

#include <stdint.h>

#include "base/buffer.h"

enum { SPRY_HTTP_FIELDS_MAX = 128, SPRY_HTTP_ARGUMENTS_MAX = 32 };

/* Why a request is refused. */
typedef enum spry_http_fault {
    SPRY_FAULT_NONE,
    SPRY_FAULT_LINE,      /* the request line has another form */
    SPRY_FAULT_TARGET,    /* its target is neither a path nor an http address, or has too many arguments */
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
    SPRY_FAULT_MEMORY,    /* memory for the body is short */
    SPRY_FAULT_COUNT
} spry_http_fault;

/* The status and the sentence of a fault; NULL when there is no such fault. */
const char *spry_http_fault_text(unsigned *status, unsigned fault);

typedef struct spry_http_pair {
    const char *name, *value;
} spry_http_pair;

typedef struct spry_http_head {
    spry_buffer text; /* the strings below are in it */
    const char *method;
    const char *path;                                  /* %41 is decoded to A */
    spry_http_pair arguments[SPRY_HTTP_ARGUMENTS_MAX]; /* arguments of the query, decoded */
    spry_http_pair fields[SPRY_HTTP_FIELDS_MAX];       /* the host of a target that is an address replaces Host */
    size_t n_arguments, n_fields;
    bool is_1_1;
    bool keeps;      /* the connection may be used for another request */
    bool expects;    /* the client waits for "100 Continue" before it sends the body */
    bool chunked;    /* the body is */
    uint64_t length; /* bytes of a body that is not chunked */
} spry_http_head;

typedef enum spry_parse_state {
    SPRY_PARSE_HEAD,
    SPRY_PARSE_BODY,
    SPRY_PARSE_CHUNK_SIZE,
    SPRY_PARSE_CHUNK,
    SPRY_PARSE_CHUNK_END,
    SPRY_PARSE_TRAILER,
    SPRY_PARSE_COMPLETE,
    SPRY_PARSE_REFUSED,
} spry_parse_state;

typedef struct spry_http_parser {
    size_t max_head, max_body;
    spry_parse_state state;
    spry_http_fault fault; /* why the request is refused */
    spry_http_head head;   /* valid once the state is no longer SPRY_PARSE_HEAD, unless the request is refused there */
    spry_buffer lines;     /* the head, or the lines of a chunked body, as far as they have arrived */
    size_t line;           /* where the last line of `lines` begins */
    unsigned blanks;       /* empty lines before a head */
    uint64_t left;         /* bytes of the body or of the chunk that are missing */
} spry_http_parser;

void spry_http_parser_init(spry_http_parser *parser, size_t max_head, size_t max_body);
void spry_http_parser_deinit(spry_http_parser *parser);

/* Ready for the next request of the connection. */
void spry_http_parser_reset(spry_http_parser *parser);

/* Parses bytes up to the end of the head, then up to the end of the request or its first fault; returns how many were
 * used. The body is appended to `body`. Any division of the bytes into calls has the same result. */
size_t spry_http_parser_feed(spry_http_parser *parser, spry_buffer *body, spry_view bytes);

/* The first value of that name, in any case of letters; NULL: there is none. */
const char *spry_http_head_field(const spry_http_head *head, const char *name);

#endif
