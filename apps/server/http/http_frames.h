/* The bytes of one connection, from its client to libmicrohttpd. Heads are checked as http_head.h says, and bodies are
 * passed on with their framing written anew, so libmicrohttpd reads only well-formed requests.
 *
 * A request that is refused becomes one that names the fault, which the server answers as any other request, in its
 * turn; what follows it on the connection is dropped. So a connection never has two answers to one request. */
#ifndef SPRY_SERVER_HTTP_FRAMES_H
#define SPRY_SERVER_HTTP_FRAMES_H

#include "server/http/http_head.h"

#define SPRY_REFUSED_FIELD "Spry-Refused" /* behind a chunked body: its fault */

typedef enum spry_frame_state {
    SPRY_FRAME_HEAD,
    SPRY_FRAME_BODY,
    SPRY_FRAME_CHUNK_SIZE,
    SPRY_FRAME_CHUNK,
    SPRY_FRAME_CHUNK_END,
    SPRY_FRAME_TRAILER,
    SPRY_FRAME_REFUSED, /* everything else is dropped */
} spry_frame_state;

typedef struct spry_http_frames {
    size_t max_head, max_body;
    spry_frame_state state;
    spry_buffer lines; /* the head, or the line of a chunked body, as far as it has arrived */
    size_t line;       /* where the last line of `lines` begins */
    unsigned blanks;   /* empty lines before a head */
    uint64_t left;     /* bytes of the body or of the chunk that follow */
    uint64_t total;    /* bytes of the chunked body */
} spry_http_frames;

void spry_http_frames_init(spry_http_frames *frames, size_t max_head, size_t max_body);
void spry_http_frames_deinit(spry_http_frames *frames);

/* Appends to `out` what libmicrohttpd is to read. Any division of the bytes into calls gives the same. */
void spry_http_frames_feed(spry_http_frames *frames, spry_buffer *out, spry_view bytes);

/* No request has begun that is not passed on completely. */
bool spry_http_frames_between(const spry_http_frames *frames);

/* The fault of a target "*N" or of a field SPRY_REFUSED_FIELD; 0: none. */
unsigned spry_http_frames_fault(const char *text);

#endif
