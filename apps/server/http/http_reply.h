/* Replies. Each function gives the exchange its one reply; a second one is ignored. */
#ifndef SPRY_SERVER_HTTP_REPLY_H
#define SPRY_SERVER_HTTP_REPLY_H

#include <jansson.h>

#include "server/http/exchange.h"

/* Takes the reference; NULL is a reply that memory was short. */
void spry_reply_json(spry_exchange *exchange, unsigned status, json_t *json);

/* Bytes that are copied, with a type; `policy` NULL, or the page's content security policy. */
void spry_reply_text(spry_exchange *exchange, spry_view text, const char *type, const char *policy);

/* An error in the form the route's clients know; `param` NULL, or the field that is wrong. */
void spry_reply_error(spry_exchange *exchange, unsigned status, const char *param, const char *format, ...)
    SPRY_PRINTF(4, 5);

/* The path is there, but for other methods. */
void spry_reply_wrong_method(spry_exchange *exchange, const char *allowed);

/* The error of a request that the engine, the scheduler or the pool refused. */
void spry_reply_failure(spry_exchange *exchange, const spry_error *error);

/* HTTP's status for one of ours. */
unsigned spry_reply_status(spry_status status);

/* The body of an error, for replies whose head is long gone; NULL when memory is short. */
json_t *spry_reply_error_body(spry_error_form form, unsigned status, const char *param, const char *sentence);

/* Something that gives out bytes as they come. `more` waits until it has some and returns how many it wrote, 0 at the
 * end, -1 when the connection is to be cut. `end` is called once, whatever happens. */
typedef struct spry_reply_source {
    ssize_t (*more)(void *self, char *out, size_t size);
    void (*end)(void *self);
    void *self;
} spry_reply_source;

void spry_reply_stream(spry_exchange *exchange, const char *type, spry_reply_source source);

#endif
