/* Replies. Each function gives the exchange its one reply; a second one is ignored. */
#ifndef SPRY_SERVER_HTTP_REPLY_H
#define SPRY_SERVER_HTTP_REPLY_H

#include <jansson.h>

#include "server/http/exchange.h"

/* Takes the reference; NULL: replies that memory is short. */
void spry_reply_json(spry_exchange *exchange, unsigned status, json_t *json);

/* Copies `text`. `policy`: NULL, or the content security policy of a page. */
/* Bytes that are compressed with gzip and stay valid; browsers may keep them for a day. */
void spry_reply_compressed(spry_exchange *exchange, spry_view bytes, const char *type);

void spry_reply_text(spry_exchange *exchange, spry_view text, const char *type, const char *policy);

/* An error in the route's form; `param`: NULL, or the wrong field. */
void spry_reply_error(spry_exchange *exchange, unsigned status, const char *param, const char *format, ...)
    SPRY_PRINTF(4, 5);

/* The path exists, but not for this method. */
void spry_reply_wrong_method(spry_exchange *exchange, const char *allowed);

/* An error of the engine, the scheduler or the pool. */
void spry_reply_failure(spry_exchange *exchange, const spry_error *error);

/* The HTTP status of a spry_status. */
unsigned spry_reply_status(spry_status status);

/* The body of an error, for streams whose status has been sent; NULL when memory is short. */
json_t *spry_reply_error_body(spry_error_form form, unsigned status, const char *param, const char *sentence);

/* A source of bytes. `more` waits until there are some and returns how many it wrote to `out`, 0 at the end, -1 to
 * close the connection. `end` is called exactly once, in any case. */
typedef struct spry_reply_source {
    ssize_t (*more)(void *self, char *out, size_t size);
    void (*end)(void *self);
    void *self;
} spry_reply_source;

void spry_reply_stream(spry_exchange *exchange, const char *type, spry_reply_source source);

#endif
